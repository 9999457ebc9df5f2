"""Start the gateway: every client API on one port, for any model."""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..config.running_instances import RunningInstance, register_instance
from ..config.settings import Config
from .arguments import CommandParser
from .clients import CLIENTS, DEFAULT_URL, HIDDEN_KEY, NO_KEY, GatewayAddress, build_snippets
from .terminal import ConfigSource, print_text, print_warning, write_json

if TYPE_CHECKING:
    from ..gateway.server import GatewayRunner
    from ..upstream.catalog import Catalog

_NAME = "toolspeak"


def add_arguments(parser: CommandParser) -> None:
    parser.add_config()
    parser.add("--host", "listen on this address (default: 127.0.0.1)")
    parser.add("--port", "listen on this port; 0 picks a free one (default: 7878)", type=int)
    parser.add("--workers", "run N processes (default: 1)", type=int, metavar="N")
    parser.add_flag("--json", "print the URL, models and clients as JSON")
    parser.add_flag("--verbose", "log each request")
    parser.add(
        "--log",
        "the format of the log on standard error (default: text); json implies --verbose",
        choices=("text", "json"),
    )


def run(options: argparse.Namespace) -> int:
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


def _print_announcement(service: GatewayRunner, console: Console, *, as_json: bool) -> None:
    from ..upstream.catalog import Catalog

    catalog = Catalog(service.config, os.environ, service.local.servers())
    key = HIDDEN_KEY if service.config.server.keys else NO_KEY
    gateway = GatewayAddress(service.url, catalog.default_model or "MODEL", key)
    if problem := service.local.load_error:
        print_warning(console, service.config, f"no embedded model: {problem}")
    if as_json:
        write_json(_describe_service(service, catalog, gateway))
        return
    console.print(f"[bold]Toolspeak[/] is listening on [bold]{service.url}[/]")
    for name in catalog.list_names():
        suffix = "  (default)" if name == catalog.default_model else ""
        print_text(console, f"  {name}{suffix}")
    console.print("\n[bold]Inspector[/]")
    print_text(console, f"  {_describe_inspector(service)}")
    console.print("\n[bold]Clients[/]")
    for name, text in _list_client_lines(gateway):
        print_text(console, f"  {name:<14} {text}")
    console.print("\nPress Ctrl-C to stop.")


def _describe_service(
    service: GatewayRunner, catalog: Catalog, gateway: GatewayAddress
) -> dict[str, Any]:
    access = service.inspector
    snippets = (one for client in CLIENTS.values() for one in build_snippets(client, gateway))
    return {
        "url": service.url,
        "inspector": access.page_url(service.url) if access.is_open else None,
        "models": catalog.list_names(),
        "default": catalog.default_model,
        "clients": {one.title: {"text": one.text, "file": one.path} for one in snippets},
    }


def _describe_inspector(service: GatewayRunner) -> str:
    access = service.inspector
    if not access.is_open:
        return f"off: {access.closed_reason}"
    url = access.page_url(service.url)
    return url if access.token else f"{url}  (needs the admin key)"


def _list_client_lines(gateway: GatewayAddress) -> Iterator[tuple[str, str]]:
    """Yield one line per client: how to connect it to the gateway."""
    options = "" if gateway.url == DEFAULT_URL else f" --url {gateway.url}"
    options += "" if gateway.key == NO_KEY else f" --key {gateway.key}"
    for name, client in CLIENTS.items():
        if client.is_runnable:
            yield client.title, f"{_get_program_name()} run {name}{options}"
    for client in CLIENTS.values():
        if client.code and "\n" not in client.code.text:
            yield from ((one.title, one.text) for one in build_snippets(client, gateway))
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
