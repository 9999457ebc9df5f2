"""Check the configuration; list upstreams, models and providers.

Only servers on this machine are contacted, and no model is loaded.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ..config.document import ConfigError
from ..config.loading import LoadedConfig, read_config
from ..config.providers import EMBEDDED, PROVIDERS
from ..config.settings import Config, find_model_or_default, mask_secret, mask_settings, mask_url
from .arguments import CommandParser
from .terminal import build_table, open_console, write_json

if TYPE_CHECKING:
    from ..upstream.catalog import Catalog


def add_arguments(parser: CommandParser) -> None:
    parser.add_file(
        "--config", "the configuration, TOML or LiteLLM's YAML (default: toolspeak.toml)"
    )
    parser.add_flag("--offline", "do not look for servers on this machine")
    parser.add_flag("--json", "print JSON")


def run(options: argparse.Namespace) -> int:
    try:
        loaded = read_config(options.config, os.environ)
    except ConfigError as error:
        if options.json:
            _print_json(error.problems, error.warnings, None, None)
        else:
            _print_messages(error.problems, error.warnings)
        return 1
    catalog = None if options.offline else _find_models(loaded.config)
    if options.json:
        _print_json((), loaded.warnings, loaded.config, catalog)
        return 0
    _print_config(loaded, catalog)
    _print_messages((), loaded.warnings)
    return 0


def _find_models(config: Config) -> Catalog:
    """Return the configured models, those of local servers, and the embedded one."""
    from ..upstream.catalog import Catalog
    from ..upstream.discovery import describe_embedded, discover_servers, find_embedded_file

    found = asyncio.run(discover_servers(config))
    if file := find_embedded_file(config):
        found = (*found, describe_embedded(file.stem))
    return Catalog(config, os.environ, found)


def _print_json(
    problems: Sequence[str],
    warnings: Sequence[str],
    config: Config | None,
    catalog: Catalog | None,
) -> None:
    result = {
        "ok": not problems,
        "problems": problems,
        "warnings": warnings,
        "config": config and mask_settings(config),
        "models": catalog and catalog.list_names(),
        "default": catalog and catalog.default_model,
        "providers": config and dict(_list_provider_keys(config)),
    }
    write_json(result)


def _print_messages(problems: Sequence[str], warnings: Sequence[str]) -> None:
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for problem in problems:
        print(f"toolspeak: {problem}", file=sys.stderr)


def _print_config(loaded: LoadedConfig, catalog: Catalog | None) -> None:
    config = loaded.config
    console = open_console()
    _print_tables(console, config, catalog)
    server = config.server
    unset = "requests must name a model" if catalog else "a model found on this machine is used"
    default = catalog.default_model if catalog else config.default
    lines = {
        "file": loaded.source or "defaults (no file)",
        "address": f"{server.host}, port {server.port}, {_count_keys(config)}",
        "default model": default or f"not set; {unset}",
        "store": mask_url(config.store),
    }
    for name, value in lines.items():
        console.print(Text(f"{name:<13} {value}"))


def _print_tables(console: Console, config: Config, catalog: Catalog | None) -> None:
    """Print the tables that are not empty."""
    upstream_columns = ("upstream", "wire", "base URL", "key", "fallbacks")
    model_columns = ("model", "sent to", "tools", "dialect", "trust")
    providers = (
        (f"{name}/…", PROVIDERS[name].title, variable)
        for name, variable in _list_provider_keys(config)
    )
    for columns, rows in (
        (upstream_columns, _list_upstreams(config)),
        (model_columns, (*_list_models(config), *_list_found_models(catalog))),
        (("alias", "model"), config.aliases.items()),
        (("any model", "of the provider", "with the key in"), providers),
    ):
        table = build_table(columns, rows)
        if table.row_count:
            console.print(table)


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


def _list_found_models(catalog: Catalog | None) -> Iterable[Sequence[str]]:
    for server in catalog.discovered if catalog else ():
        for model in server.models:
            name = f"{server.name}/{model}"
            settings = catalog.find_model(name) if catalog else None
            if settings:
                sent_to = "embedded" if server.name == EMBEDDED else server.upstream.base_url
                yield name, sent_to, settings.tools, settings.dialect or "auto", settings.trust


def _list_provider_keys(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the providers that serve any of their models because their keys are set, and the
    variables of the keys."""
    for name, provider in PROVIDERS.items():
        variables = (one for one in provider.key_variables if os.environ.get(one))
        variable = next(variables, None)
        if variable and provider.base_url and name not in config.upstreams:
            yield name, variable


def _count_keys(config: Config) -> str:
    count = len(config.server.keys)
    return f"{count} client key{'s' * (count != 1)}" if count else "no client keys"
