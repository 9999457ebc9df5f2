"""One HTTP request and its answer, over ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from ..errors import ToolspeakError
from ..types import Failure

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Refused(ToolspeakError):
    """A request that the gateway does not serve; the failure says why."""

    def __init__(self, failure: Failure, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.headers = headers or {}


class Gone(ToolspeakError):
    """The client has closed the connection."""


class Incoming:
    """What a client asks."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: str = scope["query_string"].decode("latin-1")
        self.headers: dict[str, str] = {}
        self.header_size = 0
        for name, value in scope["headers"]:
            self.headers[name.decode("latin-1")] = value.decode("latin-1")
            self.header_size += len(name) + len(value)
        self._receive = receive
        self.read = asyncio.Event()
        """Set when all of the body has come."""

    @property
    def target(self) -> str:
        """The path with the query."""
        return f"{self.path}?{self.query}" if self.query else self.path

    async def body(self, limit: int) -> bytes:
        """All of the body, which may not be longer than that."""
        given = self.headers.get("content-length", "")
        if given.isdigit() and int(given) > limit:
            raise _too_large(limit)
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
                self.read.set()
                return parts[0] if len(parts) == 1 else b"".join(parts)

    async def gone(self) -> None:
        """Wait until the client has closed the connection."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class Sender:
    """Where the answer goes."""

    def __init__(self, send: Send, headers: Mapping[str, str]) -> None:
        self._send = send
        self.headers = dict(headers)
        self.has_begun = False
        self.status = 0

    async def whole(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """An answer in one piece."""
        self.headers["content-length"] = str(len(body))
        await self.begin(status, content_type)
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

    async def more(self, data: bytes) -> None:
        """More of the body."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        """There is no more of the body."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def _too_large(limit: int) -> Refused:
    message = f"the request is longer than {limit} bytes; `limits.body` says how long it may be"
    return Refused(Failure("too_large", message, 413))
