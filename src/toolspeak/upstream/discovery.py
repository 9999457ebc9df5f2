"""The models of this machine: servers that listen on their usual ports, and the embedded model.

Servers are asked for their lists of models. Toolspeak gateways are left out: a gateway gains
nothing by calling itself or another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from ..config.addresses import is_loopback
from ..config.providers import EMBEDDED
from ..config.settings import Config, ModelSettings, UpstreamSettings
from ..errors import UpstreamError, WireError
from ..wires.framing import decode_json
from .catalog import DiscoveredServer, Endpoint
from .client import UpstreamClient
from .embedded import EmbeddedModel, bundled_model
from .timers import Ticker


class KnownServer(Struct, frozen=True):
    """A kind of server, and where it usually listens."""

    provider: str
    port: int
    base_path: str
    models_path: str


KNOWN_SERVERS = (
    KnownServer("ollama", 11434, "", "/api/tags"),
    KnownServer("lmstudio", 1234, "/v1", "/v1/models"),
    KnownServer("llamacpp", 8080, "/v1", "/v1/models"),
    KnownServer("vllm", 8000, "/v1", "/v1/models"),
)
_TIMEOUT = 0.5


class LocalModels:
    """Discovers local servers, and runs the embedded model if it is wanted."""

    def __init__(
        self, config: Config, known_servers: tuple[KnownServer, ...] = KNOWN_SERVERS
    ) -> None:
        self._config = config
        self._known_servers = known_servers
        self._servers: tuple[DiscoveredServer, ...] = ()
        self.embedded = _embedded_model(config)
        self.load_error = ""
        """Why the embedded model could not be loaded."""

    async def start(self) -> None:
        """Discover servers and load the embedded model."""
        await asyncio.gather(self._discover(), self._load_embedded())

    async def stop(self) -> None:
        if self.embedded:
            await self.embedded.stop()

    def servers(self) -> tuple[DiscoveredServer, ...]:
        """Return all servers, the embedded model's own last."""
        embedded = self.embedded
        if embedded is None or not embedded.url:
            return self._servers
        server = describe_embedded(
            embedded.model, f"{embedded.url}/v1", embedded.key, embedded.context_window
        )
        return (*self._servers, server)

    def is_ready(self) -> bool:
        """Return True unless the embedded model is being loaded or restarted."""
        return self.embedded is None or self.embedded.state == "ready"

    async def _discover(self) -> None:
        self._servers = await discover_servers(self._config, self._known_servers)

    async def _load_embedded(self) -> None:
        if self.embedded is None:
            return
        try:
            await self.embedded.start()
        except Exception as problem:
            # The gateway can serve other models; `toolspeak serve` prints the error.
            self.load_error = str(problem)
            await self.embedded.stop()
            self.embedded = None


def _embedded_model(config: Config) -> EmbeddedModel | None:
    """Return the embedded model, unless it is off or upstreams make it unnecessary."""
    if find_embedded_file(config) is None and not config.embedded:
        return None
    return EmbeddedModel(Path(config.gguf) if config.gguf else None)


def find_embedded_file(config: Config) -> Path | None:
    """Return the file of the embedded model; None if it is off, not necessary or not installed."""
    is_wanted = config.embedded
    if is_wanted is None:
        is_wanted = bool(config.gguf) or not config.upstreams
    if not is_wanted:
        return None
    return Path(config.gguf) if config.gguf else bundled_model()


def describe_embedded(
    model: str, url: str = "", key: str = "", context: int | None = None
) -> DiscoveredServer:
    """Return the embedded model as a server; without a URL, it has not been started."""
    upstream = UpstreamSettings(EMBEDDED, base_url=url, key=key, retries=1)
    settings = ModelSettings(EMBEDDED, tools="constrained", context_window=context)
    return DiscoveredServer(EMBEDDED, upstream, (model,), settings)


async def discover_servers(
    config: Config, known_servers: Sequence[KnownServer] = KNOWN_SERVERS
) -> tuple[DiscoveredServer, ...]:
    """Return the servers that respond, except those that are configured."""
    used_ports = {config.server.port, *_configured_ports(config)}
    ticker = Ticker()
    upstreams = UpstreamClient(ticker)
    probes = (
        _probe_server(upstreams, known)
        for known in known_servers
        if known.port not in used_ports and known.provider not in config.upstreams
    )
    servers = await asyncio.gather(*probes)
    upstreams.close()
    ticker.stop()
    return tuple(server for server in servers if server)


def _configured_ports(config: Config) -> set[int | None]:
    """Return the ports of this machine that configured upstreams use."""
    urls = (urlsplit(upstream.base_url) for upstream in config.upstreams.values())
    return {url.port for url in urls if is_loopback(url.hostname or "")}


async def _probe_server(upstreams: UpstreamClient, known: KnownServer) -> DiscoveredServer | None:
    root = f"http://127.0.0.1:{known.port}"
    endpoint = Endpoint(known.provider, "openai_chat", root, "", {}, UpstreamSettings())
    try:
        async with asyncio.timeout(_TIMEOUT):
            models = await list_models(upstreams, endpoint, known.models_path, is_other=True)
    except TimeoutError:
        return None
    if models is None:
        return None
    upstream = UpstreamSettings(known.provider, base_url=root + known.base_path)
    return DiscoveredServer(known.provider, upstream, models)


async def list_models(
    upstreams: UpstreamClient, endpoint: Endpoint, path: str, *, is_other: bool = False
) -> tuple[str, ...] | None:
    """Return the models that a server lists, or None if it has no list.

    With `is_other`, the result is None for a Toolspeak gateway, too.
    """
    try:
        with await upstreams.request(endpoint, path) as response:
            is_own_kind = is_other and "x-toolspeak" in response.headers
            if response.status != 200 or is_own_kind:
                return None
            return _read_models(decode_json(await response.read_body()))
    except (UpstreamError, WireError):
        return None


def _read_models(value: Any) -> tuple[str, ...] | None:
    """Return the names in Ollama's or OpenAI's list, or None if there is no list."""
    lists = (value.get("models"), value.get("data")) if isinstance(value, dict) else ()
    found = [rows for rows in lists if isinstance(rows, list)]
    if not found:
        return None
    # Some servers send both: newer versions of Ollama, and gateways that serve Codex.
    return next(filter(None, map(_model_names, found)), ())


def _model_names(rows: list[Any]) -> tuple[str, ...]:
    """Return the names of models, those that cannot chat last."""
    tables = sorted((row for row in rows if isinstance(row, dict)), key=_is_embedding_model)
    return tuple(name for table in tables if (name := _model_name(table)))


def _model_name(row: dict[str, Any]) -> str:
    names = (row.get(key) for key in ("id", "name", "model"))
    return next((name for name in names if name and isinstance(name, str)), "")


def _is_embedding_model(row: dict[str, Any]) -> bool:
    details = row.get("details")
    family = details.get("family") if isinstance(details, dict) else None
    return "embed" in _model_name(row).lower() or "bert" in str(family).lower()
