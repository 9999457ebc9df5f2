"""The words of Anthropic Messages that more than one direction uses."""

from __future__ import annotations

from ...types import StopReason
from ..fields import PRIVATE

NAME = "anthropic"
SAMPLING = {key: key for key in ("temperature", "top_p", "top_k")}
STOPS: dict[str, StopReason] = {
    "end_turn": "stop",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "pause_turn": "pause",
}
STOPS_OUT: dict[StopReason, str] = {
    "stop": "end_turn",
    "calls": "tool_use",
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
    "filter": "refusal",
    "refusal": "refusal",
    "pause": "pause_turn",
}
REDACTED = "redacted_thinking:"
"""What the signature of a thought begins with that the API does not show; so that it is one
when it comes back from a client of another API."""
OWN_BLOCK = f"{PRIVATE}block"
"""A text that stands for a block which only this API has: the block itself."""
EFFORTS = ("low", "medium", "high", "xhigh", "max")
