"""Where the gateway keeps what it remembers between requests: in this process, or in Redis.

    store = open_store("memory")  # or "redis://localhost:6379/0", which other processes share
    await store.put("greeting", b"hello", seconds=60)
    await store.get("greeting")  # b"hello", and None after a minute

Nothing in it is ever needed: a store may lose what it likes, and the gateway goes on.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from math import inf, isfinite
from typing import Protocol

from msgspec import Struct

from ..errors import UsageError

MAX_BYTES = 64 * 1024 * 1024
ENTRY_BYTES = 300
"""What Python itself needs for an entry, about; without it, many small ones would be free."""
PART_BYTES = 100
"""The same for an item of a list, or for a counter."""


class Store(Protocol):
    """Values, lists and counters under keys.

    A key holds one kind of them: to the operations of another kind there is nothing, and what they
    write is dropped. Only `put` writes over anything.
    """

    @property
    def last_error(self) -> str | None:
        """Why the last operation failed; None if it did not."""
        ...

    @property
    def error_count(self) -> int:
        """How many operations have failed."""
        ...

    async def get(self, key: str) -> bytes | None: ...

    async def put(self, key: str, value: bytes, seconds: float) -> None: ...

    async def put_many(self, values: Mapping[str, bytes], seconds: float) -> None:
        """Puts several at once; the last of them stays longest."""
        ...

    async def delete(self, key: str) -> None: ...

    async def push(self, key: str, value: bytes, *, max_items: int, seconds: float) -> None:
        """Puts a value in front of a list. The `most` newest stay, for so long after the last."""
        ...

    async def list_items(self, key: str) -> list[bytes]:
        """What was pushed, the newest first."""
        ...

    async def increment(self, key: str, amounts: Mapping[str, float]) -> None:
        """Adds to counters, which stay. Processes that share the store share their sums."""
        ...

    async def read_counters(self, key: str) -> dict[str, float]: ...

    async def ping(self) -> bool:
        """Whether the store can be reached now."""
        ...

    async def close(self) -> None: ...


def open_store(setting: str) -> Store:
    """The store that a setting names."""
    if setting == "memory":
        return MemoryStore()
    scheme, is_url, _ = setting.partition("://")
    if scheme not in ("redis", "rediss", "unix") or not is_url:
        # The rest of an address may hold a password.
        instead = f", not {scheme}://…" if is_url else ""
        raise UsageError(f"a store is memory, redis://…, rediss://… or unix://…{instead}")
    try:
        from .redis import RedisStore
    except ImportError:
        raise UsageError(
            "a store in Redis needs the package redis: pip install 'toolspeak[gateway]'"
        ) from None
    return RedisStore(setting)


def finite_amounts(amounts: Mapping[str, float]) -> dict[str, float]:
    """The amounts that can be added: one that is infinite would end a counter for good."""
    return {name: amount for name, amount in amounts.items() if isfinite(amount)}


_Content = bytes | deque[bytes] | dict[str, float]


class _Entry(Struct, frozen=True, gc=False):
    """Of which there may be so many that the search for garbage had better pass them over: none
    holds another."""

    content: _Content
    size: int
    deadline: float


class MemoryStore:
    """A store of this process, of at most `max_bytes`: what was not used for longest goes first.

    What would be larger than that by itself is not kept. What has expired goes when it is asked
    for, or when its turn comes.
    """

    last_error: str | None = None
    error_count = 0

    def __init__(
        self, max_bytes: int = MAX_BYTES, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_bytes = max_bytes
        self._now = now
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        """The one that was used last is last."""
        self.size = 0
        """In bytes, about."""

    async def get(self, key: str) -> bytes | None:
        content = self._content(key)
        return content if isinstance(content, bytes) else None

    async def put(self, key: str, value: bytes, seconds: float) -> None:
        self._keep(key, value, _size(key) + len(value), self._now() + seconds)

    async def put_many(self, values: Mapping[str, bytes], seconds: float) -> None:
        deadline = self._now() + seconds
        for key, value in values.items():
            self._keep(key, value, _size(key) + len(value), deadline)

    async def delete(self, key: str) -> None:
        self._drop(key)

    async def push(self, key: str, value: bytes, *, max_items: int, seconds: float) -> None:
        items, size = self._content(key), self._size_of(key)
        if items is None:
            items = deque[bytes]()
        if not isinstance(items, deque):
            return
        items.appendleft(value)
        size += len(value) + PART_BYTES
        while len(items) > max_items:
            size -= len(items.pop()) + PART_BYTES
        self._keep(key, items, size, self._now() + seconds)

    async def list_items(self, key: str) -> list[bytes]:
        content = self._content(key)
        return list(content) if isinstance(content, deque) else []

    async def increment(self, key: str, amounts: Mapping[str, float]) -> None:
        sums, size = self._content(key), self._size_of(key)
        if sums is None:
            sums = dict[str, float]()
        if not isinstance(sums, dict):
            return
        for name, amount in finite_amounts(amounts).items():
            size += 0 if name in sums else _length(name) + PART_BYTES
            sums[name] = sums.get(name, 0.0) + amount
        if sums:
            self._keep(key, sums, size, inf)

    async def read_counters(self, key: str) -> dict[str, float]:
        content = self._content(key)
        return dict(content) if isinstance(content, dict) else {}

    async def ping(self) -> bool:
        return True

    async def close(self) -> None:
        self._entries.clear()
        self.size = 0

    def _content(self, key: str) -> _Content | None:
        """What a key holds; with this it has been used."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.deadline <= self._now():
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry.content

    def _size_of(self, key: str) -> int:
        entry = self._entries.get(key)
        return entry.size if entry else _size(key)

    def _keep(self, key: str, content: _Content, size: int, deadline: float) -> None:
        before = self._entries.pop(key, None)
        if before is not None:
            self.size -= before.size
        if size > self._max_bytes:
            return
        self._entries[key] = _Entry(content, size, deadline)
        self.size += size
        while self.size > self._max_bytes:
            _, oldest = self._entries.popitem(last=False)
            self.size -= oldest.size

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size -= entry.size


def _size(key: str) -> int:
    """The size of an entry that has nothing in it."""
    return ENTRY_BYTES + (len(key) if key.isascii() else _length(key))


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
