"""What goes wrong with an upstream, told without what only that upstream may know."""

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

_SHORTEST_SECRET = 4
_TEXTS = ("message", "code", "param", "details")


def upstream_error(endpoint: Endpoint, what: str, status: int = 502) -> UpstreamError:
    """What to raise if an upstream does that."""
    where = mask_url(endpoint.base_url)
    kind = "timeout" if status == 504 else "upstream"
    failure = Failure(kind, f"the upstream {endpoint.name} ({where}) {what}", status)
    return UpstreamError(mask_failure(failure, endpoint))


def mask_failure(failure: Failure, endpoint: Endpoint) -> Failure:
    """A failure without what nobody but the upstream may know, should it repeat that."""
    secrets = sorted(endpoint_secrets(endpoint), key=len, reverse=True)
    if not secrets:
        return failure
    texts = {name: _mask_secrets(secrets, getattr(failure, name)) for name in _TEXTS}
    return structs.replace(failure, **texts)


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
    """What nobody but an upstream may know."""
    address = urlsplit(server.base_url)
    given = [server.key]
    if address.password:
        given += [unquote(address.password), basic(address).removeprefix("Basic ")]
    for name, value in server.headers.items():
        if name.lower() not in PUBLIC_HEADERS:
            # `Bearer` and the like are no secret, what stands behind them is.
            given += [value, value.rpartition(" ")[2]]
    yield from {secret for secret in given if len(secret) >= _SHORTEST_SECRET}
