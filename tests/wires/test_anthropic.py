"""Anthropic: requests of its clients and replies of its servers, decoded and encoded."""

from __future__ import annotations

import re
from typing import Any

import pytest

from toolspeak import (
    Document,
    Event,
    Failure,
    Finish,
    Image,
    Message,
    Other,
    Reasoning,
    Request,
    ResponseFormat,
    Started,
    Text,
    TextDelta,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    WireError,
    fold,
)
from toolspeak.wires import WIRES, Envelope, StreamDecoder
from toolspeak.wires.errors import classify_failure
from toolspeak.wires.framing import encode_sse

MESSAGES = WIRES["anthropic"]
CHAT = WIRES["openai_chat"]
CACHED = {"cache_control": {"type": "ephemeral"}}


def decode(**body: Any) -> Request:
    return MESSAGES.decode_request({"model": "m", "max_tokens": 100, "messages": [], **body})


def encode(request: Request) -> dict[str, Any]:
    return MESSAGES.encode_request(request).body


CLAUDE_CODE: dict[str, Any] = {
    "model": "m",
    "max_tokens": 32000,
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: a"},
        {"type": "text", "text": "You are an agent.", **CACHED},
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Make a file.", **CACHED}]},
        {"role": "system", "content": "A reminder."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "A file.", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "eA=="},
                {"type": "text", "text": "Sure."},
                {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}},
                {
                    "type": "tool_use",
                    "id": "toolu_2",
                    "name": "ToolSearch",
                    "input": {"query": "q"},
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a", "is_error": True},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": [
                        {"type": "tool_reference", "tool_name": "Later"},
                        {"type": "text", "text": "Tool loaded."},
                    ],
                    **CACHED,
                },
                {"type": "text", "text": "Go on."},
            ],
        },
    ],
    "tools": [
        {
            "name": "Bash",
            "description": "Runs it.",
            "input_schema": {"$schema": "https://json-schema.org/x", "type": "object"},
            "eager_input_streaming": True,
        },
        {
            "name": "Later",
            "description": "d",
            "input_schema": {"type": "object"},
            "defer_loading": True,
        },
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
    ],
    "thinking": {"type": "enabled", "budget_tokens": 31999},
    "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
    "output_config": {"effort": "high"},
    "metadata": {"user_id": '{"device": "d"}'},
    "stream": True,
}


def test_decode_request_from_claude_code_keeps_every_field() -> None:
    request = MESSAGES.decode_request(CLAUDE_CODE)
    assert [message.role for message in request.messages] == [
        "system",
        "user",
        "system",
        "assistant",
        "tool",
        "user",
    ]
    assert request.messages[3].parts == (
        Reasoning("A file.", "c2ln"),
        Reasoning("", "redacted_thinking:eA=="),
        Text("Sure."),
        ToolCall(id="toolu_1", name="Bash", arguments={"command": "ls"}),
        ToolCall(id="toolu_2", name="ToolSearch", arguments={"query": "q"}),
    )
    block = {"type": "tool_reference", "tool_name": "Later"}
    reference = Text("The tool 'Later' can be called now.", {"~block": block})
    assert request.messages[4].parts == (
        ToolResult(call_id="toolu_1", name="Bash", content="a", is_error=True),
        ToolResult(
            call_id="toolu_2",
            name="ToolSearch",
            content=(reference, Text("Tool loaded.")),
            extra=CACHED,
        ),
    )
    assert request.thinking == Thinking(enabled=True, effort="high", budget=31999)
    assert [tool.name for tool in request.tools or ()] == ["Bash", "Later"]


def test_encode_request_to_the_same_api_restores_the_body() -> None:
    request = MESSAGES.decode_request(CLAUDE_CODE)
    outgoing = MESSAGES.encode_request(request)
    expected = CLAUDE_CODE | {"tools": CLAUDE_CODE["tools"]}
    assert outgoing.body == expected
    assert outgoing.notes == ()


