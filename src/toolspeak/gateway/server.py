"""Runs the gateway: binds the port, starts local models, serves, reloads, and stops in order.

SingleProcessRunner    the gateway in this process
MultiProcessRunner     several worker processes (workers.py)
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import secrets
import signal
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from msgspec import structs

from ..config.checks import find_problems
from ..config.document import ConfigError, ConfigProblem, join_path
from ..config.settings import Config, mask_url
from ..errors import UsageError
from ..upstream.discovery import LocalModels
from .app import Gateway
from .auth import InspectorAccess
from .file_handles import raise_handle_limit
from .server_protocol import GatewayProtocol

log = logging.getLogger("toolspeak.gateway")
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
BACKLOG = 2048
_GC_THRESHOLD = 10_000
"""New objects between garbage collections; a single request makes more than Python's 700."""
_SWITCH_SECONDS = 0.0005
"""The interval at which threads take turns: the event loop needs several turns for each request."""
_KEEP_ALIVE_SECONDS = 75
"""How long an idle connection stays open: longer than clients keep it, so that they close first."""
_TICK_SECONDS = 1.0
"""The time after which the `date` header of responses changes."""
_GRACE_SECONDS = 10
"""How long requests may continue after the gateway is told to stop."""
_ERROR_SECONDS = 2
"""After that, the time to send errors to clients whose requests have not ended."""
_WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - it binds nothing
_PORT_ADVICE = "; choose another port with --port, or 0 for a free one"
_BIND_ADVICE = {errno.EADDRINUSE: _PORT_ADVICE, errno.EACCES: _PORT_ADVICE}


