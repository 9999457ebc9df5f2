"""Ollama: requests and replies in both directions, and the same through its SDK."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

import ollama
import pytest
from msgspec import structs

from tests.wires.support import ReceivedRequests, mutate, serve_response
from toolspeak import (
    CallEnd,
    CallStart,
    Document,
    Event,
    Failure,
    Finish,
    Image,
    Message,
    Note,
    Other,
    PartAdded,
    Reasoning,
    ReasoningDelta,
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
    Usage,
    fold,
)
from toolspeak.errors import WireError
from toolspeak.wires import WIRES, Envelope, StreamDecoder

WIRE = WIRES["ollama"]
PIXEL = "iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NO_ID = {"~id": ""}
"""The `extra` of a call or result that came without an id."""
OSLO = ToolCall(id="call_1", name="get_weather", arguments={"city": "Oslo"}, extra=NO_ID)
SUNNY = ToolResult(call_id="call_1", name="get_weather", content="Sunny", extra=NO_ID)
HELLO = Message("user", (Text("Hello"),))
ENVELOPE = Envelope(Request(model="m", messages=(), wire="ollama"), "r1", 1_700_000_000)
decode = WIRE.decode_request


def decode_messages(*messages: dict[str, Any]) -> tuple[Message, ...]:
    return decode({"model": "m", "messages": list(messages)}).messages


def encode_messages(*messages: Message, **fields: Any) -> tuple[Any, list[str]]:
    """Return the encoded messages and the notes on them."""
    outgoing = WIRE.encode_request(Request(model="m", messages=messages, **fields))
    return outgoing.body["messages"], note_messages(outgoing.notes)


def note_messages(notes: Iterable[Note]) -> list[str]:
    return [note.message for note in notes]


# Requests in.

CLIENT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather here?", "images": [PIXEL]},
        {
            "role": "assistant",
            "content": "One moment.",
            "thinking": "Hm.",
            "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}],
        },
        {"role": "tool", "tool_name": "get_weather", "content": "Sunny"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "The weather.",
                "parameters": SCHEMA,
            },
        }
    ],
    "format": {"type": "object"},
    "options": {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "seed": 7,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "num_predict": 100,
        "stop": ["END"],
        "num_ctx": 4096,
    },
    "think": True,
    "stream": False,
    "keep_alive": "5m",
}
REQUEST = Request(
    model="m",
    messages=(
        Message("system", (Text("Be brief."),)),
        Message("user", (Text("Weather here?"), Image(data=PIXEL))),
        Message("assistant", (Reasoning("Hm."), Text("One moment."), OSLO)),
        Message("tool", (SUNNY,)),
    ),
    tools=(Tool(name="get_weather", description="The weather.", parameters=SCHEMA),),
    response_format=ResponseFormat({"type": "object"}),
    thinking=Thinking(enabled=True),
    stream=False,
    max_tokens=100,
    stop=("END",),
    sampling={
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "seed": 7,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
    },
    wire="ollama",
    extra={"keep_alive": "5m", "options": {"num_ctx": 4096}},
)


def test_decode_request_keeps_every_field() -> None:
    assert decode(CLIENT) == REQUEST


def test_encode_request_to_the_same_api_restores_the_body() -> None:
    outgoing = WIRE.encode_request(REQUEST)
    assert outgoing.path == "/api/chat"
    assert outgoing.notes == ()
    assert outgoing.body == CLIENT


@pytest.mark.parametrize(
    ("body", "keyword", "stream"),
    [
        ({}, None, True),
        ({"stream": True}, None, True),
        ({"stream": False}, None, False),
        ({}, False, False),
        ({"stream": None}, None, True),
    ],
)
def test_decode_request_without_stream_field_is_streamed(
    body: dict[str, Any], keyword: bool | None, stream: bool
) -> None:
    request = decode({"model": "m", "messages": [], **body}, stream=keyword)
    assert request.stream is stream
    assert WIRE.encode_request(request).body["stream"] is stream


GENERATE = {
    "model": "m",
    "system": "Be brief.",
    "prompt": "Hello",
    "images": ["/9j/4AAQ"],
    "suffix": "end",
    "raw": True,
    "template": "{{ .Prompt }}",
    "context": [1, 2],
    "keep_alive": 0,
}


def test_decode_generate_request_gives_a_conversation() -> None:
    request = decode(GENERATE)
    picture = Image(data="/9j/4AAQ", media_type="image/jpeg")
    assert request.messages == (
        Message("system", (Text("Be brief."),)),
        Message("user", (Text("Hello"), picture)),
    )
    outgoing = WIRE.encode_request(request)
    assert outgoing.path == "/api/chat"
    assert outgoing.body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello", "images": ["/9j/4AAQ"]},
        ],
        "stream": True,
        "keep_alive": 0,
    }
    assert note_messages(outgoing.notes) == [
        f"Ollama does not support `{what}` in /api/chat; dropped."
        for what in ("suffix", "raw", "template", "context")
    ]


def test_decode_request_without_prompt_has_no_messages() -> None:
    assert decode({"model": "m", "prompt": ""}).messages == ()
    assert decode({"model": "m"}).messages == ()


# Calls and results.

CALLS = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"function": {"name": "a", "arguments": {"n": 1}}},
        {"function": {"name": "b", "arguments": '{"n": 2}'}},
        {"function": {"index": 2, "name": "a", "arguments": {}}, "type": "function"},
    ],
}


@pytest.mark.parametrize(
    ("results", "found"),
    [
        ([{"tool_name": "b"}, {"tool_name": "a"}, {"tool_name": "a"}], [2, 1, 3]),
        ([{"name": "b"}, {"name": "a"}, {"name": "a"}], [2, 1, 3]),
        ([{}, {}, {}], [1, 2, 3]),
        ([{"tool_call_id": "call_3"}, {"tool_call_id": "call_1"}, {}], [3, 1, 2]),
    ],
)
def test_decode_results_match_their_calls(results: list[dict[str, Any]], found: list[int]) -> None:
    tools = [{"role": "tool", "content": "x", **result} for result in results]
    calls, *answers = decode_messages(CALLS, *tools)
    tool_calls = [part for part in calls.parts if isinstance(part, ToolCall)]
    assert [(call.id, call.name, call.arguments) for call in tool_calls] == [
        ("call_1", "a", {"n": 1}),
        ("call_2", "b", {"n": 2}),
        ("call_3", "a", {}),
    ]
    tool_results = [
        part for answer in answers for part in answer.parts if isinstance(part, ToolResult)
    ]
    assert [result.call_id for result in tool_results] == [f"call_{number}" for number in found]
    assert [result.name for result in tool_results] == [
        {1: "a", 2: "b", 3: "a"}[one] for one in found
    ]


def test_encode_client_ids_to_the_same_api_are_restored() -> None:
    call = {"id": "x1", "function": {"name": "f", "arguments": {}}}
    body = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_name": "f", "content": "a", "tool_call_id": "x1"},
    ]
    assert encode_messages(*decode_messages(*body), wire="ollama") == (body, [])
    del call["id"], body[1]["tool_call_id"]
    assert encode_messages(*decode_messages(*body), wire="ollama") == (body, [])
    assert encode_messages(*decode_messages(*body), wire="anthropic") == (body, [])


@pytest.mark.parametrize("results", [("call_2", "call_1"), ("call_1", "call_2"), ("", "")])
@pytest.mark.parametrize("calls", [("call_1", "call_2"), ("call_2", "call_1"), ("b", "a")])
def test_encode_ids_of_any_form_to_the_same_api_are_restored(
    calls: tuple[str, str], results: tuple[str, str]
) -> None:
    tool_calls = [
        {"id": one, "type": "function", "function": {"index": index, "name": "f", "arguments": {}}}
        for index, one in enumerate(calls)
    ]
    tool_results = [
        {
            "role": "tool",
            "tool_name": "f",
            "content": text,
            **({"tool_call_id": one} if one else {}),
        }
        for text, one in zip("ab", results, strict=True)
    ]
    body = [{"role": "assistant", "content": "", "tool_calls": tool_calls}, *tool_results]
    assert encode_messages(*decode_messages(*body), wire="ollama") == (body, [])


def build_results(*names: str) -> list[ToolResult]:
    return [ToolResult(call_id=identity, name="f", content=f"of {identity}") for identity in names]


@pytest.mark.parametrize(
    "answers",
    [
        [Message("tool", tuple(build_results("b", "c", "a")))],
        [Message("tool", (result,)) for result in build_results("c", "a", "b")],
        [
            Message("user", (*build_results("c"), Text("!"))),
            Message("user", tuple(build_results("b", "a"))),
        ],
        [
            Message("tool", tuple(build_results("b"))),
            Message("user", (Text("!"),)),
            Message("tool", tuple(build_results("a", "c"))),
        ],
    ],
)
def test_encode_results_are_in_the_order_of_their_calls(answers: list[Message]) -> None:
    calls = [ToolCall(id=one, name="f", arguments={"n": one}) for one in "abc"]
    later_call = Message("assistant", (ToolCall(id="d", name="f", arguments={}),))
    later_result = Message("tool", tuple(build_results("d")))
    call_message = Message("assistant", tuple(calls))
    messages, notes = encode_messages(
        HELLO, call_message, *answers, later_call, later_result, wire="openai_chat"
    )
    contents = [message["content"] for message in messages if message["role"] == "tool"]
    assert contents == ["of a", "of b", "of c", "of d"]
    was_between = any(message.role == "user" for message in answers)
    assert notes == ["Messages between results were moved after them."] * was_between
    decoded = decode_messages(*messages)
    found = [part for message in decoded for part in message.parts if isinstance(part, ToolResult)]
    assert [part.call_id for part in found] == [f"call_{number}" for number in (1, 2, 3, 4)]


def test_decode_many_results_takes_linear_time() -> None:
    count = 10_000
    calls = [{"function": {"name": f"f{index}", "arguments": {}}} for index in range(count)]
    results = [
        {"role": "tool", "tool_name": f"f{index}", "content": ""}
        for index in reversed(range(count))
    ]
    started = time.process_time()
    messages = decode_messages({"role": "assistant", "tool_calls": calls}, *results)
    encode_messages(*messages, wire="anthropic")
    mixed = [{"id": f"call_{count + index}", **call} for index, call in enumerate(calls)]
    decode_messages({"role": "assistant", "tool_calls": [*mixed, *calls]})
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("result", "found", "is_guess"),
    [
        ({"tool_name": "get_weather"}, "call_2", False),
        ({"tool_name": "getWeather"}, "call_2", True),
        ({"tool_name": "weather_tool"}, "call_1", True),
        ({"tool_call_id": "zzz"}, "call_1", True),
        ({"tool_call_id": "zzz", "tool_name": "get_weather"}, "call_2", True),
        ({"tool_call_id": "call_2", "tool_name": "x"}, "call_2", False),
        ({}, "call_1", False),
    ],
)
def test_decode_result_with_another_name_answers_the_open_call(
    result: dict[str, Any], found: str, is_guess: bool
) -> None:
    calls = [{"function": {"name": name, "arguments": {}}} for name in ("now", "get_weather")]
    body = [
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "content": "a", **result},
    ]
    request = decode({"model": "m", "messages": body})
    [decoded] = request.messages[1].parts
    assert isinstance(decoded, ToolResult)
    assert (decoded.call_id, decoded.name) == (found, {"call_1": "now"}.get(found, "get_weather"))
    assert [(note.code, note.where) for note in request.notes] == (
        [("name-corrected", "$.messages[1]")] if is_guess else []
    )
    _, encoded = WIRE.encode_request(request).body["messages"]
    assert encoded.get("tool_call_id") == result.get("tool_call_id")


def test_decode_call_with_invalid_arguments_is_noted() -> None:
    call = {"function": {"name": "f", "arguments": "{"}}
    message = {"role": "assistant", "tool_calls": [call]}
    request = decode({"model": "m", "messages": [message]})
    assert [note.code for note in request.notes] == ["undecodable-arguments"]


def test_encode_results_with_images_and_errors_notes_what_changes() -> None:
    results = (
        ToolResult(call_id="1", name="f", content=(Text("Look"), Image(data=PIXEL))),
        ToolResult(call_id="2", name="g", content="no", is_error=True),
    )
    calls = [ToolCall(id=str(number), name="f", arguments={}) for number in (1, 2)]
    call_message = Message("assistant", tuple(calls))
    messages, notes = encode_messages(
        call_message, Message("tool", results[:1]), Message("tool", results[1:]), HELLO
    )
    assert messages[1:] == [
        {"role": "tool", "tool_name": "f", "content": "Look"},
        {"role": "tool", "tool_name": "f", "content": "no"},
        {"role": "user", "content": "", "images": [PIXEL]},
        {"role": "user", "content": "Hello"},
    ]
    assert notes == [
        "Images in results were sent as a user message.",
        "Ollama does not support the error flag on results; dropped.",
    ]
    shown = {"role": "tool", "tool_name": "f", "content": "Look", "images": [PIXEL]}
    [message] = decode_messages(shown)
    [result] = message.parts
    assert isinstance(result, ToolResult)
    assert result.content == (Text("Look"), Image(data=PIXEL))
    assert encode_messages(message, wire="ollama") == ([shown], [])


def test_encode_result_after_text_comes_first() -> None:
    result = ToolResult(call_id="1", name="f", content="a")
    messages, _ = encode_messages(Message("user", (Text("And?"), result)))
    assert [message["role"] for message in messages] == ["tool", "user"]


# Messages out.


@pytest.mark.parametrize(
    ("message", "expected", "notes"),
    [
        (
            Message("developer", (Text("a"),)),
            [{"role": "system", "content": "a"}],
            ["A developer message was sent as a system message."],
        ),
        (
            Message("user", (Text("a"), Image(data="x"), Text("b"), Image(data="y"))),
            [
                {"role": "user", "content": "a", "images": ["x"]},
                {"role": "user", "content": "b", "images": ["y"]},
            ],
            [],
        ),
        (
            Message("user", (Text("a"), Image(url="https://x/a.png"))),
            [{"role": "user", "content": "a"}],
            ["Ollama does not support images by URL; dropped."],
        ),
        (
            Message("user", (Document("a", "b"), Document(data="x", media_type="application/pdf"))),
            [{"role": "user", "content": '<document title="b">\na\n</document>'}],
            [
                "A document was sent as text.",
                "Ollama does not support documents of type `application/pdf`; dropped.",
            ],
        ),
        (
            Message("user", (Text("a"), Document(data="x", media_type="audio/wav"))),
            [{"role": "user", "content": "a"}],
            ["Ollama does not support documents of type `audio/wav`; dropped."],
        ),
        (
            Message("user", (Text("a"), Other({"type": "b"}), Other({"executableCode": {}}))),
            [{"role": "user", "content": "a"}],
            [
                "Ollama does not support the part type `b`; dropped.",
                "Ollama does not support the part type `executableCode`; dropped.",
            ],
        ),
        (
            Message("assistant", (Text("a"), Image(data="x"))),
            [{"role": "assistant", "content": "a", "images": ["x"]}],
            [],
        ),
        (
            Message("tool", (ToolResult(call_id="1", name="f", content=(Document(url="u"),)),)),
            [{"role": "tool", "tool_name": "f", "content": "<document>\nu\n</document>"}],
            ["A document was sent as text."],
        ),
        (
            Message("assistant", (Reasoning("a", "c2ln"), Text("b"), Reasoning("c"), Text("d"))),
            [{"role": "assistant", "content": "b\nd", "thinking": "ac"}],
            [
                "Ollama does not support reasoning signatures; dropped.",
                "Several texts of an assistant message were joined.",
            ],
        ),
        (Message("assistant", ()), [{"role": "assistant", "content": ""}], []),
    ],
)
def test_encode_message_of_each_kind_notes_what_changes(
    message: Message, expected: list[Any], notes: list[str]
) -> None:
    assert encode_messages(message) == (expected, notes)


# Tools and settings.

TOOLS = (Tool(name="f", parameters=SCHEMA), Tool(name="mcp/g h", description="G."))


@pytest.mark.parametrize(
    ("choice", "offered", "notes"),
    [
        (ToolChoice(), ["f", "mcp/g h"], []),
        (ToolChoice("none"), [], ["Ollama cannot forbid calls; the tools were not sent."]),
        (
            ToolChoice("required"),
            ["f", "mcp/g h"],
            ["Ollama does not support required calls; dropped."],
        ),
        (
            ToolChoice("auto", ("f",)),
            ["f"],
            [
                "Ollama does not support a choice among tools; dropped.",
                "Only the tools that may be called were sent.",
            ],
        ),
    ],
)
def test_encode_tool_choice_of_each_mode_notes_what_changes(
    choice: ToolChoice, offered: list[str], notes: list[str]
) -> None:
    outgoing = WIRE.encode_request(
        Request(model="m", messages=(HELLO,), tools=TOOLS, tool_choice=choice)
    )
    tools = outgoing.body.get("tools", [])
    assert [tool["function"]["name"] for tool in tools] == offered
    assert note_messages(outgoing.notes) == notes


def test_encode_tool_without_parameters_sends_an_object_schema() -> None:
    tools = (TOOLS[1], Tool(name="h", freeform=True, namespace="n"), Tool(name="s", strict=True))
    outgoing = WIRE.encode_request(
        Request(model="m", messages=(), tools=tools, parallel_tool_calls=False)
    )
    first, second, _ = outgoing.body["tools"]
    assert first == {
        "type": "function",
        "function": {
            "name": "mcp/g h",
            "description": "G.",
            "parameters": {"type": "object", "properties": {}},
        },
    }
    assert second["function"]["name"] == "n__h"
    assert [note.code for note in outgoing.notes] == [
        "unsupported",
        "converted",
        "unsupported",
        "renamed-tool",
    ]


def test_encode_hosted_tool_is_only_sent_to_the_same_api() -> None:
    tool = {"type": "web_search"}
    request = decode({"model": "m", "messages": [], "tools": [tool, {"name": "f"}]})
    assert request.tools == (Tool(name="f"),)
    assert WIRE.encode_request(request).body["tools"][1] == tool
    notes = WIRES["openai_chat"].encode_request(request).notes
    assert [note.code for note in notes] == ["skipped-tool"]


@pytest.mark.parametrize(
    ("think", "thinking"),
    [
        (True, Thinking(enabled=True)),
        (False, Thinking(enabled=False)),
        ("high", Thinking(effort="high")),
        (None, Thinking()),
    ],
)
def test_thinking_of_each_kind_is_decoded_and_restored(think: Any, thinking: Thinking) -> None:
    request = decode({"model": "m", "messages": [], "think": think})
    assert request.thinking == thinking
    assert WIRE.encode_request(request).body.get("think") == think


@pytest.mark.parametrize(
    ("thinking", "model", "think", "is_noted"),
    [
        (Thinking(effort="high"), "gpt-oss:20b", "high", False),
        (Thinking(effort="xhigh"), "GPT-OSS:20b", "high", True),
        (Thinking(budget=500), "gpt-oss:20b", "low", True),
        (Thinking(enabled=True), "gpt-oss:20b", None, False),
        (Thinking(enabled=True), "llama3.1", None, False),
        (Thinking(enabled=True, effort="high"), "llama3.1", None, True),
        (Thinking(enabled=True, budget=500), "llama3.1", None, True),
        (Thinking(effort="none"), "qwen3", False, False),
        (Thinking(enabled=False, shown=True), "llama3.1", False, False),
    ],
)
def test_encode_effort_of_another_api_depends_on_the_model(
    thinking: Thinking, model: str, think: Any, is_noted: bool
) -> None:
    """A model that cannot reason refuses the setting; one that can does not need it."""
    sent = WIRE.encode_request(Request(model=model, messages=(), thinking=thinking))
    assert sent.body.get("think") == think
    assert bool(sent.notes) is is_noted


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ("json", ResponseFormat()),
        (SCHEMA, ResponseFormat(SCHEMA)),
        ("", None),
        (None, None),
    ],
)
def test_response_format_of_each_kind_is_decoded_and_restored(
    value: Any, form: ResponseFormat | None
) -> None:
    request = decode({"model": "m", "messages": [], "format": value})
    assert request.response_format == form
    assert WIRE.encode_request(request).body.get("format") == (value or None)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"num_predict": 5, "stop": "END"}, (5, ("END",), {})),
        ({"num_predict": 5.0, "stop": ["a", ""]}, (5, ("a",), {})),
        ({"num_predict": -1}, (None, (), {"options": {"num_predict": -1}})),
        (None, (None, (), {})),
    ],
)
def test_decode_options_gives_limits(options: Any, expected: tuple[Any, ...]) -> None:
    request = decode({"model": "m", "messages": [], "options": options})
    assert (request.max_tokens, request.stop, request.extra) == expected


def test_encode_request_of_another_api_notes_what_is_dropped() -> None:
    request = Request(
        model="m",
        messages=(HELLO,),
        metadata={"user_id": "u"},
        thinking=Thinking(shown=False),
        wire="openai_chat",
        extra={"logit_bias": {}},
    )
    outgoing = WIRE.encode_request(request)
    assert note_messages(outgoing.notes) == [
        "Ollama does not support `logit_bias`; dropped.",
        "Ollama does not support hiding reasoning; dropped.",
        "Ollama does not support `metadata.user_id`; dropped.",
    ]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ([], "$"),
        ({"messages": 3}, "$.messages"),
        ({"messages": [{"role": "robot"}]}, "$.messages[0].role"),
        ({"messages": [{"role": "user", "content": []}]}, "$.messages[0].content"),
        ({"messages": [{"role": "user", "images": [3]}]}, "$.messages[0].images[0]"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "$.messages[0].tool_calls[0]"),
        ({"format": "xml"}, "$.format"),
        ({"think": 3}, "$.think"),
        ({"options": {"stop": 3}}, "$.options.stop"),
        ({"options": {"num_predict": "3"}}, "$.options.num_predict"),
    ],
)
def test_decode_request_with_invalid_field_names_its_path(body: Any, path: str) -> None:
    with pytest.raises(WireError) as caught:
        decode(body)
    assert caught.value.path == path


# Replies in.


def build_line(done: bool = False, **message: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "created_at": "2026-01-01T00:00:00.123456Z",
        "message": {"role": "assistant", "content": "", **message},
        "done": done,
    }


def build_call_line(name: str, arguments: Any, **fields: Any) -> dict[str, Any]:
    function = {"index": 0, "name": name, "arguments": arguments}
    return build_line(tool_calls=[{"function": function, **fields}])


LINES: list[dict[str, Any]] = [
    build_line(thinking="Hm"),
    build_line(thinking=" æ."),
    build_line(content="Let "),
    build_line(content="me."),
    build_call_line("get_weather", {"city": "Oslo"}),
    build_call_line("now", "{}", id="x"),
    {
        **build_line(done=True),
        "done_reason": "stop",
        "total_duration": 9,
        "prompt_eval_count": 10,
        "eval_count": 8,
    },
]
REPLY = Reply(
    parts=(
        Reasoning("Hm æ."),
        Text("Let me."),
        ToolCall(
            id="new",
            name="get_weather",
            arguments={"city": "Oslo"},
            extra={**NO_ID, "~index": 0},
        ),
        ToolCall(id="x", name="now", arguments={}, extra={"~index": 0}),
    ),
    dialect="native",
    model="m",
    stop_reason="calls",
    raw_stop_reason="stop",
    usage=Usage(10, 8),
    wire="ollama",
    extra={"~total_duration": 9},
)


def encode_lines(lines: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in lines)


def decode_stream(data: bytes, size: int = 10_000) -> list[Event]:
    stream = StreamDecoder(WIRE, new_id=lambda: "new")
    events = [
        event for at in range(0, len(data), size) for event in stream.feed(data[at : at + size])
    ]
    return [*events, *stream.finish()]


def test_decode_stream_in_any_chunk_size_gives_the_same_reply() -> None:
    for size in (*range(1, 30), 10_000):
        assert fold(decode_stream(encode_lines(LINES), size)) == REPLY
        assert fold(decode_stream(encode_lines(LINES)[:-1], size)) == REPLY


def test_decode_whole_reply_gives_the_same_reply() -> None:
    calls = [call for each in LINES for call in each["message"].get("tool_calls", ())]
    message = {
        "role": "assistant",
        "content": "Let me.",
        "thinking": "Hm æ.",
        "tool_calls": calls,
    }
    body = {**LINES[-1], "message": message}
    assert fold(WIRE.decode_reply(body, new_id=lambda: "new")) == REPLY


def test_decode_stream_without_end_gives_a_failure() -> None:
    assert isinstance(decode_stream(encode_lines(LINES[:-1]))[-1], Failure)


def test_decode_generate_reply_gives_text_and_reasoning() -> None:
    lines = [
        {"model": "m", "thinking": "Hm.", "response": "", "done": False},
        {"model": "m", "response": "Hi", "done": False},
        {"model": "m", "response": "", "done": True, "done_reason": "length", "context": [1]},
    ]
    reply = fold(decode_stream(encode_lines(lines)))
    assert reply.parts == (Reasoning("Hm."), Text("Hi"))
    assert (reply.stop_reason, reply.extra) == ("length", {"context": [1]})


def test_decode_unknown_reply_fields_are_noted() -> None:
    lines = [
        build_line(content="a", mood="good"),
        {**build_line(), "logprobs": []},
        build_line(done=True),
    ]
    assert [note.where for note in fold(decode_stream(encode_lines(lines))).notes] == [
        "mood",
        "logprobs",
    ]


def test_decode_call_with_array_arguments_is_rejected() -> None:
    reply = fold(decode_stream(encode_lines([build_call_line("f", [1]), build_line(done=True)])))
    assert reply.calls == ()
    assert [rejection.code for rejection in reply.rejected] == ["undecodable-arguments"]


@pytest.mark.parametrize(
    "body", [{"error": "busy"}, {"error": {"message": "busy"}}, "busy", {"error": "busy", "x": 1}]
)
def test_failure_of_each_shape_is_decoded_and_encoded(body: Any) -> None:
    assert WIRE.decode_failure(503, body) == Failure("overloaded", "busy", 503)
    assert WIRE.encode_failure(Failure("overloaded", "busy", 503)) == {"error": "busy"}


def test_encode_stream_with_failure_ends_with_an_error() -> None:
    data = b"".join(
        map(WIRE.stream_encoder(ENVELOPE).feed, [TextDelta("a"), Failure("internal", "broke", 500)])
    )
    assert data.endswith(b'{"error":"broke"}\n')
    assert decode_stream(data)[-1] == Failure("upstream", "broke", 500)


# Replies out.

EVENTS: list[Event] = [
    Started("", "m", wire="gemini"),
    ReasoningDelta("Hm."),
    ReasoningDelta("", "c2ln"),
    CallStart(0, "c1", "get_weather"),
    CallEnd(0, OSLO),
    TextDelta("Hi\u2028 æ\x85"),
    PartAdded(Image(data=PIXEL)),
    Finish("calls", "STOP", Usage(10, 8)),
]
CALL = {"function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}
HEAD = {"model": "m", "created_at": "2023-11-14T22:13:20Z"}
END = {
    "done": True,
    "done_reason": "stop",
    "total_duration": 0,
    "load_duration": 0,
    "prompt_eval_count": 10,
    "prompt_eval_duration": 0,
    "eval_count": 8,
    "eval_duration": 0,
}


def encode_stream(events: Iterable[Event], envelope: Envelope = ENVELOPE) -> list[Any]:
    data = b"".join(map(WIRE.stream_encoder(envelope).feed, events)).decode()
    assert len(data.splitlines()) == data.count("\n")
    return [json.loads(each) for each in data.splitlines()]


def test_encode_stream_writes_one_line_per_event() -> None:
    assert encode_stream(EVENTS) == [
        {**HEAD, "message": {"role": "assistant", **message}, "done": False}
        for message in (
            {"content": "", "thinking": "Hm."},
            {"content": "", "tool_calls": [CALL]},
            {"content": "Hi\u2028 æ\x85"},
        )
    ] + [{**HEAD, "message": {"role": "assistant", "content": ""}, **END}]


def test_encode_reply_writes_one_message() -> None:
    message = {
        "role": "assistant",
        "content": "Hi\u2028 æ\x85",
        "thinking": "Hm.",
        "tool_calls": [CALL],
    }
    assert WIRE.encode_reply(fold(EVENTS), ENVELOPE) == {**HEAD, "message": message, **END}


def test_encode_generate_stream_writes_responses() -> None:
    envelope = Envelope(decode({"model": "m", "prompt": "a"}), "r1", 1_700_000_000)
    events: list[Event] = [
        ReasoningDelta("Hm."),
        TextDelta("Hi"),
        PartAdded(Image(data=PIXEL)),
        Finish("length"),
    ]
    counts = {"prompt_eval_count": 0, "eval_count": 0, "done_reason": "length"}
    assert encode_stream(events, envelope) == [
        {**HEAD, "response": "", "thinking": "Hm.", "done": False},
        {**HEAD, "response": "Hi", "done": False},
        {**HEAD, "response": "", "image": PIXEL, "done": False},
        {**HEAD, "response": "", **END, **counts},
    ]
    whole = WIRE.encode_reply(fold(events), envelope)
    message = {"response": "Hi", "thinking": "Hm.", "image": PIXEL}
    assert whole == {**HEAD, **message, **END, **counts}


@pytest.mark.parametrize("calls", [[], [{"id": "x"}, {}]])
@pytest.mark.parametrize("reason", ["stop", "length", "unload", "something new"])
def test_encode_reply_for_the_same_api_restores_the_body(
    calls: list[dict[str, Any]], reason: str
) -> None:
    tool_calls = [
        {**call, "function": {"index": index, "name": "f", "arguments": {"a": 1}, "more": 2}}
        for index, call in enumerate(calls)
    ]
    call_field = {"tool_calls": tool_calls} if tool_calls else {}
    body = {
        **HEAD,
        "remote_model": "r",
        "remote_host": "h",
        "message": {"role": "assistant", "content": "a", "thinking": "b", **call_field},
        **END,
        "done_reason": reason,
        "eval_duration": 7,
    }
    reply = fold(WIRE.decode_reply(body))
    assert WIRE.encode_reply(reply, ENVELOPE) == body
    assert reply.notes == ()
    for wire in WIRES.values():
        lost = [note.message for note in wire.find_losses(reply) if wire is not WIRE]
        assert all("`function`;" in message for message in lost)
    lines = [{**body, "message": {"role": "assistant", "content": ""}}]
    if tool_calls:
        message = {"role": "assistant", "content": "", **call_field}
        lines = [{**HEAD, "remote_host": "h", "message": message, "done": False}, *lines]
    events = decode_stream(encode_lines(lines))
    assert fold(events).notes == ()
    last = encode_stream(events)
    assert last[-1] == lines[-1]
    assert [call for line in last for call in line["message"].get("tool_calls", ())] == tool_calls


@pytest.mark.parametrize("reason", ["filter", "refusal", "error", "pause"])
def test_find_losses_of_other_stop_reasons_notes_them(reason: Any) -> None:
    reply = fold([Started(wire="anthropic"), TextDelta("No."), Finish(reason, "refusal")])
    assert WIRE.encode_reply(reply, ENVELOPE)["done_reason"] == "stop"
    [remark] = note_messages(WIRE.find_losses(reply))
    assert f"the stop reason `{reason}`" in remark


def test_encode_durations_are_only_sent_to_the_same_api() -> None:
    assert encode_stream(decode_stream(encode_lines(LINES)))[-1]["total_duration"] == 9
    assert WIRE.encode_reply(REPLY, ENVELOPE)["total_duration"] == 9
    assert WIRE.encode_reply(structs.replace(REPLY, wire="x"), ENVELOPE)["total_duration"] == 0


@pytest.mark.parametrize(
    "events",
    [
        [ReasoningDelta("a"), TextDelta("b"), CallEnd(0, OSLO), Finish("calls")],
        [TextDelta("b"), Finish("length")],
        [Finish("stop")],
    ],
)
def test_encode_stream_and_reply_have_the_same_content(events: list[Event]) -> None:
    reply = fold(events)
    whole = fold(WIRE.decode_reply(WIRE.encode_reply(reply, ENVELOPE), new_id=lambda: "call_1"))
    stream = StreamDecoder(WIRE, new_id=lambda: "call_1")
    data = b"".join(map(WIRE.stream_encoder(ENVELOPE).feed, events))
    streamed = fold([*stream.feed(data), *stream.finish()])
    for result in (whole, streamed):
        assert (result.parts, result.stop_reason) == (reply.parts, reply.stop_reason)


# Whatever comes.


@pytest.mark.parametrize("body", [CLIENT, GENERATE])
def test_decode_mutated_request_raises_only_wire_errors(body: dict[str, Any]) -> None:
    chance = random.Random(1)
    refused = 0
    for _ in range(2000):
        try:
            request = decode(mutate(body, chance))
        except WireError:
            refused += 1
        else:
            for wire in ("ollama", "anthropic"):
                WIRE.encode_request(structs.replace(request, wire=wire))
    assert 100 < refused < 1900


def test_decode_mutated_stream_never_raises() -> None:
    chance = random.Random(2)
    for turn in range(3000):
        data = bytearray(encode_lines([mutate(each, chance) for each in LINES]))
        if turn % 3 == 0:
            data[chance.randrange(len(data))] = chance.randrange(256)
        events = decode_stream(bytes(data), 50)
        encoder = WIRE.stream_encoder(ENVELOPE)
        for event in events:
            encoder.feed(event)
        WIRE.encode_reply(fold(events), ENVELOPE)


# Ollama's own SDK.


@contextmanager
def open_client(status: int, body: bytes) -> Generator[tuple[ollama.Client, ReceivedRequests]]:
    """Open a client of a server with this response; yield it and the requests."""
    with (
        serve_response(status, body, WIRE.content_type) as (url, requests),
        ollama.Client(host=url) as client,
    ):
        yield client, requests


def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
      city: Which city.
    """
    return f"Sunny in {city}"


