"""Gemini: requests and replies in both directions, and the same through its SDK."""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

import pytest
from google import genai
from google.genai import errors as genai_errors
from google.genai import types as genai_types
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
from toolspeak.wires.gemini import GeminiStreamEncoder

WIRE = WIRES["gemini"]
SKIP = "skip_thought_signature_validator"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
OSLO = ToolCall(id="c1", name="get_weather", arguments={"city": "Oslo"})
NO_ID = {"~id": ""}
"""The `extra` of a call or result that came without an id."""
ENVELOPE = Envelope(Request(model="gemini-9", messages=(), wire="gemini"), "r1", 1_700_000_000)


def decode(body: dict[str, Any], **options: Any) -> Request:
    return WIRE.decode_request(body, **({"model": "m"} | options))


def decode_parts(*parts: dict[str, Any], role: str = "model") -> tuple[Any, ...]:
    [message] = decode({"contents": [{"role": role, "parts": list(parts)}]}).messages
    return message.parts


def encode_parts(*parts: Any, role: Any = "assistant", wire: str = "") -> list[dict[str, Any]]:
    request = Request(model="m", messages=(Message(role, parts),), wire=wire)
    [content] = WIRE.encode_request(request).body["contents"]
    return content["parts"]


def note_codes(notes: Iterable[Note]) -> list[str]:
    return [note.code for note in notes]


# Requests in.

CLIENT: dict[str, Any] = {
    "systemInstruction": {"role": "user", "parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "user", "parts": [{"text": "Weather in Oslo?"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Let me see.", "thought": True},
                {
                    "functionCall": {"id": "c1", "name": "get_weather", "args": {"city": "Oslo"}},
                    "thoughtSignature": "c2ln",
                },
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "c1",
                        "name": "get_weather",
                        "response": {"output": "Sunny"},
                    }
                }
            ],
        },
    ],
    "tools": [
        {
            "functionDeclarations": [
                {
                    "name": "get_weather",
                    "description": "The weather.",
                    "parametersJsonSchema": SCHEMA,
                    "behavior": "BLOCKING",
                }
            ]
        },
        {"googleSearch": {}},
    ],
    "toolConfig": {
        "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["get_weather"]},
        "retrievalConfig": {"languageCode": "no"},
    },
    "generationConfig": {
        "temperature": 0.5,
        "topP": 0.9,
        "topK": 40,
        "seed": 7,
        "presencePenalty": 0.1,
        "frequencyPenalty": 0.2,
        "maxOutputTokens": 100,
        "stopSequences": ["END"],
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object"},
        "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 512},
        "candidateCount": 1,
    },
    "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
    "cachedContent": "cachedContents/1",
    "labels": {"team": "a"},
}
REQUEST = Request(
    model="gemini-9",
    messages=(
        Message("system", (Text("Be brief."),)),
        Message("user", (Text("Weather in Oslo?"),)),
        Message("assistant", (Reasoning("Let me see.", "c2ln"), OSLO)),
        Message(
            "tool",
            (
                ToolResult(
                    call_id="c1",
                    name="get_weather",
                    content="Sunny",
                    extra={"~response": {"output": "Sunny"}},
                ),
            ),
        ),
    ),
    tools=(
        Tool(
            name="get_weather",
            description="The weather.",
            parameters=SCHEMA,
            extra={"behavior": "BLOCKING"},
        ),
    ),
    tool_choice=ToolChoice("required", ("get_weather",)),
    response_format=ResponseFormat({"type": "object"}),
    thinking=Thinking(budget=512, shown=True),
    stream=True,
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
    wire="gemini",
    extra={
        "safetySettings": CLIENT["safetySettings"],
        "cachedContent": "cachedContents/1",
        "labels": {"team": "a"},
        "generationConfig": {"candidateCount": 1},
        "toolConfig": {"retrievalConfig": {"languageCode": "no"}},
        "~tools": [{"googleSearch": {}}],
    },
)


def test_decode_request_keeps_every_field() -> None:
    assert decode(CLIENT, model="gemini-9", stream=True) == REQUEST


def test_encode_request_to_the_same_api_restores_the_body() -> None:
    sent = WIRE.encode_request(REQUEST)
    assert sent.path == "/models/gemini-9:streamGenerateContent?alt=sse"
    assert sent.notes == ()
    body = copy.deepcopy(CLIENT)
    del body["systemInstruction"]["role"]
    assert sent.body == body


@pytest.mark.parametrize(
    ("model", "stream", "path"),
    [
        ("m", False, "/models/m:generateContent"),
        ("models/m", True, "/models/m:streamGenerateContent?alt=sse"),
        ("tunedModels/m", False, "/tunedModels/m:generateContent"),
    ],
)
def test_encode_request_puts_model_and_stream_into_the_path(
    model: str, stream: bool, path: str
) -> None:
    assert WIRE.encode_request(Request(model=model, messages=(), stream=stream)).path == path


def to_snake_case(value: Any) -> Any:
    """Return an object as clients in Python send it."""
    if isinstance(value, list):
        return [to_snake_case(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key): (
            item if key == "args" else to_snake_case(item)
        )
        for key, item in value.items()
    }


def test_decode_request_in_snake_case_gives_the_same_request() -> None:
    request = decode(to_snake_case(CLIENT), model="gemini-9", stream=True)
    extra = request.extra
    assert extra["safety_settings"] == CLIENT["safetySettings"]
    assert extra["generationConfig"] == {"candidate_count": 1}
    assert extra["~tools"] == [{"google_search": {}}]
    assert structs.replace(request, extra={}) == structs.replace(REQUEST, extra={})


def test_decode_request_in_mixed_case_is_understood() -> None:
    tool = {"functionDeclarations": [{"name": "f", "parameters_json_schema": SCHEMA}]}
    config = {"responseMimeType": "application/json", "response_json_schema": {"type": "OBJECT"}}
    request = decode({"contents": [], "tools": [tool], "generationConfig": config})
    assert request.tools == (Tool(name="f", parameters=SCHEMA),)
    assert request.response_format == ResponseFormat({"type": "object"})
    assert request.extra == {}


HELLO = Message("user", (Text("Hello"),))


@pytest.mark.parametrize(
    "contents",
    [
        "Hello",
        ["Hello"],
        {"parts": [{"text": "Hello"}]},
        {"role": "user", "parts": {"text": "Hello"}},
        [{"parts": ["Hello"]}],
        [{"role": "function", "parts": [{"text": "Hello"}]}],
        [{"text": "Hello"}],
    ],
)
def test_decode_contents_in_any_shape_gives_one_message(contents: Any) -> None:
    assert decode({"contents": contents}).messages == (HELLO,)


