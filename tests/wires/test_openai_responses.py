"""OpenAI Responses: each direction by tables, and the streams as OpenAI's own SDK reads them."""

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

from tests.wires.support import answering
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
from toolspeak.wires import Envelope, StreamDecoder, Wire
from toolspeak.wires.anthropic import WIRE as ANTHROPIC
from toolspeak.wires.calls import CallAssembler
from toolspeak.wires.encoding import OPENAI_NAMES, ToolNames
from toolspeak.wires.fields import HOSTED_TOOLS
from toolspeak.wires.framing import ServerSentEvents, decode_json
from toolspeak.wires.openai_chat import WIRE as CHAT
from toolspeak.wires.openai_responses import WIRE
from toolspeak.wires.openai_responses.items import ITEM_STATUS, REASONING_TEXTS

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


def decoded(**body: Any) -> Request:
    return WIRE.decode_request({"model": "m", **body})


def sent(request: Request) -> Json:
    return WIRE.encode_request(request).body


def again(**body: Any) -> Json:
    """A body, after it was taken apart and put together."""
    return sent(decoded(**body))


def codes(notes: Iterable[Note]) -> list[str]:
    return [note.code for note in notes]


# Requests that come.


def test_what_codex_asks() -> None:
    request = WIRE.decode_request(CODEX)
    assert [message.role for message in request.messages] == [
        "developer",
        "user",
        "assistant",
        "tool",
    ]
    thought, said, waits, patches = request.messages[2].parts
    assert thought == Reasoning("", "gAAA")
    assert said == Text("On it.", {"phase": "commentary"})
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


def test_what_codex_asks_goes_on_as_it_came() -> None:
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


def test_what_codex_asks_elsewhere() -> None:
    outgoing = CHAT.encode_request(WIRE.decode_request(CODEX))
    names = [tool["function"]["name"] for tool in outgoing.body["tools"]]
    assert names == [
        "get_weather",
        "multi_agent_v1__spawn_agent",
        "multi_agent_v1__wait_agent",
        "apply_patch",
    ]
    said = " ".join(note.message for note in outgoing.notes)
    for unsaid in ("store", "prompt_cache_key", "phase", "defer_loading", "namespace"):
        assert f"does not support `{unsaid}`;" in said
    assert "~" not in said
    assert "support `tools" not in said
    assert "support `id" not in said
    assert "support `status" not in said


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
        "thoughts in several texts, and in their own words",
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
def test_items(given_input: Any, messages: list[Message]) -> None:
    request = decoded(input=given_input)
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


def test_items_go_back_under_the_ids_they_came_with() -> None:
    request = decoded(input=KNOWN, store=True)
    outgoing = WIRE.encode_request(request)
    assert outgoing.body["input"] == KNOWN
    assert outgoing.notes == ()
    assert WIRE.decode_request(outgoing.body).messages == request.messages


@pytest.mark.parametrize("wire", [CHAT, ANTHROPIC])
def test_ids_of_items_mean_nothing_elsewhere(wire: Wire) -> None:
    outgoing = wire.encode_request(decoded(input=KNOWN))
    written = json.dumps(outgoing.body)
    for identity in ("msg_0", "msg_1", "fc_1", "ctc_1", "fco_1", "~"):
        assert f'"{identity}' not in written
    said = " ".join(note.message for note in outgoing.notes)
    assert "for id;" not in said
    assert "status" not in said
    assert "~" not in said


def test_ids_that_we_made_up_do_not_go_back() -> None:
    history = response(ANSWER)["output"]
    assert [item["id"] for item in history] == ["rs_0_7", "msg_1_7", "fc_2_7", "fc_3_7", "ctc_4_7"]
    items = again(input=history)["input"]
    assert [item["type"] for item in items] == [item["type"] for item in history]
    assert not any("id" in item or "status" in item for item in items)


def test_many_results_in_a_row_take_no_time() -> None:
    count = 50_000
    items = [
        {"type": "function_call_output", "call_id": f"c{i}", "output": ""} for i in range(count)
    ]
    started = time.process_time()
    [message] = decoded(input=items).messages
    assert time.process_time() - started < 3
    assert len(message.parts) == count


def test_instructions_stay_beside_the_input() -> None:
    request = decoded(instructions="Be brief.", input=[{"role": "system", "content": "B"}])
    assert [message.role for message in request.messages] == ["system", "system"]
    body = sent(request)
    assert body["instructions"] == "Be brief."
    assert [item["content"] for item in body["input"]] == ["B"]
    chat = CHAT.encode_request(request)
    assert chat.notes == ()
    assert [message["content"] for message in chat.body["messages"]] == ["Be brief.", "B"]


def test_a_system_message_from_elsewhere_is_an_item() -> None:
    request = CHAT.decode_request({"messages": [{"role": "system", "content": "Be brief."}]})
    body = sent(request)
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
def test_what_is_wrong_with_a_request(body: Any, path: str) -> None:
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


