"""The requests that are under way, and the last ones that are over: so many, and so many bytes."""

from __future__ import annotations

from collections import OrderedDict
from time import time

from .trace import Room, Summary, Trace

_TICK = 1e-6


class Ring:
    """The traces of one process."""

    def __init__(self, most: int = 1000, max_bytes: int = 32 * 2**20) -> None:
        self.most = most
        self.max_bytes = max_bytes
        self.room = Room(_for_active(max_bytes))
        self._active: dict[str, Trace] = {}
        self._kept: OrderedDict[str, Trace] = OrderedDict()
        """The one that ended last is last."""
        self.size = 0
        """Bytes of all that is kept, about."""
        self._changed = 0.0
        self._summaries: dict[str, Summary] = {}
        """Those of requests that are over, once somebody has looked."""

    def resize(self, most: int, max_bytes: int) -> None:
        """Keep so many from now on."""
        self.room.left += _for_active(max_bytes) - _for_active(self.max_bytes)
        self.most, self.max_bytes = most, max_bytes

    def begin(self, trace: Trace) -> None:
        """A request is under way."""
        trace.changed = self._now()
        self._active[trace.key] = trace

    def end(self, trace: Trace) -> None:
        """It is over; the oldest have to go if there is no room for it."""
        self._active.pop(trace.key, None)
        trace.leave()
        trace.changed = self._now()
        if trace.size > self.max_bytes:
            trace.drop()
        self._kept[trace.key] = trace
        self.size += trace.size
        while self.size > self.max_bytes or len(self._kept) > self.most:
            key, oldest = self._kept.popitem(last=False)
            self.size -= oldest.size
            self._summaries.pop(key, None)

    def get(self, key: str) -> Trace | None:
        """The request of that key, or the last one that its client calls so."""
        if found := self._active.get(key) or self._kept.get(key):
            return found
        for traces in (self._active, self._kept):
            for trace in reversed(traces.values()):
                if trace.id == key:
                    return trace
        return None

    def summaries(self, after: float = 0.0) -> list[Summary]:
        """What has changed since then, the oldest first."""
        new: list[Summary] = []
        for trace in reversed(self._kept.values()):
            if trace.changed <= after:
                break
            new.append(self._summary(trace))
        new.reverse()
        active = [one.summary for one in self._active.values() if one.changed > after]
        return [*new, *active]

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
