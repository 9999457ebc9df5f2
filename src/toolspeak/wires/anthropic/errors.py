"""What goes wrong, in Anthropic's words."""

from __future__ import annotations

import re
from typing import Any

from ...types import Failure, FailureKind
from ..encoding import omit_none
from ..errors import STATUS_OF_ERROR, UNKNOWN_STATUS, classify_failure
from ..fields import Json

_TOO_LONG = "prompt is too long"
"""What clients of this API look for."""
_TOO_LARGE = 413
_TOKENS = re.compile(r"(\d+) tokens")
_TYPES: dict[FailureKind, str] = {
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
    """What an upstream says has gone wrong. In a stream, the kind of error tells the status."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return classify_failure(status, str(error or ""))
    kind = str(error.get("type") or "")
    details = error.get("details")
    return classify_failure(
        STATUS_OF_ERROR.get(kind, status) if status == UNKNOWN_STATUS else status,
        str(error.get("message") or ""),
        kind or None,
        details=details if isinstance(details, dict) else None,
    )


def encode_failure(failure: Failure) -> Json:
    """What has gone wrong, in this API's words."""
    kind = _TYPES.get(failure.kind, "api_error")
    if failure.kind == "too_large" and failure.status != _TOO_LARGE:
        kind = _TYPES["bad_request"]
    message = failure.message
    if failure.kind == "context_length" and not message.startswith(_TOO_LONG):
        message = f"{_TOO_LONG}: {_numbers(message)}"
    error = {"type": kind, "message": message} | omit_none(details=failure.details)
    return {"type": "error", "error": error}


def _numbers(message: str) -> str:
    """How long a prompt is and may be, where an upstream has told that."""
    found = _TOKENS.findall(message)
    return f"{found[0]} tokens > {found[1]} maximum. {message}" if len(found) == 2 else message
