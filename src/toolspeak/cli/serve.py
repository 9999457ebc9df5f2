"""Start the gateway: every client API on one port, for any model."""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs
from rich.console import Console
from rich.markup import escape

from .._util import escape_for_terminal
from .clients import CLIENTS, DEFAULT_URL, NO_KEY, GatewayAddress, build_snippets
from .io import explain_missing_packages

log = logging.getLogger("toolspeak.cli")
_NAME = "toolspeak"

if TYPE_CHECKING:
    from ..config.loading import LoadedConfig
    from ..config.settings import Config
    from ..gateway.server import GatewayRunner
    from ..upstream.catalog import Catalog


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_arguments(parser)
    parser.add_argument("--host", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, help="the port to listen on; 0 picks a free one (default: 7878)"
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="the number of processes (default: 1)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the URL, models and clients as JSON"
    )
    parser.add_argument("--verbose", action="store_true", help="log each request")
    parser.add_argument(
        "--log",
        dest="log_format",
        choices=("text", "json"),
        help="the log format on standard error; json logs every request",
    )


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which models there are."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="a TOML file (default: toolspeak.toml)",
    )
    parser.add_argument(
        "--gguf", type=Path, metavar="FILE", help="a model file to run instead of the bundled one"
    )
    parser.add_argument(
        "--embedded",
        action=argparse.BooleanOptionalAction,
        help="start the embedded model, or do not",
    )


def run(options: argparse.Namespace) -> int:
    with explain_missing_packages("the gateway", "gateway,local"):
        from ..config.running_instances import RunningInstance, register_instance
        from ..gateway.server import SingleProcessRunner
        from ..gateway.workers import MultiProcessRunner
        from ..observe.logs import configure_logging
    console = Console(stderr=options.json, highlight=False)
    status = console.status("Looking for models …")

    def announce(service: GatewayRunner) -> None:
        status.stop()
        here = RunningInstance(service.url, os.getpid(), service.inspector.token)
        cleanup.enter_context(register_instance(here))
        _print_announcement(service, console, as_json=options.json)

    def set_up_logging(config: Config) -> None:
        is_quiet = config.server.log_format == "text" and not options.verbose
        configure_logging(config.server.log_format, logging.WARNING if is_quiet else logging.INFO)

    with ExitStack() as cleanup, status:
        settings = ConfigSource(options, console, set_up_logging)
        config = settings.read_config()
        kind = MultiProcessRunner if config.server.workers > 1 else SingleProcessRunner
        service = kind(config, reload=settings.read_config, announce=announce)
        service.run()
    return 0


class ConfigSource:
    """The configuration as the command line and the environment select it."""

    def __init__(
        self,
        options: argparse.Namespace,
        console: Console,
        on_read: Callable[[Config], None] = lambda _: None,
    ) -> None:
        self._on_read = on_read
        """Called before warnings are printed."""
        self._options = options
        self._console = console
        self._file: Path | None = options.config

    def read_config(self) -> Config:
        """Read the configuration; options override environment variables."""
        return self.load().config

    def load(self) -> LoadedConfig:
        """Read the configuration with its source and warnings."""
        from ..config.loading import read_config

        overrides = {
            f"TOOLSPEAK_{name.upper()}": str(value)
            for name in ("host", "port", "workers", "gguf", "log_format")
            if (value := getattr(self._options, name, None)) is not None
        }
        loaded = read_config(self._file, {**os.environ, **overrides})
        # A reload must read the same file: if it has disappeared, that is an error.
        self._file = Path(loaded.source) if loaded.source else None
        self._on_read(loaded.config)
        for warning in loaded.warnings:
            _print_warning(self._console, loaded.config, "warning: ", warning)
        if self._options.embedded is None:
            return loaded
        config = structs.replace(loaded.config, embedded=self._options.embedded)
        return structs.replace(loaded, config=config)


def _print_warning(console: Console, config: Config, before: str, warning: str) -> None:
    """Print a warning, or log it if the output is JSON lines."""
    if config.server.log_format == "json":
        log.warning(warning)
    else:
        console.print(f"{before}{_escape_text(warning)}", soft_wrap=True)


def _escape_text(text: str) -> str:
    """Escape names that servers chose."""
    return escape(escape_for_terminal(text))


def _print_announcement(service: GatewayRunner, console: Console, *, as_json: bool) -> None:
    from ..upstream.catalog import Catalog

    catalog = Catalog(service.config, os.environ, service.local.servers())
    key = {"key": "YOUR_KEY"} if service.config.server.keys else {}
    gateway = GatewayAddress(service.url, catalog.default_model or "MODEL", **key)
    if problem := service.local.load_error:
        _print_warning(console, service.config, "", f"no embedded model: {problem}")
    if as_json:
        _print_json_announcement(service, catalog, gateway)
        return
    console.print(f"[bold]Toolspeak[/] is listening on [bold]{service.url}[/]")
    for name in catalog.list_names():
        suffix = "  (default)" if name == catalog.default_model else ""
        console.print(f"  {_escape_text(name)}{suffix}")
    console.print(f"\n[bold]Inspector[/]\n  {_describe_inspector(service)}", soft_wrap=True)
    console.print("\n[bold]Clients[/]")
    for name, text in _list_client_lines(gateway):
        console.print(f"  {name:<14} {_escape_text(text)}", soft_wrap=True)
    console.print("\nPress Ctrl-C to stop.")


def _print_json_announcement(
    service: GatewayRunner, catalog: Catalog, gateway: GatewayAddress
) -> None:
    access = service.inspector
    snippets = (one for client in CLIENTS.values() for one in build_snippets(client, gateway))
    announcement = {
        "url": service.url,
        "inspector": access.page_url(service.url) if access.is_open else None,
        "models": catalog.list_names(),
        "default": catalog.default_model,
        "clients": {one.client: {"text": one.text, "file": one.path} for one in snippets},
    }
    print(json.dumps(announcement), flush=True)


def _list_client_lines(gateway: GatewayAddress) -> Iterator[tuple[str, str]]:
    """Yield one line per client: how to connect it to the gateway."""
    options = "" if gateway.url == DEFAULT_URL else f" --url {gateway.url}"
    options += "" if gateway.key == NO_KEY else f" --key {gateway.key}"
    for name, client in CLIENTS.items():
        if client.is_runnable:
            yield client.title, f"{_get_program_name()} run {name}{options}"
    for client in CLIENTS.values():
        if client.code and "\n" not in client.code.text:
            yield from ((one.client, one.text) for one in build_snippets(client, gateway))
    yield "other clients", "see docs/clients/README.md"


def _get_program_name() -> str:
    """Return the command that starts this program from the current folder."""
    program = Path(sys.argv[0]).absolute()
    installed = shutil.which(_NAME)
    if program.name != _NAME or (installed and program.exists() and program.samefile(installed)):
        return _NAME
    folder = Path.cwd()
    is_below = program.is_relative_to(folder)
    return shlex.quote(str(program.relative_to(folder) if is_below else program))


def _describe_inspector(service: GatewayRunner) -> str:
    access = service.inspector
    if not access.is_open:
        return f"off: {access.closed_reason}"
    return escape(access.page_url(service.url)) + (
        "" if access.token else "  (needs the admin key)"
    )
