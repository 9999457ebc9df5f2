"""Nothing is silent: every fallback leaves a note, and the mode in the headers is the one used."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from tests.engine.gateway_support import (
    CHAT,
    FORM,
    OSLO,
    VALID_CALL,
    Reply,
    call_reply,
    read_call_arguments,
    text_reply,
    weather_body,
    whole_and_streamed,
)
from tests.gateway.raw_clients import CLIENTS, Client, ask
from tests.gateway.running_gateway import make_config, run_gateway
from toolspeak.config.settings import Config
from toolspeak.testing import ScriptedServer
from toolspeak.types import Failure

NO_TOOLS: Reply = [Failure("bad_request", "this model does not support tools", 400)]
ANSWER = text_reply("Hello.")
JSON_ANSWER = json.dumps(OSLO)


def note_codes(response: Any) -> list[str]:
    return [code for code in response.headers["x-toolspeak-notes"].split(",") if code]


@pytest.mark.parametrize(
    ("replies", "settings", "expected"),
    [
        ([VALID_CALL], {"tools": "native"}, ["text-call"]),
        ([VALID_CALL], {"tools": "prompt", "dialect": "hermes"}, []),
        ([call_reply(**OSLO)], {"tools": "native"}, []),
        ([NO_TOOLS, VALID_CALL], {"dialect": "hermes"}, ["tools-rejected"]),
    ],
    ids=["call in text", "call in text as asked", "native call", "tools rejected"],
)
def test_fallback_of_the_mode_leaves_a_note(
    replies: list[Reply], settings: dict[str, Any], expected: list[str]
) -> None:
    with (
        ScriptedServer(*replies) as server,
        run_gateway(make_config(server.url, **settings)) as gateway,
    ):
        response = ask(gateway.url, CHAT, weather_body(CHAT))
    assert read_call_arguments(CHAT, response.raw) == [OSLO]
    assert note_codes(response) == expected


def test_learned_mode_leaves_a_note_in_each_request() -> None:
    with (
        ScriptedServer(NO_TOOLS, VALID_CALL, VALID_CALL, ANSWER) as server,
        run_gateway(make_config(server.url, dialect="hermes")) as gateway,
    ):
        responses = [ask(gateway.url, CHAT, weather_body(CHAT)) for _ in range(2)]
        without_tools = ask(gateway.url, CHAT, CHAT.body())
    assert [note_codes(response) for response in responses] == [
        ["tools-rejected"],
        ["learned-mode"],
    ]
    assert note_codes(without_tools) == []


def test_fallback_to_another_upstream_leaves_a_note() -> None:
    broken: Reply = [Failure("upstream", "out of memory", 500)]
    with ScriptedServer(broken) as first, ScriptedServer(ANSWER) as second:
        config = make_config(first.url)
        scripted = structs.replace(config.upstreams["scripted"], fallbacks=("spare",))
        spare = structs.replace(config.upstreams["scripted"], base_url=f"{second.url}/v1")
        config = structs.replace(config, upstreams={"scripted": scripted, "spare": spare})
        with run_gateway(config) as gateway:
            response = ask(gateway.url, CHAT, CHAT.body())
    assert (response.text, note_codes(response)) == ("Hello.", ["fallback"])


def test_dialect_that_cannot_represent_a_tool_leaves_a_note() -> None:
    schema = {"type": "object", "properties": {"<x>": {"type": "string"}}, "required": ["<x>"]}
    tool = {"type": "function", "function": {"name": "look", "parameters": schema}}
    with (
        ScriptedServer(ANSWER) as server,
        run_gateway(make_config(server.url, tools="prompt", dialect="qwen3_coder")) as gateway,
    ):
        response = ask(gateway.url, CHAT, CHAT.body() | {"tools": [tool]})
    assert "dialect-changed" in note_codes(response)


# The mode in the headers.


NAMED_FORM = {"type": "json_schema", "name": "city", "schema": FORM}
FORMATS: dict[str, dict[str, Any]] = {
    "openai_chat": {"response_format": {"type": "json_schema", "json_schema": NAMED_FORM}},
    "openai_responses": {"text": {"format": NAMED_FORM}},
    "anthropic": {"output_config": {"format": {"type": "json_schema", "schema": FORM}}},
    "ollama": {"format": FORM},
    "gemini": {
        "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": FORM}
    },
}


def with_format(client: Client) -> dict[str, Any]:
    """A request for an answer in a format, in the words of the client's API."""
    return client.body("Where is it?") | FORMATS[client.wire]


