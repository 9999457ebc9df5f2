"""`cache_control` reaches every upstream that has it, and no other, in every mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.support import prepare
from toolspeak.config.providers import find_provider
from toolspeak.engine import Attempt
from toolspeak.types import Quirks, Request, ToolsMode
from toolspeak.wires import get_wire

HOUR = {"type": "ephemeral", "ttl": "1h"}
SHORT = {"type": "ephemeral"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def cached(text: str, mark: dict[str, Any] = SHORT) -> dict[str, Any]:
    return {"type": "text", "text": text, "cache_control": mark}


ANTHROPIC = {
    "model": "m",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Be brief."}, cached("Be kind.", HOUR)],
    "tools": [{"name": "look", "input_schema": SCHEMA, "cache_control": HOUR}],
    "messages": [
        {"role": "user", "content": [cached("How is Oslo?")]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": "rain",
                    "cache_control": SHORT,
                }
            ],
        },
    ],
}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CHAT = {
    "model": "m",
    "messages": [
        {
            "role": "system",
            "content": [{"type": "text", "text": "Be brief."}, cached("Kind.", HOUR)],
        },
        {"role": "user", "content": "How is Oslo?", "cache_control": SHORT},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": [cached("rain")]},
    ],
    "tools": [
        {
            "type": "function",
            "function": {"name": "look", "parameters": SCHEMA},
            "cache_control": HOUR,
        }
    ],
}
CLIENTS = {"anthropic": ANTHROPIC, "openai_chat": CHAT}
OPENROUTER = find_provider("openrouter").quirks


def decode(client: str) -> Request:
    return get_wire(client).decode_request(CLIENTS[client])


def find_marks(value: Any) -> Iterator[dict[str, Any]]:
    """Iterate over the objects with `cache_control`."""
    if isinstance(value, dict):
        if "cache_control" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from find_marks(item)


def note_messages(sent: Attempt) -> str:
    return " ".join(note.message for note in sent.outgoing.notes)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("wire", "quirks"), [("anthropic", Quirks()), ("openai_chat", OPENROUTER)], ids=["a", "chat"]
)
def test_cache_control_is_passed_on_between_apis_that_have_it(
    client: str, wire: str, quirks: Quirks
) -> None:
    sent = prepare(decode(client), mode="native", wire=wire, quirks=quirks)
    body = sent.outgoing.body
    assert [one["cache_control"] for one in find_marks(body.get("system"))] == (
        [HOUR] if wire == "anthropic" else []
    )
    assert [one["cache_control"] for one in find_marks(body["tools"])] == [HOUR]
    in_messages = [one["cache_control"] for one in find_marks(body["messages"])]
    assert in_messages == [HOUR, SHORT, SHORT][-2 if wire == "anthropic" else -3 :]
    assert "cache_control" not in note_messages(sent)
    for message in body["messages"] if client != wire else ():
        assert "cache_control" not in message


def test_marked_result_for_chat_is_a_marked_text() -> None:
    sent = prepare(decode("anthropic"), mode="native", wire="openai_chat", quirks=OPENROUTER)
    assert sent.outgoing.body["messages"][-1]["content"] == [
        {"cache_control": SHORT, "type": "text", "text": "rain"}
    ]


def test_mark_on_a_chat_message_is_on_its_last_block_for_anthropic() -> None:
    sent = prepare(decode("openai_chat"), mode="native", wire="anthropic")
    assert sent.outgoing.body["messages"][0]["content"] == [
        {"cache_control": SHORT, "type": "text", "text": "How is Oslo?"}
    ]


def test_mark_on_the_request_is_passed_on() -> None:
    request = get_wire("anthropic").decode_request(ANTHROPIC | {"cache_control": SHORT})
    sent = prepare(request, mode="native", wire="openai_chat", quirks=OPENROUTER)
    assert sent.outgoing.body["cache_control"] == SHORT


@pytest.mark.parametrize("mode", ["native", "prompt"])
@pytest.mark.parametrize("wire", ["openai_chat", "ollama", "gemini", "openai_responses"])
def test_cache_control_for_other_upstreams_is_dropped_with_a_note(
    wire: str, mode: ToolsMode
) -> None:
    sent = prepare(decode("anthropic"), mode=mode, wire=wire)
    assert list(find_marks(sent.outgoing.body)) == []
    assert "cache_control" in note_messages(sent)


def test_chat_client_keeps_its_marks_for_any_chat_upstream() -> None:
    sent = prepare(decode("openai_chat"), mode="native", wire="openai_chat")
    marks = [one["cache_control"] for one in find_marks(sent.outgoing.body)]
    assert marks == [HOUR, SHORT, SHORT, HOUR]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("wire", "quirks"), [("anthropic", Quirks()), ("openai_chat", OPENROUTER)], ids=["a", "chat"]
)
def test_cache_control_in_prompt_mode_is_on_the_texts(
    client: str, wire: str, quirks: Quirks
) -> None:
    sent = prepare(decode(client), mode="prompt", wire=wire, quirks=quirks)
    body = sent.outgoing.body
    system = body["system"] if wire == "anthropic" else body["messages"][0]["content"]
    (text,) = system
    assert text["cache_control"] == HOUR
    assert "look" in text["text"]
    (result,) = find_marks(body["messages"][-1])
    assert result["cache_control"] == SHORT
    assert "rain" in result["text"]
    assert "cache_control" not in note_messages(sent)


def test_prompt_mode_without_marks_sends_plain_texts() -> None:
    request = get_wire("openai_chat").decode_request(
        {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": CHAT["tools"][:1]}
    )
    sent = prepare(request, mode="prompt", wire="openai_chat")
    assert all(isinstance(one["content"], str) for one in sent.outgoing.body["messages"])
