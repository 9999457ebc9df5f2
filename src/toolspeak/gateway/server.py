"""Runs the gateway in this process: binds the port, starts what it needs, and stops in order."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable

import uvicorn
from msgspec import structs

from ..errors import UsageError
from .app import Gateway
from .local import LocalModels
from .settings import Config

log = logging.getLogger("toolspeak.gateway")
_BACKLOG = 2048
_GRACE = 10
"""How many seconds requests have to end when the gateway is stopped."""
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


class Service:
    """One gateway with its own event loop."""

    def __init__(
        self,
        config: Config,
        *,
        reload: Callable[[], Config],
        announce: Callable[[Service], None],
    ) -> None:
        self._reload = reload
        self._announce = announce
        self._listener = bound(config)
        self.url = url_of(self._listener)
        self.config = listening(config, self._listener)
        self.local = LocalModels(self.config)
        self.found = self.local.found
        self._gateway = Gateway(self.config, found=self.local.found, is_ready=self.local.is_ready)

    def run(self) -> None:
        """Serve until told to stop."""
        with asyncio.Runner(loop_factory=new_loop()) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        try:
            await self.local.start()
            await serve(self._gateway, self._listener, self._has_started)
        finally:
            await self.local.stop()

    def _has_started(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)
        self._announce(self)

    def reload(self) -> None:
        """Read the configuration again. What is being served goes on as it began."""
        try:
            self.config = listening(self._reload(), self._listener)
        except UsageError as problem:
            log.error("not reloaded: %s", problem)
        else:
            self._gateway.reload(self.config)


async def serve(
    gateway: Gateway, listener: socket.socket, has_started: Callable[[], None] = lambda: None
) -> None:
    """Serve on a socket until told to stop."""
    config = uvicorn.Config(
        gateway,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.005)
    if server.started:
        has_started()
    await serving


def bound(config: Config) -> socket.socket:
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
        why = os.strerror(problem.errno) if problem.errno else str(problem)
        raise UsageError(
            f"cannot listen on {host}:{port}: {why}; "
            "choose another port with --port, or 0 for any that is free"
        ) from None
    return listener


def listening(config: Config, listener: socket.socket) -> Config:
    """A configuration for a gateway that listens there already: that cannot change any more."""
    port = listener.getsockname()[1]
    return structs.replace(config, server=structs.replace(config.server, port=port))


def url_of(listener: socket.socket) -> str:
    """Where clients reach a gateway."""
    host, port = str(listener.getsockname()[0]), listener.getsockname()[1]
    host = _ANYWHERE.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def new_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's event loop, where there is one."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
