"""What is kept of one request: the bytes that went each way, and when.

While it is served, nothing is computed for it. Whoever looks at it later pays for that: `view.py`.
"""

from __future__ import annotations

from time import perf_counter, time
from typing import TYPE_CHECKING

from msgspec import Struct, field

from ...types import Failure, Note, Plan, Reply, Request, Text

if TYPE_CHECKING:
    from ...bridge import Exchange
    from ..catalog import Endpoint

_A_TRACE, _A_PIECE = 4000, 80
"""Bytes that Python itself needs for one, about; many small ones are not free."""
ASKED = 160
"""So many characters of what was asked tell one request from another."""


class Room(Struct):
    """How many bytes may still be kept of all requests that are under way."""

    left: int


class Flow(Struct):
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

    def fits(self, data: bytes) -> bytes:
        """The same, if there is room for it; else nothing. It weighs as if it were a part of it."""
        if len(data) > self.room.left:
            return b""
        self.room.left -= len(data)
        self.weight += len(data)
        return data

    @property
    def size(self) -> int:
        """Bytes of all pieces, also of those that were not kept."""
        return sum(map(len, self.pieces)) + self.lost


class Turn(Struct, kw_only=True):
    """One question to an upstream, and what came back."""

    at: float
    why: str
    """Why it was asked, if not for the first time; "preparing" for what comes before that."""
    upstream: str
    address: str
    wire: str
    path: str
    model: str
    plan: Plan
    sent: bytes
    heard: Flow
    retries: int = 0
    """How often the same was sent again, for problems with the connection or the server."""
    status: int = 0
    first: float | None = None
    """When the head of the reply was there."""
    ended: float | None = None
    is_stream: bool = False
    outcome: str = ""
    reply: Reply | None = None
    """What was understood."""
    failure: Failure | None = None

    def answered(self, status: int, *, is_stream: bool) -> None:
        """The head of the reply is there."""
        self.status, self.is_stream = status, is_stream
        self.first = perf_counter() - self.heard.began

    def failed(self, failure: Failure) -> None:
        """There is no reply, or no more of it."""
        self.failure = failure
        self.ended = perf_counter() - self.heard.began

    def understood(self, reply: Reply, outcome: str) -> None:
        """The reply is all there, and this is what it comes to."""
        self.ended = perf_counter() - self.heard.began
        self.outcome, self.reply = outcome, reply


class Trace(Struct, kw_only=True):
    """One request of a client."""

    key: str
    """No other request has it."""
    id: str
    """What the client calls it, or else the same."""
    at: float
    """Seconds since 1970."""
    changed: float = 0.0
    """When something was last said of it, in seconds since 1970."""
    method: str
    target: str
    wire: str
    headers: dict[str, str]
    body: bytes = b""
    model: str = ""
    served: str = ""
    upstream: str = ""
    stream: bool = False
    tools: int = 0
    asked: str = ""
    turns: list[Turn] = field(default_factory=list[Turn])
    mode: str = ""
    retries: int = 0
    overhead: float | None = None
    reply: Reply | None = None
    """What the client gets in the end."""
    notes: tuple[Note, ...] = ()
    failure: Failure | None = None
    status: int = 0
    answered: dict[str, str] = field(default_factory=dict[str, str])
    """The headers of the answer."""
    received: Flow
    ended: float | None = None
    size: int = 0
    """What it was found to weigh when it ended."""

    def understood(self, request: Request, served: str, upstream: str) -> None:
        """What the client wants is known."""
        self.model, self.served, self.upstream = request.model, served, upstream
        self.stream, self.tools = request.stream, len(request.tools or ())
        self.asked = _asked(request)

    def turn(self, exchange: Exchange, endpoint: Endpoint, sent: bytes, why: str) -> Turn:
        """An upstream is asked."""
        began, room = self.received.began, self.received.room
        turn = Turn(
            at=perf_counter() - began,
            why=why,
            upstream=endpoint.name,
            address=endpoint.base_url,
            wire=endpoint.wire,
            path=exchange.outgoing.path,
            model=exchange.target.model,
            plan=exchange.plan,
            sent=self.received.fits(sent),
            heard=Flow(began, room),
        )
        self.turns.append(turn)
        return turn

    def asked_with(self, body: bytes) -> None:
        """What the client has sent is there."""
        self.body = self.received.fits(body)

    def replied(self, reply: Reply, notes: tuple[Note, ...]) -> None:
        """What the client gets in the end."""
        self.reply, self.failure = reply, reply.failure
        self.notes = (*notes, *reply.notes)

    def end(self, status: int, headers: dict[str, str], failure: Failure | None) -> None:
        """It is over."""
        self.status = status
        self.answered = headers
        self.failure = failure or self.failure
        self.ended = perf_counter() - self.received.began

    def leave(self) -> None:
        """Give back the room that was taken while it was under way, and say what it weighs now."""
        weight = self.received.weight
        for turn in self.turns:
            weight += turn.heard.weight
        self.received.room.left += weight
        self.size = weight + _A_TRACE * (1 + len(self.turns))

    def drop(self) -> None:
        """Forget all that was said, but for what a summary says."""
        self.turns, self.body, self.size = [], b"", _A_TRACE
        self.received = Flow(self.received.began, self.received.room)

    @property
    def summary(self) -> Summary:
        """What a list of requests says of it."""
        seconds = self.ended
        if seconds is None:
            seconds = perf_counter() - self.received.began
        return Summary(
            key=self.key,
            id=self.id,
            at=self.at,
            changed=self.changed,
            wire=self.wire,
            target=self.target,
            stream=self.stream,
            model=self.model,
            served=self.served,
            upstream=self.upstream,
            mode=self.mode,
            asked=self.asked,
            tools=self.tools,
            calls=[call.name for call in self.reply.calls] if self.reply else [],
            retries=self.retries,
            notes=list(dict.fromkeys(note.code for note in self.notes)),
            status=self.status,
            is_over=self.ended is not None,
            ms=_ms(seconds),
            overhead_ms=None if self.overhead is None else _ms(self.overhead),
            failure=self.failure.message if self.failure else "",
        )


class Summary(Struct, frozen=True, kw_only=True):
    """A request in one line."""

    key: str
    id: str
    at: float
    changed: float
    wire: str
    target: str
    stream: bool
    model: str
    served: str
    upstream: str
    mode: str
    asked: str
    tools: int
    calls: list[str]
    retries: int
    notes: list[str]
    status: int
    is_over: bool
    ms: float
    overhead_ms: float | None
    failure: str


def new_trace(
    key: str,
    identity: str,
    method: str,
    target: str,
    wire: str,
    headers: dict[str, str],
    room: Room,
) -> Trace:
    """A request has come in."""
    return Trace(
        key=key,
        id=identity,
        at=time(),
        method=method,
        target=target,
        wire=wire,
        headers=headers,
        received=Flow(perf_counter(), room),
    )


def _asked(request: Request) -> str:
    """The beginning of the last thing that somebody said in words."""
    for message in reversed(request.messages):
        if message.role == "user":
            for part in reversed(message.parts):
                if isinstance(part, Text) and part.text.strip():
                    return part.text.strip()[:ASKED]
    return ""


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
