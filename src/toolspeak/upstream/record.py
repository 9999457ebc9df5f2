"""What every request keeps of itself while it is served: a few values, and no bytes.

What is counted (`tally.py`), logged (`logs.py`), traced (`tracing.py`) and shown (`inspector/`) of
it is all read from here, when it is over. Only for the inspector bytes are kept, too: `flow.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter, time
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from .._util import memoize_by_identity
from ..types import Failure, Note, Plan, Reply, Request, Text, ToolCall
from .capture import LARGE, Flow, Kept
from .catalog import UpstreamServer

if TYPE_CHECKING:
    from ..engine import Exchange
    from .catalog import Endpoint, Served
    from .response import UpstreamResponse

CLOSED = 499
"""The status where nobody was there to see one, or to see all of the answer."""
_GIST = 160
PREPARING = "preparing"
"""Why a model is asked for something of which the client hears nothing."""


class Question(Struct, array_like=True):
    """One question to an upstream, and what came of it. Times are those of `perf_counter`."""

    server: UpstreamServer
    plan: Plan
    path: str
    model: str
    """What the upstream calls it."""
    why: str
    """Why it was asked, if not for the first time."""
    at: float
    sent: bytes = b""
    heard: Flow | None = None
    """What came back, where bytes are kept."""
    headers: Mapping[str, str] | None = None
    """What the upstream has to be told beside it."""
    retries: int = 0
    """How often the same was sent again, for problems with the connection or the server."""
    status: int = 0
    is_stream: bool = False
    first: float | None = None
    """When the head of the reply was there."""
    ended: float | None = None
    reply: Reply | None = None
    outcome: str = ""
    failure: Failure | None = None

    def failed(self, failure: Failure) -> None:
        """There is no reply, or no more of it."""
        self.failure = failure
        self.ended = perf_counter()

    def understood(self, reply: Reply, outcome: str) -> None:
        """The reply is all there, and this is what it comes to."""
        self.ended = perf_counter()
        self.reply, self.outcome = reply, outcome


class Spans(Protocol):
    """Who wants to know of a request before it is over: a trace that others go on with."""

    trace_id: str

    def asks(self, question: Question, exchange: Exchange, endpoint: Endpoint) -> Mapping[str, str]:
        """An upstream is asked; the headers that tell it of the trace."""
        ...


class Record(Struct, array_like=True):
    """One request of a client."""

    id: str = ""
    method: str = ""
    path: str = ""
    wire: str = ""
    is_chat: bool = False
    at: float = field(default_factory=time)
    """Seconds since 1970."""
    began: float = field(default_factory=perf_counter)
    model: str = ""
    """The one that was asked for, and what its upstream calls the one that answers."""
    served: str = ""
    first_upstream: str = ""
    stream: bool = False
    tools: int = 0
    mode: str = ""
    """How the model was given tools."""
    questions: list[Question] = []
    retries: list[str] = []
    """Why upstreams were asked more than once."""
    failures: list[tuple[str, str]] = []
    """Upstreams that have failed, and the kind of each failure."""
    overhead: float | None = None
    """Seconds that were not spent on waiting for upstreams."""
    held: float | None = None
    """The longest time that something was held back; None if nothing is streamed."""
    has_replied: bool = False
    other_reply: Reply | None = None
    """What the client gets in the end, where that is not the last that an upstream has said."""
    notes: tuple[Note, ...] = ()
    failure: Failure | None = None
    status: int = 0
    ended: float = 0.0
    answered: dict[str, str] = {}
    """The headers of the answer."""
    kept: Kept | None = None
    spans: Spans | None = None

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began

    @property
    def reply(self) -> Reply | None:
        """What the client gets in the end."""
        if self.has_replied and self.other_reply is None:
            return self.questions[-1].reply
        return self.other_reply

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Those that the client gets."""
        reply = self.reply
        return reply.calls if reply else ()

    @property
    def codes(self) -> list[str]:
        """What there was to remark, each once."""
        return list(dict.fromkeys(note.code for note in self.notes)) if self.notes else []

    @property
    def upstream(self) -> str:
        """Who was asked last."""
        if self.questions:
            return self.questions[-1].server.name
        return self.first_upstream

    def understood(self, request: Request, served: Served) -> None:
        """What the client wants is known."""
        if self.kept and not self.kept.body:
            # There was no room for it, so nobody can read it there.
            self.kept.asked = gist(request)
        self.model, self.stream = request.model, request.stream
        self.tools = len(request.tools or ())
        self.served, self.first_upstream = served.target.model, served.endpoint.name

    def asks(self, exchange: Exchange, endpoint: Endpoint, why: str) -> Question:
        """An upstream is asked."""
        question = self._question(exchange, endpoint, why)
        if self.kept:
            data = exchange.data
            question.sent = data if len(data) <= LARGE or self.kept.fits(len(data)) else b""
        if self.spans:
            question.headers = self.spans.asks(question, exchange, endpoint)
        return question

    def hears(self, question: Question, response: UpstreamResponse, *, is_stream: bool) -> None:
        """The head of a reply is there."""
        question.first = perf_counter()
        question.status = response.status
        if self.kept and question.heard:
            question.is_stream = is_stream and response.is_stream
            response.capture_to(question.heard, self.kept)

    def known(self, exchange: Exchange, endpoint: Endpoint, reply: Reply) -> None:
        """The reply is known without a further question: the model was led to it."""
        why = "decided" if self.questions else "known"
        self._question(exchange, endpoint, why).understood(reply, "calls")

    def _question(self, exchange: Exchange, endpoint: Endpoint, why: str) -> Question:
        plan, path, model = exchange.plan, exchange.outgoing.path, exchange.target.model
        question = Question(_server(endpoint), plan, path, model, why, perf_counter())
        if self.kept:
            question.heard = Flow(self.kept.began, self.kept.room)
        self.questions.append(question)
        return question

    def retried(self, reason: str) -> None:
        """An upstream has to be asked once more."""
        self.retries.append(reason)

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
        self.has_replied = True
        if not self.questions or self.questions[-1].reply is not reply:
            self.other_reply = reply
        self.notes = (*notes, *reply.notes)
        self.failure = reply.failure

    def end(self, status: int, headers: dict[str, str]) -> None:
        """It is over."""
        self.status = self.status or status or CLOSED
        self.answered = headers
        self.ended = perf_counter()


@memoize_by_identity
def _server(endpoint: Endpoint) -> UpstreamServer:
    return UpstreamServer(
        endpoint.name, endpoint.wire, endpoint.base_url, endpoint.key, endpoint.headers
    )


def gist(request: Request) -> str:
    """What tells a request from others: the beginning of the last that somebody said in words."""
    for message in reversed(request.messages):
        if message.role == "user":
            for part in reversed(message.parts):
                if isinstance(part, Text) and (text := part.text.strip()):
                    return text[:_GIST]
    return ""
