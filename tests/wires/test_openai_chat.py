"""Chat completions as clients and servers really write them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from msgspec import structs

from toolspeak import (
    ArgumentsDelta,
    CallEnd,
    CallRejected,
    CallStart,
    Document,
    Event,
    Failure,
    Finish,
    Image,
    Message,
    Note,
    Other,
    Reasoning,
    Reply,
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
from toolspeak.calls.json_values import MAX_VALUES
from toolspeak.wires import WIRES, Envelope, StreamDecoder
from toolspeak.wires.framing import encode_sse
from toolspeak.wires.openai_chat.reply import Completion

CHAT = WIRES["openai_chat"]
SLOW = structs.replace(CHAT, read_text_chunk=None)
"""The wire without the fast path for chunks."""


def decode(**body: Any) -> Request:
    return CHAT.decode_request({"model": "m", "messages": [], **body})


def decode_message(given: dict[str, Any]) -> Message:
    [found] = decode(messages=[given]).messages
    return found


RICH: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {
            "role": "user",
            "name": "Eva",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "https://x/a.png", "detail": "low"}},
                {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
                {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "s"}],
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
                {"id": "b", "type": "custom", "custom": {"name": "g", "input": "x"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "name": "f", "content": "25"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "ok"}]},
        {"role": "assistant", "content": "Done.", "refusal": "No."},
        {"role": "function", "name": "h", "content": "old"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {"name": "f", "description": "d", "parameters": {}, "strict": True},
        },
        {"type": "custom", "custom": {"name": "g", "format": {"type": "text"}}},
        {"type": "web_search"},
    ],
    "functions": [{"name": "h", "parameters": {"type": "object"}}],
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "auto",
            "tools": [{"type": "function", "function": {"name": "f"}}],
        },
    },
    "parallel_tool_calls": False,
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
    },
    "reasoning_effort": "low",
    "stop": ["END"],
    "max_completion_tokens": 100,
    "temperature": 0.5,
    "seed": 7,
    "stream": True,
    "stream_options": {"include_usage": True},
    "user": "u",
    "metadata": {"a": "b"},
    "logit_bias": {"1": 2},
}
"""A request with all that this API has words for."""

MESSAGES: list[tuple[dict[str, Any], Message]] = [
    ({"role": "user", "content": "Hi"}, Message("user", (Text("Hi"),))),
    (
        {
            "role": "system",
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        },
        Message("system", (Text("a"), Text("b"))),
    ),
    ({"role": "developer", "content": "a"}, Message("developer", (Text("a"),))),
    (
        {"role": "user", "content": "a", "name": "Eva"},
        Message("user", (Text("a"),), {"name": "Eva"}),
    ),
    ({"role": "assistant", "content": None, "tool_calls": None}, Message("assistant", ())),
    (
        {"role": "assistant", "refusal": "No."},
        Message("assistant", (Text("No.", {"type": "refusal"}),)),
    ),
    (
        {"role": "assistant", "content": "a", "reasoning_content": "hm"},
        Message("assistant", (Reasoning("hm"), Text("a"))),
    ),
    (
        {
            "role": "assistant",
            "content": "a",
            "reasoning": "hm",
            "reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "s"}],
        },
        Message(
            "assistant",
            (Reasoning("hm", "s"), Text("a")),
            {"~reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "s"}]},
        ),
    ),
    (
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "https://x/a.png"}}],
        },
        Message("user", (Image(url="https://x/a.png"),)),
    ),
    (
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": "data:image/gif;base64,AA"}],
        },
        Message("user", (Image(data="AA", media_type="image/gif"),)),
    ),
    (
        {
            "role": "user",
            "content": [{"type": "input_audio", "input_audio": {"data": "AA", "format": "mp3"}}],
        },
        Message("user", (Document(data="AA", media_type="audio/mp3"),)),
    ),
    (
        {
            "role": "user",
            "content": [
                {
                    "type": "file",
                    "file": {"file_data": "data:application/pdf;base64,AA", "filename": "a"},
                }
            ],
        },
        Message("user", (Document(title="a", data="AA", media_type="application/pdf"),)),
    ),
    (
        {"role": "user", "content": [{"type": "hologram", "x": 1}]},
        Message("user", (Other({"type": "hologram", "x": 1}),)),
    ),
    (
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "25"}]},
        Message("tool", (ToolResult(call_id="c", name="", content="25"),)),
    ),
    (
        {"role": "tool", "content": '{"tool_call_id": "c", "content": "25"}'},
        Message("tool", (ToolResult(call_id="c", name="", content="25"),)),
    ),
    (
        {"role": "function", "name": "f", "content": "25"},
        Message(
            "tool",
            (ToolResult(call_id="call_1", name="f", content="25", extra={"~name": "f"}),),
        ),
    ),
    (
        {"role": "assistant", "function_call": {"name": "f", "arguments": '{"a":1}'}},
        Message("assistant", (ToolCall(id="call_1", name="f", arguments={"a": 1}),)),
    ),
    (
        {
            "role": "assistant",
            "content": (
                '{"content": "One moment.", "tool_calls": '
                '[{"id": "c", "function": {"name": "f", "arguments": "{}"}}]}'
            ),
        },
        Message("assistant", (Text("One moment."), ToolCall(id="c", name="f", arguments={}))),
    ),
    (
        {"role": "assistant", "content": '{"content": "a", "city": "Oslo"}'},
        Message("assistant", (Text('{"content": "a", "city": "Oslo"}'),)),
    ),
    (
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}],
        },
        Message(
            "assistant", (ToolCall(id="c", name="f", arguments={"input": "x"}, freeform=True),)
        ),
    ),
]


@pytest.mark.parametrize(("given", "expected"), MESSAGES, ids=[str(given) for given, _ in MESSAGES])
def test_message_is_decoded(given: dict[str, Any], expected: Message) -> None:
    assert decode_message(given) == expected


def test_result_gets_the_name_of_its_call() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "now", "arguments": ""}}
    result = {"role": "tool", "tool_call_id": "c", "content": "noon"}
    read_back = decode(messages=[{"role": "assistant", "tool_calls": [call]}, result])
    assert read_back.messages[1].parts == (ToolResult(call_id="c", name="now", content="noon"),)


def test_invalid_arguments_in_history_are_kept_and_noted() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": '}}
    request = decode(messages=[{"role": "assistant", "tool_calls": [call]}])
    [part] = request.messages[0].parts
    assert isinstance(part, ToolCall)
    assert part.arguments == {}
    assert [note.code for note in request.notes] == ["undecodable-arguments"]
    assert request.notes[0].where == "$.messages[0].tool_calls[0].function.arguments"
    assert CHAT.encode_request(request).body["messages"][0]["tool_calls"] == [call]


def test_request_to_the_same_api_is_unchanged() -> None:
    """Servers have cached the prompts that are exactly the same."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{ "a":1.0 }'}}
    given = {"role": "assistant", "content": "a", "tool_calls": [call]}
    body = CHAT.encode_request(decode(messages=[given])).body
    assert body["messages"] == [given]


