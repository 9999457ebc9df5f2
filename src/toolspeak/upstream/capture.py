"""Bytes that are kept for the inspector while a request is served, as many as there is room for."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Self, cast

from msgspec import Struct, structs

A_PIECE = 80
"""Bytes that Python itself needs for one, about; many small ones are not free."""
UNCOUNTED = 2**15
"""After so many bytes in small pieces it is seen to whether there is room for them."""
LARGE = 2**12
"""Bytes of a piece for which that is seen to at once. A body that is smaller takes no room: the
request has more than that in memory by itself."""


class Room(Struct, array_like=True, gc=False):
    """How many bytes may still be kept of all requests that are under way."""

    left: int


def weight_of(pieces: list[bytes]) -> int:
    """Bytes that they take, about."""
    return sum(map(len, pieces)) + A_PIECE * len(pieces)


def _pieces(said: list[float | bytes]) -> list[bytes]:
    return cast("list[bytes]", said[1::2])


class Flow(Struct, array_like=True, gc=False):
    """What came or went piece by piece, and when. There are many pieces, and none of them may cost
    anything: so it is a plain list, to which others add what they have. Nothing in it leads back to
    it, so that no collector has to look for it."""

    began: float
    """When the request did, by the clock of this process: as all times here."""
    room: Room
    said: list[float | bytes] = []
    """When a piece came, and the piece; and so on."""
    counted: int = 0
    """For how much of that room was taken."""
    weight: int = 0
    """Bytes that it takes, about."""
    lost: int = 0
    """Bytes for which there was no room."""

    def take(self, data: bytes) -> None:
        """One more piece, of few."""
        self.said.extend((perf_counter(), data))
        if len(data) > LARGE:
            self.count()

    def count(self) -> None:
        """Take room for what is new, or let go of it."""
        # Every other one is a time.
        new = cast("list[bytes]", self.said[self.counted + 1 :: 2])
        if self.fits(weight_of(new)):
            self.counted = len(self.said)
        else:
            self.lost += sum(map(len, new))
            del self.said[self.counted :]

    def fits(self, size: int) -> bool:
        """Whether there is room for so much more; if so, it is taken."""
        room = self.room
        if size > room.left:
            return False
        room.left -= size
        self.weight += size
        return True

    @property
    def pieces(self) -> list[bytes]:
        """Those that were kept."""
        return _pieces(self.said)

    @property
    def size(self) -> int:
        """Bytes of all pieces, also of those that were not kept."""
        return sum(map(len, self.pieces)) + self.lost

    def so_far(self) -> Self:
        """A copy, which stays as it is."""
        return structs.replace(self, said=self.said[:])

    def each(self) -> Iterator[tuple[float, bytes]]:
        """The pieces, and how many seconds after the request began each came."""
        for moment, data in zip(self.said[::2], self.pieces, strict=True):
            assert isinstance(moment, float)
            yield moment - self.began, data


class Kept(Flow, gc=False):
    """What is kept of a request beside its record: what the client gets, and what it has sent."""

    key: str = ""
    """No other request has it."""
    target: str = ""
    headers: dict[str, str] = {}
    body: bytes = b""
    asked: str | None = None
    """The gist of it; None until somebody wants to know."""
    changed: float = 0.0
    """When something was last said of it, in seconds since 1970."""

    def take_body(self, data: bytes) -> None:
        """What the client has sent is there."""
        if len(data) <= LARGE or self.fits(len(data)):
            self.body = data
