"""Runs the pipeline of one request against real upstreams.

    call = ModelCall(services, request, catalog.resolve(request.model), sink)
    rest = await call.run()                 the events that have not gone to the sink yet
    await call.learn(call.fold(rest))

The engine decides what to ask and what the reply means; here the attempts are sent, the bytes are
received, and everything is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import Any, Protocol

from msgspec import Struct, field, structs

from ..engine import Attempt, ModelProfile, Pipeline, ReplyReader, run_pipeline
from ..engine.pipeline import StepRunner
from ..engine.plan import depends_on_mode, involves_tools
from ..engine.recovery import is_tool_rejection
from ..errors import UpstreamError, WireError
from ..events import ArgumentsDelta, CallEnd, Event, ReasoningDelta, TextDelta
from ..types import Failure, Note, Reply, Request
from .catalog import Endpoint, ResolvedModel
from .client import UpstreamClient, UpstreamResponse
from .learned_modes import LearnedFields, LearnedModes
from .record import NO_MODE, AttemptRecord, RequestRecord
from .worker_thread import LARGE, WorkerThread

_LARGE_CONVERSATION = 2**21
"""Bytes of a request from which each chunk of its reply is read in the worker thread, too: every
call is compared with the whole conversation."""
_DELTAS = frozenset({TextDelta, ReasoningDelta, ArgumentsDelta})


class ModelServices(Struct, frozen=True):
    """The services that all requests share."""

    upstreams: UpstreamClient
    learned_modes: LearnedModes
    learned_fields: LearnedFields = field(default_factory=LearnedFields)
    worker: WorkerThread = field(default_factory=WorkerThread)


class EventSink(Protocol):
    """Takes the events of a streamed reply."""

    async def send(
        self, events: list[Event], forwarded: bytes | None = None, now: float | None = None
    ) -> None:
        """Send events. `forwarded` holds the upstream's own bytes for them, if the client gets
        those; `now` is when they arrived, if known."""
        ...


class ModelCall:
    """One request to a model. Without a sink, the reply is requested as a whole."""

    def __init__(
        self,
        services: ModelServices,
        request: Request,
        model: ResolvedModel,
        sink: EventSink | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        keeps_deltas: bool = True,
        may_forward: bool = False,
        record: RequestRecord | None = None,
        size: int = 0,
    ) -> None:
        """`size` is that of the client's request in bytes."""
        self.request = request
        self.record = record or RequestRecord()
        self.waiting = Stopwatch()
        """Measures the time spent waiting for upstreams, up to the first content."""
        self.forwarded: bytes | None = None
        """The upstream's own bytes, if they are sent instead of the rest of the events."""
        self._services = services
        self._model = model
        self._sink = sink
        self._headers = headers
        """The client's headers, some of which an upstream of the same API has to see."""
        self._keeps_deltas = keeps_deltas
        self._may_forward = may_forward
        self._is_large = size > LARGE
        self._is_large_conversation = size > _LARGE_CONVERSATION
        self._pipeline: Pipeline | None = None
        self._attempt_record: AttemptRecord | None = None
        self._holdback_timer: HoldbackTimer | None = None
        self._reply_size = 0
        self._whole: tuple[bytes, Any] | None = None
        """The body of a whole reply, and its value."""
        self._unsent: list[Event] = []
        """Events that go to the sink with the next ones."""
        self._sent: list[Event] = []

    async def run(self) -> list[Event]:
        """Ask the model; return the events that were not sent to the sink."""
        profiles = await self._learned_profiles()
        pipeline = Pipeline(self.request, profiles, is_streaming=self._sink is not None)
        self._pipeline = pipeline
        try:
            send = partial(self._send, pipeline)
            rest = await run_pipeline(pipeline, send, self._find_runner)
        except UpstreamError as problem:
            if self._attempt_record:
                self._attempt_record.set_failure(problem.failure)
            raise
        finally:
            self.record.add_failures(pipeline.failures)
        self._close_attempt(pipeline)
        if changes := pipeline.recovery.field_changes:
            self._services.learned_fields.add(pipeline.profile, changes)
        if self._holdback_timer:
            self._holdback_timer.update(is_released=True)
        if self._whole and self._can_forward_body(pipeline, rest, self._whole[1]):
            self.forwarded = self._whole[0]
        return [*self._unsent, *rest]

    @property
    def notes(self) -> tuple[Note, ...]:
        """The notes about the request and its attempts, without those of the reply."""
        pipeline = self._pipeline
        if pipeline is None or pipeline.attempt is None:
            return ()
        return (*pipeline.attempt.outgoing.notes, *pipeline.notes)

    @property
    def profile(self) -> ModelProfile:
        """The model that was asked last."""
        attempt = self._pipeline.attempt if self._pipeline else None
        return attempt.profile if attempt else self._model.profile

    @property
    def is_large(self) -> bool:
        """True if the request or its reply is so large that work on it needs the worker thread."""
        return self._is_large or self._reply_size > LARGE

    def _find_runner(self) -> StepRunner | None:
        return self._services.worker.run if self.is_large else None

    def fold(self, rest: list[Event]) -> Reply:
        """Return the whole reply: everything that was sent, and `rest`. Call it once."""
        assert self._pipeline
        events = rest
        if self._sink:
            self._remember(rest)
            events = self._sent
        return self._pipeline.fold_reply(events)

    async def learn(self, reply: Reply) -> None:
        """Remember what the reply shows about how the model calls tools."""
        evidence = self._pipeline.find_mode_evidence(reply) if self._pipeline else None
        if evidence:
            await self._services.learned_modes.learn(evidence)

    async def _learned_profiles(self) -> list[ModelProfile]:
        """Return the profiles of the model and its fallbacks, with what was learned about them."""
        profile, learned = self._model.profile, self._services.learned_modes
        profiles = [profile, *(_move_profile(profile, one) for one in self._model.fallbacks)]
        profiles = list(map(self._services.learned_fields.apply, profiles))
        if profile.mode != "auto" or not depends_on_mode(self.request):
            return profiles
        modes = [await learned.get(one.upstream, one.model) for one in profiles]
        return [
            structs.replace(one, learned_mode=mode) if mode else one
            for one, mode in zip(profiles, modes, strict=True)
        ]

    # One attempt.

    async def _send(self, pipeline: Pipeline, attempt: Attempt) -> None:
        """Send an attempt and feed its reply to the pipeline."""
        self._close_attempt(pipeline)
        plan = pipeline.recovery.plan
        is_used = plan.mode != "native" or involves_tools(self.request)
        self.record.mode = plan.mode if is_used else NO_MODE
        endpoint = self._find_endpoint(attempt.profile)
        self._attempt_record = record = self.record.start_attempt(attempt, endpoint)
        self.forwarded = self._whole = self._holdback_timer = None
        if attempt.is_decided:
            return
        try:
            response = await self._open(attempt, endpoint, record)
            with response:
                if response.status >= 300:
                    raise await response.read_error()
                if self._sink:
                    await self._receive_stream(pipeline, attempt, response, self._sink)
                else:
                    await self._receive_whole(pipeline, response)
        except UpstreamError as problem:
            record.set_failure(problem.failure)
            raise

    def _find_endpoint(self, profile: ModelProfile) -> Endpoint:
        endpoints = (self._model.endpoint, *self._model.fallbacks)
        return next(one for one in endpoints if one.name == profile.upstream)

    def _close_attempt(self, pipeline: Pipeline) -> None:
        """Record the outcome of the last attempt, which the pipeline knows by now."""
        record, self._attempt_record = self._attempt_record, None
        if record and not record.failure:
            record.set_reply(pipeline.reply, pipeline.outcome.kind if pipeline.outcome else "")

    async def _open(
        self, attempt: Attempt, endpoint: Endpoint, record: AttemptRecord
    ) -> UpstreamResponse:
        is_same_wire = self.request.wire == endpoint.wire
        with self.waiting:
            response = await self._services.upstreams.send(
                endpoint,
                attempt.outgoing.path,
                attempt.data,
                self._headers if is_same_wire else None,
                self._count_resend,
                partial(is_tool_rejection, attempt),
                record.headers,
            )
        self.record.start_response(record, response, is_stream=self._sink is not None)
        return response

    def _count_resend(self) -> None:
        self.record.attempts[-1].resends += 1
        self.record.retries.append("upstream")

    async def _receive_whole(self, pipeline: Pipeline, response: UpstreamResponse) -> None:
        with self.waiting:
            body = await response.read_body()
        self._reply_size += len(body)
        worker = self._services.worker
        failures, value = await worker.run_if(self.is_large, _read_whole, pipeline, response, body)
        if failures:
            raise response.error_for(_find_failure(failures))
        if value is not None and self._may_forward and _is_utf8(body):
            self._whole = body, value

    def _can_forward_body(self, pipeline: Pipeline, rest: list[Event], value: Any) -> bool:
        """Return True if the reply is exactly what the upstream wrote, in the client's API."""
        attempt = pipeline.attempt
        assert attempt
        if pipeline.may_forward(attempt):
            return True
        wire, reply = attempt.wire, pipeline.reply
        if wire.name != self.request.wire or not _are_equal(rest, pipeline.reader.decoded):
            return False
        # Everything that was repaired has a note.
        return not reply.notes and wire.can_forward(value, reply)

    async def _receive_stream(
        self, pipeline: Pipeline, attempt: Attempt, response: UpstreamResponse, sink: EventSink
    ) -> None:
        reader = pipeline.reader
        forwards = self._may_forward and pipeline.may_forward(attempt)
        timer = self._holdback_timer = HoldbackTimer(reader, self.record)
        while True:
            events, is_last = await self._receive_batch(pipeline, reader, response)
            if timer.started or not events:
                timer.update(is_released=bool(events))
            self._unsent = self._unsent + events if self._unsent else events
            if events and isinstance(failure := events[-1], Failure):
                self._unsent.pop()
                raise response.error_for(failure)
            if is_last:
                break
            if pipeline.has_sent_content:
                events, self._unsent = self._unsent, []
                self._remember(events)
                forwarded = reader.take_forwarded() if forwards and reader.frame_count else None
                await sink.send(events, forwarded, response.received_at)
        self.forwarded = reader.take_forwarded() if forwards and reader.frame_count else None

    async def _receive_batch(
        self, pipeline: Pipeline, reader: ReplyReader, response: UpstreamResponse
    ) -> tuple[list[Event], bool]:
        """Return what the pipeline releases after the next chunk, and True if it is the last."""
        if not response.is_stream:
            with self.waiting:
                body = await response.read_body()
            self._reply_size += len(body)
            worker = self._services.worker
            events, _ = await worker.run_if(self.is_large, _read_whole, pipeline, response, body)
            return events, True
        try:
            if pipeline.has_sent_content:
                # From the first content on, waiting for the upstream is not overhead.
                data = await response.read_chunk()
            else:
                with self.waiting:
                    data = await response.read_chunk()
        except UpstreamError as problem:
            # A complete reply cannot break off.
            if not reader.is_complete:
                return pipeline.receive(reader.read_events([problem.failure])), True
            data = b""
        self._reply_size += len(data)
        frame_count = reader.frame_count
        is_large = response.pending_bytes > LARGE or self._is_large_conversation
        worker = self._services.worker
        events = await worker.run_if(is_large, _read_chunk, pipeline, reader, data)
        if reader.frame_count > frame_count:
            response.mark_progress(is_complete=reader.is_complete)
        return events, not data

    def _remember(self, events: list[Event]) -> None:
        """Keep events for `fold`; deltas only if their text is needed."""
        if self._keeps_deltas:
            self._sent += events
        elif len(events) != 1 or type(events[0]) not in _DELTAS:
            self._sent += [one for one in events if type(one) not in _DELTAS]


