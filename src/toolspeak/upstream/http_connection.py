"""One HTTP/1.1 connection: a request goes out, and its reply comes in piece by piece.

    await connection.answer(data, deadline)       connection.status, connection.headers
    while (piece := connection.take()) is None:   await connection.something(deadline)

This does for a gateway what a general client would do at three to twenty times the cost. Finding
the parts of a reply is httptools' work; here is only waiting, and what may go wrong.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import Callable
from typing import Any

import httptools

from ..errors import ToolspeakError
from .timers import Alarm, Ticker
from .write_batching import Corked

_MOST_HEADERS = 2**16
_MOST_HELD = 2**18
"""How many bytes wait to be read before the other side is made to wait."""
_MOST_UNPACKED = 2**24
_PACKED = {"gzip", "x-gzip", "deflate"}
"""What we do not ask for but some send: both kinds that zlib tells apart by itself."""
_NO_ANSWER = "closed the connection before it answered"


class HttpProblem(ToolspeakError):
    """There is no reply, or no more of it. The words are about the other side: it …"""


class Disconnected(HttpProblem):
    """The connection was closed before a single byte of a reply had come."""


class Connection(Corked):
    """A connection to a server, used for one request after the other."""

    def __init__(self, ticker: Ticker, on_lost: Callable[[Connection], None]) -> None:
        super().__init__(ticker)
        self._on_lost = on_lost
        self._loop = ticker.loop
        self._waiter: asyncio.Future[None] | None = None
        self._alarm = Alarm(self._ring)
        self._parser: Any = httptools.HttpResponseParser(self)
        """For one reply after the other: a connection is used again only after a whole one."""
        self._has_asked = False
        self._forget()

    def _forget(self) -> None:
        """The state before a reply."""
        self.status = 0
        self.headers: dict[str, str] = {}
        self._header_size = 0
        self._head_size = 0
        self._has_begun = False
        self._has_head = False
        self.is_complete = False
        """All of the reply has come; not all of it may have been read."""
        self._may_stay = False
        self._problem: HttpProblem | None = None
        self._pieces: list[bytes] = []
        self._held = 0
        self._is_paused = False
        self._unpacker: Any = None

    # What the user of a connection does.

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_reusable(self) -> bool:
        """Whether another request can be sent: the last one has left, its reply has come, and
        leaves the connection open."""
        transport = self._transport
        if not self.is_complete or not self._may_stay or transport is None:
            return False
        return not transport.is_closing() and not transport.get_write_buffer_size()

    @property
    def is_over(self) -> bool:
        """Whether all of the reply has come, and was read."""
        return self.is_complete and not self._pieces and not self._problem

    async def answer(self, data: bytes, deadline: float) -> None:
        """Send a request, and wait for the head of the reply, at most until then. If there is none,
        the connection is closed."""
        self._forget()
        self._has_asked = True
        try:
            if not self.is_open:
                raise Disconnected(_NO_ANSWER)
            self.write(data)
            while not self._has_head:
                if self._problem:
                    raise self._problem
                await self.something(deadline)
        except BaseException:
            self.close()
            # It knows what was asked, and both would wait for the collector of garbage.
            self._problem = None
            raise

    def take(self) -> bytes | None:
        """What has come of the body by now; b"" at its end, and None if more has to come first."""
        if not self._pieces:
            if self._problem:
                raise self._problem
            return b"" if self.is_complete else None
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces = []
        self._held = 0
        if self._is_paused and self._transport:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    def rest(self) -> None:
        """Nothing is asked for now."""
        self.ticker.unset(self._alarm)

    def close(self) -> None:
        """Close it now, whatever is under way."""
        self.rest()
        self.drop()

    async def with_tls(self, context: ssl.SSLContext, host: str) -> Connection:
        """The connection to a server at the other end of a tunnel."""
        inner = Connection(self.ticker, self._on_lost)
        safe = await self._loop.start_tls(self._transport, inner, context, server_hostname=host)
        assert safe
        inner.connection_made(safe)
        self.rest()
        return inner

    def something(self, deadline: float) -> asyncio.Future[None]:
        """To wait for until something comes."""
        self._alarm.at = deadline
        self.ticker.set(self._alarm)
        self._waiter = self._loop.create_future()
        return self._waiter

    def _ring(self) -> None:
        # What it raises knows who waits, and all would wait for the collector of garbage.
        waiter, self._waiter = self._waiter, None
        if waiter and not waiter.done():
            waiter.set_exception(TimeoutError())

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, problem: HttpProblem) -> None:
        self._problem = self._problem or problem
        self._wake()
        self.drop()

    # What the event loop tells.

    def data_received(self, data: bytes) -> None:
        if not self._has_asked or self.is_complete:
            # Nobody asked: whatever it is, the next reply could not be told from it.
            self._may_stay = False
            self.drop()
            return
        self._has_begun = True
        if not self._has_head:
            # The parser tells of a header only when it is whole: an endless one is never told of.
            self._head_size += len(data)
            if self._head_size > _MOST_HEADERS + _MOST_HELD:
                self._fail(HttpProblem(f"sent more than {_MOST_HEADERS} bytes of headers"))
                return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as problem:
            if self.is_complete:
                self._may_stay = False
            else:
                self._fail(HttpProblem(f"sent an invalid HTTP response: {problem}"))
        except httptools.HttpParserUpgrade:
            self._fail(HttpProblem("switched to a protocol other than HTTP"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._has_head and not exc and not self._says_its_length:
            self.is_complete = True
        elif not self.is_complete and not self._problem:
            if not self._has_begun:
                self._problem = Disconnected(_NO_ANSWER)
            else:
                self._problem = HttpProblem("closed the connection in the middle of its response")
        self._wake()
        # They know us, and would wait with us for the collector of garbage.
        self._parser = None
        self._alarm.ring = _nothing
        self._on_lost(self)

    @property
    def _says_its_length(self) -> bool:
        return "content-length" in self.headers or "transfer-encoding" in self.headers

    # What the parser finds.

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise HttpProblem("sent more data than requested")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_size += len(name) + len(value)
        if self._header_size > _MOST_HEADERS:
            self._fail(HttpProblem(f"sent more than {_MOST_HEADERS} bytes of headers"))
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status < 200:
            return
        self._has_head = True
        packed = self.headers.get("content-encoding", "identity").strip().lower()
        if packed in _PACKED:
            self._unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
        elif packed not in ("identity", ""):
            self._fail(HttpProblem(f"sent a response with the unsupported encoding {packed!r}"))
        self._wake()

    def on_body(self, data: bytes) -> None:
        if self._unpacker:
            data = self._unpacked(data)
        if not data:
            return
        self._pieces.append(data)
        self._held += len(data)
        if self._held > _MOST_HELD and not self._is_paused and not self._problem:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        if self.status < 200:
            # It only says that it is at work.
            self.headers = {}
            return
        if self._unpacker and not self._unpacker.eof:
            self._fail(HttpProblem("sent a compressed response without its end"))
            return
        self.is_complete = True
        self._may_stay = self._parser.should_keep_alive()
        self._wake()

    def _unpacked(self, data: bytes) -> bytes:
        try:
            data = self._unpacker.decompress(data, _MOST_UNPACKED)
        except zlib.error as problem:
            self._fail(HttpProblem(f"sent a response that cannot be decompressed: {problem}"))
            return b""
        if self._unpacker.unconsumed_tail:
            self._fail(
                HttpProblem(f"sent a chunk of more than {_MOST_UNPACKED} bytes when decompressed")
            )
        return data


def _nothing() -> None:
    """Nobody waits any more."""