def test_encode_request_to_another_api_notes_what_is_dropped() -> None:
    outgoing = CHAT.encode_request(MESSAGES.decode_request(CLAUDE_CODE))
    noted = {
        note.message.removeprefix("OpenAI Chat Completions does not support `")
        for note in outgoing.notes
    }
    for left_out in (
        "context_management",
        "cache_control",
        "eager_input_streaming",
        "defer_loading",
    ):
        assert any(note.startswith(left_out) for note in noted), left_out
    roles = [message["role"] for message in outgoing.body["messages"]]
    assert roles == ["system", "user", "system", "assistant", "tool", "tool", "user"]
    assert outgoing.body["reasoning_effort"] == "high"


def test_encode_budget_above_max_tokens_is_reduced() -> None:
    request = decode(max_tokens=8000, thinking={"type": "enabled", "budget_tokens": 32000})
    outgoing = MESSAGES.encode_request(request)
    assert outgoing.body["thinking"] == {"type": "enabled", "budget_tokens": 7999}
    assert [note.code for note in outgoing.notes] == ["converted"]


@pytest.mark.parametrize(
    "settings",
    [
        {"thinking": {"type": "adaptive"}},
        {"thinking": {"type": "disabled"}},
        {"thinking": {"type": "enabled", "budget_tokens": 50, "display": "omitted"}},
        {"thinking": {"type": "between_tools", "budget_tokens": 50}},
        {"output_config": {"effort": "max"}},
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
        {"output_config": {"effort": "low", "task_budget": {"type": "tokens", "total": 9}}},
        {
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
            "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        },
        {
            "tool_choice": {"type": "tool", "name": "f"},
            "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        },
        {
            "tool_choice": {"type": "none"},
            "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        },
        {
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
            "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        },
        {"tools": []},
        {"stop_sequences": ["a"], "top_k": 3, "temperature": 0.5, "service_tier": "auto"},
        {"mcp_servers": [{"type": "url"}], "container": "c"},
    ],
    ids=str,
)
def test_settings_to_the_same_api_come_back(settings: dict[str, Any]) -> None:
    body = {"model": "m", "max_tokens": 100, "messages": [], **settings}
    assert encode(MESSAGES.decode_request(body)) == body


def test_response_format_in_either_field_is_decoded() -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    for settings in ({"output_config": {"format": form}}, {"output_format": form}):
        assert decode(**settings).response_format == ResponseFormat({"type": "object"})


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/gif", "data": "AA"},
            },
            Image(data="AA", media_type="image/gif"),
        ),
        ({"type": "image", "source": {"type": "url", "url": "https://x"}}, Image(url="https://x")),
        (
            {
                "type": "document",
                "title": "t",
                "source": {"type": "text", "media_type": "text/plain", "data": "a"},
            },
            Document("a", "t"),
        ),
        (
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "AA"},
                "citations": {"enabled": True},
            },
            Document(
                data="AA", media_type="application/pdf", extra={"citations": {"enabled": True}}
            ),
        ),
        (
            {"type": "document", "source": {"type": "file", "file_id": "f"}},
            Other({"type": "document", "source": {"type": "file", "file_id": "f"}}),
        ),
        ({"type": "search_result", "title": "t"}, Other({"type": "search_result", "title": "t"})),
    ],
    ids=str,
)
def test_media_blocks_are_decoded_and_restored(block: dict[str, Any], expected: Any) -> None:
    request = decode(messages=[{"role": "user", "content": [block]}])
    assert request.messages == (Message("user", (expected,)),)
    assert encode(request)["messages"][0]["content"] == [block]


