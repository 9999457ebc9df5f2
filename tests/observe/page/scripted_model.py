"""Requests with a tool in each API, and the model that replies to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolspeak import Event, Finish, Request, Text, TextDelta

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
TOOL = {"name": "get_weather", "description": "The weather in a city.", "parameters": PARAMETERS}
CALL = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "days": "3"}}\n</tool_call>'
)
INVALID_CALL = '<tool_call>{"name": "get_weather", "arguments": {"town": "Oslo"}}</tool_call>'
QUESTION = "What is the weather in Oslo?"


def build_request(wire: str, question: str = QUESTION) -> tuple[str, dict[str, Any]]:
    """Return the path and the body of a streamed request with a tool."""
    messages = [{"role": "user", "content": question}]
    function = {"type": "function", "function": TOOL}
    match wire:
        case "openai_responses":
            tool = {"type": "function", **TOOL}
            body = {"model": "m", "input": question, "tools": [tool], "stream": True}
            return "/v1/responses", body
        case "anthropic":
            tool = {"name": "get_weather", "input_schema": PARAMETERS}
            body = {"model": "m", "max_tokens": 200, "messages": messages, "stream": True}
            return "/v1/messages", {**body, "tools": [tool]}
        case "ollama":
            return "/api/chat", {"model": "m", "messages": messages, "tools": [function]}
        case "gemini":
            contents = [{"role": "user", "parts": [{"text": question}]}]
            tools = [{"functionDeclarations": [TOOL]}]
            path = "/v1beta/models/m:streamGenerateContent?alt=sse"
            return path, {"contents": contents, "tools": tools}
        case _:
            body = {"model": "m", "messages": messages, "tools": [function], "stream": True}
            return "/v1/chat/completions", body


def stream_text(text: str, size: int = 6) -> Iterator[Event]:
    for start in range(0, len(text), size):
        yield TextDelta(text[start : start + size])
    yield Finish("stop")


def reply_to(request: Request) -> Iterator[Event]:
    """Write a call with an argument of the wrong type, unless words of the question select
    another reply: "invalid" a call that fails the schema, "long" a megabyte, "slow" many chunks."""
    texts = [
        part.text
        for message in request.messages
        for part in message.parts
        if isinstance(part, Text)
    ]
    if any("light snow" in text for text in texts):
        return stream_text("It is cold in Oslo.")
    if "invalid" in texts[-1]:
        return stream_text(INVALID_CALL)
    if "long" in texts[-1]:
        return stream_text("It goes on and on. " * 60_000, 4000)
    if "slow" in texts[-1]:
        return stream_text("Slowly does it. " * 30, 6)
    return stream_text(f"I will look.\n{CALL}")
