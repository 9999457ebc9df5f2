"""Entries of a store: their content, the operations on it, and the entries of one process."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from math import inf, isfinite

from msgspec import Struct

from ..config.settings import StoreLimits

ENTRY_BYTES = 300
"""Approximate overhead of an entry in Python."""
PART_BYTES = 100
"""Approximate overhead of an item of a list, or of a counter."""
BATCH_SECONDS = 24 * 3600.0
"""How long the number of a writer's last batch is remembered."""

Content = bytes | list[bytes] | dict[str, float]
"""A value, a list (the newest item is first) or counters."""


class Entries(ABC):
    """The operations of `Store`, on entries that a subclass reads and writes."""

    def __init__(self, limits: StoreLimits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now

    @abstractmethod
    def _read(self, key: str) -> Content | None:
        """Return the content of a key that has not expired."""

    @abstractmethod
    def _write(self, key: str, content: Content, deadline: float) -> None:
        """Replace the content of a key, and evict other entries if the store is full."""

    @abstractmethod
    def delete(self, key: str) -> None: ...

    def get(self, key: str) -> bytes | None:
        content = self._read(key)
        return content if isinstance(content, bytes) else None

    def put_many(self, values: Mapping[str, bytes], seconds: float) -> None:
        deadline = self._now() + seconds
        for key, value in values.items():
            self._write(key, value, deadline)

    def push(self, key: str, value: bytes, max_items: int, seconds: float) -> None:
        items = self._read(key)
        if items is None or isinstance(items, list):
            self._write(key, [value, *(items or ())][:max_items], self._now() + seconds)

    def list_items(self, key: str) -> list[bytes]:
        content = self._read(key)
        return list(content) if isinstance(content, list) else []

    def increment(self, key: str, amounts: Mapping[str, float], writer: str, batch: int) -> None:
        if writer:
            last_batch, number = f"{key}:{writer}", str(batch).encode()
            if self.get(last_batch) == number:
                return
            self.put_many({last_batch: number}, BATCH_SECONDS)
        sums = self._read(key)
        if sums is None or isinstance(sums, dict):
            sums = dict(sums or {})
            for name, amount in finite_amounts(amounts).items():
                sums[name] = sums.get(name, 0.0) + amount
            if sums:
                self._write(key, sums, inf)

    def read_counters(self, key: str) -> dict[str, float]:
        content = self._read(key)
        return dict(content) if isinstance(content, dict) else {}

    def ping(self) -> bool:
        return True


def finite_amounts(amounts: Mapping[str, float]) -> dict[str, float]:
    """Leave out infinite amounts, which would make a counter useless for good."""
    return {name: amount for name, amount in amounts.items() if isfinite(amount)}


class _Entry(Struct, frozen=True, gc=False):
    """Content with its size and deadline. Not tracked by the garbage collector: there may be many,
    and none refers to another."""

    content: Content
    size: int
    deadline: float


class MemoryEntries(Entries):
    """Entries in this process. The least recently used ones are evicted first.

    An entry that is larger than the limit is not stored. Expired entries are removed when they are
    read or evicted.
    """

    def __init__(self, limits: StoreLimits, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(limits, now)
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        """The least recently used one is first."""
        self.size = 0
        """Approximate size in bytes."""

    def delete(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size -= entry.size

    def clear(self) -> None:
        self._entries.clear()
        self.size = 0

    def _read(self, key: str) -> Content | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.deadline <= self._now():
            self.delete(key)
            return None
        self._entries.move_to_end(key)
        return entry.content

    def _write(self, key: str, content: Content, deadline: float) -> None:
        self.delete(key)
        size = _size(key, content)
        if size > self._limits.bytes:
            return
        self._entries[key] = _Entry(content, size, deadline)
        self.size += size
        while self.size > self._limits.bytes or len(self._entries) > self._limits.entries:
            _, oldest = self._entries.popitem(last=False)
            self.size -= oldest.size


def _size(key: str, content: Content) -> int:
    """Return the approximate size of an entry."""
    size = ENTRY_BYTES + _utf8_length(key)
    match content:
        case bytes():
            return size + len(content)
        case list():
            return size + sum(len(item) + PART_BYTES for item in content)
        case dict():
            return size + sum(_utf8_length(name) + PART_BYTES for name in content)


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
