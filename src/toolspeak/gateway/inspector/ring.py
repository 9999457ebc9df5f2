"""The requests that are under way, and the last ones that are over: so many, and so many bytes."""

from __future__ import annotations

from collections import OrderedDict
from time import time

from msgspec import structs

from ..flow import Flow, Kept, Room
from ..record import Record
from .trace import Summary, Trace, frozen, traced

_TICK = 1e-6


class Ring:
    """What one process keeps."""

    def __init__(self, most: int = 1000, max_bytes: int = 32 * 2**20) -> None:
        self.most = most
        self.max_bytes = max_bytes
        self.room = Room(_for_active(max_bytes))
        self._active: dict[str, tuple[Record, Kept]] = {}
        self._kept: OrderedDict[str, Trace] = OrderedDict()
        """The one that ended last is last."""
        self._sizes: dict[str, int] = {}
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
        kept.changed = self._now()
        kept.received.room.left += record.weight
        self.keep(traced(record, kept))

    def keep(self, trace: Trace) -> None:
        """One that is over; the oldest have to go if there is no room for it."""
        size = trace.size
        if size > self.max_bytes:
            received = Flow(0.0, trace.received.room, lost=trace.received.size)
            trace = structs.replace(trace, turns=(), body=b"", received=received)
            size = trace.size
        self._kept[trace.key] = trace
        self._sizes[trace.key] = size
        self.size += size
        while self.size > self.max_bytes or len(self._kept) > self.most:
            key, _ = self._kept.popitem(last=False)
            self.size -= self._sizes.pop(key)
            self._summaries.pop(key, None)

    def get(self, key: str) -> Trace | None:
        """The request of that key, or the last one that its client calls so."""
        if key in self._kept:
            return self._kept[key]
        active = self._active.get(key)
        if active is None:
            named = (one for one in reversed(self._active.values()) if one[0].id == key)
            active = next(named, None)
        if active:
            return frozen(traced(*active))
        return next((one for one in reversed(self._kept.values()) if one.id == key), None)

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
        for trace in reversed(self._kept.values()):
            if trace.changed <= after:
                break
            new.append(self._summary(trace))
        new.reverse()
        return [*new, *(traced(*one).summary for one in self._active.values())]

    def _summary(self, trace: Trace) -> Summary:
        if trace.key not in self._summaries:
            self._summaries[trace.key] = trace.summary
        return self._summaries[trace.key]

    def _now(self) -> float:
        """The time, but never the same twice: so nothing is missed that is newer than another."""
        now = time()
        if now <= self._changed:
            now = self._changed + _TICK
        self._changed = now
        return now


def _for_active(max_bytes: int) -> int:
    """The room for requests that are under way. One that takes all of it can still be kept."""
    return max_bytes * 3 // 4
