"""The requests that are under way, and the last ones that are over: so many, and so many bytes."""

from __future__ import annotations

from collections import OrderedDict
from time import time
from typing import Any

import msgspec
from msgspec import Struct

from .trace import Summary, Trace, packed, unpacked

_TICK = 1e-6


class _Kept(Struct, frozen=True, gc=False):
    """A request that is over, in one piece."""

    key: str
    id: str
    changed: float
    data: bytes


class Ring:
    """The traces of one process."""

    def __init__(self, most: int = 1000, max_bytes: int = 32 * 2**20) -> None:
        self.most = most
        self.max_bytes = max_bytes
        self._active: dict[str, Trace] = {}
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        """The one that ended last is last."""
        self.size = 0
        """Bytes of all that is kept."""
        self.changed = 0.0
        """When something was last new, in seconds since 1970. It only grows."""
        self._summaries: dict[str, Summary] = {}
        """Those of requests that are over, once somebody has looked."""

    def begin(self, trace: Trace) -> None:
        """A request is under way."""
        trace.changed = self._now()
        self._active[trace.key] = trace

    def end(self, trace: Trace) -> None:
        """It is over; the oldest have to go if there is no room for it."""
        self._active.pop(trace.key, None)
        trace.changed = self._now()
        data = _packed(trace)
        if len(data) > self.max_bytes:
            trace.turns, trace.received, trace.body = [], [], b""
            data = _packed(trace)
        self._kept[trace.key] = _Kept(trace.key, trace.id, trace.changed, data)
        self.size += len(data)
        while self.size > self.max_bytes or len(self._kept) > self.most:
            key, oldest = self._kept.popitem(last=False)
            self.size -= len(oldest.data)
            self._summaries.pop(key, None)

    def get(self, key: str) -> Trace | None:
        """The request of that key, or the last one that its client calls so."""
        if key in self._active:
            return self._active[key]
        if key in self._kept:
            return unpacked(self._kept[key].data)
        for trace in reversed(self._active.values()):
            if trace.id == key:
                return trace
        for kept in reversed(self._kept.values()):
            if kept.id == key:
                return unpacked(kept.data)
        return None

    def summaries(self, after: float = 0.0) -> list[Summary]:
        """What has changed since then, the oldest first."""
        new: list[Summary] = []
        for kept in reversed(self._kept.values()):
            if kept.changed <= after:
                break
            new.append(self._summary(kept))
        new.reverse()
        active = [one.summary for one in self._active.values() if one.changed > after]
        return [*new, *active]

    def _summary(self, kept: _Kept) -> Summary:
        if kept.key not in self._summaries:
            self._summaries[kept.key] = unpacked(kept.data).summary
        return self._summaries[kept.key]

    def _now(self) -> float:
        """The time, but never the same twice: so nothing is missed that is newer than another."""
        self.changed = max(time(), self.changed + _TICK)
        return self.changed


def _packed(trace: Trace) -> bytes:
    try:
        return packed(trace)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError):
        # Half a surrogate pair, say, or a number of a hundred digits.
        plain = msgspec.to_builtins(trace, builtin_types=(bytes,))
        return packed(msgspec.convert(_storable(plain), Trace))


def _storable(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case int() if not -(2**63) <= value < 2**63:
            return float(value) if abs(value) < 2**1000 else str(value)
        case dict():
            return {_storable(key): _storable(item) for key, item in value.items()}
        case list() | tuple():
            return [_storable(item) for item in value]
        case _:
            return value
