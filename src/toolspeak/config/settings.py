"""The gateway's settings and their defaults, and the models that names refer to.

`docs/config.md` explains every field. Printing settings masks their secrets.

    find_named_model(config, "claude-opus-4-8")    by its name, an alias or a wildcard
    find_named_model(config, "box/qwen3:8b")       by the name of an upstream
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ..types import Trust

NonEmptyText = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0)]
PositiveInt = Annotated[int, Meta(ge=1)]
Depth = Annotated[int, Meta(ge=1, le=200)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Seconds = Annotated[float, Meta(gt=0, le=86400)]
ModeSetting = Literal["auto", "native", "prompt", "constrained"]
LogFormat = Literal["text", "json"]

SQLITE_PREFIX = "sqlite:"
REDIS_SCHEMES = ("redis://", "rediss://", "unix://")

_MASK = "••••"
_SECRET_FIELDS = frozenset({"key", "keys", "admin_key"})
_URL_FIELDS = frozenset({"base_url", "otlp_endpoint", "store"})
PUBLIC_HEADERS = frozenset(
    (
        *("accept", "content-type", "http-referer", "user-agent", "x-title"),
        *("anthropic-beta", "anthropic-version", "openai-beta"),
    )
)
"""Headers whose values are shown. The value of any other header may be a secret."""
_URL_USER = re.compile(r"^([a-z][a-z0-9+.-]*://)?.*@", re.I | re.S)


class MaskedSettings(Struct, frozen=True):
    """Settings whose `repr` masks secrets."""

    def __repr__(self) -> str:
        fields = (f"{name}={value!r}" for name, value in mask_settings(self).items())
        return f"{type(self).__name__}({', '.join(fields)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return list(mask_settings(self).items())


class ServerSettings(MaskedSettings, frozen=True, forbid_unknown_fields=True):
    """The address that the gateway listens on, and who may use it."""

    host: NonEmptyText = "127.0.0.1"
    port: Port = 7878
    """0 picks a free port."""
    workers: PositiveInt = 1
    keys: tuple[str, ...] = ()
    """Client keys. Without any, every program on this machine may send requests."""
    admin_key: str = ""
    allowed_hosts: tuple[str, ...] = ()
    """Additional values that the Host header may have."""
    allowed_origins: tuple[str, ...] = ()
    """Web origins that may call the gateway."""
    log_format: LogFormat = "text"


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits on clients' requests."""

    body_bytes: PositiveInt = 32 * 2**20
    header_bytes: PositiveInt = 65536
    total_body_bytes: PositiveInt = 512 * 2**20
    """For all requests of a process that are being served."""
    json_depth: Depth = 200
    json_values: PositiveInt = 500_000
    messages: PositiveInt = 20_000
    tools: PositiveInt = 1024
    tool_bytes: PositiveInt = 4 * 2**20
    concurrent_requests: PositiveInt = 1024


class InspectorSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How much each process captures for the inspector."""

    enabled: bool = True
    requests: PositiveInt = 1000
    bytes: PositiveInt = 32 * 2**20


class StoreLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """How much a store keeps. Redis limits the total itself."""

    bytes: PositiveInt = 64 * 2**20
    value_bytes: PositiveInt = 4 * 2**20
    """The size of one value, such as a conversation. A larger one is not stored."""
    entries: PositiveInt = 100_000


class TelemetrySettings(MaskedSettings, frozen=True, forbid_unknown_fields=True):
    """Where traces are sent. Nothing is sent by default."""

    otlp_endpoint: str = ""
    """An OpenTelemetry collector that accepts OTLP over HTTP."""
    include_content: bool = False
    """Add messages, tools and arguments to the traces, with secrets masked."""


class UpstreamSettings(MaskedSettings, frozen=True, forbid_unknown_fields=True):
    """A server that serves models."""

    provider: str = ""
    """A row of `providers.toml`, which fills in the fields that are not set."""
    wire: str = ""
    base_url: str = ""
    key: str = ""
    headers: dict[str, str] = {}
    model: str = ""
    """The model to request when the client's model has no name of its own here."""
    connect_timeout: Seconds = 10.0
    first_byte_timeout: Seconds = 600.0
    idle_timeout: Seconds = 300.0
    concurrency: Count = 0
    """The maximum number of concurrent requests; 0 means no limit."""
    retries: Count = 2
    """Retries after connection errors, 429 and 5xx, before the first byte."""
    fallbacks: tuple[str, ...] = ()
    """Names of upstreams to try in this order when this one fails."""


class ModelSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A model that clients can request, by its name or a wildcard."""

    upstream: NonEmptyText
    model: str = ""
    """The upstream's name for it; `*` stands for what the wildcard matched. Empty: the upstream's
    `model`, or else the same name."""
    tools: ModeSetting = "auto"
    dialect: str | None = None
    trust: Trust = "standard"
    retries: Count = 2
    """Retries after a call that cannot be used."""
    compact_tools: bool | Literal["auto"] = "auto"
    max_repeats: Count = 3
    """How many times in a row the same call may give the same result; 0 means no limit."""
    polling_tools: tuple[str, ...] = ()
    """Names or patterns such as `wait_*` of tools that `max_repeats` does not apply to."""
    tool_aliases: dict[str, str] = {}
    """Other names by which the model may call a tool: `{"bash": "shell"}`."""
    select_tools_above: PositiveInt | None = None
    """Ask the model to select tools first if the tools take more than this many tokens."""
    weak: bool | Literal["auto"] = "auto"
    """Guide a constrained model through its calls, one decision at a time. `auto` does this for
    models whose names say that they are tiny."""
    context_window: PositiveInt | None = None
    """The context window in tokens."""
    system_role: bool | None = None
    starts_in_reasoning: bool | None = None


class Config(MaskedSettings, frozen=True, forbid_unknown_fields=True):
    """The gateway's configuration."""

    server: ServerSettings = ServerSettings()
    limits: Limits = Limits()
    inspector: InspectorSettings = InspectorSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    store: str = "memory"
    """`memory`, `sqlite:PATH` or `redis://…`."""
    store_limits: StoreLimits = StoreLimits()
    default: str = ""
    """The model for requests that name no model or an unknown one."""
    embedded: bool | None = None
    gguf: str = ""
    upstreams: dict[str, UpstreamSettings] = {}
    models: dict[str, ModelSettings] = {}
    """By name or by a wildcard such as `claude-*`."""
    aliases: dict[str, str] = {}
    """Other names or wildcards, and the model that each refers to."""


def find_store_problem(store: str) -> str:
    """Return why a setting `store` is invalid, without any part of it that may be a password."""
    path = store.removeprefix(SQLITE_PREFIX)
    if store == "memory" or store.startswith(REDIS_SCHEMES):
        return ""
    if path != store and path and not path.startswith("//"):
        return ""
    return "`store` must be `memory`, sqlite:PATH, redis://…, rediss://… or unix://…"


def find_gguf_problem(gguf: Path) -> str:
    """Return why a model file cannot be loaded; empty if it probably can."""
    problem = f"{gguf} is not a GGUF file; give one that llama.cpp can load"
    if gguf.exists() and not gguf.is_file():
        return problem  # Opening a pipe could take forever.
    try:
        with gguf.open("rb") as file:
            return "" if file.read(4) == b"GGUF" else problem
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return f"cannot read {gguf} ({reason}); give the path of a GGUF file"


def configured_secrets(config: Config) -> Iterator[str]:
    """Yield all client, admin and upstream keys."""
    yield from config.server.keys
    yield config.server.admin_key
    for upstream in config.upstreams.values():
        yield upstream.key


# Models by name. An exact name takes precedence over a wildcard, a longer wildcard over a shorter.


class ModelLocation(Struct, frozen=True):
    """An upstream, and its name for a model."""

    upstream: str
    model: str


class ConfiguredModel(Struct, frozen=True):
    """The settings that apply to a name, and the upstreams to try in order."""

    name: str
    """The name or wildcard in the configuration."""
    settings: ModelSettings
    locations: tuple[ModelLocation, ...]


