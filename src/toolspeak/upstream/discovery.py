"""Servers on this machine that nobody has configured.

Each is asked for its models where it usually listens. What answers as a gateway of this kind is
left out: nothing is gained by asking oneself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from ..config.addresses import is_loopback
from ..config.settings import Config, ModelSettings, UpstreamSettings
from ..errors import WireError
from ..wires.framing import decode_json
from .catalog import EMBEDDED, DiscoveredServer, Endpoint
from .client import UpstreamClient
from .embedded import EmbeddedModel, bundled_model
from .errors import UpstreamError
from .timers import Ticker


class KnownServer(Struct, frozen=True):
    """Where a server of some kind usually listens."""

    provider: str
    port: int
    base: str
    """Where its API begins."""
    models: str
    """Where it lists its models."""


KNOWN_SERVERS = (
    KnownServer("ollama", 11434, "", "/api/tags"),
    KnownServer("lmstudio", 1234, "/v1", "/v1/models"),
    KnownServer("llamacpp", 8080, "/v1", "/v1/models"),
    KnownServer("vllm", 8000, "/v1", "/v1/models"),
)
_PATIENCE = 0.5


async def discover_servers(
    config: Config, places: Sequence[KnownServer] = KNOWN_SERVERS
) -> tuple[DiscoveredServer, ...]:
    """The servers that answer, except those that are configured."""
    taken = {config.server.port, *_ports(config)}
    ticker = Ticker()
    upstreams = UpstreamClient(ticker)
    asked = (
        _ask(upstreams, place)
        for place in places
        if place.port not in taken and place.provider not in config.upstreams
    )
    found = await asyncio.gather(*asked)
    upstreams.close()
    ticker.stop()
    return tuple(server for server in found if server)


def _ports(config: Config) -> set[int | None]:
    """The ports of this machine where configured upstreams are."""
    addresses = (urlsplit(upstream.base_url) for upstream in config.upstreams.values())
    return {address.port for address in addresses if is_loopback(address.hostname or "")}


async def _ask(upstreams: UpstreamClient, place: KnownServer) -> DiscoveredServer | None:
    root = f"http://127.0.0.1:{place.port}"
    server = Endpoint(place.provider, "openai_chat", root, "", {}, UpstreamSettings())
    try:
        async with asyncio.timeout(_PATIENCE):
            models = await list_models(upstreams, server, place.models, is_other=True)
    except TimeoutError:
        return None
    if models is None:
        return None
    return DiscoveredServer(
        place.provider, UpstreamSettings(place.provider, base_url=root + place.base), models
    )


async def list_models(
    upstreams: UpstreamClient, server: Endpoint, path: str, *, is_other: bool = False
) -> tuple[str, ...] | None:
    """The models that a server lists; None if it lists none, or is a gateway of this kind and has
    to be another."""
    try:
        with await upstreams.request(server, path) as response:
            is_wanted = not (is_other and "x-toolspeak" in response.headers)
            if response.status != 200 or not is_wanted:
                return None
            return _models(decode_json(await response.read_body()))
    except (UpstreamError, WireError):
        return None


def _models(value: Any) -> tuple[str, ...] | None:
    """The names in Ollama's list, or in OpenAI's, those of models that cannot chat last; None if
    there is no list."""
    lists = (value.get("models"), value.get("data")) if isinstance(value, dict) else ()
    found = [one for one in lists if isinstance(one, list)]
    if not found:
        return None
    # Some have both: Ollama's newer servers, and gateways that serve Codex.
    return next(filter(None, map(_names, found)), ())


def _names(listed: list[Any]) -> tuple[str, ...]:
    rows = sorted((row for row in listed if isinstance(row, dict)), key=_only_embeds)
    return tuple(name for row in rows if (name := _name(row)))


def _name(row: dict[str, Any]) -> str:
    names = (row.get(key) for key in ("id", "name", "model"))
    return next((name for name in names if name and isinstance(name, str)), "")


def _only_embeds(row: dict[str, Any]) -> bool:
    """Whether a model makes embeddings and nothing else, as far as the list tells."""
    details = row.get("details")
    family = details.get("family") if isinstance(details, dict) else None
    return "embed" in _name(row).lower() or "bert" in str(family).lower()


class LocalModels:
    """Finds servers, and runs the embedded model if it is wanted."""

    def __init__(self, config: Config, places: tuple[KnownServer, ...] = KNOWN_SERVERS) -> None:
        self._config = config
        self._places = places
        self._servers: tuple[DiscoveredServer, ...] = ()
        self.embedded = _embedded(config)
        self.load_error = ""
        """Why there is no embedded model, though one was wanted."""

    async def start(self) -> None:
        """Look around, and load the model."""
        await asyncio.gather(self._discover(), self._load())

    async def stop(self) -> None:
        """End the embedded model."""
        if self.embedded:
            await self.embedded.stop()

    def servers(self) -> tuple[DiscoveredServer, ...]:
        """All servers, the embedded model's own last."""
        embedded = self.embedded
        if embedded is None or not embedded.url:
            return self._servers
        upstream = UpstreamSettings(
            provider=EMBEDDED, base_url=f"{embedded.url}/v1", key=embedded.key, retries=1
        )
        settings = ModelSettings(EMBEDDED, tools="constrained", context=embedded.context)
        return (*self._servers, DiscoveredServer(EMBEDDED, upstream, (embedded.model,), settings))

    def is_ready(self) -> bool:
        """Whether nothing is being loaded or restarted."""
        return self.embedded is None or self.embedded.state == "ready"

    async def _discover(self) -> None:
        self._servers = await discover_servers(self._config, self._places)

    async def _load(self) -> None:
        if self.embedded is None:
            return
        try:
            await self.embedded.start()
        except Exception as problem:
            # The gateway serves other models without it; whoever starts it is told.
            self.load_error = str(problem)
            await self.embedded.stop()
            self.embedded = None


def _embedded(config: Config) -> EmbeddedModel | None:
    """The embedded model, unless it is switched off, or other upstreams make it needless."""
    is_wanted = config.embedded
    if is_wanted is None:
        is_wanted = bool(config.gguf) or not config.upstreams
    is_there = bool(config.gguf) or bundled_model() is not None
    if not is_wanted or not (is_there or config.embedded):
        return None
    return EmbeddedModel(Path(config.gguf) if config.gguf else None)
