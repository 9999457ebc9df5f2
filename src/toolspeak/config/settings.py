"""What a configuration may say, and what holds where it says nothing.

`docs/config.md` explains every field. Whatever prints these values leaves the secrets out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ..calls.validation import Trust

Name = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0)]
Size = Annotated[int, Meta(ge=1)]
Depth = Annotated[int, Meta(ge=1, le=200)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Seconds = Annotated[float, Meta(gt=0, le=86400)]
ToolsSetting = Literal["auto", "native", "prompt", "constrained"]
LogFormat = Literal["text", "json"]

_DOTS = "••••"
_SECRETS = frozenset({"key", "keys", "admin_key"})
_ADDRESSES = frozenset({"base_url", "otlp", "store"})
HARMLESS = frozenset(
    (
        *("accept", "content-type", "http-referer", "user-agent", "x-title"),
        *("anthropic-beta", "anthropic-version", "openai-beta"),
    )
)
"""Headers that are no secret. Any other may be one."""
_USER = re.compile(r"^([a-z][a-z0-9+.-]*://)?.*@", re.I | re.S)


class Discreet(Struct, frozen=True):
    """Settings that print without their secrets, wherever that happens."""

    def __repr__(self) -> str:
        fields = (f"{name}={value!r}" for name, value in shown(self).items())
        return f"{type(self).__name__}({', '.join(fields)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return list(shown(self).items())


class Server(Discreet, frozen=True, forbid_unknown_fields=True):
    """Where the gateway listens, and to whom."""

    host: Name = "127.0.0.1"
    port: Port = 7878
    """0: any that is free."""
    workers: Size = 1
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

    body: Size = 32 * 2**20
    """Bytes."""
    headers: Size = 65536
    """Bytes."""
    depth: Depth = 200
    """How deep the JSON of a request may be nested."""
    tools: Size = 1024
    streams: Size = 1024
    """Requests at the same time."""


class Inspector(Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept of requests, for people to look at."""

    enabled: bool = True
    requests: Size = 1000
    """How many."""
    bytes: Size = 32 * 2**20
    """How many bytes of them, in each process."""


class Telemetry(Discreet, frozen=True, forbid_unknown_fields=True):
    """Where traces go. Nothing goes anywhere unless it is said here."""

    otlp: str = ""
    """The address of an OpenTelemetry collector that takes OTLP over HTTP."""
    content: bool = False
    """Whether they hold what was said: messages, tools and arguments, without their secrets."""


class Upstream(Discreet, frozen=True, forbid_unknown_fields=True):
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


class Model(Struct, frozen=True, forbid_unknown_fields=True):
    """A model that clients may ask for, by its name or by a wildcard."""

    upstream: Name
    model: str = ""
    """The upstream's name for it; `*` is what the wildcard stands for; empty: the same name."""
    tools: ToolsSetting = "auto"
    dialect: str | None = None
    trust: Trust = "standard"
    retries: Count = 2
    """How often a model is asked again after a call that cannot be used."""
    compact: bool | Literal["auto"] = "auto"
    repeats: Count = 3
    """How often it may make the same call in a row and get the same result; 0: any number."""
    polling: tuple[str, ...] = ()
    """Tools that may be called as often as it likes: names, or patterns such as `wait_*`."""
    select: Size | None = None
    """Tokens: where a request's tools have more, the model is first asked which it needs."""
    weak: bool | Literal["auto"] = "auto"
    """Whether a constrained model is led to its calls, one decision at a time: by itself only those
    whose name tells that they are very small."""
    context: Size | None = None
    """Tokens."""
    system_role: bool | None = None
    reasoning_open: bool | None = None


class Config(Discreet, frozen=True, forbid_unknown_fields=True):
    """All that a gateway needs to know."""

    server: Server = Server()
    limits: Limits = Limits()
    inspector: Inspector = Inspector()
    telemetry: Telemetry = Telemetry()
    store: str = "memory"
    """`memory`, or `redis://…`."""
    default: str = ""
    """The model for requests that name an unknown one, or none."""
    embedded: bool | None = None
    gguf: str = ""
    upstreams: dict[str, Upstream] = {}
    models: dict[str, Model] = {}
    """By name, or by a wildcard such as `claude-*`."""
    aliases: dict[str, str] = {}
    """Other names, or wildcards, and the model that each means."""


def secrets_of(config: Config) -> Iterator[str]:
    """The keys that the gateway itself knows."""
    yield from config.server.keys
    yield config.server.admin_key
    for upstream in config.upstreams.values():
        yield upstream.key


def shown(settings: Struct) -> dict[str, Any]:
    """The settings for printing: plain values, and dots in place of secrets."""
    return {name: _shown(name, getattr(settings, name)) for name in settings.__struct_fields__}


def hidden(secret: str) -> str:
    """A secret as it may be shown: a long one can be told from another by its end."""
    if not secret:
        return ""
    return _DOTS + secret[-2:] if len(secret) > 12 else _DOTS


def hidden_address(address: str) -> str:
    """An address without its user, password and query."""
    bare, asks, _ = address.partition("?")
    return _USER.sub(rf"\1{_DOTS}@", bare) + (f"?{_DOTS}" if asks else "")


def _shown(name: str, value: Any) -> Any:
    match value:
        case Struct():
            return shown(value)
        case dict() if name == "headers":
            return {key: _header(key, text) for key, text in value.items()}
        case dict():
            return {key: _shown("", item) for key, item in value.items()}
        case tuple():
            return [_shown(name, item) for item in value]
        case str() if name in _SECRETS:
            return hidden(value)
        case str() if name in _ADDRESSES or "://" in value:
            return hidden_address(value)
        case _:
            return value


def _header(name: str, value: str) -> str:
    return value if name.lower() in HARMLESS else hidden(value)