class NameMatch(Struct, frozen=True):
    """The name or wildcard of the configuration that matches a name."""

    pattern: str
    """Empty if nothing matches."""
    wildcard_text: str
    """The part of the name that `*` matched."""
    name: str
    """The name after aliases were resolved."""


def find_model_or_default(config: Config, requested: str) -> ConfiguredModel | None:
    """Return the model for a request; the default model serves unknown names."""
    return find_named_model(config, requested) or find_named_model(config, config.default)


def find_named_model(config: Config, requested: str) -> ConfiguredModel | None:
    """Return the model of that name, or None if the configuration does not have it."""
    match = resolve_aliases(config, requested)
    if match is None:
        return None
    if match.pattern:
        settings = config.models[match.pattern]
        return ConfiguredModel(match.pattern, settings, _locations(config, settings, match))
    upstream, _, model = match.name.partition("/")
    if not model or upstream not in config.upstreams:
        return None
    settings = ModelSettings(upstream, model=model)
    return ConfiguredModel(match.name, settings, _locations(config, settings, match))


def resolve_aliases(config: Config, name: str) -> NameMatch | None:
    """Follow aliases until a model or an unknown name is reached; None if they form a cycle."""
    seen: set[str] = set()
    while name not in seen:
        seen.add(name)
        match = best_match(config, name)
        if match is None or match.pattern not in config.aliases:
            return match or NameMatch("", "", name)
        name = config.aliases[match.pattern]
    return None


def best_match(config: Config, name: str) -> NameMatch | None:
    """Return the model or alias that matches a name most closely.

    An alias does not match its own target: `"*" = "box/qwen3"` leads to `box/qwen3` and stops.
    """
    matches = [
        NameMatch(pattern, wildcard_text, name)
        for pattern in (*config.aliases, *config.models)
        if (wildcard_text := _match_wildcard(pattern, name)) is not None
        and config.aliases.get(pattern) != name
    ]
    exact = [match for match in matches if match.pattern == name]
    return exact[0] if exact else max(matches, key=lambda match: len(match.pattern), default=None)


def _locations(
    config: Config, settings: ModelSettings, match: NameMatch
) -> tuple[ModelLocation, ...]:
    first = config.upstreams[settings.upstream]
    model = settings.model.replace("*", match.wildcard_text) or first.model or match.name
    fallbacks = (
        ModelLocation(fallback, config.upstreams[fallback].model or model)
        for fallback in first.fallbacks
    )
    return ModelLocation(settings.upstream, model), *fallbacks


def _match_wildcard(pattern: str, name: str) -> str | None:
    """Return the text that `*` matched ("" if the pattern has none), or None if nothing matches."""
    before, star, after = pattern.partition("*")
    if not star:
        return "" if pattern == name else None
    is_long_enough = len(name) >= len(before) + len(after)
    if not (is_long_enough and name.startswith(before) and name.endswith(after)):
        return None
    return name[len(before) : len(name) - len(after)]


# Masking.


def mask_settings(settings: Struct) -> dict[str, Any]:
    """Return the settings as plain values with secrets masked."""
    return {name: _mask_value(name, getattr(settings, name)) for name in settings.__struct_fields__}


def mask_secret(secret: str) -> str:
    """Mask a secret. A long one keeps its last two characters, so that it can be recognized."""
    if not secret:
        return ""
    return _MASK + secret[-2:] if len(secret) > 12 else _MASK


def mask_url(url: str) -> str:
    """Mask the user, password and query of a URL."""
    base, question_mark, _ = url.partition("?")
    return _URL_USER.sub(rf"\1{_MASK}@", base) + (f"?{_MASK}" if question_mark else "")


def _mask_value(name: str, value: Any) -> Any:
    match value:
        case Struct():
            return mask_settings(value)
        case dict() if name == "headers":
            return {
                key: text if key.lower() in PUBLIC_HEADERS else mask_secret(text)
                for key, text in value.items()
            }
        case dict():
            return {key: _mask_value("", item) for key, item in value.items()}
        case tuple():
            return [_mask_value(name, item) for item in value]
        case str() if name in _SECRET_FIELDS:
            return mask_secret(value)
        case str() if name in _URL_FIELDS or "://" in value:
            return mask_url(value)
        case _:
            return value
