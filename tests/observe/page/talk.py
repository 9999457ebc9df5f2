"""What a model is asked here, by each API, and what it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolspeak import Event, Finish, Request, Text, TextDelta

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
TOOL = {"name": "get_weather", "description": "The weather in a city.", "parameters": CITY}
CALL = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "days": "3"}}\n</tool_call>'
)
MISFIT = '<tool_call>{"name": "get_weather", "arguments": {"town": "Oslo"}}</tool_call>'
QUESTION = "What is the weather in Oslo?"


def body(wire: str, question: str = QUESTION) -> tuple[str, dict[str, Any]]:
    """The path and the body of a streamed request with a tool."""
    messages = [{"role": "user", "content": question}]
    wrapped = {"type": "function", "function": TOOL}
    match wire:
        case "openai_responses":
            tool = {"type": "function", **TOOL}
            asked = {"model": "m", "input": question, "tools": [tool], "stream": True}
            return "/v1/responses", asked
        case "anthropic":
            tool = {"name": "get_weather", "input_schema": CITY}
            asked = {"model": "m", "max_tokens": 200, "messages": messages, "stream": True}
            return "/v1/messages", {**asked, "tools": [tool]}
        case "ollama":
            return "/api/chat", {"model": "m", "messages": messages, "tools": [wrapped]}
        case "gemini":
            contents = [{"role": "user", "parts": [{"text": question}]}]
            tools = [{"functionDeclarations": [TOOL]}]
            path = "/v1beta/models/m:streamGenerateContent?alt=sse"
            return path, {"contents": contents, "tools": tools}
        case _:
            asked = {"model": "m", "messages": messages, "tools": [wrapped], "stream": True}
            return "/v1/chat/completions", asked


def pieces(text: str, size: int = 6) -> Iterator[Event]:
    """The text, as a model writes it."""
    for start in range(0, len(text), size):
        yield TextDelta(text[start : start + size])
    yield Finish("stop")


def answer(request: Request) -> Iterator[Event]:
    """A call that has to be mended, or one that does not fit until it is asked for again."""
    said = [
        part.text
        for message in request.messages
        for part in message.parts
        if isinstance(part, Text)
    ]
    if any("light snow" in text for text in said):
        return pieces("It is cold in Oslo.")
    if "misfit" in said[-1]:
        return pieces(MISFIT)
    if "long" in said[-1]:
        return pieces("It goes on and on. " * 60_000, 4000)
    if "slow" in said[-1]:
        return pieces("Slowly does it. " * 30, 6)
    return pieces(f"I will look.\n{CALL}")
