"""What replies come to: real ones of each class, as models write them."""

from __future__ import annotations

from typing import Any

import pytest

from toolspeak import (
    Message,
    Request,
    ResponseFormat,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    fold,
)
from toolspeak.engine import ModelProfile, ReplyReader, prepare_attempt
from toolspeak.engine.outcome import OUTCOMES, OutcomeKind, classify_reply, find_repeated_call
from toolspeak.events import Finish, ReasoningDelta, TextDelta

TOOLS = (
    Tool(
        name="get_weather",
        description="The current weather in a city.",
        parameters={
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "maximum": 7}},
            "required": ["city"],
        },
    ),
    Tool(
        name="run_command",
        description="Run a shell command.",
        parameters={
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        },
    ),
)
OSLO = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
JSON = ResponseFormat({"type": "object", "required": ["city"], "properties": {}})
SAID: dict[OutcomeKind, list[str]] = {
    "calls": [
        OSLO,
        f"Let me check that for you.\n{OSLO}",
        f"<think>\nThey want the weather.\n</think>\n\n{OSLO}",
        f"{OSLO}\n{OSLO.replace('Oslo', 'Rome')}",
        OSLO.replace('"Oslo"', '"Oslo", "days": "3"'),
        OSLO.replace("get_weather", "functions.get_weather"),
        OSLO.removesuffix("\n</tool_call>"),
    ],
    "answer": [
        "It is 12 °C in Oslo, and it rains.",
        "Hello! How can I help you today?",
        "You're welcome!",
        "Which city do you mean?",
        "To call the tool, I would write `get_weather(city)`.",
        "I have looked at both cities. Oslo is colder.",
        "Sure. Could you tell me for how many days?",
        "<think>\nThey only said hello.\n</think>",
        '{"users": [{"name": "Ann", "age": 31}, {"name": "Bo", "ag',
        '{"name": "get_weather", "version": "1.0.0", "scripts": {}}',
        "The tests fail since the mock has no access to the file system. I replaced it.",
        "The container has no internet access, so pip cannot download anything. Add a proxy.",
    ],
    "refusal": [
        "I can't open your mail.",
        "I'm sorry, but I can't book flights: none of my tools does that.",
        "I cannot tell you somebody else's password.",
        "I can't execute code that deletes all your files.",
        "I can't run commands that would wipe your home directory.",
    ],
    "invalid-call": [
        OSLO.replace('"city"', '"town"'),
        OSLO.replace('"Oslo"', '["Oslo", "Rome"]'),
        OSLO.replace('{"city": "Oslo"}', "{}"),
        OSLO.replace('"Oslo"', '"Oslo", "days": 30'),
        "<tool_call>get_weather: Oslo</tool_call>",
        "<tool_call>\n[]\n</tool_call>",
        '{"name": "get_weather", "arguments": {"town": "Oslo"}}',
        '{"content": null, "tool_calls": [{"id": "1", "name": "get_weather", "arguments": "{}"}]}',
    ],
    "unknown-tool": [
        OSLO.replace("get_weather", "search_web"),
        OSLO.replace("get_weather", "weather"),
        f"I'll look.\n{OSLO.replace('get_weather', 'get_forecast')}",
    ],
    "missing-call": [
        "I will check the weather in Oslo for you.",
        "It is sunny.",
        "```json\n{}\n```",
    ],
    "false-refusal": [
        "I'm sorry, but I don't have access to real-time weather data.",
        "I don’t have the ability to check the current weather.",
        "As a text-based AI, I cannot access live weather information.",
        "Ich habe leider keinen Zugriff auf aktuelle Wetterdaten.",
        "Lo siento, pero no tengo acceso a información meteorológica en tiempo real.",
        "Je n'ai pas accès aux données météorologiques en temps réel.",
    ],
    "truncated-call": [
        OSLO[:40],
        OSLO[:60],
        f"Let me look.\n{OSLO[:55]}",
    ],
    "repeated-call": [OSLO, f"Once more.\n{OSLO}"],
    "wrong-format": ["It is 12 °C.", '{"temperature": 12}', "```json\n[1]\n```"],
    "empty": ["", " \n", "<think></think>\n"],
}


def test_every_class_has_examples() -> None:
    assert SAID.keys() == OUTCOMES.keys()


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind in SAID for text in SAID[kind]])
def test_replies(kind: OutcomeKind, text: str) -> None:
    assert outcome(kind, text) == kind


@pytest.mark.parametrize("kind", ["calls", "invalid-call", "unknown-tool", "answer"])
def test_thoughts_make_no_difference(kind: OutcomeKind) -> None:
    assert outcome(kind, SAID[kind][0], thought="I should look that up.") == kind


def test_what_was_cut_by_the_limit_is_no_fault_of_the_model() -> None:
    assert outcome("answer", "", stop="length") == "answer"
    assert outcome("truncated-call", OSLO[:16], stop="length") == "truncated-call"


def test_a_filter_says_no_more_than_that() -> None:
    assert outcome("answer", "", stop="refusal") == "refusal"


def outcome(kind: OutcomeKind, text: str, *, thought: str = "", stop: Any = "stop") -> OutcomeKind:
    """What a reply comes to, where the conversation is such that it could be of that kind."""
    call = ToolCall(id="c", name="get_weather", arguments={"city": "Oslo"})
    result = ToolResult(call_id="c", name="get_weather", content="rain")
    asked = Message("user", (Text("How is the weather in Oslo?"),))
    turns = (Message("assistant", (call,)), Message("tool", (result,)))
    messages = (asked, *turns * 3) if kind == "repeated-call" else (asked,)
    request = Request(
        model="m",
        messages=messages,
        tools=TOOLS,
        tool_choice=ToolChoice("required" if kind == "missing-call" else "auto"),
        response_format=JSON if kind == "wrong-format" else None,
    )
    attempt = prepare_attempt(request, ModelProfile(model="m", mode="prompt", dialect="hermes"))
    read = ReplyReader(attempt).read_events
    thoughts = [ReasoningDelta(thought)] if thought else []
    reply = fold(read([*thoughts, TextDelta(text), Finish(stop)]))
    return classify_reply(reply, request, attempt.tools, find_repeated_call(messages, 3)).kind
