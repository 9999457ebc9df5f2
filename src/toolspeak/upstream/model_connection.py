"""A connection to one model: configured, of a provider, or on this machine.

async with connect_model(config, "box/qwen3:8b") as connection:
    call = ModelCall(connection.services, request, await connection.resolve())
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec import Struct

from ..config.providers import EMBEDDED
from ..config.settings import Config
from ..errors import UsageError
from ..store.base import MemoryStore
from .catalog import Catalog, ResolvedModel, UnknownModelError
from .client import UpstreamClient
from .discovery import KNOWN_SERVERS, LocalModels
from .embedded import bundled_model
from .learned_modes import LearnedModes
from .model_call import ModelServices
from .timers import Ticker

_READY_CHECK_INTERVAL = 0.1


class ModelConnection(Struct):
    """Resolves one model, and has the services that requests to it need."""

    services: ModelServices
    config: Config
    name: str
    """Empty for the default model."""
    local: LocalModels
    is_embedded: bool = False

    async def resolve(self) -> ResolvedModel:
        """Return the model, never the default model instead.

        The embedded model may restart and then has another address: wait until it is ready.
        """
        while self.is_embedded and not self.local.is_ready():
            await asyncio.sleep(_READY_CHECK_INTERVAL)
        catalog = Catalog(self.config, os.environ, self.local.servers())
        try:
            model = catalog.resolve_exact(self.name or catalog.default_model)
        except UnknownModelError as problem:
            if self.local.load_error:
                reason = f"no embedded model: {self.local.load_error}"
                raise UsageError(f"{problem}; {reason}") from None
            if problem.failure.kind != "not_found" or bundled_model() is None:
                raise
            advice = f"or name `{EMBEDDED}`, the model that comes with Toolspeak"
            raise UnknownModelError(f"{problem}; {advice}") from None
        self.is_embedded = model.endpoint.name == EMBEDDED
        return model


@asynccontextmanager
async def connect_model(config: Config, name: str = "") -> AsyncGenerator[ModelConnection]:
    """Connect to the named model, to the embedded one ("embedded"), or to the default model.

    The models of this machine are discovered only if the configuration does not name the model.
    """
    ticker = Ticker()
    upstreams = UpstreamClient(ticker)
    services = ModelServices(upstreams, LearnedModes(MemoryStore()))
    local = LocalModels(config, () if name == EMBEDDED else KNOWN_SERVERS)
    wanted = name or config.default
    try:
        if not (wanted and Catalog(config, os.environ).find_model(wanted)):
            await local.start()
        if name == EMBEDDED and local.embedded:
            # By its name, because the default may be a model of another upstream.
            name = f"{EMBEDDED}/{local.embedded.model}"
        yield ModelConnection(services, config, name, local)
    finally:
        upstreams.close()
        ticker.stop()
        await local.stop()