def _read_chunk(pipeline: Pipeline, reader: ReplyReader, data: bytes) -> list[Event]:
    """Return what the pipeline releases after a chunk; b"" is the end of the stream."""
    return pipeline.receive(reader.feed(data) if data else reader.finish())


def _read_whole(
    pipeline: Pipeline, response: UpstreamResponse, body: bytes
) -> tuple[list[Event], Any]:
    """Return what the pipeline releases after a whole reply, and the reply's value."""
    events, value = read_reply(pipeline.reader, response, body)
    return pipeline.receive(events), value


def read_reply(
    reader: ReplyReader, response: UpstreamResponse, body: bytes
) -> tuple[list[Event], Any]:
    """Read a reply from its whole body; also return its value, or None if it is a stream."""
    if response.is_html:
        raise response.html_error()
    try:
        value = reader.parse_body(body)
    except WireError as problem:
        events = reader.feed(body) + reader.finish()
        if reader.frame_count:
            return events, None
        raise response.unreadable_error(problem) from None
    return reader.read_whole(value), value


def _are_equal(events: list[Event], decoded: list[Event]) -> bool:
    """Compare events with those that a wire decoded, where calls have no source text yet."""
    return len(events) == len(decoded) and all(map(_is_equal, events, decoded))


def _is_equal(event: Event, decoded: Event) -> bool:
    if isinstance(event, CallEnd) and event.call.raw:
        event = CallEnd(event.index, structs.replace(event.call, raw=""))
    return event == decoded


