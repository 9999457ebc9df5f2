"""Answers that leave in one piece where they are written in several.

A server writes the head of an answer, and then its body. Each write is a system call that wakes the
client, which costs as much as a good part of a request. Here a head waits for what is written
before the event loop's next turn, and goes out with it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .http import PATIENCE

_HEAD = b"HTTP/"


class CorkedProtocol(HttpToolsProtocol):
    """uvicorn's own protocol, on a transport that holds the head of an answer for its body. A
    client that does not read is let go: to close its connection would wait for it for ever."""

    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        corked: Any = Corked(transport, self.loop)
        super().connection_made(corked)

    def connection_lost(self, exc: Exception | None) -> None:
        self._go_on()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        self._stalled = self.loop.call_later(PATIENCE, self.transport.abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._go_on()
        super().resume_writing()

    def _go_on(self) -> None:
        if self._stalled:
            self._stalled.cancel()
            self._stalled = None


class Corked:
    """A transport. What is not about writing is left to the real one."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send that; a head, with all that is written before the next turn."""
        if self._written:
            self._written.append(data)
        elif data.startswith(_HEAD):
            self._loop.call_soon(self._flush)
            self._written.append(data)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Close the connection after all that was written."""
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _flush(self) -> None:
        written, self._written = self._written, []
        if written:
            self._transport.write(written[0] if len(written) == 1 else b"".join(written))
