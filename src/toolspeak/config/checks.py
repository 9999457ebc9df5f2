"""What no type can say: names that have to exist, addresses, keys, ways that lead in circles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, urlsplit

from ..dialects import DIALECTS
from ..dialects.registry import AUTO
from ..wires import WIRES
from .document import ConfigProblem, join_path, suggest_names
from .model_names import best
from .providers import PROVIDERS
from .settings import Config, ServerSettings, UpstreamSettings, mask_url

_KEY = re.compile(r"[\x21-\x7e]+")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_HOST = re.compile(r"[^\s/?#@,]+")
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^\s/?#@]+", re.I)
_STORES = ("redis://", "rediss://", "unix://")
_PORTS = {"http": 80, "https": 443}
_BUILT_IN = "embedded"
"""The provider that needs no address: the gateway starts it."""
_ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/messages", "/api/chat")
_VERSIONED = frozenset({"anthropic", "ollama"})
"""Wires whose own paths begin with the version, or have none."""

TELEMETRY_MISSING = "traces need OpenTelemetry: pip install 'toolspeak[otel]'"
_TELEMETRY_PACKAGES = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")


def is_telemetry_installed() -> bool:
    """Whether all is there that traces need."""
    try:
        return all(map(find_spec, _TELEMETRY_PACKAGES))
    except ModuleNotFoundError:
        return False


def find_problems(config: Config) -> Iterator[ConfigProblem]:
    """All that keeps a configuration from being used."""
    yield from _server(config.server)
    if config.store != "memory" and not config.store.startswith(_STORES):
        yield ConfigProblem("Expected `memory`, redis://…, rediss://… or unix://…", "$.store")
    if config.telemetry.otlp:
        yield from _telemetry(config.telemetry.otlp)
    for name, upstream in config.upstreams.items():
        yield from _upstream(config, upstream, join_path("$.upstreams", name))
    for path, circle in _circles(config):
        yield ConfigProblem(
            f"leads back to itself: {' -> '.join(circle)}; take one of them out", path
        )
    for name in config.models:
        yield from _model(config, name, join_path("$.models", name))
    for name in config.aliases:
        yield from _alias(config, name, join_path("$.aliases", name))
    if config.default and not _is_known(config, config.default):
        yield ConfigProblem(_no_model(config, config.default), "$.default")


def find_warnings(config: Config) -> Iterator[ConfigProblem]:
    """What works, and is probably not meant."""
    for name, upstream in config.upstreams.items():
        path = join_path("$.upstreams", name)
        yield from _keyless(upstream, path)
        yield from _too_long(upstream, join_path(path, "base_url"))


def _telemetry(otlp: str) -> Iterator[ConfigProblem]:
    address = _split(otlp)
    if address is None or address.scheme not in _PORTS or not address.hostname:
        yield ConfigProblem("Expected an address such as http://127.0.0.1:4318", "$.telemetry.otlp")
    if not is_telemetry_installed():
        yield ConfigProblem(TELEMETRY_MISSING, "$.telemetry.otlp")


# The server.


def _server(server: ServerSettings) -> Iterator[ConfigProblem]:
    if not _is_loopback(server.host) and not server.keys:
        yield ConfigProblem(
            f"the host {server.host} can be reached from other machines, so clients need keys: "
            "set `keys` or TOOLSPEAK_KEYS, or listen on 127.0.0.1",
            "$.server.keys",
        )
    for index, key in enumerate(server.keys):
        yield from _key(key, join_path("$.server.keys", index), may_be_empty=False)
    yield from _key(server.admin_key, "$.server.admin_key")
    for index, host in enumerate(server.hosts):
        if not _HOST.fullmatch(host):
            yield ConfigProblem(
                "Expected a name such as example.org, without http://",
                join_path("$.server.hosts", index),
            )
    for index, origin in enumerate(server.origins):
        if not _ORIGIN.fullmatch(origin):
            yield ConfigProblem(
                "Expected an origin such as https://example.org, without a path, or `*`",
                join_path("$.server.origins", index),
            )


def _key(key: str, path: str, *, may_be_empty: bool = True) -> Iterator[ConfigProblem]:
    if not key and not may_be_empty:
        yield ConfigProblem(
            "the key is empty, which would let anyone in; take it out or set it", path
        )
    elif key and not _KEY.fullmatch(key):
        yield ConfigProblem(
            "no header can carry this key: it has spaces, line breaks or accents", path
        )


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return address.is_loopback if address else _plain(host) == "localhost"


def _is_here(host: str) -> bool:
    """Whether this machine is meant: 127.0.0.1, localhost, ::1, and what listens everywhere."""
    address = _address(host)
    return _is_loopback(host) or (address is not None and address.is_unspecified)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(_plain(host))
    except ValueError:
        return None


def _plain(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()


# Upstreams.


def _upstream(config: Config, upstream: UpstreamSettings, path: str) -> Iterator[ConfigProblem]:
    provider, wire = upstream.provider, upstream.wire
    if provider and provider not in PROVIDERS:
        advice = suggest_names(provider, PROVIDERS, "`toolspeak providers` lists them")
        yield ConfigProblem(
            f"there is no provider {provider!r}{advice}", join_path(path, "provider")
        )
    if wire and wire not in WIRES:
        yield ConfigProblem(
            f"there is no wire {wire!r}{suggest_names(wire, WIRES)}", join_path(path, "wire")
        )
    if not provider and not (wire and upstream.base_url):
        yield ConfigProblem("an upstream needs a `provider`, or a `wire` and a `base_url`", path)
    elif upstream.base_url:
        yield from _base_url(config.server, upstream.base_url, join_path(path, "base_url"))
    elif provider in PROVIDERS and provider != _BUILT_IN:
        yield ConfigProblem(f"the provider {provider!r} says not where it is: set `base_url`", path)
    yield from _key(upstream.key, join_path(path, "key"))
    yield from _headers(upstream.headers, join_path(path, "headers"))
    for index, name in enumerate(upstream.fallbacks):
        if name not in config.upstreams:
            yield ConfigProblem(
                _no_upstream(config, name), join_path(join_path(path, "fallbacks"), index)
            )


def _no_upstream(config: Config, name: str) -> str:
    advice = suggest_names(name, config.upstreams)
    if name in PROVIDERS:
        advice = f'; add [upstreams.{name}] with provider = "{name}"'
    return f"there is no upstream {name!r}{advice}"


def _headers(headers: Mapping[str, str], path: str) -> Iterator[ConfigProblem]:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            yield ConfigProblem(
                "no header: it has signs or line breaks that none may have", join_path(path, name)
            )


def _base_url(server: ServerSettings, base_url: str, path: str) -> Iterator[ConfigProblem]:
    address = _split(base_url)
    if address is None or address.scheme not in _PORTS or not address.hostname:
        yield ConfigProblem("Expected an address such as https://example.org/v1", path)
        return
    if "?" in base_url or "#" in base_url:
        yield ConfigProblem(
            "the address has a query; only what stands before `?` and `#` can be used", path
        )
    if _leads_back(server, address):
        yield ConfigProblem(
            f"{mask_url(base_url)} is the gateway's own address, so it would send every "
            "request to itself; set where the model is served, or another `server.port`",
            path,
        )


def _split(base_url: str) -> SplitResult | None:
    """The parts of an address; None if it is none."""
    try:
        address = urlsplit(base_url)
        return None if address.port == 0 or re.search(r"[\s\\]", base_url) else address
    except ValueError:
        return None


def _leads_back(server: ServerSettings, address: SplitResult) -> bool:
    if (address.port or _PORTS[address.scheme]) != server.port:
        return False
    host = _plain(address.hostname or "")
    names = {_plain(name) for name in (server.host, *server.hosts)}
    return host in names or (_is_here(host) and _is_here(server.host))


def _keyless(upstream: UpstreamSettings, path: str) -> Iterator[ConfigProblem]:
    row = PROVIDERS.get(upstream.provider)
    if row is None or upstream.key or not row.keys:
        return
    variables = " or ".join(row.keys)
    if upstream.base_url == row.base_url:
        yield ConfigProblem(f"{row.title} wants a key: set `key`, or {variables}", path)
    else:
        yield ConfigProblem(
            f"the address is not {row.title}'s own, so {variables} is not sent there; "
            f"set `key` if it wants one",
            path,
        )


def _too_long(upstream: UpstreamSettings, path: str) -> Iterator[ConfigProblem]:
    """People copy addresses together with what the wire adds to them."""
    address = upstream.base_url
    for ending in _ENDPOINTS:
        if address.endswith(ending):
            yield ConfigProblem(
                f"the wire itself adds `{ending}`: the address should end before", path
            )
            return
    if upstream.wire in _VERSIONED and address.endswith("/v1"):
        yield ConfigProblem(f"the wire {upstream.wire} wants the address without `/v1`", path)


# Models and aliases.


def _model(config: Config, name: str, path: str) -> Iterator[ConfigProblem]:
    model = config.models[name]
    if model.upstream and model.upstream not in config.upstreams:
        yield ConfigProblem(_no_upstream(config, model.upstream), join_path(path, "upstream"))
    if model.dialect not in (None, AUTO, *DIALECTS):
        advice = suggest_names(model.dialect or "", DIALECTS, "`toolspeak dialects` lists them")
        yield ConfigProblem(
            f"there is no dialect {model.dialect!r}{advice}", join_path(path, "dialect")
        )
    if "*" in model.model and "*" not in name:
        yield ConfigProblem("`*` stands for what the wildcard fits, and the name has none", path)
    yield from _pattern(name, path)


def _alias(config: Config, name: str, path: str) -> Iterator[ConfigProblem]:
    target = config.aliases[name]
    if name in config.models:
        yield ConfigProblem(f"{name!r} is a model as well; take out one of them", path)
    elif not _is_known(config, target):
        yield ConfigProblem(_no_model(config, target), path)
    yield from _pattern(name, path)


def _pattern(name: str, path: str) -> Iterator[ConfigProblem]:
    if not name.strip():
        yield ConfigProblem("a model needs a name", path)
    elif name.count("*") > 1:
        yield ConfigProblem("a wildcard has only one `*`", path)


def _is_known(config: Config, name: str) -> bool:
    """Whether a name is a model's or an alias, or says which upstream or provider has it."""
    upstream, slash, _ = name.partition("/")
    named = slash and (upstream in config.upstreams or upstream in PROVIDERS)
    return bool(named) or best(config, name) is not None


