"""Batches the writes of one iteration of the event loop.

Most of the cost of a write to a socket is waking up the process at the other end. If several
requests are served in one iteration, their writes follow each other and wake it only once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .timers import Ticker

log = logging.getLogger("toolspeak.gateway")
_MOST_LINES = 16
"""The number of connections that are flushed together at most."""
_LARGE = 2**14
"""Larger writes are not delayed, because they may block."""


class Outbox:
    """The connections with pending writes."""

    def __init__(self, ticker: Ticker) -> None:
        self._ticker = ticker
        self._lines: list[Corked] = []

    def add(self, line: Corked) -> None:
        """Flush a connection at the end of this iteration."""
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
                # The other connections must still be flushed.
                log.exception("a connection cannot be written to")
                line.drop()


class Corked(asyncio.Protocol):
    """A connection that writes once per iteration of the event loop."""

    def __init__(self, ticker: Ticker) -> None:
        self.ticker = ticker
        self._outbox = ticker.outbox
        self._transport: Any = None
        self._written: list[bytes] = []
        """Data that is not sent yet."""
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        """Send data, unless the connection is closed."""
        self._written.append(data)
        self._size += len(data)
        if self._size > _LARGE:
            self.flush()
        elif len(self._written) == 1:
            self._outbox.add(self)

    def flush(self) -> None:
        """Send pending data now."""
        written = self._written
        if not written:
            return
        self._written, self._size = [], 0
        if self._transport and not self._transport.is_closing():
            self._transport.write(written[0] if len(written) == 1 else b"".join(written))

    def drop(self) -> None:
        """Close the connection at once and discard pending data."""
        if self._transport:
            self._transport.abort()
