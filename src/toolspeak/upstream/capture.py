"""Bytes that are captured for the inspector while a request is served, within a budget."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Self, cast

from msgspec import Struct, structs

CHUNK_OVERHEAD = 80
"""Approximate bytes that Python itself needs for a chunk: many small ones are not free."""
RECOUNT_AFTER = 2**15
"""Bytes of small chunks after which they are charged to the budget."""
LARGE_CHUNK = 2**12
"""Bytes from which a chunk is charged at once. A smaller body is not charged at all: the request
holds more than that in memory anyway."""


class CaptureBudget(Struct, array_like=True, gc=False):
    """The bytes that may still be captured, over all active requests."""

    remaining: int


def memory_size(chunks: list[bytes]) -> int:
    """Return the approximate number of bytes that the chunks take in memory."""
    return sum(map(len, chunks)) + CHUNK_OVERHEAD * len(chunks)


class StreamCapture(Struct, array_like=True, gc=False):
    """A stream in one direction, chunk by chunk, with times.

    There are many chunks and none may cost anything, so `entries` is a plain list to which callers
    append directly. Nothing in it refers back to it, so the garbage collector can ignore it.
    """

    started: float
    """When the request started. All times here are those of `perf_counter`."""
    budget: CaptureBudget
    entries: list[float | bytes] = []
    """Time and data of each chunk, alternating."""
    counted_entries: int = 0
    """How many entries are charged to the budget."""
    reserved: int = 0
    """Bytes that are charged to the budget."""
    dropped: int = 0
    """Bytes that exceeded the budget."""

    def add(self, data: bytes) -> None:
        """Add a chunk; for streams of few chunks."""
        self.entries.extend((perf_counter(), data))
        if len(data) > LARGE_CHUNK:
            self.reserve_new()

    def reserve_new(self) -> None:
        """Charge new chunks to the budget, or drop them if they exceed it."""
        new = cast("list[bytes]", self.entries[self.counted_entries + 1 :: 2])
        if self.reserve(memory_size(new)):
            self.counted_entries = len(self.entries)
        else:
            self.dropped += sum(map(len, new))
            del self.entries[self.counted_entries :]

    def reserve(self, size: int) -> bool:
        """Charge that many bytes to the budget; return False if they exceed it."""
        budget = self.budget
        if size > budget.remaining:
            return False
        budget.remaining -= size
        self.reserved += size
        return True

    @property
    def chunks(self) -> list[bytes]:
        """The captured chunks."""
        return cast("list[bytes]", self.entries[1::2])

    @property
    def size(self) -> int:
        """Bytes of all chunks, including dropped ones."""
        return sum(map(len, self.chunks)) + self.dropped

    def snapshot(self) -> Self:
        """Return a copy that does not grow any more."""
        return structs.replace(self, entries=self.entries[:])

    def timed_chunks(self) -> Iterator[tuple[float, bytes]]:
        """Yield each chunk with the seconds since the start of the request."""
        for moment, data in zip(self.entries[::2], self.chunks, strict=True):
            assert isinstance(moment, float)
            yield moment - self.started, data


class RequestCapture(StreamCapture, gc=False):
    """The client's request, and the stream of the response."""

    key: str = ""
    """Unique, unlike the `x-request-id` that a client may send."""
    target: str = ""
    headers: dict[str, str] = {}
    body: bytes = b""
    user_message: str | None = None
    """The beginning of the last user message; None until it is first needed."""
    changed_at: float = 0.0
    """When the request last changed, in seconds since 1970."""

    def set_body(self, data: bytes) -> None:
        if len(data) <= LARGE_CHUNK or self.reserve(len(data)):
            self.body = data