class GatewayServer:
    """Serves a gateway on uvicorn until it is stopped. The first stop lets requests end; a second
    Ctrl-C does not wait."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._server = _UvicornServer(
            uvicorn.Config(
                gateway,
                http=GatewayProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_GRACE_SECONDS,
                backlog=BACKLOG,
            )
        )
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop because of that signal."""
        # Ends the inspector's live streams, which would otherwise last until the grace period ends.
        self._gateway.is_stopping = True
        if self._server.should_exit and number == signal.SIGINT:
            self._server.force_exit = True
        self._server.stop()

    async def serve(
        self,
        listener: socket.socket,
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve on a socket until `stop` is called."""
        self._gateway.start()
        self._server.on_start = on_start
        try:
            await self._server.serve(sockets=[listener])
            await self._end_tasks()
        finally:
            await self._gateway.close()

    async def _end_tasks(self) -> None:
        """Cancel the requests that have not ended, and let them send errors."""
        tasks = list(self._server.server_state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_ERROR_SECONDS)


class _UvicornServer(uvicorn.Server):
    """uvicorn's server, whose signals the runner handles."""

    on_start: Callable[[], None]
    _acceptors: Sequence[ConnectionAcceptor] = ()

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Stop serving."""
        self.should_exit = True
        self._stopping.set()

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        self._acceptors = [ConnectionAcceptor(one, self._make_protocol) for one in sockets or ()]
        for acceptor in self._acceptors:
            acceptor.start()
        self.on_start()

    async def main_loop(self) -> None:
        # uvicorn itself would check ten times a second whether to stop.
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_SECONDS):
                    await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for acceptor in self._acceptors:
            acceptor.stop()
        for one in sockets or ():
            one.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        # Idle connections are closed in the next turn of the event loop.
        await asyncio.sleep(0)
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown()

    def _make_protocol(self) -> GatewayProtocol:
        return GatewayProtocol(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )


class GatewayRunner(ABC):
    """Binds the port, starts the models of this machine, and reloads the configuration."""

    def __init__(
        self,
        config: Config,
        *,
        reload: Callable[[], Config],
        announce: Callable[[GatewayRunner], None],
    ) -> None:
        self._read_config = reload
        self._announce = announce
        self._file_config = config
        """The configuration as it was read; `config` has the address that is bound."""
        self.config = config
        self.token = secrets.token_urlsafe(24)
        """Opens the inspector on loopback, until the gateway is stopped."""
        self.inspector = InspectorAccess(config, self.token)
        self.url = ""
        self._starting: asyncio.Task[None] | None = None

    def run(self) -> None:
        """Bind the port, and serve until a signal says to stop."""
        self._listener = _bind(self._file_config)
        self._host, self._port = self._listener.getsockname()[:2]
        self.url = _client_url(self._host, self._port)
        self.config = self._check(self._file_config)
        self.local = LocalModels(self.config)
        self._prepare()
        tune_process()
        with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._handle_stop_signal, number)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        self._starting = loop.create_task(self.local.start())
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await self._starting
            if not self._starting.cancelled():
                await self._serve()
        finally:
            await self.local.stop()

    def _handle_stop_signal(self, number: int) -> None:
        if self._starting:
            self._starting.cancel()
        self._stop(number)

    @abstractmethod
    def _prepare(self) -> None:
        """Set up what `_serve` needs, once the port is bound."""

    @abstractmethod
    async def _serve(self) -> None:
        """Serve until `_stop` is called."""

    @abstractmethod
    def _stop(self, number: int) -> None:
        """Stop serving because of that signal."""

    @abstractmethod
    def _apply_config(self, config: Config) -> None:
        """Use a new configuration for all further requests."""

    def reload(self) -> None:
        """Read the configuration again. Requests in progress are not affected."""
        try:
            file_config = self._read_config()
            config = self._check(file_config)
        except UsageError as problem:
            log.error("the configuration was not reloaded: %s", problem)
            return
        if changed := list(_restart_settings(self._file_config, file_config)):
            log.warning("%s: restart the gateway to apply this change", ", ".join(changed))
        self._file_config, self.config = file_config, config
        self._apply_config(config)

    def _check(self, config: Config) -> Config:
        """Return the configuration with the address that is bound; raise `ConfigError` if it has
        problems."""
        host = self._file_config.server.host
        server = structs.replace(config.server, host=host, port=self._port)
        config = structs.replace(config, server=server)
        if problems := [*find_problems(config)] or [*self._find_own_urls(config)]:
            raise ConfigError([str(problem) for problem in problems])
        return config

    def _find_own_urls(self, config: Config) -> Iterator[ConfigProblem]:
        """Yield upstreams that are this gateway, under any name or address of this machine."""
        for name, upstream in config.upstreams.items():
            url = urlsplit(upstream.base_url)
            if (url.port or 80) == self._port and self._is_reached_by(url.hostname or ""):
                yield ConfigProblem(
                    f"{mask_url(upstream.base_url)} is the gateway's own address, so it would "
                    "send every request to itself; set the model server's URL",
                    join_path(join_path("$.upstreams", name), "base_url"),
                )

    def _is_reached_by(self, host: str) -> bool:
        is_wildcard = self._host in _WILDCARD_HOSTS
        return any(
            _is_local_address(address) if is_wildcard else address == self._host
            for address in _resolve(host)
        )


class SingleProcessRunner(GatewayRunner):
    """Runs the gateway in this process."""

    def _prepare(self) -> None:
        local = self.local
        self._gateway = Gateway(
            self.config, found=local.servers, is_ready=local.is_ready, token=self.token
        )
        self._server = GatewayServer(self._gateway)

    async def _serve(self) -> None:
        await self._server.serve(self._listener, lambda: self._announce(self))

    def _stop(self, number: int) -> None:
        self._server.stop(number)

    def _apply_config(self, config: Config) -> None:
        self._gateway.reload(config)


def tune_process() -> None:
    """Exclude everything loaded so far from garbage collection, and collect less often. Let threads
    take turns more often, so that the event loop waits less for the worker thread. Allow as many
    file handles as possible."""
    raise_handle_limit()
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, 20, 50)


def event_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop if it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _bind(config: Config) -> socket.socket:
    """Return a socket that listens on the configured address."""
    host, port = config.server.host.strip("[]"), config.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without IPPROTO_TCP, asyncio does not set TCP_NODELAY, and streams wait for slow ACKs.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as problem:
        listener.close()
        advice = _BIND_ADVICE.get(problem.errno or 0, "")
        message = f"cannot listen on {host}:{port}: {problem.strerror or problem}{advice}"
        raise UsageError(message) from None
    return listener


def _client_url(host: str, port: int) -> str:
    """Return the URL for clients on this machine."""
    host = _WILDCARD_HOSTS.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _resolve(host: str) -> set[str]:
    """Return the addresses of a host name; none if it is unknown."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {str(address[0]) for *_, address in found}


def _is_local_address(address: str) -> bool:
    """Return True if the address is this machine's: only then can it be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _restart_settings(before: Config, after: Config) -> Iterator[str]:
    """Yield the names of changed settings that need a restart."""
    for name in ("host", "port", "workers", "log_format"):
        if getattr(before.server, name) != getattr(after.server, name):
            yield f"server.{name}"
    for name in ("store", "store_limits", "embedded", "gguf", "telemetry"):
        if getattr(before, name) != getattr(after, name):
            yield name


log = logging.getLogger("toolspeak.gateway")
_RETRY_SECONDS = 0.1
"""The time until the next attempt if the system has no resources for a connection."""
_LOG_SECONDS = 60.0
"""The time between two log lines about that."""


class ConnectionAcceptor:
    """Accepts the connections of a listening socket, one in each turn of the event loop.

    Event loops accept all waiting connections at once. So one of several workers would get a whole
    burst, and connections for which there is no file handle would be closed. Here, other workers
    and requests in progress have their turns in between, and connections without a handle wait in
    the queue of the listening socket.
    """

    def __init__(
        self, listener: socket.socket, make_protocol: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._listener = listener
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[Any]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._logged_at = -_LOG_SECONDS

    def start(self) -> None:
        """Accept connections until `stop` is called."""
        self._listener.setblocking(False)
        self._listen()

    def stop(self) -> None:
        """Accept no more connections."""
        self._loop.remove_reader(self._listener)
        if self._pause:
            self._pause.cancel()

    def _listen(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            # Another worker was faster, or the client has gone.
            return
        except OSError as problem:
            if (now := monotonic()) - self._logged_at > _LOG_SECONDS:
                self._logged_at = now
                log.error("new connections cannot be accepted yet: %s", problem)
            self._loop.remove_reader(self._listener)
            self._pause = self._loop.call_later(_RETRY_SECONDS, self._listen)
            return
        connection.setblocking(False)
        task = self._loop.create_task(
            self._loop.connect_accepted_socket(self._make_protocol, connection)
        )
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