@pytest.mark.parametrize(
    "instruction",
    [
        "Be brief.",
        {"parts": [{"text": "Be brief."}]},
        [{"text": "Be brief."}],
        {"text": "Be brief."},
    ],
)
def test_decode_system_instruction_in_any_shape_gives_a_message(instruction: Any) -> None:
    request = decode({"system_instruction": instruction, "contents": "Hello"})
    assert request.messages == (Message("system", (Text("Be brief."),)), HELLO)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"text": "a"}, Text("a")),
        ({"text": ""}, Text("")),
        ({"text": "a", "thought": False}, Text("a")),
        ({"text": "a", "partMetadata": {"b": 1}}, Text("a", {"partMetadata": {"b": 1}})),
        ({"text": "a", "thought": True}, Reasoning("a")),
        (
            {"inlineData": {"mimeType": "image/jpeg", "data": "AA=="}},
            Image(data="AA==", media_type="image/jpeg"),
        ),
        (
            {"inline_data": {"mime_type": "audio/wav", "data": "AA=="}},
            Document(data="AA==", media_type="audio/wav"),
        ),
        ({"fileData": {"fileUri": "gs://a/b.png"}}, Image(url="gs://a/b.png")),
        (
            {
                "fileData": {"fileUri": "https://x/v", "mimeType": "video/mp4"},
                "videoMetadata": {"fps": 1},
            },
            Document(
                url="https://x/v", media_type="video/mp4", extra={"videoMetadata": {"fps": 1}}
            ),
        ),
        ({"executableCode": {"code": "1"}}, Other({"executableCode": {"code": "1"}})),
        (
            {"toolCall": {"id": "1"}, "thoughtSignature": ""},
            Other({"toolCall": {"id": "1"}, "thoughtSignature": ""}),
        ),
        (
            {"inlineData": {"mimeType": "image/png", "data": "AA=="}, "thought": True},
            Other({"inlineData": {"mimeType": "image/png", "data": "AA=="}, "thought": True}),
        ),
        ({}, Other({})),
        ({"functionCall": {"id": "c1", "name": "get_weather", "args": {"city": "Oslo"}}}, OSLO),
        (
            {"functionCall": {"name": "now"}},
            ToolCall(id="call_1", name="now", arguments={}, extra=NO_ID),
        ),
    ],
)
def test_decode_part_of_each_type_gives_its_part(part: dict[str, Any], expected: Any) -> None:
    assert decode_parts(part) == (expected,)


def test_encode_unknown_part_is_only_sent_to_the_same_api() -> None:
    code = {"executableCode": {"code": "1"}, "thoughtSignature": "c2ln"}
    [message] = decode({"contents": [{"role": "model", "parts": [code]}]}).messages
    assert encode_parts(*message.parts, wire="gemini") == [code]
    sent = WIRE.encode_request(Request(model="m", messages=(message, HELLO), wire="anthropic"))
    assert [content["role"] for content in sent.body["contents"]] == ["user"]
    assert note_codes(sent.notes) == ["unsupported", "unsupported"]


# Signatures.


@pytest.mark.parametrize(
    ("wire", "canonical"),
    [
        (
            [{"functionCall": {"id": "c1", "name": "f", "args": {}}, "thoughtSignature": "c2ln"}],
            (Reasoning("", "c2ln"), ToolCall(id="c1", name="f", arguments={})),
        ),
        (
            [
                {"text": "Hm.", "thought": True},
                {"functionCall": {"id": "c1", "name": "f", "args": {}}, "thoughtSignature": "c2ln"},
                {"functionCall": {"id": "c2", "name": "f", "args": {}}},
            ],
            (
                Reasoning("Hm.", "c2ln"),
                ToolCall(id="c1", name="f", arguments={}),
                ToolCall(id="c2", name="f", arguments={}),
            ),
        ),
        ([{"text": "Hi", "thoughtSignature": "c2ln"}], (Reasoning("", "c2ln"), Text("Hi"))),
        ([{"text": "Hm.", "thought": True}], (Reasoning("Hm."),)),
        (
            [{"text": "Hm.", "thought": True, "thoughtSignature": "c2ln"}],
            (Reasoning("Hm.", "c2ln"),),
        ),
        (
            [{"text": "Hi"}, {"text": "", "thoughtSignature": "c2ln"}],
            (Text("Hi"), Reasoning("", "c2ln")),
        ),
        (
            [
                {"text": "A.", "thought": True, "thoughtSignature": "YQ=="},
                {"text": "B.", "thought": True},
                {"text": "Hi", "thoughtSignature": "Yg=="},
            ],
            (Reasoning("A.", "YQ=="), Reasoning("B.", "Yg=="), Text("Hi")),
        ),
        (
            [
                {
                    "inlineData": {"mimeType": "image/png", "data": "AA=="},
                    "thoughtSignature": "YQ==",
                },
            ],
            (Reasoning("", "YQ=="), Image(data="AA==")),
        ),
    ],
)
def test_decode_signature_signs_the_reasoning_before_the_part(
    wire: list[dict[str, Any]], canonical: tuple[Any, ...]
) -> None:
    assert decode_parts(*wire) == canonical
    assert encode_parts(*canonical, wire="gemini") == wire


@pytest.mark.parametrize("placeholder", [SKIP, "context_engineering_is_the_way_to_go"])
def test_decode_placeholder_signature_is_ignored(placeholder: str) -> None:
    call = {"functionCall": {"id": "c1", "name": "f", "args": {}}, "thought_signature": placeholder}
    assert decode_parts(call) == (ToolCall(id="c1", name="f", arguments={}),)


def test_encode_first_call_without_signature_gets_a_placeholder() -> None:
    second = structs.replace(OSLO, id="c2")
    parts = encode_parts(Text("Hm."), OSLO, second)
    assert [part.get("thoughtSignature") for part in parts] == [None, SKIP, None]
    parts = encode_parts(Reasoning("Hm.", "c2ln"), OSLO, second)
    assert [part.get("thoughtSignature") for part in parts] == [None, "c2ln", None]
    assert decode_parts(*encode_parts(OSLO, second)) == (OSLO, second)


# Calls and results.


def test_decode_results_without_ids_match_their_calls() -> None:
    calls = [{"functionCall": {"name": name, "args": {"n": n}}} for n, name in enumerate("aba")]
    results = [
        {"functionResponse": {"name": name, "response": {"result": text}}}
        for name, text in (("b", "1"), ("a", "2"), ("a", "3"))
    ]
    body = {
        "contents": [
            {"role": "model", "parts": [{**calls[0], "thoughtSignature": SKIP}, *calls[1:]]},
            {"role": "user", "parts": results},
        ]
    }
    request = decode(body)
    [model, tool] = request.messages
    assert [part.id for part in model.parts if isinstance(part, ToolCall)] == [
        "call_1",
        "call_2",
        "call_3",
    ]
    found = [part for part in tool.parts if isinstance(part, ToolResult)]
    assert [(part.call_id, part.text) for part in found] == [
        ("call_2", "1"),
        ("call_1", "2"),
        ("call_3", "3"),
    ]
    assert WIRE.encode_request(request).body == body
    elsewhere = WIRE.encode_request(structs.replace(request, wire="ollama")).body["contents"]
    assert [part["functionCall"]["id"] for part in elsewhere[0]["parts"]] == [
        "call_1",
        "call_2",
        "call_3",
    ]
    assert [part["functionResponse"]["id"] for part in elsewhere[1]["parts"]] == [
        "call_2",
        "call_1",
        "call_3",
    ]


