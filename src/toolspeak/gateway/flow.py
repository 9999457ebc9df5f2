"""Bytes that are kept for the inspector while a request is served, as many as there is room for."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Self

from msgspec import Struct, structs

_A_PIECE = 80
"""Bytes that Python itself needs for one, about; many small ones are not free."""
MANY, LARGE = 16, 2048
"""After so many pieces, or one so large, it is seen to whether there is room for them."""


class Room(Struct, array_like=True, gc=False):
    """How many bytes may still be kept of all requests that are under way."""

    left: int


def weight_of(pieces: list[bytes]) -> int:
    """Bytes that they take, about."""
    return sum(map(len, pieces)) + _A_PIECE * len(pieces)


class Flow(Struct, array_like=True, gc=False):
    """What came or went piece by piece, and when. Two plain lists, since there are many pieces and
    none of them may cost anything; and nothing in it leads back to it, so that no collector has to
    look for it."""

    began: float
    """When the request did, by the clock of this process: as all times here."""
    room: Room
    times: list[float] = []
    pieces: list[bytes] = []
    counted: int = 0
    """For how many of them room was taken."""
    weight: int = 0
    """Bytes that it takes, about."""
    lost: int = 0
    """Bytes for which there was no room."""

    def take(self, data: bytes) -> None:
        """One more piece."""
        self.times.append(perf_counter())
        self.pieces.append(data)
        if len(data) > LARGE or not len(self.pieces) % MANY:
            self.count()

    def count(self) -> None:
        """Take room for what is new, or let go of it."""
        new = self.pieces[self.counted :]
        if self.fits(weight_of(new)):
            self.counted = len(self.pieces)
        else:
            self.lost += sum(map(len, new))
            del self.times[self.counted :], self.pieces[self.counted :]

    def fits(self, size: int) -> bool:
        """Whether there is room for so much more; if so, it is taken."""
        room = self.room
        if size > room.left:
            return False
        room.left -= size
        self.weight += size
        return True

    @property
    def size(self) -> int:
        """Bytes of all pieces, also of those that were not kept."""
        return sum(map(len, self.pieces)) + self.lost

    def so_far(self) -> Self:
        """A copy, which stays as it is."""
        return structs.replace(self, times=self.times[:], pieces=self.pieces[:])

    def each(self) -> Iterator[tuple[float, bytes]]:
        """The pieces, and how many seconds after the request began each came."""
        for moment, data in zip(self.times, self.pieces, strict=True):
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
