"""Checks beyond types: names that must exist, URLs, keys, and cycles of aliases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import SplitResult

from ..dialects import DIALECTS
from ..dialects.markers import AUTO
from ..wires import WIRES
from .addresses import (
    DEFAULT_PORTS,
    find_header_problem,
    is_loopback,
    is_this_machine,
    normalize_host,
    parse_http_url,
)
from .document import ConfigProblem, join_path, suggest_names
from .providers import EMBEDDED, PROVIDERS
from .settings import (
    Config,
    ServerSettings,
    UpstreamSettings,
    best_match,
    find_gguf_problem,
    find_store_problem,
    mask_url,
)

_KEY = re.compile(r"[\x21-\x7e]+")
_HOST = re.compile(r"[^\s/?#@,]+")
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^\s/?#@]+", re.I)
_ENDPOINT_PATHS = ("/chat/completions", "/completions", "/responses", "/messages", "/api/chat")
_UNVERSIONED_WIRES = frozenset({"anthropic", "ollama"})
"""Wires whose base URLs do not end in `/v1`."""

TELEMETRY_MISSING = "traces need OpenTelemetry: pip install 'toolspeak[otel]'"
_TELEMETRY_PACKAGES = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")


def is_telemetry_installed() -> bool:
    try:
        return all(map(find_spec, _TELEMETRY_PACKAGES))
    except ModuleNotFoundError:
        return False


def find_problems(config: Config) -> Iterator[ConfigProblem]:
    """Yield everything that makes a configuration unusable."""
    yield from _check_server(config.server)
    if problem := find_store_problem(config.store):
        yield ConfigProblem(problem, "$.store")
    is_loaded = config.gguf and config.embedded is not False
    if is_loaded and (problem := find_gguf_problem(Path(config.gguf))):
        yield ConfigProblem(problem, "$.gguf")
    if config.telemetry.otlp_endpoint:
        yield from _check_telemetry(config.telemetry.otlp_endpoint)
    for name in config.upstreams:
        yield from _check_upstream(config, name, join_path("$.upstreams", name))
    for name in config.models:
        yield from _check_model(config, name, join_path("$.models", name))
    for name in config.aliases:
        yield from _check_alias(config, name, join_path("$.aliases", name))
    yield from _check_alias_cycles(config)
    if config.default and not _is_known_model(config, config.default):
        yield ConfigProblem(_unknown_model(config, "`default`", config.default), "$.default")


def find_warnings(config: Config) -> Iterator[ConfigProblem]:
    """Yield settings that work but are probably not intended."""
    for name, upstream in config.upstreams.items():
        path = join_path("$.upstreams", name)
        yield from _warn_missing_key(upstream, path)
        yield from _warn_endpoint_url(upstream, join_path(path, "base_url"))


# The server.


def _check_server(server: ServerSettings) -> Iterator[ConfigProblem]:
    if not is_loopback(server.host) and not server.keys:
        yield ConfigProblem(
            f"other machines can reach the host {server.host}, so clients need keys: "
            "set `server.keys` or TOOLSPEAK_KEYS, or listen on 127.0.0.1",
            "$.server.keys",
        )
    for index, key in enumerate(server.keys):
        yield from _check_key(key, join_path("$.server.keys", index), may_be_empty=False)
    yield from _check_key(server.admin_key, "$.server.admin_key")
    for index, host in enumerate(server.allowed_hosts):
        if not _HOST.fullmatch(host):
            message = "expected a host name such as example.org, without http://"
            yield ConfigProblem(message, join_path("$.server.allowed_hosts", index))
    for index, origin in enumerate(server.allowed_origins):
        if not _ORIGIN.fullmatch(origin):
            message = "expected an origin such as https://example.org, without a path, or `*`"
            yield ConfigProblem(message, join_path("$.server.allowed_origins", index))


def _check_key(key: str, path: str, *, may_be_empty: bool = True) -> Iterator[ConfigProblem]:
    if not key and not may_be_empty:
        yield ConfigProblem("the key is empty and would admit anyone; set it or remove it", path)
    elif key and not _KEY.fullmatch(key):
        message = "the key cannot be sent in a header; use ASCII characters without spaces"
        yield ConfigProblem(message, path)


def _check_telemetry(endpoint: str) -> Iterator[ConfigProblem]:
    path = "$.telemetry.otlp_endpoint"
    if parse_http_url(endpoint) is None:
        yield ConfigProblem("expected a URL such as http://127.0.0.1:4318", path)
    if not is_telemetry_installed():
        yield ConfigProblem(TELEMETRY_MISSING, path)


# Upstreams.


def _check_upstream(config: Config, name: str, path: str) -> Iterator[ConfigProblem]:
    upstream = config.upstreams[name]
    provider, wire = upstream.provider, upstream.wire
    if provider and provider not in PROVIDERS:
        advice = suggest_names(provider, PROVIDERS, "`toolspeak providers` lists the known ones")
        message = f"`provider` names {provider!r}, which is not a known provider{advice}"
        yield ConfigProblem(message, join_path(path, "provider"))
    if wire and wire not in WIRES:
        message = f"`wire` is {wire!r}, which is not a known API{suggest_names(wire, WIRES)}"
        yield ConfigProblem(message, join_path(path, "wire"))
    if not provider and not (wire and upstream.base_url):
        message = "an upstream needs a `provider`, or a `wire` and a `base_url`"
        yield ConfigProblem(message, path)
    elif upstream.base_url:
        yield from _check_base_url(config.server, upstream.base_url, join_path(path, "base_url"))
    elif provider in PROVIDERS and provider != EMBEDDED:
        message = f"`base_url` is missing: the provider {provider!r} has no default for it"
        yield ConfigProblem(message, path)
    yield from _check_key(upstream.key, join_path(path, "key"))
    for header, value in upstream.headers.items():
        if problem := find_header_problem(header, value):
            yield ConfigProblem(problem, join_path(join_path(path, "headers"), header))
    for index, fallback in enumerate(upstream.fallbacks):
        fallback_path = join_path(join_path(path, "fallbacks"), index)
        if fallback not in config.upstreams:
            yield ConfigProblem(_unknown_upstream(config, "fallbacks", fallback), fallback_path)
        elif fallback == name:
            yield ConfigProblem(
                "`fallbacks` names the upstream itself; remove that entry", fallback_path
            )


def _unknown_upstream(config: Config, field: str, name: str) -> str:
    advice = suggest_names(name, config.upstreams)
    if name in PROVIDERS:
        advice = f'; add [upstreams.{name}] with provider = "{name}"'
    return f"`{field}` names {name!r}, which is not in [upstreams]{advice}"


def _check_base_url(server: ServerSettings, base_url: str, path: str) -> Iterator[ConfigProblem]:
    url = parse_http_url(base_url)
    if url is None:
        yield ConfigProblem("expected a URL such as https://example.org/v1", path)
        return
    if "?" in base_url or "#" in base_url:
        yield ConfigProblem("`base_url` has a query or a fragment; remove it", path)
    if _is_own_url(server, url):
        yield ConfigProblem(
            f"{mask_url(base_url)} is the gateway's own address, so it would send every "
            "request to itself; set the model server's URL, or change `server.port`",
            path,
        )


def _is_own_url(server: ServerSettings, url: SplitResult) -> bool:
    if (url.port or DEFAULT_PORTS[url.scheme]) != server.port:
        return False
    host = normalize_host(url.hostname or "")
    own_hosts = {normalize_host(name) for name in (server.host, *server.allowed_hosts)}
    return host in own_hosts or (is_this_machine(host) and is_this_machine(server.host))


def _warn_missing_key(upstream: UpstreamSettings, path: str) -> Iterator[ConfigProblem]:
    provider = PROVIDERS.get(upstream.provider)
    if provider is None or upstream.key or not provider.key_variables:
        return
    variables = " or ".join(provider.key_variables)
    if upstream.base_url == provider.base_url:
        yield ConfigProblem(f"{provider.title} needs a key: set `key` or {variables}", path)
    else:
        yield ConfigProblem(
            f"`base_url` is not {provider.title}'s own, so {variables} is not sent there; "
            "set `key` if the server needs one",
            path,
        )


def _warn_endpoint_url(upstream: UpstreamSettings, path: str) -> Iterator[ConfigProblem]:
    """Warn if a base URL was copied together with the path that the wire adds to it."""
    url = upstream.base_url
    for ending in _ENDPOINT_PATHS:
        if url.endswith(ending):
            message = f"remove `{ending}` from `base_url`: Toolspeak adds it"
            yield ConfigProblem(message, path)
            return
    if upstream.wire in _UNVERSIONED_WIRES and url.endswith("/v1"):
        message = f"remove `/v1` from `base_url`: Toolspeak adds the paths of {upstream.wire}"
        yield ConfigProblem(message, path)


# Models and aliases.


def _check_model(config: Config, name: str, path: str) -> Iterator[ConfigProblem]:
    model = config.models[name]
    if model.upstream and model.upstream not in config.upstreams:
        message = _unknown_upstream(config, "upstream", model.upstream)
        yield ConfigProblem(message, join_path(path, "upstream"))
    if model.dialect not in (None, AUTO, *DIALECTS):
        advice = suggest_names(
            model.dialect or "", DIALECTS, "`toolspeak dialects` lists the known ones"
        )
        message = f"`dialect` names {model.dialect!r}, which is not a known dialect{advice}"
        yield ConfigProblem(message, join_path(path, "dialect"))
    if "*" in model.model and "*" not in name:
        message = f"`model` contains `*`, but the name {name!r} does not; add a `*` to the name"
        yield ConfigProblem(message, path)
    yield from _check_pattern(name, path)


def _check_alias(config: Config, name: str, path: str) -> Iterator[ConfigProblem]:
    target = config.aliases[name]
    if name in config.models:
        yield ConfigProblem(f"{name!r} is both an alias and a model; remove one of them", path)
    elif not _is_known_model(config, target):
        yield ConfigProblem(_unknown_model(config, f"the alias `{name}`", target), path)
    yield from _check_pattern(name, path)


def _check_pattern(name: str, path: str) -> Iterator[ConfigProblem]:
    if not name.strip():
        yield ConfigProblem("the name of a model must not be empty", path)
    elif name.count("*") > 1:
        yield ConfigProblem("a wildcard may contain only one `*`", path)


def _is_known_model(config: Config, name: str) -> bool:
    """Return True for models, aliases, and `upstream/model` or `provider/model`."""
    upstream, slash, _ = name.partition("/")
    has_upstream = slash and (upstream in config.upstreams or upstream in PROVIDERS)
    return bool(has_upstream) or best_match(config, name) is not None


def _unknown_model(config: Config, subject: str, name: str) -> str:
    otherwise = "write `upstream/model` for a model of an upstream"
    advice = suggest_names(name, (*config.models, *config.aliases), otherwise)
    return f"{subject} refers to the model {name!r}, which is not configured{advice}"


def _check_alias_cycles(config: Config) -> Iterator[ConfigProblem]:
    """Report each cycle once, at its first alias."""
    targets: dict[str, str] = {}
    for name, target in config.aliases.items():
        match = best_match(config, target)
        if match and name not in config.models and match.pattern in config.aliases:
            targets[name] = match.pattern
    reported: set[str] = set()
    for name in targets:
        cycle = [name]
        while (target := targets.get(cycle[-1])) and target not in cycle:
            cycle.append(target)
        if target == name and name not in reported:
            reported.update(cycle)
            message = (
                f"these aliases form a cycle: {' -> '.join((*cycle, name))}; change one of them"
            )
            yield ConfigProblem(message, join_path("$.aliases", name))