@pytest.mark.parametrize(
    "thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "m"}]
)
def test_decode_request_with_thread_is_rejected_with_its_error_code(thread: dict[str, Any]) -> None:
    with pytest.raises(WireError) as raised:
        decode(thread=thread)
    error = MESSAGES.encode_failure(raised.value.failure)["error"]
    assert error["type"] == "invalid_request_error"
    assert error["details"]["error_code"] == "thread_unsupported_request"
    assert raised.value.failure.status == 400


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"messages": [{"role": "king"}]}, "`$.messages[0].role`"),
        (
            {"messages": [{"role": "user", "content": [{"text": "x"}]}]},
            "`$.messages[0].content[0].type`",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "`$.messages[0].content[0].source`",
        ),
        ({"tool_choice": {"type": "maybe"}}, "`$.tool_choice.type`"),
        ({"tools": [{"input_schema": {}}]}, "`$.tools[0].name`"),
        ({"system": 3}, "`$.system`"),
    ],
)
def test_decode_request_with_invalid_field_names_its_path(
    body: dict[str, Any], problem: str
) -> None:
    with pytest.raises(WireError) as raised:
        decode(**body)
    assert str(raised.value).endswith(f"at {problem}")


# To an Anthropic upstream.


def test_encode_reasoning_without_signature_is_dropped() -> None:
    request = CHAT.decode_request(
        {"messages": [{"role": "assistant", "content": "a", "reasoning_content": "hm"}]}
    )
    outgoing = MESSAGES.encode_request(request)
    assert outgoing.body["messages"] == [{"role": "assistant", "content": "a"}]
    assert "unsigned reasoning" in outgoing.notes[-1].message


def test_encode_call_id_with_forbidden_characters_is_replaced() -> None:
    call = ToolCall(id="functions.f:0", name="f", arguments={})
    result = ToolResult(call_id="functions.f:0", name="f", content="")
    conversation = (Message("assistant", (call,)), Message("tool", (result,)))
    body = encode(Request(model="m", messages=conversation))
    [identity] = {
        body["messages"][0]["content"][0]["id"],
        body["messages"][1]["content"][0]["tool_use_id"],
    }
    assert re.fullmatch(r"functions_f_0_\w{6}", identity)


def test_encode_later_instructions_moves_them_to_the_system_prompt() -> None:
    messages = (
        Message("system", (Text("a"),)),
        Message("user", (Text("b"),)),
        Message("developer", (Text("c"),)),
    )
    outgoing = MESSAGES.encode_request(Request(model="m", messages=messages))
    assert [block["text"] for block in outgoing.body["system"]] == ["a", "c"]
    assert "moved to the system prompt" in " ".join(note.message for note in outgoing.notes)


def test_encode_request_without_max_tokens_sends_a_limit() -> None:
    outgoing = MESSAGES.encode_request(Request(model="m", messages=()))
    assert outgoing.body["max_tokens"] == 8192
    assert [note.where for note in outgoing.notes] == ["$.max_tokens"]


def test_encode_tool_without_parameters_sends_an_object_schema() -> None:
    request = Request(model="m", messages=(), tools=(Tool(name="f"),))
    assert encode(request)["tools"][0]["input_schema"] == {"type": "object", "properties": {}}


def test_encode_choice_among_several_tools_sends_only_those() -> None:
    tools = tuple(Tool(name=name) for name in "abc")
    choice = ToolChoice("required", ("a", "b"))
    body = encode(Request(model="m", messages=(), tools=tools, tool_choice=choice))
    assert [tool["name"] for tool in body["tools"]] == ["a", "b"]
    assert body["tool_choice"] == {"type": "any"}


def build_chat(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **fields}


