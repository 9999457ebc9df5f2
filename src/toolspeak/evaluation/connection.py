"""A connection to one model: configured, of a provider, or on this machine.

async with connect_model(config, os.environ, "box/qwen3:8b") as connection:
    call = ModelCall(connection.services, request, await connection.resolve())
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from ..config.settings import Config
from ..errors import UsageError
from ..store.base import MemoryStore
from ..upstream.catalog import EMBEDDED, Catalog, ResolvedModel, UnknownModelError
from ..upstream.client import UpstreamClient
from ..upstream.discovery import LocalModels
from ..upstream.model_call import LearnedModes, ModelServices
from ..upstream.timers import Ticker

_READY_CHECK_INTERVAL = 0.1


class ModelConnection:
    """Resolves one model, and has the services that requests to it need."""

    def __init__(
        self,
        config: Config,
        environ: Mapping[str, str],
        name: str,
        services: ModelServices,
        local: LocalModels,
    ) -> None:
        self.services = services
        self._config = config
        self._environ = environ
        self._name = name
        self._local = local
        self._is_embedded = False

    async def resolve(self) -> ResolvedModel:
        """Return the model, never the default model instead.

        The embedded model may restart and then has another address: wait until it is ready.
        """
        while self._is_embedded and not self._local.is_ready():
            await asyncio.sleep(_READY_CHECK_INTERVAL)
        catalog = Catalog(self._config, self._environ, self._local.servers())
        try:
            model = catalog.resolve_exact(self._name or catalog.default_model)
        except UnknownModelError as problem:
            if not self._local.load_error:
                raise
            reason = f"no embedded model: {self._local.load_error}"
            raise UsageError(f"{problem}; {reason}") from None
        self._is_embedded = model.endpoint.name == EMBEDDED
        return model


@asynccontextmanager
async def connect_model(
    config: Config, environ: Mapping[str, str], name: str = ""
) -> AsyncGenerator[ModelConnection]:
    """Connect to the named model, or to the default model.

    The models of this machine are discovered only if the configuration does not have it.
    """
    ticker = Ticker()
    upstreams = UpstreamClient(ticker)
    services = ModelServices(upstreams, LearnedModes(MemoryStore()))
    local = LocalModels(config)
    wanted = name or config.default
    try:
        if not (wanted and Catalog(config, environ).find_model(wanted)):
            await local.start()
        yield ModelConnection(config, environ, name, services, local)
    finally:
        upstreams.close()
        ticker.stop()
        await local.stop()
