"""The requests that are under way, and the last ones that are over: so many, and so many bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from time import time
from typing import Any, TypeVar

from ..flow import Flow, Kept, Room
from ..record import Record
from .trace import Summary, Trace, asked, frozen, traced

_TICK = 1e-6
_A_RECORD = 4000
"""Bytes that Python itself needs for one, or for a question in one, about."""
_Any = TypeVar("_Any", bound=tuple[Any, ...])


class Ring:
    """What one process keeps."""

    def __init__(self, most: int = 1000, max_bytes: int = 32 * 2**20) -> None:
        self.most = most
        self.max_bytes = max_bytes
        self.room = Room(_for_active(max_bytes))
        self._active: dict[str, tuple[Record, Kept]] = {}
        self._kept: OrderedDict[str, tuple[Record, Kept, int]] = OrderedDict()
        """With the bytes of each; the one that ended last is last."""
        self.size = 0
        """Bytes of all that is kept, about."""
        self._changed = 0.0
        self._summaries: dict[str, Summary] = {}
        """Those of requests that are over, once somebody has looked."""

    def resize(self, most: int, max_bytes: int) -> None:
        """Keep so many from now on."""
        self.room.left += _for_active(max_bytes) - _for_active(self.max_bytes)
        self.most, self.max_bytes = most, max_bytes

    def begin(self, record: Record, kept: Kept) -> None:
        """A request is under way."""
        kept.changed = self._now()
        self._active[kept.key] = record, kept

    def end(self, record: Record, kept: Kept) -> None:
        """It is over."""
        self._active.pop(kept.key, None)
        heard = record.heard
        kept.received.room.left += kept.received.weight + heard
        kept.asked = asked(record.request)
        record.forget()
        kept.changed = self._now()
        self.keep(record, kept, heard)

    def keep(self, record: Record, kept: Kept, heard: int = 0) -> None:
        """One that is over; the oldest have to go if there is no room for it."""
        # What was understood of a reply is kept beside its bytes.
        size = kept.received.weight + 2 * heard + _A_RECORD * (1 + len(record.questions))
        if size > self.max_bytes:
            kept.received = Flow(record.began, self.room, lost=kept.received.size)
            record.questions, kept.body, size = [], b"", _A_RECORD
        self._kept[kept.key] = record, kept, size
        self.size += size
        while self.size > self.max_bytes or len(self._kept) > self.most:
            key, (_, _, oldest) = self._kept.popitem(last=False)
            self.size -= oldest
            self._summaries.pop(key, None)

    def get(self, key: str) -> Trace | None:
        """The request of that key, or the last one that its client calls so."""
        active = self._active.get(key) or _named(key, self._active)
        if active:
            return frozen(traced(*active))
        found = self._kept.get(key) or _named(key, self._kept)
        return traced(*found[:2]) if found else None

    @property
    def changed(self) -> float:
        """When something was last new."""
        return self._changed

    @property
    def is_busy(self) -> bool:
        """Whether requests are under way, of which there may always be something new."""
        return bool(self._active)

    def summaries(self, after: float = 0.0) -> list[Summary]:
        """Those that have ended since then, the oldest first; and all that are under way."""
        new: list[Summary] = []
        for record, kept, _ in reversed(self._kept.values()):
            if kept.changed <= after:
                break
            new.append(self._summary(record, kept))
        new.reverse()
        return [*new, *(traced(*one).summary for one in self._active.values())]

    def _summary(self, record: Record, kept: Kept) -> Summary:
        if kept.key not in self._summaries:
            self._summaries[kept.key] = traced(record, kept).summary
        return self._summaries[kept.key]

    def _now(self) -> float:
        """The time, but never the same twice: so nothing is missed that is newer than another."""
        now = time()
        if now <= self._changed:
            now = self._changed + _TICK
        self._changed = now
        return now


def _named(identity: str, requests: Mapping[str, _Any]) -> _Any | None:
    """The last one that its client calls so."""
    newest = reversed(list(requests.values()))
    return next((one for one in newest if one[0].id == identity), None)


def _for_active(max_bytes: int) -> int:
    """The room for requests that are under way. One that takes all of it can still be kept."""
    return max_bytes * 3 // 4
