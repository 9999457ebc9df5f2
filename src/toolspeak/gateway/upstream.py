"""The only place that talks to upstreams: one pool of connections, and what may go wrong with them.

Whatever goes wrong is a `Failure`. Nothing is sent twice once a byte of the reply has come.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from math import ceil, isfinite
from time import perf_counter, time
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from msgspec import structs

from .. import __version__
from ..errors import ToolspeakError, WireError
from ..once import once_each
from ..types import Failure
from ..wires import wire_of
from ..wires.framing import decode_json
from .catalog import Endpoint, Server
from .connection import Connection, Disconnected, HttpProblem
from .flow import A_PIECE, UNCOUNTED, Flow
from .pool import IN_PATHS, CannotConnect, Pool, address_of, basic
from .settings import HARMLESS, hidden, hidden_address
from .ticker import Ticker

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
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_TOO_LONG = (
    "(Shorten the conversation, offer fewer tools, or choose a model with a larger context.)"
)
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
    """A reply whose head has come. It is let go of at the end of `with`."""

    def __init__(
        self, connection: Connection, endpoint: Endpoint, let_go: Callable[[Connection], None]
    ) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._let_go = let_go
        self._is_over = False
        self._said: list[float | bytes] | None = None
        """Where what comes is kept, if somebody may want to look at it."""
        self._flows: tuple[Flow, ...] = ()
        self._size = 0
        """Bytes that have come."""
        self._due = _MOST_BODY
        """After so many it has to be looked whether those were too many."""
        self._came = perf_counter()
        """When the last piece did."""
        self._expect(endpoint.settings.first_byte_timeout, self._came)
        self.status = connection.status
        self.headers = connection.headers
        kind = connection.headers.get("content-type", "application/octet-stream")
        self.content_type = kind.partition(";")[0].strip().lower()
        self.is_page = self.content_type in _PAGES
        """Whether it is made for people to look at."""
        self.flows = not self.is_page and self.content_type != "application/json"
        """Whether it is a stream, and no value or page that is only read whole."""

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *problem: object) -> None:
        self._release()

    def _release(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._let_go(self._connection)

    def _expect(self, seconds: float, now: float) -> None:
        """From now on, something that makes sense has to come within that time."""
        self._patience = seconds
        self._deadline = now + seconds
        # What has come by now made sense, or is of no matter.
        self._sense = self._size

    def heard(self, *, is_complete: bool) -> None:
        """What came so far makes sense. Comments and white space do not."""
        patience = _AFTER_THE_END if is_complete else self._endpoint.settings.idle_timeout
        self._expect(patience, self._came)

    async def more(self) -> bytes:
        """The next piece of the body, b"" at its end."""
        if self._is_over:
            return b""
        try:
            data = await self._connection.read(self._deadline)
        except TimeoutError:
            raise _failed(self._endpoint, f"said nothing for {self._patience:g} s", 504) from None
        except HttpProblem as problem:
            raise _failed(self._endpoint, str(problem)) from None
        self._came = now = perf_counter()
        if not data:
            # Others need not wait until the client has taken it all.
            self._release()
            return data
        said = self._said
        if said is not None:
            said += (now, data)
            self._due -= A_PIECE
        self._size += len(data)
        if self._size > self._due:
            self._weigh()
        return data

    def keep(self, heard: Flow, sent: Flow) -> None:
        """Keep what comes there. It is seen to now and then whether there is still room for it, and
        for what is sent to the client in turn."""
        self._said = heard.said
        self._flows = heard, sent
        self._due = self._size + UNCOUNTED

    def _weigh(self) -> None:
        for flow in self._flows:
            flow.count()
        if self._size - self._sense > _MOST_BODY:
            raise _failed(self._endpoint, f"sent more than {_MOST_BODY} bytes that are no reply")
        self._due = self._size + UNCOUNTED if self._flows else self._sense + _MOST_BODY

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
            place = hidden_address(self.headers.get("location", ""))
            what = f"sends us on to {place!r}; set its base_url to where it is"
            failure = _failed(self._endpoint, what).failure
        elif self.is_page:
            failure = structs.replace(self.page().failure, status=status)
        else:
            failure = wire_of(self._endpoint.wire).decode_failure(status, _read(said))
            if failure.kind == "context_length":
                failure = structs.replace(failure, message=f"{failure.message} {_TOO_LONG}")
        asked = _retry_after(self.headers)
        headers = {} if asked is None else {"retry-after": str(ceil(asked))}
        return self.failed(failure, headers)

    def failed(self, failure: Failure, headers: Mapping[str, str] | None = None) -> UpstreamFailed:
        """What to raise for a failure that the upstream tells."""
        return UpstreamFailed(self.discreet(failure), headers)

    def discreet(self, failure: Failure) -> Failure:
        """A failure without what nobody but the upstream may know, should it repeat that."""
        return _discreet(failure, self._endpoint)

    def page(self) -> UpstreamFailed:
        """What to raise for a web page."""
        what = "sent a web page in place of a reply; is its base_url right?"
        return _failed(self._endpoint, what)

    def unreadable(self, problem: Exception) -> UpstreamFailed:
        """What to raise for a reply that cannot be read."""
        return _failed(self._endpoint, f"sent a reply that cannot be read: {problem}")

    async def _beginning(self) -> bytes:
        """As much of the body as there is to an error."""
        self._expect(_PATIENCE_WITH_ERRORS, perf_counter())
        parts: list[bytes] = []
        try:
            while self._size - self._sense < _MOST_OF_AN_ERROR and (data := await self.more()):
                parts.append(data)
        except UpstreamFailed:
            pass
        return b"".join(parts)


class Upstreams:
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
        client: Mapping[str, str] | None = None,
        on_retry: Callable[[], None] = lambda: None,
        is_final: Callable[[Failure], bool] = lambda _: False,
        more: Mapping[str, str] | None = None,
    ) -> Response:
        """Ask an upstream. `client` are the headers of the client, if it speaks the same API;
        after a failure that `is_final` it is not asked again. `more` are further headers."""
        data = _request(endpoint, path, body, client or {}, more)
        slot = self._slot(endpoint)
        if slot:
            await slot.acquire()
        try:
            connection = await self._answered(endpoint, data, on_retry, is_final)
        except BaseException:
            if slot:
                slot.release()
            raise
        return Response(connection, endpoint, partial(self._let_go, slot))

    def _let_go(self, slot: asyncio.Semaphore | None, connection: Connection) -> None:
        if slot:
            slot.release()
        self._pool.release(connection)

    async def ask(self, endpoint: Endpoint, path: str, data: bytes | None = None) -> Response:
        """Ask something else than a chat: GET, or POST with data."""
        asking = _request(endpoint, path, data, {})
        connection = await self._once(endpoint, asking, lambda: None)
        return Response(connection, endpoint, self._pool.release)

    def _slot(self, endpoint: Endpoint) -> asyncio.Semaphore | None:
        """What limits how many requests are under way."""
        most = endpoint.settings.concurrency
        if not most:
            return None
        return self._slots.setdefault(f"{endpoint.name} {most}", asyncio.Semaphore(most))

    async def _answered(
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
                connection = await self._once(endpoint, data, on_retry)
            except UpstreamFailed as problem:
                if not left or problem.failure.kind == "timeout":
                    raise
            else:
                if not left or connection.status not in _AGAIN:
                    return connection
                asked = _retry_after(connection.headers)
                if (asked or 0) > _LONGEST_WAIT:
                    return connection
                with Response(connection, endpoint, self._pool.release) as response:
                    problem = await response.problem()
                if is_final(problem.failure):
                    raise problem
            spread = wait * (1 + random.random())  # noqa: S311 - it only spreads the load
            left -= 1
            wait *= 2
            on_retry()
            await asyncio.sleep(min(spread if asked is None else asked, _LONGEST_WAIT))

    async def _once(
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
            raise _failed(endpoint, str(problem), status) from None
        except HttpProblem as problem:
            raise _failed(endpoint, str(problem)) from None
        except TimeoutError:
            limit = f"{settings.first_byte_timeout:g} s"
            raise _failed(endpoint, f"has not begun to answer in {limit}", 504) from None


def _request(
    endpoint: Endpoint,
    path: str,
    body: bytes | None,
    client: Mapping[str, str],
    more: Mapping[str, str] | None = None,
) -> bytes:
    """The bytes of a request."""
    heard = _SAME_WIRE_HEADERS.get(endpoint.wire, ())
    told = {name: client[name] for name in heard if name in client} if client else client
    head = _head(endpoint, told, more or {}) if told or more else _usual_head(endpoint)
    target = _target(address_of(endpoint.base_url).path, path)
    if body is None:
        return f"GET {target} HTTP/1.1\r\n{head}\r\n".encode()
    return f"POST {target} HTTP/1.1\r\n{head}content-length: {len(body)}\r\n\r\n".encode() + body


@lru_cache(maxsize=512)
def _target(base: str, path: str) -> str:
    return base + quote(path, safe=f"{IN_PATHS}?")


@once_each
def _usual_head(endpoint: Endpoint) -> str:
    return _head(endpoint, {}, {})


def _head(endpoint: Endpoint, client: Mapping[str, str], more: Mapping[str, str]) -> str:
    """The headers that an upstream is sent, but for the length of the body."""
    try:
        address = address_of(endpoint.base_url)
    except CannotConnect as problem:
        raise _failed(endpoint, str(problem)) from None
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",
        "user-agent": f"toolspeak/{__version__}",
    }
    if endpoint.wire == "anthropic":
        headers["anthropic-version"] = "2023-06-01"
    headers |= client
    headers |= wire_of(endpoint.wire).authorization(endpoint.key)
    headers |= {name.lower(): value for name, value in endpoint.headers.items()}
    headers |= more
    headers.pop("content-length", None)
    if any(map(_CONTROL.search, headers.values())):
        raise _failed(endpoint, "cannot be asked: there is a line break in one of its headers")
    own = "" if "authorization" in headers else address.authorization
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{address.head}{own}{lines}"


def _read(said: bytes) -> Any:
    """What an error says: a value, or words."""
    try:
        return decode_json(said)
    except WireError:
        return said.decode("utf-8", "replace")[:_SHOWN]


def _failed(endpoint: Endpoint, what: str, status: int = 502) -> UpstreamFailed:
    where = hidden_address(endpoint.base_url)
    kind = "timeout" if status == 504 else "upstream"
    failure = Failure(kind, f"the upstream {endpoint.name} ({where}) {what}", status)
    return UpstreamFailed(_discreet(failure, endpoint))


def _discreet(failure: Failure, endpoint: Endpoint) -> Failure:
    secrets = sorted(secrets_at(endpoint), key=len, reverse=True)
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


def secrets_at(server: Server) -> Iterator[str]:
    """What nobody but an upstream may know."""
    address = urlsplit(server.base_url)
    given = [server.key]
    if address.password:
        given += [unquote(address.password), basic(address).removeprefix("Basic ")]
    for name, value in server.headers.items():
        if name.lower() not in HARMLESS:
            # `Bearer` and the like are no secret, what stands behind them is.
            given += [value, value.rpartition(" ")[2]]
    yield from {secret for secret in given if len(secret) >= _SHORTEST_SECRET}


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """How long an upstream asks to wait."""
    if milliseconds := headers.get("retry-after-ms"):
        headers = {"retry-after": str(_number(milliseconds, 0.0) / 1000)}
    given = headers.get("retry-after", "")
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
