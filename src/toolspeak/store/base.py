"""Stores for what the gateway remembers between requests.

    store = open_store("memory")
    await store.put("greeting", b"hello", seconds=60)
    await store.get("greeting")  # b"hello", and None after a minute

memory         this process                      here
sqlite:PATH    the processes of one machine      sqlite.py, temporary.py
redis://…      gateways on several machines      redis.py

The gateway works without any of this data: a store may lose it at any time.
"""

from __future__ import annotations

import hashlib
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from math import inf, isfinite
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..config.settings import REDIS_SCHEMES, SQLITE_PREFIX, StoreLimits, find_store_problem
from ..errors import UsageError

DEFAULT_LIMITS = StoreLimits()


class Store(ABC):
    """Values, lists and counters under keys.

    A key holds one of these kinds. Operations of another kind find nothing there, and what they
    write is dropped; only `put` overwrites. If the store is unavailable, reads find nothing and
    writes are dropped.
    """

    last_error: str | None = None
    """Why the last operation failed or was not tried; None if it succeeded."""
    error_count = 0
    """The number of operations that have failed."""

    def __init__(self, limits: StoreLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self.on_problem: Callable[[str], None] = lambda kind: None
        """Called with `failed` (an operation), `outage` (its start) or `too-large` (a value)."""

    @property
    def is_available(self) -> bool:
        """False from the first operation that fails until one of the same kind succeeds."""
        return True

    @abstractmethod
    async def _run(self, name: str, *arguments: Any) -> Any:
        """Run an operation of `Entries`; return None if the store is unavailable."""

    async def get(self, key: str) -> bytes | None:
        return await self._run("get", key)

    async def put(self, key: str, value: bytes, seconds: float) -> None:
        """Put a value. One that is too large is not stored; an earlier value is deleted."""
        await self.put_many({key: value}, seconds)

    async def put_many(self, values: Mapping[str, bytes], seconds: float) -> None:
        """Put several values at once; the last of them is evicted last."""
        fitting = {key: value for key, value in values.items() if self._fits(value)}
        if fitting:
            await self._run("put_many", fitting, seconds)
        for key in values.keys() - fitting.keys():
            await self.delete(key)

    async def delete(self, key: str) -> None:
        await self._run("delete", key)

    async def push(self, key: str, value: bytes, *, max_items: int, seconds: float) -> None:
        """Put a value in front of a list, which keeps the newest `max_items` and expires
        `seconds` after the last push."""
        if self._fits(value):
            await self._run("push", key, value, max_items, seconds)

    async def list_items(self, key: str) -> list[bytes]:
        """Return the values that were pushed, the newest first."""
        return await self._run("list_items", key) or []

    async def increment(
        self, key: str, amounts: Mapping[str, float], *, writer: str = "", batch: int = 0
    ) -> None:
        """Add to counters, which do not expire. Processes that share the store share the sums.

        A writer that cannot know whether its last batch was added may send it again: amounts with
        the number of the writer's last batch are not added twice.
        """
        await self._run("increment", key, amounts, writer, batch)

    async def read_counters(self, key: str) -> dict[str, float]:
        return await self._run("read_counters", key) or {}

    async def ping(self) -> bool:
        """Return True if the store can be reached now."""
        return bool(await self._run("ping"))

    @abstractmethod
    async def close(self) -> None: ...

    def _fits(self, value: bytes) -> bool:
        if len(value) <= min(self._limits.value_bytes, self._limits.bytes):
            return True
        self.on_problem("too-large")
        return False


class MemoryStore(Store):
    """A store in this process."""

    def __init__(
        self, limits: StoreLimits = DEFAULT_LIMITS, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(limits)
        self._entries = MemoryEntries(limits, now)

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return self._entries.size

    async def _run(self, name: str, *arguments: Any) -> Any:
        return getattr(self._entries, name)(*arguments)

    async def close(self) -> None:
        self._entries.clear()


def open_store(setting: str, limits: StoreLimits = DEFAULT_LIMITS) -> Store:
    """Return the store for the setting `store`."""
    if problem := find_store_problem(setting):
        raise UsageError(problem)
    if setting.startswith(REDIS_SCHEMES):
        try:
            from .redis import RedisStore
        except ImportError:
            raise UsageError(
                "a store in Redis needs the package redis: pip install 'toolspeak[gateway]'"
            ) from None
        return RedisStore(setting, limits)
    if setting.startswith(SQLITE_PREFIX):
        from .sqlite import SqliteStore

        return SqliteStore(Path(setting.removeprefix(SQLITE_PREFIX)).expanduser(), limits)
    return MemoryStore(limits)


def hash_key(kind: str, *parts: str) -> str:
    """Return a key that is unique for the parts and reveals none of them."""
    return f"{kind}:{hashlib.blake2b(repr(parts).encode(), digest_size=20).hexdigest()}"


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
