"""One HTTP request and its answer. Whoever has the connection (`callers.py`) makes both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from itertools import chain
from time import perf_counter, time
from typing import Any, Protocol
from urllib.parse import unquote

from ..calls.json_values import is_nested_deeper
from ..config.settings import Limits
from ..errors import ToolspeakError, WireError
from ..types import Failure
from ..upstream.record import LARGE_CHUNK, RequestCapture, StreamCapture
from ..upstream.timers import Alarm, Ticker
from ..wires.framing import decode_json

PATIENCE = 120.0
"""How many seconds a client may take to send a request, or to take anything of its reply."""
_USUAL_NAME, _MOST_NAMES = 64, 512
"""Bytes of a header's name that is worth to be remembered, and how many of those are."""
MOST_UNREAD = 2**16
"""Bytes of a body that are taken before somebody asks for them."""
_ONCE = frozenset({"host", "origin", "content-type", "content-length"})
"""Headers that decide what may come in: a second one would hide the first."""
_WITHOUT_BODY = frozenset({204, 304})
_STATUS = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n" for one in HTTPStatus}


class Refused(ToolspeakError):
    """A request that the gateway does not serve; the failure says why."""

    def __init__(self, failure: Failure, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.headers = headers or {}


class Gone(ToolspeakError):
    """The client has closed the connection."""


class Line(Protocol):
    """The connection that a request came by, as far as it and its answer need it."""

    ticker: Ticker
    is_paused: bool
    """Whether the client takes less than it is sent."""

    def go_on(self, incoming: Incoming) -> None:
        """Somebody wants the body of a request: read on."""
        ...

    def write(self, data: bytes) -> None:
        """Send that, if there is still somebody to send it to."""
        ...

    async def drained(self) -> None:
        """Wait until the client takes more, or is gone."""
        ...

    def answered(self, sender: Sender) -> None:
        """All of an answer was written."""
        ...


class _Names(dict[bytes, str]):
    """The names of headers as they are looked up; they are the same few again and again."""

    def __missing__(self, raw: bytes) -> str:
        name = raw.decode("latin-1").lower()
        if len(raw) <= _USUAL_NAME:
            if len(self) >= _MOST_NAMES:
                self.clear()
            self[raw] = name
        return name


_NAMES = _Names()


class Head:
    """What stands before the body of a request."""

    def __init__(self, method: str, target: str, pairs: Collection[tuple[bytes, bytes]]) -> None:
        self.method = method
        self.target = target
        """The path with the query, as they were sent."""
        path, _, self.query = target.partition("?")
        self.path = unquote(path) if "%" in path else path
        self.headers = {_NAMES[raw]: value.decode("latin-1") for raw, value in pairs}
        self.doubled = _doubled(pairs) if len(self.headers) < len(pairs) else ""
        """A header that stands there twice and may not."""
        self.size = len(target) + sum(map(len, chain.from_iterable(pairs)))
        """Bytes of all that."""


def _doubled(pairs: Iterable[tuple[bytes, bytes]]) -> str:
    """A header that stands there twice and may not; "" if there is none."""
    names = [_NAMES[raw] for raw, _ in pairs]
    return next((name for name in names if name in _ONCE and names.count(name) > 1), "")


class Incoming(Head):
    """What a client asks."""

    def __init__(
        self, line: Line, method: str, target: str, pairs: Collection[tuple[bytes, bytes]]
    ) -> None:
        super().__init__(method, target, pairs)
        self._line = line
        self.is_complete = False
        """All of the body has come."""
        self.awaits_word = self.headers.get("expect", "").lower() == "100-continue"
        """The client sends its body only when it is told to."""
        self.is_unwanted = False
        """Nobody will ask for the body any more."""
        self.is_gone = False
        """The client has closed the connection before all was answered."""
        self.copy: RequestCapture | None = None
        """Where what is sent is kept, if somebody may want to look at it."""
        self._parts: list[bytes] = []
        self._come = 0
        """Bytes of the body so far, and how many there may be."""
        self._limit = 0
        self._problem: ToolspeakError | None = None
        """Why there will be no more of the body."""
        self._waiter: asyncio.Future[None] | None = None
        self._task: asyncio.Task[Any] | None = None
        """Who is to hear of it if the client goes."""

    async def value(self, limits: Limits) -> dict[str, Any]:
        """The body, which has to be a JSON object that is no larger and no deeper than that."""
        data = await self.body(limits.body_bytes)
        if self.copy:
            self.copy.set_body(data)
        if not data:
            raise WireError("the request body is empty; send a JSON object")
        value = decode_json(data)
        if not isinstance(value, dict):
            raise WireError("the request body must be a JSON object")
        if is_nested_deeper(value, data, limits.json_depth):
            problem = f"the request is nested more than {limits.json_depth} levels deep; "
            raise WireError(problem + "raise `limits.json_depth` to allow more")
        return value

    async def body(self, limit: int) -> bytes:
        """All of the body, which may not be longer than that. From here on this task is cancelled
        if the client closes the connection."""
        if not self.is_complete:
            await self._rest(limit)
        if self._come > limit:
            raise _too_large(limit)
        if self._problem:
            problem, self._problem = self._problem, None
            try:
                raise problem
            finally:
                # It knows where it was raised, and both would wait for the collector of garbage.
                del problem
        self._task = asyncio.current_task(self._line.ticker.loop)
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _rest(self, limit: int) -> None:
        """Wait until there is no more to come of the body, or too much has."""
        given = self.headers.get("content-length", "")
        if given.isdigit() and int(given) > limit:
            raise _too_large(limit)
        ticker = self._line.ticker
        late = Alarm(lambda: self.fail(_too_slow()), perf_counter() + PATIENCE)
        ticker.set(late)
        self._limit = limit
        self._waiter = ticker.loop.create_future()
        self._line.go_on(self)
        try:
            if not self._problem:
                await self._waiter
        finally:
            ticker.unset(late)
            self._waiter = None

    # What the connection tells.

    def take(self, data: bytes) -> None:
        """More of the body has come."""
        self._come += len(data)
        if self.is_unwanted:
            return
        self._parts.append(data)
        if self._waiter and self._come > self._limit:
            self._wake()

    @property
    def may_wait(self) -> bool:
        """Whether so much of the body is there that the rest of it may come later."""
        return self._come > MOST_UNREAD and not self._waiter and not self.is_unwanted

    def complete(self) -> None:
        """That was all."""
        self.is_complete = True
        self.awaits_word = False
        self._wake()

    def fail(self, problem: ToolspeakError) -> None:
        """There will be no more of the body."""
        self._problem = problem
        self._wake()

    def lose(self) -> None:
        """The client has closed the connection."""
        if self._task:
            self.is_gone = True
            self._task.cancel()
        else:
            self.fail(Gone())

    def unwatch(self) -> None:
        """Whatever the client does now, the task goes on."""
        self._task = None

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)


