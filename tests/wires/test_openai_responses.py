"""OpenAI Responses in each direction, and its streams read by OpenAI's own SDK."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.wires.support import serve_response
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
    WireError,
    fold,
)
from toolspeak.events import ITEM_ID
from toolspeak.wires import WIRES, Envelope, StreamDecoder, Wire
from toolspeak.wires.calls import CallAssembler
from toolspeak.wires.encoding import OPENAI_NAMES, ToolNames
from toolspeak.wires.fields import HOSTED_TOOLS
from toolspeak.wires.framing import ServerSentEvents, decode_json, encode_sse
from toolspeak.wires.openai_responses.items import ITEM_STATUS, REASONING_TEXTS

WIRE, CHAT, ANTHROPIC = (WIRES[name] for name in ("openai_responses", "openai_chat", "anthropic"))
Json = dict[str, Any]
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
WEATHER: Json = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather.",
    "parameters": SCHEMA,
    "strict": False,
}
PATCH: Json = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits.",
    "format": GRAMMAR,
}
AGENTS: Json = {
    "type": "namespace",
    "name": "multi_agent_v1",
    "description": "Other agents.",
    "tools": [
        {**WEATHER, "name": "spawn_agent", "defer_loading": True},
        {**WEATHER, "name": "wait_agent"},
    ],
}
SEARCH: Json = {"type": "web_search", "external_web_access": False}
CODEX: Json = {
    "model": "stub-model",
    "input": [
        {
            "type": "message",
            "role": "developer",
            "content": [{"type": "input_text", "text": "You are Codex."}],
        },
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Make marker.txt"}],
        },
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "On it."}],
            "phase": "commentary",
        },
        {
            "type": "function_call",
            "name": "wait_agent",
            "namespace": "multi_agent_v1",
            "arguments": '{"city": "Oslo"}',
            "call_id": "call_1",
        },
        {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin", "call_id": "c2"},
        {"type": "function_call_output", "call_id": "call_1", "output": "done"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "Success."},
    ],
    "tools": [WEATHER, AGENTS, PATCH, SEARCH],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "k",
    "client_metadata": {"session": "{}"},
    "text": {
        "verbosity": "low",
        "format": {"type": "json_schema", "name": "out", "schema": SCHEMA, "strict": True},
    },
}


def decode(**body: Any) -> Request:
    return WIRE.decode_request({"model": "m", **body})


def encode(request: Request) -> Json:
    return WIRE.encode_request(request).body


def round_trip(**body: Any) -> Json:
    """Return a body after it was decoded and encoded again."""
    return encode(decode(**body))


def list_codes(notes: Iterable[Note]) -> list[str]:
    return [note.code for note in notes]


# Decoding requests.


def test_request_of_codex_is_decoded() -> None:
    request = WIRE.decode_request(CODEX)
    assert [message.role for message in request.messages] == [
        "developer",
        "user",
        "assistant",
        "tool",
    ]
    reasoning, text, waits, patches = request.messages[2].parts
    assert reasoning == Reasoning("", "gAAA")
    assert text == Text("On it.", {"phase": "commentary"})
    assert isinstance(waits, ToolCall)
    assert (waits.namespace, waits.name) == ("multi_agent_v1", "wait_agent")
    assert waits.arguments == {"city": "Oslo"}
    assert isinstance(patches, ToolCall)
    assert (patches.freeform, patches.input) == (True, "*** Begin")
    results = [part for part in request.messages[3].parts if isinstance(part, ToolResult)]
    assert [(result.name, result.text) for result in results] == [
        ("wait_agent", "done"),
        ("apply_patch", "Success."),
    ]
    assert [(tool.namespace, tool.name, tool.freeform) for tool in request.tools or ()] == [
        (None, "get_weather", False),
        ("multi_agent_v1", "spawn_agent", False),
        ("multi_agent_v1", "wait_agent", False),
        (None, "apply_patch", True),
    ]
    assert request.thinking == Thinking(effort="medium", shown=True)
    assert request.response_format == ResponseFormat(SCHEMA, "out", strict=True)
    assert request.stream
    assert request.extra[HOSTED_TOOLS] == [SEARCH]
    assert request.extra["text"] == {"verbosity": "low"}
    assert request.notes == ()


def test_request_of_codex_to_the_same_api_is_unchanged() -> None:
    outgoing = WIRE.encode_request(WIRE.decode_request(CODEX))
    body = outgoing.body
    assert outgoing.path == "/responses"
    assert outgoing.notes == ()
    assert body.pop("parallel_tool_calls", True) is True
    assert body.pop("tool_choice", "auto") == "auto"
    expected = dict(CODEX)
    items = [dict(item) for item in expected.pop("input")]
    items[0]["content"], items[1]["content"] = "You are Codex.", "Make marker.txt"
    items[3]["content"] = [{"type": "output_text", "text": "On it.", "annotations": []}]
    assert body.pop("input") == items
    expected.pop("parallel_tool_calls")
    expected.pop("tool_choice")
    assert body == expected


def test_request_of_codex_to_another_api_notes_its_losses() -> None:
    outgoing = CHAT.encode_request(WIRE.decode_request(CODEX))
    names = [tool["function"]["name"] for tool in outgoing.body["tools"]]
    assert names == [
        "get_weather",
        "multi_agent_v1__spawn_agent",
        "multi_agent_v1__wait_agent",
        "apply_patch",
    ]
    noted = " ".join(note.message for note in outgoing.notes)
    for field in ("store", "prompt_cache_key", "phase", "defer_loading", "namespace"):
        assert f"does not support `{field}`;" in noted
    assert "~" not in noted
    assert "support `tools" not in noted
    assert "support `id" not in noted
    assert "support `status" not in noted


ITEMS: list[tuple[str, Any, list[Message]]] = [
    ("a string", "Hi", [Message("user", (Text("Hi"),))]),
    ("an easy message", [{"role": "user", "content": "Hi"}], [Message("user", (Text("Hi"),))]),
    (
        "pictures and files",
        [
            {
                "role": "user",
                "content": [
                    {"type": "input_image", "image_url": "https://a/b.png", "detail": "auto"},
                    {
                        "type": "input_image",
                        "image_url": "data:image/gif;base64,AA==",
                        "detail": "low",
                    },
                    {
                        "type": "input_file",
                        "filename": "a.pdf",
                        "file_data": "data:application/pdf;base64,BB==",
                    },
                    {"type": "input_file", "file_url": "https://a/b.pdf"},
                    {"type": "input_file", "file_id": "file_1"},
                    {"type": "input_image", "file_id": "file_2", "detail": "auto"},
                    {"type": "input_audio", "input_audio": {"data": "CC==", "format": "mp3"}},
                ],
            }
        ],
        [
            Message(
                "user",
                (
                    Image(url="https://a/b.png"),
                    Image(data="AA==", media_type="image/gif", detail="low"),
                    Document(title="a.pdf", data="BB==", media_type="application/pdf"),
                    Document(url="https://a/b.pdf", media_type="application/pdf"),
                    Other({"type": "input_file", "file_id": "file_1"}),
                    Other({"type": "input_image", "file_id": "file_2", "detail": "auto"}),
                    Document(data="CC==", media_type="audio/mp3"),
                ),
            )
        ],
    ),
    (
        "what an assistant did in a row is one message",
        [
            {"type": "reasoning", "id": "rs_1", "summary": [], "status": "completed"},
            {
                "type": "message",
                "role": "assistant",
                "id": "msg_1",
                "status": "completed",
                "content": [
                    {"type": "output_text", "text": "A", "annotations": [], "logprobs": []},
                    {"type": "refusal", "refusal": "No."},
                ],
            },
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_1",
                "name": "f",
                "arguments": "{}",
                "status": "completed",
            },
        ],
        [
            Message(
                "assistant",
                (
                    Other(
                        {"type": "reasoning", "id": "rs_1", "summary": [], "status": "completed"}
                    ),
                    Text("A", {ITEM_ID: "msg_1"}),
                    Text("No.", {"type": "refusal", ITEM_ID: "msg_1", ITEM_STATUS: "completed"}),
                    Other({"type": "web_search_call", "id": "ws_1", "status": "completed"}),
                    ToolCall(
                        id="call_1",
                        name="f",
                        arguments={},
                        extra={ITEM_ID: "fc_1", ITEM_STATUS: "completed"},
                    ),
                ),
            )
        ],
    ),
    (
        "reasoning in several texts, and in their own words",
        [
            {
                "type": "reasoning",
                "summary": [
                    {"type": "summary_text", "text": "A"},
                    {"type": "summary_text", "text": "B"},
                ],
                "encrypted_content": "x",
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "C"}],
            },
        ],
        [
            Message(
                "assistant",
                (
                    Reasoning(
                        "A\n\nB",
                        "x",
                        {
                            REASONING_TEXTS: {
                                "summary": [
                                    {"type": "summary_text", "text": "A"},
                                    {"type": "summary_text", "text": "B"},
                                ]
                            }
                        },
                    ),
                    Reasoning(
                        "C",
                        None,
                        {
                            ITEM_ID: "rs_1",
                            REASONING_TEXTS: {
                                "summary": [],
                                "content": [{"type": "reasoning_text", "text": "C"}],
                            },
                        },
                    ),
                ),
            )
        ],
    ),
    (
        "results in parts",
        [
            {
                "type": "function_call_output",
                "call_id": "call_9",
                "output": [
                    {"type": "input_text", "text": "see"},
                    {
                        "type": "input_image",
                        "image_url": "data:image/png;base64,AA==",
                        "detail": "auto",
                    },
                ],
            },
            {"type": "function_call_output", "call_id": "call_8", "output": ""},
        ],
        [
            Message(
                "tool",
                (
                    ToolResult(
                        call_id="call_9",
                        name="",
                        content=(Text("see"), Image(data="AA==", media_type="image/png")),
                    ),
                    ToolResult(call_id="call_8", name="", content=""),
                ),
            )
        ],
    ),
    (
        "what only this API knows",
        [{"id": "msg_1"}, {"type": "compaction", "encrypted_content": "x"}],
        [
            Message(
                "assistant",
                (Other({"id": "msg_1"}), Other({"type": "compaction", "encrypted_content": "x"})),
            )
        ],
    ),
    (
        "a picture that was made",
        [{"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AA=="}],
        [
            Message(
                "assistant",
                (Image(data="AA==", extra={"~item": {"id": "ig_1", "status": "completed"}}),),
            )
        ],
    ),
    (
        "an assistant that shows something",
        [{"role": "assistant", "content": [{"type": "input_image", "image_url": "https://a/b"}]}],
        [
            Message(
                "assistant",
                (
                    Other(
                        {
                            "type": "message",
                            "role": "assistant",
                            "content": [{"type": "input_image", "image_url": "https://a/b"}],
                        }
                    ),
                ),
            )
        ],
    ),
]


@pytest.mark.parametrize(
    ("given_input", "messages"), [row[1:] for row in ITEMS], ids=[row[0] for row in ITEMS]
)
def test_input_items_are_decoded(given_input: Any, messages: list[Message]) -> None:
    request = decode(input=given_input)
    assert list(request.messages) == messages
    assert request.notes == ()
    back = WIRE.encode_request(request)
    assert back.notes == ()
    assert list(WIRE.decode_request(back.body).messages) == messages


KNOWN: list[Json] = [
    {"type": "message", "role": "user", "content": "Hi", "id": "msg_0", "status": "completed"},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {
        "type": "message",
        "role": "assistant",
        "id": "msg_1",
        "status": "completed",
        "content": [
            {"type": "output_text", "text": "A", "annotations": []},
            {"type": "output_text", "text": "B", "annotations": []},
        ],
    },
    {
        "type": "message",
        "role": "assistant",
        "id": "msg_2",
        "status": "incomplete",
        "content": [{"type": "output_text", "text": "C", "annotations": []}],
        "phase": "commentary",
    },
    {
        "type": "reasoning",
        "id": "rs_2",
        "summary": [{"type": "summary_text", "text": "D"}],
        "status": "completed",
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "get_weather",
        "arguments": "{}",
        "status": "completed",
        "caller": {"type": "direct"},
    },
    {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": "call_2",
        "name": "apply_patch",
        "input": "x",
        "status": "completed",
    },
    {
        "type": "function_call_output",
        "id": "fco_1",
        "call_id": "call_1",
        "output": "ok",
        "status": "completed",
    },
    {"type": "custom_tool_call_output", "id": "ctco_1", "call_id": "call_2", "output": "ok"},
    {"type": "item_reference", "id": "msg_9"},
]
"""History of a conversation that OpenAI stores: an item without its id is another to it."""


def test_items_to_the_same_api_keep_their_ids() -> None:
    request = decode(input=KNOWN, store=True)
    outgoing = WIRE.encode_request(request)
    assert outgoing.body["input"] == KNOWN
    assert outgoing.notes == ()
    assert WIRE.decode_request(outgoing.body).messages == request.messages


@pytest.mark.parametrize("wire", [CHAT, ANTHROPIC])
def test_item_ids_are_not_sent_to_another_api(wire: Wire) -> None:
    outgoing = wire.encode_request(decode(input=KNOWN))
    written = json.dumps(outgoing.body)
    for identity in ("msg_0", "msg_1", "fc_1", "ctc_1", "fco_1", "~"):
        assert f'"{identity}' not in written
    noted = " ".join(note.message for note in outgoing.notes)
    assert "for id;" not in noted
    assert "status" not in noted
    assert "~" not in noted


def test_generated_item_ids_are_not_sent() -> None:
    history = encode_response(ANSWER)["output"]
    assert [item["id"] for item in history] == ["rs_0_7", "msg_1_7", "fc_2_7", "fc_3_7", "ctc_4_7"]
    items = round_trip(input=history)["input"]
    assert [item["type"] for item in items] == [item["type"] for item in history]
    assert not any("id" in item or "status" in item for item in items)


def test_many_results_in_a_row_take_linear_time() -> None:
    def seconds(count: int) -> float:
        kind = "function_call_output"
        items = [{"type": kind, "call_id": f"c{i}", "output": ""} for i in range(count)]
        started = time.process_time()
        [message] = decode(input=items).messages
        assert len(message.parts) == count
        return time.process_time() - started

    small, large = (min(seconds(count) for _ in range(3)) for count in (2_500, 20_000))
    assert large < 8 * small * 5


def test_instructions_to_the_same_api_stay_a_field() -> None:
    request = decode(instructions="Be brief.", input=[{"role": "system", "content": "B"}])
    assert [message.role for message in request.messages] == ["system", "system"]
    body = encode(request)
    assert body["instructions"] == "Be brief."
    assert [item["content"] for item in body["input"]] == ["B"]
    chat = CHAT.encode_request(request)
    assert chat.notes == ()
    assert [message["content"] for message in chat.body["messages"]] == ["Be brief.", "B"]


def test_system_message_from_another_api_is_an_item() -> None:
    request = CHAT.decode_request({"messages": [{"role": "system", "content": "Be brief."}]})
    body = encode(request)
    assert "instructions" not in body
    assert body["input"] == [{"type": "message", "role": "system", "content": "Be brief."}]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ([], "$"),
        ({"input": 3}, "$.input"),
        ({"input": [3]}, "$.input[0]"),
        ({"input": [{}]}, "$.input[0]"),
        ({"input": [{"role": "bot", "content": ""}]}, "$.input[0].role"),
        ({"input": [{"role": "user", "content": 1}]}, "$.input[0].content"),
        ({"input": [{"type": "function_call"}]}, "$.input[0].name"),
        ({"input": [{"type": "function_call_output", "output": {}}]}, "$.input[0].output"),
        ({"tools": [{"type": "function"}]}, "$.tools[0].name"),
        ({"tool_choice": "maybe"}, "$.tool_choice"),
        ({"tool_choice": {"type": "function"}}, "$.tool_choice.name"),
        ({"tool_choice": {"type": "allowed_tools", "tools": 1}}, "$.tool_choice.tools"),
        ({"tool_choice": {"type": "allowed_tools", "tools": [1]}}, "$.tool_choice.tools[0]"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": 1}]}, "$.tools[0].tools"),
        ({"tools": [{"type": "namespace", "tools": [WEATHER]}]}, "$.tools[0].name"),
        ({"text": {"format": 1}}, "$.text.format"),
        ({"reasoning": {"effort": 1}}, "$.reasoning.effort"),
        ({"temperature": "hot"}, "$.temperature"),
        ({"instructions": ["a"]}, "$.instructions"),
    ],
)
def test_invalid_request_raises_with_its_path(body: Any, path: str) -> None:
    with pytest.raises(WireError) as error:
        WIRE.decode_request(body)
    assert error.value.path == path


CHOICES: list[tuple[Any, ToolChoice]] = [
    ("none", ToolChoice("none")),
    ("required", ToolChoice("required")),
    ({"type": "function", "name": "get_weather"}, ToolChoice("required", ("get_weather",))),
    ({"type": "custom", "name": "apply_patch"}, ToolChoice("required", ("apply_patch",))),
    (
        {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [
                {"type": "function", "name": "get_weather"},
                {"type": "custom", "name": "apply_patch"},
            ],
        },
        ToolChoice("auto", ("get_weather", "apply_patch")),
    ),
    ({"type": "web_search_preview"}, ToolChoice()),
    ({"type": "mcp", "server_label": "s", "name": "t"}, ToolChoice()),
    (
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "get_weather"}, {"type": "web_search"}],
        },
        ToolChoice("required", ("get_weather",)),
    ),
    (
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
        ToolChoice("none"),
    ),
]


@pytest.mark.parametrize(("choice", "expected"), CHOICES)
def test_tool_choice_round_trip_is_unchanged(choice: Any, expected: ToolChoice) -> None:
    request = decode(tools=[WEATHER, PATCH], tool_choice=choice)
    assert request.tool_choice == expected
    assert encode(request)["tool_choice"] == choice
    hosted = "web_search" in str(choice) or "mcp" in str(choice)
    assert request.notes == WIRE.encode_request(request).notes == ()
    noted = " ".join(note.message for note in ANTHROPIC.encode_request(request).notes)
    assert ("does not support `tool_choice" in noted) == hosted


def test_tool_choice_changed_after_decoding_is_encoded_anew() -> None:
    request = decode(tools=[WEATHER], tool_choice={"type": "web_search_preview"})
    changed = Request(
        model="m",
        messages=(),
        tools=request.tools,
        tool_choice=ToolChoice("none"),
        wire=WIRE.name,
        extra=request.extra,
    )
    assert encode(changed)["tool_choice"] == "none"


@pytest.mark.parametrize("tools", [{}, {"tools": None}, {"tools": []}])
@pytest.mark.parametrize("mode", ["auto", "required"])
def test_tool_choice_among_no_tools_is_a_mode(tools: Json, mode: Any) -> None:
    request = decode(tools=[WEATHER], tool_choice={"type": "allowed_tools", "mode": mode, **tools})
    assert request.tool_choice == ToolChoice(mode)
    assert encode(request).get("tool_choice", "auto") == mode


def test_tool_choice_with_a_namespace_keeps_it() -> None:
    tools = [
        {"type": "namespace", "name": name, "tools": [{**WEATHER, "name": "go.now"}]}
        for name in ("n1", "n2")
    ]
    go = {"type": "function", "name": "go.now", "namespace": "n1"}
    written = {**go, "name": "go_now"}
    request = decode(tools=tools, tool_choice=go)
    assert request.tool_choice == ToolChoice("required", ("go.now",))
    assert encode(request)["tool_choice"] == written
    either = {"type": "allowed_tools", "mode": "auto", "tools": [go, {"type": "web_search"}]}
    body = round_trip(tools=tools, tool_choice=either)
    assert body["tool_choice"] == {**either, "tools": [written, {"type": "web_search"}]}
    changed = replace(request, tool_choice=ToolChoice("none"))
    assert encode(changed)["tool_choice"] == "none"
    assert not any("tool_choice" in note.message for note in CHAT.encode_request(request).notes)


def test_hosted_tools_are_noted_only_for_other_apis() -> None:
    inner = {"type": "web_search", "filters": {}}
    space = {**AGENTS, "tools": [*AGENTS["tools"], inner]}
    empty = {"type": "namespace", "name": "later", "tools": []}
    only = {"type": "namespace", "name": "web", "description": "Web.", "tools": [inner]}
    tools = [WEATHER, space, SEARCH, empty, only]
    request = decode(tools=tools)
    same = WIRE.encode_request(request)
    assert same.body["tools"] == tools
    assert request.notes == same.notes == ()
    skipped = [n.message for n in CHAT.encode_request(request).notes if n.code == "skipped-tool"]
    assert len(skipped) == 2
    assert "'web_search'" in skipped[0]
    assert "'namespace'" in skipped[1]
    assert WIRE.encode_reply(Reply(), Envelope(request, "1"))["tools"] == tools


def test_empty_tools_differ_from_missing_tools() -> None:
    assert decode().tools is None
    assert decode(tools=[]).tools == ()
    assert round_trip(tools=[])["tools"] == []
    assert "tools" not in round_trip()
    only_hosted = decode(tools=[SEARCH])
    assert only_hosted.tools == ()
    assert encode(only_hosted)["tools"] == [SEARCH]


@pytest.mark.parametrize(
    "body",
    [
        {"text": {"format": {"type": "json_object"}}},
        {"text": {"verbosity": "high"}},
        {"text": {"format": {"type": "grammar", "definition": "x"}}},
        {"reasoning": {"effort": "xhigh", "summary": "detailed", "context": "auto"}},
        {"reasoning": {"effort": "max"}},
        {"max_output_tokens": 5, "temperature": 0.5, "top_p": 1},
        {"metadata": {"a": "b"}, "user": "u"},
        {"previous_response_id": "resp_1", "truncation": "auto", "service_tier": "flex"},
        {"top_k": 3, "seed": 4},
        {"tools": [WEATHER], "parallel_tool_calls": False},
    ],
)
def test_settings_to_the_same_api_are_unchanged(body: Json) -> None:
    assert round_trip(**body) == {"model": "m", "input": [], **body}


def test_settings_that_are_not_supported_are_noted() -> None:
    request = Request(
        model="m",
        messages=(),
        stop=("END",),
        max_tokens=1,
        sampling={"temperature": 1, "top_k": 3, "seed": 4},
        thinking=Thinking(budget=5000, shown=True),
        wire="openai_chat",
    )
    outgoing = WIRE.encode_request(request)
    assert outgoing.body == {
        "model": "m",
        "input": [],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "medium", "summary": "auto"},
        "max_output_tokens": 16,
        "temperature": 1,
    }
    noted = " ".join(note.message for note in outgoing.notes)
    for word in ("stop sequences", "top_k", "seed", "effort 'medium'", "sent as 16"):
        assert word in noted


def test_tools_from_another_api_are_encoded() -> None:
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /.+/"}}
    request = CHAT.decode_request(
        {
            "messages": [],
            "tools": [
                {"type": "function", "function": {"name": "mcp.read", "parameters": {}}},
                {"type": "custom", "custom": {"name": "apply_patch", "format": grammar}},
            ],
        }
    )
    outgoing = WIRE.encode_request(request)
    plain, custom = outgoing.body["tools"]
    assert plain == {
        "type": "function",
        "name": "mcp_read",
        "description": "",
        "parameters": {"type": "object", "properties": {}},
        "strict": False,
    }
    assert custom["format"] == GRAMMAR
    assert list_codes(outgoing.notes) == ["renamed-tool"]


def test_result_of_a_freeform_call_has_its_own_type() -> None:
    call = ToolCall(id="c", name="apply_patch", arguments={"input": "x"}, freeform=True)
    result = ToolResult(call_id="c", name="apply_patch", content="ok", is_error=True)
    request = Request(
        model="m", messages=(Message("assistant", (call,)), Message("tool", (result,)))
    )
    outgoing = WIRE.encode_request(request)
    assert outgoing.body["input"] == [
        {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
    ]
    assert "error flag" in outgoing.notes[0].message
    alone = [{"type": "custom_tool_call_output", "call_id": "c", "output": "ok"}]
    assert round_trip(input=alone, previous_response_id="resp_1")["input"] == alone


def test_long_call_ids_are_shortened_alike() -> None:
    call = ToolCall(id="c" * 100, name="f", arguments={})
    result = ToolResult(call_id=call.id, name="f", content="ok")
    parts = (Message("assistant", (call,)), Message("tool", (result,)))
    made, answered = encode(Request(model="m", messages=parts))["input"]
    assert made["call_id"] == answered["call_id"]
    assert len(made["call_id"]) == 64


INPUTS_ODD: list[tuple[Any, str]] = [({"a": 1}, '{"a":1}'), (None, ""), ([1], "[1]"), (3, "3")]


@pytest.mark.parametrize(("given_input", "text"), INPUTS_ODD)
def test_freeform_input_that_is_no_text_is_sent_as_json(given_input: Any, text: str) -> None:
    call = ToolCall(id="c", name="p", arguments={"input": given_input}, freeform=True)
    request = Request(model="m", messages=(Message("assistant", (call,)),))
    assert encode(request)["input"][0]["input"] == text
    emitted: list[Event] = [
        CallStart(0, "c", "p", freeform=True),
        CallEnd(0, call),
        Finish("calls"),
    ]
    assert encode_response(emitted)["output"][0]["input"] == text
    assert WIRE.encode_reply(fold(emitted), ENVELOPE)["output"][0]["input"] == text


def test_reasoning_without_a_valid_text_is_empty() -> None:
    reasoning = {"type": "reasoning", "summary": [{"text": {"a": 1}}], "encrypted_content": "x"}
    [message] = decode(input=[reasoning]).messages
    assert message.parts == (Reasoning("", "x"),)


REASONING_ROWS: list[tuple[str, str, Reasoning, Json | None]] = [
    (
        "signed, from elsewhere",
        "openai_chat",
        Reasoning("A", "sig"),
        {"summary": [{"type": "summary_text", "text": "A"}], "encrypted_content": "sig"},
    ),
    ("unsigned, from elsewhere", "openai_chat", Reasoning("A"), None),
    (
        "with an id that its maker knows",
        WIRE.name,
        Reasoning("", "sig", {ITEM_ID: "rs_abc"}),
        {"summary": [], "encrypted_content": "sig", "id": "rs_abc"},
    ),
    (
        "signed, with an id that we made up",
        WIRE.name,
        Reasoning("", "sig", {ITEM_ID: "rs_0_x"}),
        {"summary": [], "encrypted_content": "sig"},
    ),
    (
        "unsigned, with an id that we made up",
        WIRE.name,
        Reasoning("A", None, {ITEM_ID: "rs_0_x"}),
        None,
    ),
    (
        "in an open model's own words",
        WIRE.name,
        Reasoning(
            "A", None, {ITEM_ID: "rs_0_x", REASONING_TEXTS: {"summary": [], "content": ["…"]}}
        ),
        {"summary": [], "content": ["…"], "id": "rs_0_x"},
    ),
    (
        "as the client keeps it",
        WIRE.name,
        Reasoning("A"),
        {"summary": [{"type": "summary_text", "text": "A"}]},
    ),
]


@pytest.mark.parametrize(
    ("wire", "reasoning", "item"),
    [row[1:] for row in REASONING_ROWS],
    ids=[row[0] for row in REASONING_ROWS],
)
def test_reasoning_is_sent_only_to_its_own_model(
    wire: str, reasoning: Reasoning, item: Json | None
) -> None:
    request = Request(model="m", messages=(Message("assistant", (reasoning,)),), wire=wire)
    outgoing = WIRE.encode_request(request)
    assert outgoing.body["input"] == ([{"type": "reasoning", **item}] if item else [])
    assert list_codes(outgoing.notes) == ([] if item else ["unsupported"])


def test_text_with_fields_of_the_message_ends_it() -> None:
    parts = (
        Text("A"),
        Text("", {"annotations": [1]}),
        Text("", {"phase": "commentary"}),
        Text("B"),
        Text("C", {"phase": "final_answer"}),
        Text("D"),
    )
    request = Request(model="m", messages=(Message("assistant", parts),), wire=WIRE.name)
    assert encode(request)["input"] == [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "A", "annotations": [1]}],
            "phase": "commentary",
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {"type": "output_text", "text": "B", "annotations": []},
                {"type": "output_text", "text": "C", "annotations": []},
            ],
            "phase": "final_answer",
        },
        {"type": "message", "role": "assistant", "content": "D"},
    ]


# Decoding replies.


def decode_frames(*frames: Json, names: ToolNames | None = None) -> list[Event]:
    decoder = WIRE.frame_decoder(
        CallAssembler(names or ToolNames((), OPENAI_NAMES), count_ids(), incremental=True)
    )
    emitted = [event for frame in frames for event in decoder.feed(frame)]
    return [*emitted, *decoder.finish()] if decoder.is_complete else emitted


def count_ids() -> Any:
    count = iter(range(100))
    return lambda: f"call_{next(count)}"


USAGE: Json = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 15,
}
RESPONSE: Json = {"id": "resp_1", "object": "response", "model": "gpt", "service_tier": "flex"}
CREATED: Json = {
    "type": "response.created",
    "response": {**RESPONSE, "status": "in_progress", "output": []},
}


def response_event(*output: Json, status: str = "completed", **fields: Any) -> Json:
    response = {**RESPONSE, "status": status, "output": list(output), "usage": USAGE, **fields}
    return {"type": f"response.{status}", "response": response}


def item_added(index: int, **item: Any) -> Json:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def item_done(index: int, **item: Any) -> Json:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def item_event(index: int, kind: str, **fields: Any) -> Json:
    return {"type": f"response.{kind}", "output_index": index, "item_id": f"item_{index}", **fields}


MESSAGE: Json = {
    "id": "item_0",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hello.", "annotations": []}],
}
CALL: Json = {
    "id": "item_1",
    "type": "function_call",
    "call_id": "call_1",
    "name": "get_weather",
    "arguments": '{"city":"Oslo"}',
    "status": "completed",
}
CUSTOM: Json = {
    "id": "item_2",
    "type": "custom_tool_call",
    "call_id": "call_2",
    "name": "apply_patch",
    "input": "*** Begin",
}
REASONING_ITEM: Json = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "A"}, {"type": "summary_text", "text": "B"}],
    "encrypted_content": "gAAA",
}
OSLO = ToolCall(id="call_1", name="get_weather", arguments={"city": "Oslo"})
PATCHES = ToolCall(id="call_2", name="apply_patch", arguments={"input": "*** Begin"}, freeform=True)
REASONING = Reasoning(
    "A\n\nB", "gAAA", {ITEM_ID: "rs_1", REASONING_TEXTS: {"summary": REASONING_ITEM["summary"]}}
)

STREAM_EVENTS: list[Json] = [
    CREATED,
    {"type": "response.in_progress", "response": CREATED["response"]},
    item_added(0, id="rs_1", type="reasoning", summary=[], encrypted_content="g"),
    item_event(0, "reasoning_summary_part.added", summary_index=0, part={"type": "summary_text"}),
    item_event(0, "reasoning_summary_text.delta", summary_index=0, delta="A"),
    item_event(0, "reasoning_summary_text.done", summary_index=0, text="A"),
    item_event(0, "reasoning_summary_text.delta", summary_index=1, delta="B"),
    item_event(0, "reasoning_summary_text.done", summary_index=1, text="B"),
    item_done(0, **REASONING_ITEM),
    item_added(1, **{**MESSAGE, "content": [], "status": "in_progress"}),
    item_event(1, "content_part.added", content_index=0, part={"type": "output_text", "text": ""}),
    item_event(1, "output_text.delta", content_index=0, delta="Hel"),
    item_event(1, "output_text.delta", content_index=0, delta="lo."),
    item_event(1, "output_text.done", content_index=0, text="Hello."),
    item_event(1, "content_part.done", content_index=0, part=MESSAGE["content"][0]),
    item_done(1, **MESSAGE),
    item_added(2, **{**CALL, "arguments": "", "status": "in_progress"}),
    item_event(2, "function_call_arguments.delta", delta='{"city":'),
    item_event(2, "function_call_arguments.delta", delta='"Oslo"}'),
    item_event(2, "function_call_arguments.done", arguments='{"city":"Oslo"}'),
    item_done(2, **CALL),
    item_added(3, **{**CUSTOM, "input": ""}),
    item_event(3, "custom_tool_call_input.delta", delta="*** Begin"),
    item_event(3, "custom_tool_call_input.done", input="*** Begin"),
    item_done(3, **CUSTOM),
    response_event(REASONING_ITEM, MESSAGE, CALL, CUSTOM),
]
HELLO = Text("Hello.", {ITEM_ID: "item_0"})
OSLO_HEARD = replace(OSLO, extra={ITEM_ID: "item_1"})
PARTS = (REASONING, HELLO, OSLO_HEARD, replace(PATCHES, extra={ITEM_ID: "item_2"}))


def test_stream_is_decoded() -> None:
    emitted = decode_frames(*STREAM_EVENTS)
    assert emitted[0] == Started("resp_1", "gpt", wire=WIRE.name, extra={"service_tier": "flex"})
    assert [event.json for event in emitted if isinstance(event, ArgumentsDelta)] == [
        '{"city":',
        '"Oslo"}',
        "*** Begin",
    ]
    reply = fold(emitted)
    assert reply.parts == PARTS
    assert (reply.stop_reason, reply.raw_stop_reason) == ("calls", "completed")
    assert reply.usage == Usage(10, 5, 4, 1, 2)


LESS: list[tuple[str, list[Json]]] = [
    ("the whole response", [response_event(REASONING_ITEM, MESSAGE, CALL, CUSTOM)["response"]]),
    ("only the end", [STREAM_EVENTS[-1]]),
    ("no deltas", [frame for frame in STREAM_EVENTS if not frame["type"].endswith(".delta")]),
    ("only items", [f for f in STREAM_EVENTS if "output_item" in f["type"]] + [response_event()]),
    (
        "only items that are done",
        [f for f in STREAM_EVENTS if "item.done" in f["type"]] + [response_event()],
    ),
]


@pytest.mark.parametrize("frames", [row[1] for row in LESS], ids=[row[0] for row in LESS])
def test_stream_with_fewer_events_is_decoded(frames: list[Json]) -> None:
    reply = fold(decode_frames(*frames))
    assert reply.parts == PARTS
    assert reply.notes == ()


def test_items_without_an_end_are_decoded() -> None:
    """The item's id may come late, with the whole response."""
    reply = fold(decode_frames(*(f for f in STREAM_EVENTS if not f["type"].endswith("item.done"))))
    assert reply.parts[0] == Reasoning("A\n\nB")
    assert reply.parts[1:4] == PARTS[1:]
    assert isinstance(reply.parts[4], Reasoning)
    assert reply.parts[4].signature == "gAAA"