CHOICES: list[tuple[dict[str, Any], ToolChoice]] = [
    ({}, ToolChoice()),
    ({"tool_choice": "auto"}, ToolChoice()),
    ({"tool_choice": "none"}, ToolChoice("none")),
    ({"tool_choice": "required"}, ToolChoice("required")),
    ({"tool_choice": "any"}, ToolChoice("required")),
    (
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        ToolChoice("required", ("f",)),
    ),
    ({"tool_choice": {"type": "function", "name": "f"}}, ToolChoice("required", ("f",))),
    ({"tool_choice": {"type": "custom", "custom": {"name": "f"}}}, ToolChoice("required", ("f",))),
    ({"function_call": {"name": "f"}}, ToolChoice("required", ("f",))),
    ({"function_call": "none"}, ToolChoice("none")),
    (
        {
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [{"type": "function", "function": {"name": "f"}}],
                },
            }
        },
        ToolChoice("auto", ("f",)),
    ),
]


@pytest.mark.parametrize(("given", "expected"), CHOICES, ids=[str(given) for given, _ in CHOICES])
def test_tool_choice_is_decoded(given: dict[str, Any], expected: ToolChoice) -> None:
    function = {"name": "f", "parameters": {}}
    request = decode(tools=[{"type": "function", "function": function}], **given)
    assert request.tool_choice == expected
    again = CHAT.decode_request(CHAT.encode_request(request).body)
    assert again.tool_choice == expected


def test_tools_are_decoded_by_type() -> None:
    request = decode(
        tools=[
            {
                "type": "function",
                "function": {"name": "a", "strict": True, "parameters": {"$ref": "x"}},
            },
            {
                "type": "custom",
                "custom": {"name": "b", "description": "d", "format": {"type": "text"}},
            },
            {"type": "web_search", "filters": {}},
        ],
        functions=[{"name": "c"}],
    )
    assert request.tools == (
        Tool(name="a", strict=True, parameters={"$ref": "x"}),
        Tool(name="b", description="d", freeform=True, extra={"format": {"type": "text"}}),
        Tool(name="c"),
    )
    assert request.notes == ()
    written = CHAT.encode_request(request).body["tools"]
    assert [tool["type"] for tool in written] == ["function", "custom", "function", "web_search"]
    elsewhere = WIRES["anthropic"].encode_request(request)
    assert "skipped-tool" in [note.code for note in elsewhere.notes]
    [_, custom, _] = elsewhere.body["tools"]
    assert custom["input_schema"]["required"] == ["input"]


def test_settings_are_decoded() -> None:
    request = decode(
        max_completion_tokens=7,
        max_tokens=9,
        stop="END",
        user="u",
        metadata={"a": "b"},
        reasoning_effort="low",
        parallel_tool_calls=False,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {"type": "object"}},
        },
        logit_bias={"1": 2},
        temperature=1,
        top_k=5,
    )
    assert request.max_tokens == 7
    assert request.stop == ("END",)
    assert request.metadata == {"a": "b", "user_id": "u"}
    assert request.thinking == Thinking(effort="low")
    assert not request.parallel_tool_calls
    assert request.response_format == ResponseFormat({"type": "object"}, "n")
    assert request.extra == {"logit_bias": {"1": 2}, "~limit": "max_completion_tokens"}
    body = CHAT.encode_request(request).body
    assert body["max_completion_tokens"] == 7
    assert "max_tokens" not in body
    assert body["logit_bias"] == {"1": 2}
    assert body["top_k"] == 5
    noted = WIRES["anthropic"].encode_request(request).notes
    assert "logit_bias" in " ".join(note.message for note in noted)


