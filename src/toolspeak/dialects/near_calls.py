"""Finds near-calls: text in the shape of a call to a declared tool that was not accepted as one.

    I will look.                        a call in a code fence, after prose
    ```json
    {"name": "list_files", "arguments": {"path": "."}}
    ```
    Action: list_files                  a call in a dialect that was not expected
    ~~~~tool_call                       a marker that is slightly wrong

A near-call is never run, but it is not an answer either: it is rejected, so that the model can be
asked for the right form. The text of a reply without calls is searched once, at its end: for calls
in any dialect, at any place that does not show code in another language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ..calls.coercion import ARGUMENT_KEYS
from ..calls.drafts import NAME_KEYS
from ..calls.json_values import STRICT_DECODER
from ..calls.resolution import MAX_QUOTE, CallKey, call_key
from ..calls.tools import Toolset, spelling_variants
from ..events import CallEnd, CallRejected, Event
from ..types import Rejection, ToolCall

_MAX_SEARCHED = 32_768
"""Characters at the end of a reply that are searched; a call is rarely followed by more text."""
FAULTS = frozenset(
    {
        "unknown-tool",
        "invalid-arguments",
        "undecodable-arguments",
        "malformed",
        "too-long",
        "truncated",
    }
)
"""The codes of rejected blocks that were meant as calls."""
_BLOCK_STARTS = ("{", "[", "<", "`", "~")
"""A call with wrong arguments that begins otherwise may be a mere mention: `get_weather()`."""
_PROBLEM = "a call was written in a form that is not accepted here"
_BROKEN_JSON = "the JSON of the call cannot be read"
_CALL_LINE = re.compile(
    rf"""^[ \t]*([\[{{][^\n]{{0,100}}?"(?:{"|".join(NAME_KEYS)})"\s*:\s*"([^"\n]{{1,100}})"\s*,"""
    rf"""\s*"(?:{"|".join(ARGUMENT_KEYS)})"\s*:)""",
    re.M,
)
_NO_CALL = "no call that can be read follows {marker}"


class ReplyTail:
    """The last characters of a reply's text."""

    def __init__(self) -> None:
        self._chunks: list[str] = []
        self._size = 0

    def append(self, text: str) -> None:
        self._chunks.append(text)
        self._size += len(text)
        if self._size > 2 * _MAX_SEARCHED:
            self._chunks = [self.text]
            self._size = len(self._chunks[0])

    @property
    def text(self) -> str:
        return "".join(self._chunks)[-_MAX_SEARCHED:]


def may_hold_near_call(text: str, tools: Toolset) -> bool:
    """Return True if a text names a declared tool at all."""
    spellings = (one for name in tools.declared or () for one in (name, *spelling_variants(name)))
    return any(_has_word(text, spelling) for spelling in spellings)


def _has_word(text: str, word: str) -> bool:
    at = text.find(word)
    while at >= 0:
        around = text[at - 1 : at] + text[at + len(word) : at + len(word) + 1]
        if not any(map(str.isalnum, around)):
            return True
        at = text.find(word, at + 1)
    return False


def select_near_call(
    text: str, events: Iterable[Event], made: Callable[[], frozenset[CallKey]]
) -> Rejection | None:
    """Return the first near-call among the events of a search in `text`, or None.

    `made` returns the calls of the conversation: a reply may mention those.
    """
    for event in events:
        if isinstance(event, CallEnd) and event.call.arguments:
            call = event.call
            if call_key(call.name, call.arguments) not in made():
                return Rejection(call.raw[:MAX_QUOTE], "near-call", _PROBLEM, name=call.name)
        elif isinstance(event, CallRejected) and event.rejection:
            rejection = event.rejection
            is_declared = rejection.code != "unknown-tool" and bool(rejection.name)
            is_data = rejection.code == "malformed" and _is_json_in(text, rejection.raw)
            is_mention = rejection.code == "invalid-arguments" and not rejection.raw.startswith(
                _BLOCK_STARTS
            )
            if rejection.code in FAULTS and is_declared and not (is_data or is_mention):
                return rejection
    return None


def _is_json_in(text: str, block: str) -> bool:
    """Return True if a block of the text begins with valid JSON: that is data, not a call."""
    try:
        STRICT_DECODER.raw_decode(text, max(text.find(block), 0))
    except (ValueError, RecursionError):
        return False
    return True


def find_unread_block(text: str, markers: Iterable[str], tools: Toolset) -> Rejection | None:
    """Return a block that has a marker, and in which no call can be read, or None.

    It begins the reply, or begins a line and names a declared tool.
    """
    for marker in dict.fromkeys(markers):
        block = re.search(rf"^[ \t]*{re.escape(marker)}.*", text, re.M | re.S)
        if block is None:
            continue
        name = tools.find_named(block[0][:MAX_QUOTE])
        if name or not text[: block.start()].strip():
            problem = _NO_CALL.format(marker=marker)
            return Rejection(block[0].lstrip()[:MAX_QUOTE], "malformed", problem, name=name)
    return None


def find_broken_json(text: str, tools: Toolset) -> Rejection | None:
    """Return JSON that begins a line, calls a declared tool and cannot be read, or None."""
    for block in _CALL_LINE.finditer(text):
        raw = text[block.start(1) :][:MAX_QUOTE]
        if tools.resolve_name(block[2]) and not _is_json_in(text, raw):
            return Rejection(raw, "malformed", _BROKEN_JSON, name=tools.resolve_name(block[2]))
    return None


def list_made_calls(context: Iterable[object]) -> frozenset[CallKey]:
    """Return the calls in a conversation of `Message`s."""
    parts = (part for message in context for part in getattr(message, "parts", ()))
    return frozenset(
        call_key(part.name, part.arguments) for part in parts if isinstance(part, ToolCall)
    )