def test_items_without_indexes_are_matched_by_id() -> None:
    stream = [
        item_added(0, **{**MESSAGE, "content": []}),
        item_event(0, "output_text.delta", content_index=0, delta="Hello."),
        item_added(1, **{**CALL, "arguments": ""}),
        item_event(1, "function_call_arguments.delta", delta=CALL["arguments"]),
        item_done(0, **MESSAGE),
        item_done(1, **CALL),
        response_event(CALL, MESSAGE),
    ]
    emitted = decode_frames(*({k: v for k, v in f.items() if k != "output_index"} for f in stream))
    assert fold(emitted).parts == (HELLO, OSLO_HEARD)


def test_items_with_interleaved_deltas_are_decoded() -> None:
    emitted = decode_frames(
        CREATED,
        item_added(0, **{**CALL, "id": "a", "arguments": ""}),
        item_added(1, **{**CALL, "id": "b", "call_id": "call_b", "name": "now", "arguments": ""}),
        item_event(0, "function_call_arguments.delta", delta='{"ci'),
        item_event(1, "function_call_arguments.delta", delta="{"),
        item_event(2, "output_text.delta", content_index=0, delta="Hello."),
        item_event(0, "function_call_arguments.delta", delta='ty":"Oslo"}'),
        item_event(1, "function_call_arguments.delta", delta="}"),
        item_done(1, **{**CALL, "id": "b", "call_id": "call_b", "name": "now", "arguments": "{}"}),
        item_done(0, **{**CALL, "id": "a"}),
        response_event(),
    )
    kinds = [(type(event).__name__, getattr(event, "index", None)) for event in emitted]
    assert kinds == [
        ("Started", None),
        ("CallStart", 0),
        ("ArgumentsDelta", 0),
        ("ArgumentsDelta", 0),
        ("CallEnd", 0),
        ("CallStart", 1),
        ("ArgumentsDelta", 1),
        ("CallEnd", 1),
        ("TextDelta", None),
        ("Finish", None),
    ]
    assert [call.arguments for call in fold(emitted).calls] == [{"city": "Oslo"}, {}]


