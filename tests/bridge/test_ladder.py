"""What is done when a model does not do as it was told, or an upstream does not understand."""

from __future__ import annotations

import pytest

from tests.bridge.support import asked, exchange
from toolspeak import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Capabilities,
    Event,
    Failure,
    Finish,
    Started,
    TextDelta,
    ToolCall,
    ToolChoice,
)
from toolspeak.bridge.ladder import Held, NoCall, is_about_all_tools, is_about_tools, next_plan
from toolspeak.bridge.plan import Target, plan_with
from toolspeak.types import ToolsMode
from toolspeak.wires.common import failure_from

CALL: list[Event] = [
    CallStart(0, "c1", "now"),
    ArgumentsDelta(0, "{}"),
    CallEnd(0, ToolCall(id="c1", name="now", arguments={})),
]
WORDS: list[Event] = [Started(), TextDelta("Let me look.")]
FAILURE = Failure("upstream", "it is gone", 502)


class TestHeld:
    """Where a call is required, nothing leaves before one has begun."""

    def held(self, mode: str = "required") -> Held:
        choice = ToolChoice("required") if mode == "required" else ToolChoice()
        return Held(exchange(asked(tool_choice=choice), tools="native"))

    @pytest.mark.parametrize("mode", ["required", "auto"])
    def test_a_reply_with_a_call_leaves_at_once(self, mode: str) -> None:
        events = [*WORDS, *CALL, Finish("calls")]
        assert self.held(mode).feed(events) == events

    def test_what_comes_before_a_call_waits_for_it(self) -> None:
        held = self.held()
        assert held.feed(WORDS) == []
        assert held.feed(CALL[:1]) == [*WORDS, *CALL[:1]]
        assert held.feed([*CALL[1:], Finish("calls")]) == [*CALL[1:], Finish("calls")]

    def test_a_reply_without_a_call_does_not_leave(self) -> None:
        held = self.held()
        with pytest.raises(NoCall):
            held.feed([*WORDS, Finish("stop")])

    def test_a_failure_leaves(self) -> None:
        assert self.held().feed([*WORDS, FAILURE]) == [*WORDS, FAILURE]

    def test_where_no_call_is_required_nothing_waits(self) -> None:
        assert self.held("auto").feed([*WORDS, Finish("stop")]) == [*WORDS, Finish("stop")]


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
    assert is_about_tools(failure) is (message not in OTHERS)
    assert is_about_all_tools(failure) is (message in LACKS)


TOO_LONG = [
    "the maximum context length is 8192 tokens, and you have 8300 (300 in the functions)",
    "Please reduce the length of the messages or functions.",
    "This model's maximum prompt length is 131072 but the request with its tools has 140000 tokens",
]


@pytest.mark.parametrize("message", TOO_LONG)
def test_tools_that_take_too_much_room_are_not_refused_as_such(message: str) -> None:
    failure = failure_from(400, message)
    assert failure.kind == "context_length"
    assert not is_about_tools(failure)


@pytest.mark.parametrize("status", [401, 403, 408, 413, 429, 502, 503, 504])
def test_other_failures_are_none(status: int) -> None:
    assert not is_about_tools(Failure("bad_request", LACKS[0], status))


@pytest.mark.parametrize(
    ("mode", "constrained", "attempt", "expected"),
    [
        ("native", None, 0, "prompt"),
        ("native", True, 0, "constrained"),
        ("prompt", None, 1, "prompt"),
        ("prompt", True, 1, "constrained"),
        ("constrained", True, 1, "constrained"),
        ("native", True, 2, None),
    ],
)
def test_a_call_is_asked_for_in_a_stronger_way(
    mode: ToolsMode, constrained: bool | None, attempt: int, expected: str | None
) -> None:
    target = Target(model="m", capabilities=Capabilities(constrained=constrained), retries=2)
    following = next_plan(target, plan_with(target, mode, "it is so"), attempt)
    assert (following and following.mode) == expected