@pytest.mark.parametrize(("choice", "meant"), CHOICES)
def test_tool_choice(choice: Any, meant: ToolChoice) -> None:
    request = decoded(tools=[WEATHER, PATCH], tool_choice=choice)
    assert request.tool_choice == meant
    assert sent(request)["tool_choice"] == choice
    hosted = "web_search" in str(choice) or "mcp" in str(choice)
    assert request.notes == WIRE.encode_request(request).notes == ()
    said = " ".join(note.message for note in ANTHROPIC.encode_request(request).notes)
    assert ("does not support `tool_choice" in said) == hosted


def test_a_choice_that_was_changed_since_is_not_the_one_that_came() -> None:
    request = decoded(tools=[WEATHER], tool_choice={"type": "web_search_preview"})
    changed = Request(
        model="m",
        messages=(),
        tools=request.tools,
        tool_choice=ToolChoice("none"),
        wire=WIRE.name,
        extra=request.extra,
    )
    assert sent(changed)["tool_choice"] == "none"


@pytest.mark.parametrize("tools", [{}, {"tools": None}, {"tools": []}])
@pytest.mark.parametrize("mode", ["auto", "required"])
def test_a_choice_among_no_tools_is_only_a_mode(tools: Json, mode: Any) -> None:
    request = decoded(tools=[WEATHER], tool_choice={"type": "allowed_tools", "mode": mode, **tools})
    assert request.tool_choice == ToolChoice(mode)
    assert sent(request).get("tool_choice", "auto") == mode


def test_a_choice_keeps_its_namespace() -> None:
    tools = [
        {"type": "namespace", "name": name, "tools": [{**WEATHER, "name": "go.now"}]}
        for name in ("n1", "n2")
    ]
    go = {"type": "function", "name": "go.now", "namespace": "n1"}
    written = {**go, "name": "go_now"}
    request = decoded(tools=tools, tool_choice=go)
    assert request.tool_choice == ToolChoice("required", ("go.now",))
    assert sent(request)["tool_choice"] == written
    either = {"type": "allowed_tools", "mode": "auto", "tools": [go, {"type": "web_search"}]}
    body = again(tools=tools, tool_choice=either)
    assert body["tool_choice"] == {**either, "tools": [written, {"type": "web_search"}]}
    changed = replace(request, tool_choice=ToolChoice("none"))
    assert sent(changed)["tool_choice"] == "none"
    assert not any("tool_choice" in note.message for note in CHAT.encode_request(request).notes)


def test_hosted_tools_are_noted_only_where_they_cannot_be_offered() -> None:
    inner = {"type": "web_search", "filters": {}}
    space = {**AGENTS, "tools": [*AGENTS["tools"], inner]}
    empty = {"type": "namespace", "name": "later", "tools": []}
    only = {"type": "namespace", "name": "web", "description": "Web.", "tools": [inner]}
    tools = [WEATHER, space, SEARCH, empty, only]
    request = decoded(tools=tools)
    same = WIRE.encode_request(request)
    assert same.body["tools"] == tools
    assert request.notes == same.notes == ()
    skipped = [n.message for n in CHAT.encode_request(request).notes if n.code == "skipped-tool"]
    assert len(skipped) == 2
    assert "'web_search'" in skipped[0]
    assert "'namespace'" in skipped[1]
    assert WIRE.encode_reply(Reply(), Envelope(request, "1"))["tools"] == tools


def test_no_tools_are_not_the_same_as_nothing_about_tools() -> None:
    assert decoded().tools is None
    assert decoded(tools=[]).tools == ()
    assert again(tools=[])["tools"] == []
    assert "tools" not in again()
    only_hosted = decoded(tools=[SEARCH])
    assert only_hosted.tools == ()
    assert sent(only_hosted)["tools"] == [SEARCH]


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
def test_settings(body: Json) -> None:
    assert again(**body) == {"model": "m", "input": [], **body}


def test_settings_of_other_apis_are_noted() -> None:
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
    said = " ".join(note.message for note in outgoing.notes)
    for word in ("stop sequences", "top_k", "seed", "effort 'medium'", "sent as 16"):
        assert word in said


def test_tools_from_elsewhere() -> None:
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
    assert codes(outgoing.notes) == ["renamed-tool"]


def test_results_of_freeform_calls_are_of_their_own_kind() -> None:
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
    assert again(input=alone, previous_response_id="resp_1")["input"] == alone


def test_ids_of_calls_that_are_too_long_are_cut_alike() -> None:
    call = ToolCall(id="c" * 100, name="f", arguments={})
    result = ToolResult(call_id=call.id, name="f", content="ok")
    parts = (Message("assistant", (call,)), Message("tool", (result,)))
    made, answered = sent(Request(model="m", messages=parts))["input"]
    assert made["call_id"] == answered["call_id"]
    assert len(made["call_id"]) == 64


INPUTS_ODD: list[tuple[Any, str]] = [({"a": 1}, '{"a":1}'), (None, ""), ([1], "[1]"), (3, "3")]


@pytest.mark.parametrize(("given_input", "text"), INPUTS_ODD)
def test_a_freeform_call_says_nothing_in_python(given_input: Any, text: str) -> None:
    call = ToolCall(id="c", name="p", arguments={"input": given_input}, freeform=True)
    request = Request(model="m", messages=(Message("assistant", (call,)),))
    assert sent(request)["input"][0]["input"] == text
    told: list[Event] = [CallStart(0, "c", "p", freeform=True), CallEnd(0, call), Finish("calls")]
    assert response(told)["output"][0]["input"] == text
    assert WIRE.encode_reply(fold(told), ENVELOPE)["output"][0]["input"] == text


