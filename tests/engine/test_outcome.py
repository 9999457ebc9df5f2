"""The outcome of each kind of reply, and the loop guard."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.gateway_support import (
    CHAT,
    FORM,
    OSLO,
    WEATHER_TOOL,
    call_reply,
    read_call_arguments,
    text_reply,
    weather_body,
    whole_and_streamed,
)
from tests.gateway.raw_clients import Client, ask
from tests.gateway.running_gateway import make_config, run_gateway
from toolspeak import (
    Finish,
    Image,
    Message,
    Request,
    ResponseFormat,
    Text,
    TextDelta,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    fold,
)
from toolspeak.engine import ModelProfile, ReplyReader, prepare_attempt
from toolspeak.engine.outcome import (
    OUTCOMES,
    OutcomeKind,
    classify_reply,
    find_repeated_call,
    match_format,
)
from toolspeak.events import ReasoningDelta
from toolspeak.testing import ScriptedServer

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


CALL_JSON = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
CALL_TEXT = f"<tool_call>\n{CALL_JSON}\n</tool_call>"


CITY_FORMAT = ResponseFormat({"type": "object", "required": ["city"], "properties": {}})


REPLIES: dict[OutcomeKind, list[str]] = {
    "calls": [
        CALL_TEXT,
        f"Let me check that for you.\n{CALL_TEXT}",
        f"<think>\nThey want the weather.\n</think>\n\n{CALL_TEXT}",
        f"{CALL_TEXT}\n{CALL_TEXT.replace('Oslo', 'Rome')}",
        CALL_TEXT.replace('"Oslo"', '"Oslo", "days": "3"'),
        CALL_TEXT.replace("get_weather", "functions.get_weather"),
        CALL_TEXT.removesuffix("\n</tool_call>"),
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
        f"The call is written so: `{CALL_JSON}`.",
        f"For example:\n\n```json\n{CALL_JSON}\n```\n\nDo you want me to run it?",
        f"The format looks like this:\n```json\n{CALL_JSON}\n```",
        "```python\ncity = 'Oslo'\nprint(get_weather(city=city))\n```\nThis prints the weather.",
        "Then get_weather() returns the temperature.",
        'The tool is {"name": "get_weather", "description": "…", "parameters": {}}.',
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
        CALL_TEXT.replace('"city"', '"town"'),
        CALL_TEXT.replace('"Oslo"', '["Oslo", "Rome"]'),
        CALL_TEXT.replace('{"city": "Oslo"}', "{}"),
        CALL_TEXT.replace('"Oslo"', '"Oslo", "days": 30'),
        "<tool_call>get_weather: Oslo</tool_call>",
        "<tool_call>\n[]\n</tool_call>",
        '{"name": "get_weather", "arguments": {"town": "Oslo"}}',
        f'{{"name": "get_weather", "arguments": {{"town": "{"Oslo " * 100}"}}}}',
        '{"content": null, "tool_calls": [{"id": "1", "name": "get_weather", "arguments": "{}"}]}',
    ],
    "unknown-tool": [
        CALL_TEXT.replace("get_weather", "search_web"),
        CALL_TEXT.replace("get_weather", "weather"),
        f"I'll look.\n{CALL_TEXT.replace('get_weather', 'get_forecast')}",
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
        CALL_TEXT[:40],
        CALL_TEXT[:60],
        f"Let me look.\n{CALL_TEXT[:55]}",
    ],
    "near-call": [
        f"I will look.\n\n```json\n{CALL_JSON}\n```",
        f"I will look.\n\n```\n{CALL_JSON}\n```\nThen I will tell you.",
        f"I will look. {CALL_JSON}",
        f"~~~ tool_call\n{CALL_JSON}\n~~~",
        f"~~~~tool_call\n{CALL_JSON}\n~~~~",
        f"Sure:\n\n    ~~~tool_call\n    {CALL_JSON}\n    ~~~",
        "Thought: I need the weather.\nAction: get_weather\nAction Input: Oslo",
        "I will call get_weather(city='Oslo') now.",
        "get_weather/city>Oslo",
    ],
    "repeated-call": [CALL_TEXT, f"Once more.\n{CALL_TEXT}"],
    "wrong-format": ["It is 12 °C.", '{"temperature": 12}', "```json\n[1]\n```"],
    "empty": ["", " \n", "<think></think>\n"],
}


def test_every_outcome_has_example_replies() -> None:
    assert REPLIES.keys() == OUTCOMES.keys()


@pytest.mark.parametrize(
    ("kind", "text"), [(kind, text) for kind in REPLIES for text in REPLIES[kind]]
)
def test_reply_is_classified(kind: OutcomeKind, text: str) -> None:
    assert classify(kind, text) == kind


@pytest.mark.parametrize("kind", ["calls", "invalid-call", "unknown-tool", "answer"])
def test_reasoning_before_a_reply_does_not_change_its_outcome(kind: OutcomeKind) -> None:
    assert classify(kind, REPLIES[kind][0], reasoning="I should look that up.") == kind


def test_reply_ended_by_the_limit_is_not_empty() -> None:
    assert classify("answer", "", stop="length") == "answer"
    assert classify("truncated-call", CALL_TEXT[:16], stop="length") == "truncated-call"


def test_stop_reason_refusal_is_a_refusal() -> None:
    assert classify("answer", "", stop="refusal") == "refusal"


def classify(
    kind: OutcomeKind, text: str, *, reasoning: str = "", stop: Any = "stop"
) -> OutcomeKind:
    """Return the outcome of a reply in a conversation in which `kind` is possible."""
    call = ToolCall(id="c", name="get_weather", arguments={"city": "Oslo"})
    result = ToolResult(call_id="c", name="get_weather", content="rain")
    question = Message("user", (Text("How is the weather in Oslo?"),))
    turns = (Message("assistant", (call,)), Message("tool", (result,)))
    messages = (question, *turns * 3) if kind == "repeated-call" else (question,)
    request = Request(
        model="m",
        messages=messages,
        tools=TOOLS,
        tool_choice=ToolChoice("required" if kind == "missing-call" else "auto"),
        response_format=CITY_FORMAT if kind == "wrong-format" else None,
    )
    attempt = prepare_attempt(request, ModelProfile(model="m", mode="prompt", dialect="hermes"))
    read = ReplyReader(attempt).read_events
    thoughts = [ReasoningDelta(reasoning)] if reasoning else []
    reply = fold(read([*thoughts, TextDelta(text), Finish(stop)]))
    return classify_reply(reply, request, attempt.offered, find_repeated_call(messages, 3)).kind


@pytest.mark.parametrize(
    ("text", "schema", "expected"),
    [
        ('{"city": "Oslo"}', FORM, '{"city": "Oslo"}'),
        ('  {"city": "Oslo"}\n', FORM, '{"city": "Oslo"}'),
        ("[1]", None, None),
        ("{}", None, "{}"),
        ("{}", FORM, None),
        ("Oslo", FORM, None),
    ],
)
def test_match_format_returns_the_matching_json(
    text: str, schema: Any, expected: str | None
) -> None:
    assert match_format(text, ResponseFormat(schema)) == expected


CALL = ToolCall(id="c", name="look", arguments={})


def result(content: Any) -> Message:
    return Message("tool", (ToolResult(call_id="c", name="look", content=content),))


def test_repeated_call_with_different_images_is_no_loop() -> None:
    shots = [result((Image(data=f"{n}", media_type="image/png"),)) for n in range(3)]
    turns = [turn for shot in shots for turn in (Message("assistant", (CALL,)), shot)]
    assert find_repeated_call(turns, 3) is None


def test_same_calls_in_one_turn_count_once() -> None:
    turn = [Message("assistant", (CALL, CALL, CALL)), result("a"), result("a"), result("a")]
    assert find_repeated_call(turn, 3) is None
    assert find_repeated_call(turn * 3, 3) is not None


def test_user_message_restarts_the_loop_count() -> None:
    turn = [Message("assistant", (CALL,)), result("a"), Message("user", (Text("Again?"),))]
    assert find_repeated_call(turn * 4, 3) is None


class TestLoopGuard:
    @pytest.mark.parametrize(
        ("settings", "requests"),
        [
            ({}, 2),
            ({"polling_tools": ("get_*",)}, 1),
            ({"max_repeats": 0}, 1),
            ({"max_repeats": 4}, 1),
        ],
        ids=["default", "polling tool", "no limit", "higher limit"],
    )
    def test_call_repeated_three_times_is_corrected(
        self, settings: dict[str, Any], requests: int
    ) -> None:
        body = weather_body(CHAT)
        for number in range(3):
            function = {"name": "get_weather", "arguments": json.dumps(OSLO)}
            call = {"id": f"c{number}", "type": "function", "function": function}
            body["messages"] += [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": f"c{number}", "content": "rain"},
            ]
        with ScriptedServer(call_reply(**OSLO), text_reply("It rains.")) as server:
            with run_gateway(make_config(server.url, tools="native", **settings)) as gateway:
                response = ask(gateway.url, CHAT, body)
            assert len(server.requests) == requests
            assert read_call_arguments(CHAT, response.raw) == ([] if requests > 1 else [OSLO])
            if requests > 1:
                assert response.text == "It rains."
                assert "has not changed" in str(server.requests[-1].messages[-1])


@whole_and_streamed
def test_repeated_call_that_is_required_passes(client: Client) -> None:
    body = client.body("How is the weather in Oslo?", tools=WEATHER_TOOL, required=True)
    for number in range(3):
        function = {"name": "get_weather", "arguments": json.dumps(OSLO)}
        call = {"id": f"c{number}", "type": "function", "function": function}
        body["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "rain"},
        ]
    with (
        ScriptedServer(call_reply(**OSLO)) as server,
        run_gateway(make_config(server.url, tools="native")) as gateway,
    ):
        response = ask(gateway.url, client, body)
    assert read_call_arguments(client, response.raw) == [OSLO]