@pytest.mark.parametrize("identity", ["call_1", "call_2", "x", ""])
@pytest.mark.parametrize("answered", ["call_1", "call_2", "x", ""])
def test_encode_ids_to_the_same_api_are_restored(identity: str, answered: str) -> None:
    call: dict[str, Any] = {"name": "f", "args": {}} | ({"id": identity} if identity else {})
    result = {"name": "f", "response": {"result": "a"}} | ({"id": answered} if answered else {})
    body = {
        "contents": [
            {"role": "model", "parts": [{"functionCall": call, "thoughtSignature": SKIP}]},
            {"role": "user", "parts": [{"functionResponse": result}]},
        ]
    }
    request = decode(body)
    assert WIRE.encode_request(request).body == body
    elsewhere = WIRE.encode_request(structs.replace(request, wire="ollama")).body["contents"]
    [[call], [result]] = [content["parts"] for content in elsewhere]
    known = identity or "call_1"
    assert call["functionCall"]["id"] == result["functionResponse"]["id"] == known
    was_guessed = answered not in ("", known)
    assert note_codes(request.notes) == (["name-corrected"] if was_guessed else [])


def test_decode_result_with_another_name_answers_the_open_call() -> None:
    calls = [{"functionCall": {"name": name, "args": {}}} for name in ("now", "get_weather")]
    results = [
        {"functionResponse": {"name": name, "response": {"result": "a"}}}
        for name in ("getWeather", "what")
    ]
    contents = [{"role": "model", "parts": calls}, {"role": "user", "parts": results}]
    request = decode({"contents": contents})
    results = [part for part in request.messages[1].parts if isinstance(part, ToolResult)]
    assert [(part.call_id, part.name) for part in results] == [
        ("call_2", "get_weather"),
        ("call_1", "now"),
    ]
    assert [note.where for note in request.notes] == [
        f"$.contents[1].parts[{index}].functionResponse" for index in range(2)
    ]


@pytest.mark.parametrize("model", ["gemini-2.5-flash", "models/gemini-2.0-flash"])
def test_encode_call_for_models_without_signatures_has_no_placeholder(model: str) -> None:
    request = Request(model=model, messages=(Message("assistant", (OSLO,)),))
    [content] = WIRE.encode_request(request).body["contents"]
    assert "thoughtSignature" not in content["parts"][0]


@pytest.mark.parametrize(
    ("value", "found"),
    [("100", 100), (100.0, 100), ("100.0", 100), ("1e2", 100), (100, 100), ("-1", -1)],
)
def test_decode_number_in_a_string_is_converted(value: Any, found: int) -> None:
    config = {"maxOutputTokens": value, "topK": value, "thinkingConfig": {"thinkingBudget": value}}
    request = decode({"contents": "a", "generationConfig": config})
    assert (request.max_tokens, request.sampling) == (found, {"top_k": found})
    assert request.thinking in (Thinking(budget=found), Thinking(enabled=True))
    temperature = decode({"contents": "a", "generation_config": {"temperature": "0.5"}})
    assert temperature.sampling == {"temperature": 0.5}


@pytest.mark.parametrize("value", ["x", "1.5", "", "0x10", "1_000", "1e999", True, 1.5, "9" * 5000])
def test_decode_other_string_as_number_is_rejected(value: Any) -> None:
    with pytest.raises(WireError):
        decode({"contents": "a", "generationConfig": {"maxOutputTokens": value}})


@pytest.mark.parametrize("kind", ["audio/wav", "video/mp4", "application/pdf", "image/png"])
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_encode_media_in_any_role_is_sent_inline(kind: str, role: Any) -> None:
    """A model that draws is sent its own images, too."""
    part = (Image if kind.startswith("image") else Document)(data="AA==", media_type=kind)
    assert encode_parts(part, role=role) == [{"inlineData": {"mimeType": kind, "data": "AA=="}}]


def test_decode_many_results_takes_linear_time() -> None:
    count = 3000
    calls = [{"functionCall": {"name": f"f{index}", "args": {}}} for index in range(count)]
    results = [
        {"role": "user", "parts": [{"functionResponse": {"name": f"f{index}", "response": {}}}]}
        for index in reversed(range(count))
    ]
    started = time.process_time()
    request = decode({"contents": [{"role": "model", "parts": calls}, *results]})
    assert len(WIRE.encode_request(request).body["contents"]) == 2
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("response", "text", "is_error"),
    [
        ({"result": "a"}, "a", False),
        ({"output": "a"}, "a", False),
        ({"content": "a"}, "a", False),
        ({"error": "a"}, "a", True),
        ({"error": {"code": 1}}, '{"error":{"code":1}}', True),
        ({"error": None, "output": "a"}, '{"error":null,"output":"a"}', False),
        ({"temperature": 3}, '{"temperature":3}', False),
        ({"result": {"temperature": 3}}, '{"result":{"temperature":3}}', False),
        ({"result": '{"a":1}'}, '{"a":1}', False),
        ({}, "{}", False),
    ],
)
def test_decode_result_response_gives_text(
    response: dict[str, Any], text: str, is_error: bool
) -> None:
    part = {"functionResponse": {"id": "c1", "name": "f", "response": response}}
    [result] = decode_parts(part, role="user")
    assert (result.content, result.is_error) == (text, is_error)
    assert encode_parts(result, role="tool", wire="gemini") == [part]
    changed = structs.replace(result, content="changed", is_error=False)
    [out] = encode_parts(changed, role="tool", wire="gemini")
    assert out["functionResponse"]["response"] == {"result": "changed"}
    [out] = encode_parts(result, role="tool", wire="anthropic")
    assert out["functionResponse"]["response"] == {"error" if is_error else "result": text}


def test_results_with_images_are_restored() -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}
    response = {"name": "f", "response": {"result": "Look"}, "parts": [picture]}
    part = {"functionResponse": {"id": "c1", **response}}
    [result] = decode_parts(part, role="user")
    assert result.content == (Text("Look"), Image(data="AA=="))
    assert encode_parts(result, role="tool") == [part]


def test_encode_results_of_one_turn_are_one_content() -> None:
    results = [
        Message("tool", (ToolResult(call_id=identity, name="f", content="a"),))
        for identity in ("c1", "c2")
    ]
    calls = Message("assistant", (OSLO, structs.replace(OSLO, id="c2")))
    request = Request(model="m", messages=(HELLO, calls, *results, HELLO), wire="openai_chat")
    contents = WIRE.encode_request(request).body["contents"]
    assert [len(content["parts"]) for content in contents] == [1, 2, 3]
    messages = decode({"contents": contents}).messages
    assert [message.role for message in messages] == ["user", "assistant", "tool", "user"]


def test_encode_consecutive_assistant_messages_are_one_turn() -> None:
    """A call must follow a message of the user or a result."""
    opening = Message("assistant", (Text("Let me look."),))
    request = Request(model="m", messages=(HELLO, opening, Message("assistant", (OSLO,))))
    contents = WIRE.encode_request(request).body["contents"]
    assert [(content["role"], len(content["parts"])) for content in contents] == [
        ("user", 1),
        ("model", 2),
    ]
    assert len(WIRE.encode_request(structs.replace(request, wire="gemini")).body["contents"]) == 3


