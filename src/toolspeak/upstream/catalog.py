"""Which model a name means, where it is, and how it is to be used.

gpt-4o            an alias or a wildcard of the configuration, or else the default model
ollama/qwen3:8b   a model of an upstream: configured, found on this machine, or of a provider
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, structs

from ..config.loading import apply_provider
from ..config.model_names import find_named_model, resolve_aliases
from ..config.providers import PROVIDERS
from ..config.settings import Config, ModelSettings, UpstreamSettings
from ..engine import ModelProfile
from ..errors import ToolspeakError
from ..types import Capabilities, Failure, Quirks

EMBEDDED = "embedded"
_MOST_RESOLVED = 1000
"""Clients may make up any name, and each stands for the default model."""
_UNKNOWN = "custom"
"""The row for servers that name no provider."""
_NATIVE: dict[Any, bool | None] = {True: True, False: False}


class UpstreamServer(Struct, frozen=True, array_like=True):
    """Where an upstream is, and what it is shown to be let in."""

    name: str
    wire: str
    base_url: str
    key: str
    headers: Mapping[str, str]


class Endpoint(UpstreamServer, frozen=True):
    """An upstream with all that is known of it."""

    settings: UpstreamSettings
    quirks: Quirks = Quirks()
    native_tools: bool | None = None
    constrained: bool | None = None


class DiscoveredServer(Struct, frozen=True):
    """A server on this machine that nobody has configured, and its models."""

    name: str
    """The provider's, as a rule."""
    upstream: UpstreamSettings
    models: tuple[str, ...] = ()
    settings: ModelSettings | None = None
    """How all of its models are to be used, where that is known."""


class ResolvedModel(Struct, frozen=True):
    """A model, ready to be asked."""

    name: str
    """What the client called it."""
    endpoint: Endpoint
    profile: ModelProfile
    context: int | None = None
    fallbacks: tuple[Endpoint, ...] = ()


class UnknownModelError(ToolspeakError):
    """No model of that name can be served."""

    def __init__(
        self, problem: str, kind: Literal["not_found", "unauthorized"] = "not_found"
    ) -> None:
        super().__init__(problem)
        status, code = (404, "model_not_found") if kind == "not_found" else (401, None)
        self.failure = Failure(kind, problem, status, code, "model")


