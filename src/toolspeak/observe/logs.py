"""The gateway's log: lines for people, or a JSON object on each line for programs.

    {"time": "2026-01-31T12:00:00.123Z", "level": "INFO", "logger": "toolspeak.gateway",
     "message": "request", "request_id": "req_…", "path": "/v1/messages", "status": 200, …}

No text of a client or a model is logged, except the model's name.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from ..config.settings import LogFormat
from ..upstream.record import NO_MODE, RequestRecord

log = logging.getLogger("toolspeak.gateway")
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request that the current task serves."""
_TEXT_FORMAT = "%(levelname)s %(message)s"
_MAX_LENGTH = 200
"""Limits names of models and paths, which clients may invent."""


def configure_logging(log_format: LogFormat, level: int) -> None:
    """Log to stderr."""
    handler = logging.StreamHandler()
    is_json = log_format == "json"
    handler.setFormatter(JsonLogFormatter() if is_json else logging.Formatter(_TEXT_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])


def log_request(record: RequestRecord) -> None:
    """Log a finished request."""
    if log.isEnabledFor(logging.INFO):
        log.info(_format_request(record), extra={"fields": request_fields(record)})


class JsonLogFormatter(logging.Formatter):
    """Formats every record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
        }
        fields: dict[str, Any] | None = getattr(record, "fields", None)
        if fields:
            line |= {"message": "request", **fields}
        else:
            line["message"] = record.getMessage()
            if request_id := REQUEST_ID.get():
                line["request_id"] = request_id
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # ASCII only: a line that stderr cannot encode would be lost.
        return json.dumps(line, default=str)


def request_fields(record: RequestRecord) -> dict[str, Any]:
    """Return the fields of the log entry of a request."""
    fields: dict[str, Any] = {
        "request_id": record.id,
        "method": record.method,
        "path": record.path[:_MAX_LENGTH],
        "wire": record.wire,
        "status": record.status,
        "ms": _to_milliseconds(record.seconds),
    }
    if record.upstream_model:
        fields |= {
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
    # The message of a failure may repeat text of the request.
    fields["failure"] = record.failure.kind if record.failure else None
    if record.spans:
        fields["trace_id"] = record.spans.trace_id
    return fields


def _format_request(record: RequestRecord) -> str:
    """Return the log line of a request for people."""
    path = record.path[:_MAX_LENGTH]
    details = ", ".join(_describe_request(record))
    return f"{record.id}: {record.method} {path!r}: {record.status} {details}"


def _describe_request(record: RequestRecord) -> Iterator[str]:
    yield f"in {_to_milliseconds(record.seconds):g} ms"
    if record.failure:
        yield record.failure.kind
    if record.upstream_model:
        yield f"{record.model[:_MAX_LENGTH]!r} at {record.upstream}"
        if record.mode not in ("", NO_MODE):
            yield record.mode
        yield from _format_count(record.tool_count, "tool", "tools")
        yield from _format_count(len(record.calls), "call", "calls")
        yield from _format_count(len(record.retries), "retry", "retries")
        yield from record.note_codes


def _format_count(count: int, singular: str, plural: str) -> Iterator[str]:
    if count:
        yield f"{count} {singular if count == 1 else plural}"


def _to_milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 2)