def test_repeated_events_are_emitted_once() -> None:
    twice = [
        frame for frame in STREAM_EVENTS for _ in range(1 if frame["type"][-5:] == "delta" else 2)
    ]
    assert decode_frames(*twice) == decode_frames(*STREAM_EVENTS)
    late = [
        *STREAM_EVENTS[:-1],
        *(f for f in STREAM_EVENTS if f["type"].endswith("added")),
        STREAM_EVENTS[-1],
    ]
    assert decode_frames(*late) == decode_frames(*STREAM_EVENTS)


def test_two_calls_with_the_same_index_are_both_made() -> None:
    other = {**CALL, "id": "item_9", "call_id": "call_9"}
    emitted = decode_frames(
        item_added(0, **{**CALL, "arguments": ""}),
        item_done(0, **CALL),
        item_added(0, **{**other, "arguments": ""}),
        item_done(0, **other),
        response_event(),
    )
    assert [call.id for call in fold(emitted).calls] == ["call_1", "call_9"]


@pytest.mark.parametrize("given_arguments", [CALL["arguments"], {"city": "Oslo"}])
@pytest.mark.parametrize("incremental", [True, False])
def test_whole_arguments_of_an_item_without_end_are_decoded(
    given_arguments: Any, incremental: bool
) -> None:
    stream = StreamDecoder(WIRE, arguments="incremental" if incremental else "validated")
    emitted = [
        event
        for frame in (
            CREATED,
            item_added(0, **{**CALL, "arguments": ""}),
            item_event(0, "function_call_arguments.done", arguments=given_arguments),
            response_event(),
        )
        for event in stream.feed(encode_sse(frame))
    ]
    reply = fold([*emitted, *stream.finish()])
    assert reply.calls == (OSLO_HEARD,)
    assert reply.stop_reason == "calls"


