"""What a configuration may say, and what holds where it says nothing.

`docs/config.md` explains every field. Whatever prints these values leaves the secrets out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ..calls.validation import Trust

NonEmptyText = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0)]
PositiveInt = Annotated[int, Meta(ge=1)]
Depth = Annotated[int, Meta(ge=1, le=200)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Seconds = Annotated[float, Meta(gt=0, le=86400)]
ModeSetting = Literal["auto", "native", "prompt", "constrained"]
LogFormat = Literal["text", "json"]

_DOTS = "••••"
_SECRET_FIELDS = frozenset({"key", "keys", "admin_key"})
_URL_FIELDS = frozenset({"base_url", "otlp", "store"})
PUBLIC_HEADERS = frozenset(
    (
        *("accept", "content-type", "http-referer", "user-agent", "x-title"),
        *("anthropic-beta", "anthropic-version", "openai-beta"),
    )
)
"""Headers that are no secret. Any other may be one."""
_URL_USER = re.compile(r"^([a-z][a-z0-9+.-]*://)?.*@", re.I | re.S)


class MaskedSettings(Struct, frozen=True):
    """Settings that print without their secrets, wherever that happens."""

    def __repr__(self) -> str:
        fields = (f"{name}={value!r}" for name, value in mask_settings(self).items())
        return f"{type(self).__name__}({', '.join(fields)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return list(mask_settings(self).items())


class ServerSettings(MaskedSettings, frozen=True, forbid_unknown_fields=True):
    """Where the gateway listens, and to whom."""

    host: NonEmptyText = "127.0.0.1"
    port: Port = 7878
    """0: any that is free."""
    workers: PositiveInt = 1
    keys: tuple[str, ...] = ()
    """What clients have to show; with none, anyone on this machine may come in."""
    admin_key: str = ""
    hosts: tuple[str, ...] = ()
    """More names that a request's Host may have."""
    origins: tuple[str, ...] = ()
    """Web pages that may call the gateway."""
    log: LogFormat = "text"
    """`json`: one object per line, for each request as well."""


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """How much of everything a client may ask for."""

    body: PositiveInt = 32 * 2**20
    """Bytes."""
    headers: PositiveInt = 65536
    """Bytes."""
    depth: Depth = 200
    """How deep the JSON of a request may be nested."""
    tools: PositiveInt = 1024
    streams: PositiveInt = 1024
    """Requests at the same time."""


class InspectorSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept of requests, for people to look at."""

    enabled: bool = True
    requests: PositiveInt = 1000
    """How many."""
    bytes: PositiveInt = 32 * 2**20
    """How many bytes of them, in each process."""


class TelemetrySettings(MaskedSettings, frozen=True, forbid_unknown_fields=True):
    """Where traces go. Nothing goes anywhere unless it is said here."""

    otlp: str = ""
    """The address of an OpenTelemetry collector that takes OTLP over HTTP."""
    content: bool = False
    """Whether they hold what was said: messages, tools and arguments, without their secrets."""


class UpstreamSettings(MaskedSettings, frozen=True, forbid_unknown_fields=True):
    """A server that has models."""

    provider: str = ""
    """A row of `providers.toml`: it says all that is not said here."""
    wire: str = ""
    base_url: str = ""
    key: str = ""
    headers: dict[str, str] = {}
    model: str = ""
    """Its name for models that say none themselves, and for all that it stands in for."""
    connect_timeout: Seconds = 10.0
    first_byte_timeout: Seconds = 600.0
    idle_timeout: Seconds = 300.0
    concurrency: Count = 0
    """Requests at the same time; 0: no limit."""
    retries: Count = 2
    """After connection problems, 429 and 5xx, before the first byte."""
    fallbacks: tuple[str, ...] = ()
    """Other upstreams, which are tried in this order."""


class ModelSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A model that clients may ask for, by its name or by a wildcard."""

    upstream: NonEmptyText
    model: str = ""
    """The upstream's name for it; `*` is what the wildcard stands for; empty: the same name."""
    tools: ModeSetting = "auto"
    dialect: str | None = None
    trust: Trust = "standard"
    retries: Count = 2
    """How often a model is asked again after a call that cannot be used."""
    compact: bool | Literal["auto"] = "auto"
    repeats: Count = 3
    """How often it may make the same call in a row and get the same result; 0: any number."""
    polling: tuple[str, ...] = ()
    """Tools that may be called as often as it likes: names, or patterns such as `wait_*`."""
    select: PositiveInt | None = None
    """Tokens: where a request's tools have more, the model is first asked which it needs."""
    weak: bool | Literal["auto"] = "auto"
    """Whether a constrained model is led to its calls, one decision at a time: by itself only those
    whose name tells that they are very small."""
    context: PositiveInt | None = None
    """Tokens."""
    system_role: bool | None = None
    reasoning_open: bool | None = None


class Config(MaskedSettings, frozen=True, forbid_unknown_fields=True):
    """All that a gateway needs to know."""

    server: ServerSettings = ServerSettings()
    limits: Limits = Limits()
    inspector: InspectorSettings = InspectorSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    store: str = "memory"
    """`memory`, or `redis://…`."""
    default: str = ""
    """The model for requests that name an unknown one, or none."""
    embedded: bool | None = None
    gguf: str = ""
    upstreams: dict[str, UpstreamSettings] = {}
    models: dict[str, ModelSettings] = {}
    """By name, or by a wildcard such as `claude-*`."""
    aliases: dict[str, str] = {}
    """Other names, or wildcards, and the model that each means."""


def configured_secrets(config: Config) -> Iterator[str]:
    """The keys that the gateway itself knows."""
    yield from config.server.keys
    yield config.server.admin_key
    for upstream in config.upstreams.values():
        yield upstream.key


def mask_settings(settings: Struct) -> dict[str, Any]:
    """The settings for printing: plain values, and dots in place of secrets."""
    return {name: _mask_value(name, getattr(settings, name)) for name in settings.__struct_fields__}


def mask_secret(secret: str) -> str:
    """A secret as it may be shown: a long one can be told from another by its end."""
    if not secret:
        return ""
    return _DOTS + secret[-2:] if len(secret) > 12 else _DOTS


def mask_url(address: str) -> str:
    """An address without its user, password and query."""
    bare, asks, _ = address.partition("?")
    return _URL_USER.sub(rf"\1{_DOTS}@", bare) + (f"?{_DOTS}" if asks else "")


def _mask_value(name: str, value: Any) -> Any:
    match value:
        case Struct():
            return mask_settings(value)
        case dict() if name == "headers":
            return {key: _mask_header(key, text) for key, text in value.items()}
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


def _mask_header(name: str, value: str) -> str:
    return value if name.lower() in PUBLIC_HEADERS else mask_secret(value)