def test_encode_result_uses_the_sent_name_of_its_call() -> None:
    tool = Tool(name="find it", namespace="crm", parameters=SCHEMA)
    call = ToolCall(id="c1", name="find it", namespace="crm", arguments={})
    result = ToolResult(call_id="c1", name="find it", content="a")
    messages = (Message("assistant", (call,)), Message("tool", (result,)))
    sent = WIRE.encode_request(Request(model="m", messages=messages, tools=(tool,)))
    [encoded_call, encoded_result] = [content["parts"][0] for content in sent.body["contents"]]
    assert encoded_call["functionCall"]["name"] == "crm__find_it"
    assert encoded_result["functionResponse"]["name"] == "crm__find_it"
    assert sent.body["tools"][0]["functionDeclarations"][0]["name"] == "crm__find_it"
    assert note_codes(sent.notes) == ["renamed-tool"]


# Tools and settings.


@pytest.mark.parametrize(
    ("gemini", "plain"),
    [
        ({"type": "STRING"}, {"type": "string"}),
        ({"type": "string"}, {"type": "string"}),
        ({"type": "STRING", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "STRING", "nullable": False}, {"type": "string"}),
        (
            {"type": "STRING", "nullable": True, "enum": ["STRING"]},
            {"type": ["string", "null"], "enum": ["STRING", None]},
        ),
        (
            {"any_of": [{"type": "INTEGER"}, {"type": "STRING"}], "nullable": True},
            {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]},
        ),
        (
            {"type": "ARRAY", "items": {"type": "NUMBER"}, "min_items": "2"},
            {"type": "array", "items": {"type": "number"}, "minItems": 2},
        ),
        (
            {
                "type": "OBJECT",
                "properties": {"any_of": {"type": "BOOLEAN"}},
                "required": ["any_of"],
            },
            {
                "type": "object",
                "properties": {"any_of": {"type": "boolean"}},
                "required": ["any_of"],
            },
        ),
        ({"type": "TYPE_UNSPECIFIED", "description": "a"}, {"description": "a"}),
        ({"type": "STRING", "default": "OBJECT"}, {"type": "string", "default": "OBJECT"}),
    ],
)
def test_decode_schema_in_googles_form_gives_json_schema(
    gemini: dict[str, Any], plain: dict[str, Any]
) -> None:
    outer = {"type": "OBJECT", "properties": {"a": gemini}}
    declaration = {"name": "f", "parameters": outer}
    request = decode({"contents": "a", "tools": [{"function_declarations": [declaration]}]})
    assert request.tools
    assert request.tools[0].parameters == {"type": "object", "properties": {"a": plain}}
    config = {"responseMimeType": "application/json", "responseSchema": gemini}
    form = decode({"contents": "a", "generationConfig": config})
    assert form.response_format == ResponseFormat(plain)
    # To Gemini they go as they came, unless they were changed meanwhile.
    assert WIRE.encode_request(form).body["generationConfig"] == config
    [tool] = WIRE.encode_request(request).body["tools"]
    assert tool == {"functionDeclarations": [declaration]}
    others = (structs.replace(request.tools[0], parameters=SCHEMA),)
    [tool] = WIRE.encode_request(structs.replace(request, tools=others)).body["tools"]
    assert tool == {"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}
    for wire in WIRES.values():
        assert not [note for note in wire.encode_request(form).notes if "~" in note.message]


def test_encode_tools_sends_json_schema() -> None:
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {"type": ["object", "null"]}}}
    tools = (Tool(name="f", parameters=schema), Tool(name="g"), Tool(name="h", freeform=True))
    sent = WIRE.encode_request(Request(model="m", messages=(HELLO,), tools=tools))
    [group] = sent.body["tools"]
    first, second, third = group["functionDeclarations"]
    assert first == {"name": "f", "parametersJsonSchema": schema}
    assert second == {"name": "g"}
    assert third["parametersJsonSchema"]["required"] == ["input"]
    assert note_codes(sent.notes) == ["converted"]


@pytest.mark.parametrize(
    ("config", "choice"),
    [
        ({"mode": "AUTO"}, ToolChoice()),
        ({}, ToolChoice()),
        ({"mode": "any"}, ToolChoice("required")),
        ({"mode": "ANY", "allowedFunctionNames": ["f"]}, ToolChoice("required", ("f",))),
        ({"mode": "NONE"}, ToolChoice("none")),
        ({"mode": "VALIDATED"}, ToolChoice("auto", validated=True)),
        (
            {"mode": "VALIDATED", "allowed_function_names": ["f"]},
            ToolChoice("auto", ("f",), validated=True),
        ),
    ],
)
def test_tool_choice_of_each_mode_is_decoded_and_restored(
    config: dict[str, Any], choice: ToolChoice
) -> None:
    declared = [{"functionDeclarations": [{"name": "f"}, {"name": "g"}]}]
    body = {
        "contents": "a",
        "tools": declared,
        "tool_config": {"function_calling_config": config},
    }
    request = decode(body)
    assert request.tool_choice == choice
    assert decode(WIRE.encode_request(request).body).tool_choice == choice


def test_encode_optional_choice_among_tools_is_validated() -> None:
    tools = (Tool(name="f"), Tool(name="g"))
    request = Request(
        model="m",
        messages=(),
        tools=tools,
        tool_choice=ToolChoice("auto", ("f",)),
        parallel_tool_calls=False,
    )
    sent = WIRE.encode_request(request)
    config = sent.body["toolConfig"]["functionCallingConfig"]
    assert config == {"mode": "VALIDATED", "allowedFunctionNames": ["f"]}
    assert note_codes(sent.notes) == ["unsupported", "converted"]


def test_decode_request_for_streamed_arguments_is_noted() -> None:
    config = {"functionCallingConfig": {"mode": "AUTO", "streamFunctionCallArguments": True}}
    declared = [{"functionDeclarations": [{"name": "f"}]}]
    request = decode({"contents": "a", "tools": declared, "toolConfig": config})
    assert note_codes(request.notes) == ["unsupported"]
    assert "toolConfig" not in WIRE.encode_request(request).body


@pytest.mark.parametrize(
    ("config", "thinking"),
    [
        ({"thinkingBudget": -1}, Thinking(enabled=True)),
        ({"thinkingBudget": 0}, Thinking(enabled=False)),
        ({"thinkingBudget": 512}, Thinking(budget=512)),
        (
            {"thinkingLevel": "HIGH", "includeThoughts": True},
            Thinking(effort="high", shown=True),
        ),
        ({"includeThoughts": False}, Thinking(shown=False)),
    ],
)
def test_thinking_of_each_kind_is_decoded_and_restored(
    config: dict[str, Any], thinking: Thinking
) -> None:
    request = decode({"contents": "a", "generationConfig": {"thinkingConfig": config}})
    assert request.thinking == thinking
    assert WIRE.encode_request(request).body["generationConfig"] == {"thinkingConfig": config}