def test_arguments_before_their_call_are_decoded() -> None:
    emitted = decode_frames(
        CREATED,
        item_event(1, "custom_tool_call_input.done", input="*** Begin") | {"item_id": "item_2"},
        item_added(1, **{**CUSTOM, "input": ""}),
        response_event(),
    )
    assert fold(emitted).calls == (PARTS[3],)


def test_tool_names_with_namespaces_are_mapped_back() -> None:
    tools = (
        Tool(name="wait.agent", namespace="agents"),
        Tool(name="wait.agent"),
        Tool(name="apply_patch", freeform=True),
    )
    request = Request(model="m", messages=(), tools=tools)
    outgoing = WIRE.encode_request(request)
    space, plain, _ = outgoing.body["tools"]
    assert (space["type"], space["tools"][0]["name"], plain["name"]) == (
        "namespace",
        "wait_agent",
        "wait_agent",
    )
    call = {**CALL, "name": "wait_agent", "arguments": "{}"}
    spaced = {**call, "id": "x", "call_id": "call_x", "namespace": "agents"}
    made = fold(decode_frames(response_event(call, spaced, CUSTOM), names=outgoing.names)).calls
    assert [(c.namespace, c.name) for c in made] == [
        (None, "wait.agent"),
        ("agents", "wait.agent"),
        (None, "apply_patch"),
    ]
    assert made[2].input == "*** Begin"