FAULTS: list[tuple[Any, str]] = [
    ([], "Expected `object`, got `array` - at `$`"),
    ({"messages": {}}, "Expected `array`, got `object` - at `$.messages`"),
    ({"messages": ["x"]}, "Expected `object`, got `string` - at `$.messages[0]`"),
    ({"messages": [{"content": "x"}]}, "Expected `string`, got nothing - at `$.messages[0].role`"),
    (
        {"messages": [{"role": "king", "content": "x"}]},
        "Expected `system`, `developer`, `user`, `assistant` or `tool`, got `king`"
        " - at `$.messages[0].role`",
    ),
    (
        {"messages": [{"role": "user", "content": 7}]},
        "Expected `string` or `array`, got `integer` - at `$.messages[0].content`",
    ),
    ({"stream": "yes"}, "Expected `boolean`, got `string` - at `$.stream`"),
    ({"temperature": True}, "Expected `number`, got `boolean` - at `$.temperature`"),
    ({"max_tokens": 1.5}, "Expected `integer`, got `number` - at `$.max_tokens`"),
    (
        {"tools": [{"type": "function", "function": {}}]},
        "Expected `string`, got nothing - at `$.tools[0].function.name`",
    ),
    (
        {"tool_choice": "maybe"},
        "Expected `auto`, `none`, `required` or an object, got `maybe` - at `$.tool_choice`",
    ),
]


@pytest.mark.parametrize(("body", "problem"), FAULTS, ids=[problem for _, problem in FAULTS])
def test_invalid_request_raises_with_problem_and_path(body: Any, problem: str) -> None:
    with pytest.raises(WireError) as raised:
        CHAT.decode_request(body)
    assert str(raised.value) == problem
    error = CHAT.encode_failure(raised.value.failure)["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"] == problem


# Replies.