@pytest.mark.parametrize(
    ("thinking", "model", "config", "is_noted"),
    [
        (Thinking(effort="high"), "gemini-3", {"thinkingLevel": "HIGH"}, False),
        (Thinking(effort="xhigh"), "gemini-3", {"thinkingLevel": "HIGH"}, True),
        (Thinking(effort="minimal"), "gemini-3.7-flash", {"thinkingLevel": "LOW"}, True),
        (Thinking(effort="medium"), "gemini-3.1-pro", {"thinkingLevel": "MEDIUM"}, False),
        (Thinking(effort="medium"), "gemini-3-pro-preview", {"thinkingLevel": "LOW"}, True),
        (Thinking(effort="none"), "gemini-3-pro-preview", {"thinkingLevel": "LOW"}, True),
        (Thinking(enabled=False), "gemini-3.5-flash-lite", {"thinkingLevel": "LOW"}, True),
        (Thinking(enabled=False), "gemini-2.5-pro", {"thinkingBudget": 128}, True),
        (Thinking(enabled=False), "gemini-2.5-flash", {"thinkingBudget": 0}, False),
        (Thinking(budget=0), "gemini-2.5-flash-lite", {"thinkingBudget": 0}, False),
        (Thinking(effort="none"), "gemini-2.0-flash", None, False),
        (Thinking(effort="high", shown=True), "gemini-2.0-flash", None, True),
        (Thinking(enabled=True, budget=2000), "gemini-2.5-flash-image", None, True),
        (Thinking(enabled=True), "gemini-3-flash", None, False),
        (Thinking(enabled=True), "gemini-2.5-flash-lite", {"thinkingBudget": -1}, False),
        (Thinking(shown=True), "gemini-3-flash", {"includeThoughts": True}, False),
        (Thinking(effort="low", budget=5), "gemini-3", {"thinkingLevel": "LOW"}, True),
        (Thinking(budget=31_999), "gemini-3-flash", {"thinkingBudget": 31_999}, False),
        (Thinking(budget=31_999), "gemini-2.5-pro", {"thinkingBudget": 31_999}, False),
        (Thinking(budget=31_999), "gemini-2.5-flash", {"thinkingBudget": 24_576}, True),
        (Thinking(budget=100), "gemini-2.5-pro", {"thinkingBudget": 128}, True),
        (Thinking(effort="medium"), "gemini-2.5-pro", {"thinkingBudget": 8192}, True),
    ],
)
def test_encode_effort_by_model_sends_a_level_or_a_budget(
    thinking: Thinking, model: str, config: dict[str, Any] | None, is_noted: bool
) -> None:
    sent = WIRE.encode_request(Request(model=model, messages=(), thinking=thinking))
    assert sent.body.get("generationConfig", {}).get("thinkingConfig") == config
    assert bool(sent.notes) is is_noted


def test_encode_thinking_to_the_same_api_is_unchanged() -> None:
    for config in ({"thinkingBudget": 0}, {"thinkingBudget": 5}, {"thinkingLevel": "MINIMAL"}):
        body = {"contents": "a", "generationConfig": {"thinkingConfig": config}}
        sent = WIRE.encode_request(decode(body, model="gemini-2.5-pro"))
        assert (sent.body["generationConfig"], sent.notes) == ({"thinkingConfig": config}, ())


def test_encode_other_response_type_to_the_same_api_is_unchanged() -> None:
    config = {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING"}}
    request = decode({"contents": "a", "generationConfig": config})
    assert request.response_format is None
    assert WIRE.encode_request(request).body["generationConfig"] == config


def test_encode_request_notes_what_is_not_supported() -> None:
    messages = (
        Message("system", (Text("a"),)),
        HELLO,
        Message("developer", (Text("b"),)),
        Message("assistant", ()),
        Message("user", (Document("text", "title"), Image(url="https://x/a.jpg", detail="high"))),
    )
    request = Request(
        model="m",
        messages=messages,
        tools=(Tool(name="f", strict=True),),
        metadata={"user_id": "u"},
        wire="openai_chat",
        extra={"logit_bias": {}},
    )
    sent = WIRE.encode_request(request)
    assert sent.body["systemInstruction"] == {"parts": [{"text": "a"}, {"text": "b"}]}
    assert [note.message for note in sent.notes] == [
        "Gemini does not support `logit_bias`; dropped.",
        "Instructions within the conversation were moved to the system prompt.",
        "A developer message became part of the system prompt.",
        "Gemini does not support empty messages; dropped.",
        "A document was sent as text.",
        "Gemini does not support `detail` of an image; dropped.",
        "Gemini does not support strict tools; dropped.",
        "Gemini does not support `metadata.user_id`; dropped.",
    ]
    pictures = sent.body["contents"][1]["parts"]
    assert pictures[1] == {"fileData": {"mimeType": "image/jpeg", "fileUri": "https://x/a.jpg"}}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ([], "$"),
        ({"contents": 3}, "$.contents[0]"),
        ({"contents": [{"role": "robot"}]}, "$.contents[0].role"),
        (
            {"contents": [{"parts": [{"functionCall": {}}]}]},
            "$.contents[0].parts[0].functionCall.name",
        ),
        (
            {"contents": [{"parts": [{"function_call": {}}]}]},
            "$.contents[0].parts[0].function_call.name",
        ),
        (
            {"contents": "a", "tools": [{"functionDeclarations": [{}]}]},
            "$.tools[0].functionDeclarations[0].name",
        ),
        (
            {"contents": "a", "toolConfig": {"functionCallingConfig": {"mode": "SOME"}}},
            "$.toolConfig.functionCallingConfig.mode",
        ),
        ({"contents": "a", "generationConfig": {"topK": "x"}}, "$.generationConfig.topK"),
    ],
)
def test_decode_request_with_invalid_field_names_its_path(body: Any, path: str) -> None:
    with pytest.raises(WireError) as caught:
        decode(body)
    assert caught.value.path == path


def test_decode_schema_that_is_too_deep_is_rejected() -> None:
    schema: dict[str, Any] = {}
    for _ in range(900):
        schema = {"items": schema}
    with pytest.raises(WireError):
        decode(
            {
                "contents": "a",
                "tools": [{"functionDeclarations": [{"name": "f", "parameters": schema}]}],
            }
        )


# Replies in.


def build_chunk(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "candidates": [{"content": {"role": "model", "parts": list(parts)}, "index": 0, **fields}]
    }


USAGE = {
    "promptTokenCount": 10,
    "candidatesTokenCount": 5,
    "thoughtsTokenCount": 3,
    "cachedContentTokenCount": 4,
    "totalTokenCount": 18,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 10}],
}
CHUNKS: list[dict[str, Any]] = [
    {
        **build_chunk({"text": "Hm", "thought": True}),
        "responseId": "r9",
        "modelVersion": "gemini-9-001",
    },
    build_chunk({"text": " æ.", "thought": True}),
    build_chunk({"text": "Let "}, {"text": "me."}),
    build_chunk(
        {
            "functionCall": {"name": "get_weather", "args": {"city": "Oslo"}},
            "thoughtSignature": "c2ln",
        }
    ),
    build_chunk({"functionCall": {"id": "x", "name": "now"}}),
    {
        **build_chunk({"text": ""}, finishReason="STOP", groundingMetadata={"a": 1}),
        "usageMetadata": USAGE,
    },
]
REPLY = Reply(
    parts=(
        Reasoning("Hm æ."),
        Text("Let me."),
        Reasoning("", "c2ln"),
        ToolCall(id="new", name="get_weather", arguments={"city": "Oslo"}, extra=NO_ID),
        ToolCall(id="x", name="now", arguments={}),
    ),
    dialect="native",
    id="r9",
    model="gemini-9-001",
    stop_reason="calls",
    raw_stop_reason="STOP",
    usage=Usage(10, 8, 4, 0, 3, {"~promptTokensDetails": USAGE["promptTokensDetails"]}),
    wire="gemini",
    extra={"candidate.groundingMetadata": {"a": 1}},
)


