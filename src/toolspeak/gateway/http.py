"""One HTTP request and its answer, over ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from time import perf_counter
from typing import Any

from ..errors import ToolspeakError, WireError
from ..jsonish import is_deeper
from ..types import Failure
from ..wires.framing import decode_json
from .flow import UNCOUNTED, Flow, Kept
from .settings import Limits
from .ticker import Alarm, Ticker

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
PATIENCE = 120.0
"""How many seconds a client may take to send a request, or to take anything of its reply."""
_ONCE = frozenset({"host", "origin", "content-type", "content-length"})
"""Headers that decide what may come in: a second one would hide the first."""


class Refused(ToolspeakError):
    """A request that the gateway does not serve; the failure says why."""

    def __init__(self, failure: Failure, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.headers = headers or {}


class Gone(ToolspeakError):
    """The client has closed the connection."""


_NO_ALARM = Alarm(lambda: None)


class Incoming:
    """What a client asks."""

    def __init__(self, scope: Scope, receive: Receive, sender: Sender, ticker: Ticker) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: str = scope["query_string"].decode("latin-1")
        self.headers: dict[str, str] = {}
        self.header_size = len(self.path) + len(self.query)
        """Bytes of all that comes before the body."""
        self.doubled = ""
        """A header that stands there twice and may not."""
        for raw, value in scope["headers"]:
            name = raw.decode("latin-1")
            if name in _ONCE and name in self.headers:
                self.doubled = name
            self.headers[name] = value.decode("latin-1")
            self.header_size += len(raw) + len(value)
        path = (scope.get("raw_path") or b"").decode("latin-1") or self.path
        self.target = f"{path}?{self.query}" if self.query else path
        """The path with the query, as they were sent."""
        self._receive = receive
        self._sender = sender
        self._ticker = ticker
        self._task: asyncio.Task[Any] | None = None
        self._alarm = _NO_ALARM
        """Rings when the body is late, or once it is time to watch for the client's leaving."""
        self._watcher: asyncio.Task[None] | None = None
        self.copy: Kept | None = None
        """Where what is sent is kept, if somebody may want to look at it."""
        self.is_gone = False
        """The client has closed the connection before all was answered."""

    async def value(self, limits: Limits) -> dict[str, Any]:
        """The body, which has to be a JSON object that is no larger and no deeper than that."""
        data = await self.body(limits.body)
        if self.copy:
            self.copy.take_body(data)
        if not data:
            raise WireError("the body is empty; send a JSON object")
        value = decode_json(data)
        if not isinstance(value, dict):
            raise WireError("the body has to be a JSON object")
        if is_deeper(value, data, limits.depth):
            problem = f"the request is nested more than {limits.depth} deep; "
            raise WireError(problem + "`limits.depth` says how deep it may be")
        return value

    async def body(self, limit: int) -> bytes:
        """All of the body, which may not be longer than that. From here on this task is cancelled
        if the client closes the connection."""
        given = self.headers.get("content-length", "")
        if given.isdigit() and int(given) > limit:
            raise _too_large(limit)
        self._task = asyncio.current_task(self._ticker.loop)
        self._alarm = Alarm(self.give_up, perf_counter() + PATIENCE)
        self._ticker.set(self._alarm)
        try:
            data = await self._all(limit)
        except asyncio.CancelledError:
            if self.is_gone and self._task:
                self._task.uncancel()
                raise _too_slow() from None
            raise
        # At the next turn: most of what is answered at once is not worth a task of its own.
        self._alarm.ring, self._alarm.at = self._begin_to_watch, 0.0
        return data

    async def _all(self, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Gone
            data: bytes = message.get("body", b"")
            parts.append(data)
            size += len(data)
            if size > limit:
                raise _too_large(limit)
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def give_up(self) -> None:
        """The client sends nothing more: as good as gone."""
        if self._task and not self._sender.has_ended:
            self.is_gone = True
            self._task.cancel()

    def unwatch(self) -> None:
        """Whatever the client does now, the task goes on."""
        self._ticker.unset(self._alarm)
        if self._watcher:
            self._watcher.cancel()
        # Both know us, and would wait with us for the collector of garbage.
        self._alarm, self._watcher = _NO_ALARM, None

    def _begin_to_watch(self) -> None:
        self._watcher = self._ticker.loop.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        # Servers say so after the last byte, too.
        self.give_up()


class Sender:
    """Where the answer goes."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.headers: dict[str, str] = {}
        self.has_begun = False
        self.has_ended = False
        self.status = 0
        self.told: Callable[[Failure], bytes] | None = None
        """How a failure is written into the stream that has begun."""
        self.copy: Flow | None = None
        """Where what leaves is kept, if somebody may want to look at it."""

    async def whole(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """An answer in one piece."""
        self.headers["content-length"] = str(len(body))
        await self.begin(status, content_type)
        self.has_ended = True
        if self.copy:
            self.copy.take(body)
        await self._send({"type": "http.response.body", "body": body})

    async def begin(self, status: int, content_type: str) -> None:
        """The head of an answer."""
        self.has_begun = True
        self.status = status
        self.headers["content-type"] = content_type
        headers = [
            (name.encode("latin-1"), value.encode("latin-1", "replace"))
            for name, value in self.headers.items()
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    def more(self, data: bytes, now: float) -> Awaitable[None]:
        """More of the body, and when it leaves."""
        if copy := self.copy:
            copy.said.extend((now, data))
            # What is small is counted with what comes from upstream.
            if len(data) > UNCOUNTED:
                copy.count()
        return self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """The last of the body."""
        self.has_ended = True
        if self.copy and data:
            self.copy.take(data)
        await self._send({"type": "http.response.body", "body": data, "more_body": False})


def _too_slow() -> Refused:
    message = f"the request did not come within {PATIENCE:g} s"
    return Refused(Failure("timeout", message, 408), {"connection": "close"})


def _too_large(limit: int) -> Refused:
    message = f"the request is longer than {limit} bytes; `limits.body` says how long it may be"
    return Refused(Failure("too_large", message, 413))