def chunk(delta: dict[str, Any], reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": "1", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **fields}


def piece(
    index: int | None, identity: str | None, name: str | None, arguments: Any
) -> dict[str, Any]:
    call = {"index": index, "id": identity, "function": {"name": name, "arguments": arguments}}
    return chunk({"tool_calls": [{key: value for key, value in call.items() if value is not None}]})


def decode_stream(*frames: dict[str, Any], reason: str | None = "tool_calls") -> list[Event]:
    decoder = StreamDecoder(CHAT, new_id=iter(f"new_{n}" for n in range(9)).__next__)
    last = [chunk({}, reason)] if reason else []
    data = b"".join(map(encode_sse, (*frames, *last)))
    return [*decoder.feed(data), *decoder.finish()]


def list_calls(reply: Reply) -> list[tuple[str, str, dict[str, Any]]]:
    return [(call.id, call.name, call.arguments) for call in reply.calls]


STREAMS: list[tuple[str, list[dict[str, Any]], list[tuple[str, str, dict[str, Any]]]]] = [
    (
        "one call in pieces",
        [
            piece(0, "a", "f", ""),
            piece(0, None, None, '{"x"'),
            piece(0, None, None, ": 1}"),
        ],
        [("a", "f", {"x": 1})],
    ),
    (
        "two calls after each other",
        [
            piece(0, "a", "f", "{}"),
            piece(1, "b", "g", '{"x":'),
            piece(1, None, None, "2}"),
        ],
        [("a", "f", {}), ("b", "g", {"x": 2})],
    ),
    (
        "two calls at the same time",
        [
            piece(0, "a", "f", '{"x":'),
            piece(1, "b", "g", '{"y":'),
            piece(0, None, None, "1}"),
            piece(1, None, None, "2}"),
        ],
        [("a", "f", {"x": 1}), ("b", "g", {"y": 2})],
    ),
    (
        "every call has the index 0",
        [piece(0, "a", "f", "{}"), piece(0, "b", "g", '{"y": 2}')],
        [("a", "f", {}), ("b", "g", {"y": 2})],
    ),
    (
        "no index",
        [
            piece(None, "a", "f", '{"x":'),
            piece(None, None, None, "1}"),
            piece(None, "b", "g", "{}"),
        ],
        [("a", "f", {"x": 1}), ("b", "g", {})],
    ),
    (
        "no index and no id",
        [piece(None, None, "f", '{"x": 1}'), piece(None, None, "f", '{"x": 2}')],
        [("new_0", "f", {"x": 1}), ("new_1", "f", {"x": 2})],
    ),
    (
        "the id before the name",
        [piece(0, "a", None, None), piece(0, None, "f", '{"x": 1}')],
        [("a", "f", {"x": 1})],
    ),
    (
        "id and name in every piece",
        [piece(0, "a", "f", '{"x"'), piece(0, "a", "f", ": 1}")],
        [("a", "f", {"x": 1})],
    ),
    ("arguments as an object", [piece(0, "a", "f", {"x": 1})], [("a", "f", {"x": 1})]),
    ("empty arguments", [piece(0, "a", "f", "")], [("a", "f", {})]),
    ("no arguments", [piece(0, "a", "f", None)], [("a", "f", {})]),
    (
        "text while a call is open",
        [
            piece(0, "a", "f", '{"x":'),
            chunk({"content": "hm"}),
            piece(0, None, None, "1}"),
        ],
        [("a", "f", {"x": 1})],
    ),
    (
        "legacy",
        [
            chunk({"function_call": {"name": "f", "arguments": ""}}),
            chunk({"function_call": {"arguments": '{"x": 1}'}}),
        ],
        [("new_0", "f", {"x": 1})],
    ),
]


@pytest.mark.parametrize(("name", "frames", "expected"), STREAMS, ids=[row[0] for row in STREAMS])
def test_stream_with_calls_is_decoded(
    name: str, frames: list[dict[str, Any]], expected: list[Any]
) -> None:
    events = decode_stream(*frames)
    assert list_calls(fold(events)) == expected
    assert fold(events).stop_reason == "calls"
    open_call = -1
    for event in events:
        match event:
            case CallEnd(index) | CallRejected(index=int(index)):
                assert index == open_call
                open_call = -1
            case CallStart(index) | ArgumentsDelta(index):
                open_call = index
            case _:
                assert open_call < 0 or isinstance(event, Note), "nothing comes between"


def test_call_with_broken_arguments_is_rejected() -> None:
    reply = fold(decode_stream(piece(0, "a", "f", '{"x": [1'), piece(1, "b", "g", "{}")))
    assert list_calls(reply) == [("b", "g", {})]
    assert [(one.code, one.name) for one in reply.rejected] == [("undecodable-arguments", "f")]


def test_stream_without_end_is_a_failure() -> None:
    reply = fold(decode_stream(chunk({"content": "Half of an ans"}), reason=None))
    assert reply.text == "Half of an ans"
    assert reply.failure
    assert reply.failure.kind == "upstream"


def test_stream_with_only_done_is_complete() -> None:
    decoder = StreamDecoder(CHAT)
    data = encode_sse(chunk({"content": "All."})) + b"data: [DONE]\n\n"
    reply = fold([*decoder.feed(data), *decoder.finish()])
    assert reply.failure is None
    assert reply.stop_reason == "stop"


def test_error_within_a_stream_ends_it() -> None:
    error = {"error": {"message": "too busy", "type": "overloaded", "code": 503}}
    reply = fold(decode_stream(chunk({"content": "Half"}), error, chunk({"content": "more"})))
    assert reply.text == "Half"
    assert reply.failure == Failure("overloaded", "too busy", 503, "503")


def test_reasoning_in_any_field_is_decoded() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    reply = fold(
        decode_stream(
            chunk({"role": "assistant", "content": "", "reasoning_content": "a"}),
            chunk({"reasoning": "b"}),
            chunk({"content": [thinking, {"type": "text", "text": "c"}]}),
            chunk({"content": "d", "logprobs": {"x": 1}}),
            {"id": "1", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}},
            reason="stop",
        )
    )
    assert reply.reasoning == "abhm"
    assert reply.text == "cd"
    assert reply.usage
    assert (reply.usage.input, reply.usage.output) == (3, 4)
    assert [note.where for note in reply.notes] == ["logprobs"]


def test_refusal_is_decoded() -> None:
    reply = fold(decode_stream(chunk({"refusal": "No."}), reason="stop"))
    assert (reply.text, reply.stop_reason) == ("No.", "refusal")


def test_extra_fields_of_a_reply_are_carried() -> None:
    body = {
        "id": "chatcmpl-9",
        "system_fingerprint": "fp",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
        ],
    }
    reply = fold(CHAT.decode_reply(body))
    again = CHAT.encode_reply(reply, Envelope(Request(model="m", messages=()), "1"))
    assert again["system_fingerprint"] == "fp"
    assert again["id"] == "chatcmpl-9"
    other = WIRES["anthropic"]
    assert "system_fingerprint" not in other.encode_reply(reply, Envelope(decode(), "1"))
    assert [note.where for note in other.find_losses(reply)] == ["$.system_fingerprint"]


def test_usage_is_streamed_only_if_requested() -> None:
    events: list[Event] = [Started(), TextDelta("a"), Finish("stop")]
    silent, asked = (
        b"".join(map(CHAT.stream_encoder(Envelope(request, "1")).feed, events))
        for request in (decode(), decode(stream_options={"include_usage": True}))
    )
    assert b"usage" not in silent
    assert b'"choices":[],"usage"' in asked


def test_image_detail_is_carried() -> None:
    given = {"type": "image_url", "image_url": {"url": "https://x/a.png", "detail": "low"}}
    [part] = decode_message({"role": "user", "content": [given]}).parts
    assert part == Image(url="https://x/a.png", detail="low")
    body = CHAT.encode_request(decode(messages=[{"role": "user", "content": [given]}])).body
    assert body["messages"] == [{"role": "user", "content": [given]}]


