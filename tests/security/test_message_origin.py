"""Who said what, in every API's shape."""

from __future__ import annotations

from typing import Any

import pytest

from toolspeak import Document, Message, Text, ToolResult, UsageError
from toolspeak.security.message_origin import UserTurn, split_by_origin

FOREIGN: list[Any] = [
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
OWN: list[Any] = [
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


@pytest.mark.parametrize("message", FOREIGN, ids=repr)
def test_untrusted_message_is_untrusted(message: Any) -> None:
    foreign, own = split_by_origin([message])
    assert any("planted" in text for text in foreign)
    assert not any("planted" in request.text for request in own)


@pytest.mark.parametrize("message", OWN, ids=repr)
def test_users_message_is_a_turn(message: Any) -> None:
    assert split_by_origin([message]) == ([], [UserTurn("asked")])


@pytest.mark.parametrize("message", NEITHER, ids=repr)
def test_models_message_is_neither(message: Any) -> None:
    assert split_by_origin([message]) == ([], [])


def test_one_message_and_a_whole_request() -> None:
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
def test_whole_requests(request_body: Any) -> None:
    foreign, own = split_by_origin(request_body)
    assert "planted" in foreign
    assert "said" not in foreign
    assert [request.text for request in own] == ["asked"]


@pytest.mark.parametrize(
    "request_body",
    [
        {"input": "asked"},
        {"input": ["asked"]},
        {"contents": "asked"},
        {"contents": {"parts": [{"text": "asked"}]}},
    ],
)
def test_short_requests(request_body: Any) -> None:
    assert split_by_origin(request_body) == ([], [UserTurn("asked")])


def test_turn_has_the_reply_before_it() -> None:
    def requests(*turns: tuple[str, str]) -> list[UserTurn]:
        return split_by_origin([{"role": role, "content": text} for role, text in turns])[1]

    said, asked = ("assistant", "said"), ("user", "asked")
    assert requests(asked, said, asked) == [UserTurn("asked"), UserTurn("asked", "said")]
    assert requests(said, asked, asked) == [UserTurn("asked", "said")] * 2
    assert requests(said, ("system", "be brief"), asked) == [UserTurn("asked", "said")]
    assert requests(said, ("tool", "planted"), asked) == [UserTurn("asked")]


def test_value_that_is_no_message_raises() -> None:
    with pytest.raises(UsageError, match=r"got `int` - at `\$\.context\[1\]`"):
        split_by_origin(["text", 1])
