"""Servers on this machine that nobody has configured.

Each is asked for its models where it usually listens. What answers as a gateway of this kind is
left out: nothing is gained by asking oneself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from ..config.hosts import is_loopback
from ..config.settings import Config, Upstream
from ..errors import WireError
from ..wires.framing import decode_json
from .catalog import Endpoint, Found
from .client import Upstreams
from .failures import UpstreamFailed
from .timers import Ticker


class Place(Struct, frozen=True):
    """Where a server of some kind usually listens."""

    provider: str
    port: int
    base: str
    """Where its API begins."""
    models: str
    """Where it lists its models."""


PLACES = (
    Place("ollama", 11434, "", "/api/tags"),
    Place("lmstudio", 1234, "/v1", "/v1/models"),
    Place("llamacpp", 8080, "/v1", "/v1/models"),
    Place("vllm", 8000, "/v1", "/v1/models"),
)
_PATIENCE = 0.5


async def discover(config: Config, places: Sequence[Place] = PLACES) -> tuple[Found, ...]:
    """The servers that answer, except those that are configured."""
    taken = {config.server.port, *_ports(config)}
    ticker = Ticker()
    upstreams = Upstreams(ticker)
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


async def _ask(upstreams: Upstreams, place: Place) -> Found | None:
    root = f"http://127.0.0.1:{place.port}"
    server = Endpoint(place.provider, "openai_chat", root, "", {}, Upstream())
    try:
        async with asyncio.timeout(_PATIENCE):
            models = await models_at(upstreams, server, place.models, is_other=True)
    except TimeoutError:
        return None
    if models is None:
        return None
    return Found(place.provider, Upstream(place.provider, base_url=root + place.base), models)


async def models_at(
    upstreams: Upstreams, server: Endpoint, path: str, *, is_other: bool = False
) -> tuple[str, ...] | None:
    """The models that a server lists; None if it lists none, or is a gateway of this kind and has
    to be another."""
    try:
        with await upstreams.ask(server, path) as response:
            is_wanted = not (is_other and "x-toolspeak" in response.headers)
            if response.status != 200 or not is_wanted:
                return None
            return _models(decode_json(await response.body()))
    except (UpstreamFailed, WireError):
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