REASONS: list[tuple[Json, str, str]] = [
    (response_event(MESSAGE), "stop", "completed"),
    (response_event(CALL), "calls", "completed"),
    (
        response_event(
            MESSAGE, status="incomplete", incomplete_details={"reason": "max_output_tokens"}
        ),
        "length",
        "max_output_tokens",
    ),
    (
        response_event(
            MESSAGE, status="incomplete", incomplete_details={"reason": "content_filter"}
        ),
        "filter",
        "content_filter",
    ),
    (
        response_event({**MESSAGE, "content": [{"type": "refusal", "refusal": "No."}]}),
        "refusal",
        "completed",
    ),
]


@pytest.mark.parametrize(("frame", "reason", "raw"), REASONS)
def test_stop_reason_is_decoded(frame: Json, reason: str, raw: str) -> None:
    for shape in (frame, frame["response"]):
        reply = fold(decode_frames(shape))
        assert (reply.stop_reason, reply.raw_stop_reason) == (reason, raw)


@pytest.mark.parametrize(
    ("frame", "failure"),
    [
        (
            {"type": "error", "code": "server_error", "message": "Oh.", "param": None},
            Failure("upstream", "Oh.", 500, "server_error"),
        ),
        (
            {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow."}},
            Failure("rate_limit", "Slow.", 429, "rate_limit_error"),
        ),
        (
            response_event(
                status="failed", error={"code": "rate_limit_exceeded", "message": "Slow."}
            ),
            Failure("rate_limit", "Slow.", 429, "rate_limit_exceeded"),
        ),
        (
            response_event(
                status="failed", error={"code": "context_length_exceeded", "message": "Long."}
            )["response"],
            Failure("context_length", "Long.", 400, "context_length_exceeded"),
        ),
        ({"error": {"message": "Oh.", "code": 503}}, Failure("overloaded", "Oh.", 503, "503")),
        (
            response_event(status="cancelled")["response"],
            Failure("upstream", "The upstream's response has the status `cancelled`.", 500),
        ),
    ],
)
def test_error_is_decoded(frame: Json, failure: Failure) -> None:
    assert fold(decode_frames(frame)).failure == failure


def test_refusal_is_a_separate_text() -> None:
    emitted = decode_frames(
        CREATED,
        item_added(0, **{**MESSAGE, "content": []}),
        item_event(0, "refusal.delta", content_index=0, delta="I "),
        item_event(0, "refusal.delta", content_index=0, delta="won't."),
        item_event(0, "refusal.done", content_index=0, refusal="I won't."),
        item_done(0, **{**MESSAGE, "content": [{"type": "refusal", "refusal": "I won't."}]}),
        response_event(),
    )
    reply = fold(emitted)
    assert reply.parts == (Text("I won't.", {"type": "refusal", ITEM_ID: "item_0"}),)
    assert reply.stop_reason == "refusal"


def test_refusal_without_end_is_emitted() -> None:
    delta = item_event(0, "refusal.delta", content_index=0, delta="I won't.")
    assert fold(decode_frames(CREATED, delta, response_event())).text == "I won't."


def test_reasoning_as_content_and_summary_is_emitted_once() -> None:
    item = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "short"}],
        "content": [{"type": "reasoning_text", "text": "long"}],
    }
    emitted = decode_frames(
        CREATED,
        item_added(0, id="rs_1", type="reasoning", summary=[]),
        item_event(0, "reasoning_text.delta", content_index=0, delta="lo"),
        item_event(0, "reasoning_text.delta", content_index=0, delta="ng"),
        item_event(0, "reasoning_text.done", content_index=0, text="long"),
        item_event(0, "reasoning_summary_text.delta", summary_index=0, delta="short"),
        item_done(0, **item),
        response_event(item),
    )
    reply = fold(emitted)
    assert reply.reasoning == "long"
    [part] = reply.parts
    assert isinstance(part, Reasoning)
    assert part.extra[REASONING_TEXTS] == {"summary": item["summary"], "content": item["content"]}