class Sender:
    """Where the answer goes."""

    def __init__(
        self, line: Line, incoming: Incoming | None = None, *, is_old: bool = False
    ) -> None:
        self._line = line
        self._incoming = incoming
        self._is_head = incoming is not None and incoming.method == "HEAD"
        """Only the head of the answer is asked for."""
        self._is_chunked = not is_old
        """HTTP/1.0 knows where a stream ends only by the end of the connection."""
        self.keeps = not is_old
        """Whether the connection stays open after it."""
        self.headers: dict[str, str] = {}
        self.has_begun = False
        self.has_ended = False
        self.status = 0
        self.told: Callable[[Failure], bytes] | None = None
        """How a failure is written into the stream that has begun."""
        self.copy: StreamCapture | None = None
        """Where what leaves is kept, if somebody may want to look at it."""

    async def whole(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """An answer in one piece."""
        self.put(status, body, content_type)
        if self._line.is_paused:
            await self._line.drained()

    def put(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """The same, and nobody waits until the client takes it."""
        self.headers["content-length"] = str(len(body))
        head = self._head(status, content_type)
        self.has_ended = True
        if copy := self.copy:
            copy.entries += (perf_counter(), body)
            if len(body) > LARGE_CHUNK:
                copy.reserve_new()
        self._line.write(head if self._is_head else head + body)
        self._line.answered(self)

    async def begin(self, status: int, content_type: str) -> None:
        """The head of an answer that comes in pieces."""
        if self._is_chunked:
            self.headers["transfer-encoding"] = "chunked"
        self._line.write(self._head(status, content_type))

    def _head(self, status: int, content_type: str) -> bytes:
        headers = self.headers
        headers["content-type"] = content_type
        if status in _WITHOUT_BODY:
            del headers["content-type"], headers["content-length"]
        if not self.keeps or (self._incoming and self._incoming.awaits_word):
            # Nobody can tell whether a body follows that was never asked for.
            self.keeps = False
            headers["connection"] = "close"
        elif "connection" in headers:
            self.keeps = False
        lines = "\r\n".join([_date(int(time())), *map(": ".join, headers.items())])
        if lines.count("\n") != len(headers):
            raise ValueError("a header of the response contains a line break")
        self.has_begun = True
        self.status = status
        status_line = _STATUS.get(status) or f"HTTP/1.1 {status} \r\n"
        return f"{status_line}{lines}\r\n\r\n".encode("latin-1", "replace")

    async def more(self, data: bytes, now: float) -> None:
        """More of the body, and when it leaves."""
        if copy := self.copy:
            copy.entries += (now, data)
            # What is small is counted with what comes from upstream.
            if len(data) > LARGE_CHUNK:
                copy.reserve_new()
        self._write(data)
        if self._line.is_paused:
            await self._line.drained()

    async def end(self, data: bytes = b"") -> None:
        """The last of the body."""
        if self.copy and data:
            self.copy.add(data)
        self.has_ended = True
        self._write(data, b"0\r\n\r\n" if self._is_chunked else b"")
        self._line.answered(self)

    def _write(self, data: bytes, end: bytes = b"") -> None:
        """Write more of a stream."""
        if self._is_head:
            return
        if data and self._is_chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if data or end:
            self._line.write(data + end if end else data)


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return f"date: {formatdate(second, usegmt=True)}"


def _too_slow() -> Refused:
    message = f"the request was not received within {PATIENCE:g} s"
    return Refused(Failure("timeout", message, 408), {"connection": "close"})


def _too_large(limit: int) -> Refused:
    message = (
        f"the request body is longer than {limit} bytes; raise `limits.body_bytes` to allow more"
    )
    return Refused(Failure("too_large", message, 413))