def _no_model(config: Config, name: str) -> str:
    otherwise = "write `upstream/model` for one that an upstream has"
    return f"there is no model {name!r}" + suggest_names(
        name, (*config.models, *config.aliases), otherwise
    )


# Circles.


def _circles(config: Config) -> Iterator[tuple[str, list[str]]]:
    """Fallbacks and aliases that come back to where they began, once each."""
    fallbacks = {name: upstream.fallbacks for name, upstream in config.upstreams.items()}
    aliases = {
        name: (match.pattern,) if (match := best(config, target)) else ()
        for name, target in config.aliases.items()
        if name not in config.models
    }
    for circle in _ways_back(fallbacks):
        yield join_path(join_path("$.upstreams", circle[0]), "fallbacks"), circle
    for circle in _ways_back(aliases):
        yield join_path("$.aliases", circle[0]), circle


def _ways_back(edges: Mapping[str, Iterable[str]]) -> Iterator[list[str]]:
    """The ways that come back to where they began; each once, from its first name."""
    order = {name: index for index, name in enumerate(edges)}
    for start in edges:
        way = _way_back(edges, start, [start], set())
        if way and all(order[start] <= order[name] for name in way):
            yield way


def _way_back(
    edges: Mapping[str, Iterable[str]], start: str, way: list[str], seen: set[str]
) -> list[str] | None:
    """A way from the last of `way` to `start`, or None."""
    for name in edges[way[-1]]:
        if name == start:
            return [*way, start]
        if name in edges and name not in seen:
            seen.add(name)
            if found := _way_back(edges, start, [*way, name], seen):
                return found
    return None
