"""How the gateway logs: lines for people, or one JSON object on each for programs.

    {"time": "2026-01-31T12:00:00.123Z", "level": "INFO", "logger": "toolspeak.gateway",
     "message": "request", "request_id": "req_…", "path": "/v1/messages", "status": 200, …}

Nothing that a client or a model has said is logged, but the name of the model.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from ..config.settings import LogFormat
from ..upstream.record import RequestRecord

log = logging.getLogger("toolspeak.gateway")
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""The request that is being served here."""
_TEXT_FORMAT = "%(levelname)s %(message)s"
_MAX_LENGTH = 200
"""Clients may make up any name of a model."""


def configure_logging(form: LogFormat, level: int) -> None:
    """Log in that form, to the standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLogFormatter() if form == "json" else logging.Formatter(_TEXT_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])


def log_request(record: RequestRecord) -> None:
    """Log a request that is over."""
    if log.isEnabledFor(logging.INFO):
        log.info(_format_request(record), extra={"fields": request_fields(record)})


class JsonLogFormatter(logging.Formatter):
    """Every record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
        }
        given: dict[str, Any] | None = getattr(record, "fields", None)
        if given:
            line |= {"message": "request", **given}
        else:
            line["message"] = record.getMessage()
            if identity := REQUEST_ID.get():
                line["request_id"] = identity
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # In ASCII: what cannot be written would be lost.
        return json.dumps(line, default=str)


def request_fields(record: RequestRecord) -> dict[str, Any]:
    """What is logged of a request."""
    said: dict[str, Any] = {
        "request_id": record.id,
        "method": record.method,
        "path": record.path[:_MAX_LENGTH],
        "wire": record.wire,
        "status": record.status,
        "ms": _to_milliseconds(record.seconds),
    }
    if record.upstream_model:
        said |= {
            "model": record.model[:_MAX_LENGTH],
            "upstream": record.upstream,
            "mode": record.mode,
            "stream": record.is_stream,
            "tools": record.tool_count,
            "calls": len(record.calls),
            "retries": len(record.retries),
            "notes": record.note_codes,
            "overhead_ms": None if record.overhead is None else _to_milliseconds(record.overhead),
        }
    # Its message may repeat what was asked.
    said["failure"] = record.failure.kind if record.failure else None
    if record.spans:
        said["trace_id"] = record.spans.trace_id
    return said


def _format_request(record: RequestRecord) -> str:
    """The same in few words."""
    told = ", ".join(_describe_request(record))
    return f"{record.id}: {record.method} {record.path[:_MAX_LENGTH]!r}: {record.status} {told}"


def _describe_request(record: RequestRecord) -> Iterator[str]:
    yield f"in {_to_milliseconds(record.seconds):g} ms"
    if record.failure:
        yield record.failure.kind
    if record.upstream_model:
        yield f"{record.model[:_MAX_LENGTH]!r} at {record.upstream}"
        if record.mode:
            yield record.mode
        yield from (_pluralize(count, what) for count, what in _counts(record) if count)
        yield from record.note_codes


def _counts(record: RequestRecord) -> Iterator[tuple[int, str]]:
    yield record.tool_count, "tool"
    yield len(record.calls), "call"
    yield len(record.retries), "retry"


def _pluralize(count: int, what: str) -> str:
    if count == 1:
        return f"1 {what}"
    return f"{count} retries" if what == "retry" else f"{count} {what}s"


def _to_milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 2)
