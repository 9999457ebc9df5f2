"""Bytes that are kept for the inspector while a request is served, as many as there is room for."""

from __future__ import annotations

from time import perf_counter

from msgspec import Struct

_A_PIECE = 80
"""Bytes that Python itself needs for one, about; many small ones are not free."""


class Room(Struct, array_like=True):
    """How many bytes may still be kept of all requests that are under way."""

    left: int


class Flow(Struct, array_like=True):
    """What came or went piece by piece, and when: in seconds since the request began. Two plain
    lists, since there are many pieces and none of them may cost anything."""

    began: float
    """By the clock of this process."""
    room: Room
    times: list[float] = []
    pieces: list[bytes] = []
    weight: int = 0
    """Bytes that it takes, about."""
    lost: int = 0
    """Bytes for which there was no room."""

    def take(self, data: bytes) -> None:
        """One more piece."""
        weight = len(data) + _A_PIECE
        room = self.room
        if weight > room.left:
            self.lost += len(data)
            return
        room.left -= weight
        self.weight += weight
        self.times.append(perf_counter() - self.began)
        self.pieces.append(data)

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


class Kept(Flow):
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
        if self.fits(len(data)):
            self.body = data