@pytest.mark.parametrize(
    ("tools", "expected"),
    [("native", ("none", "native", "none")), ("prompt", ("none", "prompt", "prompt"))],
)
def test_mode_in_the_headers_is_the_one_used(tools: str, expected: tuple[str, ...]) -> None:
    with (
        ScriptedServer(ANSWER, VALID_CALL, text_reply(JSON_ANSWER)) as server,
        run_gateway(make_config(server.url, tools=tools)) as gateway,
    ):
        bodies = (CHAT.body(), weather_body(CHAT), with_format(CHAT))
        modes = [ask(gateway.url, CHAT, body).headers["x-toolspeak-mode"] for body in bodies]
    assert tuple(modes) == expected


# Formats without tools.


def prompt_config(url: str, mode: str) -> Config:
    return make_config(url, provider="llamacpp" if mode == "constrained" else "", tools=mode)


@pytest.mark.parametrize("mode", ["prompt", "constrained"])
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize(
    ("replies", "codes"),
    [
        ([JSON_ANSWER], []),
        ([f"```json\n{JSON_ANSWER}\n```"], []),
        (["It is Oslo.", JSON_ANSWER], ["retried"]),
        (['{"town": 1}', f"```json\n{JSON_ANSWER}\n```"], ["retried"]),
    ],
    ids=["at once", "in a fence", "prose first", "another form first"],
)
def test_format_without_tools_is_told_and_checked(
    replies: list[str], codes: list[str], client: Client, mode: str
) -> None:
    with ScriptedServer(*map(text_reply, replies)) as server:
        with run_gateway(prompt_config(server.url, mode)) as gateway:
            response = ask(gateway.url, client, with_format(client))
        told = [json.dumps(body["messages"]) for body in server.bodies]
    assert (response.status, response.text) == (200, JSON_ANSWER)
    assert len(told) == len(replies)
    assert all("must match this JSON Schema" in text for text in told)
    assert all("call" not in text for text in told)
    if len(replies) == 2:
        assert replies[0] in json.loads(told[1])[-2]["content"]
        assert "not in the requested format" in told[1]
    if not client.stream:
        assert note_codes(response) == codes


@whole_and_streamed
def test_format_never_matched_gives_the_first_answer_with_a_note(client: Client) -> None:
    with (
        ScriptedServer(text_reply("Oslo is first."), text_reply("Oslo is second.")) as server,
        run_gateway(make_config(server.url, tools="prompt")) as gateway,
    ):
        response = ask(gateway.url, client, with_format(client))
    assert response.text == "Oslo is first."
    if not client.stream:
        assert note_codes(response) == ["retried", "wrong-format"]


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_format_beside_tools_that_may_not_be_called_is_told_and_checked(choice: str) -> None:
    with ScriptedServer(text_reply("Oslo."), text_reply(JSON_ANSWER)) as server:
        with run_gateway(make_config(server.url, tools="prompt")) as gateway:
            body = weather_body(CHAT) | with_format(CHAT) | {"tool_choice": choice}
            response = ask(gateway.url, CHAT, body)
        assert "JSON Schema" in json.dumps(server.bodies[0]["messages"])
    assert response.text == JSON_ANSWER


def test_format_without_tools_is_left_to_a_native_upstream() -> None:
    with ScriptedServer(text_reply("It is Oslo.")) as server:
        with run_gateway(make_config(server.url, tools="native")) as gateway:
            response = ask(gateway.url, CHAT, with_format(CHAT))
        (body,) = server.bodies
    assert response.text == "It is Oslo."
    assert body["messages"] == with_format(CHAT)["messages"]
    assert body["response_format"]["json_schema"]["schema"] == FORM


def test_refusal_or_cut_answer_in_a_format_is_not_retried() -> None:
    for reply in (text_reply("I can't help with weapons."), text_reply('{"ci', stop="length")):
        with (
            ScriptedServer(reply) as server,
            run_gateway(make_config(server.url, tools="prompt")) as gateway,
        ):
            assert ask(gateway.url, CHAT, with_format(CHAT)).status == 200
            assert len(server.requests) == 1


# A rejected structured call.


@whole_and_streamed
@pytest.mark.parametrize(
    ("said", "expected"),
    [("", 'fly({"a":1})'), ("Let me look.", 'Let me look.\n\nfly({"a":1})')],
    ids=["alone", "after text"],
)
def test_rejected_structured_call_is_apart_from_the_text_before_it(
    said: str, expected: str, client: Client
) -> None:
    with (
        ScriptedServer(call_reply("fly", said=said, a=1)) as server,
        run_gateway(make_config(server.url, tools="native", retries=0)) as gateway,
    ):
        assert ask(gateway.url, client, weather_body(client)).text == expected
