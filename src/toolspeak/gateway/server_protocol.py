"""uvicorn's HTTP protocol, with the limits that it lacks.

uvicorn parses requests, calls the application and writes responses. Added here:

- The head of a request is limited in bytes as it arrives, and in time.
- A client that stops reading its response is disconnected after a while.
- A client that has sent all it has to send (half-close) still gets its response.
- Invalid requests are answered with an error in JSON, and nothing is cut off by a reset.
- Clients of HTTP/1.0 get no chunks, and trailers are not taken for headers.
- A request to change the protocol, which is not supported, is served without the change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from .._util import encode_json
from ..types import Failure
from ..upstream.timers import Alarm
from ..wires import get_wire
from .http import Message, Receive, Scope, Send

if TYPE_CHECKING:
    from .app import Gateway

MAX_HEAD = 2**18
"""The most bytes of a request's headers, or of its trailers."""
REQUEST_TIMEOUT = 120.0
"""Seconds to send the head of a request, or to read any part of a response."""
_LINGER = 2.0
"""Seconds that a connection stays open after an error, so that the client can read it: closing it
while data arrives would reset it."""
_PROBE_INTERVALS = (0.05, 0.2, 1.0, 5.0)
"""Seconds between the probes of a half-closed connection."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LEADING_ZERO = b"0"
"""The probe of a chunked response: the first digit of the next chunk's size. At most five are sent,
because curl reads up to 16 digits."""
_UPGRADE_HEADERS = frozenset({b"upgrade", b"connection", b"http2-settings"})
_INVALID_REQUEST = "the request is not valid HTTP"
_IS_PROXY_REQUEST = "this server is not a proxy; send a path such as /v1/models, not a whole URL"


class GatewayProtocol(HttpToolsProtocol):
    """One connection of a client."""

    app: Gateway  # type: ignore[assignment]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # The gateway logs requests itself, without their queries, which may contain keys.
        self.access_log = False
        self._ticker = self.app.ticker
        self._request_alarm = Alarm(self._close)
        self._reading_alarm = Alarm(self._check_reading)
        self._probe_alarm = Alarm(self._probe)
        self._probe_intervals: Iterator[float] = iter(())
        self._unsent = 0
        """Bytes that the client had not read when that was last checked."""
        self._head_size = 0
        self._discards_input = False
        self._lingers = False
        """The last response is complete, but its client may still be sending the body."""
        self._running: RequestResponseCycle | None = None
        """The last request that was given to the application; others may wait for its response."""

    # The connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._running:
            # uvicorn notifies only the last request, which may wait for this one.
            _disconnect(self._running)
        for alarm in (self._request_alarm, self._reading_alarm, self._probe_alarm):
            self._ticker.unset(alarm)
            # Break the reference cycle so that memory is freed at once.
            alarm.ring = _do_nothing

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep a half-closed connection until the response is sent.

        A client that has closed the whole connection looks the same until something is sent to it,
        which makes its machine reset the connection. So a few bytes without a meaning are sent.
        """
        cycle = self._open_cycle
        if cycle is None or cycle.more_body:
            return False
        cycle.keep_alive = False
        self._probe_intervals = iter(_PROBE_INTERVALS)
        self._probe()
        return True

    def _probe(self) -> None:
        cycle = self._running
        if cycle is None or cycle.response_complete or self.transport.is_closing():
            return
        if cycle.scope["http_version"] == "1.1" and not cycle.response_started:
            self.transport.write(_CONTINUE)
        elif cycle.chunked_encoding:
            self.transport.write(_LEADING_ZERO)
        if interval := next(self._probe_intervals, None):
            self._set_alarm(self._probe_alarm, interval)

    def _expect_request(self) -> None:
        self._set_alarm(self._request_alarm, REQUEST_TIMEOUT)

    def _set_alarm(self, alarm: Alarm, seconds: float) -> None:
        alarm.at = perf_counter() + seconds
        self._ticker.set(alarm)

    def _close(self) -> None:
        if self.transport.get_write_buffer_size():
            # Closing waits until everything is sent, and nobody may be reading.
            self.transport.abort()
        self.transport.close()

    @property
    def _open_cycle(self) -> RequestResponseCycle | None:
        """The last request, if its response is not complete."""
        cycle: Any = self.cycle
        return cycle if cycle and not cycle.response_complete else None

    # Requests.

    def data_received(self, data: bytes) -> None:
        if self._discards_input:
            return
        self._head_size += len(data)
        try:
            while data:
                data = self._parse(data)
        except httptools.HttpParserError as problem:
            self.send_400_response(f"{_INVALID_REQUEST}: {problem}")
        if self._head_size > MAX_HEAD:
            message = f"the request has more than {MAX_HEAD} bytes of headers or trailers"
            self._refuse(Failure("too_large", message, 431))

    def _parse(self, data: bytes) -> bytes:
        """Return what is to be parsed next: the parser stops at a request for another protocol."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return self._encode_without_upgrade() + data[upgrade.args[0] :]
        return b""

    def _encode_without_upgrade(self) -> bytes:
        """Return the head again, without the headers that ask for another protocol."""
        headers = [pair for pair in self.headers if pair[0].lower() not in _UPGRADE_HEADERS]
        if not self.parser.should_keep_alive():
            headers.append((b"connection", b"close"))
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b\r\n" % header for header in headers]
        self.parser = httptools.HttpRequestParser(self)
        return b"".join((*lines, b"\r\n"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._unset_keepalive_if_required()
        self._head_size = 0
        if self._open_cycle is None:
            self._expect_request()

    def on_headers_complete(self) -> None:
        if self.parser.get_method() == b"CONNECT":
            self.send_400_response(_IS_PROXY_REQUEST)
            raise httptools.HttpParserError
        if self.parser.should_upgrade():
            return
        self._ticker.unset(self._request_alarm)
        super().on_headers_complete()
        # What comes after the body is not part of the head.
        self.headers = []
        if self.cycle.scope["http_version"] != "1.1":
            self.cycle.waiting_for_100_continue = False

    def on_body(self, body: bytes) -> None:
        self._head_size = 0
        super().on_body(body)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        if cycle.waiting_for_100_continue or not cycle.keep_alive:
            app = partial(self._serve_last, cycle)
        super()._start_asgi_task(cycle, app)

    async def _serve_last(
        self, cycle: RequestResponseCycle, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve a request after which the connection may have to be closed: the client has asked
        for that, or its body is refused before it is sent, and may follow or not."""
        is_old = scope["http_version"] != "1.1"

        async def send_last(message: Message) -> None:
            if not cycle.response_started:
                if cycle.waiting_for_100_continue:
                    cycle.keep_alive = False
                if is_old:
                    # It knows no chunks: the end of the connection is the end of the body.
                    cycle.chunked_encoding = False
            else:
                if is_old:
                    cycle.expected_content_length = len(message.get("body", b""))
                if not message.get("more_body") and cycle.more_body and not cycle.keep_alive:
                    # Closing the connection while the client sends the body would reset it.
                    cycle.keep_alive = self._lingers = True
            await send(message)

        await self.app(scope, receive, send_last)

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        cycle = self._running
        super().on_response_complete()
        if self._lingers:
            self._discards_input = True
            self._set_alarm(self._request_alarm, _LINGER)
        elif cycle and cycle.more_body:
            # The rest of the body is read and discarded, but not for ever.
            self._expect_request()

    # Errors.

    def send_400_response(self, msg: str) -> None:
        self._refuse(Failure("bad_request", msg, 400))

    def _refuse(self, failure: Failure) -> None:
        """Respond with an error, if no response is in progress; read no more requests."""
        if self._discards_input:
            return
        self._discards_input = True
        cycle = self._open_cycle
        if cycle and cycle.more_body and cycle is not self._running:
            # It waits for another response, and is not served.
            self.pipeline.popleft()
            self.cycle = cycle = self.pipeline[0][0] if self.pipeline else self._running  # type: ignore[assignment]
        if cycle and (cycle.response_started or not cycle.more_body):
            cycle.keep_alive = False
            return
        if not self.transport.is_closing():
            body = encode_json(get_wire("openai_chat").encode_failure(failure))
            head = (
                f"HTTP/1.1 {failure.status} {_REASONS[failure.status]}\r\n"
                f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
                "connection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
            self._set_alarm(self._request_alarm, _LINGER)
        if cycle:
            # The application waits for the rest of the body.
            _disconnect(cycle)

    # Clients that do not read.

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._ticker.unset(self._reading_alarm)

    def _watch_reading(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        self._set_alarm(self._reading_alarm, REQUEST_TIMEOUT)

    def _check_reading(self) -> None:
        """Disconnect a client that has read nothing since the last check."""
        if self.transport.get_write_buffer_size() < self._unsent:
            self._watch_reading()
        else:
            self.transport.abort()


def _disconnect(cycle: RequestResponseCycle) -> None:
    cycle.disconnected = True
    cycle.message_event.set()


_REASONS = {400: "Bad Request", 431: "Request Header Fields Too Large"}


def _do_nothing() -> None:
    """Replace the callback of a connection that is closed."""
