"""What goes wrong, in Ollama's words: {"error": "model 'm' not found"}"""

from __future__ import annotations

from typing import Any

from ...types import Failure
from ..errors import classify_failure
from ..fields import Json


def decode_failure(status: int, body: Any) -> Failure:
    """What an upstream says has gone wrong."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        # Some servers that speak this API have OpenAI's errors.
        error = error.get("message") or error
    return classify_failure(status, str(error or ""))


def encode_failure(failure: Failure) -> Json:
    """What has gone wrong, in this API's words."""
    return {"error": failure.message}
