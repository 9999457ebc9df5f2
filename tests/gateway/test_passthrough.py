"""Replies that need no change reach the client byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec import structs

from tests.gateway.faulty_upstream import HELLO, Action, FaultyUpstream, ReceivedRequest
from tests.gateway.raw_clients import HTTP, STREAMED, WHOLE, Client, ask
from tests.gateway.running_gateway import RunningGateway, make_config, run_gateway
from toolspeak import Finish, TextDelta, ToolResult
from toolspeak.testing import ScriptedServer

PASSTHROUGH = [client for client in STREAMED if not client.is_array]
UNKNOWN_FIELD = "never_seen_before"


@contextmanager
def start_both(
    wire: str, act: Action, **model: Any
) -> Generator[tuple[FaultyUpstream, RunningGateway], None, None]:
    with FaultyUpstream() as upstream:
        upstream.set_actions(act)
        with run_gateway(make_config(upstream.url, wire, **model)) as gateway:
            yield upstream, gateway


def add_unknown_field(received: ReceivedRequest) -> list[bytes]:
    """Return a reply with an unknown field in each frame."""
    return [_add_fields(data) for data in received.encode(HELLO)]


def _add_fields(data: bytes) -> bytes:
    lines = data.split(b"\n")
    return b"\n".join(_add_field(line) for line in lines)


def _add_field(line: bytes) -> bytes:
    before, brace, after = line.partition(b"{")
    return b'%b{"%b": 1, %b' % (before, UNKNOWN_FIELD.encode(), after) if brace else line


def respond_with(
    encode: Callable[[ReceivedRequest], list[bytes]], size: int | None = None
) -> Action:
    async def respond(received: ReceivedRequest) -> bool:
        if not received.request.stream:
            await received.respond(200, b"".join(encode(received)))
            return True
        await received.start_chunks()
        data = b"".join(encode(received))
        for at in range(0, len(data), size or len(data)):
            await received.send_chunk(data[at : at + (size or len(data))])
        await received.end_chunks()
        return True

    return respond


@pytest.mark.parametrize("client", [*PASSTHROUGH, *WHOLE], ids=lambda client: client.name)
@pytest.mark.parametrize("size", [None, 7, 100])
def test_unknown_fields_reach_the_client(client: Client, size: int | None) -> None:
    with start_both(client.wire, respond_with(add_unknown_field, size)) as (upstream, gateway):
        response = ask(gateway.url, client, {**client.body(), **_extra_fields(client)})
        assert response.status == 200
        sent = b"".join(add_unknown_field(upstream.requests[0]))
        assert _split_lines(response.raw) == _split_lines(sent)
        assert UNKNOWN_FIELD.encode() in response.raw


def _extra_fields(client: Client) -> dict[str, Any]:
    fields = {} if client.wire == "gemini" else {"model": "m"}
    wants_usage = client.wire == "openai_chat" and client.stream
    return fields | ({"stream_options": {"include_usage": True}} if wants_usage else {})


def _split_lines(data: bytes) -> list[bytes]:
    return [line for line in data.split(b"\n") if line.strip()]


@pytest.mark.parametrize("client", PASSTHROUGH, ids=lambda client: client.name)
@pytest.mark.parametrize("reason", ["tools", "another name"])
def test_reply_with_tools_or_another_model_name_is_encoded_anew(
    client: Client, reason: str
) -> None:
    other = {"model": "real"} if reason == "another name" else {}
    body = client.body(tools=1 if reason == "tools" else 0)
    with start_both(client.wire, respond_with(add_unknown_field), **other) as (upstream, gateway):
        response = ask(gateway.url, client, {**body, **_extra_fields(client)})
        sent = b"".join(add_unknown_field(upstream.requests[0]))
        assert (response.status, response.text) == (200, "Hello there.")
        assert _split_lines(response.raw) != _split_lines(sent)


CALL = {"id": "call_1234567890", "type": "function"}
ARGUMENTS = '{"a":   1}'
"""With spaces that no encoder here would write."""


def encode_completion(call: dict[str, Any], arguments: Any, **fields: Any) -> bytes:
    full_call = {**call, "function": {"name": "t0", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [full_call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    head = {"id": "c-1", "object": "chat.completion", "created": 5, "model": "theirs"}
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    return json.dumps({**head, "choices": [choice], "usage": usage, **fields}).encode()


@pytest.mark.parametrize(
    ("call", "arguments", "is_unchanged"),
    [
        (CALL, ARGUMENTS, True),
        ({"type": "function"}, ARGUMENTS, False),
        (CALL, {"a": 1}, False),
        (CALL, '{"a": "1"}', False),
        (CALL, "{'a': 1}", False),
    ],
)
@pytest.mark.parametrize("name", ["m", "another"])
def test_valid_call_is_unchanged_and_others_are_repaired(
    call: dict[str, Any], arguments: Any, is_unchanged: bool, name: str
) -> None:
    upstream_body = encode_completion(call, arguments)
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tool = {"type": "function", "function": {"name": "t0", "parameters": parameters}}
    body = {"messages": [{"role": "user", "content": "Go."}], "tools": [tool], "model": "m"}
    with start_both("openai_chat", respond_with(lambda _: [upstream_body]), model=name) as (
        _,
        gateway,
    ):
        response = HTTP.post(f"{gateway.url}/v1/chat/completions", json=body)
    assert (response.content == upstream_body) is is_unchanged
    (call,) = response.json()["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"a": 1}
    assert call["id"]
    assert response.headers["x-toolspeak-mode"] == "native"


@pytest.mark.parametrize("name", ["get.weather.v1", "t" * 70, "wétter"])
def test_tool_that_was_renamed_for_the_upstream_has_its_own_name_in_the_reply(name: str) -> None:
    def call_first_tool(received: ReceivedRequest) -> list[bytes]:
        tool = next(iter(received.request.tools or ()))
        call = {**CALL, "function": {"name": tool.name, "arguments": "{}"}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        return [encode_completion(CALL, "{}", choices=[choice])]

    tool = {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    body = {"messages": [{"role": "user", "content": "Go."}], "tools": [tool], "model": "m"}
    with start_both("openai_chat", respond_with(call_first_tool)) as (upstream, gateway):
        response = HTTP.post(f"{gateway.url}/v1/chat/completions", json=body)
        upstream_tool = next(iter(upstream.requests[0].request.tools or ()))
    assert upstream_tool.name != name
    (call,) = response.json()["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == name


@pytest.mark.parametrize("is_requested", [True, False])
def test_usage_is_sent_only_if_requested(is_requested: bool) -> None:
    client = next(client for client in PASSTHROUGH if client.wire == "openai_chat")
    choice = {"index": 0, "delta": {"content": "Hello."}, "finish_reason": None}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    chunks = [
        {"choices": [choice]},
        {"choices": [{**choice, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": usage},
    ]
    frames = [b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks]
    with start_both("openai_chat", respond_with(lambda _: [*frames, b"data: [DONE]\n\n"])) as (
        _,
        gateway,
    ):
        options = {"stream_options": {"include_usage": True}} if is_requested else {}
        response = ask(gateway.url, client, {**client.body(), "model": "m", **options})
        assert (b"usage" in response.raw, response.text) == (is_requested, "Hello.")
        metrics = HTTP.get(f"{gateway.url}/metrics").text
        assert 'toolspeak_tokens_total{kind="input"} 7' in metrics


@pytest.mark.parametrize("size", [1, 50, None])
@pytest.mark.parametrize("client", PASSTHROUGH, ids=lambda client: client.name)
def test_error_in_stream_is_encoded_anew_without_secrets(client: Client, size: int | None) -> None:
    secret = "sk-very-secret-indeed"

    def encode_error(received: ReceivedRequest) -> list[bytes]:
        error = {"type": "error", "error": {"type": "oops", "message": f"bad key {secret}"}}
        data = json.dumps(error).encode()
        is_line = received.wire.name == "ollama"
        frame = (
            b'{"error": "bad key %b"}\n' % secret.encode() if is_line else b"data: %b\n\n" % data
        )
        return [*add_unknown_field(received)[:2], frame]

    with FaultyUpstream() as upstream:
        upstream.set_actions(respond_with(encode_error, size))
        config = make_config(upstream.url, client.wire)
        upstream_settings = structs.replace(config.upstreams["scripted"], key=secret)
        config = structs.replace(config, upstreams={"scripted": upstream_settings})
        with run_gateway(config) as gateway:
            response = ask(gateway.url, client, {**client.body(), **_extra_fields(client)})
    assert secret.encode() not in response.raw
    assert response.error


def test_error_after_unchanged_frames_has_the_same_response_id() -> None:
    client = next(client for client in PASSTHROUGH if client.wire == "openai_responses")
    with start_both(
        client.wire, respond_with(lambda received: add_unknown_field(received)[:1])
    ) as (_, gateway):
        response = ask(gateway.url, client, {**client.body(), **_extra_fields(client)})
    frames = [json.loads(line[6:]) for line in response.raw.split(b"\n") if line[:6] == b"data: "]
    ids = {frame["response"]["id"] for frame in frames if "response" in frame}
    assert "ended before its reply was complete" in response.error
    assert len(ids) == 1


def test_secret_in_a_tool_result_reaches_the_upstream_unchanged() -> None:
    secret = "password=hunter2-hunter2 AKIAIOSFODNN7EXAMPLE"
    call = {"id": "1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": secret},
    ]
    for wire in ("openai_chat", "anthropic", "gemini"):
        with (
            ScriptedServer([TextDelta("Read."), Finish("stop")]) as model,
            run_gateway(make_config(model.url, wire)) as gateway,
        ):
            tools = [{"type": "function", "function": {"name": "read"}}]
            body = {"model": "m", "messages": messages, "tools": tools}
            assert HTTP.post(f"{gateway.url}/v1/chat/completions", json=body).status_code == 200
            (result,) = model.requests[0].messages[-1].parts
            assert isinstance(result, ToolResult)
            assert result.text == secret


def test_id_of_a_provider_object_is_forwarded_as_it_is() -> None:
    with (
        ScriptedServer([TextDelta("Read."), Finish("stop")]) as model,
        run_gateway(make_config(model.url, "openai_responses")) as gateway,
    ):
        file = {"type": "input_file", "file_id": "file_of_somebody"}
        body = {
            "model": "m",
            "input": [{"role": "user", "content": [file]}],
            "conversation": "conv_of_somebody",
            "store": False,
        }
        assert HTTP.post(f"{gateway.url}/v1/responses", json=body).status_code == 200
        sent = model.bodies[0]
        assert sent["conversation"] == "conv_of_somebody"
        assert "file_of_somebody" in json.dumps(sent["input"])
