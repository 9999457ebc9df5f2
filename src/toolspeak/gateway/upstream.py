"""The only place that talks to upstreams: one pool of connections, and what may go wrong with them.

Whatever goes wrong is a `Failure`. Nothing is sent twice once a byte of the reply has come.
"""

from __future__ import annotations

import asyncio
import random
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from functools import lru_cache
from math import ceil, isfinite
from time import time
from typing import Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
from msgspec import structs
from yarl import URL

from .. import __version__
from ..errors import ToolspeakError, WireError
from ..types import Failure
from ..wires import Outgoing, wire_of
from ..wires.framing import decode_json, encode_json
from .catalog import Endpoint
from .guard import is_loopback
from .settings import HARMLESS, hidden, hidden_address

_AGAIN = frozenset({408, 429, 500, 502, 503, 504, 520, 522, 524, 529})
"""Answers after which it is worth to ask again."""
_LONGEST_WAIT = 20.0
_FIRST_WAIT = 0.25
_MOST_BODY = 64 * 2**20
"""How long a whole reply may be, and what comes in a stream and says nothing."""
_MOST_OF_AN_ERROR = 2**16
_PATIENCE_WITH_ERRORS = 5.0
_AFTER_THE_END = 2.0
"""How many seconds a reply that is complete may take to end."""
_SHORTEST_SECRET = 4
_SHOWN = 1000
_PAGES = ("text/html", "application/xhtml+xml")
_TEXTS = ("message", "code", "param", "details")
_SAME_WIRE_HEADERS = {
    "anthropic": ("anthropic-version", "anthropic-beta"),
    "openai_chat": ("openai-beta",),
    "openai_responses": ("openai-beta",),
}
"""What a client says in headers that an upstream of the same API has to hear."""


