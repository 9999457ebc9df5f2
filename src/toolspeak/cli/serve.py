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
from ..errors import UsageError
from .clients import CLIENTS, DEFAULT_URL, NO_KEY, GatewayAddress, build_snippets

log = logging.getLogger("toolspeak.cli")
_NAME = "toolspeak"

if TYPE_CHECKING:
    from ..config.loading import LoadedConfig
    from ..config.settings import Config
    from ..gateway.server import GatewayRunner


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_arguments(parser)
    parser.add_argument("--host", help="where to listen; 127.0.0.1 unless the file says otherwise")
    parser.add_argument("--port", type=int, help="0 takes any that is free")
    parser.add_argument("--workers", type=int, help="processes that serve side by side")
    parser.add_argument("--json", action="store_true", help="print where it listens as JSON")
    parser.add_argument("--verbose", action="store_true", help="log each request")
    parser.add_argument(
        "--log",
        dest="log_format",
        choices=("text", "json"),
        help="json: requests, and all else, as lines of JSON on the standard error",
    )


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """What says where the models are."""
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="a TOML file; toolspeak.toml if there is one"
    )
    parser.add_argument(
        "--gguf", type=Path, metavar="FILE", help="a model file to run in place of the bundled one"
    )
    parser.add_argument(
        "--embedded",
        action=argparse.BooleanOptionalAction,
        help="run the embedded model, or do not",
    )


def run(options: argparse.Namespace) -> int:
    try:
        from ..config.running_instances import RunningInstance, register_instance
        from ..gateway.server import SingleProcessRunner
        from ..gateway.workers import MultiProcessRunner
        from ..observe.logs import configure_logging
    except ModuleNotFoundError as missing:
        raise UsageError(
            f"the gateway needs {missing.name}: pip install 'toolspeak[gateway,local]'"
        ) from None
    console = Console(stderr=options.json, highlight=False)
    status = console.status("Looking for models …")

    def announce(service: GatewayRunner) -> None:
        status.stop()
        here = RunningInstance(service.url, os.getpid(), service.inspector.token)
        leaves.enter_context(register_instance(here))
        _print_announcement(service, console, as_json=options.json)

    def begin_to_log(config: Config) -> None:
        is_quiet = config.server.log_format == "text" and not options.verbose
        configure_logging(config.server.log_format, logging.WARNING if is_quiet else logging.INFO)

    with ExitStack() as leaves, status:
        settings = ConfigSource(options, console, begin_to_log)
        config = settings.read_config()
        kind = MultiProcessRunner if config.server.workers > 1 else SingleProcessRunner
        service = kind(config, reload=settings.read_config, announce=announce)
        service.run()
    return 0


class ConfigSource:
    """Where the configuration comes from."""

    def __init__(
        self,
        options: argparse.Namespace,
        console: Console,
        on_read: Callable[[Config], None] = lambda _: None,
    ) -> None:
        self._on_read = on_read
        """Who has to know it before anything is said of it."""
        self._options = options
        self._console = console
        self._file: Path | None = options.config

    def read_config(self) -> Config:
        """Read it; what the command line says counts as if the environment said it."""
        return self.load().config

    def load(self) -> LoadedConfig:
        """The same, with the file that it comes from."""
        from ..config.loading import read_config

        said = {
            f"TOOLSPEAK_{name.upper()}": str(value)
            for name in ("host", "port", "workers", "gguf", "log_format")
            if (value := getattr(self._options, name, None)) is not None
        }
        loaded = read_config(self._file, {**os.environ, **said})
        # The next time it has to be the same file: if it is gone, that is a problem.
        self._file = Path(loaded.source) if loaded.source else None
        self._on_read(loaded.config)
        for warning in loaded.warnings:
            _print_warning(self._console, loaded.config, "warning: ", warning)
        if self._options.embedded is None:
            return loaded
        config = structs.replace(loaded.config, embedded=self._options.embedded)
        return structs.replace(loaded, config=config)


def _print_warning(console: Console, config: Config, before: str, warning: str) -> None:
    """Whoever reads lines of JSON can read nothing else."""
    if config.server.log_format == "json":
        log.warning(warning)
    else:
        console.print(f"{before}{_escape_text(warning)}", soft_wrap=True)


def _escape_text(text: str) -> str:
    """Servers name their models as they like."""
    return escape(escape_for_terminal(text))


def _print_announcement(service: GatewayRunner, console: Console, *, as_json: bool) -> None:
    """Where it listens, which models it has, and how clients get there."""
    from ..upstream.catalog import Catalog

    catalog = Catalog(service.config, os.environ, service.local.servers())
    key = {"key": "YOUR_KEY"} if service.config.server.keys else {}
    gateway = GatewayAddress(service.url, catalog.default_model or "MODEL", **key)
    if service.local.load_error:
        _print_warning(
            console, service.config, "", f"no embedded model: {service.local.load_error}"
        )
    if as_json:
        models = {"models": catalog.list_names(), "default": catalog.default_model}
        pasted = (one for client in CLIENTS.values() for one in build_snippets(client, gateway))
        clients = {one.client: {"text": one.text, "file": one.path} for one in pasted}
        inspector = service.inspector.page_url(service.url) if service.inspector.is_open else None
        about = {"url": service.url, "inspector": inspector, **models, "clients": clients}
        print(json.dumps(about), flush=True)
        return
    console.print(f"[bold]Toolspeak[/] listens on [bold]{service.url}[/]")
    for name in catalog.list_names():
        mark = "  (default)" if name == catalog.default_model else ""
        console.print(f"  {_escape_text(name)}{mark}")
    console.print(f"\n[bold]Inspector[/]\n  {_describe_inspector(service)}", soft_wrap=True)
    console.print("\n[bold]Clients[/]")
    for name, text in _list_client_lines(gateway):
        console.print(f"  {name:<14} {_escape_text(text)}", soft_wrap=True)
    console.print("\nStop with Ctrl-C.")


def _list_client_lines(gateway: GatewayAddress) -> Iterator[tuple[str, str]]:
    """How clients get to the gateway, in a line each."""
    where = "" if gateway.url == DEFAULT_URL else f" --url {gateway.url}"
    where += "" if gateway.key == NO_KEY else f" --key {gateway.key}"
    for name, client in CLIENTS.items():
        if client.is_runnable:
            yield client.title, f"{_get_program_name()} run {name}{where}"
    for client in CLIENTS.values():
        if client.code and "\n" not in client.code.text:
            yield from ((one.client, one.text) for one in build_snippets(client, gateway))
    yield "others", "docs/clients/README.md"


def _get_program_name() -> str:
    """How this program is called in the folder where it was."""
    here = Path(sys.argv[0]).absolute()
    usual = shutil.which(_NAME)
    if here.name != _NAME or (usual and here.exists() and here.samefile(usual)):
        return _NAME
    folder = Path.cwd()
    return shlex.quote(str(here.relative_to(folder) if here.is_relative_to(folder) else here))


def _describe_inspector(service: GatewayRunner) -> str:
    """Where to look at what happens."""
    access = service.inspector
    if not access.is_open:
        return f"off: {access.closed_reason}"
    return escape(access.page_url(service.url)) + ("" if access.token else "  (with the admin key)")
