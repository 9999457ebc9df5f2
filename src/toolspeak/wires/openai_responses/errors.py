"""Errors of Responses: OpenAI's, and their forms within a stream.

{"type": "error", "code": "…", "message": "…", "param": null}
{"type": "response.failed", "response": {"status": "failed", "error": {"code": "…", …}}}
"""

from __future__ import annotations

from typing import Any

from ...types import Failure
from ..errors import UNKNOWN_STATUS
from ..fields import Json
from ..openai_chat.errors import decode_failure, encode_failure

__all__ = ["decode_failure", "decode_stream_failure", "encode_failure", "encode_stream_failure"]

_CODES = {
    "bad_request": "invalid_prompt",
    "context_length": "context_length_exceeded",
    "rate_limit": "rate_limit_exceeded",
}


def decode_stream_failure(value: Any) -> Failure:
    error = value.get("error", value) if isinstance(value, dict) else value
    return decode_failure(UNKNOWN_STATUS, {"error": error})


def encode_stream_failure(failure: Failure) -> tuple[Json, Json]:
    """Return the `error` event, at which SDKs raise; and the error of the failed response, which
    Codex waits for."""
    error = encode_failure(failure)["error"]
    event = {"type": "error", **{key: error[key] for key in ("code", "message", "param")}}
    code = _CODES.get(failure.kind, "server_error")
    return {**event, "error": error}, {"code": code, "message": failure.message}
