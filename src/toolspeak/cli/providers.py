"""List the providers with their APIs, base URLs and key variables."""

from __future__ import annotations

import argparse
import os

from ..config.providers import EMBEDDED, PROVIDERS, Provider
from .arguments import CommandParser
from .terminal import build_table, open_console, write_json

_COLUMNS = ("provider", "wire", "native tools", "base URL", "key")
_TOOL_SUPPORT = {True: "yes", False: "no", "model": "some models"}


def add_arguments(parser: CommandParser) -> None:
    parser.add_flag("--json", "print JSON")


def run(options: argparse.Namespace) -> int:
    if options.json:
        write_json(PROVIDERS)
        return 0
    rows = [
        (
            name,
            provider.wire,
            _TOOL_SUPPORT[provider.tools],
            provider.base_url or ("none needed" if name == EMBEDDED else "set base_url"),
            _describe_key(provider),
        )
        for name, provider in PROVIDERS.items()
    ]
    open_console().print(build_table(_COLUMNS, rows, title=f"{len(PROVIDERS)} providers"))
    return 0


def _describe_key(provider: Provider) -> str:
    """Return the variable that holds the key, never the key itself."""
    found = next((name for name in provider.key_variables if os.environ.get(name)), None)
    return f"{found} (set)" if found else " or ".join(provider.key_variables) or "none needed"