def _is_utf8(body: bytes) -> bool:
    """Return True if a JSON object is in the encoding that all clients read."""
    return body[:1] == b"{" and body.find(b"\0", 0, 4) < 0


def _find_failure(events: list[Event]) -> Failure:
    return next(event for event in events if isinstance(event, Failure))


def _move_profile(profile: ModelProfile, endpoint: Endpoint) -> ModelProfile:
    """Return the profile of the same model at another upstream."""
    return structs.replace(
        profile,
        upstream=endpoint.name,
        model=endpoint.settings.model or profile.model,
        wire=endpoint.wire,
        quirks=endpoint.quirks,
        capabilities=structs.replace(
            profile.capabilities,
            native_tools=endpoint.native_tools,
            constrained=endpoint.constrained,
        ),
    )


class HoldbackTimer:
    """Measures for how long the content of a stream is held back.

    If only part of a chunk is released, the time of the rest is measured from the next chunk on.
    """

    def __init__(self, reader: ReplyReader, record: RequestRecord) -> None:
        self._reader = reader
        self._record = record
        self.started = 0.0
        record.add_holdback(0.0)

    def update(self, *, is_released: bool) -> None:
        """Take note of a chunk; `is_released` if any event was released with it."""
        if not self.started:
            is_held = not is_released and self._reader.has_chunk_content
            self.started = perf_counter() if is_held else 0.0
        elif is_released:
            self._record.add_holdback(perf_counter() - self.started)
            self.started = 0.0


class Stopwatch:
    """Adds up the time that is spent inside its `with` blocks."""

    def __init__(self) -> None:
        self._total = 0.0
        self._started = 0.0

    @property
    def seconds(self) -> float:
        """The time so far, also in the middle of a block."""
        return self._total + (perf_counter() - self._started if self._started else 0.0)

    def __enter__(self) -> None:
        self._started = perf_counter()

    def __exit__(self, *problem: object) -> None:
        self._total += perf_counter() - self._started
        self._started = 0.0