class UpstreamFailed(ToolspeakError):
    """There is no reply, or no more of it."""

    def __init__(self, failure: Failure, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.headers = headers or {}
        """What the client has to be told beside it."""


class Response:
    """A reply whose headers have come."""

    def __init__(self, response: aiohttp.ClientResponse, endpoint: Endpoint) -> None:
        self._response = response
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._expect(endpoint.settings.first_byte_timeout)
        self.status = response.status
        self.content_type = response.content_type

    def _expect(self, seconds: float) -> None:
        """From now on, something that makes sense has to come within that time."""
        self._patience = seconds
        self._deadline = self._loop.time() + seconds
        self._size = 0

    def heard(self, *, is_complete: bool) -> None:
        """What came so far makes sense. Comments and white space do not."""
        self._expect(_AFTER_THE_END if is_complete else self._endpoint.settings.idle_timeout)

    async def more(self) -> bytes:
        """The next piece of the body, b"" at its end."""
        try:
            async with asyncio.timeout_at(self._deadline):
                data = await self._response.content.readany()
        except TimeoutError:
            raise _failed(self._endpoint, f"said nothing for {self._patience:g} s", 504) from None
        except _BROKEN as problem:
            raise _broken(self._endpoint, problem) from None
        self._size += len(data)
        if self._size > _MOST_BODY:
            raise _failed(self._endpoint, f"sent more than {_MOST_BODY} bytes that are no reply")
        return data

    async def body(self) -> bytes:
        """All of the body, which has to come to an end."""
        parts: list[bytes] = []
        while data := await self.more():
            parts.append(data)
        return b"".join(parts)

    async def problem(self) -> UpstreamFailed:
        """What an answer says that is no reply."""
        said = await self._beginning()
        status = self.status if 400 <= self.status < 600 else 502
        if self.status < 400:
            place = hidden_address(self._response.headers.get("Location", ""))
            what = f"sends us on to {place!r}; set its base_url to where it is"
            failure = _failed(self._endpoint, what).failure
        elif self.is_page:
            failure = structs.replace(self.page().failure, status=status)
        else:
            failure = wire_of(self._endpoint.wire).decode_failure(status, _read(said))
        asked = _retry_after(self._response.headers)
        headers = {} if asked is None else {"retry-after": str(ceil(asked))}
        return self.failed(failure, headers)

    def failed(self, failure: Failure, headers: Mapping[str, str] | None = None) -> UpstreamFailed:
        """What to raise for a failure that the upstream tells."""
        return UpstreamFailed(self.discreet(failure), headers)

    def discreet(self, failure: Failure) -> Failure:
        """A failure without what nobody but the upstream may know, should it repeat that."""
        return _discreet(failure, self._endpoint)

    @property
    def is_page(self) -> bool:
        """Whether it is made for people to look at."""
        return self.content_type in _PAGES

    def page(self) -> UpstreamFailed:
        """What to raise for a web page."""
        what = "sent a web page in place of a reply; is its base_url right?"
        return _failed(self._endpoint, what)

    def unreadable(self, problem: Exception) -> UpstreamFailed:
        """What to raise for a reply that cannot be read."""
        return _failed(self._endpoint, f"sent a reply that cannot be read: {problem}")

    async def _beginning(self) -> bytes:
        """As much of the body as there is to an error."""
        self._expect(_PATIENCE_WITH_ERRORS)
        parts: list[bytes] = []
        try:
            while self._size < _MOST_OF_AN_ERROR and (data := await self.more()):
                parts.append(data)
        except UpstreamFailed:
            pass
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
        self,
        endpoint: Endpoint,
        outgoing: Outgoing,
        client: Mapping[str, str] | None = None,
        on_retry: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[Response, None]:
        """Ask an upstream. `client` are the headers of the client, if it speaks the same API."""
        headers = _headers(endpoint, client or {})
        data = encode_json(outgoing.body)
        url = endpoint.base_url + outgoing.path
        async with self._slot(endpoint):
            response = await self._answered(endpoint, url, data, headers, on_retry)
            try:
                yield Response(response, endpoint)
            finally:
                _let_go(response)

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
            _let_go(response)

    def _slot(self, endpoint: Endpoint) -> asyncio.Semaphore | _Free:
        most = endpoint.settings.concurrency
        if not most:
            return _FREE
        return self._slots.setdefault(f"{endpoint.name} {most}", asyncio.Semaphore(most))

    async def _answered(
        self,
        endpoint: Endpoint,
        url: str,
        data: bytes,
        headers: dict[str, str],
        on_retry: Callable[[], None],
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
                asked = _retry_after(response.headers)
                is_worth_it = response.status in _AGAIN and (asked or 0) <= _LONGEST_WAIT
                if not left or not is_worth_it:
                    return response
                response.close()
                pause = pause if asked is None else asked
            left -= 1
            wait *= 2
            on_retry()
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
                    proxy=_proxy(endpoint.base_url),
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


def _read(said: bytes) -> Any:
    """What an error says: a value, or words."""
    try:
        return decode_json(said)
    except WireError:
        return said.decode("utf-8", "replace")[:_SHOWN]


def _let_go(response: aiohttp.ClientResponse) -> None:
    """Only a reply that was read to its end leaves a connection that can be used again."""
    response.release() if response.content.at_eof() else response.close()


@lru_cache(maxsize=256)
def _proxy(base_url: str) -> str | None:
    """The proxy that the environment names for an address. The client library would look it up,
    and read ~/.netrc in a thread, with every request."""
    address = URL(base_url)
    host = address.host or ""
    if is_loopback(host) or proxy_bypass(host):
        return None
    return getproxies().get(address.scheme)


def _broken(endpoint: Endpoint, problem: Exception) -> UpstreamFailed:
    """The failure that a problem with a connection is."""
    match problem:
        case aiohttp.ConnectionTimeoutError():
            limit = endpoint.settings.connect_timeout
            return _failed(endpoint, f"cannot be reached in {limit:g} s", 504)
        case aiohttp.ClientConnectorError():
            return _failed(endpoint, f"cannot be reached: {_words(problem)}")
        case aiohttp.ServerDisconnectedError():
            return _failed(endpoint, "closed the connection before it answered")
        case aiohttp.ClientPayloadError():
            return _failed(endpoint, "broke off in the middle of its reply")
        case _:
            return _failed(endpoint, f"broke off: {_words(problem)}")


def _failed(endpoint: Endpoint, what: str, status: int = 502) -> UpstreamFailed:
    where = hidden_address(endpoint.base_url)
    kind = "timeout" if status == 504 else "upstream"
    failure = Failure(kind, f"the upstream {endpoint.name} ({where}) {what}", status)
    return UpstreamFailed(_discreet(failure, endpoint))


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


def _discreet(failure: Failure, endpoint: Endpoint) -> Failure:
    secrets = sorted(_secrets(endpoint), key=len, reverse=True)
    if not secrets:
        return failure
    texts = {name: _without(secrets, getattr(failure, name)) for name in _TEXTS}
    return structs.replace(failure, **texts)


def _without(secrets: list[str], value: Any) -> Any:
    match value:
        case str():
            for secret in secrets:
                value = value.replace(secret, hidden(secret))
            return value
        case dict():
            return {_without(secrets, key): _without(secrets, item) for key, item in value.items()}
        case list():
            return [_without(secrets, item) for item in value]
        case _:
            return value


def _secrets(endpoint: Endpoint) -> Iterator[str]:
    address = URL(endpoint.base_url)
    given = [endpoint.key]
    if address.password:
        both = f"{address.user or ''}:{address.password}"
        given += [address.password, b64encode(both.encode()).decode()]
    for name, value in endpoint.headers.items():
        if name.lower() not in HARMLESS:
            # `Bearer` and the like are no secret, what stands behind them is.
            given += [value, value.rpartition(" ")[2]]
    yield from {secret for secret in given if len(secret) >= _SHORTEST_SECRET}


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """How long an upstream asks to wait."""
    if milliseconds := headers.get("retry-after-ms"):
        headers = {"Retry-After": str(_number(milliseconds, 0.0) / 1000)}
    given = headers.get("Retry-After", "")
    if not given:
        return None
    try:
        seconds = float(given)
        return max(0.0, seconds) if isfinite(seconds) else None
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(given).timestamp() - time())
    except (ValueError, TypeError, OverflowError):
        return None


def _number(text: str, otherwise: float) -> float:
    try:
        return float(text)
    except ValueError:
        return otherwise