def check_request(path: str, body: Any, stream: bool) -> None:
    assert path == "/api/chat"
    request = decode(body)
    assert request.tools
    [tool] = request.tools
    assert (tool.name, tool.description) == ("get_weather", "The weather in a city.")
    assert tool.parameters["required"] == ["city"]
    assert (request.stream, request.sampling) == (stream, {"temperature": 0.5})
    assert request.thinking == Thinking(enabled=True)


def build_arguments(**fields: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "messages": [{"role": "user", "content": "Weather?", "images": [PIXEL]}],
        "tools": [get_weather],
        "options": {"temperature": 0.5},
        "think": True,
        **fields,
    }


def test_sdk_parses_stream() -> None:
    data = b"".join(map(WIRE.stream_encoder(ENVELOPE).feed, EVENTS))
    with open_client(200, data) as (client, requests):
        parts = list(client.chat(**build_arguments(stream=True)))
    check_request(*requests[0], stream=True)
    assert "".join(part.message.content or "" for part in parts) == "Hi\u2028 æ\x85"
    assert "".join(part.message.thinking or "" for part in parts) == "Hm."
    calls = [call for part in parts for call in part.message.tool_calls or ()]
    assert [(call.function.name, call.function.arguments) for call in calls] == [
        ("get_weather", {"city": "Oslo"})
    ]
    assert [part.done for part in parts] == [False] * 3 + [True]
    assert (parts[-1].done_reason, parts[-1].prompt_eval_count, parts[-1].eval_count) == (
        "stop",
        10,
        8,
    )


