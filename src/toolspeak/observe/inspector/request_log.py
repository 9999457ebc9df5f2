"""The active requests, and the last finished ones, limited by number and by bytes.

A finished request is kept as encoded bytes until it is viewed. A thousand records would be
a hundred thousand objects, and each new request would then allocate memory that is not in any
cache: that costs more than encoding.
"""

from __future__ import annotations

import logging
from collections import deque
from time import perf_counter, time

import msgspec
from msgspec import Struct, structs

from ...errors import ToolspeakError
from ...types import Reply, ToolCall
from ...upstream.record import CaptureBudget, RequestRecord, memory_size, summarize_user_text
from ...wires import get_wire
from ...wires.framing import decode_json

log = logging.getLogger("toolspeak.gateway")
_MIN_STEP = 1e-6
_OBJECT_SIZE = 4000
"""Approximate bytes that Python needs for a record that cannot be encoded."""
_ENCODING_ERRORS = (TypeError, ValueError, OverflowError, RecursionError)
"""Raised for lone surrogates, huge integers and deep nesting: models write such things."""
_MAX_BUFFER = 2**20
"""Bytes of the encoding buffer that are reused for the next request."""
_encode_into = msgspec.msgpack.Encoder().encode_into
_decode = msgspec.msgpack.Decoder(RequestRecord).decode


class RequestSummary(Struct, frozen=True, kw_only=True):
    """A request in a list of requests."""

    key: str
    """Unique, unlike `id`, which a client may choose."""
    id: str
    started_at: float
    """Seconds since 1970."""
    changed_at: float
    """Seconds since 1970."""
    wire: str
    target: str
    stream: bool
    model: str
    upstream_model: str
    upstream: str
    mode: str
    user_message: str
    tools: int
    calls: list[str]
    retries: int
    notes: list[str]
    status: int
    is_finished: bool
    ms: float
    overhead_ms: float | None
    failure: str


def summarize_request(record: RequestRecord) -> RequestSummary:
    """Summarize an active or finished request."""
    capture, is_finished = record.capture, record.ended > 0
    assert capture, "only captured requests are shown"
    if capture.user_message is None and capture.body:
        capture.user_message = _read_user_message(record.wire, capture.body)
    seconds = record.seconds if is_finished else perf_counter() - record.started
    return RequestSummary(
        key=capture.key,
        id=record.id,
        started_at=record.received_at,
        changed_at=capture.changed_at,
        wire=record.wire,
        target=capture.target,
        stream=record.is_stream,
        model=record.model,
        upstream_model=record.upstream_model,
        upstream=record.upstream,
        mode=record.mode,
        user_message=capture.user_message or "",
        tools=record.tool_count,
        calls=[call.name for call in record.calls],
        retries=len(record.retries),
        notes=record.note_codes,
        status=record.status if is_finished else 0,
        is_finished=is_finished,
        ms=to_milliseconds(seconds),
        overhead_ms=None if record.overhead is None else to_milliseconds(record.overhead),
        failure=record.failure.message if record.failure else "",
    )


def _read_user_message(wire: str, body: bytes) -> str:
    try:
        request = get_wire(wire).decode_request(decode_json(body), model="", stream=False)
    except ToolspeakError:
        return ""
    return summarize_user_text(request)


def to_milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


class FinishedRequest(Struct, gc=False):
    """A finished request, with a summary that is made when it is first listed."""

    stored: bytes | RequestRecord
    """Encoded, unless that is impossible."""
    size: int
    """Approximate number of bytes in memory."""
    is_unreadable: bool = False
    _summary: RequestSummary | None = None

    @property
    def record(self) -> RequestRecord:
        return _decode(self.stored) if isinstance(self.stored, bytes) else self.stored

    @property
    def summary(self) -> RequestSummary:
        if self._summary is None:
            self._summary = summarize_request(self.record)
        return self._summary

    def can_be_listed(self) -> bool:
        """Return False if the record cannot be read, which is logged once."""
        try:
            return not self.is_unreadable and bool(self.summary)
        except Exception:
            # One unreadable request must not hide all others.
            log.exception("the inspector cannot read a stored request")
            self.is_unreadable = True
            return False


