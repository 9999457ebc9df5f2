"""What goes wrong, in OpenAI's words: its two APIs share them."""

from __future__ import annotations

from typing import Any

from ...types import Failure
from ..encoding import omit_none
from ..errors import STATUS_OF_ERROR, UNKNOWN_STATUS, classify_failure
from ..fields import Json

_TYPES = {
    "unauthorized": "authentication_error",
    "forbidden": "permission_error",
    "not_found": "not_found_error",
    "rate_limit": "rate_limit_error",
    "overloaded": "overloaded_error",
    "upstream": "upstream_error",
    "timeout": "timeout_error",
    "internal": "server_error",
}


def decode_failure(status: int, body: Any) -> Failure:
    """What an upstream says has gone wrong."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return classify_failure(status, str(error or ""))
    words = (error.get("code"), error.get("type"))
    code = words[0] or words[1]
    message = str(error.get("message") or error.get("detail") or "")
    if status == UNKNOWN_STATUS:
        status = next((found for word in words if (found := _status(word))), status)
    param = error.get("param")
    return classify_failure(
        status, message, str(code) if code else None, str(param) if param else None
    )


def _status(word: Any) -> int | None:
    """The status that a word of an error stands for, or is."""
    if isinstance(word, int) and 400 <= word < 600:
        return word
    return STATUS_OF_ERROR.get(str(word))


def encode_failure(failure: Failure) -> Json:
    """What has gone wrong, in this API's words."""
    code = "context_length_exceeded" if failure.kind == "context_length" else failure.code
    error = {
        "message": failure.message,
        "type": _TYPES.get(failure.kind, "invalid_request_error"),
        "param": failure.param,
        "code": code,
    }
    return {"error": error | omit_none(details=failure.details)}
