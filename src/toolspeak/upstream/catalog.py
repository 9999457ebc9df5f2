"""Resolves the model that a client requests to an upstream and its settings.

The default model serves requests without a name. It serves unknown names, too, if it is configured
or if the embedded model was asked for; otherwise they are errors.

gpt-4o            an alias or a wildcard of the configuration; any other name is unknown
ollama/qwen3:8b   a model of an upstream: configured, discovered on this machine, or a provider's
"""

from __future__ import annotations

import difflib
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Literal
from urllib.parse import unquote, urlsplit

from msgspec import Struct, structs

from ..config.loading import apply_provider
from ..config.providers import EMBEDDED, PROVIDERS
from ..config.settings import (
    PUBLIC_HEADERS,
    Config,
    ModelSettings,
    UpstreamSettings,
    find_named_model,
    resolve_aliases,
)
from ..engine import ModelProfile
from ..errors import ToolspeakError
from ..types import Capabilities, Failure, Quirks

_MAX_RESOLVED = 1000
"""Limits the cache: clients may invent any number of names, and the default model serves each."""
_CUSTOM_PROVIDER = "custom"
"""The row of `providers.toml` for servers without a provider."""
_PARAMETER_COUNT = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)([mb])(?![a-z0-9])", re.I)
_UNITS = {"m": 1e6, "b": 1e9}
_MIN_SECRET_LENGTH = 4
_TINY = 0.6e9
"""Models with up to about this many parameters cannot decide which tool fits."""


class UpstreamServer(Struct, frozen=True, array_like=True):
    """An upstream's address, API and credentials."""

    name: str
    wire: str
    base_url: str
    key: str
    headers: Mapping[str, str]

    def secrets(self) -> set[str]:
        """Return the key, the password and the secret headers, to mask them in texts."""
        return {secret for secret in self._find_secrets() if len(secret) >= _MIN_SECRET_LENGTH}

    def _find_secrets(self) -> Iterator[str]:
        yield self.key
        url = urlsplit(self.base_url)
        if url.password:
            password = unquote(url.password)
            yield password
            yield b64encode(f"{unquote(url.username or '')}:{password}".encode()).decode()
        for name, value in self.headers.items():
            if name.lower() not in PUBLIC_HEADERS:
                # In `Bearer KEY`, the key alone is a secret too.
                yield value
                yield value.rpartition(" ")[2]


class Endpoint(UpstreamServer, frozen=True):
    """An upstream with its settings and capabilities."""

    settings: UpstreamSettings
    quirks: Quirks = Quirks()
    native_tools: bool | None = None
    constrained: bool | None = None


class DiscoveredServer(Struct, frozen=True):
    """A server on this machine that is not configured, and its models."""

    name: str
    """Usually the provider's name."""
    upstream: UpstreamSettings
    models: tuple[str, ...] = ()
    model_settings: ModelSettings | None = None
    """Settings for all of its models."""


class ResolvedModel(Struct, frozen=True):
    """A model that can be called."""

    name: str
    """The name that the client has requested."""
    endpoint: Endpoint
    profile: ModelProfile
    context_window: int | None = None
    fallbacks: tuple[Endpoint, ...] = ()
    is_substitute: bool = False
    """It is the default model, and the client has requested one of an unknown name."""


class UnknownModelError(ToolspeakError):
    """No model of the requested name can be served."""

    def __init__(
        self, message: str, kind: Literal["not_found", "unauthorized"] = "not_found"
    ) -> None:
        super().__init__(message)
        status, code = (404, "model_not_found") if kind == "not_found" else (401, None)
        self.failure = Failure(kind, message, status, code, "model")


