"""The only place that talks to upstreams: one pool of connections, and what may go wrong with them.

Whatever goes wrong is a `Failure`. Nothing is sent twice once a byte of the reply has come.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from functools import lru_cache
from time import time
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from .. import __version__
from ..errors import ToolspeakError
from ..types import Failure
from ..wires import Outgoing, wire_of
from ..wires.framing import encode_json
from .catalog import Endpoint
from .guard import is_loopback
from .settings import hidden_address

_AGAIN = frozenset({408, 429, 500, 502, 503, 504, 520, 522, 524, 529})
"""Answers after which it is worth to ask again."""
_LONGEST_WAIT = 20.0
_FIRST_WAIT = 0.25
_MOST_BODY = 64 * 2**20
_SAME_WIRE_HEADERS = {
    "anthropic": ("anthropic-version", "anthropic-beta"),
    "openai_chat": ("openai-beta",),
    "openai_responses": ("openai-beta",),
}
"""What a client says in headers that an upstream of the same API has to hear."""


class UpstreamFailed(ToolspeakError):
    """There is no reply, or no more of it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Response:
    """A reply whose headers have come."""

    def __init__(self, response: aiohttp.ClientResponse, endpoint: Endpoint) -> None:
        self._response = response
        self._endpoint = endpoint
        self._silent = 0.0
        self.status = response.status
        self.content_type = response.content_type

    async def more(self, patience: float) -> bytes | None:
        """The next piece of the body, b"" at its end; None if nothing has come for so long."""
        idle = self._endpoint.settings.idle_timeout
        patience = min(patience, idle - self._silent)
        try:
            async with asyncio.timeout(patience):
                data = await self._response.content.readany()
        except TimeoutError:
            self._silent += patience
            if self._silent >= idle:
                raise _failed(self._endpoint, f"has been silent for {idle:g} s", 504) from None
            return None
        except _BROKEN as problem:
            raise _broken(self._endpoint, problem) from None
        self._silent = 0.0
        return data

    async def body(self) -> bytes:
        """All of the body, which has to come to an end."""
        parts: list[bytes] = []
        size = 0
        limit = self._endpoint.settings.first_byte_timeout
        try:
            async with asyncio.timeout(limit):
                while data := await self.more(limit):
                    parts.append(data)
                    size += len(data)
                    if size > _MOST_BODY:
                        raise _failed(self._endpoint, f"sent more than {_MOST_BODY} bytes")
        except TimeoutError:
            raise _failed(self._endpoint, "did not come to the end of its reply", 504) from None
        return b"".join(parts)


