"""The kind of an upstream's error, by its HTTP status and its text."""

from __future__ import annotations

from ..types import Failure, FailureKind
from .fields import Json

_KINDS: dict[int, FailureKind] = {
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
"""What an error in a stream has, until its words tell more."""


STATUS_OF_ERROR = {
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
"""What the words of errors mean, where no status comes with them."""


_CONTEXT = (
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
    """What went wrong, by the status and the words of an upstream."""
    kind = _KINDS.get(status, "upstream" if status >= 500 else "bad_request")
    about = f"{code} {message}".lower()
    if kind in ("bad_request", "too_large") and any(words in about for words in _CONTEXT):
        kind = "context_length"
    return Failure(kind, message or f"the upstream answered {status}", status, code, param, details)