class Catalog:
    """All models that can be requested."""

    def __init__(
        self, config: Config, environ: Mapping[str, str], found: tuple[DiscoveredServer, ...] = ()
    ) -> None:
        self._config = config
        self._environ = environ
        self.discovered = found
        self._servers = {server.name: server for server in found}
        self._resolved: dict[str, ResolvedModel] = {}

    def resolve(self, name: str) -> ResolvedModel:
        """Return the model of that name, or else the default model, if it serves that name."""
        resolved = self._resolved.get(name)
        if resolved is None:
            settings = self.find_model(name)
            is_substitute = settings is None and bool(name)
            if settings is None and (not name or self._serves_unknown_names):
                settings = self.find_model(self.default_model)
            if settings is None:
                raise self.unknown_model(name)
            if len(self._resolved) >= _MAX_RESOLVED:
                self._resolved.clear()
            model = structs.replace(self._resolve(name, settings), is_substitute=is_substitute)
            resolved = self._resolved[name] = model
        return resolved

    def resolve_exact(self, name: str) -> ResolvedModel:
        """Return the model of that name, never the default model instead."""
        settings = self.find_model(name)
        if settings is None:
            raise self.unknown_model(name)
        return self._resolve(name, settings)

    @property
    def default_model(self) -> str:
        """The configured default, or else a discovered server's model, the embedded one last."""
        if self._config.default:
            return self._config.default
        servers = sorted(self._servers.values(), key=lambda server: server.name == EMBEDDED)
        return next((f"{server.name}/{m}" for server in servers for m in server.models), "")

    @property
    def _serves_unknown_names(self) -> bool:
        """True if the user has chosen the default model, and it was not only discovered."""
        config = self._config
        is_embedded_chosen = bool(config.gguf) if config.embedded is None else config.embedded
        return bool(config.default) or is_embedded_chosen

    def list_names(self) -> list[str]:
        """Return the names of all models, except those of providers that are not configured."""
        configured = (name for name in self._config.models if "*" not in name)
        aliases = (name for name in self._config.aliases if "*" not in name)
        discovered = (
            f"{server.name}/{model}" for server in self._servers.values() for model in server.models
        )
        return list(dict.fromkeys((*configured, *aliases, *discovered)))

    def find_endpoint(self, name: str) -> Endpoint | None:
        """Return the upstream of that name: configured, discovered, or a provider with a key."""
        if name in self._config.upstreams:
            return _make_endpoint(name, self._config.upstreams[name])
        if name in self._servers:
            upstream = apply_provider(self._servers[name].upstream, self._environ)
            return _make_endpoint(name, upstream)
        provider = PROVIDERS.get(name)
        if provider is None or not provider.base_url:
            return None
        upstream = apply_provider(UpstreamSettings(provider=name), self._environ)
        return (
            _make_endpoint(name, upstream) if upstream.key or not provider.key_variables else None
        )

    def find_model(self, name: str) -> ModelSettings | None:
        """Return the settings for a configured or discovered model, never the default model's."""
        configured = find_named_model(self._config, name)
        if configured:
            return structs.replace(configured.settings, model=configured.locations[0].model)
        match = resolve_aliases(self._config, name)
        return self._find_unconfigured(match.name if match else name)

    def unknown_model(self, name: str) -> UnknownModelError:
        """Return the error to raise for an unknown name."""
        known = self.list_names()
        known = known or [f"{upstream}/…" for upstream in self._config.upstreams]
        if near := difflib.get_close_matches(name, known, 3, 0.4):
            message = f"the model {name!r} is not available; the nearest names are: "
            return UnknownModelError(message + ", ".join(near))
        if known:
            message = f"the model {name!r} is not available; available models include "
            return UnknownModelError(message + ", ".join(known[:3]))
        subject = f"the model {name!r} is not available" if name else "no model is available"
        return UnknownModelError(f"{subject}; start a local model server, or set a provider's key")

    def _find_unconfigured(self, name: str) -> ModelSettings | None:
        """Return settings for `upstream/model`, or for a discovered server's model."""
        upstream, slash, model = name.partition("/")
        if slash and model and self.find_endpoint(upstream):
            return self._discovered_settings(upstream, model)
        for server in self._servers.values():
            if name in server.models:
                return self._discovered_settings(server.name, name)
        if slash and upstream in PROVIDERS and PROVIDERS[upstream].key_variables:
            variables = " or ".join(PROVIDERS[upstream].key_variables)
            raise UnknownModelError(f"{upstream} needs a key: set {variables}", "unauthorized")
        return None

    def _discovered_settings(self, upstream: str, model: str) -> ModelSettings:
        server = self._servers.get(upstream)
        settings = (
            server.model_settings if server and server.model_settings else ModelSettings(upstream)
        )
        return structs.replace(settings, upstream=upstream, model=model)

    def _resolve(self, name: str, settings: ModelSettings) -> ResolvedModel:
        endpoint = self.find_endpoint(settings.upstream)
        if endpoint is None:
            raise UnknownModelError(f"the upstream {settings.upstream!r} is no longer available")
        fallbacks = map(self.find_endpoint, endpoint.settings.fallbacks)
        return ResolvedModel(
            name,
            endpoint,
            make_profile(settings, endpoint),
            settings.context_window,
            tuple(fallback for fallback in fallbacks if fallback),
        )


def _make_endpoint(name: str, upstream: UpstreamSettings) -> Endpoint:
    provider = PROVIDERS.get(upstream.provider) or PROVIDERS[_CUSTOM_PROVIDER]
    return Endpoint(
        name=name,
        wire=upstream.wire,
        base_url=upstream.base_url.rstrip("/"),
        key=upstream.key,
        headers=upstream.headers,
        settings=upstream,
        quirks=provider.quirks,
        native_tools=None if provider.tools == "model" else provider.tools,
        constrained=provider.schema or None,
    )


def make_profile(settings: ModelSettings, endpoint: Endpoint) -> ModelProfile:
    """Return what the engine needs to know about a model."""
    is_small = is_tiny_model(settings.model) if settings.weak == "auto" else settings.weak
    return ModelProfile(
        upstream=endpoint.name,
        model=settings.model,
        wire=endpoint.wire,
        capabilities=Capabilities(
            native_tools=endpoint.native_tools,
            constrained=endpoint.constrained,
            system_role=settings.system_role,
            reasoning_open=settings.starts_in_reasoning,
            context_window=settings.context_window,
        ),
        mode=settings.tools,
        dialect=settings.dialect,
        trust=settings.trust,
        compact=settings.compact_tools,
        retries=settings.retries,
        max_repeats=settings.max_repeats,
        tool_aliases=settings.tool_aliases,
        polling_tools=settings.polling_tools,
        select_tools_above=settings.select_tools_above,
        is_small=is_small,
        quirks=endpoint.quirks,
    )


def is_tiny_model(model: str) -> bool:
    """Return True if a name says that the model is tiny: `SmolLM2-135M`, `qwen:0.5b`."""
    sizes = (float(size[1]) * _UNITS[size[2].lower()] for size in _PARAMETER_COUNT.finditer(model))
    return max(sizes, default=_TINY + 1) <= _TINY
