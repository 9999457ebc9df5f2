"""A request in one line, for a list of them."""

from __future__ import annotations

from time import perf_counter

from msgspec import Struct

from ...errors import ToolspeakError
from ...upstream.record import RequestRecord, last_user_text
from ...wires import get_wire
from ...wires.framing import decode_json


class Summary(Struct, frozen=True, kw_only=True):
    """What a list of requests says of one."""

    key: str
    """No other request has it."""
    id: str
    """What the client calls it, or else the same."""
    at: float
    """Seconds since 1970."""
    changed: float
    """When something was last said of it, in seconds since 1970."""
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


def summary_of(record: RequestRecord) -> Summary:
    """A request in one line, be it over or not."""
    kept, is_over = record.capture, record.ended > 0
    assert kept, "nobody can look at others"
    if kept.asked is None and kept.body:
        kept.asked = _asked(record.wire, kept.body)
    return Summary(
        key=kept.key,
        id=record.id,
        at=record.received_at,
        changed=kept.changed,
        wire=record.wire,
        target=kept.target,
        stream=record.is_stream,
        model=record.model,
        served=record.upstream_model,
        upstream=record.upstream,
        mode=record.mode,
        asked=kept.asked or "",
        tools=record.tool_count,
        calls=[call.name for call in record.calls],
        retries=len(record.retries),
        notes=record.note_codes,
        status=record.status if is_over else 0,
        is_over=is_over,
        ms=_ms(record.seconds if is_over else perf_counter() - record.started),
        overhead_ms=None if record.overhead is None else _ms(record.overhead),
        failure=record.failure.message if record.failure else "",
    )


def _asked(wire: str, body: bytes) -> str:
    """The gist of what a client has sent."""
    try:
        request = get_wire(wire).decode_request(decode_json(body), model="", stream=False)
    except ToolspeakError:
        return ""
    return last_user_text(request)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
