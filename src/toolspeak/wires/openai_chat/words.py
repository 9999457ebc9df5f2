"""The words of chat completions that more than one direction uses."""

from __future__ import annotations

from ...types import StopReason

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
