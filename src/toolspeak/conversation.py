"""Who said what in a conversation, in whatever API's shape its messages are.

What the user wrote is a request. What tools, documents and other roles brought in is foreign: a
call that stands there is nobody's wish.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .errors import UsageError
from .schema import strings_in
from .types import Document, Message, Text, ToolResult

_OWN = frozenset({"assistant", "model", "system", "developer", "ai"})
"""Roles whose own text is neither a request nor foreign."""
_PLAIN_TEXT = frozenset({None, "text", "input_text"})
_MEDIA = frozenset({"image", "image_url", "input_image", "input_audio", "audio", "video"})
_BROUGHT_IN = re.compile(r"result|output|document|file|resource|response")
_RESULT_SPAN = re.compile(
    r"<(tool_responses?|tool_results?|function_results)\b[^>]*+>(.*?)(?:</\1>|\Z)", re.S
)
"""Results that a prompt has put into the user's turn, as many chat templates do."""


def sides(context: Any) -> tuple[list[str], list[str]]:
    """The texts that were brought in, and those that the user wrote."""
    messages = _messages(context)
    foreign: list[str] = []
    own: list[str] = []
    for index, message in enumerate(messages):
        for is_foreign, text in _sorted(message, index):
            (foreign if is_foreign else own).append(text)
    return foreign, own


Sorted = Iterator[tuple[bool, str]]


def _messages(context: Any) -> Iterable[Any]:
    if isinstance(context, Mapping) and isinstance(context.get("messages"), list):
        return context["messages"]
    alone = isinstance(context, (str, Mapping, Message, ToolResult, Document))
    return (context,) if alone else context


def _sorted(message: Any, index: int) -> Sorted:
    match message:
        case str():
            yield True, message
        case Message():
            for part in message.parts:
                if isinstance(part, (ToolResult, Document)):
                    yield True, part.text
                elif isinstance(part, Text) and message.role == "user":
                    yield from _request(part.text)
                elif isinstance(part, Text) and message.role not in _OWN:
                    yield True, part.text
        case ToolResult() | Document():
            yield True, message.text
        case Mapping():
            yield from _from_mapping(message)
        case _:
            kind = type(message).__name__
            raise UsageError(f"Expected a message, got `{kind}` - at `$.context[{index}]`")


def _from_mapping(message: Mapping[str, Any]) -> Sorted:
    role = message.get("role")
    if role is None and "type" in message:
        yield from _from_item(message)
        return
    content = message.get("content", message.get("parts"))
    if role not in (*_OWN, "user"):
        yield from ((True, text) for text in strings_in(content))
    elif isinstance(content, str):
        yield from _request(content) if role == "user" else ()
    elif isinstance(content, list):
        for block in content:
            yield from _from_block(block, str(role))


def _from_item(item: Mapping[str, Any]) -> Sorted:
    """An item of OpenAI's Responses that is no message: what a tool gave, or a call."""
    given = [item.get(key) for key in ("output", "results", "error", "content")]
    if str(item["type"]).endswith("_call"):
        given = given[:3]
    elif not any(given):
        given = [dict(item)]
    yield from ((True, text) for value in given for text in strings_in(value))


def _from_block(block: Any, role: str) -> Sorted:
    """A part of a message: text of whoever speaks, or something that was brought in."""
    if isinstance(block, str):
        block = {"text": block}
    if not isinstance(block, Mapping):
        return
    kind = block.get("type")
    is_text = kind in _PLAIN_TEXT and isinstance(block.get("text"), str)
    is_result = _BROUGHT_IN.search(str(kind)) or "functionResponse" in block
    if is_text and role == "user":
        yield from _request(block["text"])
    elif kind in _MEDIA or is_text:
        return
    elif role == "user" or is_result or "function_response" in block:
        yield from ((True, text) for text in strings_in(block))


def _request(text: str) -> Sorted:
    """The user's words, without the results that a prompt may have put among them."""
    end = 0
    for match in _RESULT_SPAN.finditer(text):
        yield False, text[end : match.start()]
        yield True, match[2]
        end = match.end()
    yield False, text[end:]
