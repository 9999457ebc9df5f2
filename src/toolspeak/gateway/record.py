"""What every request keeps of itself while it is served: a few values, and no bytes.

What is counted (`tally.py`), logged (`logs.py`) and traced (`tracing.py`) of it is all read from
here, when it is over. A trace of the inspector has the bytes as well; if there is one, it is told
from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter, time
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from ..types import Failure, Note, Reply, Request, ToolCall

if TYPE_CHECKING:
    from ..bridge import Exchange
    from .catalog import Endpoint, Served
    from .inspector.trace import Trace, Turn
    from .upstream import Response

CLOSED = 499
"""The status where nobody was there to see one, or to see all of the answer."""
PREPARING = "preparing"
"""Why a model is asked for something of which the client hears nothing."""


class Question(Struct):
    """One question to an upstream, and what came of it. Times are those of `perf_counter`."""

    exchange: Exchange
    endpoint: Endpoint
    why: str
    """Why it was asked, if not for the first time."""
    at: float
    turn: Turn | None = None
    headers: Mapping[str, str] | None = None
    """What the upstream has to be told beside it."""
    retries: int = 0
    """How often the same was sent again, for problems with the connection or the server."""
    status: int = 0
    first: float | None = None
    """When the head of the reply was there."""
    ended: float | None = None
    reply: Reply | None = None
    outcome: str = ""
    failure: Failure | None = None

    def again(self) -> None:
        """The same is sent once more."""
        self.retries += 1
        if self.turn:
            self.turn.retries = self.retries

    def answered(self, response: Response, *, is_stream: bool) -> None:
        """The head of the reply is there."""
        self.first = perf_counter()
        self.status = response.status
        if self.turn:
            self.turn.answered(response.status, is_stream=is_stream and response.flows)
            response.on_data = self.turn.hears

    def failed(self, failure: Failure) -> None:
        """There is no reply, or no more of it."""
        self.failure = failure
        self.ended = perf_counter()
        if self.turn:
            self.turn.failed(failure)

    def understood(self, reply: Reply, outcome: str) -> None:
        """The reply is all there, and this is what it comes to."""
        self.ended = perf_counter()
        self.reply, self.outcome = reply, outcome
        if self.turn:
            self.turn.understood(reply, outcome)


class Spans(Protocol):
    """Who wants to know of a request before it is over: a trace that others go on with."""

    trace_id: str

    def asks(self, question: Question) -> Mapping[str, str]:
        """An upstream is asked; the headers that tell it of the trace."""
        ...


class Record(Struct):
    """One request of a client."""

    id: str = ""
    method: str = ""
    path: str = ""
    wire: str = ""
    is_chat: bool = False
    at: float = field(default_factory=time)
    """Seconds since 1970."""
    began: float = field(default_factory=perf_counter)
    request: Request | None = None
    served: Served | None = None
    mode: str = ""
    """How the model was given tools."""
    questions: list[Question] = field(default_factory=list[Question])
    retries: list[str] = field(default_factory=list[str])
    """Why upstreams were asked more than once."""
    failures: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Upstreams that have failed, and the kind of each failure."""
    overhead: float | None = None
    """Seconds that were not spent on waiting for upstreams."""
    held: float | None = None
    """The longest time that something was held back; None if nothing is streamed."""
    reply: Reply | None = None
    calls: tuple[ToolCall, ...] = ()
    notes: tuple[Note, ...] = ()
    failure: Failure | None = None
    status: int = 0
    ended: float = 0.0
    trace: Trace | None = None
    spans: Spans | None = None

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began

    @property
    def codes(self) -> list[str]:
        """What there was to remark, each once."""
        return list(dict.fromkeys(note.code for note in self.notes)) if self.notes else []

    @property
    def upstream(self) -> str:
        """Who was asked last."""
        if self.questions:
            return self.questions[-1].endpoint.name
        return self.served.endpoint.name if self.served else ""

    def understood(self, request: Request, served: Served) -> None:
        """What the client wants is known."""
        self.request, self.served = request, served
        if self.trace:
            self.trace.understood(request, served.target.model, served.endpoint.name)

    def given(self, mode: str) -> None:
        """The model is given its tools in that way."""
        self.mode = mode
        if self.trace:
            self.trace.mode = mode

    def asks(self, exchange: Exchange, endpoint: Endpoint, data: bytes, why: str) -> Question:
        """An upstream is asked."""
        question = Question(exchange, endpoint, why, perf_counter())
        self.questions.append(question)
        if self.trace:
            question.turn = self.trace.turn(exchange, endpoint, data, why)
        if self.spans:
            question.headers = self.spans.asks(question)
        return question

    def known(self, exchange: Exchange, endpoint: Endpoint, reply: Reply) -> None:
        """The reply is known without a question: the model was led to it."""
        question = Question(exchange, endpoint, "known", perf_counter())
        self.questions.append(question)
        if self.trace:
            question.turn = self.trace.turn(exchange, endpoint, b"", "known")
        question.understood(reply, "calls")

    def retried(self, reason: str) -> None:
        """An upstream has to be asked once more."""
        self.retries.append(reason)
        if self.trace:
            self.trace.retries = len(self.retries)

    def upstream_failed(self, upstream: str, failure: Failure) -> None:
        """There is no reply of an upstream, or no more of it."""
        self.failures.append((upstream, failure.kind))
        if self.questions:
            self.questions[-1].failed(failure)

    def holds(self, seconds: float) -> None:
        """Something has left that was held back for so long."""
        self.held = max(self.held or 0.0, seconds)

    def replied(self, reply: Reply, notes: tuple[Note, ...]) -> None:
        """What the client gets in the end; the notes are those on how it was asked for."""
        self.reply, self.calls = reply, reply.calls
        self.notes = (*notes, *reply.notes)
        self.failure = reply.failure
        if self.trace:
            self.trace.replied(reply, notes)

    def took(self, overhead: float) -> None:
        """The answer begins: what it took besides waiting."""
        self.overhead = overhead
        if self.trace:
            self.trace.overhead = overhead

    def end(self, status: int) -> None:
        """It is over."""
        self.status = self.status or status or CLOSED
        self.ended = perf_counter()
