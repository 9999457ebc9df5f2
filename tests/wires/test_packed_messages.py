"""Calls and results that a client stored as JSON in the content of its messages, on every API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolspeak import Message, Text, ToolCall, ToolResult
from toolspeak.types import Request
from toolspeak.wires import WIRES

CALL = {"id": "c1", "name": "shell", "arguments": '{"command": "ls"}'}
PACKED_CALL = json.dumps({"content": "Let me look.", "tool_calls": [CALL]})
PACKED_RESULT = json.dumps({"tool_call_id": "c1", "content": "a.txt"})


def build_body(wire: str, *messages: tuple[str, str]) -> dict[str, Any]:
    match wire:
        case "openai_responses":
            items = [{"role": role, "content": text} for role, text in messages]
            return {"model": "m", "input": items}
        case "gemini":
            roles = {"assistant": "model"}
            contents = [
                {"role": roles.get(role, role), "parts": [{"text": text}]}
                for role, text in messages
            ]
            return {"contents": contents}
        case _:
            items = [{"role": role, "content": text} for role, text in messages]
            return {"model": "m", "max_tokens": 9, "messages": items}


def decode(wire: str, *messages: tuple[str, str]) -> Request:
    body = build_body(wire, *messages)
    if wire == "openai_chat":
        body.pop("max_tokens")
    return WIRES[wire].decode_request(body, model="m")


RESULT_ROLE = {"openai_chat": "tool", "ollama": "tool"}
"""The role of results, where the API has one."""


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("content", [PACKED_CALL, f"\n{PACKED_CALL}\n"])
def test_decode_packed_history_gives_calls_and_results(wire: str, content: str) -> None:
    role = RESULT_ROLE.get(wire, "user")
    request = decode(wire, ("user", "Look."), ("assistant", content), (role, PACKED_RESULT))
    _, asked, answered = request.messages
    text, call = asked.parts
    assert isinstance(text, Text)
    assert isinstance(call, ToolCall)
    assert text.text == "Let me look."
    assert (call.id, call.name, call.arguments) == ("c1", "shell", {"command": "ls"})
    (result,) = answered.parts
    assert isinstance(result, ToolResult)
    assert (answered.role, result.call_id, result.name) == ("tool", "c1", "shell")
    assert result.text == "a.txt"
    assert [note.code for note in request.notes] == ["converted", "converted"]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "content",
    [
        '{"content": "hi"}',
        '{"content": "hi", "tool_calls": []}',
        '{"content": "hi", "tool_calls": ["ls"]}',
        '{"content": "hi", "tool_calls": [{"function": {}}], "more": 1}',
        '{"tool_calls": 1}',
        '{"content": "hi", "tool_calls": [',
        f"Like this: {PACKED_CALL}",
    ],
)
def test_decode_content_like_packed_calls_stays_text(wire: str, content: str) -> None:
    request = decode(wire, ("user", "Look."), ("assistant", content), ("user", "So?"))
    assert all(isinstance(part, Text) for message in request.messages for part in message.parts)
    assert not request.notes


@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire not in RESULT_ROLE])
@pytest.mark.parametrize("tool_call_id", ["c2", ""])
def test_decode_users_text_like_result_of_no_call_stays_text(wire: str, tool_call_id: str) -> None:
    text = json.dumps({"tool_call_id": tool_call_id, "content": "a.txt"})
    request = decode(wire, ("user", "Look."), ("assistant", PACKED_CALL), ("user", text))
    assert request.messages[-1] == Message("user", (Text(text),))