# Quirks of clients and servers.


def test_images_in_results_follow_all_results_of_a_turn() -> None:
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "AA"},
    }
    used = [{"type": "tool_use", "id": name, "name": "f", "input": {}} for name in "ab"]
    results = [{"type": "tool_result", "tool_use_id": name, "content": [picture]} for name in "ab"]
    request = WIRES["anthropic"].decode_request(
        {"messages": [{"role": "assistant", "content": used}, {"role": "user", "content": results}]}
    )
    written = CHAT.encode_request(request).body["messages"]
    assert [one["role"] for one in written] == ["assistant", "tool", "tool", "user"]
    assert len(written[-1]["content"]) == 2


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_truncated_call_is_rejected(reason: str) -> None:
    for arguments in ("", '{"a": 1'):
        reply = fold(decode_stream(piece(0, "a", "rm", arguments), reason=reason))
        assert reply.calls == ()
        assert [one.code for one in reply.rejected] == ["truncated"]
    whole = fold(decode_stream(piece(0, "a", "rm", '{"a": 1}'), reason=reason))
    assert len(whole.calls) == 1


def test_stop_reason_without_valid_calls_is_stop() -> None:
    reply = fold(decode_stream(piece(0, "a", "f", "not json")))
    assert reply.stop_reason == "stop"
    assert reply.rejected[0].raw == "not json"


def test_arguments_are_emitted_validated_or_incrementally() -> None:
    frames = [piece(0, "a", "f", "{'x': 1,"), piece(0, None, None, "}")]
    assert [
        event.json for event in decode_stream(*frames) if isinstance(event, ArgumentsDelta)
    ] == ['{"x":1}']
    decoder = StreamDecoder(CHAT, arguments="incremental")
    events = list(decoder.feed(b"".join(map(encode_sse, frames))))
    assert [event.json for event in events if isinstance(event, ArgumentsDelta)] == [
        "{'x': 1,",
        "}",
    ]


def test_interleaved_chunks_take_linear_time() -> None:
    def seconds(count: int) -> float:
        decoder = StreamDecoder(CHAT)
        frames = [piece(0, "a", "f", '{"x": [1')]
        frames += [piece(0, None, None, ',{"a":1}'), chunk({"reasoning_content": "x"})] * count
        data = b"".join(map(encode_sse, frames))
        begun = time.process_time()
        list(decoder.feed(data))
        return time.process_time() - begun

    seconds(100)
    small, large = (min(seconds(count) for _ in range(2)) for count in (500, 4000))
    assert large < 8 * small * 3


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": 5},
        {"stop": [5]},
        {"stop": {"a": 1}},
        {"stream_options": 5},
        {"messages": [{"role": "assistant", "reasoning_details": 5}]},
    ],
)
def test_field_of_a_wrong_type_raises(fields: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        decode(**fields)


def test_result_with_its_own_id_keeps_packed_content() -> None:
    packed = '{"tool_call_id": "other", "content": "hi"}'
    request = decode(messages=[{"role": "tool", "tool_call_id": "mine", "content": packed}])
    assert request.messages[0].parts == (ToolResult(call_id="mine", name="", content=packed),)
    odd = '{"tool_calls": "none", "content": "x"}'
    assert decode_message({"role": "assistant", "content": odd}).parts == (Text(odd),)


@pytest.mark.parametrize("packed", [True, False])
def test_call_with_its_name_beside_its_id_is_decoded(packed: bool) -> None:
    calls = {"tool_calls": [{"id": "a", "name": "f", "arguments": {"x": 1}}]}
    content = {"content": json.dumps({"content": None, **calls})} if packed else calls
    assert decode_message({"role": "assistant", **content}).parts == (
        ToolCall(id="a", name="f", arguments={"x": 1}),
    )


@pytest.mark.parametrize("calls", [[], [1], [{"x": 1}], [{"name": 5}], [{"function": "f"}]])
def test_content_that_resembles_packed_calls_stays_text(calls: list[Any]) -> None:
    content = json.dumps({"tool_calls": calls})
    assert decode_message({"role": "assistant", "content": content}).parts == (Text(content),)


def test_long_user_id_is_hashed() -> None:
    request = WIRES["anthropic"].decode_request(
        {"messages": [], "metadata": {"user_id": "x" * 150}}
    )
    outgoing = CHAT.encode_request(request)
    assert len(outgoing.body["user"]) <= 64
    assert "user" in " ".join(note.message for note in outgoing.notes)


RIDES: list[dict[str, Any]] = [
    {"role": "tool", "tool_call_id": "c", "name": "f", "content": "x", "cache_control": {"a": 1}},
    {
        "role": "tool",
        "tool_call_id": "c",
        "content": [{"type": "text", "text": "x", "cache_control": {"a": 1}}],
    },
    {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": "https://x", "format": "png"}}],
    },
    {"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}, "x": 1}]},
    {
        "role": "assistant",
        "content": "a",
        "reasoning_content": "hm",
        "reasoning_details": [
            {"type": "reasoning.text", "text": "hm", "signature": "s", "format": "f", "index": 0}
        ],
    },
]


@pytest.mark.parametrize("given", RIDES, ids=str)
def test_message_to_the_same_api_is_unchanged(given: dict[str, Any]) -> None:
    assert CHAT.encode_request(decode(messages=[given])).body["messages"] == [given]


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "structural_tag", "structures": []}},
        {"max_completion_tokens": 5},
        {"tools": [{"type": "function", "function": {"name": "f"}, "cache_control": {"a": 1}}]},
        {
            "tools": [{"type": "custom", "custom": {"name": "f"}}],
            "tool_choice": {"type": "custom", "custom": {"name": "f"}},
        },
        {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}},
        {
            "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "web_search"}],
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [
                        {"type": "function", "function": {"name": "f"}},
                        {"type": "web_search"},
                    ],
                },
            },
        },
    ],
    ids=str,
)
def test_settings_to_the_same_api_are_unchanged(fields: dict[str, Any]) -> None:
    body = {"model": "m", "messages": [], **fields}
    assert CHAT.encode_request(CHAT.decode_request(body)).body == body