def test_reasoning_without_text_keeps_its_id() -> None:
    empty = {"id": "rs_1", "type": "reasoning", "summary": []}
    emitted = decode_frames(response_event(empty, MESSAGE))
    assert fold(emitted).parts == (Other(empty), HELLO)
    assert encode_response(emitted)["output"][0] == empty
    for wire in (ANTHROPIC, CHAT):
        encoder = wire.stream_encoder(ENVELOPE)
        assert b"thinking" not in b"".join(map(encoder.feed, emitted))


def test_hosted_calls_and_images_are_decoded_as_parts() -> None:
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    drawn = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "AA=="}
    searching = item_event(0, "web_search_call.searching")
    reply = fold(
        decode_frames(
            CREATED,
            item_added(0, **search),
            searching,
            item_done(0, **search),
            response_event(search, drawn),
        )
    )
    assert reply.parts[0] == Other(search)
    assert isinstance(reply.parts[1], Image)
    assert reply.parts[1].data == "AA=="


def test_incomplete_call_is_rejected() -> None:
    cut: Json = {"incomplete_details": {"reason": "max_output_tokens"}, "status": "incomplete"}
    streamed = decode_frames(
        CREATED,
        item_added(0, **{**CUSTOM, "input": ""}),
        item_event(0, "custom_tool_call_input.delta", delta="*** Beg"),
        response_event(**cut),
    )
    whole = decode_frames(response_event({**CUSTOM, "status": "incomplete"}, **cut))
    for emitted in (streamed, whole):
        reply = fold(emitted)
        assert reply.calls == ()
        assert reply.rejected[0].code == "truncated"
        assert reply.stop_reason == "length"


def test_call_without_arguments_has_an_empty_object() -> None:
    reply = fold(decode_frames(response_event({**CALL, "arguments": '{"city": '})))
    assert reply.calls == ()
    assert list_codes(reply.notes) == ["undecodable-arguments"]


def test_fields_of_messages_and_texts_are_carried() -> None:
    part = {"type": "output_text", "text": "Hello.", "annotations": [{"type": "url_citation"}]}
    message = {**MESSAGE, "content": [part], "phase": "final_answer"}
    streamed = [
        CREATED,
        item_added(0, **{**MESSAGE, "content": []}),
        item_event(0, "output_text.delta", content_index=0, delta="Hello."),
        item_event(0, "content_part.done", content_index=0, part=part),
        item_done(0, **message),
        response_event(message),
    ]
    for frames in (streamed, [response_event(message)]):
        emitted = decode_frames(*frames)
        assert fold(emitted).text == "Hello."
        out = encode_response(emitted)
        assert out["output"][0]["content"] == [part]
        assert out["output"][0]["phase"] == "final_answer"


BYTES = b"".join(
    b"event: " + frame["type"].encode() + b"\ndata: " + json.dumps(frame).encode() + b"\n\n"
    for frame in STREAM_EVENTS
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 10_000])
def test_stream_cut_anywhere_decodes_the_same(size: int) -> None:
    stream = StreamDecoder(WIRE, arguments="incremental")
    emitted: list[Event] = []
    for at in range(0, len(BYTES), size):
        emitted += stream.feed(BYTES[at : at + size])
    assert [*emitted, *stream.finish()] == decode_frames(*STREAM_EVENTS)


def test_stream_without_end_is_a_failure() -> None:
    stream = StreamDecoder(WIRE)
    emitted = [*stream.feed(BYTES[: len(BYTES) // 2]), *stream.finish()]
    assert isinstance(emitted[-1], Failure)


WORDS = ["type", "item", "output", "output_index", "item_id", "delta", "content", "response", "id"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "x", "message"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner),
    max_leaves=8,
)


@given(st.lists(st.integers(0, len(STREAM_EVENTS) - 1), max_size=12), st.data())
def test_mutated_streams_raise_nothing(order: list[int], data: st.DataObject) -> None:
    stream = StreamDecoder(WIRE)
    for index in order:
        frame = dict(STREAM_EVENTS[index])
        key = data.draw(st.sampled_from(sorted(frame)))
        frame[key] = data.draw(VALUES) if data.draw(st.booleans()) else frame[key]
        list(stream.feed(encode_sse(frame)))
    list(stream.finish())


@given(st.dictionaries(st.sampled_from(["input", "tools", "tool_choice", "text"]), VALUES))
def test_mutated_requests_raise_only_wire_errors(body: Json) -> None:
    try:
        WIRE.encode_request(WIRE.decode_request(body))
    except WireError:
        pass


# Encoding replies.

REQUEST = decode(tools=[WEATHER, AGENTS, PATCH], instructions="Be brief.", stream=True)
ENVELOPE = Envelope(REQUEST, "resp_7", 1_700_000_000)
NAMESPACED = ToolCall(id="call_3", name="wait_agent", arguments={}, namespace="multi_agent_v1")
ANSWER: list[Event] = [
    Started("chatcmpl-1", "deep", wire="openai_chat"),
    ReasoningDelta("Let me "),
    ReasoningDelta("see."),
    ReasoningDelta("", "sig"),
    TextDelta("Look"),
    TextDelta("ing."),
    CallStart(0, "call_1", "get_weather", "native"),
    ArgumentsDelta(0, '{"city": '),
    ArgumentsDelta(0, '"Oslo"}'),
    CallEnd(0, OSLO),
    CallStart(1, "call_3", "wait_agent", "native", "multi_agent_v1"),
    CallEnd(1, NAMESPACED),
    CallStart(2, "call_2", "apply_patch", "native", None, True),
    ArgumentsDelta(2, "*** "),
    ArgumentsDelta(2, "Begin"),
    CallEnd(2, PATCHES),
    Finish("calls", "tool_calls", Usage(10, 5, 4, 1, 2)),
]


def encode_stream(emitted: Iterable[Event], envelope: Envelope = ENVELOPE) -> bytes:
    encoder = WIRE.stream_encoder(envelope)
    return b"".join(map(encoder.feed, emitted))


def encode_frames(emitted: Iterable[Event]) -> list[Json]:
    framing = ServerSentEvents()
    read = [*framing.feed(encode_stream(emitted)), *framing.finish()]
    values = [decode_json(frame.data) for frame in read]
    assert [frame.event for frame in read] == [value["type"] for value in values]
    assert [value["sequence_number"] for value in values] == list(range(len(values)))
    return values


def encode_response(emitted: Iterable[Event]) -> Json:
    return encode_frames(emitted)[-1]["response"]


def test_reply_is_encoded_as_a_stream() -> None:
    emitted = [(frame["type"].removeprefix("response."), frame) for frame in encode_frames(ANSWER)]
    assert [kind for kind, _ in emitted] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
        "completed",
    ]
    items = [frame["item"] for kind, frame in emitted if kind == "output_item.done"]
    assert items == [
        {
            "id": "rs_0_7",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "Let me see."}],
            "encrypted_content": "sig",
        },
        {
            "id": "msg_1_7",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Looking.", "annotations": []}],
        },
        {
            "id": "fc_2_7",
            "type": "function_call",
            "status": "completed",
            "call_id": "call_1",
            "name": "get_weather",
            "arguments": '{"city": "Oslo"}',
        },
        {
            "id": "fc_3_7",
            "type": "function_call",
            "status": "completed",
            "call_id": "call_3",
            "name": "wait_agent",
            "namespace": "multi_agent_v1",
            "arguments": "{}",
        },
        {
            "id": "ctc_4_7",
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": "call_2",
            "name": "apply_patch",
            "input": "*** Begin",
        },
    ]
    last = emitted[-1][1]["response"]
    assert last["output"] == items
    assert last["usage"] == USAGE
    assert (last["status"], last["id"], last["model"]) == ("completed", "resp_7", "deep")
    assert last["instructions"] == "Be brief."
    assert last["tools"] == [WEATHER, AGENTS, PATCH]
    assert last["created_at"] == 1_700_000_000


