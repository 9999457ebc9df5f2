"""The record of a request while it is served, and the bytes that are captured for the inspector.

Metrics, logs, traces and the inspector (`observe/`) all read the record when the request has ended.
Bytes are captured within a budget, and only if the inspector is on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import perf_counter, time
from typing import TYPE_CHECKING, Protocol, Self, cast

from msgspec import Struct, field, structs

from .._util import memoize_by_identity
from ..types import Failure, Note, Plan, Reply, Request, Text, ToolCall
from .catalog import UpstreamServer

if TYPE_CHECKING:
    from ..engine import Attempt
    from .catalog import Endpoint, ResolvedModel
    from .client import UpstreamResponse

CLIENT_CLOSED = 499
"""The status of a request whose client closed the connection before the end of the response."""
NO_MODE = "none"
"""Recorded for a request that does not depend on the mode: it has neither tools nor a format."""
_MAX_USER_TEXT = 160
CHUNK_OVERHEAD = 80
"""Approximate bytes that Python itself needs for a chunk: many small ones are not free."""
RECOUNT_AFTER = 2**15
"""Bytes of small chunks after which they are charged to the budget."""
LARGE_CHUNK = 2**12
"""Chunks of at least this size are charged at once. A smaller body is not charged at all: the
request holds more than that in memory anyway."""


# Captured bytes.


class CaptureBudget(Struct, array_like=True, gc=False):
    """The bytes that may still be captured, over all active requests."""

    remaining: int


def memory_size(chunks: list[bytes]) -> int:
    """Return the approximate number of bytes that the chunks take in memory."""
    return sum(map(len, chunks)) + CHUNK_OVERHEAD * len(chunks)


class StreamCapture(Struct, array_like=True, gc=False):
    """A stream in one direction, chunk by chunk, with times.

    There are many chunks and each must be cheap, so `entries` is a plain list to which callers
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


# Records.


class AttemptRecord(Struct, array_like=True):
    """One attempt, and its result. Times are those of `perf_counter`."""

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
    resends: int = 0
    """How many times the same bytes were sent again after a connection or server error."""
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
    """The mode of the last attempt; `NO_MODE` if the request needs none."""
    attempts: list[AttemptRecord] = []
    retries: list[str] = []
    """The reasons of all retries and fallbacks; "upstream" for the same bytes sent again."""
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
            # The body was too large to keep, so the inspector cannot read the message from it.
            self.capture.user_message = summarize_user_text(request)
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
        if attempt.reason and not attempt.is_side_question:
            self.retries.append(attempt.reason)
        if capture:
            data = attempt.data
            is_kept = len(data) <= LARGE_CHUNK or capture.reserve(len(data))
            record.request_body = data if is_kept else b""
        if self.spans:
            record.headers = self.spans.start_attempt(record, attempt, endpoint)
        return record

    def start_response(
        self, attempt: AttemptRecord, response: UpstreamResponse, *, is_stream: bool
    ) -> None:
        """Record the status and headers of an upstream's response."""
        attempt.first_byte = perf_counter()
        attempt.status = response.status
        if self.capture and attempt.response_capture:
            attempt.is_stream = is_stream and response.is_stream
            response.capture_to(attempt.response_capture, self.capture)

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


def summarize_user_text(request: Request) -> str:
    """Return the beginning of the last user message that has text, to recognize a request by."""
    for message in reversed(request.messages):
        if message.role == "user":
            for part in reversed(message.parts):
                if isinstance(part, Text) and (text := part.text.strip()):
                    return text[:_MAX_USER_TEXT]
    return ""
