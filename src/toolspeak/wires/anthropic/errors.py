"""Anthropic's errors.

{"type": "error", "error": {"type": "invalid_request_error", "message": "…"}}
"""

from __future__ import annotations

import re
from typing import Any

from ...types import Failure, FailureKind
from ..encoding import omit_none
from ..errors import STATUS_BY_CODE, UNKNOWN_STATUS, classify_failure
from ..fields import Json

_CONTEXT_MESSAGE = "prompt is too long"
"""Begins the messages by which clients of this API recognise a full context window."""
_PAYLOAD_TOO_LARGE = 413
_TOKENS = re.compile(r"(\d+) tokens")
_ERROR_TYPE_NAMES: dict[FailureKind, str] = {
    "bad_request": "invalid_request_error",
    "context_length": "invalid_request_error",
    "unauthorized": "authentication_error",
    "forbidden": "permission_error",
    "not_found": "not_found_error",
    "too_large": "request_too_large",
    "rate_limit": "rate_limit_error",
    "overloaded": "overloaded_error",
    "timeout": "timeout_error",
}


def decode_failure(status: int, body: Any) -> Failure:
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return classify_failure(status, str(error or ""))
    kind = str(error.get("type") or "")
    details = error.get("details")
    return classify_failure(
        STATUS_BY_CODE.get(kind, status) if status == UNKNOWN_STATUS else status,
        str(error.get("message") or ""),
        kind or None,
        details=details if isinstance(details, dict) else None,
    )


def encode_failure(failure: Failure) -> Json:
    kind = _ERROR_TYPE_NAMES.get(failure.kind, "api_error")
    if failure.kind == "too_large" and failure.status != _PAYLOAD_TOO_LARGE:
        kind = _ERROR_TYPE_NAMES["bad_request"]
    message = failure.message
    if failure.kind == "context_length" and not message.startswith(_CONTEXT_MESSAGE):
        message = f"{_CONTEXT_MESSAGE}: {_state_limit(message)}"
    error = {"type": kind, "message": message} | omit_none(details=failure.details)
    return {"type": "error", "error": error}


def _state_limit(message: str) -> str:
    """Put the two token counts first, if the upstream's message holds them."""
    found = _TOKENS.findall(message)
    return f"{found[0]} tokens > {found[1]} maximum. {message}" if len(found) == 2 else message