HI = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("body", "expected", "noted"),
    [
        (build_chat(HI, temperature=1.5), {"temperature": 1}, "above 1"),
        (build_chat(HI, temperature=0.5, top_p=0.9), {"temperature": 0.5, "top_p": None}, "top_p"),
        (
            build_chat(HI, reasoning_effort="high", temperature=0.2, max_tokens=9),
            {"temperature": None, "thinking": {"type": "adaptive"}},
            "`temperature` together with reasoning",
        ),
        (build_chat(HI, stop=["\n", "END"]), {"stop_sequences": ["END"]}, "white space"),
        (
            build_chat({"role": "system", "content": "Be brief."}),
            {"system": None, "messages": [{"role": "user", "content": "Be brief."}]},
            "Instructions without a message",
        ),
        (
            build_chat(
                HI,
                reasoning_effort="low",
                tool_choice="required",
                tools=[{"type": "function", "function": {"name": "f"}}],
            ),
            {"tool_choice": None},
            "cannot require calls",
        ),
        (
            build_chat(
                HI, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}
            ),
            {
                "messages": [
                    HI,
                    {
                        "role": "assistant",
                        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                    },
                ]
            },
            "",
        ),
    ],
)
def test_encode_request_leaves_out_what_the_api_refuses(
    body: dict[str, Any], expected: dict[str, Any], noted: str
) -> None:
    outgoing = MESSAGES.encode_request(CHAT.decode_request(body))
    assert {key: outgoing.body.get(key) for key in expected} == expected
    assert noted in " ".join(note.message for note in outgoing.notes)


def test_encode_budget_below_minimum_is_raised() -> None:
    request = Request(model="m", messages=(), thinking=Thinking(enabled=True, budget=512))
    assert encode(request)["thinking"] == {"type": "enabled", "budget_tokens": 1024}
    assert encode(request)["max_tokens"] == 8192 + 1024


def test_encode_results_come_first_with_distinct_ids() -> None:
    calls = tuple(ToolCall(id=identity, name="f", arguments={}) for identity in ("a.b", "a_b"))
    results = tuple(ToolResult(call_id=call.id, name="f", content="x") for call in calls)
    mixed = Message("user", (results[0], Text("between"), results[1]))
    body = encode(Request(model="m", messages=(Message("assistant", calls), mixed)))
    call_ids = [block["id"] for block in body["messages"][0]["content"]]
    blocks = body["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["tool_result", "tool_result", "text"]
    assert [block["tool_use_id"] for block in blocks[:2]] == call_ids
    assert len(set(call_ids)) == 2


def test_encode_unsupported_media_is_dropped() -> None:
    recording = Document(data="AA", media_type="audio/wav")
    messages = (
        Message("user", (Text("Hi"), recording)),
        Message("assistant", (Text("a"), Image(data="AA"))),
    )
    outgoing = MESSAGES.encode_request(Request(model="m", messages=messages))
    assert [message["content"] for message in outgoing.body["messages"]] == ["Hi", "a"]
    noted = " ".join(note.message for note in outgoing.notes)
    assert "audio/wav" in noted
    assert "images and documents in assistant messages" in noted


@pytest.mark.parametrize("through", ["openai_chat", "openai_responses", "gemini"])
def test_redacted_reasoning_through_another_api_is_restored(through: str) -> None:
    block = {"type": "redacted_thinking", "data": "eA=="}
    reply = fold(MESSAGES.decode_reply({"content": [block, {"type": "text", "text": "a"}]}))
    client = WIRES[through]
    heard_by_client = fold(client.decode_reply(client.encode_reply(reply, Envelope(decode(), "1"))))
    history = (Message("user", (Text("Hi"),)), Message("assistant", heard_by_client.parts))
    sent_back = client.encode_request(Request(model="m", messages=history, wire=client.name)).body
    request = client.decode_request(sent_back, model="m")
    assert block in MESSAGES.encode_request(request).body["messages"][1]["content"]


# Replies.


def decode_stream(*frames: dict[str, Any], whole: bool = True) -> list[Event]:
    decoder = StreamDecoder(MESSAGES)
    start = {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "model": "c",
            "usage": {"input_tokens": 9, "cache_read_input_tokens": 5, "output_tokens": 1},
            "content": [],
        },
    }
    stop = [
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 7},
        },
        {"type": "message_stop"},
    ]
    data = b"".join(
        encode_sse(frame, str(frame["type"]))
        for frame in (start, *frames, *(stop if whole else ()))
    )
    return [*decoder.feed(data), *decoder.finish()]