def test_fields_of_a_reply_are_carried_or_noted() -> None:
    function = {"name": "f", "arguments": "{}"}
    signed = {"google": {"thought_signature": "s"}}
    call = {"id": "c", "type": "function", "function": function, "extra_content": signed}
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "cost": 0.5}
    body = {
        "id": "gen-1",
        "choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}],
        "usage": usage,
    }
    reply = fold(CHAT.decode_reply(body))
    again = CHAT.encode_reply(reply, Envelope(decode(), "1"))
    assert again["id"] == "gen-1"
    assert again["choices"][0]["message"]["tool_calls"] == [call]
    assert again["usage"]["cost"] == 0.5
    noted = {note.where for note in WIRES["anthropic"].find_losses(reply)}
    assert noted == {"$.parts.extra_content", "$.cost"}


def test_refusal_is_encoded_as_a_refusal() -> None:
    body = {"choices": [{"message": {"content": None, "refusal": "No."}, "finish_reason": "stop"}]}
    reply = fold(CHAT.decode_reply(body))
    again = CHAT.encode_reply(reply, Envelope(decode(), "1"))["choices"][0]
    assert (again["message"]["content"], again["message"]["refusal"]) == (None, "No.")
    assert again["finish_reason"] == "stop"
    refused = fold(WIRES["anthropic"].decode_reply({"content": [], "stop_reason": "refusal"}))
    elsewhere = CHAT.encode_reply(refused, Envelope(decode(), "1"))["choices"][0]
    assert elsewhere["finish_reason"] == "content_filter"


def test_freeform_input_under_another_key_is_repaired() -> None:
    names = CHAT.encode_request(
        Request(model="m", messages=(), tools=(Tool(name="patch", freeform=True),))
    ).names
    for arguments, expected in (
        ('{"patch": "x"}', {"input": "x"}),
        ('{"input": "x"}', {"input": "x"}),
        ('{"input": {"a": 1}}', None),
        ('{"input": null}', None),
    ):
        call = {"id": "c", "function": {"name": "patch", "arguments": arguments}}
        body = {"choices": [{"message": {"tool_calls": [call]}}]}
        reply = fold(CHAT.decode_reply(body, names))
        assert [made.arguments for made in reply.calls] == ([expected] if expected else [])


@pytest.mark.parametrize("body", [{}, {"detail": "Not Found"}, {"choices": []}])
def test_body_without_a_reply_is_a_failure(body: dict[str, Any]) -> None:
    assert fold(CHAT.decode_reply(body)).failure


def test_unusual_but_valid_replies_are_decoded() -> None:
    body = {
        "id": 5,
        "choices": [{"message": {"content": "a"}}],
        "usage": {"prompt_tokens": 1.0},
    }
    assert fold(CHAT.decode_reply(body)).failure is None
    decoder = StreamDecoder(CHAT)
    data = encode_sse(chunk({"content": "a"})) + b"data: [DONE] \n\n"
    assert fold([*decoder.feed(data), *decoder.finish()]).failure is None


def test_error_in_a_stream_gets_a_status_by_its_code() -> None:
    error = {"error": {"message": "slow down", "type": "rate_limit_error"}}
    failure = fold(decode_stream(error)).failure
    assert failure
    assert (failure.kind, failure.status) == ("rate_limit", 429)


def test_lost_order_of_parts_is_noted() -> None:
    content = [
        {"type": "text", "text": "a"},
        {"type": "thinking", "thinking": "b", "signature": "s"},
    ]
    reply = fold(WIRES["anthropic"].decode_reply({"content": content}))
    assert "order" in CHAT.find_losses(reply)[0].message


