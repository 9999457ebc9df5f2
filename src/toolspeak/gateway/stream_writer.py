"""Sends a streamed reply to the client.

The response does not begin before the reply has content: until then, a failure can still have its
own status, and another upstream can be asked. A client that waits long gets pings, if its API has
any; from then on, a failure is part of the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

from ..events import Event
from ..types import Failure
from ..upstream.timers import Alarm, Ticker
from ..wires import StreamEncoder
from .http import HttpResponse

_COMMENT = b": keep-alive\n\n"
PINGS = {
    "openai_chat": _COMMENT,
    "openai_responses": _COMMENT,
    "anthropic": b'event: ping\ndata: {"type": "ping"}\n\n',
}
"""The ping of each API that has one."""


class StreamWriter:
    """Encodes events and sends them as the body of a response."""

    def __init__(
        self,
        response: HttpResponse,
        encoder: StreamEncoder,
        content_type: str,
        set_headers: Callable[[], None],
        ticker: Ticker,
    ) -> None:
        self._response = response
        self._encoder = encoder
        self._content_type = content_type
        self._set_headers = set_headers
        """Sets the headers that describe the reply, when the response begins."""
        self._sent_at = perf_counter()
        self._ticker = ticker
        self._alarm: Alarm | None = None
        self._pinging: asyncio.Task[None] | None = None
        response.encode_failure = encoder.feed

    def keep_alive(self, ping: bytes, interval: float) -> None:
        """Send a ping whenever nothing was sent for this time."""
        if ping:
            # Most replies come sooner, and need no task.
            self._alarm = Alarm(
                lambda: self._start_pinging(ping, interval), self._sent_at + interval
            )
            self._ticker.set(self._alarm)

    def stop(self) -> None:
        """Send no more pings."""
        if self._alarm:
            self._ticker.unset(self._alarm)
            # Break the reference cycle so that memory is freed at once.
            self._alarm = None
        if self._pinging:
            self._pinging.cancel()

    async def send(
        self, events: list[Event], forwarded: bytes | None = None, now: float | None = None
    ) -> None:
        """Send events. If `forwarded` is given, send these bytes and encode only a failure."""
        data = forwarded
        if data is None:
            data = b"".join(map(self._encoder.feed, events))
        else:
            # A failure continues the stream, so the encoder must see everything before it.
            for event in events:
                encoded = self._encoder.feed(event)
                data += encoded if isinstance(event, Failure) else b""
        if not self._response.has_begun:
            await self._begin()
        if data:
            self._sent_at = now = now or perf_counter()
            await self._response.send_chunk(data, now)

    async def end(self) -> None:
        """End the response."""
        self.stop()
        await self._response.end()

    async def _begin(self) -> None:
        self._set_headers()
        self._response.headers["cache-control"] = "no-cache"
        await self._response.begin(200, self._content_type)

    def _start_pinging(self, ping: bytes, interval: float) -> None:
        self._pinging = self._ticker.loop.create_task(self._send_pings(ping, interval))
        # The task that reads the reply is told about a disconnected client, too.
        self._pinging.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _send_pings(self, ping: bytes, interval: float) -> None:
        while True:
            left = self._sent_at + interval - perf_counter()
            if left <= 0:
                if not self._response.has_begun:
                    await self._begin()
                self._sent_at = perf_counter()
                await self._response.send_chunk(ping, self._sent_at)
            else:
                await asyncio.sleep(left)