def encode_events(frames: Iterable[Any]) -> bytes:
    return b"".join(
        b"data: " + json.dumps(frame, ensure_ascii=False).encode() + b"\r\n\r\n" for frame in frames
    )


def decode_stream(data: bytes, size: int = 10_000) -> list[Event]:
    stream = StreamDecoder(WIRE, new_id=lambda: "new")
    events = [
        event for at in range(0, len(data), size) for event in stream.feed(data[at : at + size])
    ]
    return [*events, *stream.finish()]


def test_decode_stream_in_any_chunk_size_gives_the_same_reply() -> None:
    for size in (*range(1, 30), 10_000):
        assert fold(decode_stream(encode_events(CHUNKS), size)) == REPLY


def test_decode_stream_that_came_as_a_list_gives_the_same_reply() -> None:
    assert fold(WIRE.decode_reply(CHUNKS, new_id=lambda: "new")) == REPLY


def test_decode_stream_without_end_gives_a_failure() -> None:
    assert isinstance(decode_stream(encode_events(CHUNKS[:-1]))[-1], Failure)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "filter"),
        ("RECITATION", "filter"),
        ("IMAGE_SAFETY", "filter"),
        ("LANGUAGE", "filter"),
        ("MALFORMED_FUNCTION_CALL", "error"),
        ("UNEXPECTED_TOOL_CALL", "error"),
        ("TOO_MANY_TOOL_CALLS", "error"),
        ("MISSING_THOUGHT_SIGNATURE", "error"),
        ("OTHER", "error"),
        ("SOMETHING_NEW", "stop"),
    ],
)
def test_decode_each_finish_reason_gives_its_stop_reason(reason: str, stop: str) -> None:
    body = build_chunk({"text": "a"}, finishReason=reason, finishMessage="because")
    reply = fold(WIRE.decode_reply(body))
    assert (reply.stop_reason, reply.raw_stop_reason) == (stop, reason)
    out = WIRE.encode_reply(reply, ENVELOPE)
    assert out["candidates"][0]["finishReason"] == reason
    strange = stop == "error" or reason == "SOMETHING_NEW"
    noted = [(f"The finish reason {reason} is read as {stop!r}.", "because")]
    assert [(note.message, note.where) for note in reply.notes] == (noted if strange else [])


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("stop", "STOP"),
        ("calls", "STOP"),
        ("stop_sequence", "STOP"),
        ("length", "MAX_TOKENS"),
        ("filter", "SAFETY"),
        ("refusal", "SAFETY"),
        ("error", "OTHER"),
    ],
)
def test_encode_each_stop_reason_gives_its_finish_reason(stop: Any, reason: str) -> None:
    reply = fold([Started(wire="anthropic"), TextDelta("a"), Finish(stop, "end_turn")])
    assert WIRE.encode_reply(reply, ENVELOPE)["candidates"][0]["finishReason"] == reason


def test_reply_for_the_same_api_is_restored_and_for_others_has_no_notes() -> None:
    body = {
        **build_chunk(
            {"text": "a"},
            {"functionCall": {"name": "f", "args": {}}},
            finishReason="STOP",
            safetyRatings=[{"category": "x"}],
            avgLogprobs=-0.5,
        ),
        "usageMetadata": {
            "promptTokenCount": 10,
            "toolUsePromptTokenCount": 4,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 2,
            "totalTokenCount": 22,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 10}],
            "trafficType": "ON_DEMAND",
        },
        "modelVersion": "m",
        "responseId": "r",
        "createTime": "2026-01-01T00:00:00Z",
        "promptFeedback": {"safetyRatings": []},
    }
    reply = fold(WIRE.decode_reply(body))
    assert reply.usage
    assert (reply.usage.input, reply.usage.output, reply.usage.reasoning) == (14, 7, 2)
    assert WIRE.encode_reply(reply, ENVELOPE) == body
    assert reply.notes == ()
    for wire in WIRES.values():
        assert wire.find_losses(reply) == ()


def test_find_losses_of_grounding_notes_it() -> None:
    [note] = WIRES["anthropic"].find_losses(REPLY)[-1:]
    assert "candidate.groundingMetadata" in note.message


def test_decode_malformed_call_notes_its_text() -> None:
    text = "Malformed function call: print(default_api.f())"
    body = build_chunk(finishReason="MALFORMED_FUNCTION_CALL", finishMessage=text)
    [note] = fold(WIRE.decode_reply(body)).notes
    assert (note.code, note.where) == ("malformed", text)


def test_decode_blocked_prompt_is_filtered() -> None:
    body = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": USAGE}
    reply = fold(decode_stream(encode_events([body])))
    assert (reply.parts, reply.stop_reason) == ((), "filter")
    assert WIRE.encode_reply(reply, ENVELOPE)["promptFeedback"] == body["promptFeedback"]


def test_reply_with_images_and_other_parts_is_restored() -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}
    code = {"executableCode": {"code": "1", "language": "PYTHON"}}
    sound = {"inlineData": {"mimeType": "audio/wav", "data": "AA=="}}
    body = build_chunk(picture, code, sound, finishReason="STOP")
    reply = fold(WIRE.decode_reply(body))
    assert reply.parts == (Image(data="AA=="), Other(code), Other(sound))
    assert WIRE.encode_reply(reply, ENVELOPE)["candidates"] == body["candidates"]
    added = [PartAdded(part) for part in reply.parts if isinstance(part, (Image, Other))]
    events = (Started(wire="gemini"), *added, Finish("stop"))
    streamed = b"".join(map(GeminiStreamEncoder(ENVELOPE).feed, events))
    assert fold(decode_stream(streamed)).parts == reply.parts


@pytest.mark.parametrize("second", [{"index": 1}, {}])
def test_decode_second_candidate_is_dropped_with_a_note(second: dict[str, Any]) -> None:
    body = build_chunk({"text": "a"}, finishReason="STOP")
    body["candidates"].append({"content": {"parts": [{"text": "b"}]}, **second})
    reply = fold(WIRE.decode_reply(body))
    assert reply.text == "a"
    assert note_codes(reply.notes) == ["unsupported"]


def test_decode_signature_of_an_unsupported_part_is_kept_once() -> None:
    sound = {"inlineData": {"mimeType": "audio/wav", "data": "AA=="}}
    body = build_chunk({**sound, "thoughtSignature": "YQ=="}, finishReason="STOP")
    assert fold(WIRE.decode_reply(body)).parts == (Reasoning("", "YQ=="), Other(sound))


def test_decode_streamed_arguments_gives_a_failure() -> None:
    part = {"functionCall": {"name": "f", "partialArgs": [{"jsonPath": "$.a", "stringValue": "b"}]}}
    events = decode_stream(encode_events([build_chunk(part, finishReason="STOP")]))
    assert isinstance(events[-1], Failure)
    assert not any(isinstance(event, CallEnd) for event in events)