def test_whole_reply_equals_the_end_of_its_stream() -> None:
    whole = WIRE.encode_reply(fold(ANSWER), ENVELOPE)
    streamed = encode_response(ANSWER)
    streamed["output"][2]["arguments"] = '{"city":"Oslo"}'
    assert whole == streamed


def test_reply_from_the_same_api_keeps_its_fields() -> None:
    came = response_event(REASONING_ITEM, {**MESSAGE, "phase": "commentary"}, CALL, CUSTOM)[
        "response"
    ]
    reply = fold(WIRE.decode_reply(came))
    out = WIRE.encode_reply(reply, ENVELOPE)
    assert (out["id"], out["service_tier"]) == ("resp_1", "flex")
    assert out["output"][0] == REASONING_ITEM
    assert out["output"][1]["phase"] == "commentary"
    assert out["usage"] == came["usage"]


STORED: list[Json] = [
    {"id": "rs_a", "type": "reasoning", "summary": [], "status": "completed"},
    {
        "id": "rs_b",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "status": "completed",
    },
    {**MESSAGE, "id": "msg_a"},
    {**MESSAGE, "id": "msg_b", "phase": "final_answer"},
    {**CALL, "id": "fc_a", "caller": {"type": "direct"}, "score": 1},
    {**CUSTOM, "id": "ctc_a", "status": "completed"},
    {"id": "ws_a", "type": "web_search_call", "status": "completed"},
]


def stream_items(*items: Json) -> Iterator[Json]:
    """Yield the events by which OpenAI streams items."""
    yield CREATED
    for index, item in enumerate(items):
        empty: Json = {"summary": [], "content": [], "arguments": "", "input": ""}
        begun = {key: empty.get(key, value) for key, value in item.items()}
        yield item_added(index, **begun)
        about = {"item_id": item["id"]}
        for part in item.get("content", ()):
            yield item_event(index, "output_text.delta", delta=part["text"]) | about
            yield item_event(index, "content_part.done", part=part) | about
        for part in item.get("summary", ()):
            yield item_event(index, "reasoning_summary_text.delta", delta=part["text"]) | about
        if "arguments" in item:
            yield (
                item_event(index, "function_call_arguments.delta", delta=item["arguments"]) | about
            )
        if "input" in item:
            yield item_event(index, "custom_tool_call_input.delta", delta=item["input"]) | about
        yield item_done(index, **item)
    yield response_event(*items)


@pytest.mark.parametrize("mode", ["incremental", "validated"])
def test_items_from_the_same_api_keep_their_ids(mode: Any) -> None:
    stream = StreamDecoder(WIRE, arguments=mode)
    emitted = [event for frame in stream_items(*STORED) for event in stream.feed(encode_sse(frame))]
    emitted += stream.finish()
    out = encode_frames(emitted)
    assert out[-1]["response"]["output"] == STORED
    assert WIRE.encode_reply(fold(emitted), ENVELOPE)["output"] == STORED
    ids = [item["id"] for item in STORED]
    assert [f["item"]["id"] for f in out if f["type"].endswith("item.added")] == ids
    assert [f["item"]["id"] for f in out if f["type"].endswith("item.done")] == ids
    assert all(f["item_id"] == ids[f["output_index"]] for f in out if "item_id" in f)
    assert read_with_sdk(emitted)


def test_whole_reply_from_the_same_api_keeps_item_ids() -> None:
    came = response_event(*STORED)["response"]
    reply = fold(WIRE.decode_reply(came))
    assert WIRE.encode_reply(reply, ENVELOPE)["output"] == STORED
    history = round_trip(input=[*STORED], store=True)["input"]
    assert history == STORED
    parts = Request(model="m", messages=(Message("assistant", reply.parts),), wire=WIRE.name)
    assert [item["id"] for item in encode(parts)["input"]] == [item["id"] for item in STORED]


def test_item_ids_from_another_api_are_not_sent() -> None:
    emitted = decode_frames(*stream_items(*STORED))
    for wire in (CHAT, ANTHROPIC):
        encoder = wire.stream_encoder(ENVELOPE)
        written = b"".join(map(encoder.feed, emitted))
        assert b"msg_a" not in written
        assert b"fc_a" not in written
        assert not any("~" in note.message for note in wire.find_losses(fold(emitted)))


def test_response_with_two_starts_starts_once() -> None:
    kinds = [frame["type"] for frame in encode_frames([*ANSWER[:1], *ANSWER])]
    assert kinds.count("response.created") == 1
    assert kinds == [frame["type"] for frame in encode_frames(ANSWER)]


def test_call_without_end_is_cancelled() -> None:
    out = encode_frames([CallStart(0, "c", "get_weather"), ArgumentsDelta(0, "{}"), Finish("stop")])
    assert out[-2]["item"]["status"] == "incomplete"
    assert out[-1]["response"]["output"] == []


def test_usage_of_the_same_api_is_carried() -> None:
    usage = {
        **USAGE,
        "cost": 0.5,
        "total_tokens": 99,
        "input_tokens_details": {**USAGE["input_tokens_details"], "audio_tokens": 3},
    }
    emitted = decode_frames(response_event(MESSAGE, usage=usage))
    assert encode_response(emitted)["usage"] == usage
    elsewhere = [
        replace(event, wire="x") if isinstance(event, Started) else event for event in emitted
    ]
    assert encode_response(elsewhere)["usage"] == USAGE


STATES: list[tuple[str, list[Event], str, Json | None, list[str]]] = [
    ("nothing", [Finish("stop")], "completed", None, []),
    (
        "cut short",
        [TextDelta("Hel"), Finish("length")],
        "incomplete",
        {"reason": "max_output_tokens"},
        ["incomplete"],
    ),
    (
        "filtered",
        [TextDelta("Hel"), Finish("filter")],
        "incomplete",
        {"reason": "content_filter"},
        ["incomplete"],
    ),
    (
        "refused in words",
        [TextDelta("I won't.", {"type": "refusal"}), Finish("refusal")],
        "completed",
        None,
        ["completed"],
    ),
    (
        "refused, and no word why",
        [Started(wire="anthropic"), TextDelta("Well"), Finish("refusal", "refusal")],
        "incomplete",
        {"reason": "content_filter"},
        ["incomplete"],
    ),
    (
        "ended in error",
        [TextDelta("Well"), Finish("error", "MALFORMED_FUNCTION_CALL")],
        "failed",
        None,
        ["incomplete"],
    ),
    ("unsigned thoughts", [ReasoningDelta("A"), Finish("stop")], "completed", None, [""]),
    (
        "a call taken back",
        [
            CallStart(0, "c", "get_weather"),
            ArgumentsDelta(0, '{"ci'),
            CallRejected(None, 0),
            Note("undecodable-arguments", "x"),
            TextDelta("Sorry."),
            Finish("stop"),
        ],
        "completed",
        None,
        ["completed"],
    ),
    ("no words", [TextDelta(""), ReasoningDelta(""), Finish("stop")], "completed", None, []),
]