def test_a_thought_whose_text_is_none_has_no_words() -> None:
    thought = {"type": "reasoning", "summary": [{"text": {"a": 1}}], "encrypted_content": "x"}
    [message] = decoded(input=[thought]).messages
    assert message.parts == (Reasoning("", "x"),)


THOUGHTS: list[tuple[str, str, Reasoning, Json | None]] = [
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
    ("wire", "thought", "item"), [row[1:] for row in THOUGHTS], ids=[row[0] for row in THOUGHTS]
)
def test_thoughts_go_back_only_to_who_knows_them(
    wire: str, thought: Reasoning, item: Json | None
) -> None:
    request = Request(model="m", messages=(Message("assistant", (thought,)),), wire=wire)
    outgoing = WIRE.encode_request(request)
    assert outgoing.body["input"] == ([{"type": "reasoning", **item}] if item else [])
    assert codes(outgoing.notes) == ([] if item else ["unsupported"])


def test_a_text_about_the_message_ends_it() -> None:
    parts = (
        Text("A"),
        Text("", {"annotations": [1]}),
        Text("", {"phase": "commentary"}),
        Text("B"),
        Text("C", {"phase": "final_answer"}),
        Text("D"),
    )
    request = Request(model="m", messages=(Message("assistant", parts),), wire=WIRE.name)
    assert sent(request)["input"] == [
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


# Replies that come.


def events(*frames: Json, names: ToolNames | None = None) -> list[Event]:
    decoder = WIRE.reply_decoder(
        CallAssembler(names or ToolNames((), OPENAI_NAMES), iter_ids(), incremental=True)
    )
    told = [event for frame in frames for event in decoder.feed(frame)]
    return [*told, *decoder.finish()] if decoder.is_complete else told


def iter_ids() -> Any:
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


def completed(*output: Json, status: str = "completed", **fields: Any) -> Json:
    response = {**RESPONSE, "status": status, "output": list(output), "usage": USAGE, **fields}
    return {"type": f"response.{status}", "response": response}


def added(index: int, **item: Any) -> Json:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, **item: Any) -> Json:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def on(index: int, kind: str, **fields: Any) -> Json:
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
THOUGHT: Json = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "A"}, {"type": "summary_text", "text": "B"}],
    "encrypted_content": "gAAA",
}
OSLO = ToolCall(id="call_1", name="get_weather", arguments={"city": "Oslo"})
PATCHES = ToolCall(id="call_2", name="apply_patch", arguments={"input": "*** Begin"}, freeform=True)
THINKS = Reasoning(
    "A\n\nB", "gAAA", {ITEM_ID: "rs_1", REASONING_TEXTS: {"summary": THOUGHT["summary"]}}
)

STREAMED: list[Json] = [
    CREATED,
    {"type": "response.in_progress", "response": CREATED["response"]},
    added(0, id="rs_1", type="reasoning", summary=[], encrypted_content="g"),
    on(0, "reasoning_summary_part.added", summary_index=0, part={"type": "summary_text"}),
    on(0, "reasoning_summary_text.delta", summary_index=0, delta="A"),
    on(0, "reasoning_summary_text.done", summary_index=0, text="A"),
    on(0, "reasoning_summary_text.delta", summary_index=1, delta="B"),
    on(0, "reasoning_summary_text.done", summary_index=1, text="B"),
    done(0, **THOUGHT),
    added(1, **{**MESSAGE, "content": [], "status": "in_progress"}),
    on(1, "content_part.added", content_index=0, part={"type": "output_text", "text": ""}),
    on(1, "output_text.delta", content_index=0, delta="Hel"),
    on(1, "output_text.delta", content_index=0, delta="lo."),
    on(1, "output_text.done", content_index=0, text="Hello."),
    on(1, "content_part.done", content_index=0, part=MESSAGE["content"][0]),
    done(1, **MESSAGE),
    added(2, **{**CALL, "arguments": "", "status": "in_progress"}),
    on(2, "function_call_arguments.delta", delta='{"city":'),
    on(2, "function_call_arguments.delta", delta='"Oslo"}'),
    on(2, "function_call_arguments.done", arguments='{"city":"Oslo"}'),
    done(2, **CALL),
    added(3, **{**CUSTOM, "input": ""}),
    on(3, "custom_tool_call_input.delta", delta="*** Begin"),
    on(3, "custom_tool_call_input.done", input="*** Begin"),
    done(3, **CUSTOM),
    completed(THOUGHT, MESSAGE, CALL, CUSTOM),
]
HELLO = Text("Hello.", {ITEM_ID: "item_0"})
OSLO_HEARD = replace(OSLO, extra={ITEM_ID: "item_1"})
PARTS = (THINKS, HELLO, OSLO_HEARD, replace(PATCHES, extra={ITEM_ID: "item_2"}))


