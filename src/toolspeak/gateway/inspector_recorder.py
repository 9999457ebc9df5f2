"""Keeps what happens to requests, for whoever may look at it."""

from __future__ import annotations

import asyncio
from typing import Any

from ..calls.drafts import new_call_id
from ..config.settings import Config, configured_secrets
from ..observe.inspector.approvals import Desk
from ..observe.inspector.masking import Covering
from ..observe.inspector.request_log import Ring
from ..observe.inspector.sharing import Sharing
from ..observe.inspector.summary import Summary, summary_of
from ..observe.inspector.view import View, discreet
from ..store.base import Store
from ..upstream.capture import Kept
from ..upstream.record import RequestRecord
from .http import Incoming, Sender


class Recorder:
    """What there is to look at: requests, and questions that somebody has to answer."""

    def __init__(self, config: Config, store: Store, *, is_shared: bool, epoch: str) -> None:
        self._ring = Ring()
        self.end = self._ring.end
        """A request is over."""
        self.desk = Desk(store)
        self.use(config)
        self.epoch = epoch
        """Tells one life of the gateway from another."""
        self._sharing = Sharing(self._ring, store, self._shown, self._own) if is_shared else None

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
        self._known = frozenset(configured_secrets(config))

    def begin(self, record: RequestRecord, incoming: Incoming, sender: Sender) -> None:
        """A request has come in: keep the bytes that go each way."""
        ring, headers = self._ring, incoming.headers
        # Clients may say the same twice.
        key = f"req_{new_call_id()[5:]}" if "x-request-id" in headers else record.id
        record.capture = incoming.copy = sender.copy = Kept(
            record.started,
            ring.room,
            key=key,
            target=incoming.target,
            headers=headers,
            changed=record.received_at,
        )
        ring.active[key] = record

    async def summaries(self, after: float = 0.0) -> list[Summary]:
        """What has ended since then, the oldest first; and all that is under way. If processes
        share what they show, all that there is: their clocks may differ."""
        if self._sharing:
            return await self._sharing.summaries()
        return await self._own(after)

    async def shown(self, key: str) -> dict[str, Any] | None:
        """One request, by its key or by what its client calls it."""
        shown = await self._shown(key)
        if shown is None and self._sharing:
            return await self._sharing.shown(key)
        return shown

    # What takes its time is done beside the event loop: others need not wait for it.

    async def _own(self, after: float = 0.0) -> list[Summary]:
        """The requests of this process, without secrets."""
        active = list(self._ring.active.values())

        def summaries() -> list[Summary]:
            own = [one.summary for one in self._ring.over() if one.summary.changed > after]
            # One that has ended by now is told of the next time, with all that ended before it.
            own += [one for one in map(summary_of, active) if not one.is_over]
            return [discreet(one, Covering(self._known)) for one in own]

        is_new = bool(active) or self._ring.changed > after
        return await asyncio.to_thread(summaries) if is_new else []

    async def _shown(self, key: str) -> dict[str, Any] | None:
        active = self._ring.snapshot(key)

        def shown() -> dict[str, Any] | None:
            record = self._ring.find(key, active)
            return View(record, self._known).shown() if record else None

        return await asyncio.to_thread(shown)
