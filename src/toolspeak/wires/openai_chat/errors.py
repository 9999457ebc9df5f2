"""OpenAI's errors, which Chat Completions and Responses share.

{"error": {"message": "…", "type": "invalid_request_error", "param": null, "code": null}}
"""

from __future__ import annotations

from typing import Any

from ...types import Failure
from ..encoding import omit_none
from ..errors import STATUS_BY_CODE, UNKNOWN_STATUS, classify_failure
from ..fields import Json

_ERROR_TYPES = {
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
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return classify_failure(status, str(error or ""))
    codes = (error.get("code"), error.get("type"))
    code = codes[0] or codes[1]
    message = str(error.get("message") or error.get("detail") or "")
    if status == UNKNOWN_STATUS:
        status = next((found for code in codes if (found := _find_status(code))), status)
    param = error.get("param")
    return classify_failure(
        status, message, str(code) if code else None, str(param) if param else None
    )


def _find_status(code: Any) -> int | None:
    if isinstance(code, int) and 400 <= code < 600:
        return code
    return STATUS_BY_CODE.get(str(code))


def encode_failure(failure: Failure) -> Json:
    code = "context_length_exceeded" if failure.kind == "context_length" else failure.code
    error = {
        "message": failure.message,
        "type": _ERROR_TYPES.get(failure.kind, "invalid_request_error"),
        "param": failure.param,
        "code": code,
    }
    return {"error": error | omit_none(details=failure.details)}
