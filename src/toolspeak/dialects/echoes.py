"""Calls that stand in what tools and documents brought in, so that none is made just because the
model repeats it.

The guard knows verbatim and re-serialised echoes: in any wrapper, in JSON strings, in HTML, or cut
in two between results. It does not claim to know paraphrases.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..calls import Key
from ..schema import strings_in
from ..types import Document, Message, Text, ToolResult

_BROUGHT_IN = frozenset({"tool", "function", "tool_result"})
_BLOCKS = frozenset({"tool_result", "function_call_output", "document", "file", "search_result"})


class Echoes:
    """The calls that a conversation's foreign parts hold, read when they are first asked for."""

    def __init__(self, context: Iterable[Any], calls_in: Callable[[str], Iterable[Key]]) -> None:
        self._context = context
        self._calls_in = calls_in
        self._known: frozenset[Key] | None = None

    def __call__(self) -> frozenset[Key]:
        if self._known is None:
            foreign: list[str] = []
            own: list[str] = []
            for message in self._context:
                _sort(message, foreign, own)
            self._known = self._all_in(foreign) - self._all_in(own)
        return self._known

    def _all_in(self, texts: list[str]) -> frozenset[Key]:
        joined = ["".join(texts), "\n".join(texts)] if len(texts) > 1 else []
        return frozenset(
            call
            for text in (*texts, *joined)
            for spelling in _spellings(text)
            for call in self._calls_in(spelling)
        )


def _spellings(text: str) -> Iterator[str]:
    """The text, and what is hidden in it by the ways texts are carried in other texts."""
    yield text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    yield from strings_in(value)
    if "\\" in text:
        yield text.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")
    if "&" in text:
        yield html.unescape(text)


def _sort(message: Any, foreign: list[str], own: list[str]) -> None:
    """Put what a message says where it belongs: brought in, or the user's own words."""
    if isinstance(message, Message):
        for part in message.parts:
            if isinstance(part, (ToolResult, Document)):
                foreign.append(part.text)
            elif isinstance(part, Text) and message.role == "user":
                own.append(part.text)
            elif isinstance(part, Text) and message.role == "tool":
                foreign.append(part.text)
    elif isinstance(message, (ToolResult, Document)):
        foreign.append(message.text)
    elif isinstance(message, Mapping):
        _sort_content(message.get("content", message.get("parts")), message, foreign, own)
        if message.get("type") == "function_call_output":
            foreign.extend(strings_in(message.get("output")))


def _sort_content(
    content: Any, message: Mapping[str, Any], foreign: list[str], own: list[str]
) -> None:
    role = message.get("role")
    if isinstance(content, str):
        if role in _BROUGHT_IN:
            foreign.append(content)
        elif role == "user":
            own.append(content)
        return
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, Mapping):
            continue
        if block.get("type") in _BLOCKS or "functionResponse" in block or role in _BROUGHT_IN:
            foreign.extend(strings_in(block))
        elif role == "user" and isinstance(block.get("text"), str):
            own.append(block["text"])
