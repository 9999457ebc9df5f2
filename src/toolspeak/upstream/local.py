"""The models of this machine: servers that were found, and the embedded one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ..config.settings import Config, Model, Upstream
from .catalog import EMBEDDED, Found
from .discovery import PLACES, Place, discover
from .embedded import Embedded, bundled_model


class LocalModels:
    """Finds servers, and runs the embedded model if it is wanted."""

    def __init__(self, config: Config, places: tuple[Place, ...] = PLACES) -> None:
        self._config = config
        self._places = places
        self._servers: tuple[Found, ...] = ()
        self.embedded = _embedded(config)
        self.problem = ""
        """Why there is no embedded model, though one was wanted."""

    async def start(self) -> None:
        """Look around, and load the model."""
        await asyncio.gather(self._discover(), self._load())

    async def stop(self) -> None:
        """End the embedded model."""
        if self.embedded:
            await self.embedded.stop()

    def found(self) -> tuple[Found, ...]:
        """All servers, the embedded model's own last."""
        embedded = self.embedded
        if embedded is None or not embedded.url:
            return self._servers
        upstream = Upstream(
            provider=EMBEDDED, base_url=f"{embedded.url}/v1", key=embedded.key, retries=1
        )
        settings = Model(EMBEDDED, tools="constrained", context=embedded.context)
        return (*self._servers, Found(EMBEDDED, upstream, (embedded.model,), settings))

    def is_ready(self) -> bool:
        """Whether nothing is being loaded or restarted."""
        return self.embedded is None or self.embedded.state == "ready"

    async def _discover(self) -> None:
        self._servers = await discover(self._config, self._places)

    async def _load(self) -> None:
        if self.embedded is None:
            return
        try:
            await self.embedded.start()
        except Exception as problem:
            # The gateway serves other models without it; whoever starts it is told.
            self.problem = str(problem)
            await self.embedded.stop()
            self.embedded = None


def _embedded(config: Config) -> Embedded | None:
    """The embedded model, unless it is switched off, or other upstreams make it needless."""
    is_wanted = config.embedded
    if is_wanted is None:
        is_wanted = bool(config.gguf) or not config.upstreams
    is_there = bool(config.gguf) or bundled_model() is not None
    if not is_wanted or not (is_there or config.embedded):
        return None
    return Embedded(Path(config.gguf) if config.gguf else None)
