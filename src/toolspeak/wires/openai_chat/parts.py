"""The words of chat completions that more than one direction uses."""

from __future__ import annotations

from ...types import StopReason
from ..fields import PRIVATE

NAME = "openai_chat"
SAMPLING = {
    key: key for key in ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")
}
EXTENSIONS = ("top_k", "min_p", "repetition_penalty")
"""Settings that many servers take, and OpenAI's own does not."""
STOPS: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "calls",
    "function_call": "calls",
    "content_filter": "filter",
}
STOPS_OUT = {"length": "length", "calls": "tool_calls", "filter": "content_filter"}
REASONING = ("reasoning_content", "reasoning", "thinking")
DETAILS = "reasoning_details"
THOUGHTS = frozenset({*REASONING, DETAILS})
"""The fields that hold what a model thought."""
REFUSAL = "refusal"
NEWER_LIMIT = "max_completion_tokens"
OWN_LIMIT, OWN_DETAILS, OWN_NAME, OWN_OUTER = (
    f"{PRIVATE}{key}" for key in ("limit", DETAILS, "name", "outer")
)
"""What a request is remembered by, to be written again to the letter: the name of its limit, the
details of a thought, the name at a result, and what stands beside a tool's function."""
