"""List the providers: API, address, and the variable of the key."""

from __future__ import annotations

import argparse
import os
import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..config.providers import PROVIDERS, Provider
from .io import write_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    if options.json:
        write_json(PROVIDERS)
        return 0
    table = Table(title=f"{len(PROVIDERS)} providers")
    for column in ("provider", "wire", "native tools", "base URL", "key"):
        table.add_column(column, overflow="fold")
    for name, provider in PROVIDERS.items():
        table.add_row(*map(Text, _row(name, provider)))
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    return 0


_TOOLS = {True: "yes", False: "no", "model": "some models"}


def _row(name: str, provider: Provider) -> tuple[str, ...]:
    where = provider.base_url or "you say where"
    return name, provider.wire, _TOOLS[provider.tools], where, _key(provider)


def _key(provider: Provider) -> str:
    """The variable that holds the key: never the key."""
    found = next((name for name in provider.keys if os.environ.get(name)), None)
    return f"{found} (set)" if found else " or ".join(provider.keys) or "none needed"