# Replies out.

EVENTS: list[Event] = [
    Started("r9", "gemini-9", wire="gemini"),
    ReasoningDelta("Hm."),
    ReasoningDelta("", "c2ln"),
    CallStart(0, "c1", "get_weather"),
    CallEnd(0, OSLO),
    TextDelta("Hi\u2028 æ"),
    Finish("calls", "STOP", Usage(10, 8, 4, 0, 3)),
]
HEAD = {"modelVersion": "gemini-9", "responseId": "r9"}


def test_encode_stream_writes_events_of_one_line() -> None:
    lines = b"".join(map(GeminiStreamEncoder(ENVELOPE).feed, EVENTS)).decode().split("\n\n")
    assert lines.pop() == ""
    assert all(line.startswith("data: {") and "\n" not in line for line in lines)
    call = {"id": "c1", "name": "get_weather", "args": {"city": "Oslo"}}
    last = build_chunk(finishReason="STOP")
    assert [json.loads(line[6:]) for line in lines] == [
        {**build_chunk({"text": "Hm.", "thought": True}), **HEAD},
        {**build_chunk({"functionCall": call, "thoughtSignature": "c2ln"}), **HEAD},
        {**build_chunk({"text": "Hi\u2028 æ"}), **HEAD},
        {
            **last,
            "usageMetadata": {
                "promptTokenCount": 10,
                "candidatesTokenCount": 5,
                "totalTokenCount": 18,
                "cachedContentTokenCount": 4,
                "thoughtsTokenCount": 3,
            },
            **HEAD,
        },
    ]


def test_encode_stream_as_array_holds_the_same_frames() -> None:
    data = b"".join(map(GeminiStreamEncoder(ENVELOPE, array=True).feed, EVENTS))
    lines = b"".join(map(GeminiStreamEncoder(ENVELOPE).feed, EVENTS)).decode().split("\n\n")
    assert json.loads(data) == [json.loads(line[6:]) for line in lines if line]
    failing = GeminiStreamEncoder(ENVELOPE, array=True).feed(Failure("overloaded", "busy", 503))
    assert json.loads(failing)[0]["error"]["status"] == "UNAVAILABLE"


@pytest.mark.parametrize(
    "events",
    [
        EVENTS,
        [Started(wire="gemini"), TextDelta("a"), ReasoningDelta("", "YQ=="), Finish("stop")],
        [
            Started(wire="gemini"),
            ReasoningDelta("a", "YQ=="),
            ReasoningDelta("b", "Yg=="),
            Finish("stop"),
        ],
        [Started(wire="gemini"), ReasoningDelta("a", "YQ=="), Finish("length")],
        [
            Started(wire="anthropic"),
            ReasoningDelta("a", "no/base+64!"),
            TextDelta("b"),
            Finish("stop"),
        ],
        [TextDelta("a"), ReasoningDelta("b"), TextDelta("c"), Finish("stop")],
        [Finish("stop")],
    ],
)
def test_encode_stream_and_reply_have_the_same_content(events: list[Event]) -> None:
    reply = fold(events)
    whole = fold(WIRE.decode_reply(WIRE.encode_reply(reply, ENVELOPE)))
    streamed = fold(decode_stream(b"".join(map(GeminiStreamEncoder(ENVELOPE).feed, events))))
    for result in (whole, streamed):
        assert [part for part in result.parts if part != Text("")] == list(reply.parts)
        assert result.stop_reason == reply.stop_reason


def test_signature_of_another_api_survives_reencoding() -> None:
    events = [Started(wire="anthropic"), ReasoningDelta("a", "x+/y="), TextDelta("b"), Finish()]
    part = WIRE.encode_reply(fold(events), ENVELOPE)["candidates"][0]["content"]["parts"][1]
    anew = genai_types.Part.model_validate(part).model_dump(mode="json", exclude_none=True)
    assert decode_parts(anew) == (Reasoning("", "x+/y="), Text("b"))


def test_encode_stream_with_failure_ends_with_an_error() -> None:
    encoder = GeminiStreamEncoder(ENVELOPE)
    data = encoder.feed(TextDelta("a")) + encoder.feed(Failure("rate_limit", "slow down", 429))
    assert data.endswith(
        b'data: {"error":{"code":429,"message":"slow down","status":"RESOURCE_EXHAUSTED"}}\n\n'
    )
    failure = decode_stream(data)[-1]
    assert failure == Failure("rate_limit", "slow down", 429, "RESOURCE_EXHAUSTED")


@pytest.mark.parametrize(
    ("status", "error", "kind", "param"),
    [
        (400, {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}, "bad_request", None),
        (
            400,
            {
                "code": 400,
                "message": "bad",
                "status": "INVALID_ARGUMENT",
                "details": [{"@type": "x", "fieldViolations": [{"field": "contents[0]"}]}],
            },
            "bad_request",
            "contents[0]",
        ),
        (
            400,
            {
                "code": 400,
                "message": "The input token count exceeds the maximum number of tokens.",
                "status": "INVALID_ARGUMENT",
            },
            "context_length",
            None,
        ),
        (
            400,
            {
                "code": 400,
                "message": "API key not valid.",
                "status": "INVALID_ARGUMENT",
                "details": [{"reason": "API_KEY_INVALID"}],
            },
            "unauthorized",
            None,
        ),
        (404, {"code": 404, "message": "no", "status": "NOT_FOUND"}, "not_found", None),
        (503, {"code": 503, "message": "busy", "status": "UNAVAILABLE"}, "overloaded", None),
    ],
)
def test_decode_failure_of_each_status_gives_its_kind(
    status: int, error: dict[str, Any], kind: str, param: str | None
) -> None:
    for body in ({"error": error}, [{"error": error}]):
        failure = WIRE.decode_failure(status, body)
        assert (failure.kind, failure.param, failure.status) == (kind, param, status)
    if kind != "unauthorized":
        assert WIRE.encode_failure(failure) == {"error": error}


def test_decode_failure_of_another_shape_gives_its_message() -> None:
    for body in (
        None,
        "busy",
        [],
        {},
        {"error": None},
        [3],
        {"error": {"code": "x", "details": 3}},
    ):
        assert WIRE.decode_failure(500, body).kind == "upstream"
    error = WIRE.encode_failure(WireError("bad", "$.contents[0]").failure)["error"]
    assert error["details"][0]["fieldViolations"][0]["field"] == "contents[0]"


# Whatever comes.


def test_decode_mutated_request_raises_only_wire_errors() -> None:
    chance = random.Random(1)
    refused = 0
    for turn in range(3000):
        body = mutate(to_snake_case(CLIENT) if turn % 2 else CLIENT, chance)
        try:
            request = decode(body)
        except WireError:
            refused += 1
        else:
            for wire in ("gemini", "anthropic"):
                WIRE.encode_request(structs.replace(request, wire=wire))
    assert 300 < refused < 2700


