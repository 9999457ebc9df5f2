"""What the layer does beside asking again: forms, windows, loops, a choice among many tools, and a
small model that is led."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.test_recovery import Reply, block, calls, made, says
from tests.gateway.raw_clients import CLIENTS, Client, ask
from tests.gateway.running_gateway import behind, running
from toolspeak import Finish, Request, ResponseFormat, Started, TextDelta, Tool, Usage
from toolspeak.engine.attempt import choose_context_window, note_truncated_prompt, prepare_attempt
from toolspeak.engine.outcome import match_format
from toolspeak.engine.plan import ModelProfile
from toolspeak.testing import ScriptedServer
from toolspeak.types import Capabilities, Failure, Message, Text
from toolspeak.upstream.catalog import is_tiny_model
from toolspeak.wires.framing import encode_json

CHAT = CLIENTS[0]
STREAMED = next(client for client in CLIENTS if client.name == "chat streamed")
WEATHER = ["get_weather"]
OSLO = {"city": "Oslo"}
FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}


def asked(client: Client, **more: Any) -> dict[str, Any]:
    return client.body("How is the weather in Oslo?", tools=WEATHER) | more


def in_form(client: Client) -> dict[str, Any]:
    wanted = {"type": "json_schema", "json_schema": {"name": "city", "schema": FORM}}
    return asked(client, response_format=wanted)


class TestForms:
    """Calls are free; an answer has the form that was asked for."""

    @pytest.mark.parametrize("client", [CHAT, STREAMED], ids=lambda client: client.name)
    @pytest.mark.parametrize("mode", ["prompt", "native"])
    @pytest.mark.parametrize(
        ("replies", "text", "requests"),
        [
            ([says(json.dumps(OSLO))], json.dumps(OSLO), 1),
            ([says("It is Oslo."), says(json.dumps(OSLO))], json.dumps(OSLO), 2),
            ([says('{"town": 1}'), says(json.dumps(OSLO))], json.dumps(OSLO), 2),
        ],
        ids=["at once", "prose first", "another form first"],
    )
    def test_answers(
        self, replies: list[Reply], text: str, requests: int, mode: str, client: Client
    ) -> None:
        if mode == "native" and client.stream and requests > 1:
            pytest.skip("a native model is held to the form by its upstream, and its words leave")
        with ScriptedServer(*replies) as server:
            with running(behind(server.url, tools=mode, dialect="hermes")) as gateway:
                heard = ask(gateway.url, client, in_form(client))
            assert (heard.status, heard.text) == (200, text)
            assert len(server.requests) == requests
            if requests > 1:
                last = server.requests[-1]
                assert (last.tools, last.response_format and last.response_format.schema) == (
                    None,
                    FORM,
                )

    def test_a_fence_is_taken_off(self) -> None:
        fenced = f"```json\n{json.dumps(OSLO)}\n```"
        with ScriptedServer(says(fenced)) as server:
            with running(behind(server.url, tools="prompt")) as gateway:
                heard = ask(gateway.url, CHAT, in_form(CHAT))
            assert heard.text == json.dumps(OSLO)
            assert len(server.requests) == 1

    def test_calls_need_no_form(self) -> None:
        with ScriptedServer(says(block(**OSLO))) as server:
            with running(behind(server.url, tools="prompt", dialect="hermes")) as gateway:
                heard = ask(gateway.url, CHAT, in_form(CHAT))
            assert made(CHAT, heard.raw) == [OSLO]
            assert server.requests[0].response_format is None

    def test_an_answer_that_never_has_it_is_given_all_the_same(self) -> None:
        with ScriptedServer(says("Oslo.")) as server:
            with running(behind(server.url, tools="prompt")) as gateway:
                heard = ask(gateway.url, CHAT, in_form(CHAT))
            assert heard.text == "Oslo."
            assert len(server.requests) == 2

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
    def test_formed(self, text: str, schema: Any, expected: str | None) -> None:
        assert match_format(text, ResponseFormat(schema)) == expected


class TestWindows:
    def test_ollama_is_asked_for_a_window_that_holds_the_prompt(self) -> None:
        short, long = "Hi", "word " * 9000
        assert "num_ctx" not in options(short)
        assert options(long)["num_ctx"] == 32768
        assert options(short, context=6000)["num_ctx"] == 6000

    def test_what_the_client_says_of_it_counts(self) -> None:
        target = ModelProfile(model="m", wire="ollama")
        asked_for = {"options": {"num_ctx": 3000}}
        turns = (Message("user", (Text("word " * 9000),)),)
        request = Request(model="m", messages=turns, wire="ollama", extra=asked_for)
        assert prepare_attempt(request, target).outgoing.body["options"]["num_ctx"] == 3000

    def test_other_upstreams_have_no_word_for_it(self) -> None:
        assert (
            "options"
            not in prepare_attempt(question("word " * 9000), ModelProfile(model="m")).outgoing.body
        )

    def test_a_prompt_that_was_cut_is_noted(self) -> None:
        reply = [Started("i", "m"), TextDelta("Hm."), Finish("stop", usage=Usage(2048, 3))]
        with ScriptedServer(reply) as server, running(behind(server.url)) as gateway:
            heard = ask(gateway.url, CHAT, CHAT.body("word " * 20000, tools=WEATHER))
        assert "prompt-truncated" in heard.headers["x-toolspeak-notes"]

    @pytest.mark.parametrize(
        ("size", "read", "cached", "is_cut"),
        [
            (100_000, 2048, 0, True),
            (100_000, 25_000, 0, False),
            (100_000, 2_000, 23_000, False),
            (100_000, 300, 0, False),
            (4_000, 1_100, 0, False),
        ],
    )
    def test_only_what_is_certain_is_said(
        self, size: int, read: int, cached: int, is_cut: bool
    ) -> None:
        body = {"messages": [{"content": "word " * (size // 5)}]}
        note = note_truncated_prompt(body, encode_json(body), Usage(read, 1, cached=cached))
        assert (note is not None) == is_cut

    def test_pictures_are_no_text(self) -> None:
        assert choose_context_window({"image": "A" * 10**6}, None, None) is None


def question(text: str) -> Request:
    return Request(model="m", messages=(Message("user", (Text(text),)),))


def options(text: str, context: int | None = None) -> dict[str, Any]:
    target = ModelProfile(model="m", wire="ollama", capabilities=Capabilities(context=context))
    return prepare_attempt(question(text), target).outgoing.body.get("options", {})


class TestLoops:
    @pytest.mark.parametrize(
        ("settings", "requests"),
        [
            ({}, 2),
            ({"polling_tools": ("get_*",)}, 1),
            ({"max_repeats": 0}, 1),
            ({"max_repeats": 4}, 1),
        ],
        ids=["as a rule", "a tool for that", "never", "later"],
    )
    def test_a_call_that_changes_nothing(self, settings: dict[str, Any], requests: int) -> None:
        body = asked(CHAT)
        for number in range(3):
            function = {"name": "get_weather", "arguments": json.dumps(OSLO)}
            call = {"id": f"c{number}", "type": "function", "function": function}
            body["messages"] += [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": f"c{number}", "content": "rain"},
            ]
        with ScriptedServer(calls(**OSLO), says("It rains.")) as server:
            with running(behind(server.url, tools="native", **settings)) as gateway:
                heard = ask(gateway.url, CHAT, body)
            assert len(server.requests) == requests
            assert made(CHAT, heard.raw) == ([] if requests > 1 else [OSLO])
            if requests > 1:
                assert heard.text == "It rains."
                assert "has not changed" in str(server.requests[-1].messages[-1])


NAMES = [f"tool_{number}" for number in range(40)]


class TestManyTools:
    @pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
    def test_the_model_has_only_those_that_it_has_chosen(self, client: Client) -> None:
        replies = (says("tool_7, tool_12"), calls("tool_7", **OSLO))
        with ScriptedServer(*replies) as server:
            with running(behind(server.url, tools="native", select_tools_above=100)) as gateway:
                heard = ask(gateway.url, client, client.body("Hi", tools=NAMES))
            assert made(client, heard.raw) == [OSLO]
            choice, request = server.requests
        assert choice.tools is None
        assert "tool_39" in str(choice.messages)
        assert [tool.name for tool in request.tools or ()] == ["tool_7", "tool_12"]

    @pytest.mark.parametrize("said", ["none", "I don't know.", ""])
    def test_one_that_chooses_none_has_all(self, said: str) -> None:
        with ScriptedServer(says(said), says("Hello.")) as server:
            with running(behind(server.url, tools="native", select_tools_above=100)) as gateway:
                heard = ask(gateway.url, CHAT, CHAT.body("Hi", tools=NAMES))
            assert heard.text == "Hello."
            assert len(server.requests[-1].tools or ()) == len(NAMES)
            assert heard.headers["x-toolspeak-retries"] == "0"

    @pytest.mark.parametrize(
        "settings", [{}, {"select_tools_above": 10_000}], ids=["not wished", "few"]
    )
    def test_otherwise_it_is_asked_once(self, settings: dict[str, Any]) -> None:
        with ScriptedServer(says("Hello.")) as server:
            with running(behind(server.url, tools="native", **settings)) as gateway:
                ask(gateway.url, CHAT, CHAT.body("Hi", tools=NAMES))
            assert len(server.requests) == 1

    def test_a_server_that_can_is_held_to_the_names(self) -> None:
        with ScriptedServer(says('{"functions": ["tool_3"]}'), says("Hello.")) as server:
            config = behind(server.url, provider="llamacpp", tools="native", select_tools_above=100)
            with running(config) as gateway:
                ask(gateway.url, CHAT, CHAT.body("Hi", tools=NAMES))
            choice, request = server.requests
        assert choice.response_format
        assert [tool.name for tool in request.tools or ()] == ["tool_3"]


class TestLed:
    """A small model behind a server that holds it to schemas."""

    @pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
    def test_it_decides_on_the_arguments(self, client: Client) -> None:
        body = client.body("Is the weather nicer in Oslo than on our trip to Rome?", tools=WEATHER)
        with ScriptedServer(says(json.dumps({"city": "Rome"}))) as server:
            with running(behind(server.url, tools="constrained", weak=True)) as gateway:
                heard = ask(gateway.url, client, body)
            assert made(client, heard.raw) == [{"city": "Rome"}]
            [request] = server.requests
        assert request.response_format
        assert request.tools is None
        if not client.stream:
            assert heard.headers["x-toolspeak-mode"] == "constrained"
            assert heard.headers["x-toolspeak-retries"] == "0"
            assert heard.headers["x-toolspeak-notes"] == ""

    @pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
    def test_what_is_clear_is_not_asked_and_that_is_told(self, client: Client) -> None:
        with ScriptedServer(says("nothing")) as server:
            with running(behind(server.url, tools="constrained", weak=True)) as gateway:
                heard = ask(gateway.url, client, asked(client))
                text = gateway.gateway.metrics.render()
            assert made(client, heard.raw) == [OSLO]
            assert server.requests == []
        assert 'toolspeak_notes_total{code="no-model-call"} 1' in text
        if not client.stream:
            assert heard.headers["x-toolspeak-notes"] == "no-model-call"

    @pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
    def test_what_is_no_tools_business_is_answered(self, client: Client) -> None:
        with ScriptedServer(says("Hello ", "you.")) as server:
            with running(behind(server.url, tools="constrained", weak=True)) as gateway:
                heard = ask(gateway.url, client, client.body("Hi there", tools=WEATHER))
            assert heard.text == "Hello you."
            [request] = server.requests
        assert (request.tools, request.response_format) == (None, None)

    @pytest.mark.parametrize(
        "words", ["Mind the gap. ", "当心间隙。", "7 "], ids=["en", "zh", "digits"]
    )
    @pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
    def test_what_may_be_too_long_for_it_is_shown_to_it_whole(
        self, client: Client, words: str
    ) -> None:
        """Its server says how long it is, and how long it may be."""
        question = f"{words * 260}How is the weather in Oslo?"
        with ScriptedServer([Failure("context_length", "too long", 400)]) as server:
            config = behind(server.url, tools="constrained", weak=True, context=512)
            with running(config) as gateway:
                heard = ask(gateway.url, client, client.body(question, tools=WEATHER))
            assert "too long" in heard.raw.decode()
            assert "Oslo" not in heard.raw.decode()
            assert all(question in str(request.messages) for request in server.requests)
            assert server.requests

    def test_results_are_told_of(self) -> None:
        body = asked(CHAT)
        function = {"name": "get_weather", "arguments": json.dumps(OSLO)}
        call = {"id": "c1", "type": "function", "function": function}
        body["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "12 degrees"},
        ]
        with ScriptedServer(says("It is 12 degrees.")) as server:
            with running(behind(server.url, tools="constrained", weak=True)) as gateway:
                heard = ask(gateway.url, CHAT, body)
            assert heard.text == "It is 12 degrees."
            assert "12 degrees" in str(server.requests[0].messages[-1])

    @pytest.mark.parametrize("said", ["", "no JSON", "[]", '{"other": 1}'])
    def test_one_that_is_not_held_to_it_is_left_to_itself(self, said: str) -> None:
        body = CHAT.body("Is the weather nicer in Oslo than on our trip to Rome?", tools=WEATHER)
        good = says(json.dumps({"tool": "get_weather", "arguments": OSLO}))
        with ScriptedServer(says(said), good) as server:
            with running(behind(server.url, tools="constrained", weak=True)) as gateway:
                heard = ask(gateway.url, CHAT, body)
            assert made(CHAT, heard.raw) == [OSLO]
            assert len(server.requests) == 2

    def test_a_strong_one_decides_for_itself(self) -> None:
        good = says(json.dumps({"tool": "get_weather", "arguments": OSLO}))
        with ScriptedServer(good) as server:
            with running(behind(server.url, tools="constrained")) as gateway:
                heard = ask(gateway.url, CHAT, asked(CHAT))
            assert made(CHAT, heard.raw) == [OSLO]
            assert "get_weather" in str(server.requests[0].response_format)

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("SmolLM2-135M-Instruct.Q4_1", True),
            ("qwen2.5:0.5b", True),
            ("Qwen2.5-0.5B-Instruct", True),
            ("llama3.2:1b", False),
            ("Llama-3.1-8B-Instruct", False),
            ("mixtral-8x7b", False),
            ("gpt-oss:20b", False),
            ("some-model", False),
            ("phi-4-mini", False),
            ("text-2m-context-70b", False),
        ],
    )
    def test_small_ones_are_known_by_their_names(self, name: str, expected: bool) -> None:
        assert is_tiny_model(name) == expected


def test_the_choice_among_many_keeps_what_was_used() -> None:
    """The choice among many leaves no tool out that the conversation has used."""
    from toolspeak import ToolCall, ToolResult
    from toolspeak.engine.tool_selection import select_tools

    tools = tuple(Tool(name=f"tool_{n}", description="x" * 50) for n in range(20))
    used = ToolCall(id="c", name="tool_3", arguments={})
    turns = (
        Message("user", (Text("Hi"),)),
        Message("assistant", (used,)),
        Message("tool", (ToolResult(call_id="c", name="tool_3", content="1"),)),
    )
    request = Request(model="m", messages=turns, tools=tools)
    chosen = select_tools(request, "tool_5")
    assert [tool.name for tool in chosen.tools or ()] == ["tool_3", "tool_5"]
