"""Sends requests to upstreams, with retries, over one pool of connections.

Every problem is an `UpstreamError`. A request is not sent again once a byte of the response has
been received.
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
_MAX_WAIT = 20.0
_FIRST_WAIT = 0.25
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_FORWARDED_HEADERS = {
    "anthropic": ("anthropic-version", "anthropic-beta"),
    "openai_chat": ("openai-beta",),
    "openai_responses": ("openai-beta",),
}
"""The client's headers that are forwarded to an upstream with the same API."""


class UpstreamClient:
    """Sends requests to all upstreams."""

    def __init__(self, ticker: Ticker) -> None:
        self._pool = Pool(ticker)
        self._slots: dict[str, asyncio.Semaphore] = {}

    def close(self) -> None:
        """Close all connections."""
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
        """Send a chat request and return the response once its head is there.

        `client_headers` are the client's, if it uses the same API. A failure that `is_final` is
        not retried.
        """
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

    async def request(
        self, endpoint: Endpoint, path: str, data: bytes | None = None
    ) -> UpstreamResponse:
        """Send a request other than a chat, once: POST with data, or else GET."""
        encoded = _encode_request(endpoint, path, data, {})
        connection = await self._send_once(endpoint, encoded, lambda: None)
        return UpstreamResponse(connection, endpoint, self._pool.release)

    def _release(self, slot: asyncio.Semaphore | None, connection: Connection) -> None:
        if slot:
            slot.release()
        self._pool.release(connection)

    def _concurrency_slot(self, endpoint: Endpoint) -> asyncio.Semaphore | None:
        limit = endpoint.settings.concurrency
        if not limit:
            return None
        return self._slots.setdefault(f"{endpoint.name} {limit}", asyncio.Semaphore(limit))

    async def _send_with_retries(
        self,
        endpoint: Endpoint,
        data: bytes,
        on_retry: Callable[[], None],
        is_final: Callable[[Failure], bool],
    ) -> Connection:
        """Return the first response that is not worth a retry, or the last one."""
        retries_left = endpoint.settings.retries
        wait = _FIRST_WAIT
        while True:
            requested_wait: float | None = None
            try:
                connection = await self._send_once(endpoint, data, on_retry)
            except UpstreamError as problem:
                if not retries_left or problem.failure.kind == "timeout":
                    raise
            else:
                if not retries_left or connection.status not in _RETRYABLE_STATUSES:
                    return connection
                requested_wait = retry_after(connection.headers)
                if (requested_wait or 0) > _MAX_WAIT:
                    return connection
                with UpstreamResponse(connection, endpoint, self._pool.release) as response:
                    problem = await response.read_error()
                if is_final(problem.failure):
                    raise problem
            jittered_wait = wait * (1 + random.random())  # noqa: S311 - it only spreads the load
            retries_left -= 1
            wait *= 2
            on_retry()
            await asyncio.sleep(
                min(jittered_wait if requested_wait is None else requested_wait, _MAX_WAIT)
            )

    async def _send_once(
        self, endpoint: Endpoint, data: bytes, on_retry: Callable[[], None]
    ) -> Connection:
        """Return a connection on which the head of the response has been received."""
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
                    # The upstream may have closed the idle connection just now.
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
            message = f"did not start to respond within {settings.first_byte_timeout:g} s"
            raise upstream_error(endpoint, message, 504) from None


def _encode_request(
    endpoint: Endpoint,
    path: str,
    body: bytes | None,
    client_headers: Mapping[str, str],
    extra_headers: Mapping[str, str] | None = None,
) -> bytes:
    """Return the bytes of an HTTP request."""
    forwarded = client_headers
    if client_headers:
        names = _FORWARDED_HEADERS.get(endpoint.wire, ())
        forwarded = {name: client_headers[name] for name in names if name in client_headers}
    if forwarded or extra_headers:
        head = _encode_head(endpoint, forwarded, extra_headers or {})
    else:
        head = _default_head(endpoint)
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


def _encode_head(
    endpoint: Endpoint, forwarded: Mapping[str, str], extra_headers: Mapping[str, str]
) -> str:
    """Return all header lines except the body's length."""
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
    headers |= forwarded
    headers |= get_wire(endpoint.wire).auth_headers(endpoint.key)
    headers |= {name.lower(): value for name, value in endpoint.headers.items()}
    headers |= extra_headers
    headers.pop("content-length", None)
    if any(map(_CONTROL_CHARACTER.search, headers.values())):
        raise upstream_error(endpoint, "cannot be reached: one of its headers has a line break")
    authorization = "" if "authorization" in headers else address.authorization
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{address.head}{authorization}{lines}"
