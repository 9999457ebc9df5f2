"""Errors of upstreams, with the secrets masked that only the upstream may know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec import structs

from ..config.settings import PUBLIC_HEADERS, mask_secret, mask_url
from ..errors import UpstreamError
from ..types import Failure
from .catalog import Endpoint, UpstreamServer
from .http_pool import basic

_MIN_SECRET_LENGTH = 4
_TEXT_FIELDS = ("message", "code", "param", "details")


def upstream_error(endpoint: Endpoint, problem: str, status: int = 502) -> UpstreamError:
    """Return an error that begins with the upstream's name; `problem` is the predicate."""
    url = mask_url(endpoint.base_url)
    kind = "timeout" if status == 504 else "upstream"
    failure = Failure(kind, f"the upstream {endpoint.name} ({url}) {problem}", status)
    return UpstreamError(mask_failure(failure, endpoint))


def mask_failure(failure: Failure, endpoint: Endpoint) -> Failure:
    """Mask the upstream's secrets, in case it repeats them in its error."""
    secrets = sorted(endpoint_secrets(endpoint), key=len, reverse=True)
    if not secrets:
        return failure
    masked = {name: _mask_secrets(secrets, getattr(failure, name)) for name in _TEXT_FIELDS}
    return structs.replace(failure, **masked)


def _mask_secrets(secrets: list[str], value: Any) -> Any:
    match value:
        case str():
            for secret in secrets:
                value = value.replace(secret, mask_secret(secret))
            return value
        case dict():
            return {
                _mask_secrets(secrets, key): _mask_secrets(secrets, item)
                for key, item in value.items()
            }
        case list():
            return [_mask_secrets(secrets, item) for item in value]
        case _:
            return value


def endpoint_secrets(server: UpstreamServer) -> Iterator[str]:
    """Yield the key, the password and the secret headers of an upstream."""
    url = urlsplit(server.base_url)
    secrets = [server.key]
    if url.password:
        secrets += [unquote(url.password), basic(url).removeprefix("Basic ")]
    for name, value in server.headers.items():
        if name.lower() not in PUBLIC_HEADERS:
            # In `Bearer KEY`, the key alone is a secret too.
            secrets += [value, value.rpartition(" ")[2]]
    yield from {secret for secret in secrets if len(secret) >= _MIN_SECRET_LENGTH}
