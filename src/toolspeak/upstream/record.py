"""The record of a request while it is served: a few values, and no bytes.

Metrics, logs, traces and the inspector (`observe/`) all read it when the request has ended. The
bytes that the inspector shows are kept beside it, in `capture.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter, time
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from .._util import memoize_by_identity
from ..types import Failure, Note, Plan, Reply, Request, Text, ToolCall
from .capture import LARGE_CHUNK, RequestCapture, StreamCapture
from .catalog import UpstreamServer

if TYPE_CHECKING:
    from ..engine import Attempt
    from .catalog import Endpoint, ResolvedModel
    from .response import UpstreamResponse

CLIENT_CLOSED = 499
"""The status where nobody was there to see one, or to see all of the answer."""
_MAX_USER_TEXT = 160


class AttemptRecord(Struct, array_like=True):
    """One attempt at an upstream, and its result. Times are those of `perf_counter`."""

    server: UpstreamServer
    plan: Plan
    path: str
    model: str
    """The upstream's name for the model."""
    reason: str
    """Why the model was asked again; "" for the first attempt."""
    started: float
    request_body: bytes = b""
    response_capture: StreamCapture | None = None
    headers: Mapping[str, str] | None = None
    """Headers that continue the trace."""
    retries: int = 0
    """How often the same bytes were sent again after a connection or server error."""
    status: int = 0
    is_stream: bool = False
    first_byte: float | None = None
    ended: float | None = None
    reply: Reply | None = None
    outcome: str = ""
    failure: Failure | None = None

    def set_failure(self, failure: Failure) -> None:
        self.failure = failure
        self.ended = perf_counter()

    def set_reply(self, reply: Reply, outcome: str) -> None:
        self.ended = perf_counter()
        self.reply, self.outcome = reply, outcome


class RequestSpans(Protocol):
    """The spans of a request, which upstreams continue."""

    trace_id: str

    def start_attempt(
        self, record: AttemptRecord, attempt: Attempt, endpoint: Endpoint
    ) -> Mapping[str, str]:
        """Start the span of an attempt; return the headers that continue the trace."""
        ...


class RequestRecord(Struct, array_like=True):
    """One request from a client."""

    id: str = ""
    method: str = ""
    path: str = ""
    wire: str = ""
    is_chat: bool = False
    received_at: float = field(default_factory=time)
    """Seconds since 1970."""
    started: float = field(default_factory=perf_counter)
    model: str = ""
    """The name that the client used."""
    upstream_model: str = ""
    """The upstream's name for it."""
    first_upstream: str = ""
    is_stream: bool = False
    tool_count: int = 0
    mode: str = ""
    """The mode of the last attempt."""
    attempts: list[AttemptRecord] = []
    retries: list[str] = []
    """The reasons of all attempts but the first."""
    failures: list[tuple[str, str]] = []
    """The upstreams that failed, each with the kind of its failure."""
    overhead: float | None = None
    """Seconds that were not spent waiting for upstreams."""
    holdback: float | None = None
    """The longest time that content was held back; None if the reply is not streamed."""
    has_replied: bool = False
    replaced_reply: Reply | None = None
    """The final reply, if it is not that of the last attempt."""
    notes: tuple[Note, ...] = ()
    failure: Failure | None = None
    status: int = 0
    ended: float = 0.0
    response_headers: dict[str, str] = {}
    capture: RequestCapture | None = None
    spans: RequestSpans | None = None

    @property
    def seconds(self) -> float:
        return self.ended - self.started

    @property
    def reply(self) -> Reply | None:
        """The reply that the client receives."""
        if self.has_replied and self.replaced_reply is None:
            return self.attempts[-1].reply
        return self.replaced_reply

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        reply = self.reply
        return reply.calls if reply else ()

    @property
    def note_codes(self) -> list[str]:
        """The codes of all notes, each once."""
        return list(dict.fromkeys(note.code for note in self.notes)) if self.notes else []

    @property
    def upstream(self) -> str:
        """The last upstream that was asked."""
        if self.attempts:
            return self.attempts[-1].server.name
        return self.first_upstream

    def set_request(self, request: Request, model: ResolvedModel) -> None:
        """Record the decoded request and the model that serves it."""
        if self.capture and not self.capture.body:
            # The body was too large to keep, so the inspector shows this text instead.
            self.capture.user_message = last_user_text(request)
        self.model, self.is_stream = request.model, request.stream
        self.tool_count = len(request.tools or ())
        self.upstream_model, self.first_upstream = model.profile.model, model.endpoint.name

    def start_attempt(self, attempt: Attempt, endpoint: Endpoint) -> AttemptRecord:
        """Record that an attempt is sent, and why."""
        record = AttemptRecord(
            _server_of(endpoint),
            attempt.plan,
            attempt.outgoing.path,
            attempt.profile.model,
            attempt.reason,
            perf_counter(),
        )
        self.attempts.append(record)
        capture = self.capture
        if capture:
            record.response_capture = StreamCapture(capture.started, capture.budget)
        if attempt.is_decided:
            return record
        if attempt.reason and not attempt.is_preparation:
            self.retries.append(attempt.reason)
        if capture:
            data = attempt.data
            is_kept = len(data) <= LARGE_CHUNK or capture.reserve(len(data))
            record.request_body = data if is_kept else b""
        if self.spans:
            record.headers = self.spans.start_attempt(record, attempt, endpoint)
        return record

    def start_response(
        self, question: AttemptRecord, response: UpstreamResponse, *, is_stream: bool
    ) -> None:
        """Record the status and headers of an upstream's response."""
        question.first_byte = perf_counter()
        question.status = response.status
        if self.capture and question.response_capture:
            question.is_stream = is_stream and response.is_stream
            response.capture_to(question.response_capture, self.capture)

    def add_failures(self, failures: list[tuple[str, Failure]]) -> None:
        """Record the upstreams that failed."""
        self.failures += [(upstream, failure.kind) for upstream, failure in failures]

    def add_holdback(self, seconds: float) -> None:
        """Record for how long content was held back."""
        self.holdback = max(self.holdback or 0.0, seconds)

    def set_reply(self, reply: Reply, notes: tuple[Note, ...]) -> None:
        """Record the reply that the client receives; `notes` are those about its attempts."""
        self.has_replied = True
        if not self.attempts or self.attempts[-1].reply is not reply:
            self.replaced_reply = reply
        self.notes = (*notes, *reply.notes)
        self.failure = reply.failure

    def end(self, status: int, headers: dict[str, str]) -> None:
        """Record the end of the request."""
        self.status = self.status or status or CLIENT_CLOSED
        self.response_headers = headers
        self.ended = perf_counter()


@memoize_by_identity
def _server_of(endpoint: Endpoint) -> UpstreamServer:
    return UpstreamServer(
        endpoint.name, endpoint.wire, endpoint.base_url, endpoint.key, endpoint.headers
    )


def last_user_text(request: Request) -> str:
    """What tells a request from others: the beginning of the last that somebody said in words."""
    for message in reversed(request.messages):
        if message.role == "user":
            for part in reversed(message.parts):
                if isinstance(part, Text) and (text := part.text.strip()):
                    return text[:_MAX_USER_TEXT]
    return ""