@pytest.mark.parametrize("given", ["null", '""', "  ", ""])
def test_call_without_arguments_has_an_empty_object(given: str) -> None:
    """However an upstream expresses that there are none, clients get an object."""
    call = {"index": 0, "id": "c", "function": {"name": "now", "arguments": given}}
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    decoder = StreamDecoder(CHAT)
    data = b"".join(encode_sse(value) for value in (chunk, last)) + b"data: [DONE]\n\n"
    events = decoder.feed(data) + decoder.finish()
    assert [event.json for event in events if isinstance(event, ArgumentsDelta)] == ["{}"]


PLAIN: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 5,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Let me look.",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "f", "arguments": '{"a": 1}'},
                    }
                ],
            },
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
}
"""What nearly all completions look like."""


def replace_field(path: str, value: Any) -> dict[str, Any]:
    """Return the completion with another value at a path; without it, if that is `...`."""
    whole: dict[str, Any] = json.loads(json.dumps(PLAIN))
    *outer, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    place: Any = whole
    for key in outer:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return whole


MESSAGE, CALL = "choices.0.message", "choices.0.message.tool_calls.0"
CHANGES: list[tuple[str, Any, bool]] = [
    # Path, new value, and whether the reply can still be forwarded.
    ("system_fingerprint", "fp_1", True),
    ("service_tier", None, True),
    ("usage.prompt_tokens_details", None, True),
    ("choices.0.logprobs", None, True),
    (f"{MESSAGE}.refusal", None, True),
    (f"{MESSAGE}.content", None, True),
    (f"{MESSAGE}.content", "", True),
    (f"{MESSAGE}.reasoning_content", None, True),
    ("id", ..., False),
    ("id", "", False),
    ("id", 7, False),
    ("object", "text_completion", False),
    ("created", ..., False),
    ("model", ..., False),
    ("usage", ..., False),
    ("usage", None, False),
    ("usage.cost", 0.5, False),
    ("usage.prompt_tokens_details", {"cached_tokens": 2}, False),
    ("never_seen", 1, False),
    ("choices.0.index", None, False),
    ("choices.0.index", 1, False),
    ("choices.0.never_seen", 1, False),
    ("choices.0.finish_reason", "stop", False),
    ("choices.0.finish_reason", "length", False),
    ("choices.0.finish_reason", "eos", False),
    ("choices.0.finish_reason", None, False),
    (f"{MESSAGE}.role", ..., False),
    (f"{MESSAGE}.refusal", "No.", False),
    (f"{MESSAGE}.reasoning_content", "hm", False),
    (f"{MESSAGE}.annotations", [], False),
    (f"{MESSAGE}.content", [{"type": "text", "text": "Hi."}], False),
    (f"{MESSAGE}.tool_calls", [], False),
    (f"{MESSAGE}.tool_calls", None, False),
    (f"{MESSAGE}.tool_calls", {}, False),
    (f"{MESSAGE}.function_call", {"name": "g", "arguments": "{}"}, False),
    (f"{CALL}.id", ..., False),
    (f"{CALL}.id", "", False),
    (f"{CALL}.type", "custom", False),
    (f"{CALL}.type", ..., False),
    ("choices.0.index", ..., False),
    ("usage.total_tokens", ..., False),
    ("usage.prompt_tokens", -1, False),
    ("\ud800", 1, False),
    ("choices.0.finish_reason", "\udc00", False),
    (f"{CALL}.index", 0, False),
    (f"{CALL}.extra_content", {"signature": "x"}, False),
    (f"{CALL}.function.name", "", False),
    (f"{CALL}.function.arguments", {"a": 1}, False),
    (f"{CALL}.function.arguments", "", False),
    (f"{CALL}.function.arguments", None, False),
    (f"{CALL}.function.arguments", "[1]", False),
    ("error", {"message": "no"}, False),
]


def decode_reply(value: Any) -> list[Event]:
    """Return the events of a whole reply, with counted ids."""
    ids = iter(range(100))
    return list(CHAT.decode_reply(value, new_id=lambda: f"new_{next(ids)}"))


@pytest.mark.parametrize(("path", "value", "leaves"), CHANGES)
def test_completion_on_the_fast_path_decodes_the_same(path: str, value: Any, leaves: bool) -> None:
    body = json.dumps(replace_field(path, value)).encode()
    read = CHAT.parse_reply_body(body)
    fast, slow = decode_reply(read), decode_reply(json.loads(body))
    assert fast == slow
    assert CHAT.can_forward(read, fold(fast)) is leaves


def test_usual_completion_takes_the_fast_path() -> None:
    reply = fold(CHAT.decode_reply(PLAIN))
    plain = CHAT.parse_reply_body(json.dumps(PLAIN).encode())
    assert isinstance(plain, Completion)
    assert CHAT.can_forward(plain, reply)
    assert not CHAT.can_forward(PLAIN, reply)
    assert not isinstance(
        CHAT.parse_reply_body(json.dumps(replace_field("choices", [])).encode()), Completion
    )
    (content, call) = reply.parts
    assert isinstance(call, ToolCall)
    for other in ({"name": "g"}, {"id": "call_2"}, {"freeform": True}, {"namespace": "n"}):
        meant = structs.replace(reply, parts=(content, structs.replace(call, **other)))
        assert not CHAT.can_forward(plain, meant)


