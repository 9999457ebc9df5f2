"""Keeps what happens to requests, for whoever may look at it."""

from __future__ import annotations

import asyncio
from typing import Any

from ...calls import new_id
from ..flow import Flow, Kept
from ..http import Incoming, Sender
from ..record import Record
from ..settings import Config, secrets_of
from ..store import Store
from .covering import Covering
from .desk import Desk
from .ring import Ring
from .sharing import Sharing
from .trace import Summary
from .view import View, discreet

_MANY = 50
"""Whoever has so many requests to look through does it beside the others."""


class Recorder:
    """What there is to look at: requests, and questions that somebody has to answer."""

    def __init__(self, config: Config, store: Store, *, is_shared: bool, epoch: str) -> None:
        self._ring = Ring()
        self.desk = Desk(store)
        self.use(config)
        self.epoch = epoch
        """Tells one life of the gateway from another."""
        self._sharing = Sharing(self._ring, store, self._own, self._cover) if is_shared else None

    def start(self) -> None:
        """Listen for others who look."""
        if self._sharing:
            self._sharing.start()

    def stop(self) -> None:
        if self._sharing:
            self._sharing.stop()

    def use(self, config: Config) -> None:
        """Keep as much as that says."""
        self._ring.resize(config.inspector.requests, config.inspector.bytes)
        self._known = frozenset(secrets_of(config))

    def begin(self, record: Record, incoming: Incoming, sender: Sender) -> None:
        """A request has come in: keep the bytes that go each way."""
        is_theirs = "x-request-id" in incoming.headers
        # Clients may say the same twice.
        key = f"req_{new_id()[5:]}" if is_theirs else record.id
        received = Flow(record.began, self._ring.room)
        headers = incoming.headers if received.holds(incoming.header_size) else {}
        kept = record.kept = Kept(key, incoming.target, headers, received)
        incoming.on_body, sender.copy = kept.take_body, received
        self._ring.begin(record, kept)

    def end(self, record: Record) -> None:
        """It is over."""
        if record.kept:
            self._ring.end(record, record.kept)

    def keep(self, record: Record, kept: Kept) -> None:
        """A request that is over, whoever has served it."""
        self._ring.keep(record, kept)

    async def summaries(self, after: float = 0.0) -> list[Summary]:
        """What has ended since then, the oldest first; and all that is under way. If processes
        share what they show, all that there is: their clocks may differ."""
        if self._sharing:
            return await self._sharing.summaries()
        new = self._ring.summaries(after)
        if len(new) > _MANY:
            return await asyncio.to_thread(lambda: list(map(self._cover, new)))
        return list(map(self._cover, new))

    async def shown(self, key: str) -> dict[str, Any] | None:
        """One request, by its key or by what its client calls it."""
        shown = await self._own(key)
        if shown is None and self._sharing:
            return await self._sharing.shown(key)
        return shown

    async def _own(self, key: str) -> dict[str, Any] | None:
        trace = self._ring.get(key)
        if trace is None:
            return None
        # A long one takes its time, all of it beside the event loop: others need not wait for it.
        return await asyncio.to_thread(lambda: View(trace, self._known).shown())

    def _cover(self, summary: Summary) -> Summary:
        return discreet(summary, Covering(self._known))
