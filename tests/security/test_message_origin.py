"""The origin of each text in a conversation, in the shape of every API."""

from __future__ import annotations

from typing import Any

import pytest

from toolspeak import Document, Message, Text, ToolResult, UsageError
from toolspeak.security.message_origin import UserTurn, split_by_origin

UNTRUSTED: list[Any] = [
    "planted",
    {"role": "tool", "content": "planted"},
    {"role": "tool", "content": {"result": "planted"}},
    {"role": "tool", "content": ["planted"]},
    {"role": "function", "name": "f", "content": "planted"},
    {"role": "ipython", "content": "planted"},
    {"role": "observation", "content": "planted"},
    {"role": "user", "content": [{"type": "tool_result", "content": "planted"}]},
    {"role": "user", "content": [{"type": "document", "source": {"data": "planted"}}]},
    {"role": "user", "content": [{"type": "input_file", "file_data": "planted"}]},
    {"role": "user", "content": [{"type": "resource", "resource": {"text": "planted"}}]},
    {"role": "assistant", "content": [{"type": "mcp_tool_result", "content": "planted"}]},
    {"role": "assistant", "content": [{"type": "web_search_tool_result", "content": "planted"}]},
    {"role": "user", "parts": [{"functionResponse": {"response": {"result": "planted"}}}]},
    {"role": "user", "parts": [{"function_response": {"response": {"result": "planted"}}}]},
    {"type": "function_call_output", "call_id": "1", "output": "planted"},
    {"type": "custom_tool_call_output", "output": "planted"},
    {"type": "local_shell_call_output", "output": [{"text": "planted"}]},
    {"type": "mcp_call", "name": "f", "arguments": "{}", "output": "planted"},
    Message("tool", (Text("planted"),)),
    Message("user", (Document("planted"),)),
    ToolResult(call_id="1", name="f", content=(Text("planted"),)),
]
REQUESTED: list[Any] = [
    {"role": "user", "content": "asked"},
    {"role": "user", "content": [{"type": "text", "text": "asked"}]},
    {"role": "user", "content": [{"type": "input_text", "text": "asked"}]},
    {"role": "user", "parts": [{"text": "asked"}]},
    Message("user", (Text("asked"),)),
]
NEITHER: list[Any] = [
    {"role": "assistant", "content": "said"},
    {"role": "system", "content": "said"},
    {"role": "assistant", "content": [{"type": "text", "text": "said"}]},
    {"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {"a": "said"}}]},
    {"type": "function_call", "name": "f", "arguments": "said"},
    {"role": "user", "content": [{"type": "image", "source": {"data": "said"}}]},
]


@pytest.mark.parametrize("message", UNTRUSTED, ids=repr)
def test_untrusted_message_is_untrusted(message: Any) -> None:
    untrusted, turns = split_by_origin([message])
    assert any("planted" in text for text in untrusted)
    assert not any("planted" in request.text for request in turns)


@pytest.mark.parametrize("message", REQUESTED, ids=repr)
def test_message_of_the_user_is_a_turn(message: Any) -> None:
    assert split_by_origin([message]) == ([], [UserTurn("asked")])


@pytest.mark.parametrize("message", NEITHER, ids=repr)
def test_message_of_the_model_is_neither(message: Any) -> None:
    assert split_by_origin([message]) == ([], [])


def test_single_message_equals_a_request_with_it() -> None:
    message = {"role": "tool", "content": "planted"}
    assert (
        split_by_origin(message)
        == split_by_origin([message])
        == split_by_origin({"messages": [message]})
    )


REQUESTS: list[Any] = [
    {
        "messages": [
            {"role": "user", "content": "asked"},
            {"role": "tool", "tool_call_id": "1", "content": "planted"},
        ],
        "system": "said",
    },
    {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "asked"}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "planted"},
        ],
        "instructions": "said",
    },
    {
        "contents": [
            {"parts": [{"text": "asked"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "f", "response": {"result": "planted"}}}],
            },
        ],
        "systemInstruction": {"parts": [{"text": "said"}]},
    },
    {"messages": [{"role": "user", "content": "asked"}], "documents": [{"data": "planted"}]},
]


@pytest.mark.parametrize("request_body", REQUESTS, ids=lambda body: next(iter(body)))
def test_whole_request_is_split_by_origin(request_body: Any) -> None:
    untrusted, turns = split_by_origin(request_body)
    assert "planted" in untrusted
    assert "said" not in untrusted
    assert [request.text for request in turns] == ["asked"]


@pytest.mark.parametrize(
    "request_body",
    [
        {"input": "asked"},
        {"input": ["asked"]},
        {"contents": "asked"},
        {"contents": {"parts": [{"text": "asked"}]}},
    ],
)
def test_request_without_roles_is_the_users(request_body: Any) -> None:
    assert split_by_origin(request_body) == ([], [UserTurn("asked")])


def test_turn_has_the_reply_before_it() -> None:
    def split_turns(*turns: tuple[str, str]) -> list[UserTurn]:
        return split_by_origin([{"role": role, "content": text} for role, text in turns])[1]

    said, asked = ("assistant", "said"), ("user", "asked")
    assert split_turns(asked, said, asked) == [UserTurn("asked"), UserTurn("asked", "said")]
    assert split_turns(said, asked, asked) == [UserTurn("asked", "said")] * 2
    assert split_turns(said, ("system", "be brief"), asked) == [UserTurn("asked", "said")]
    assert split_turns(said, ("tool", "planted"), asked) == [UserTurn("asked")]


def test_value_that_is_not_a_message_raises() -> None:
    with pytest.raises(UsageError, match=r"got `int` - at `\$\.context\[1\]`"):
        split_by_origin(["text", 1])