FIRST = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}
MORE: dict[str, Any] = {
    "id": "c",
    "object": "chat.completion.chunk",
    "model": "m",
    "choices": [{"index": 0, "delta": {"content": " there"}, "finish_reason": None}],
}
PIECES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], bool]] = [
    ({}, {}, {}, True),
    ({}, {"logprobs": None, "stop_reason": None}, {"role": "assistant"}, True),
    ({"usage": None, "error": None, "never_seen": [1]}, {}, {"tool_calls": None}, True),
    ({}, {}, {"refusal": None, "reasoning_content": None, "function_call": None}, True),
    ({}, {}, {"content": "\u2028 <tool_call>"}, True),
    ({}, {}, {"content": ""}, False),
    ({}, {}, {"content": None}, False),
    ({}, {}, {"content": [{"type": "text", "text": "x"}]}, False),
    ({}, {}, {"content": "\ud800"}, False),
    ({}, {}, {"refusal": "No."}, False),
    ({}, {}, {"reasoning_content": "hm"}, False),
    ({}, {}, {"never_seen": 1}, False),
    ({}, {}, {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f"}}]}, False),
    ({}, {"finish_reason": "stop"}, {}, False),
    ({}, {"finish_reason": "length"}, {}, False),
    ({}, {"logprobs": {"content": []}}, {}, False),
    ({}, {"index": 1}, {}, False),
    ({}, {"index": None}, {}, False),
    ({}, {"message": {"content": "x"}}, {}, False),
    ({"usage": {"prompt_tokens": 1, "completion_tokens": 2}}, {}, {}, False),
    ({"error": {"message": "no"}}, {}, {}, False),
    ({"choices": []}, {}, {}, False),
    ({"choices": None}, {}, {}, False),
    ({"choices": [MORE["choices"][0], MORE["choices"][0]]}, {}, {}, False),
]


@pytest.mark.parametrize(("frame", "choice", "delta", "is_plain"), PIECES)
@pytest.mark.parametrize("in_call", [False, True])
def test_chunk_on_the_fast_path_decodes_the_same(
    frame: dict[str, Any],
    choice: dict[str, Any],
    delta: dict[str, Any],
    is_plain: bool,
    in_call: bool,
) -> None:
    content = {**MORE["choices"][0]["delta"], **delta}
    choices = [{**MORE["choices"][0], "delta": content, **choice}]
    piece = json.dumps({**MORE, "choices": choices, **frame}).encode()
    assert CHAT.read_text_chunk is not None
    assert bool(CHAT.read_text_chunk(piece)) is is_plain
    call = {"index": 0, "id": "b", "function": {"name": "g", "arguments": "{"}}
    begun = [encode_sse(FIRST), encode_sse({"choices": [{"delta": {"tool_calls": [call]}}]})][
        : 1 + in_call
    ]
    end = [encode_sse({"choices": [{"delta": {}, "finish_reason": "stop"}]}), b"data: [DONE]\n\n"]
    pieces = [*begun, b"data: " + piece + b"\n\n", b"data: " + piece + b"\n\n", *end]
    fast, slow = (StreamDecoder(wire, new_id=lambda: "new") for wire in (CHAT, SLOW))
    told = [[event for data in pieces for event in one.feed(data)] for one in (fast, slow)]
    assert told[0] == told[1]
    assert (fast.frame_count, fast.is_complete, fast.is_in_call) == (
        slow.frame_count,
        slow.is_complete,
        slow.is_in_call,
    )
    assert fast.finish() == slow.finish()


@pytest.mark.parametrize(
    "piece",
    [
        b'{"id":"\xff","choices":[{"index":0,"delta":{"content":" x"},"finish_reason":null}]}',
        b'{"choices":[{"index":0,"delta":{"content":" x"},"finish_reason":null}],"\xff":1}',
        b'{"n":%b,"choices":[{"delta":{"content":" x"},"finish_reason":null}]}' % (b"9" * 5000),
        '{"id":"ü","choices":[{"delta":{"content":" ö"},"finish_reason":null}]}'.encode(),
    ],
)
def test_invalid_chunk_cut_anywhere_decodes_the_same(piece: bytes) -> None:
    first, more = encode_sse(FIRST), b"data: " + piece + b"\n\n"
    cuts = ([first, more], [first + more], [first, more[:9], more[9:]])
    found = [
        [event for data in pieces for event in decoder.feed(data)]
        for pieces in cuts
        for decoder in [StreamDecoder(CHAT)]
    ]
    assert [fold(one) for one in found] == [fold(found[0])] * len(cuts)


def test_reply_with_too_many_values_is_rejected_before_it_is_decoded() -> None:
    call = '{"function":{"name":"f","arguments":"{}"}}'
    calls = ",".join([call] * (MAX_VALUES // 4 + 1))
    message = f'{{"message":{{"tool_calls":[{calls}]}},"finish_reason":"tool_calls"}}'
    body = f'{{"choices":[{message}]}}'
    with pytest.raises(WireError, match=f"more than {MAX_VALUES} values"):
        CHAT.parse_reply_body(body.encode())