@pytest.mark.parametrize(
    ("emitted", "status", "details", "items"),
    [row[1:] for row in STATES],
    ids=[r[0] for r in STATES],
)
def test_stop_reason_is_encoded_as_a_status(
    emitted: list[Event], status: str, details: Json | None, items: list[str]
) -> None:
    last = encode_frames(emitted)[-1]
    assert last["type"] == f"response.{status}"
    out = last["response"]
    assert (out["status"], out["incomplete_details"]) == (status, details)
    assert [item.get("status", "") for item in out["output"]] == items
    assert read_with_sdk(emitted)
    whole = WIRE.encode_reply(fold(emitted), ENVELOPE)
    assert (whole["status"], whole["incomplete_details"]) == (status, details)


def test_refusal_from_another_api_is_encoded() -> None:
    came = {"choices": [{"message": {"refusal": "I won't."}, "finish_reason": "stop"}]}
    emitted = list(CHAT.decode_reply(came))
    out = WIRE.encode_reply(fold(emitted), ENVELOPE)
    assert out["status"] == "completed"
    assert out["output"][0]["content"] == [{"type": "refusal", "refusal": "I won't."}]
    assert encode_response(emitted)["output"] == out["output"]
    heard = fold(WIRE.decode_reply(out))
    assert (heard.text, heard.stop_reason) == ("I won't.", "refusal")


def test_rejected_call_is_closed_as_incomplete() -> None:
    closed = [
        frame["item"]
        for frame in encode_frames(STATES[7][1])
        if frame["type"].endswith("item.done")
    ]
    assert closed[0]["status"] == "incomplete"
    assert closed[0]["arguments"] == '{"ci'


def test_repaired_arguments_replace_those_streamed() -> None:
    emitted = [
        CallStart(0, "call_1", "get_weather"),
        ArgumentsDelta(0, "{'city': 'Oslo'}"),
        CallEnd(0, OSLO),
        Finish("calls"),
    ]
    assert encode_response(emitted)["output"][0]["arguments"] == '{"city":"Oslo"}'


def test_parts_of_other_apis_are_dropped_and_images_sent() -> None:
    drawn = PartAdded(Image(data="AA==", media_type="image/webp"))
    emitted: list[Event] = [
        Started(wire="anthropic"),
        PartAdded(Other({"type": "server_tool_use"})),
        drawn,
        Finish("stop"),
    ]
    [item] = encode_response(emitted)["output"]
    assert (item["type"], item["result"]) == ("image_generation_call", "AA==")
    assert item["output_format"] == "webp"


SLOW = Failure("rate_limit", "Slow.", 429)


def test_failure_within_a_stream_is_encoded() -> None:
    emitted = encode_frames([TextDelta("Half"), SLOW])
    error, failed = emitted[-2:]
    assert error["type"] == "error"
    assert error["message"] == error["error"]["message"] == "Slow."
    assert failed["type"] == "response.failed"
    assert failed["response"]["error"] == {"code": "rate_limit_exceeded", "message": "Slow."}
    heard = fold(StreamDecoder(WIRE).feed(encode_stream([TextDelta("Half"), SLOW])))
    assert heard.text == "Half"
    assert heard.failure == Failure("rate_limit", "Slow.", 429, "rate_limit_error")


def test_failed_reply_is_encoded() -> None:
    reply = Reply(failure=Failure("internal", "Oh."))
    out = WIRE.encode_reply(reply, ENVELOPE)
    assert (out["status"], out["error"]["code"]) == ("failed", "server_error")


# OpenAI's SDK.


@contextmanager
def open_sdk(body: bytes, kind: str = "text/event-stream") -> Generator[openai.OpenAI]:
    """Open the SDK with a server that sends this reply."""
    with (
        serve_response(200, body, kind) as (url, _),
        openai.OpenAI(api_key="none", base_url=f"{url}/v1", max_retries=0) as sdk,
    ):
        yield sdk


def read_with_sdk(emitted: Iterable[Event]) -> list[Any]:
    """Return the events of the SDK's own stream helper, which checks their order."""
    with (
        open_sdk(encode_stream(emitted)) as sdk,
        sdk.responses.stream(model="m", input="Hi") as stream,
    ):
        return list(stream)


def find_type_errors(value: Any) -> Iterator[str]:
    """Yield the values that do not fit the SDK's types, which it does not check itself."""
    try:
        type(value).model_validate(value.to_dict())
    except ValueError as error:
        yield str(error)


def test_sdk_reads_a_stream() -> None:
    with (
        open_sdk(encode_stream(ANSWER)) as sdk,
        sdk.responses.stream(model="m", input="Hi") as stream,
    ):
        emitted: list[Any] = list(stream)
        final: Any = stream.get_final_response()
    assert final.output_text == "Looking."
    reasoning, message, call, spaced, custom = final.output
    assert reasoning.type == "reasoning"
    assert reasoning.summary[0].text == "Let me see."
    assert reasoning.encrypted_content == "sig"
    assert message.type == "message"
    assert call.type == spaced.type == "function_call"
    assert json.loads(call.arguments) == {"city": "Oslo"}
    assert (spaced.name, spaced.namespace) == ("wait_agent", "multi_agent_v1")
    assert custom.type == "custom_tool_call"
    assert custom.input == "*** Begin"
    assert final.usage
    assert final.usage.total_tokens == 15
    snapshots = [
        event for event in emitted if event.type == "response.function_call_arguments.delta"
    ]
    assert snapshots[1].snapshot == '{"city": "Oslo"}'


def test_all_events_fit_the_types_of_the_sdk() -> None:
    with open_sdk(encode_stream(ANSWER)) as sdk:
        raw = sdk.responses.create(model="m", input="Hi", stream=True)
        problems = [problem for event in raw for problem in find_type_errors(event)]
    assert problems == []


def test_sdk_reads_a_whole_reply() -> None:
    body = json.dumps(WIRE.encode_reply(fold(ANSWER), ENVELOPE)).encode()
    with open_sdk(body, "application/json") as sdk:
        heard = sdk.responses.create(model="m", input="Hi")
    assert heard.output_text == "Looking."
    assert [item.type for item in heard.output] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
        "custom_tool_call",
    ]
    assert list(find_type_errors(heard)) == []


def test_sdk_raises_when_a_stream_fails() -> None:
    emitted = [TextDelta("Half"), Failure("overloaded", "the model is busy", 529)]
    with pytest.raises(openai.APIError, match="the model is busy"):
        read_with_sdk(emitted)


# Round trips.

NAME_TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
JSON_OBJECT = st.dictionaries(NAME_TEXT, st.integers() | NAME_TEXT | st.booleans(), max_size=3)
IDS = st.from_regex(r"call_[a-z0-9]{1,6}", fullmatch=True)
NAMES = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
CALLS = st.builds(ToolCall, id=IDS, name=NAMES, arguments=JSON_OBJECT)
INPUTS = st.fixed_dictionaries({"input": NAME_TEXT})
FREEFORM = st.builds(ToolCall, id=IDS, name=NAMES, arguments=INPUTS, freeform=st.just(True))
THOUGHT_PARTS = st.builds(Reasoning, NAME_TEXT, st.none() | NAME_TEXT)
IMAGES = st.builds(Image, data=st.sampled_from(["AA==", "BB=="]))
SPOKEN = st.lists(st.builds(Text, NAME_TEXT) | IMAGES, min_size=1, max_size=3)
TURNS = st.one_of(
    SPOKEN.map(lambda parts: Message("user", tuple(parts))),
    st.lists(
        st.builds(Text, NAME_TEXT) | CALLS | FREEFORM | THOUGHT_PARTS, min_size=1, max_size=4
    ).map(lambda parts: Message("assistant", tuple(parts))),
    NAME_TEXT.map(lambda text: Message("developer", (Text(text),))),
)


@given(st.lists(TURNS, max_size=5))
def test_conversation_round_trip_is_equal(turns: list[Message]) -> None:
    alternating = [
        turn
        for index, turn in enumerate(turns)
        if turn.role != "assistant" or not index or turns[index - 1].role != "assistant"
    ]
    request = Request(model="m", messages=tuple(alternating), wire=WIRE.name)
    body = json.loads(json.dumps(encode(request)))
    assert WIRE.decode_request(body).messages == request.messages