def test_decode_mutated_stream_never_raises() -> None:
    chance = random.Random(2)
    for turn in range(3000):
        frames = [mutate(frame, chance) for frame in CHUNKS]
        data = bytearray(encode_events(frames))
        if turn % 3 == 0:
            data[chance.randrange(len(data))] = chance.randrange(256)
        events = decode_stream(bytes(data), 50)
        encoder = GeminiStreamEncoder(ENVELOPE)
        for event in events:
            encoder.feed(event)
        WIRE.encode_reply(fold(events), ENVELOPE)


# Google's own SDK.


@contextmanager
def open_client(
    status: int, body: bytes, content_type: str = "application/json"
) -> Generator[tuple[genai.Client, ReceivedRequests]]:
    """Open a client of a server with this response; yield it and the requests."""
    with serve_response(status, body, content_type) as (url, requests):
        options = genai_types.HttpOptions(base_url=url)
        with genai.Client(api_key="x", http_options=options) as client:
            yield client, requests


def build_arguments(**fields: Any) -> dict[str, Any]:
    tool = genai_types.Tool(
        function_declarations=[
            genai_types.FunctionDeclaration(
                name="get_weather", description="The weather.", parameters_json_schema=SCHEMA
            ),
            genai_types.FunctionDeclaration(
                name="now",
                parameters=genai_types.Schema(
                    type=genai_types.Type.OBJECT,
                    properties={
                        "zone": genai_types.Schema(type=genai_types.Type.STRING, nullable=True)
                    },
                ),
            ),
        ]
    )
    config = genai_types.GenerateContentConfig(
        system_instruction="Be brief.",
        tools=[tool],
        temperature=0.5,
        max_output_tokens=100,
        thinking_config=genai_types.ThinkingConfig(include_thoughts=True, thinking_budget=512),
        **fields,
    )
    return {"model": "gemini-9", "contents": "Weather in Oslo?", "config": config}


def check_request(path: str, body: Any, stream: bool) -> None:
    assert path.endswith(
        "/models/gemini-9:streamGenerateContent?alt=sse"
        if stream
        else "/models/gemini-9:generateContent"
    )
    request = decode(body, model="gemini-9", stream=stream)
    zone = {"type": "object", "properties": {"zone": {"type": ["string", "null"]}}}
    assert [(tool.name, tool.description, tool.parameters) for tool in request.tools or ()] == [
        ("get_weather", "The weather.", SCHEMA),
        ("now", "", zone),
    ]
    assert [message.role for message in request.messages] == ["system", "user"]
    assert (request.max_tokens, request.thinking) == (100, Thinking(budget=512, shown=True))
    assert request.extra == {}


def test_sdk_parses_stream() -> None:
    data = b"".join(map(GeminiStreamEncoder(ENVELOPE).feed, EVENTS))
    with open_client(200, data, WIRE.content_type) as (client, requests):
        chunks = list(client.models.generate_content_stream(**build_arguments()))
    check_request(*requests[0], stream=True)
    parts = [
        part
        for each in chunks
        for candidate in each.candidates or ()
        for part in (candidate.content and candidate.content.parts) or ()
    ]
    assert [(part.text, part.thought) for part in parts if part.text] == [
        ("Hm.", True),
        ("Hi\u2028 æ", None),
    ]
    [call] = [part for part in parts if part.function_call]
    assert call.function_call
    assert (call.function_call.id, call.function_call.name, call.function_call.args) == (
        "c1",
        "get_weather",
        {"city": "Oslo"},
    )
    assert call.thought_signature == b"sig"
    last = chunks[-1]
    assert last.candidates
    assert last.candidates[0].finish_reason == genai_types.FinishReason.STOP
    assert last.usage_metadata
    assert last.usage_metadata.total_token_count == 18
    assert last.usage_metadata.thoughts_token_count == 3
    assert (last.response_id, last.model_version) == ("r9", "gemini-9")


def test_sdk_parses_whole_reply() -> None:
    data = json.dumps(WIRE.encode_reply(fold(EVENTS), ENVELOPE)).encode()
    with open_client(200, data) as (client, requests):
        reply = client.models.generate_content(**build_arguments())
    check_request(*requests[0], stream=False)
    assert [(call.name, call.args) for call in reply.function_calls or ()] == [
        ("get_weather", {"city": "Oslo"})
    ]
    assert reply.candidates
    content = reply.candidates[0].content
    assert content
    assert [bool(part.thought) for part in content.parts or ()] == [True, False, False]


def test_sdk_second_turn_gives_the_first_reply_back() -> None:
    """Send the model's content as the SDK holds it, and a result."""
    data = json.dumps(WIRE.encode_reply(fold(EVENTS), ENVELOPE)).encode()
    with open_client(200, data) as (client, requests):
        first = client.models.generate_content(**build_arguments())
        assert first.candidates
        result = genai_types.Part.from_function_response(
            name="get_weather", response={"result": "Sunny"}
        )
        contents: Any = [
            "Weather in Oslo?",
            first.candidates[0].content,
            genai_types.Content(role="user", parts=[result]),
        ]
        client.models.generate_content(**(build_arguments() | {"contents": contents}))
    _, model, tool = decode(requests[1][1]).messages[1:]
    assert model == Message("assistant", (Reasoning("Hm.", "c2ln"), OSLO, Text("Hi\u2028 æ")))
    result = ToolResult(call_id="c1", name="get_weather", content="Sunny", extra=NO_ID)
    assert tool.parts == (result,)


def test_sdk_parses_structured_output() -> None:
    events = [TextDelta('{"sky":'), TextDelta('"blue"}'), Finish("stop")]
    data = json.dumps(WIRE.encode_reply(fold(events), ENVELOPE)).encode()
    config = genai_types.GenerateContentConfig(
        response_mime_type="application/json", response_json_schema={"type": "object"}
    )
    with open_client(200, data) as (client, requests):
        reply = client.models.generate_content(model="m", contents="Sky?", config=config)
    assert reply.parsed == {"sky": "blue"}
    assert decode(requests[0][1]).response_format == ResponseFormat({"type": "object"})


def test_sdk_raises_on_failures() -> None:
    failure = Failure("rate_limit", "slow down", 429)
    body = json.dumps(WIRE.encode_failure(failure)).encode()
    with open_client(429, body) as (client, _), pytest.raises(genai_errors.ClientError) as caught:
        client.models.generate_content(**build_arguments())
    assert (caught.value.code, caught.value.status) == (429, "RESOURCE_EXHAUSTED")
    encoder = GeminiStreamEncoder(ENVELOPE)
    data = encoder.feed(TextDelta("a")) + encoder.feed(failure)
    with open_client(200, data, WIRE.content_type) as (client, _):
        stream = client.models.generate_content_stream(**build_arguments())
        assert next(stream).text == "a"
        with pytest.raises(genai_errors.APIError, match="slow down"):
            next(stream)


def test_decode_single_values_in_place_of_lists_are_accepted() -> None:
    for tools in (
        {"functionDeclarations": {"name": "f"}},
        [{"functionDeclarations": {"name": "f"}}],
    ):
        request = decode({"contents": "a", "tools": tools})
        assert [tool.name for tool in request.tools or ()] == ["f"]
    stopped = decode({"contents": "a", "generationConfig": {"stopSequences": "END"}})
    assert stopped.stop == ("END",)