def test_a_stream() -> None:
    told = events(*STREAMED)
    assert told[0] == Started("resp_1", "gpt", wire=WIRE.name, extra={"service_tier": "flex"})
    assert [event.json for event in told if isinstance(event, ArgumentsDelta)] == [
        '{"city":',
        '"Oslo"}',
        "*** Begin",
    ]
    reply = fold(told)
    assert reply.parts == PARTS
    assert (reply.stop_reason, reply.raw_stop_reason) == ("calls", "completed")
    assert reply.usage == Usage(10, 5, 4, 1, 2)


LESS: list[tuple[str, list[Json]]] = [
    ("the whole response", [completed(THOUGHT, MESSAGE, CALL, CUSTOM)["response"]]),
    ("only the end", [STREAMED[-1]]),
    ("no deltas", [frame for frame in STREAMED if not frame["type"].endswith(".delta")]),
    ("only items", [f for f in STREAMED if "output_item" in f["type"]] + [completed()]),
    ("only items that are done", [f for f in STREAMED if "item.done" in f["type"]] + [completed()]),
]


@pytest.mark.parametrize("frames", [row[1] for row in LESS], ids=[row[0] for row in LESS])
def test_servers_that_send_less(frames: list[Json]) -> None:
    reply = fold(events(*frames))
    assert reply.parts == PARTS
    assert reply.notes == ()


def test_items_that_do_not_end() -> None:
    """What a thought is known by comes late, with the whole response."""
    reply = fold(events(*(f for f in STREAMED if not f["type"].endswith("item.done"))))
    assert reply.parts[0] == Reasoning("A\n\nB")
    assert reply.parts[1:4] == PARTS[1:]
    assert isinstance(reply.parts[4], Reasoning)
    assert reply.parts[4].signature == "gAAA"


def test_items_without_indexes_go_by_their_ids() -> None:
    stream = [
        added(0, **{**MESSAGE, "content": []}),
        on(0, "output_text.delta", content_index=0, delta="Hello."),
        added(1, **{**CALL, "arguments": ""}),
        on(1, "function_call_arguments.delta", delta=CALL["arguments"]),
        done(0, **MESSAGE),
        done(1, **CALL),
        completed(CALL, MESSAGE),
    ]
    told = events(*({k: v for k, v in f.items() if k != "output_index"} for f in stream))
    assert fold(told).parts == (HELLO, OSLO_HEARD)


def test_items_whose_deltas_come_in_turns() -> None:
    told = events(
        CREATED,
        added(0, **{**CALL, "id": "a", "arguments": ""}),
        added(1, **{**CALL, "id": "b", "call_id": "call_b", "name": "now", "arguments": ""}),
        on(0, "function_call_arguments.delta", delta='{"ci'),
        on(1, "function_call_arguments.delta", delta="{"),
        on(2, "output_text.delta", content_index=0, delta="Hello."),
        on(0, "function_call_arguments.delta", delta='ty":"Oslo"}'),
        on(1, "function_call_arguments.delta", delta="}"),
        done(1, **{**CALL, "id": "b", "call_id": "call_b", "name": "now", "arguments": "{}"}),
        done(0, **{**CALL, "id": "a"}),
        completed(),
    )
    kinds = [(type(event).__name__, getattr(event, "index", None)) for event in told]
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
    assert [call.arguments for call in fold(told).calls] == [{"city": "Oslo"}, {}]


def test_what_is_said_twice_happens_once() -> None:
    twice = [frame for frame in STREAMED for _ in range(1 if frame["type"][-5:] == "delta" else 2)]
    assert events(*twice) == events(*STREAMED)
    late = [*STREAMED[:-1], *(f for f in STREAMED if f["type"].endswith("added")), STREAMED[-1]]
    assert events(*late) == events(*STREAMED)


def test_two_calls_that_share_an_index_are_two() -> None:
    other = {**CALL, "id": "item_9", "call_id": "call_9"}
    told = events(
        added(0, **{**CALL, "arguments": ""}),
        done(0, **CALL),
        added(0, **{**other, "arguments": ""}),
        done(0, **other),
        completed(),
    )
    assert [call.id for call in fold(told).calls] == ["call_1", "call_9"]


@pytest.mark.parametrize("given_arguments", [CALL["arguments"], {"city": "Oslo"}])
@pytest.mark.parametrize("incremental", [True, False])
def test_arguments_that_come_whole_in_an_item_that_does_not_end(
    given_arguments: Any, incremental: bool
) -> None:
    stream = StreamDecoder(WIRE, arguments="incremental" if incremental else "validated")
    told = [
        event
        for frame in (
            CREATED,
            added(0, **{**CALL, "arguments": ""}),
            on(0, "function_call_arguments.done", arguments=given_arguments),
            completed(),
        )
        for event in stream.feed_value(frame)
    ]
    reply = fold([*told, *stream.finish()])
    assert reply.calls == (OSLO_HEARD,)
    assert reply.stop_reason == "calls"


def test_a_call_whose_arguments_come_before_it() -> None:
    told = events(
        CREATED,
        on(1, "custom_tool_call_input.done", input="*** Begin") | {"item_id": "item_2"},
        added(1, **{**CUSTOM, "input": ""}),
        completed(),
    )
    assert fold(told).calls == (PARTS[3],)


