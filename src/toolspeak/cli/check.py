"""Check the gateway's configuration, and show what it would serve.

It asks nobody.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..config.document import ConfigError
from ..config.loading import LoadedConfig, read_config
from ..config.model_names import find_model
from ..config.settings import Config, mask_secret, mask_settings, mask_url
from .io import write_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="TOML, or LiteLLM's YAML; toolspeak.toml or $TOOLSPEAK_CONFIG if left out",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    try:
        loaded = read_config(options.config, os.environ)
    except ConfigError as error:
        _report(error.problems, error.warnings, None, as_json=options.json)
        return 1
    _report((), loaded.warnings, loaded, as_json=options.json)
    return 0


def _report(
    problems: Sequence[str], warnings: Sequence[str], loaded: LoadedConfig | None, *, as_json: bool
) -> None:
    if as_json:
        config = mask_settings(loaded.config) if loaded else None
        told = {"problems": problems, "warnings": warnings, "config": config}
        write_json({"ok": not problems, **told})
        return
    if loaded:
        _show(loaded)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for problem in problems:
        print(f"toolspeak: {problem}", file=sys.stderr)


def _show(loaded: LoadedConfig) -> None:
    config = loaded.config
    console = Console(width=None if sys.stdout.isatty() else 120)
    titles = ("upstream", "wire", "base URL", "key", "fallbacks")
    _print(console, titles, _upstreams(config))
    _print(console, ("model", "asked of", "tools", "dialect", "trust"), _models(config))
    _print(console, ("alias", "model"), config.aliases.items())
    server = config.server
    console.print(Text(f"settings  {loaded.source or 'no file: the defaults'}"))
    console.print(Text(f"listens   {server.host}, port {server.port}, {_keys(config)}"))
    console.print(
        Text(f"default   {config.default or 'none set: a model of this machine, if it has one'}")
    )
    console.print(Text(f"store     {mask_url(config.store)}"))


def _print(console: Console, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table()
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    if table.row_count:
        console.print(table)


def _upstreams(config: Config) -> Iterable[Sequence[str]]:
    for name, upstream in config.upstreams.items():
        address = mask_url(upstream.base_url) or "in the box"
        key = mask_secret(upstream.key) or "none"
        yield name, upstream.wire, address, key, ", ".join(upstream.fallbacks)


def _models(config: Config) -> Iterable[Sequence[str]]:
    for name, model in config.models.items():
        target = find_model(config, name)
        attempts = target.locations if target else ()
        asked = "\n".join(f"{one.upstream}: {one.model}" for one in attempts)
        yield name, asked, model.tools, model.dialect or "auto", model.trust


def _keys(config: Config) -> str:
    count = len(config.server.keys)
    return f"{count} client key{'s' * (count != 1)}" if count else "without client keys"
