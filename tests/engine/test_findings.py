"""What has once gone wrong in the layer."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from msgspec import structs

from tests.engine.test_layer import CHAT, NAMES, OSLO, STREAMED, WEATHER, asked, in_form
from tests.engine.test_recovery import SORRY, block, calls, made, says
from tests.gateway.raw_clients import CLIENTS, Client, ask
from tests.gateway.running_gateway import behind, running
from toolspeak import (
    Failure,
    Finish,
    Image,
    Message,
    Other,
    Started,
    Text,
    TextDelta,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
)
from toolspeak.engine.guided import Guide
from toolspeak.engine.outcome import find_repeated_call
from toolspeak.events import PartAdded
from toolspeak.testing import ScriptedServer

BOTH = pytest.mark.parametrize("client", [CHAT, STREAMED], ids=lambda client: client.name)
LONG = "It rains in Oslo. " * 8000


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_what_an_api_does_by_itself_is_a_reply(client: Client) -> None:
    searched = Other({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})
    reply = [Started("i", "m", wire="anthropic"), PartAdded(searched), Finish("stop", "pause_turn")]
    with ScriptedServer(reply) as server:
        with running(behind(server.url, "anthropic", tools="native")) as gateway:
            assert ask(gateway.url, client, asked(client)).status == 200
        assert len(server.requests) == 1


@BOTH
def test_words_of_another_reply_do_not_follow_those_that_have_left(client: Client) -> None:
    then = says("Sure, in Oslo it is nice. ", block(city=[1]))
    with (
        ScriptedServer(says(SORRY), then) as server,
        running(behind(server.url, tools="prompt", dialect="hermes")) as gateway,
    ):
        heard = ask(gateway.url, client, asked(client))
    assert not ("Sure" in heard.text and "sorry" in heard.text)


def test_an_error_in_the_midst_of_the_second_reply_is_told() -> None:
    broken = [Started("i", "m"), TextDelta("In Oslo the sun is out, "), Failure("upstream", "gone")]
    with (
        ScriptedServer(says(SORRY), broken) as server,
        running(behind(server.url, tools="prompt", dialect="hermes")) as gateway,
    ):
        heard = ask(gateway.url, STREAMED, asked(STREAMED))
    assert heard.error
    assert "sorry" not in heard.text


@BOTH
@pytest.mark.parametrize("required", [False, True], ids=["free", "required"])
def test_what_an_api_refuses_is_not_asked_again(client: Client, required: bool) -> None:
    body = client.body("How is the weather?", tools=WEATHER, required=required)
    refuses = says("No.", stop="refusal")
    with ScriptedServer(refuses) as server:
        with running(behind(server.url, "anthropic", tools="native")) as gateway:
            heard = ask(gateway.url, client, body)
        assert heard.status == (502 if required else 200)
        assert len(server.requests) == 1


def test_a_refusal_is_not_forced_into_a_form() -> None:
    with ScriptedServer(says("I can't help with making weapons."), says("{}")) as server:
        with running(behind(server.url, tools="prompt")) as gateway:
            heard = ask(gateway.url, CHAT, in_form(CHAT))
        assert heard.text == "I can't help with making weapons."
        assert len(server.requests) == 1


@pytest.mark.parametrize("mode", ["prompt", "native"])
@BOTH
def test_answers_that_never_have_the_form_do_not_add_up(client: Client, mode: str) -> None:
    with ScriptedServer(says("Oslo is first."), says("Oslo is second.")) as server:
        with running(behind(server.url, tools=mode)) as gateway:
            heard = ask(gateway.url, client, in_form(client))
        assert heard.text == "Oslo is first."
        assert len(server.requests) == (1 if mode == "native" and client.stream else 2)


@BOTH
def test_the_second_answer_is_mended_and_counted_like_the_first(client: Client) -> None:
    fenced = f"```json\n{json.dumps(OSLO)}\n```"
    replies = [
        [Started("i", "m"), TextDelta(text), Finish("stop", usage=Usage(50, 50))]
        for text in ("It is Oslo.", fenced)
    ]
    body = in_form(client) | ({"stream_options": {"include_usage": True}} if client.stream else {})
    with ScriptedServer(*replies) as server, running(behind(server.url, tools="prompt")) as gateway:
        heard = ask(gateway.url, client, body)
    assert heard.text == json.dumps(OSLO)
    assert b'"total_tokens":200' in heard.raw.replace(b" ", b"")


@BOTH
def test_a_loop_ends_with_the_call_if_one_is_required(client: Client) -> None:
    body = client.body("How is the weather in Oslo?", tools=WEATHER, required=True)
    for number in range(3):
        function = {"name": "get_weather", "arguments": json.dumps(OSLO)}
        call = {"id": f"c{number}", "type": "function", "function": function}
        body["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "rain"},
        ]
    with (
        ScriptedServer(calls(**OSLO)) as server,
        running(behind(server.url, tools="native")) as gateway,
    ):
        heard = ask(gateway.url, client, body)
    assert made(client, heard.raw) == [OSLO]


CALL = ToolCall(id="c", name="look", arguments={})


def result(content: Any) -> Message:
    return Message("tool", (ToolResult(call_id="c", name="look", content=content),))


def test_pictures_that_differ_are_no_loop() -> None:
    shots = [result((Image(data=f"{n}", media_type="image/png"),)) for n in range(3)]
    turns = [turn for shot in shots for turn in (Message("assistant", (CALL,)), shot)]
    assert find_repeated_call(turns, 3) is None


def test_calls_of_one_turn_are_one_attempt() -> None:
    turn = [Message("assistant", (CALL, CALL, CALL)), result("a"), result("a"), result("a")]
    assert find_repeated_call(turn, 3) is None
    assert find_repeated_call(turn * 3, 3) is not None


def test_a_word_of_the_user_begins_the_count_anew() -> None:
    turn = [Message("assistant", (CALL,)), result("a"), Message("user", (Text("Again?"),))]
    assert find_repeated_call(turn * 4, 3) is None


@BOTH
def test_json_that_is_cut_off_is_an_answer(client: Client) -> None:
    text = '{"users": [{"name": "Ann", "age": 31}, {"name": "Bo", "ag'
    with ScriptedServer(says(text, stop="length")) as server:
        with running(behind(server.url, tools="native")) as gateway:
            heard = ask(gateway.url, client, asked(client))
        assert heard.text == text
        assert len(server.requests) == 1


def test_a_long_second_answer_is_whole() -> None:
    first = says("Let me look at that. ", block(city=[1]))
    with (
        ScriptedServer(first, says(LONG)) as server,
        running(behind(server.url, tools="prompt", dialect="hermes")) as gateway,
    ):
        heard = ask(gateway.url, STREAMED, asked(STREAMED))
    assert heard.text.endswith(LONG.strip())


def test_a_tool_that_was_not_chosen_can_be_called() -> None:
    replies = (says("tool_7"), calls("tool_3", **OSLO), calls("tool_3", **OSLO))
    with ScriptedServer(*replies) as server:
        with running(behind(server.url, tools="native", select_tools_above=100)) as gateway:
            heard = ask(gateway.url, CHAT, CHAT.body("Hi", tools=NAMES))
        assert made(CHAT, heard.raw) == [OSLO]
        assert len(server.requests) == 3


def convert() -> Tool:
    fields: dict[str, Any] = {"amount": {"type": "integer"}, "unit": {"type": "string"}}
    schema = {"type": "object", "properties": fields, "required": ["amount", "unit"]}
    return Tool(name="convert_amounts", description="Convert amounts to units.", parameters=schema)


@pytest.mark.parametrize(
    "question",
    [
        f"Convert amounts {', '.join(map(str, range(200)))} and 3 to the units "
        + ", ".join(f"'u{n}'" for n in range(200)),
        "Convert amounts of Oslo and Rome, 5 and 6. " * 5000,
        "A" * 10**6,
        "Convert " + "the amounts in Oslo " * 50_000,
    ],
    ids=["lists of lists", "long", "one word", "words"],
)
def test_a_question_of_any_size_is_read_at_once(question: str) -> None:
    began = time.perf_counter()
    guide = Guide(question, [convert()])
    steps = 0
    while guide.step and steps < 40:
        fields = guide.step.schema["properties"]
        assert len(json.dumps(guide.step.schema)) < 100_000
        guide.hear({key: one["enum"][0] if "enum" in one else 0 for key, one in fields.items()})
        steps += 1
    assert len(guide.calls) <= 64
    assert time.perf_counter() - began < 20


@BOTH
def test_what_another_upstream_has_used_is_counted(client: Client) -> None:
    body = client.body("How is the weather in Oslo?", tools=WEATHER, required=True)
    body |= {"stream_options": {"include_usage": True}} if client.stream else {}
    finish = Finish("stop", usage=Usage(90, 10))
    with (
        ScriptedServer([Started("i", "m"), TextDelta("Sunny."), finish]) as first,
        ScriptedServer(
            [*calls(**OSLO)[:-1], structs.replace(finish, stop_reason="calls")]
        ) as other,
    ):
        config = behind(first.url, tools="native", retries=0)
        upstreams = {
            "scripted": structs.replace(config.upstreams["scripted"], fallbacks=("other",)),
            "other": behind(other.url).upstreams["scripted"],
        }
        with running(structs.replace(config, upstreams=upstreams)) as gateway:
            heard = ask(gateway.url, client, body)
    assert made(client, heard.raw) == [OSLO]
    assert b'"total_tokens":200' in heard.raw.replace(b" ", b"")