def test_names_come_back_as_they_were_with_their_namespace() -> None:
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
    made = fold(events(completed(call, spaced, CUSTOM), names=outgoing.names)).calls
    assert [(c.namespace, c.name) for c in made] == [
        (None, "wait.agent"),
        ("agents", "wait.agent"),
        (None, "apply_patch"),
    ]
    assert made[2].input == "*** Begin"


REASONS: list[tuple[Json, str, str]] = [
    (completed(MESSAGE), "stop", "completed"),
    (completed(CALL), "calls", "completed"),
    (
        completed(MESSAGE, status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
        "length",
        "max_output_tokens",
    ),
    (
        completed(MESSAGE, status="incomplete", incomplete_details={"reason": "content_filter"}),
        "filter",
        "content_filter",
    ),
    (
        completed({**MESSAGE, "content": [{"type": "refusal", "refusal": "No."}]}),
        "refusal",
        "completed",
    ),
]


@pytest.mark.parametrize(("frame", "reason", "raw"), REASONS)
def test_why_it_stops(frame: Json, reason: str, raw: str) -> None:
    for shape in (frame, frame["response"]):
        reply = fold(events(shape))
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
            completed(status="failed", error={"code": "rate_limit_exceeded", "message": "Slow."}),
            Failure("rate_limit", "Slow.", 429, "rate_limit_exceeded"),
        ),
        (
            completed(
                status="failed", error={"code": "context_length_exceeded", "message": "Long."}
            )["response"],
            Failure("context_length", "Long.", 400, "context_length_exceeded"),
        ),
        ({"error": {"message": "Oh.", "code": 503}}, Failure("overloaded", "Oh.", 503, "503")),
        (
            completed(status="cancelled")["response"],
            Failure("upstream", "The upstream's response is cancelled.", 500),
        ),
    ],
)
def test_what_goes_wrong(frame: Json, failure: Failure) -> None:
    assert fold(events(frame)).failure == failure


def test_a_refusal_is_a_text_of_its_own() -> None:
    told = events(
        CREATED,
        added(0, **{**MESSAGE, "content": []}),
        on(0, "refusal.delta", content_index=0, delta="I "),
        on(0, "refusal.delta", content_index=0, delta="won't."),
        on(0, "refusal.done", content_index=0, refusal="I won't."),
        done(0, **{**MESSAGE, "content": [{"type": "refusal", "refusal": "I won't."}]}),
        completed(),
    )
    reply = fold(told)
    assert reply.parts == (Text("I won't.", {"type": "refusal", ITEM_ID: "item_0"}),)
    assert reply.stop_reason == "refusal"


def test_a_refusal_that_never_ends_is_told_too() -> None:
    delta = on(0, "refusal.delta", content_index=0, delta="I won't.")
    assert fold(events(CREATED, delta, completed())).text == "I won't."


def test_thoughts_in_their_own_words_and_in_a_summary_are_told_once() -> None:
    item = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "short"}],
        "content": [{"type": "reasoning_text", "text": "long"}],
    }
    told = events(
        CREATED,
        added(0, id="rs_1", type="reasoning", summary=[]),
        on(0, "reasoning_text.delta", content_index=0, delta="lo"),
        on(0, "reasoning_text.delta", content_index=0, delta="ng"),
        on(0, "reasoning_text.done", content_index=0, text="long"),
        on(0, "reasoning_summary_text.delta", summary_index=0, delta="short"),
        done(0, **item),
        completed(item),
    )
    reply = fold(told)
    assert reply.reasoning == "long"
    [part] = reply.parts
    assert isinstance(part, Reasoning)
    assert part.extra[REASONING_TEXTS] == {"summary": item["summary"], "content": item["content"]}


def test_a_thought_that_shows_nothing_is_known_by_its_id() -> None:
    empty = {"id": "rs_1", "type": "reasoning", "summary": []}
    told = events(completed(empty, MESSAGE))
    assert fold(told).parts == (Other(empty), HELLO)
    assert response(told)["output"][0] == empty
    for wire in (ANTHROPIC, CHAT):
        encoder = wire.stream_encoder(ENVELOPE)
        assert b"thinking" not in b"".join(map(encoder.feed, told))


def test_hosted_tools_and_pictures_are_parts() -> None:
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    drawn = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "AA=="}
    searching = on(0, "web_search_call.searching")
    reply = fold(
        events(CREATED, added(0, **search), searching, done(0, **search), completed(search, drawn))
    )
    assert reply.parts[0] == Other(search)
    assert isinstance(reply.parts[1], Image)
    assert reply.parts[1].data == "AA=="


def test_a_call_that_was_cut_off_is_not_made() -> None:
    cut: Json = {"incomplete_details": {"reason": "max_output_tokens"}, "status": "incomplete"}
    streamed = events(
        CREATED,
        added(0, **{**CUSTOM, "input": ""}),
        on(0, "custom_tool_call_input.delta", delta="*** Beg"),
        completed(**cut),
    )
    whole = events(completed({**CUSTOM, "status": "incomplete"}, **cut))
    for told in (streamed, whole):
        reply = fold(told)
        assert reply.calls == ()
        assert reply.rejected[0].code == "truncated"
        assert reply.stop_reason == "length"


def test_arguments_that_are_none() -> None:
    reply = fold(events(completed({**CALL, "arguments": '{"city": '})))
    assert reply.calls == ()
    assert codes(reply.notes) == ["undecodable-arguments"]


