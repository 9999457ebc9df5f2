"""Check the configuration and show its upstreams and models.

No upstream is contacted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence

from rich.text import Text

from ..config.document import ConfigError
from ..config.loading import LoadedConfig, read_config
from ..config.settings import Config, find_model_or_default, mask_secret, mask_settings, mask_url
from .arguments import CommandParser
from .terminal import build_table, open_console, write_json


def add_arguments(parser: CommandParser) -> None:
    parser.add_file(
        "--config", "the configuration, TOML or LiteLLM's YAML (default: toolspeak.toml)"
    )
    parser.add_flag("--json", "print JSON")


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
        result = {"problems": problems, "warnings": warnings, "config": config}
        write_json({"ok": not problems, **result})
        return
    if loaded:
        _print_config(loaded)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for problem in problems:
        print(f"toolspeak: {problem}", file=sys.stderr)


def _print_config(loaded: LoadedConfig) -> None:
    config = loaded.config
    console = open_console()
    upstream_columns = ("upstream", "wire", "base URL", "key", "fallbacks")
    model_columns = ("model", "sent to", "tools", "dialect", "trust")
    for columns, rows in (
        (upstream_columns, _list_upstreams(config)),
        (model_columns, _list_models(config)),
        (("alias", "model"), config.aliases.items()),
    ):
        table = build_table(columns, rows)
        if table.row_count:
            console.print(table)
    server = config.server
    lines = {
        "file": loaded.source or "defaults (no file)",
        "address": f"{server.host}, port {server.port}, {_count_keys(config)}",
        "default model": config.default or "not set; a model found on this machine is used",
        "store": mask_url(config.store),
    }
    for name, value in lines.items():
        console.print(Text(f"{name:<13} {value}"))


def _list_upstreams(config: Config) -> Iterable[Sequence[str]]:
    for name, upstream in config.upstreams.items():
        base_url = mask_url(upstream.base_url) or "embedded"
        key = mask_secret(upstream.key) or "none"
        yield name, upstream.wire, base_url, key, ", ".join(upstream.fallbacks)


def _list_models(config: Config) -> Iterable[Sequence[str]]:
    for name, model in config.models.items():
        found = find_model_or_default(config, name)
        locations = found.locations if found else ()
        sent_to = "\n".join(f"{location.upstream}: {location.model}" for location in locations)
        yield name, sent_to, model.tools, model.dialect or "auto", model.trust


def _count_keys(config: Config) -> str:
    count = len(config.server.keys)
    return f"{count} client key{'s' * (count != 1)}" if count else "no client keys"
