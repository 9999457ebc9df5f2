"""The gateway as an ASGI application, for other servers, and for applications that mount it.

    gateway = create_app()
    app = FastAPI(lifespan=gateway.lifespan)
    app.mount("/llm", gateway)

The gateway opens when its server or its application starts. Frameworks send no lifespan events to
applications that they mount; without any, it opens with the first request.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import structs

from ..config.checks import find_problems
from ..config.document import ConfigError
from ..config.loading import read_config
from ..config.settings import Config
from ..store.base import open_store
from ..upstream.discovery import LocalModels
from .app import Gateway
from .auth import PUBLIC_PATHS
from .http import Receive, RequestHead, Scope, Send

log = logging.getLogger("toolspeak.gateway")
_LIVE_SECONDS = 5.0
"""The maximum duration of responses that wait for changes: a server that stops waits for them."""


def create_app(config: Config | Path | str | None = None) -> GatewayApplication:
    """Return the gateway as an ASGI application; raise `ConfigError` if its settings are invalid.

    `config` is a configuration or the path of a file. By default, it is read as `toolspeak serve`
    reads it: from toolspeak.toml or the file named by TOOLSPEAK_CONFIG, and the environment.
    """
    if not isinstance(config, Config):
        loaded = read_config(Path(config) if config else None, os.environ)
        for warning in loaded.warnings:
            log.warning("%s", warning)
        config = loaded.config
    elif problems := [str(problem) for problem in find_problems(config)]:
        raise ConfigError(problems)
    # Raise here for a store that cannot be opened.
    open_store(config.store)
    return GatewayApplication(config)


class GatewayApplication:
    """Opens a gateway when it is needed, and serves requests with it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._session: _GatewaySession | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or follow the lifespan of a server."""
        if scope["type"] == "lifespan":
            await self._follow_lifespan(receive, send)
            return
        session = self._open(scope)
        if not session.has_started and not _is_public(scope):
            await session.wait_until_started()
        await session.gateway(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, _: object = None) -> AsyncGenerator[None]:
        """Open the gateway, and close it at the end. Starlette and FastAPI accept this function as
        their own `lifespan`; the argument is their application."""
        try:
            await self._open({}).wait_until_started()
            yield
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Close all connections, and end the embedded model. A further request opens it again."""
        session, self._session = self._session, None
        if session and session.loop is asyncio.get_running_loop():
            await session.close()

    async def _follow_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self.lifespan():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def _open(self, scope: Scope) -> _GatewaySession:
        """Return the gateway of the running event loop. One of another loop cannot be used or
        closed any more: that loop has ended, as between the requests of a test client."""
        loop = asyncio.get_running_loop()
        session = self._session
        if session is None or session.loop is not loop:
            config = self._config
            if server := scope.get("server"):
                # Discovery must not ask the server that this request has come through. Some
                # servers give its port as a string.
                settings = structs.replace(config.server, port=int(server[1] or 0))
                config = structs.replace(config, server=settings)
            self._session = session = _GatewaySession(config, loop)
        return session


def _is_public(scope: Scope) -> bool:
    """Return True for a request that does not have to wait for the gateway."""
    return scope["type"] != "http" or RequestHead(scope).path in PUBLIC_PATHS


class _GatewaySession:
    """A gateway with the models of this machine, on one event loop."""

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._local = LocalModels(config)
        self.gateway = Gateway(
            config,
            found=self._local.servers,
            is_ready=lambda: self.has_started and self._local.is_ready(),
            live_seconds=_LIVE_SECONDS,
            is_address_known=False,
        )
        self.gateway.start()
        self._starting = loop.create_task(self._start())

    @property
    def has_started(self) -> bool:
        return self._starting.done()

    async def wait_until_started(self) -> None:
        """Wait for the discovery of servers and for the embedded model."""
        # If the task that waits is cancelled, others still wait.
        await asyncio.wait((self._starting,))

    async def close(self) -> None:
        self._starting.cancel()
        await self.wait_until_started()
        self.gateway.is_stopping = True
        await self.gateway.close()
        await self._local.stop()

    async def _start(self) -> None:
        await self._local.start()
        if problem := self._local.load_error:
            log.error("no embedded model: %s", problem)
