"""What is kept of one request: the bytes that went each way, and when.

While it is served, nothing is computed for it. Whoever looks at it later pays for that: `view.py`.
"""

from __future__ import annotations

from time import perf_counter, time
from typing import TYPE_CHECKING

from msgspec import Struct, field

from ...types import Failure, Note, Plan, Rejection, Reply, Request, Text, ToolCall, Usage

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

    def takes(self, size: int) -> bool:
        """Whether there is room for that; if so, it is taken."""
        if size > self.left:
            return False
        self.left -= size
        return True


class Flow(Struct):
    """What came or went piece by piece, and when: in seconds since the request began. Two plain
    lists, since there are many pieces and none of them may cost anything."""

    room: Room
    times: list[float] = []
    pieces: list[bytes] = []
    lost: int = 0
    """Bytes for which there was no room."""

    def add(self, seconds: float, data: bytes) -> None:
        if not self.room.takes(len(data) + _A_PIECE):
            self.lost += len(data)
            return
        self.times.append(seconds)
        self.pieces.append(data)

    @property
    def size(self) -> int:
        """Bytes of all pieces."""
        return sum(map(len, self.pieces))

    def weighed(self) -> int:
        """Bytes that it takes, about."""
        return self.size + _A_PIECE * len(self.pieces)


class Turn(Struct, kw_only=True):
    """One question to an upstream, and what came back."""

    began: float
    """By the clock of this process; all other times count from the beginning of the request."""
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
    calls: tuple[ToolCall, ...] = ()
    dialect: str | None = None
    rejected: tuple[Rejection, ...] = ()
    notes: tuple[Note, ...] = ()
    stop_reason: str | None = None
    usage: Usage | None = None
    failure: Failure | None = None

    def answered(self, status: int, *, is_stream: bool) -> None:
        """The head of the reply is there."""
        self.status, self.is_stream = status, is_stream
        self.first = perf_counter() - self.began

    def hears(self, data: bytes) -> None:
        """More of the reply is there."""
        self.heard.add(perf_counter() - self.began, data)

    def failed(self, failure: Failure) -> None:
        """There is no reply, or no more of it."""
        self.failure = failure
        self.ended = perf_counter() - self.began

    def understood(self, reply: Reply, outcome: str) -> None:
        """The reply is all there, and this is what it comes to."""
        self.ended = perf_counter() - self.began
        self.outcome = outcome
        self.calls = reply.calls
        self.dialect = reply.dialect
        self.rejected = reply.rejected
        self.notes = reply.notes
        self.stop_reason = reply.stop_reason
        self.usage = reply.usage


class Trace(Struct, kw_only=True):
    """One request of a client."""

    key: str
    """No other request has it."""
    id: str
    """What the client calls it, or else the same."""
    at: float
    """Seconds since 1970."""
    began: float
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
    calls: tuple[ToolCall, ...] = ()
    dialect: str | None = None
    notes: tuple[Note, ...] = ()
    stop_reason: str | None = None
    usage: Usage | None = None
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
        turn = Turn(
            began=self.began,
            at=perf_counter() - self.began,
            why=why,
            upstream=endpoint.name,
            address=endpoint.base_url,
            wire=endpoint.wire,
            path=exchange.outgoing.path,
            model=exchange.target.model,
            plan=exchange.plan,
            sent=sent if self.received.room.takes(len(sent)) else b"",
            heard=Flow(self.received.room),
        )
        self.turns.append(turn)
        return turn

    def asked_with(self, body: bytes) -> None:
        """What the client has sent is there."""
        self.body = body if self.received.room.takes(len(body)) else b""

    def sent(self, data: bytes) -> None:
        """The client gets more of its answer."""
        self.received.add(perf_counter() - self.began, data)

    def replied(self, reply: Reply, notes: tuple[Note, ...]) -> None:
        """What the client gets in the end."""
        self.calls = reply.calls
        self.dialect = reply.dialect
        self.notes = (*notes, *reply.notes)
        self.stop_reason, self.usage, self.failure = reply.stop_reason, reply.usage, reply.failure

    def end(self, status: int, headers: dict[str, str], failure: Failure | None) -> None:
        """It is over."""
        self.status = status
        self.answered = headers
        self.failure = failure or self.failure
        self.ended = perf_counter() - self.began

    def drop(self) -> None:
        """Forget all that was said, but for what a summary says."""
        self.turns, self.body = [], b""
        self.received = Flow(self.received.room)

    def leave(self) -> None:
        """Give back the room that it has taken while it was under way."""
        flows = (self.received, *(turn.heard for turn in self.turns))
        sent = sum(len(turn.sent) for turn in self.turns)
        self.received.room.left += len(self.body) + sent + sum(flow.weighed() for flow in flows)

    def weighed(self) -> int:
        """Bytes that it takes, about."""
        turns = sum(_A_TRACE + len(turn.sent) + turn.heard.weighed() for turn in self.turns)
        return _A_TRACE + len(self.body) + turns + self.received.weighed()

    @property
    def summary(self) -> Summary:
        """What a list of requests says of it."""
        seconds = perf_counter() - self.began if self.ended is None else self.ended
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
            calls=[call.name for call in self.calls],
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
    *,
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
        began=perf_counter(),
        method=method,
        target=target,
        wire=wire,
        headers=headers,
        received=Flow(room),
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
