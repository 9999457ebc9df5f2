"""One HTTP request and its response, over ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from itertools import chain
from time import perf_counter
from typing import Any

from ..calls.json_values import is_nested_deeper
from ..config.settings import Limits
from ..errors import ToolspeakError, WireError
from ..types import Failure
from ..upstream.record import LARGE_CHUNK, RequestCapture, StreamCapture
from ..upstream.timers import Alarm, Ticker
from ..wires.framing import decode_json

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SENT_AT = "toolspeak.sent_at"
"""The scope's key for the time when the last chunk of the response was sent."""
BODY_TIMEOUT = 120.0
"""Seconds that a client may take to send the body of a request."""
_SINGLE_HEADERS = frozenset({b"host", b"origin", b"content-type", b"content-length"})
"""Headers that decide whether a request is allowed: a second one could hide the first."""
_STATUSES_WITHOUT_BODY = frozenset({204, 304})


class Refused(ToolspeakError):
    """A request that the gateway does not serve; the failure says why."""

    def __init__(self, failure: Failure, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.headers = headers or {}


class ClientDisconnected(ToolspeakError):
    """The client has closed the connection."""


class RequestHead:
    """The method, target and headers of a request."""

    def __init__(self, scope: Scope) -> None:
        pairs: list[tuple[bytes, bytes]] = scope["headers"]
        root: str = scope.get("root_path", "")
        path: str = scope["path"]
        raw_path: bytes = scope.get("raw_path") or path.encode()
        if root and path.startswith(root):
            # The application is mounted below another one.
            path, raw_path = path[len(root) :], raw_path[len(root.encode()) :]
        query: bytes = scope["query_string"]
        self.method: str = scope["method"]
        self.path = path
        self.query = query.decode("latin-1")
        self.target = (raw_path + b"?" + query if query else raw_path).decode("latin-1")
        """The path with the query, as they were sent."""
        self.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in pairs
        }
        self.repeated_header = _find_repeated(pairs) if len(self.headers) < len(pairs) else ""
        """A header that was sent more than once, although it may not be."""
        self.size = len(self.target) + sum(map(len, chain.from_iterable(pairs)))


class HttpRequest(RequestHead):
    """A request. Its body is read on demand."""

    def __init__(self, scope: Scope, receive: Receive, ticker: Ticker) -> None:
        super().__init__(scope)
        self.capture: RequestCapture | None = None
        """Keeps the request for the inspector."""
        self.is_disconnected = False
        """The client has closed the connection before the response was complete."""
        self._receive = receive
        self._ticker = ticker
        self._has_timed_out = False
        self._alarm: Alarm | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def read_json(self, limits: Limits) -> dict[str, Any]:
        """Return the body, which must be a JSON object within the limits."""
        data = await self.read_body(limits.body_bytes)
        if self.capture:
            self.capture.set_body(data)
        if not data:
            raise WireError("the request body is empty; send a JSON object")
        value = decode_json(data)
        if not isinstance(value, dict):
            raise WireError("the request body must be a JSON object")
        if is_nested_deeper(value, data, limits.json_depth):
            problem = f"the request is nested more than {limits.json_depth} levels deep; "
            raise WireError(problem + "nest it less deeply, or raise `limits.json_depth`")
        return value

    async def read_body(self, limit: int) -> bytes:
        """Return the whole body, which may have at most `limit` bytes. From here on, this task is
        cancelled if the client closes the connection."""
        length = self.headers.get("content-length", "")
        if length.isdigit() and int(length) > limit:
            raise _too_large(limit)
        task = asyncio.current_task()
        assert task
        late = Alarm(lambda: self._time_out(task), perf_counter() + BODY_TIMEOUT)
        self._ticker.set(late)
        try:
            body = await self._receive_body(limit)
        except asyncio.CancelledError:
            if not self._has_timed_out or task.uncancel():
                raise
            raise _too_slow() from None
        finally:
            self._ticker.unset(late)
        # Watch later: most responses are ready before that.
        self._alarm = Alarm(lambda: self._start_watching(task))
        self._ticker.set(self._alarm)
        return body

    async def _receive_body(self, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            parts.append(part)
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def _time_out(self, task: asyncio.Task[Any]) -> None:
        self._has_timed_out = True
        task.cancel()

    def _start_watching(self, task: asyncio.Task[Any]) -> None:
        self._watcher = self._ticker.loop.create_task(self._cancel_on_disconnect(task))

    async def _cancel_on_disconnect(self, task: asyncio.Task[Any]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.is_disconnected = True
        task.cancel()

    def stop_watching(self) -> None:
        """Let the task end even if the client closes the connection now."""
        if self._alarm:
            self._ticker.unset(self._alarm)
            # Break the reference cycle so that memory is freed at once.
            self._alarm = None
        if self._watcher:
            self._watcher.cancel()
            self._watcher = None


class HttpResponse:
    """The response to a request: sent whole, or begun and continued as a stream."""

    def __init__(self, send: Send, scope: Scope, on_end: Callable[[], None] = lambda: None) -> None:
        self._send = send
        self._scope = scope
        self._on_end = on_end
        self.headers: dict[str, str] = {}
        self.status = 0
        self.has_begun = False
        self.has_ended = False
        self.encode_failure: Callable[[Failure], bytes] | None = None
        """Encodes a failure for the stream that has begun."""
        self.capture: StreamCapture | None = None
        """Keeps the response for the inspector."""

    async def send_whole(
        self, status: int, body: bytes, content_type: str = "application/json"
    ) -> None:
        """Send a complete response."""
        if status not in _STATUSES_WITHOUT_BODY:
            self.headers["content-length"] = str(len(body))
        await self.begin(status, content_type)
        await self.end(body)

    async def begin(self, status: int, content_type: str) -> None:
        """Send the headers of a response, whose body follows in chunks."""
        if status not in _STATUSES_WITHOUT_BODY:
            self.headers["content-type"] = content_type
        pairs = [
            (name.encode("latin-1"), value.encode("latin-1", "replace"))
            for name, value in self.headers.items()
        ]
        if any(b"\n" in value or b"\r" in value for _, value in pairs):
            raise ValueError("a header of the response contains a line break")
        self.status, self.has_begun = status, True
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def send_chunk(self, data: bytes, now: float) -> None:
        """Send more of the body; `now` is the current time."""
        if capture := self.capture:
            capture.entries += (now, data)
            # Small chunks are counted together with those of the upstream.
            if len(data) > LARGE_CHUNK:
                capture.reserve_new()
        self._scope[SENT_AT] = now
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Send the end of the body."""
        if self.capture and data:
            self.capture.add(data)
        self.has_ended = True
        # Servers report a disconnect after a complete response, too.
        self._on_end()
        await self._send({"type": "http.response.body", "body": data})


def _find_repeated(pairs: Iterable[tuple[bytes, bytes]]) -> str:
    names = [name.lower() for name, _ in pairs]
    repeated = (name for name in names if name in _SINGLE_HEADERS and names.count(name) > 1)
    return next(repeated, b"").decode("latin-1")


def _too_slow() -> Refused:
    message = f"the request body did not arrive within {BODY_TIMEOUT:g} s; send it again"
    return Refused(Failure("timeout", message, 408), {"connection": "close"})


def _too_large(limit: int) -> Refused:
    message = (
        f"the request body is longer than {limit} bytes; shorten it, or raise `limits.body_bytes`"
    )
    return Refused(Failure("too_large", message, 413))
