"""Stores for what the gateway remembers between requests: in this process, or in Redis.

    store = open_store("memory")  # or "redis://localhost:6379/0", which other processes share
    await store.put("greeting", b"hello", seconds=60)
    await store.get("greeting")  # b"hello", and None after a minute

The gateway works without any of this data: a store may lose it at any time.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from math import inf, isfinite
from typing import Protocol

from msgspec import Struct

from ..errors import UsageError

MAX_BYTES = 64 * 1024 * 1024
ENTRY_BYTES = 300
"""Approximate overhead of an entry in Python."""
PART_BYTES = 100
"""Approximate overhead of an item of a list, or of a counter."""

BATCH_SECONDS = 24 * 3600.0
"""How long the number of a writer's last batch is remembered."""


class Store(Protocol):
    """Values, lists and counters under keys.

    A key holds one of these kinds. Operations of another kind find nothing there, and what they
    write is dropped; only `put` overwrites.
    """

    @property
    def last_error(self) -> str | None:
        """Why the last operation failed; None if it did not."""
        ...

    @property
    def error_count(self) -> int:
        """The number of operations that have failed."""
        ...

    async def get(self, key: str) -> bytes | None: ...

    async def put(self, key: str, value: bytes, seconds: float) -> None: ...

    async def put_many(self, values: Mapping[str, bytes], seconds: float) -> None:
        """Put several values at once; the last of them is evicted last."""
        ...

    async def delete(self, key: str) -> None: ...

    async def push(self, key: str, value: bytes, *, max_items: int, seconds: float) -> None:
        """Put a value in front of a list, which keeps the newest `max_items` and expires after
        this time without another."""
        ...

    async def list_items(self, key: str) -> list[bytes]:
        """Return the values that were pushed, the newest first."""
        ...

    async def increment(
        self, key: str, amounts: Mapping[str, float], *, writer: str = "", batch: int = 0
    ) -> None:
        """Add to counters, which do not expire. Processes that share the store share the sums.

        A writer that cannot know whether its last batch was added may send it again: amounts with
        the number of the writer's last batch are not added twice.
        """
        ...

    async def read_counters(self, key: str) -> dict[str, float]: ...

    async def ping(self) -> bool:
        """Return True if the store can be reached now."""
        ...

    async def close(self) -> None: ...


def open_store(setting: str) -> Store:
    """Return the store for the setting `store`."""
    if setting == "memory":
        return MemoryStore()
    scheme, separator, _ = setting.partition("://")
    if scheme not in ("redis", "rediss", "unix") or not separator:
        # The rest of the URL may contain a password.
        actual = f", not {scheme}://…" if separator else ""
        raise UsageError(f"`store` must be memory, redis://…, rediss://… or unix://…{actual}")
    try:
        from .redis import RedisStore
    except ImportError:
        raise UsageError(
            "a store in Redis needs the package redis: pip install 'toolspeak[gateway]'"
        ) from None
    return RedisStore(setting)


def hash_key(kind: str, *parts: str) -> str:
    """Return a key that is unique for the parts and reveals none of them."""
    return f"{kind}:{hashlib.blake2b(repr(parts).encode(), digest_size=20).hexdigest()}"


def finite_amounts(amounts: Mapping[str, float]) -> dict[str, float]:
    """Leave out infinite amounts, which would make a counter useless for good."""
    return {name: amount for name, amount in amounts.items() if isfinite(amount)}


_Content = bytes | deque[bytes] | dict[str, float]


class _StoreEntry(Struct, frozen=True, gc=False):
    """Not tracked by the garbage collector: there may be many, and none refers to another."""

    content: _Content
    size: int
    deadline: float


class MemoryStore:
    """A store in this process that holds at most `max_bytes`.

    The least recently used entries are evicted first. An entry that is larger than the limit is
    not stored. Expired entries are removed when they are read or evicted.
    """

    last_error: str | None = None
    error_count = 0

    def __init__(
        self, max_bytes: int = MAX_BYTES, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_bytes = max_bytes
        self._now = now
        self._entries: OrderedDict[str, _StoreEntry] = OrderedDict()
        """The least recently used one is first."""
        self.size = 0
        """Approximate size in bytes."""

    async def get(self, key: str) -> bytes | None:
        content = self._read(key)
        return content if isinstance(content, bytes) else None

    async def put(self, key: str, value: bytes, seconds: float) -> None:
        self._write(key, value, _empty_size(key) + len(value), self._now() + seconds)

    async def put_many(self, values: Mapping[str, bytes], seconds: float) -> None:
        deadline = self._now() + seconds
        for key, value in values.items():
            self._write(key, value, _empty_size(key) + len(value), deadline)

    async def delete(self, key: str) -> None:
        self._remove(key)

    async def push(self, key: str, value: bytes, *, max_items: int, seconds: float) -> None:
        items, size = self._read(key), self._entry_size(key)
        if items is None:
            items = deque[bytes]()
        if not isinstance(items, deque):
            return
        items.appendleft(value)
        size += len(value) + PART_BYTES
        while len(items) > max_items:
            size -= len(items.pop()) + PART_BYTES
        self._write(key, items, size, self._now() + seconds)

    async def list_items(self, key: str) -> list[bytes]:
        content = self._read(key)
        return list(content) if isinstance(content, deque) else []

    async def increment(
        self, key: str, amounts: Mapping[str, float], *, writer: str = "", batch: int = 0
    ) -> None:
        if writer:
            number = str(batch).encode()
            if await self.get(f"{key}:{writer}") == number:
                return
            await self.put(f"{key}:{writer}", number, BATCH_SECONDS)
        sums, size = self._read(key), self._entry_size(key)
        if sums is None:
            sums = dict[str, float]()
        if not isinstance(sums, dict):
            return
        for name, amount in finite_amounts(amounts).items():
            size += 0 if name in sums else _utf8_length(name) + PART_BYTES
            sums[name] = sums.get(name, 0.0) + amount
        if sums:
            self._write(key, sums, size, inf)

    async def read_counters(self, key: str) -> dict[str, float]:
        content = self._read(key)
        return dict(content) if isinstance(content, dict) else {}

    async def ping(self) -> bool:
        return True

    async def close(self) -> None:
        self._entries.clear()
        self.size = 0

    def _read(self, key: str) -> _Content | None:
        """Return the content of a key, and mark it as used."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.deadline <= self._now():
            self._remove(key)
            return None
        self._entries.move_to_end(key)
        return entry.content

    def _entry_size(self, key: str) -> int:
        entry = self._entries.get(key)
        return entry.size if entry else _empty_size(key)

    def _write(self, key: str, content: _Content, size: int, deadline: float) -> None:
        before = self._entries.pop(key, None)
        if before is not None:
            self.size -= before.size
        if size > self._max_bytes:
            return
        self._entries[key] = _StoreEntry(content, size, deadline)
        self.size += size
        while self.size > self._max_bytes:
            _, oldest = self._entries.popitem(last=False)
            self.size -= oldest.size

    def _remove(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size -= entry.size


def _empty_size(key: str) -> int:
    """Return the size of an entry without content."""
    return ENTRY_BYTES + (len(key) if key.isascii() else _utf8_length(key))


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
