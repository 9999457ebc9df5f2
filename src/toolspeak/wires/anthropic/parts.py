"""Anthropic Messages: names and blocks that requests and replies share."""

from __future__ import annotations

from ...types import Reasoning, ToolCall
from ..fields import PRIVATE, Json

NAME = "anthropic"
REDACTED = "redacted_thinking:"
"""Begins the signature of reasoning that the API hides, so that it is recognised when a client of
another API sends it back."""
ORIGINAL_BLOCK = f"{PRIVATE}block"
"""In the `extra` of a text that stands for a block which only this API has: that block."""


def encode_reasoning(part: Reasoning) -> Json:
    signature = part.signature or ""
    if signature.startswith(REDACTED):
        return {"type": "redacted_thinking", "data": signature.removeprefix(REDACTED)}
    return {"type": "thinking", "thinking": part.text, "signature": signature}


def encode_call(call: ToolCall, identity: str, name: str) -> Json:
    return {"type": "tool_use", "id": identity, "name": name, "input": call.arguments}
