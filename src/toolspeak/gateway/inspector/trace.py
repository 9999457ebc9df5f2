"""What there is to be seen of a request: the bytes that went each way, and when.

It is made of the request's record (`gateway/record.py`) and of what was kept beside it
(`gateway/flow.py`), when somebody looks; and `view.py` makes what they see of it.
"""

from __future__ import annotations

from time import perf_counter

from msgspec import Struct, structs

from ...types import Failure, Note, Plan, Reply, Request, Text
from ..catalog import Endpoint
from ..flow import Flow, Kept
from ..record import Question, Record

ASKED = 160
"""So many characters of what was asked tell one request from another."""


class Turn(Struct, frozen=True, kw_only=True):
    """One question to an upstream, and what came back. Times count from when the request began."""

    why: str
    """Why it was asked, if not for the first time; "preparing" for what comes before that."""
    endpoint: Endpoint
    path: str
    model: str
    plan: Plan
    sent: bytes
    heard: Flow
    is_stream: bool
    retries: int = 0
    """How often the same was sent again, for problems with the connection or the server."""
    status: int = 0
    at: float
    first: float | None = None
    """When the head of the reply was there."""
    ended: float | None = None
    outcome: str = ""
    reply: Reply | None = None
    """What was understood."""
    failure: Failure | None = None


class Trace(Struct, frozen=True, kw_only=True):
    """One request of a client."""

    key: str
    """No other request has it."""
    id: str
    """What the client calls it, or else the same."""
    at: float
    """Seconds since 1970."""
    changed: float
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
    turns: tuple[Turn, ...] = ()
    mode: str = ""
    retries: int = 0
    overhead: float | None = None
    reply: Reply | None = None
    """What the client gets in the end."""
    notes: tuple[Note, ...] = ()
    failure: Failure | None = None
    status: int = 0
    answered: dict[str, str]
    """The headers of the answer."""
    received: Flow
    seconds: float
    is_over: bool = True

    @property
    def summary(self) -> Summary:
        """What a list of requests says of it."""
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
            is_over=self.is_over,
            ms=_ms(self.seconds),
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


def traced(record: Record, kept: Kept) -> Trace:
    """What there is to be seen of a request, be it over or not."""
    began, is_over = record.began, record.ended > 0
    return Trace(
        key=kept.key,
        id=record.id,
        at=record.at,
        changed=kept.changed,
        method=record.method,
        target=kept.target,
        wire=record.wire,
        headers=kept.headers,
        body=kept.body,
        model=record.model,
        served=record.served,
        upstream=record.upstream,
        stream=record.stream,
        tools=record.tools,
        asked=kept.asked or asked(record.request),
        turns=tuple([_turn(question, began) for question in record.questions]),
        mode=record.mode,
        retries=len(record.retries),
        overhead=record.overhead,
        reply=record.reply,
        notes=record.notes,
        failure=record.failure,
        status=record.status if is_over else 0,
        answered=record.answered,
        received=kept.received,
        seconds=record.seconds if is_over else perf_counter() - began,
        is_over=is_over,
    )


def frozen(trace: Trace) -> Trace:
    """A request that is under way, as it is now: it goes on while somebody looks at it."""
    turns = tuple([structs.replace(turn, heard=_copied(turn.heard)) for turn in trace.turns])
    return structs.replace(trace, turns=turns, received=_copied(trace.received))


def _copied(flow: Flow) -> Flow:
    return structs.replace(flow, times=list(flow.times), pieces=list(flow.pieces))


def _turn(question: Question, began: float) -> Turn:
    heard = question.heard
    assert heard, "there is one wherever bytes are kept"
    return Turn(
        why=question.why,
        endpoint=question.endpoint,
        path=question.path,
        model=question.model,
        plan=question.plan,
        sent=question.sent,
        heard=heard,
        is_stream=question.is_stream,
        retries=question.retries,
        status=question.status,
        at=question.at - began,
        first=None if question.first is None else question.first - began,
        ended=None if question.ended is None else question.ended - began,
        outcome=question.outcome,
        reply=question.reply,
        failure=question.failure,
    )


def asked(request: Request | None) -> str:
    """The beginning of the last thing that somebody said in words."""
    if request is None:
        return ""
    for message in reversed(request.messages):
        if message.role == "user":
            for part in reversed(message.parts):
                if isinstance(part, Text) and part.text.strip():
                    return part.text.strip()[:ASKED]
    return ""


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