def test_phases_and_annotations_ride_along() -> None:
    part = {"type": "output_text", "text": "Hello.", "annotations": [{"type": "url_citation"}]}
    message = {**MESSAGE, "content": [part], "phase": "final_answer"}
    streamed = [
        CREATED,
        added(0, **{**MESSAGE, "content": []}),
        on(0, "output_text.delta", content_index=0, delta="Hello."),
        on(0, "content_part.done", content_index=0, part=part),
        done(0, **message),
        completed(message),
    ]
    for frames in (streamed, [completed(message)]):
        told = events(*frames)
        assert fold(told).text == "Hello."
        out = response(told)
        assert out["output"][0]["content"] == [part]
        assert out["output"][0]["phase"] == "final_answer"


BYTES = b"".join(
    b"event: " + frame["type"].encode() + b"\ndata: " + json.dumps(frame).encode() + b"\n\n"
    for frame in STREAMED
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 10_000])
def test_a_stream_cut_anywhere(size: int) -> None:
    stream = StreamDecoder(WIRE, arguments="incremental")
    told: list[Event] = []
    for at in range(0, len(BYTES), size):
        told += stream.feed(BYTES[at : at + size])
    assert [*told, *stream.finish()] == events(*STREAMED)


def test_a_stream_that_breaks_off() -> None:
    stream = StreamDecoder(WIRE)
    told = [*stream.feed(BYTES[: len(BYTES) // 2]), *stream.finish()]
    assert isinstance(told[-1], Failure)


WORDS = ["type", "item", "output", "output_index", "item_id", "delta", "content", "response", "id"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "x", "message"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner),
    max_leaves=8,
)


@given(st.lists(st.integers(0, len(STREAMED) - 1), max_size=12), st.data())
def test_mutated_streams_raise_nothing(order: list[int], data: st.DataObject) -> None:
    stream = StreamDecoder(WIRE)
    for index in order:
        frame = dict(STREAMED[index])
        key = data.draw(st.sampled_from(sorted(frame)))
        frame[key] = data.draw(VALUES) if data.draw(st.booleans()) else frame[key]
        list(stream.feed_value(frame))
    list(stream.finish())


@given(st.dictionaries(st.sampled_from(["input", "tools", "tool_choice", "text"]), VALUES))
def test_mutated_requests_raise_only_what_is_documented(body: Json) -> None:
    try:
        WIRE.encode_request(WIRE.decode_request(body))
    except WireError:
        pass


# Replies that go.

REQUEST = decoded(tools=[WEATHER, AGENTS, PATCH], instructions="Be brief.", stream=True)
ENVELOPE = Envelope(REQUEST, "resp_7", 1_700_000_000)
SPACED = ToolCall(id="call_3", name="wait_agent", arguments={}, namespace="multi_agent_v1")
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
    CallEnd(1, SPACED),
    CallStart(2, "call_2", "apply_patch", "native", None, True),
    ArgumentsDelta(2, "*** "),
    ArgumentsDelta(2, "Begin"),
    CallEnd(2, PATCHES),
    Finish("calls", "tool_calls", Usage(10, 5, 4, 1, 2)),
]


def encoded(told: Iterable[Event], envelope: Envelope = ENVELOPE) -> bytes:
    encoder = WIRE.stream_encoder(envelope)
    return b"".join(map(encoder.feed, told))


def frames(told: Iterable[Event]) -> list[Json]:
    framing = ServerSentEvents()
    read = [*framing.feed(encoded(told)), *framing.finish()]
    values = [decode_json(frame.data) for frame in read]
    assert [frame.event for frame in read] == [value["type"] for value in values]
    assert [value["sequence_number"] for value in values] == list(range(len(values)))
    return values


def response(told: Iterable[Event]) -> Json:
    return frames(told)[-1]["response"]


def test_the_grammar_of_a_stream() -> None:
    told = [(frame["type"].removeprefix("response."), frame) for frame in frames(ANSWER)]
    assert [kind for kind, _ in told] == [
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
    items = [frame["item"] for kind, frame in told if kind == "output_item.done"]
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
    last = told[-1][1]["response"]
    assert last["output"] == items
    assert last["usage"] == USAGE
    assert (last["status"], last["id"], last["model"]) == ("completed", "resp_7", "deep")
    assert last["instructions"] == "Be brief."
    assert last["tools"] == [WEATHER, AGENTS, PATCH]
    assert last["created_at"] == 1_700_000_000


def test_a_whole_reply_is_what_its_stream_ends_in() -> None:
    whole = WIRE.encode_reply(fold(ANSWER), ENVELOPE)
    streamed = response(ANSWER)
    streamed["output"][2]["arguments"] = '{"city":"Oslo"}'
    assert whole == streamed


def test_a_reply_that_came_by_the_same_wire_keeps_what_it_said() -> None:
    came = completed(THOUGHT, {**MESSAGE, "phase": "commentary"}, CALL, CUSTOM)["response"]
    reply = fold(WIRE.decode_reply(came))
    out = WIRE.encode_reply(reply, ENVELOPE)
    assert (out["id"], out["service_tier"]) == ("resp_1", "flex")
    assert out["output"][0] == THOUGHT
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


def streamed(*items: Json) -> Iterator[Json]:
    """The events in which OpenAI tells of items."""
    yield CREATED
    for index, item in enumerate(items):
        empty: Json = {"summary": [], "content": [], "arguments": "", "input": ""}
        begun = {key: empty.get(key, value) for key, value in item.items()}
        yield added(index, **begun)
        about = {"item_id": item["id"]}
        for part in item.get("content", ()):
            yield on(index, "output_text.delta", delta=part["text"]) | about
            yield on(index, "content_part.done", part=part) | about
        for part in item.get("summary", ()):
            yield on(index, "reasoning_summary_text.delta", delta=part["text"]) | about
        if "arguments" in item:
            yield on(index, "function_call_arguments.delta", delta=item["arguments"]) | about
        if "input" in item:
            yield on(index, "custom_tool_call_input.delta", delta=item["input"]) | about
        yield done(index, **item)
    yield completed(*items)


@pytest.mark.parametrize("mode", ["incremental", "validated"])
def test_items_keep_the_ids_that_the_upstream_knows(mode: Any) -> None:
    stream = StreamDecoder(WIRE, arguments=mode)
    told = [event for frame in streamed(*STORED) for event in stream.feed_value(frame)]
    told += stream.finish()
    out = frames(told)
    assert out[-1]["response"]["output"] == STORED
    assert WIRE.encode_reply(fold(told), ENVELOPE)["output"] == STORED
    ids = [item["id"] for item in STORED]
    assert [f["item"]["id"] for f in out if f["type"].endswith("item.added")] == ids
    assert [f["item"]["id"] for f in out if f["type"].endswith("item.done")] == ids
    assert all(f["item_id"] == ids[f["output_index"]] for f in out if "item_id" in f)
    assert heard_by_sdk(told)


def test_whole_replies_keep_their_ids_too() -> None:
    came = completed(*STORED)["response"]
    reply = fold(WIRE.decode_reply(came))
    assert WIRE.encode_reply(reply, ENVELOPE)["output"] == STORED
    history = again(input=[*STORED], store=True)["input"]
    assert history == STORED
    parts = Request(model="m", messages=(Message("assistant", reply.parts),), wire=WIRE.name)
    assert [item["id"] for item in sent(parts)["input"]] == [item["id"] for item in STORED]


def test_ids_of_the_upstream_are_not_shown_elsewhere() -> None:
    told = events(*streamed(*STORED))
    for wire in (CHAT, ANTHROPIC):
        encoder = wire.stream_encoder(ENVELOPE)
        written = b"".join(map(encoder.feed, told))
        assert b"msg_a" not in written
        assert b"fc_a" not in written
        assert not any("~" in note.message for note in wire.find_losses(fold(told)))


def test_a_response_begins_once() -> None:
    kinds = [frame["type"] for frame in frames([*ANSWER[:1], *ANSWER])]
    assert kinds.count("response.created") == 1
    assert kinds == [frame["type"] for frame in frames(ANSWER)]


def test_a_call_that_never_ends_is_not_made() -> None:
    out = frames([CallStart(0, "c", "get_weather"), ArgumentsDelta(0, "{}"), Finish("stop")])
    assert out[-2]["item"]["status"] == "incomplete"
    assert out[-1]["response"]["output"] == []


def test_usage_that_only_this_api_counts_rides_along() -> None:
    usage = {
        **USAGE,
        "cost": 0.5,
        "total_tokens": 99,
        "input_tokens_details": {**USAGE["input_tokens_details"], "audio_tokens": 3},
    }
    told = events(completed(MESSAGE, usage=usage))
    assert response(told)["usage"] == usage
    elsewhere = [
        replace(event, wire="x") if isinstance(event, Started) else event for event in told
    ]
    assert response(elsewhere)["usage"] == USAGE


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
    ("told", "status", "details", "items"), [row[1:] for row in STATES], ids=[r[0] for r in STATES]
)
def test_how_a_response_ends(
    told: list[Event], status: str, details: Json | None, items: list[str]
) -> None:
    last = frames(told)[-1]
    assert last["type"] == f"response.{status}"
    out = last["response"]
    assert (out["status"], out["incomplete_details"]) == (status, details)
    assert [item.get("status", "") for item in out["output"]] == items
    assert heard_by_sdk(told)
    whole = WIRE.encode_reply(fold(told), ENVELOPE)
    assert (whole["status"], whole["incomplete_details"]) == (status, details)


def test_a_refusal_from_elsewhere_is_one_here() -> None:
    came = {"choices": [{"message": {"refusal": "I won't."}, "finish_reason": "stop"}]}
    told = list(CHAT.decode_reply(came))
    out = WIRE.encode_reply(fold(told), ENVELOPE)
    assert out["status"] == "completed"
    assert out["output"][0]["content"] == [{"type": "refusal", "refusal": "I won't."}]
    assert response(told)["output"] == out["output"]
    heard = fold(WIRE.decode_reply(out))
    assert (heard.text, heard.stop_reason) == ("I won't.", "refusal")


def test_a_call_taken_back_is_closed_as_incomplete() -> None:
    closed = [
        frame["item"] for frame in frames(STATES[7][1]) if frame["type"].endswith("item.done")
    ]
    assert closed[0]["status"] == "incomplete"
    assert closed[0]["arguments"] == '{"ci'


def test_arguments_that_had_to_be_repaired_end_repaired() -> None:
    told = [
        CallStart(0, "call_1", "get_weather"),
        ArgumentsDelta(0, "{'city': 'Oslo'}"),
        CallEnd(0, OSLO),
        Finish("calls"),
    ]
    assert response(told)["output"][0]["arguments"] == '{"city":"Oslo"}'


def test_parts_of_other_apis_are_not_shown_and_pictures_are() -> None:
    drawn = PartAdded(Image(data="AA==", media_type="image/webp"))
    told: list[Event] = [
        Started(wire="anthropic"),
        PartAdded(Other({"type": "server_tool_use"})),
        drawn,
        Finish("stop"),
    ]
    [item] = response(told)["output"]
    assert (item["type"], item["result"]) == ("image_generation_call", "AA==")
    assert item["output_format"] == "webp"


SLOW = Failure("rate_limit", "Slow.", 429)


def test_a_failure_in_the_middle() -> None:
    told = frames([TextDelta("Half"), SLOW])
    error, failed = told[-2:]
    assert error["type"] == "error"
    assert error["message"] == error["error"]["message"] == "Slow."
    assert failed["type"] == "response.failed"
    assert failed["response"]["error"] == {"code": "rate_limit_exceeded", "message": "Slow."}
    heard = fold(StreamDecoder(WIRE).feed(encoded([TextDelta("Half"), SLOW])))
    assert heard.text == "Half"
    assert heard.failure == Failure("rate_limit", "Slow.", 429, "rate_limit_error")


def test_a_whole_reply_that_failed() -> None:
    reply = Reply(failure=Failure("internal", "Oh."))
    out = WIRE.encode_reply(reply, ENVELOPE)
    assert (out["status"], out["error"]["code"]) == ("failed", "server_error")


# As OpenAI's SDK hears it.


@contextmanager
def client(body: bytes, kind: str = "text/event-stream") -> Generator[openai.OpenAI]:
    """The SDK, at a server that gives this answer."""
    with (
        answering(200, body, kind) as (url, _),
        openai.OpenAI(api_key="none", base_url=f"{url}/v1", max_retries=0) as sdk,
    ):
        yield sdk


def heard_by_sdk(told: Iterable[Event]) -> list[Any]:
    """The events that its own stream helper makes, which checks their order."""
    with (
        client(encoded(told)) as sdk,
        sdk.responses.stream(model="m", input="Hi") as stream,
    ):
        return list(stream)


def strictly(value: Any) -> Iterator[str]:
    """What does not fit the types of the SDK, which reads without checking them."""
    try:
        type(value).model_validate(value.to_dict())
    except ValueError as error:
        yield str(error)


def test_the_sdk_hears_a_stream() -> None:
    with (
        client(encoded(ANSWER)) as sdk,
        sdk.responses.stream(model="m", input="Hi") as stream,
    ):
        told: list[Any] = list(stream)
        final: Any = stream.get_final_response()
    assert final.output_text == "Looking."
    thought, message, call, spaced, custom = final.output
    assert thought.type == "reasoning"
    assert thought.summary[0].text == "Let me see."
    assert thought.encrypted_content == "sig"
    assert message.type == "message"
    assert call.type == spaced.type == "function_call"
    assert json.loads(call.arguments) == {"city": "Oslo"}
    assert (spaced.name, spaced.namespace) == ("wait_agent", "multi_agent_v1")
    assert custom.type == "custom_tool_call"
    assert custom.input == "*** Begin"
    assert final.usage
    assert final.usage.total_tokens == 15
    snapshots = [event for event in told if event.type == "response.function_call_arguments.delta"]
    assert snapshots[1].snapshot == '{"city": "Oslo"}'


def test_every_event_fits_the_types_of_the_sdk() -> None:
    with client(encoded(ANSWER)) as sdk:
        raw = sdk.responses.create(model="m", input="Hi", stream=True)
        problems = [problem for event in raw for problem in strictly(event)]
    assert problems == []


def test_the_sdk_hears_a_whole_reply() -> None:
    body = json.dumps(WIRE.encode_reply(fold(ANSWER), ENVELOPE)).encode()
    with client(body, "application/json") as sdk:
        heard = sdk.responses.create(model="m", input="Hi")
    assert heard.output_text == "Looking."
    assert [item.type for item in heard.output] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
        "custom_tool_call",
    ]
    assert list(strictly(heard)) == []


def test_the_sdk_raises_when_a_stream_fails() -> None:
    told = [TextDelta("Half"), Failure("overloaded", "the model is busy", 529)]
    with pytest.raises(openai.APIError, match="the model is busy"):
        heard_by_sdk(told)


# There and back.

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
def test_conversations_come_back(turns: list[Message]) -> None:
    alternating = [
        turn
        for index, turn in enumerate(turns)
        if turn.role != "assistant" or not index or turns[index - 1].role != "assistant"
    ]
    request = Request(model="m", messages=tuple(alternating), wire=WIRE.name)
    body = json.loads(json.dumps(sent(request)))
    assert WIRE.decode_request(body).messages == request.messages
