"""A reply on its way to a client, as it comes.

Nothing leaves before the model has said something: until then a failure can still have a status of
its own, and another upstream can be asked. A client that waits for long gets pings, if its API
knows any; from then on a failure is part of the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

from ..events import Event
from ..types import Failure
from ..upstream.timers import Alarm, Ticker
from ..wires import StreamEncoder
from .http import Sender

_COMMENT = b": keep-alive\n\n"
PINGS = {
    "openai_chat": _COMMENT,
    "openai_responses": _COMMENT,
    "anthropic": b'event: ping\ndata: {"type": "ping"}\n\n',
}
"""What may be sent to a client that waits; nothing where it could not be told from the reply."""


class Outflow:
    """Writes events into the answer to a request."""

    def __init__(
        self,
        sender: Sender,
        encoder: StreamEncoder,
        content_type: str,
        say: Callable[[], None],
        ticker: Ticker,
    ) -> None:
        self._sender = sender
        self._encoder = encoder
        self._content_type = content_type
        self._say = say
        """Puts into the headers what is known by then."""
        self._sent_at = perf_counter()
        self._ticker = ticker
        self._alarm: Alarm | None = None
        self._pinging: asyncio.Task[None] | None = None
        self.has_spoken = False
        """Something of the reply has left."""
        sender.told = encoder.feed

    def keep_alive(self, ping: bytes, every: float) -> None:
        """Send that whenever nothing was sent for so long."""
        if ping:
            # Most replies come sooner, and need no task.
            self._alarm = Alarm(lambda: self._begin_to_ping(ping, every), self._sent_at + every)
            self._ticker.set(self._alarm)

    def stop(self) -> None:
        """Send no more pings."""
        if self._alarm:
            self._ticker.unset(self._alarm)
            # It knows us, and we would wait for the collector of garbage together.
            self._alarm = None
        if self._pinging:
            self._pinging.cancel()

    async def send(
        self, events: list[Event], forwarded: bytes | None = None, now: float | None = None
    ) -> None:
        """Send what happens; as it came, if that is given. Then only a failure has to be told."""
        self.has_spoken = True
        data = forwarded
        if data is None:
            data = b"".join(map(self._encoder.feed, events))
        else:
            # The encoder has to know what was said, for the failure that may come to go on from it.
            for event in events:
                told = self._encoder.feed(event)
                data += told if isinstance(event, Failure) else b""
        if not self._sender.has_begun:
            await self._begin()
        if data:
            self._sent_at = now = now or perf_counter()
            await self._sender.more(data, now)

    async def end(self) -> None:
        """That was all."""
        self.stop()
        await self._sender.end()

    async def _begin(self) -> None:
        self._say()
        self._sender.headers["cache-control"] = "no-cache"
        await self._sender.begin(200, self._content_type)

    def _begin_to_ping(self, ping: bytes, every: float) -> None:
        self._pinging = self._ticker.loop.create_task(self._pings(ping, every))

    async def _pings(self, ping: bytes, every: float) -> None:
        while True:
            left = self._sent_at + every - perf_counter()
            if left <= 0:
                if not self._sender.has_begun:
                    await self._begin()
                self._sent_at = perf_counter()
                await self._sender.more(ping, self._sent_at)
            else:
                await asyncio.sleep(left)