class Upstreams:
    """Connections to all upstreams."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._slots: dict[str, asyncio.Semaphore] = {}

    async def close(self) -> None:
        """Close every connection."""
        session, self._session = self._session, None
        if session:
            await session.close()

    @asynccontextmanager
    async def send(
        self, endpoint: Endpoint, outgoing: Outgoing, client: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Response, None]:
        """Ask an upstream. `client` are the headers of the client, if it speaks the same API."""
        headers = _headers(endpoint, client or {})
        data = encode_json(outgoing.body)
        url = endpoint.base_url + outgoing.path
        async with self._slot(endpoint):
            response = await self._answered(endpoint, url, data, headers)
            try:
                yield Response(response, endpoint)
            finally:
                # Only a reply that was read to its end leaves a connection that can be used again.
                response.close() if not response.content.at_eof() else response.release()

    @asynccontextmanager
    async def ask(
        self, endpoint: Endpoint, path: str, data: bytes | None = None
    ) -> AsyncGenerator[Response, None]:
        """Ask something else than a chat: GET, or POST with data."""
        url = endpoint.base_url + path
        method = "GET" if data is None else "POST"
        response = await self._once(endpoint, url, data, _headers(endpoint, {}), method)
        try:
            yield Response(response, endpoint)
        finally:
            response.close() if not response.content.at_eof() else response.release()

    def _slot(self, endpoint: Endpoint) -> asyncio.Semaphore | _Free:
        most = endpoint.settings.concurrency
        if not most:
            return _FREE
        return self._slots.setdefault(f"{endpoint.name} {most}", asyncio.Semaphore(most))

    async def _answered(
        self, endpoint: Endpoint, url: str, data: bytes, headers: dict[str, str]
    ) -> aiohttp.ClientResponse:
        """The first reply that is none of those that are worth another try."""
        left = endpoint.settings.retries
        wait = _FIRST_WAIT
        while True:
            pause = wait * (1 + random.random())  # noqa: S311 - it only spreads the load
            try:
                response = await self._once(endpoint, url, data, headers)
            except UpstreamFailed as problem:
                if not left or problem.failure.kind == "timeout":
                    raise
            else:
                if response.status not in _AGAIN or not left:
                    return response
                asked = _retry_after(response.headers)
                response.close()
                if asked is not None and asked > _LONGEST_WAIT:
                    raise UpstreamFailed(_busy(endpoint, response.status, asked))
                pause = pause if asked is None else asked
            left -= 1
            wait *= 2
            await asyncio.sleep(min(pause, _LONGEST_WAIT))

    async def _once(
        self,
        endpoint: Endpoint,
        url: str,
        data: bytes | None,
        headers: dict[str, str],
        method: str = "POST",
    ) -> aiohttp.ClientResponse:
        settings = endpoint.settings
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=settings.connect_timeout)
        try:
            async with asyncio.timeout(settings.first_byte_timeout):
                return await self._pool().request(
                    method,
                    url,
                    data=data,
                    headers=headers,
                    timeout=timeout,
                    proxy=_proxy_for(endpoint.base_url),
                    allow_redirects=False,
                )
        except _BROKEN as problem:
            raise _broken(endpoint, problem) from None
        except TimeoutError:
            limit = f"{settings.first_byte_timeout:g} s"
            raise _failed(endpoint, f"has not begun to answer in {limit}", 504) from None

    def _pool(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("Accept", "Content-Type"),
            )
        return self._session


class _Free:
    """A slot that is always free."""

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *problem: object) -> None:
        return None


_FREE = _Free()


_BROKEN = (aiohttp.ClientError, ConnectionError, ValueError)
"""What may go wrong with a connection."""


def _broken(endpoint: Endpoint, problem: Exception) -> UpstreamFailed:
    """The failure that a problem with a connection is."""
    match problem:
        case aiohttp.ConnectionTimeoutError():
            limit = endpoint.settings.connect_timeout
            return _failed(endpoint, f"cannot be reached in {limit:g} s", 504)
        case aiohttp.ClientConnectorError():
            return _failed(endpoint, f"cannot be reached: {_words(problem)}")
        case _:
            return _failed(endpoint, f"broke off: {_words(problem)}")


def _failed(endpoint: Endpoint, what: str, status: int = 502) -> UpstreamFailed:
    where = hidden_address(endpoint.base_url)
    kind = "timeout" if status == 504 else "upstream"
    return UpstreamFailed(Failure(kind, f"the upstream {endpoint.name} ({where}) {what}", status))


def _busy(endpoint: Endpoint, status: int, seconds: float) -> Failure:
    message = f"the upstream {endpoint.name} answered {status} and asks to wait {seconds:g} s"
    return Failure("rate_limit" if status == 429 else "overloaded", message, status)


def _words(problem: BaseException) -> str:
    cause = getattr(problem, "os_error", None) or problem
    return str(cause) or type(cause).__name__


def _headers(endpoint: Endpoint, client: Mapping[str, str]) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Accept-Encoding": "identity",
        "User-Agent": f"toolspeak/{__version__}",
    }
    if endpoint.wire == "anthropic":
        headers["anthropic-version"] = "2023-06-01"
    for name in _SAME_WIRE_HEADERS.get(endpoint.wire, ()):
        if name in client:
            headers[name] = client[name]
    return {**headers, **wire_of(endpoint.wire).authorization(endpoint.key), **endpoint.headers}


@lru_cache(maxsize=256)
def _proxy_for(base_url: str) -> str | None:
    """The proxy that the environment names for an address; none for this machine. aiohttp would
    look that up with every request, in a thread."""
    address = urlsplit(base_url)
    host = address.hostname or ""
    if is_loopback(host) or proxy_bypass(host):
        return None
    return getproxies().get(address.scheme)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """How long an upstream asks to wait."""
    if milliseconds := headers.get("retry-after-ms"):
        headers = {"Retry-After": str(_number(milliseconds, 0.0) / 1000)}
    given = headers.get("Retry-After", "")
    if not given:
        return None
    try:
        return max(0.0, float(given))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(given).timestamp() - time())
    except (ValueError, TypeError):
        return None


def _number(text: str, otherwise: float) -> float:
    try:
        return float(text)
    except ValueError:
        return otherwise
