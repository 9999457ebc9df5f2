"""The only place that talks to upstreams, by one pool of connections: what they are sent, and how
often. What comes back is a `Response`.

Whatever goes wrong is a `Failure`. Nothing is sent twice once a byte of the reply has come.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from time import perf_counter
from urllib.parse import quote

from .. import __version__
from .._util import memoize_by_identity
from ..types import Failure
from ..wires import get_wire
from .catalog import Endpoint
from .errors import UpstreamError, upstream_error
from .http_connection import Connection, Disconnected, HttpProblem
from .http_pool import IN_PATHS, CannotConnect, Pool, address_of
from .response import UpstreamResponse, retry_after
from .timers import Ticker

_RETRYABLE_STATUSES = frozenset({408, 429, 500, 502, 503, 504, 520, 522, 524, 529})
"""Answers after which it is worth to ask again."""
_LONGEST_WAIT = 20.0
_FIRST_WAIT = 0.25
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SAME_WIRE_HEADERS = {
    "anthropic": ("anthropic-version", "anthropic-beta"),
    "openai_chat": ("openai-beta",),
    "openai_responses": ("openai-beta",),
}
"""What a client says in headers that an upstream of the same API has to hear."""


class UpstreamClient:
    """Connections to all upstreams."""

    def __init__(self, ticker: Ticker) -> None:
        self._pool = Pool(ticker)
        self._slots: dict[str, asyncio.Semaphore] = {}

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()

    async def send(
        self,
        endpoint: Endpoint,
        path: str,
        body: bytes,
        client_headers: Mapping[str, str] | None = None,
        on_retry: Callable[[], None] = lambda: None,
        is_final: Callable[[Failure], bool] = lambda _: False,
        extra_headers: Mapping[str, str] | None = None,
    ) -> UpstreamResponse:
        """Ask an upstream. `client` are the headers of the client, if it speaks the same API;
        after a failure that `is_final` it is not asked again. `more` are further headers."""
        data = _encode_request(endpoint, path, body, client_headers or {}, extra_headers)
        slot = self._concurrency_slot(endpoint)
        if slot:
            await slot.acquire()
        try:
            connection = await self._send_with_retries(endpoint, data, on_retry, is_final)
        except BaseException:
            if slot:
                slot.release()
            raise
        return UpstreamResponse(connection, endpoint, partial(self._release, slot))

    def _release(self, slot: asyncio.Semaphore | None, connection: Connection) -> None:
        if slot:
            slot.release()
        self._pool.release(connection)

    async def request(
        self, endpoint: Endpoint, path: str, data: bytes | None = None
    ) -> UpstreamResponse:
        """Ask something else than a chat: GET, or POST with data."""
        asking = _encode_request(endpoint, path, data, {})
        connection = await self._send_once(endpoint, asking, lambda: None)
        return UpstreamResponse(connection, endpoint, self._pool.release)

    def _concurrency_slot(self, endpoint: Endpoint) -> asyncio.Semaphore | None:
        """What limits how many requests are under way."""
        most = endpoint.settings.concurrency
        if not most:
            return None
        return self._slots.setdefault(f"{endpoint.name} {most}", asyncio.Semaphore(most))

    async def _send_with_retries(
        self,
        endpoint: Endpoint,
        data: bytes,
        on_retry: Callable[[], None],
        is_final: Callable[[Failure], bool],
    ) -> Connection:
        """The first reply that is none of those that are worth another try."""
        left = endpoint.settings.retries
        wait = _FIRST_WAIT
        while True:
            asked: float | None = None
            try:
                connection = await self._send_once(endpoint, data, on_retry)
            except UpstreamError as problem:
                if not left or problem.failure.kind == "timeout":
                    raise
            else:
                if not left or connection.status not in _RETRYABLE_STATUSES:
                    return connection
                asked = retry_after(connection.headers)
                if (asked or 0) > _LONGEST_WAIT:
                    return connection
                with UpstreamResponse(connection, endpoint, self._pool.release) as response:
                    problem = await response.read_error()
                if is_final(problem.failure):
                    raise problem
            spread = wait * (1 + random.random())  # noqa: S311 - it only spreads the load
            left -= 1
            wait *= 2
            on_retry()
            await asyncio.sleep(min(spread if asked is None else asked, _LONGEST_WAIT))

    async def _send_once(
        self, endpoint: Endpoint, data: bytes, on_retry: Callable[[], None]
    ) -> Connection:
        """A connection on which the head of a reply has come."""
        settings = endpoint.settings
        deadline = perf_counter() + settings.first_byte_timeout
        origin = address_of(endpoint.base_url).origin
        try:
            connection = self._pool.idle(origin)
            if connection:
                try:
                    await connection.answer(data, deadline)
                    return connection
                except Disconnected:
                    # It was kept for long, and may have been given up by the other side just now.
                    on_retry()
            connection = await self._pool.connect(origin, settings.connect_timeout)
            await connection.answer(data, deadline)
            return connection
        except CannotConnect as problem:
            status = 504 if problem.is_timeout else 502
            raise upstream_error(endpoint, str(problem), status) from None
        except HttpProblem as problem:
            raise upstream_error(endpoint, str(problem)) from None
        except TimeoutError:
            limit = f"{settings.first_byte_timeout:g} s"
            raise upstream_error(endpoint, f"has not begun to answer in {limit}", 504) from None


def _encode_request(
    endpoint: Endpoint,
    path: str,
    body: bytes | None,
    client: Mapping[str, str],
    more: Mapping[str, str] | None = None,
) -> bytes:
    """The bytes of a request."""
    heard = _SAME_WIRE_HEADERS.get(endpoint.wire, ())
    told = {name: client[name] for name in heard if name in client} if client else client
    head = _encode_head(endpoint, told, more or {}) if told or more else _default_head(endpoint)
    target = _request_target(address_of(endpoint.base_url).path, path)
    if body is None:
        return f"GET {target} HTTP/1.1\r\n{head}\r\n".encode()
    return f"POST {target} HTTP/1.1\r\n{head}content-length: {len(body)}\r\n\r\n".encode() + body


@lru_cache(maxsize=512)
def _request_target(base: str, path: str) -> str:
    return base + quote(path, safe=f"{IN_PATHS}?")


@memoize_by_identity
def _default_head(endpoint: Endpoint) -> str:
    return _encode_head(endpoint, {}, {})


def _encode_head(endpoint: Endpoint, client: Mapping[str, str], more: Mapping[str, str]) -> str:
    """The headers that an upstream is sent, but for the length of the body."""
    try:
        address = address_of(endpoint.base_url)
    except CannotConnect as problem:
        raise upstream_error(endpoint, str(problem)) from None
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",
        "user-agent": f"toolspeak/{__version__}",
    }
    if endpoint.wire == "anthropic":
        headers["anthropic-version"] = "2023-06-01"
    headers |= client
    headers |= get_wire(endpoint.wire).auth_headers(endpoint.key)
    headers |= {name.lower(): value for name, value in endpoint.headers.items()}
    headers |= more
    headers.pop("content-length", None)
    if any(map(_CONTROL.search, headers.values())):
        raise upstream_error(
            endpoint, "cannot be asked: there is a line break in one of its headers"
        )
    own = "" if "authorization" in headers else address.authorization
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{address.head}{own}{lines}"
