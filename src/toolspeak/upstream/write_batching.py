"""What is written in one turn of the event loop leaves together, at its end.

Most of what a write to a socket costs is to wake up whoever waits at its other end. Where several
requests are served in one turn, what they write one right after the other wakes it once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .timers import Ticker

log = logging.getLogger("toolspeak.gateway")
_MOST_LINES = 16
"""How many connections wait for each other, at most."""
_LARGE = 2**14
"""Bytes that wait for nobody: whether a connection takes them has to be known at once."""


class Outbox:
    """The connections that have something to write."""

    def __init__(self, ticker: Ticker) -> None:
        self._ticker = ticker
        self._lines: list[Corked] = []

    def add(self, line: Corked) -> None:
        """Let it write when this turn is over."""
        lines = self._lines
        if not lines:
            self._ticker.loop.call_soon(self._flush)
        lines.append(line)
        if len(lines) >= _MOST_LINES:
            self._flush()

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        for line in lines:
            try:
                line.flush()
            except Exception:
                # It must not keep others from what is theirs.
                log.exception("a connection cannot be written to")
                line.drop()


class Corked(asyncio.Protocol):
    """A connection, to a client or to an upstream, that writes once in a turn."""

    def __init__(self, ticker: Ticker) -> None:
        self.ticker = ticker
        self._outbox = ticker.outbox
        self._transport: Any = None
        self._written: list[bytes] = []
        """What has not left yet, and its bytes."""
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        """Send that, if there is still somebody to send it to."""
        self._written.append(data)
        self._size += len(data)
        if self._size > _LARGE:
            self.flush()
        elif len(self._written) == 1:
            self._outbox.add(self)

    def flush(self) -> None:
        """Send what is not sent yet: before the connection is closed, and else when a turn ends."""
        written = self._written
        if not written:
            return
        self._written, self._size = [], 0
        if self._transport and not self._transport.is_closing():
            self._transport.write(written[0] if len(written) == 1 else b"".join(written))

    def drop(self) -> None:
        """Close it at once, whatever is still to be written."""
        if self._transport:
            self._transport.abort()
