"""Runs the gateway in this process: binds the port, starts what it needs, and stops in order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import secrets
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from msgspec import structs

from ..config.checks import find_problems
from ..config.document import ConfigError, join_path
from ..config.settings import Config, mask_url
from ..errors import UsageError
from ..upstream.discovery import LocalModels
from .app import Gateway
from .auth import InspectorAccess
from .server_protocol import Callers

log = logging.getLogger("toolspeak.gateway")
ENDS = (signal.SIGTERM, signal.SIGINT)
"""Signals to stop at."""
_BACKLOG = 2048
_ALLOCATIONS = 10_000
"""After how many new objects garbage is looked for; Python's own 700 are a single request's."""
_GRACE = 10
"""How many seconds requests have to end when the gateway is stopped."""
_LAST_WORDS = 2
"""And then, to tell their clients that they were not waited for."""
_LOOK_EVERY = 0.02
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - it binds nothing
_ANOTHER_PORT = "; choose another port with --port, or 0 for any that is free"
_ADVICE = {errno.EADDRINUSE: _ANOTHER_PORT, errno.EACCES: _ANOTHER_PORT}


class GatewayServer:
    """Serves a gateway until it is told to stop: the first time what has begun may end, a second
    Ctrl-C does not wait."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._callers = Callers(gateway.serve, gateway.ticker)
        self._stops = asyncio.Event()
        self._hurries = asyncio.Event()

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop, as that signal asks."""
        # Whoever looks on would be waited for.
        self._gateway.is_stopping = True
        if self._stops.is_set() and number == signal.SIGINT:
            self._hurries.set()
        self._stops.set()

    async def serve(
        self, listener: socket.socket, has_started: Callable[[], None] = lambda: None
    ) -> None:
        """Serve on a socket until told to stop."""
        loop = asyncio.get_running_loop()
        self._gateway.start()
        try:
            server = await loop.create_server(self._callers.new, sock=listener, backlog=_BACKLOG)
            has_started()
            await self._stops.wait()
            server.close()
            await self._end()
        finally:
            await self._gateway.close()

    async def _end(self) -> None:
        """Let requests end that have begun, for as long as that may take."""
        callers = self._callers
        callers.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                while callers.connected and not self._hurries.is_set():
                    await asyncio.sleep(_LOOK_EVERY)
        callers.abort()
        if callers.tasks:
            await asyncio.wait(callers.tasks, timeout=_LAST_WORDS)


class GatewayRunner(ABC):
    """A port, the models of this machine, and a configuration that can be read again."""

    def __init__(self, config: Config, *, reload: Callable[[], Config]) -> None:
        self._read = reload
        self._given = config
        self._listener = _bound(config)
        self._host, self._port = self._listener.getsockname()[:2]
        self.url = _url(self._host, self._port)
        self.token = secrets.token_urlsafe(24)
        """What opens the inspector on loopback, until the gateway is stopped."""
        self.inspector = InspectorAccess(config, self.token)
        self.config = self._checked(config)
        self.local = LocalModels(self.config)
        self.found = self.local.servers
        self._starting: asyncio.Task[None] | None = None

    def run(self) -> None:
        """Serve until told to stop."""
        settle()
        with asyncio.Runner(loop_factory=new_loop()) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in ENDS:
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        self._starting = loop.create_task(self.local.start())
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await self._starting
            if not self._starting.cancelled():
                await self._serve()
        finally:
            await self.local.stop()

    def _stop(self, number: int) -> None:
        if self._starting:
            self._starting.cancel()
        self._end(number)

    @abstractmethod
    async def _serve(self) -> None:
        """Serve until `_end`."""

    @abstractmethod
    def _end(self, number: int) -> None:
        """Stop serving, as that signal asks."""

    @abstractmethod
    def _take(self, config: Config) -> None:
        """Serve what comes from now on by that configuration."""

    def reload(self) -> None:
        """Read the configuration again. What is being served goes on as it began."""
        try:
            given = self._read()
            config = self._checked(given)
        except UsageError as problem:
            log.error("not reloaded: %s", problem)
            return
        if changed := list(_changed(self._given, given)):
            log.warning("%s: changes only when the gateway is started again", ", ".join(changed))
        self._given, self.config = given, config
        self._take(config)

    def _checked(self, config: Config) -> Config:
        """A configuration for a gateway that listens already: where that is cannot change."""
        host = self._given.server.host
        server = structs.replace(config.server, host=host, port=self._port)
        config = structs.replace(config, server=server)
        found = [f"{problem.message} - at `{problem.path}`" for problem in find_problems(config)]
        if found := found or list(self._ways_back(config)):
            raise ConfigError(found)
        return config

    def _ways_back(self, config: Config) -> Iterator[str]:
        """Upstreams that are this very gateway, by whichever name of this machine."""
        for name, upstream in config.upstreams.items():
            address = urlsplit(upstream.base_url)
            if (address.port or 80) == self._port and self._is_reached_by(address.hostname or ""):
                where = mask_url(upstream.base_url)
                yield (
                    f"{where} is the gateway's own address, so it would send every request to "
                    f"itself - at `{join_path(join_path('$.upstreams', name), 'base_url')}`"
                )

    def _is_reached_by(self, host: str) -> bool:
        everywhere = self._host in _ANYWHERE
        return any(
            _is_ours(address) if everywhere else address == self._host
            for address in _addresses(host)
        )


class SingleProcessRunner(GatewayRunner):
    """One gateway with its own event loop."""

    def __init__(
        self,
        config: Config,
        *,
        reload: Callable[[], Config],
        announce: Callable[[SingleProcessRunner], None],
    ) -> None:
        super().__init__(config, reload=reload)
        self._announce = announce
        self._gateway = Gateway(
            self.config, found=self.local.servers, is_ready=self.local.is_ready, token=self.token
        )
        self._server = GatewayServer(self._gateway)

    async def _serve(self) -> None:
        await self._server.serve(self._listener, lambda: self._announce(self))

    def _end(self, number: int) -> None:
        self._server.stop(number)

    def _take(self, config: Config) -> None:
        self._gateway.reload(config)


def settle() -> None:
    """What was loaded stays: it need not be searched for garbage again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, 20, 50)


def new_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's event loop, where there is one."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _bound(config: Config) -> socket.socket:
    """A socket that listens where the configuration says."""
    host, port = config.server.host.strip("[]"), config.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as problem:
        listener.close()
        advice = _ADVICE.get(problem.errno or 0, "")
        raise UsageError(
            f"cannot listen on {host}:{port}: {problem.strerror or problem}{advice}"
        ) from None
    return listener


def _url(host: str, port: int) -> str:
    """Where clients reach a gateway."""
    host = _ANYWHERE.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _addresses(host: str) -> set[str]:
    """What a name stands for; nothing if that is not known."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {str(address[0]) for *_, address in found}


def _is_ours(address: str) -> bool:
    """Whether an address is one of this machine: nobody can listen on another's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _changed(before: Config, after: Config) -> Iterator[str]:
    """Settings that only count when the gateway starts."""
    for name in ("host", "port", "workers", "log"):
        if getattr(before.server, name) != getattr(after.server, name):
            yield f"server.{name}"
    for name in ("store", "embedded", "gguf", "telemetry"):
        if getattr(before, name) != getattr(after, name):
            yield name