class Catalog:
    """All models that can be asked for."""

    def __init__(
        self, config: Config, environ: Mapping[str, str], found: tuple[DiscoveredServer, ...] = ()
    ) -> None:
        self._config = config
        self._environ = environ
        self.discovered = found
        self._found = {server.name: server for server in found}
        self._resolved: dict[str, ResolvedModel] = {}

    def resolve(self, name: str) -> ResolvedModel:
        """The model that a name means, or else the default one."""
        served = self._resolved.get(name)
        if served is None:
            model = self.find_model(name) or (
                self.find_model(self.default_model) if self.default_model else None
            )
            if model is None:
                raise self.unknown_model(name)
            if len(self._resolved) >= _MOST_RESOLVED:
                self._resolved.clear()
            served = self._resolved[name] = self._resolve(name, model)
        return served

    def resolve_exact(self, name: str) -> ResolvedModel:
        """The model that a name means, and never the default one in its place."""
        model = self.find_model(name)
        if model is None:
            raise self.unknown_model(name)
        return self._resolve(name, model)

    @property
    def default_model(self) -> str:
        """The model for requests that name none that is known: one of a local server if there is
        one, and the embedded one if not."""
        if self._config.default:
            return self._config.default
        servers = sorted(self._found.values(), key=lambda server: server.name == EMBEDDED)
        return next((f"{server.name}/{m}" for server in servers for m in server.models), "")

    def list_names(self) -> list[str]:
        """Every model that can be named, without those of providers that only a key makes known."""
        configured = (name for name in self._config.models if "*" not in name)
        aliases = (name for name in self._config.aliases if "*" not in name)
        found = (f"{server.name}/{m}" for server in self._found.values() for m in server.models)
        return list(dict.fromkeys((*configured, *aliases, *found)))

    def find_endpoint(self, name: str) -> Endpoint | None:
        """The upstream of that name: configured, found, or a provider whose key is known."""
        if name in self._config.upstreams:
            return self._endpoint(name, self._config.upstreams[name])
        if name in self._found:
            return self._endpoint(name, apply_provider(self._found[name].upstream, self._environ))
        row = PROVIDERS.get(name)
        upstream = (
            apply_provider(UpstreamSettings(provider=name), self._environ)
            if row
            else UpstreamSettings()
        )
        is_open = row is not None and bool(row.base_url) and (upstream.key or not row.keys)
        return self._endpoint(name, upstream) if is_open else None

    # From a name to a model.

    def find_model(self, name: str) -> ModelSettings | None:
        """What the configuration says of a name, or what is found on this machine. The default
        model stands in for no other here."""
        target = find_named_model(self._config, name)
        if target:
            return structs.replace(target.settings, model=target.locations[0].model)
        match = resolve_aliases(self._config, name)
        return self._find_unconfigured(match.name if match else name)

    def _find_unconfigured(self, name: str) -> ModelSettings | None:
        """`upstream/model`, or the name of a model that a server on this machine has."""
        upstream, slash, model = name.partition("/")
        if slash and model and self.find_endpoint(upstream):
            return self._model_of(upstream, model)
        for server in self._found.values():
            if name in server.models:
                return self._model_of(server.name, name)
        if slash and upstream in PROVIDERS and PROVIDERS[upstream].keys:
            keys = " or ".join(PROVIDERS[upstream].keys)
            raise UnknownModelError(f"{upstream} needs a key: set {keys}", "unauthorized")
        return None

    def _model_of(self, upstream: str, model: str) -> ModelSettings:
        server = self._found.get(upstream)
        settings = server.settings if server and server.settings else ModelSettings(upstream)
        return structs.replace(settings, upstream=upstream, model=model)

    def _resolve(self, name: str, model: ModelSettings) -> ResolvedModel:
        endpoint = self.find_endpoint(model.upstream)
        if endpoint is None:
            raise UnknownModelError(f"the upstream {model.upstream!r} is not there any more")
        others = (self.find_endpoint(other) for other in endpoint.settings.fallbacks)
        return ResolvedModel(
            name,
            endpoint,
            make_profile(model, endpoint),
            model.context,
            tuple(other for other in others if other),
        )

    def unknown_model(self, name: str) -> UnknownModelError:
        """What to raise for a name that is not known."""
        known = self.list_names()
        known = known or [f"{upstream}/…" for upstream in self._config.upstreams]
        near = difflib.get_close_matches(name, known, 3, 0.4) or known[:3]
        if not near:
            what = f"there is no model {name!r}, and no other" if name else "there is no model"
            problem = f"{what} to ask: start a local server, or set a provider's key"
            return UnknownModelError(problem)
        return UnknownModelError(f"there is no model {name!r}; there are {', '.join(near)}")

    def _endpoint(self, name: str, upstream: UpstreamSettings) -> Endpoint:
        row = PROVIDERS.get(upstream.provider) or PROVIDERS[_UNKNOWN]
        return Endpoint(
            name=name,
            wire=upstream.wire,
            base_url=upstream.base_url.rstrip("/"),
            key=upstream.key,
            headers=upstream.headers,
            settings=upstream,
            quirks=row.quirks,
            native_tools=_NATIVE.get(row.tools),
            constrained=row.schema or None,
        )


def is_tiny_model(model: str) -> bool:
    """Whether the name of a model tells that it has few parameters: `SmolLM2-135M`, `qwen:0.5b`."""
    sizes = (float(size[1]) * _UNITS[size[2].lower()] for size in _PARAMETERS.finditer(model))
    return max(sizes, default=_TINY + 1) <= _TINY


_PARAMETERS = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)([mb])(?![a-z0-9])", re.I)
_UNITS = {"m": 1e6, "b": 1e9}
_TINY = 0.6e9
"""Up to about here, models cannot tell which tool fits."""


def make_profile(model: ModelSettings, endpoint: Endpoint) -> ModelProfile:
    """A model of an upstream as the bridge wants to know it."""
    return ModelProfile(
        upstream=endpoint.name,
        model=model.model,
        wire=endpoint.wire,
        capabilities=Capabilities(
            native_tools=endpoint.native_tools,
            constrained=endpoint.constrained,
            system_role=model.system_role,
            reasoning_open=model.starts_in_reasoning,
            context=model.context,
        ),
        mode=model.tools,
        dialect=model.dialect,
        trust=model.trust,
        compact=model.compact_tools,
        retries=model.retries,
        max_repeats=model.max_repeats,
        polling_tools=model.polling_tools,
        select_tools_above=model.select_tools_above,
        is_small=is_tiny_model(model.model) if model.weak == "auto" else model.weak,
        quirks=endpoint.quirks,
    )