def test_sdk_second_turn_gives_the_first_reply_back() -> None:
    """Send the model's message as the SDK holds it, and a result."""
    data = json.dumps(WIRE.encode_reply(fold(EVENTS), ENVELOPE)).encode()
    with open_client(200, data) as (client, requests):
        first = client.chat(**build_arguments())
        check_request(*requests[0], stream=False)
        result = {"role": "tool", "tool_name": "get_weather", "content": "Sunny"}
        client.chat(**build_arguments(messages=[first.message, result]))
    model, tool = decode(requests[1][1]).messages
    assert model.parts == (Reasoning("Hm."), Text("Hi\u2028 æ\x85"), OSLO)
    assert tool.parts == (SUNNY,)


def test_sdk_parses_generate_reply() -> None:
    envelope = Envelope(decode({"model": "m", "prompt": "a"}), "r1", 1_700_000_000)
    events: list[Event] = [ReasoningDelta("Hm."), TextDelta("Hi"), Finish("length")]
    data = b"".join(map(WIRE.stream_encoder(envelope).feed, events))
    with open_client(200, data) as (client, requests):
        parts = list(client.generate(model="m", prompt="a", system="b", stream=True))
    assert "".join(part.response or "" for part in parts) == "Hi"
    assert "".join(part.thinking or "" for part in parts) == "Hm."
    assert parts[-1].done_reason == "length"
    path, body = requests[0]
    assert path == "/api/generate"
    assert [message.role for message in decode(body).messages] == ["system", "user"]
    with open_client(200, json.dumps(WIRE.encode_reply(fold(events), envelope)).encode()) as (
        client,
        _,
    ):
        assert client.generate(model="m", prompt="a").response == "Hi"


def test_sdk_raises_on_failures() -> None:
    failure = Failure("not_found", "model 'm' not found", 404)
    with (
        open_client(404, json.dumps(WIRE.encode_failure(failure)).encode()) as (client, _),
        pytest.raises(ollama.ResponseError, match="model 'm' not found") as caught,
    ):
        client.chat(**build_arguments())
    assert caught.value.status_code == 404
    data = b"".join(map(WIRE.stream_encoder(ENVELOPE).feed, [TextDelta("a"), failure]))
    with open_client(200, data) as (client, _):
        stream = client.chat(**build_arguments(stream=True))
        assert next(stream).message.content == "a"
        with pytest.raises(ollama.ResponseError, match="model 'm' not found"):
            next(stream)
