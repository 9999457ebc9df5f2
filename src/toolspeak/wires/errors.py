"""Upstreams' errors: their kinds, and the format that several APIs share.

{"error": {"message": "…", "type": "invalid_request_error", "param": null, "code": null}}
"""

from __future__ import annotations

from typing import Any

from ..types import Failure, FailureKind
from .fields import Json

_KIND_BY_STATUS: dict[int, FailureKind] = {
    400: "bad_request",
    401: "unauthorized",
    402: "forbidden",
    403: "forbidden",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    422: "bad_request",
    429: "rate_limit",
    502: "upstream",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}
UNKNOWN_STATUS = 500
"""The status of an error within a stream, until its code tells more."""
_STATUS_BY_CODE = {
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "upstream_error": 502,
    "timeout_error": 504,
    "overloaded_error": 529,
    "server_is_overloaded": 529,
}
"""Statuses by error code, for errors that come without one."""
ERROR_TYPES: dict[FailureKind, str] = {
    "unauthorized": "authentication_error",
    "forbidden": "permission_error",
    "not_found": "not_found_error",
    "rate_limit": "rate_limit_error",
    "overloaded": "overloaded_error",
    "timeout": "timeout_error",
}
"""The types of errors that the APIs of OpenAI and Anthropic have in common."""
_CONTEXT_PHRASES = (
    "context_length",
    "context length",
    "context window",
    "context size",
    "context_size",
    "prompt is too long",
    "prompt too long",
    "maximum prompt length",
    "input is too long",
    "reduce the length of the messages",
    "too many tokens",
    "exceeds the maximum number of tokens",
)


def classify_failure(
    status: int,
    message: str,
    code: str | None = None,
    param: str | None = None,
    details: Json | None = None,
) -> Failure:
    """Return the failure that an upstream's status, code and message describe."""
    kind = _KIND_BY_STATUS.get(status, "upstream" if status >= 500 else "bad_request")
    text = f"{code} {message}".lower()
    if kind in ("bad_request", "too_large") and any(phrase in text for phrase in _CONTEXT_PHRASES):
        kind = "context_length"
    return Failure(
        kind,
        message or f"The upstream responded with status {status}.",
        status,
        code,
        param,
        details,
    )


def decode_failure(status: int, body: Any) -> Failure:
    """Decode the body of an error: in the shared format, or plain text."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return classify_failure(status, str(error or ""))
    codes = (error.get("code"), error.get("type"))
    code = codes[0] or codes[1]
    message = str(error.get("message") or error.get("detail") or "")
    if status == UNKNOWN_STATUS:
        status = next((found for code in codes if (found := _find_status(code))), status)
    param, details = error.get("param"), error.get("details")
    return classify_failure(
        status,
        message,
        str(code) if code else None,
        str(param) if param else None,
        details if isinstance(details, dict) else None,
    )


def _find_status(code: Any) -> int | None:
    if isinstance(code, int) and 400 <= code < 600:
        return code
    return _STATUS_BY_CODE.get(str(code))
