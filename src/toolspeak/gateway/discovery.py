"""Servers on this machine that nobody has configured.

Each is asked for its models where it usually listens. What answers as a gateway of this kind is
left out: nothing is gained by asking oneself.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from .catalog import Found
from .settings import Config, Upstream

_PLACES = (
    ("ollama", 11434, "", "/api/tags"),
    ("lmstudio", 1234, "/v1", "/v1/models"),
    ("llamacpp", 8080, "/v1", "/v1/models"),
    ("vllm", 8000, "/v1", "/v1/models"),
)
"""(provider, port, where its API begins, where its models are)."""
_PATIENCE = 0.5


async def discover(config: Config) -> tuple[Found, ...]:
    """The servers that answer, except those that are configured."""
    taken = {address for upstream in config.upstreams.values() if (address := upstream.base_url)}
    timeout = aiohttp.ClientTimeout(total=_PATIENCE)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        asked = (
            _ask(session, provider, f"http://127.0.0.1:{port}", base, path)
            for provider, port, base, path in _PLACES
            if port != config.server.port and not _is_taken(taken, port)
        )
        found = await asyncio.gather(*asked)
    return tuple(server for server in found if server)


def _is_taken(addresses: set[str], port: int) -> bool:
    return any(f":{port}" in address for address in addresses)


async def _ask(
    session: aiohttp.ClientSession, provider: str, root: str, base: str, path: str
) -> Found | None:
    try:
        async with session.get(root + path) as response:
            if response.status != 200 or "x-toolspeak" in response.headers:
                return None
            value = await response.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError, ValueError, OSError):
        return None
    models = _models(value)
    return Found(provider, Upstream(provider=provider, base_url=root + base), models)


def _models(value: Any) -> tuple[str, ...]:
    """The names in Ollama's list, or in OpenAI's."""
    if not isinstance(value, dict):
        return ()
    listed = value.get("models") or value.get("data")
    names = (
        one.get("id") or one.get("name") or one.get("model")
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict)
    )
    return tuple(name for name in names if isinstance(name, str) and name)
