"""Ollama's errors: {"error": "model 'm' not found"}"""

from __future__ import annotations

from typing import Any

from ...types import Failure
from ..errors import classify_failure
from ..fields import Json


def decode_failure(status: int, body: Any) -> Failure:
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        # Some servers with this API send OpenAI's errors.
        error = error.get("message") or error
    return classify_failure(status, str(error or ""))


def encode_failure(failure: Failure) -> Json:
    return {"error": failure.message}
