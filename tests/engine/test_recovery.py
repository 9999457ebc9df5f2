"""Recovery from every kind of fault: what the upstream is asked, and what the client receives."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Struct, structs

from tests.engine.gateway_support import (
    CHAT,
    CHAT_STREAMED,
    CONSTRAINED,
    FALSE_REFUSAL,
    FORM,
    NATIVE_CALL,
    OSLO,
    VALID_CALL,
    WEATHER_TOOL,
    Reply,
    body_with_format,
    call_block,
    call_reply,
    read_call_arguments,
    text_reply,
    weather_body,
    whole_and_streamed,
)
from tests.gateway.raw_clients import CLIENTS, Client, ask
from tests.gateway.running_gateway import make_config, run_gateway
from toolspeak import (
    Event,
    Failure,
    Finish,
    Other,
    Request,
    Started,
    TextDelta,
    Usage,
)
from toolspeak.engine.recovery import rejects_all_tools, rejects_tools
from toolspeak.events import PartAdded
from toolspeak.testing import ScriptedServer
from toolspeak.wires.errors import classify_failure

PLEASE = "Which city do you mean?"


CUT = '<tool_call>{"name": "get_weather", "arguments": {"ci'


class Script(Struct, frozen=True):
    """The replies of an upstream, and what the client must receive."""

    replies: tuple[Reply, ...]
    requests: int
    """The number of requests that the upstream gets."""
    call: dict[str, Any] | None = None
    text: str | None = None
    mode: str = "prompt"
    required: bool = False
    status: int = 200
    retries: int = 2
    constrained: bool = False
    streamed: str | None = None
    """The text of a stream, if it differs because some text was sent early."""


SCRIPTS: dict[str, Script] = {
    # Usable replies are not retried.
    "a call in the text": Script((VALID_CALL,), 1, OSLO),
    "a native call": Script((NATIVE_CALL,), 1, OSLO, mode="native"),
    "a native call with words": Script(
        (call_reply(said="Let me look. ", **OSLO),), 1, OSLO, mode="native"
    ),
    "an answer": Script((text_reply("It is sunny."),), 1, text="It is sunny."),
    "a native answer": Script((text_reply("It is sunny."),), 1, text="It is sunny.", mode="native"),
    "a question": Script((text_reply(PLEASE),), 1, text=PLEASE),
    "a greeting": Script((text_reply("Hello! How can I help?"),), 1, text="Hello! How can I help?"),
    "thanks": Script((text_reply("You're welcome!"),), 1, text="You're welcome!"),
    "a call that is required": Script((VALID_CALL,), 1, OSLO, required=True),
    "a native one that is required": Script((NATIVE_CALL,), 1, OSLO, mode="native", required=True),
    "a call that can be mended": Script((text_reply(call_block(city=5)),), 1, {"city": "5"}),
    "an example in code": Script((text_reply(f"Write `{call_block(**OSLO)}`."),), 1),
    "a long answer": Script((text_reply("Well. " * 400),), 1, text="Well. " * 400),
    # An invalid call.
    "arguments of the wrong kind": Script((text_reply(call_block(city=[1])), VALID_CALL), 2, OSLO),
    "the same, native": Script((call_reply(city=[1]), NATIVE_CALL), 2, OSLO, mode="native"),
    "wrong twice": Script(
        (text_reply(call_block(city=[1])), text_reply(call_block(city=[])), VALID_CALL), 3, OSLO
    ),
    "wrong for ever": Script((text_reply(call_block(city=[1])),), 3, text=call_block(city=[1])),
    "wrong, and no retries": Script(
        (text_reply(call_block(city=[1])),), 1, text=call_block(city=[1]), retries=0
    ),
    "wrong, and one retry": Script(
        (text_reply(call_block(city=[1])),), 2, text=call_block(city=[1]), retries=1
    ),
    "wrong, then an answer": Script(
        (text_reply(call_block(city=[1])), text_reply("Never mind.")), 2, text="Never mind."
    ),
    "wrong, then held to a schema": Script(
        (text_reply(call_block(city=[1])), text_reply(call_block(city=[1])), CONSTRAINED),
        3,
        OSLO,
        constrained=True,
    ),
    "a block that is no JSON": Script(
        (text_reply("<tool_call>get_weather, Oslo</tool_call>"), VALID_CALL), 2, OSLO
    ),
    "words before a wrong call": Script(
        (text_reply("Let me look. ", call_block(city=[1])), VALID_CALL),
        2,
        OSLO,
        streamed="Let me look.",
    ),
    "wrong and required": Script(
        (text_reply(call_block(city=[1])), VALID_CALL), 2, OSLO, required=True
    ),
    "wrong for ever and required": Script(
        (text_reply(call_block(city=[1])),), 3, required=True, status=502
    ),
    # An unknown tool.
    "another tool": Script((text_reply(call_block("get_whether", **OSLO)), VALID_CALL), 2, OSLO),
    "another native tool": Script(
        (call_reply("get_whether", **OSLO), NATIVE_CALL), 2, OSLO, mode="native"
    ),
    "another tool for ever": Script(
        (text_reply(call_block("nope", **OSLO)),), 3, text=call_block("nope", **OSLO)
    ),
    # No call, although one is required.
    "an answer though a call is required": Script(
        (text_reply("Sunny."), VALID_CALL), 2, OSLO, required=True
    ),
    "native, and then by prompt": Script(
        (text_reply("Sunny."), VALID_CALL), 2, OSLO, mode="native", required=True
    ),
    "held to a schema at once": Script(
        (text_reply("Sunny."), CONSTRAINED), 2, OSLO, required=True, constrained=True
    ),
    "never": Script((text_reply("Sunny."),), 3, required=True, status=502),
    "never, and no retries": Script(
        (text_reply("Sunny."),), 1, required=True, status=502, retries=0
    ),
    # A false refusal.
    "no access": Script((text_reply(FALSE_REFUSAL), VALID_CALL), 2, OSLO),
    "no access, natively": Script((text_reply(FALSE_REFUSAL), NATIVE_CALL), 2, OSLO, mode="native"),
    "no access twice": Script(
        (text_reply(FALSE_REFUSAL), text_reply(FALSE_REFUSAL), VALID_CALL), 3, OSLO
    ),
    "no access for ever": Script((text_reply(FALSE_REFUSAL),), 3, text=FALSE_REFUSAL),
    "no access, in pieces": Script((text_reply(*FALSE_REFUSAL), VALID_CALL), 2, OSLO),
    "no access, then an answer": Script(
        (text_reply(FALSE_REFUSAL), text_reply("It is sunny.")), 2, text="It is sunny."
    ),
    "no access, and required": Script(
        (text_reply(FALSE_REFUSAL), VALID_CALL), 2, OSLO, required=True
    ),
    # A truncated call.
    "cut off": Script(
        (text_reply(CUT, stop="length"), text_reply('ty": "Oslo"}}</tool_call>')), 2, OSLO
    ),
    "cut off, and begun anew": Script(
        (text_reply(CUT, stop="length"), text_reply("…"), VALID_CALL), 3, OSLO
    ),
    "cut off for ever": Script((text_reply(CUT, stop="length"),), 3, text=CUT),
    # An empty reply.
    "nothing": Script((text_reply(), VALID_CALL), 2, OSLO),
    "white space": Script((text_reply(" \n"), VALID_CALL), 2, OSLO),
    "nothing twice": Script((text_reply(), text_reply(), text_reply("Sunny.")), 3, text="Sunny."),
    "nothing, natively": Script((text_reply(), NATIVE_CALL), 2, OSLO, mode="native"),
    "nothing at all": Script((text_reply(),), 3, text=""),
}


def configure(script: Script, server: ScriptedServer) -> Any:
    provider = "llamacpp" if script.constrained else ""
    given: dict[str, Any] = {"tools": script.mode, "dialect": "hermes"}
    return make_config(server.url, provider=provider, retries=script.retries, **given)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("name", SCRIPTS)
def test_scripted_fault_is_recovered(name: str, client: Client) -> None:
    script = SCRIPTS[name]
    if script.required and client.wire == "ollama":
        pytest.skip("the Ollama API has no tool_choice")
    with ScriptedServer(*script.replies) as server:
        with run_gateway(configure(script, server)) as gateway:
            body = client.body(
                "How is the weather in Oslo?", tools=["get_weather"], required=script.required
            )
            response = ask(gateway.url, client, body)
        assert response.status == script.status, response
        assert len(server.requests) == script.requests
        assert (server.requests[-1].response_format is not None) == script.constrained
        text = script.text if script.streamed is None or not client.stream else script.streamed
        if text is not None:
            assert response.text.strip() == text.strip()
        assert read_call_arguments(client, response.raw) == ([script.call] if script.call else [])
        if not client.stream:
            assert response.headers.get("x-toolspeak-retries", "0") == str(script.requests - 1)


IGNORED_TOOLS = {
    "broken JSON": '<tool_call>{"name": "get_weather", "arguments": {"city": }</tool_call>',
    "wrong arguments": call_block(city=[1]),
    "another tool": call_block("nope", **OSLO),
    "cut off": CUT,
    "a fence after prose": f"I will look.\n\n```json\n{call_block(**OSLO)[11:-12]}\n```",
    "a refusal": FALSE_REFUSAL,
    "nothing": "",
}
"""What a model writes that is never shown its native tools."""


@whole_and_streamed
@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("name", IGNORED_TOOLS)
def test_upstream_that_ignores_native_tools_gets_them_in_the_prompt(
    name: str, required: bool, client: Client
) -> None:
    def reply(request: Request) -> list[Event]:
        return text_reply(IGNORED_TOOLS[name]) if request.tools else VALID_CALL

    body = client.body("How is the weather in Oslo?", tools=["get_weather"], required=required)
    with ScriptedServer(reply) as server, run_gateway(make_config(server.url)) as gateway:
        first, second = (ask(gateway.url, client, body) for _ in range(2))
    for response in (first, second):
        assert read_call_arguments(client, response.raw) == [OSLO]
    # The mode is learned: the second request is not tried natively.
    was_native = [bool(request.tools) for request in server.requests]
    assert was_native[-2:] == [False, False]
    assert len(was_native) <= 4


@whole_and_streamed
@pytest.mark.parametrize("bad_call", [call_reply(city=[1]), call_reply("nope", **OSLO)])
def test_upstream_with_structured_calls_keeps_native_tools(
    bad_call: list[Event], client: Client
) -> None:
    body = client.body("How is the weather in Oslo?", tools=["get_weather"])
    with ScriptedServer(bad_call) as server, run_gateway(make_config(server.url)) as gateway:
        ask(gateway.url, client, body)
    assert [bool(request.tools) for request in server.requests] == [True] * 3


class TestResponseFormat:
    @pytest.mark.parametrize("client", [CHAT, CHAT_STREAMED], ids=lambda client: client.name)
    @pytest.mark.parametrize("mode", ["prompt", "native"])
    @pytest.mark.parametrize(
        ("replies", "text", "requests"),
        [
            ([text_reply(json.dumps(OSLO))], json.dumps(OSLO), 1),
            ([text_reply("It is Oslo."), text_reply(json.dumps(OSLO))], json.dumps(OSLO), 2),
            ([text_reply('{"town": 1}'), text_reply(json.dumps(OSLO))], json.dumps(OSLO), 2),
        ],
        ids=["at once", "prose first", "another form first"],
    )
    def test_answer_in_the_requested_format_is_returned(
        self, replies: list[Reply], text: str, requests: int, mode: str, client: Client
    ) -> None:
        if mode == "native" and client.stream and requests > 1:
            pytest.skip(
                "a native upstream enforces the format itself, and its text is sent at once"
            )
        with ScriptedServer(*replies) as server:
            with run_gateway(make_config(server.url, tools=mode, dialect="hermes")) as gateway:
                response = ask(gateway.url, client, body_with_format(client))
            assert (response.status, response.text) == (200, text)
            assert len(server.requests) == requests
            if requests > 1:
                last = server.requests[-1]
                assert (last.tools, last.response_format and last.response_format.schema) == (
                    None,
                    FORM,
                )

    def test_answer_in_a_code_fence_loses_the_fence(self) -> None:
        fenced = f"```json\n{json.dumps(OSLO)}\n```"
        with ScriptedServer(text_reply(fenced)) as server:
            with run_gateway(make_config(server.url, tools="prompt")) as gateway:
                response = ask(gateway.url, CHAT, body_with_format(CHAT))
            assert response.text == json.dumps(OSLO)
            assert len(server.requests) == 1

    def test_call_with_a_response_format_passes(self) -> None:
        with ScriptedServer(text_reply(call_block(**OSLO))) as server:
            with run_gateway(make_config(server.url, tools="prompt", dialect="hermes")) as gateway:
                response = ask(gateway.url, CHAT, body_with_format(CHAT))
            assert read_call_arguments(CHAT, response.raw) == [OSLO]
            assert server.requests[0].response_format is None

    def test_answer_never_in_the_format_gives_the_first_answer(self) -> None:
        with ScriptedServer(text_reply("Oslo.")) as server:
            with run_gateway(make_config(server.url, tools="prompt")) as gateway:
                response = ask(gateway.url, CHAT, body_with_format(CHAT))
            assert response.text == "Oslo."
            assert len(server.requests) == 2


LONG = "It rains in Oslo. " * 8000


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_hosted_tool_call_is_not_retried(client: Client) -> None:
    searched = Other({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})
    reply = [Started("i", "m", wire="anthropic"), PartAdded(searched), Finish("stop", "pause_turn")]
    with ScriptedServer(reply) as server:
        with run_gateway(make_config(server.url, "anthropic", tools="native")) as gateway:
            assert ask(gateway.url, client, weather_body(client)).status == 200
        assert len(server.requests) == 1


@whole_and_streamed
def test_retry_after_sent_text_adds_no_second_opening(client: Client) -> None:
    then = text_reply("Sure, in Oslo it is nice. ", call_block(city=[1]))
    with (
        ScriptedServer(text_reply(FALSE_REFUSAL), then) as server,
        run_gateway(make_config(server.url, tools="prompt", dialect="hermes")) as gateway,
    ):
        response = ask(gateway.url, client, weather_body(client))
    assert not ("Sure" in response.text and "sorry" in response.text)


def test_failure_during_a_streamed_retry_is_reported() -> None:
    broken = [Started("i", "m"), TextDelta("In Oslo the sun is out, "), Failure("upstream", "gone")]
    with (
        ScriptedServer(text_reply(FALSE_REFUSAL), broken) as server,
        run_gateway(make_config(server.url, tools="prompt", dialect="hermes")) as gateway,
    ):
        response = ask(gateway.url, CHAT_STREAMED, weather_body(CHAT_STREAMED))
    assert response.error
    assert "sorry" not in response.text


@whole_and_streamed
@pytest.mark.parametrize("required", [False, True], ids=["free", "required"])
def test_refusal_by_the_api_is_not_retried(client: Client, required: bool) -> None:
    body = client.body("How is the weather?", tools=WEATHER_TOOL, required=required)
    refuses = text_reply("No.", stop="refusal")
    with ScriptedServer(refuses) as server:
        with run_gateway(make_config(server.url, "anthropic", tools="native")) as gateway:
            response = ask(gateway.url, client, body)
        assert response.status == (502 if required else 200)
        assert len(server.requests) == 1


def test_refusal_with_a_response_format_is_not_retried() -> None:
    with ScriptedServer(
        text_reply("I can't help with making weapons."), text_reply("{}")
    ) as server:
        with run_gateway(make_config(server.url, tools="prompt")) as gateway:
            response = ask(gateway.url, CHAT, body_with_format(CHAT))
        assert response.text == "I can't help with making weapons."
        assert len(server.requests) == 1


@pytest.mark.parametrize("mode", ["prompt", "native"])
@whole_and_streamed
def test_answers_in_the_wrong_format_give_only_the_first(client: Client, mode: str) -> None:
    with ScriptedServer(text_reply("Oslo is first."), text_reply("Oslo is second.")) as server:
        with run_gateway(make_config(server.url, tools=mode)) as gateway:
            response = ask(gateway.url, client, body_with_format(client))
        assert response.text == "Oslo is first."
        assert len(server.requests) == (1 if mode == "native" and client.stream else 2)


@whole_and_streamed
def test_retried_answer_loses_its_fence_and_adds_its_usage(client: Client) -> None:
    fenced = f"```json\n{json.dumps(OSLO)}\n```"
    replies = [
        [Started("i", "m"), TextDelta(text), Finish("stop", usage=Usage(50, 50))]
        for text in ("It is Oslo.", fenced)
    ]
    body = body_with_format(client) | (
        {"stream_options": {"include_usage": True}} if client.stream else {}
    )
    with (
        ScriptedServer(*replies) as server,
        run_gateway(make_config(server.url, tools="prompt")) as gateway,
    ):
        response = ask(gateway.url, client, body)
    assert response.text == json.dumps(OSLO)
    assert b'"total_tokens":200' in response.raw.replace(b" ", b"")


@whole_and_streamed
def test_truncated_json_without_a_tool_name_is_an_answer(client: Client) -> None:
    text = '{"users": [{"name": "Ann", "age": 31}, {"name": "Bo", "ag'
    with ScriptedServer(text_reply(text, stop="length")) as server:
        with run_gateway(make_config(server.url, tools="native")) as gateway:
            response = ask(gateway.url, client, weather_body(client))
        assert response.text == text
        assert len(server.requests) == 1


def test_long_retried_answer_is_complete() -> None:
    first = text_reply("Let me look at that. ", call_block(city=[1]))
    with (
        ScriptedServer(first, text_reply(LONG)) as server,
        run_gateway(make_config(server.url, tools="prompt", dialect="hermes")) as gateway,
    ):
        response = ask(gateway.url, CHAT_STREAMED, weather_body(CHAT_STREAMED))
    assert response.text.endswith(LONG.strip())


@whole_and_streamed
def test_usage_of_a_failed_upstream_is_added(client: Client) -> None:
    body = client.body("How is the weather in Oslo?", tools=WEATHER_TOOL, required=True)
    body |= {"stream_options": {"include_usage": True}} if client.stream else {}
    finish = Finish("stop", usage=Usage(90, 10))
    with (
        ScriptedServer([Started("i", "m"), TextDelta("Sunny."), finish]) as first,
        ScriptedServer(
            [*call_reply(**OSLO)[:-1], structs.replace(finish, stop_reason="calls")]
        ) as other,
    ):
        config = make_config(first.url, tools="native", retries=0)
        upstreams = {
            "scripted": structs.replace(config.upstreams["scripted"], fallbacks=("other",)),
            "other": make_config(other.url).upstreams["scripted"],
        }
        with run_gateway(structs.replace(config, upstreams=upstreams)) as gateway:
            response = ask(gateway.url, client, body)
    assert read_call_arguments(client, response.raw) == [OSLO]
    assert b'"total_tokens":200' in response.raw.replace(b" ", b"")


ALL_TOOLS_REJECTED = [
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


THESE_TOOLS_REJECTED = [
    "Invalid schema for function 'get_weather': In context=(), 'required' is required",
    "messages with role 'tool' must be a response to a preceding message with 'tool_calls'.",
    "An assistant message with 'tool_calls' must be followed by tool messages",
    "Invalid 'tools[0].function.name': string does not match pattern.",
    "tools: maximum number of items is 128",
    "tools: Tool names must be unique.",
]


OTHER_ERRORS = [
    "the model is overloaded",
    "this functionality is off",
    "maximum context length is 8192",
]


@pytest.mark.parametrize("message", [*ALL_TOOLS_REJECTED, *THESE_TOOLS_REJECTED, *OTHER_ERRORS])
@pytest.mark.parametrize("status", [400, 404, 422, 500, 501])
def test_tool_rejections_are_recognised_by_their_message(message: str, status: int) -> None:
    failure = Failure("bad_request", message, status)
    assert rejects_tools(failure) is (message not in OTHER_ERRORS)
    assert rejects_all_tools(failure) is (message in ALL_TOOLS_REJECTED)


TOO_LONG = [
    "the maximum context length is 8192 tokens, and you have 8300 (300 in the functions)",
    "Please reduce the length of the messages or functions.",
    "This model's maximum prompt length is 131072 but the request with its tools has 140000 tokens",
]


@pytest.mark.parametrize("message", TOO_LONG)
def test_context_error_about_tools_is_no_tool_rejection(message: str) -> None:
    failure = classify_failure(400, message)
    assert failure.kind == "context_length"
    assert not rejects_tools(failure)


@pytest.mark.parametrize("status", [401, 403, 408, 413, 429, 502, 503, 504])
def test_other_status_is_no_tool_rejection(status: int) -> None:
    assert not rejects_tools(Failure("bad_request", ALL_TOOLS_REJECTED[0], status))
