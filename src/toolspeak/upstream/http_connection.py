"""One HTTP/1.1 connection: sends a request and receives the response in chunks.

    await connection.send_request(data, deadline)        connection.status, connection.headers
    while (chunk := connection.read_nowait()) is None:   await connection.wait(deadline)

httptools parses the responses. docs/decisions/http-client.md says why this is not a library.
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

_MAX_HEADERS = 2**16
_MAX_BUFFERED = 2**18
"""The bytes that may wait to be read; then the upstream has to pause."""
_MAX_DECOMPRESSED = 2**24
_ENCODINGS = {"gzip", "x-gzip", "deflate"}
"""Encodings that some upstreams use although they are not requested; zlib tells them apart."""
_NO_RESPONSE = "closed the connection before it answered"


class HttpProblem(ToolspeakError):
    """There is no response, or no more of it. The message is a predicate about the upstream."""


class Disconnected(HttpProblem):
    """The connection was closed before any byte of a response was received."""


class Connection(asyncio.Protocol):
    """A connection to a server, used for one request after the other."""

    def __init__(self, ticker: Ticker, on_lost: Callable[[Connection], None]) -> None:
        self._ticker = ticker
        self._transport: Any = None
        self._on_lost = on_lost
        self._loop = ticker.loop
        self._waiter: asyncio.Future[None] | None = None
        self._alarm = Alarm(self._time_out)
        self._parser: Any = httptools.HttpResponseParser(self)
        """Parses one response after the other: a connection is reused only after a whole one."""
        self._has_request = False
        self._reset()

    def _reset(self) -> None:
        """Reset the state for the next response."""
        self.status = 0
        self.headers: dict[str, str] = {}
        self._header_size = 0
        self._head_size = 0
        self._has_data = False
        self._has_head = False
        self.is_complete = False
        """True once the whole response was received; it may not have been read."""
        self._keeps_alive = False
        self._problem: HttpProblem | None = None
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._is_paused = False
        self._decompressor: Any = None

    # For users of a connection.

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_reusable(self) -> bool:
        """True if another request can be sent: the last one was sent, its response was
        received, and the connection stays open."""
        transport = self._transport
        if not self.is_complete or not self._keeps_alive or transport is None:
            return False
        return not transport.is_closing() and not transport.get_write_buffer_size()

    @property
    def is_read(self) -> bool:
        """True if the whole response was received and read."""
        return self.is_complete and not self._chunks and not self._problem

    async def send_request(self, data: bytes, deadline: float) -> None:
        """Send a request and wait for the head of the response until `deadline`. If none
        arrives, the connection is closed."""
        self._reset()
        self._has_request = True
        try:
            if not self.is_open:
                raise Disconnected(_NO_RESPONSE)
            self._transport.write(data)
            while not self._has_head:
                self._raise_problem()
                await self.wait(deadline)
        except BaseException:
            self.close()
            raise

    def read_nowait(self) -> bytes | None:
        """Return what was received of the body, b"" at its end, or None if nothing was."""
        if not self._chunks:
            self._raise_problem()
            return b"" if self.is_complete else None
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks = []
        self._buffered = 0
        if self._is_paused and self._transport:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    def _raise_problem(self) -> None:
        if problem := self._problem:
            # A copy: what is raised refers to frames that refer to this connection, and would be a
            # reference cycle if this connection referred to it.
            raise type(problem)(*problem.args)

    def set_idle(self) -> None:
        """Stop the timeout: no request is running."""
        self._ticker.unset(self._alarm)

    def close(self) -> None:
        """Close the connection at once, also during a request."""
        self.set_idle()
        self._abort()

    async def with_tls(self, context: ssl.SSLContext, host: str) -> Connection:
        """Return a connection with TLS to the server at the other end of a tunnel."""
        inner = Connection(self._ticker, self._on_lost)
        safe = await self._loop.start_tls(self._transport, inner, context, server_hostname=host)
        assert safe
        inner.connection_made(safe)
        self.set_idle()
        return inner

    def wait(self, deadline: float) -> asyncio.Future[None]:
        """Return a future that is done when something was received; it fails at the deadline."""
        self._alarm.at = deadline
        self._ticker.set(self._alarm)
        self._waiter = self._loop.create_future()
        return self._waiter

    def _time_out(self) -> None:
        # Break the reference cycle: the error refers to the frame that waits.
        waiter, self._waiter = self._waiter, None
        if waiter and not waiter.done():
            waiter.set_exception(TimeoutError())

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _abort(self) -> None:
        if self._transport:
            self._transport.abort()

    def _fail(self, problem: HttpProblem) -> None:
        self._problem = self._problem or problem
        self._wake()
        self._abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._has_request or self.is_complete:
            # Nobody asked for this data; it would be mistaken for the next response.
            self._keeps_alive = False
            self._abort()
            return
        self._has_data = True
        if not self._has_head:
            # The parser reports a header only when it is whole, so never an endless one.
            self._head_size += len(data)
            if self._head_size > _MAX_HEADERS + _MAX_BUFFERED:
                self._fail(HttpProblem(f"sent more than {_MAX_HEADERS} bytes of headers"))
                return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as problem:
            if self.is_complete:
                self._keeps_alive = False
            else:
                self._fail(HttpProblem(f"sent an invalid HTTP response: {problem}"))
        except httptools.HttpParserUpgrade:
            self._fail(HttpProblem("switched to a protocol other than HTTP"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._has_head and not exc and not self._has_length:
            self.is_complete = True
        elif not self.is_complete and not self._problem:
            if not self._has_data:
                self._problem = Disconnected(_NO_RESPONSE)
            else:
                self._problem = HttpProblem("closed the connection in the middle of its response")
        self._wake()
        # Break the reference cycles.
        self._parser = None
        self._alarm.ring = _do_nothing
        self._on_lost(self)

    @property
    def _has_length(self) -> bool:
        return "content-length" in self.headers or "transfer-encoding" in self.headers

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise HttpProblem("sent data after the end of its response")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_size += len(name) + len(value)
        if self._header_size > _MAX_HEADERS:
            self._fail(HttpProblem(f"sent more than {_MAX_HEADERS} bytes of headers"))
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status < 200:
            return
        self._has_head = True
        encoding = self.headers.get("content-encoding", "identity").strip().lower()
        if encoding in _ENCODINGS:
            self._decompressor = zlib.decompressobj(zlib.MAX_WBITS | 32)
        elif encoding not in ("identity", ""):
            self._fail(HttpProblem(f"sent a response with the unsupported encoding {encoding!r}"))
        self._wake()

    def on_body(self, data: bytes) -> None:
        if self._decompressor:
            data = self._decompress(data)
        if not data:
            return
        self._chunks.append(data)
        self._buffered += len(data)
        if self._buffered > _MAX_BUFFERED and not self._is_paused and not self._problem:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        if self.status < 200:
            # An interim response.
            self.headers = {}
            return
        if self._decompressor and not self._decompressor.eof:
            self._fail(HttpProblem("sent a truncated compressed response"))
            return
        self.is_complete = True
        self._keeps_alive = self._parser.should_keep_alive()
        self._wake()

    def _decompress(self, data: bytes) -> bytes:
        try:
            data = self._decompressor.decompress(data, _MAX_DECOMPRESSED)
        except zlib.error as problem:
            self._fail(HttpProblem(f"sent a response that cannot be decompressed: {problem}"))
            return b""
        if self._decompressor.unconsumed_tail:
            self._fail(
                HttpProblem(
                    f"sent a chunk that decompresses to more than {_MAX_DECOMPRESSED} bytes"
                )
            )
        return data


def _do_nothing() -> None:
    """Do nothing: nobody waits any more."""
