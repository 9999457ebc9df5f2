"""One HTTP request and its response, over ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from itertools import chain
from time import perf_counter
from typing import Any
from urllib.parse import quote, unquote

from ..config.settings import Limits
from ..errors import ToolspeakError
from ..types import Failure
from ..upstream.record import LARGE_CHUNK, RequestCapture, StreamCapture
from ..upstream.timers import Alarm, Ticker

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

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


class BodyBudget:
    """The bytes of bodies that all requests together may hold in memory."""

    def __init__(self) -> None:
        self.limit = Limits().total_body_bytes
        self.used = 0

    def reserve(self, size: int) -> None:
        """Take bytes from the budget; raise `Refused` if there are not enough."""
        if self.used + size > self.limit:
            message = f"the requests being served have more than {self.limit} bytes already; "
            message += "try again later, or raise `limits.total_body_bytes`"
            raise Refused(Failure("overloaded", message, 503), {"retry-after": "1"})
        self.used += size


class RequestHead:
    """The method, target and headers of a request."""

    def __init__(self, scope: Scope) -> None:
        pairs: list[tuple[bytes, bytes]] = scope["headers"]
        path: str = scope["path"]
        raw_path: bytes = scope.get("raw_path") or quote(path).encode()
        if root := scope.get("root_path"):
            path, raw_path = _strip_root(root.rstrip("/"), path, raw_path)
        query: bytes = scope["query_string"]
        self.http_version: str = scope.get("http_version", "1.1")
        self.method: str = scope["method"]
        self.path = path
        """The path below the one at which the application is mounted."""
        self.query = query.decode("latin-1")
        self.target = (raw_path + b"?" + query if query else raw_path).decode("latin-1")
        """The path with the query, as they were sent."""
        self.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in pairs
        }
        self.repeated_header = _find_repeated(pairs) if len(self.headers) < len(pairs) else ""
        """A header that was sent more than once, although it may not be."""
        self.size = len(self.target) + sum(map(len, chain.from_iterable(pairs)))
        self.client: tuple[str, int] | None = scope.get("client")
        """The address of the client; None if the server does not know it."""
        self.server: tuple[str, int | None] | None = scope.get("server")
        """The address that the client has connected to."""


class HttpRequest(RequestHead):
    """A request. Its body is read on demand."""

    def __init__(
        self, scope: Scope, receive: Receive, ticker: Ticker, budget: BodyBudget | None = None
    ) -> None:
        super().__init__(scope)
        self._budget = budget or BodyBudget()
        self.body_size = 0
        """Bytes of the body received so far."""
        self.capture: RequestCapture | None = None
        """Keeps the request for the inspector."""
        self.is_disconnected = False
        """The client has closed the connection before the response was complete."""
        self._receive = receive
        self._ticker = ticker
        self._has_timed_out = False
        self._alarm: Alarm | None = None
        self._watcher: asyncio.Task[None] | None = None

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
            raise _too_slow(self) from None
        finally:
            self._ticker.unset(late)
        # Watch later: most responses are ready before that.
        self._alarm = Alarm(lambda: self._start_watching(task))
        self._ticker.set(self._alarm)
        return body

    async def _receive_body(self, limit: int) -> bytes:
        parts: list[bytes] = []
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            part: bytes = message.get("body", b"")
            size = len(part)
            if self.body_size + size > limit:
                raise _too_large(limit)
            self._budget.reserve(size)
            self.body_size += size
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

    def release_body(self) -> None:
        """Return the bytes of the body to the budget."""
        self._budget.used -= self.body_size
        self.body_size = 0

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

    def __init__(self, send: Send, on_end: Callable[[], None] = lambda: None) -> None:
        self._send = send
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
        await self._send_message(
            {"type": "http.response.start", "status": status, "headers": pairs}
        )

    async def send_chunk(self, data: bytes, now: float) -> None:
        """Send more of the body; `now` is the current time."""
        if capture := self.capture:
            capture.entries += (now, data)
            # Small chunks are counted together with those of the upstream.
            if len(data) > LARGE_CHUNK:
                capture.reserve_new()
        await self._send_message({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Send the end of the body."""
        if self.capture and data:
            self.capture.add(data)
        self.has_ended = True
        # Servers report a disconnect after a complete response, too.
        self._on_end()
        await self._send_message({"type": "http.response.body", "body": data})

    async def _send_message(self, message: Message) -> None:
        try:
            await self._send(message)
        except OSError:
            # Some servers drop what is sent after the client has disconnected; others raise this.
            raise ClientDisconnected from None


def _strip_root(root: str, path: str, raw_path: bytes) -> tuple[str, bytes]:
    """Return both paths without the path at which the application is mounted.

    Servers and frameworks differ in whether they leave it in either.
    """
    if path == root or path.startswith(f"{root}/"):
        path = path[len(root) :] or "/"
    for prefix in ("", root, quote(root)):
        stripped = raw_path.removeprefix(prefix.encode()) or b"/"
        if unquote(stripped.decode("latin-1")) == path:
            return path, stripped
    return path, quote(path).encode()


def _find_repeated(pairs: Iterable[tuple[bytes, bytes]]) -> str:
    names = [name.lower() for name, _ in pairs]
    repeated = (name for name in names if name in _SINGLE_HEADERS and names.count(name) > 1)
    return next(repeated, b"").decode("latin-1")


def _too_slow(head: RequestHead) -> Refused:
    message = f"the request body did not arrive within {BODY_TIMEOUT:g} s; send it again"
    headers = {"connection": "close"} if head.http_version.startswith("1") else {}
    return Refused(Failure("timeout", message, 408), headers)


def _too_large(limit: int) -> Refused:
    message = (
        f"the request body is longer than {limit} bytes; shorten it, or raise `limits.body_bytes`"
    )
    return Refused(Failure("too_large", message, 413))
