"""Whether an upstream refuses a request because of its tools."""

from __future__ import annotations

import pytest

from toolspeak import Failure
from toolspeak.engine.recovery import rejects_all_tools, rejects_tools
from toolspeak.wires.errors import classify_failure

LACKS = [
    "registry.ollama.ai/library/gemma:2b does not support tools",
    '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    "tools param requires --jinja flag",
    "No endpoints found that support tool use.",
    "Unrecognized request argument supplied: tools",
    "Function calling is not enabled for models/gemma-3-27b-it",
    "[{'loc': ['body', 'tools'], 'msg': 'Extra inputs are not permitted'}]",
    "the following parameters are not supported: tools",
    "tool_use is not available for this model",
    "Conversation roles must alternate user/assistant/user/assistant/...",
    "Only user and assistant roles are supported!",
]
THESE = [
    "Invalid schema for function 'get_weather': In context=(), 'required' is required",
    "messages with role 'tool' must be a response to a preceding message with 'tool_calls'.",
    "An assistant message with 'tool_calls' must be followed by tool messages",
    "Invalid 'tools[0].function.name': string does not match pattern.",
    "tools: maximum number of items is 128",
    "tools: Tool names must be unique.",
]
OTHERS = ["the model is overloaded", "this functionality is off", "maximum context length is 8192"]


@pytest.mark.parametrize("message", [*LACKS, *THESE, *OTHERS])
@pytest.mark.parametrize("status", [400, 404, 422, 500, 501])
def test_refusals_are_told_by_their_words(message: str, status: int) -> None:
    failure = Failure("bad_request", message, status)
    assert rejects_tools(failure) is (message not in OTHERS)
    assert rejects_all_tools(failure) is (message in LACKS)


TOO_LONG = [
    "the maximum context length is 8192 tokens, and you have 8300 (300 in the functions)",
    "Please reduce the length of the messages or functions.",
    "This model's maximum prompt length is 131072 but the request with its tools has 140000 tokens",
]


@pytest.mark.parametrize("message", TOO_LONG)
def test_tools_that_take_too_much_room_are_not_refused_as_such(message: str) -> None:
    failure = classify_failure(400, message)
    assert failure.kind == "context_length"
    assert not rejects_tools(failure)


@pytest.mark.parametrize("status", [401, 403, 408, 413, 429, 502, 503, 504])
def test_other_failures_are_none(status: int) -> None:
    assert not rejects_tools(Failure("bad_request", LACKS[0], status))