class RequestLog:
    """The requests of one process.

    The event loop adds and finishes requests; `list_finished` may be called from any thread.
    """

    def __init__(self, max_requests: int = 1000, max_bytes: int = 32 * 2**20) -> None:
        self.max_requests = max_requests
        self.max_bytes = max_bytes
        self.budget = CaptureBudget(_active_budget(max_bytes))
        self.active: dict[str, RequestRecord] = {}
        self._finished: deque[FinishedRequest] = deque()
        self._buffer = bytearray()
        """Reused for encoding, so that each stored record takes no more memory than it needs."""
        self.size = 0
        """Bytes of all finished requests."""
        self.changed_at = 0.0
        """When the last request finished."""

    def resize(self, max_requests: int, max_bytes: int) -> None:
        self.budget.remaining += _active_budget(max_bytes) - _active_budget(self.max_bytes)
        self.max_requests, self.max_bytes = max_requests, max_bytes
        self._evict()

    def finish(self, record: RequestRecord) -> None:
        """Store a finished request. Every request pays for this, so it avoids function calls."""
        capture = record.capture
        if capture is None:
            return
        self.active.pop(capture.key, None)
        reserved = capture.reserved
        for attempt in record.attempts:
            if attempt.response_capture:
                reserved += attempt.response_capture.reserved
        self.budget.remaining += reserved
        # Times are unique, so that a reader who asks for newer requests misses none.
        now = time()
        self.changed_at = capture.changed_at = (
            now if now > self.changed_at else self.changed_at + _MIN_STEP
        )
        if record.spans:
            record.spans = None
        try:
            try:
                _encode_into(record, self._buffer)
                finished = FinishedRequest(bytes(self._buffer), len(self._buffer))
            except _ENCODING_ERRORS:
                finished = FinishedRequest(record, _estimate_size(record))
            if finished.size > self.max_bytes:
                bare = _drop_bodies(record)
                finished = FinishedRequest(bare, _estimate_size(bare))
        except Exception:
            # The request itself was served, whatever went wrong here.
            log.exception("the inspector cannot store a request")
            return
        self._finished.append(finished)
        self.size += finished.size
        self._evict()

    def _evict(self) -> None:
        """Remove the oldest requests that exceed the limits."""
        finished = self._finished
        while self.size > self.max_bytes or len(finished) > self.max_requests:
            self.size -= finished.popleft().size
        if len(self._buffer) > _MAX_BUFFER:
            self._buffer = bytearray()

    def list_finished(self) -> list[FinishedRequest]:
        """Return the finished requests, oldest first; thousands take a while the first time."""
        return [one for one in tuple(self._finished) if one.can_be_listed()]

    def find_record(self, key: str, active: RequestRecord | None) -> RequestRecord | None:
        """Return the finished request with that key, else `active`, else the last with that ID."""
        finished = self.list_finished()
        by_key = (one.record for one in finished if one.summary.key == key)
        by_id = (one.record for one in reversed(finished) if one.summary.id == key)
        return next(by_key, None) or active or next(by_id, None)

    def snapshot_active(self, key: str) -> RequestRecord | None:
        """Return a copy of an active request, found by its key or else its ID."""
        active = self.active.get(key)
        if active is None:
            by_id = (one for one in reversed(self.active.values()) if one.id == key)
            active = next(by_id, None)
        return _copy_record(active) if active else None


def _copy_record(record: RequestRecord) -> RequestRecord:
    """Copy what an active request modifies in place; all other fields are only replaced."""
    attempts = [
        structs.replace(
            attempt,
            response_capture=attempt.response_capture and attempt.response_capture.snapshot(),
        )
        for attempt in record.attempts
    ]
    capture = record.capture and record.capture.snapshot()
    return structs.replace(record, spans=None, attempts=attempts, capture=capture)


def _estimate_size(record: RequestRecord) -> int:
    """Return the approximate bytes in memory; the decoded reply is held beside its bytes."""
    capture, size = record.capture, _OBJECT_SIZE
    if capture:
        size += len(capture.body) + memory_size(capture.chunks)
        size += sum(map(len, (*capture.headers, *capture.headers.values())))
    for attempt in record.attempts:
        response = attempt.response_capture
        response_size = memory_size(response.chunks) if response else 0
        size += _OBJECT_SIZE + len(attempt.request_body) + 2 * response_size
    return size


def _drop_bodies(record: RequestRecord) -> RequestRecord:
    """Return what can be shown of a request that alone exceeds `max_bytes`."""
    capture = record.capture
    assert capture, "only captured requests are stored"
    user_message = summarize_request(record).user_message
    bare = structs.replace(
        capture, entries=[], dropped=capture.size, body=b"", user_message=user_message
    )
    reply = record.reply
    if reply:
        calls = [ToolCall(id=call.id, name=call.name, arguments={}) for call in reply.calls]
        reply = Reply(parts=tuple(calls), dialect=reply.dialect, usage=reply.usage)
    return structs.replace(
        record,
        attempts=[],
        first_upstream=record.upstream,
        has_replied=reply is not None,
        replaced_reply=reply,
        capture=bare,
    )


def _active_budget(max_bytes: int) -> int:
    """Return the budget of active requests: one that takes all of it can still be stored."""
    return max_bytes * 3 // 4