def start_block(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def block_delta(index: int, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def stop_block(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def test_decode_stream_with_all_block_types_gives_events() -> None:
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    reply = fold(
        decode_stream(
            start_block(0, type="thinking", thinking="", signature=""),
            block_delta(0, type="thinking_delta", thinking="h"),
            block_delta(0, type="thinking_delta", thinking="m"),
            block_delta(0, type="signature_delta", signature="c2ln"),
            stop_block(0),
            start_block(1, type="redacted_thinking", data="eA=="),
            stop_block(1),
            {"type": "ping"},
            start_block(2, **search),
            block_delta(2, type="input_json_delta", partial_json='{"query": '),
            block_delta(2, type="input_json_delta", partial_json='"q"}'),
            stop_block(2),
            start_block(3, type="text", text=""),
            block_delta(3, type="text_delta", text="Sunny"),
            block_delta(3, type="citations_delta", citation={"type": "char_location"}),
            stop_block(3),
            start_block(4, type="tool_use", id="toolu_1", name="f", input={}),
            block_delta(4, type="input_json_delta", partial_json=""),
            stop_block(4),
        )
    )
    assert reply.parts == (
        Reasoning("hm", "c2ln"),
        Reasoning("", "redacted_thinking:eA=="),
        Other({**search, "input": {"query": "q"}}),
        Text("Sunny"),
        Text("", {"citations": [{"type": "char_location"}]}),
        ToolCall(id="toolu_1", name="f", arguments={}),
    )
    assert reply.stop_reason == "calls"
    assert reply.usage
    assert (reply.usage.input, reply.usage.cached, reply.usage.output) == (14, 5, 7)
    request = decode()
    encoded = MESSAGES.encode_reply(reply, Envelope(request, "1"))
    assert encoded["id"] == "msg_1"
    assert fold(MESSAGES.decode_reply(encoded)).parts == reply.parts
    encoder = MESSAGES.stream_encoder(Envelope(request, "1"))
    decoder = StreamDecoder(MESSAGES)
    streamed = b"".join(encoder.feed(event) for event in MESSAGES.decode_reply(encoded))
    assert fold([*decoder.feed(streamed), *decoder.finish()]).parts == reply.parts


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
@pytest.mark.parametrize("arguments", ["", '{"a'])
def test_decode_stream_with_truncated_call_rejects_it(reason: str, arguments: str) -> None:
    """The block is closed before the stop reason tells that the call was cut off."""
    decoder = StreamDecoder(MESSAGES)
    frames = (
        {"type": "message_start", "message": {"id": "m", "usage": {}}},
        start_block(0, type="tool_use", id="t", name="rm", input={}),
        block_delta(0, type="input_json_delta", partial_json=arguments),
        stop_block(0),
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {}},
        {"type": "message_stop"},
    )
    events = [event for frame in frames for event in decoder.feed(encode_sse(frame))]
    reply = fold([*events, *decoder.finish()])
    assert reply.calls == ()
    assert [(one.code, one.name) for one in reply.rejected] == [("truncated", "rm")]
    assert reply.stop_reason == "length"


def test_decode_stream_with_empty_call_before_a_block_accepts_it() -> None:
    reply = fold(
        decode_stream(
            start_block(0, type="tool_use", id="t", name="now", input={}),
            stop_block(0),
            start_block(1, type="text", text="There."),
            stop_block(1),
        )
    )
    assert [call.name for call in reply.calls] == ["now"]
    assert reply.text == "There."


def test_decode_stream_with_repeated_block_start_keeps_one_call() -> None:
    block = start_block(0, type="tool_use", id="t", name="f", input={}, key=1, freeform=1)
    reply = fold(
        decode_stream(
            block, block, block_delta(0, type="input_json_delta", partial_json="{}"), stop_block(0)
        )
    )
    assert len(reply.calls) == 1
    assert not reply.calls[0].freeform


def test_encode_stream_with_citation_ends_its_block() -> None:
    citation = {"type": "char_location"}
    events = decode_stream(
        start_block(0, type="text", text=""),
        block_delta(0, type="text_delta", text="cited"),
        block_delta(0, type="citations_delta", citation=citation),
        stop_block(0),
        start_block(1, type="text", text=""),
        block_delta(1, type="text_delta", text=" mine"),
        stop_block(1),
    )
    encoder = MESSAGES.stream_encoder(Envelope(decode(), "1"))
    decoder = StreamDecoder(MESSAGES)
    data = b"".join(map(encoder.feed, events))
    encoded = fold([*decoder.feed(data), *decoder.finish()])
    assert encoded.parts == (Text("cited"), Text("", {"citations": [citation]}), Text(" mine"))


@pytest.mark.parametrize("body", [{}, {"detail": "Not Found"}, {"type": "message"}])
def test_decode_reply_without_message_gives_a_failure(body: dict[str, Any]) -> None:
    assert fold(MESSAGES.decode_reply(body)).failure


def test_decode_stream_with_untyped_error_event_gives_a_failure() -> None:
    decoder = StreamDecoder(MESSAGES)
    events = [*decoder.feed(encode_sse({"message": "too busy"}, "error")), *decoder.finish()]
    assert fold(events).failure


def test_decode_stream_without_end_gives_a_failure() -> None:
    reply = fold(decode_stream(start_block(0, type="text", text="Half"), whole=False))
    assert reply.text == "Half"
    assert reply.failure
    assert reply.failure.kind == "upstream"


def test_decode_stream_with_error_event_gives_a_failure() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    reply = fold(decode_stream(start_block(0, type="text", text="Half"), error))
    assert reply.failure == Failure("overloaded", "Overloaded", 529, "overloaded_error")


def test_decode_stream_with_stop_sequence_keeps_it() -> None:
    body = {
        "type": "message",
        "content": [],
        "stop_reason": "stop_sequence",
        "stop_sequence": "END",
    }
    reply = fold(MESSAGES.decode_reply(body))
    assert reply.stop_reason == "stop_sequence"
    encoded = MESSAGES.encode_reply(reply, Envelope(decode(), "1"))
    assert (encoded["stop_reason"], encoded["stop_sequence"]) == ("stop_sequence", "END")


def test_encode_stream_with_failure_ends_the_open_block() -> None:
    encoder = MESSAGES.stream_encoder(Envelope(decode(), "1"))
    events: list[Event] = [Started(), TextDelta("Half"), Failure("timeout", "too slow", 504)]
    data = b"".join(map(encoder.feed, events)).decode()
    kinds = [line[7:] for line in data.splitlines() if line.startswith("event: ")]
    assert kinds == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "error",
    ]


def test_decode_failure_recognizes_context_errors() -> None:
    body = {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "prompt is too long: 9 tokens > 8 maximum",
        },
    }
    assert MESSAGES.decode_failure(400, body).kind == "context_length"


def test_encode_stream_without_content_has_no_blocks() -> None:
    encoder = MESSAGES.stream_encoder(Envelope(decode(), "1"))
    data = encoder.feed(Finish("stop")).decode()
    assert [line[7:] for line in data.splitlines() if line.startswith("event: ")] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]


def test_encode_failure_of_context_length_uses_the_message_that_clients_recognize() -> None:
    message = "request (29196 tokens) exceeds the available context size (8192 tokens)"
    encoded = WIRES["anthropic"].encode_failure(classify_failure(400, message))
    assert (
        encoded["error"]["message"] == f"prompt is too long: 29196 tokens > 8192 maximum. {message}"
    )
    for status, kind in ((413, "request_too_large"), (400, "invalid_request_error")):
        large = WIRES["anthropic"].encode_failure(Failure("too_large", "it is too much", status))
        assert large["error"]["type"] == kind
    vague = WIRES["anthropic"].encode_failure(Failure("context_length", "it is too much", 400))
    assert vague["error"]["message"] == "prompt is too long: it is too much"
