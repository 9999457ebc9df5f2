"""Finds calls, rejections, notes and reasoning in a model's text, for highlighting."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any, Literal

from msgspec import Struct, structs, to_builtins

from ...types import Note, Reasoning, Rejection, Reply
from .masking import Masker

HighlightKind = Literal["call", "rejected", "note", "reasoning", "secret"]
_CLOSER = re.compile(r"\s*(?:</[\w:.\-]+>|<[|｜][^<>\n]*?(?:end|/)[^<>\n]*[|｜]>|\[/\w+\])")
_OPENER = re.compile(r"(?:<[\w:.\-]+>|<[|｜][^<>\n]+[|｜]>|\[\w+\])\s*$")
_MAX_MARKER = 60
_MIN_LENGTH = 3
"""A shorter text would be found anywhere."""


class Highlight(Struct, frozen=True):
    """A highlighted part of a text."""

    start: int
    end: int
    kind: HighlightKind
    label: str
    description: str
    index: int = 0
    """Position among the calls, rejections, … of its kind."""


class HighlightFinder:
    """Collects the highlights of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: list[Highlight] = []
        self._searched_to: dict[str, int] = {}
        self._last_match: dict[str, str] = {}

    def add(self, highlight: Highlight) -> None:
        self._found.append(highlight)

    def add_calls(self, calls: Iterable[tuple[str, str]]) -> None:
        """Find calls, given by name and raw text."""
        for index, (name, raw) in enumerate(calls):
            self._add_match("call", raw, name, f"call of {name}", index)

    def add_rejections(self, rejections: Iterable[Rejection]) -> None:
        for index, one in enumerate(rejections):
            self._add_match("rejected", one.raw, one.name or one.code, one.problem, index)

    def add_notes(self, notes: Iterable[Note]) -> None:
        """Find the text that each note refers to; a note may also refer to a path (`$.x`)."""
        for index, note in enumerate(notes):
            if not note.where.startswith("$"):
                self._add_match("note", note.where, note.code, note.message, index)

    def add_reasoning(self, reply: Reply) -> None:
        parts = (part for part in reply.parts if isinstance(part, Reasoning))
        for index, part in enumerate(parts):
            self._add_match("reasoning", part.text.strip(), "reasoning", "", index)

    def nested(self) -> list[Highlight]:
        """Return the highlights in order, without those that would overlap another partly."""
        nested: list[Highlight] = []
        enclosing: list[Highlight] = []
        for one in sorted(self._found, key=lambda one: (one.start, -one.end)):
            while enclosing and enclosing[-1].end <= one.start:
                enclosing.pop()
            if not enclosing or one.end <= enclosing[-1].end:
                nested.append(one)
                enclosing.append(one)
        return nested

    def _add_match(
        self, kind: HighlightKind, part: str, label: str, description: str, index: int
    ) -> None:
        if len(part) < _MIN_LENGTH:
            return
        if part == self._last_match.get(kind):
            # Several calls in one block.
            self._found.append(structs.replace(self._found[-1], label=label, index=index))
            return
        start = self._text.find(part, self._searched_to.get(kind, 0))
        if start < 0:
            start = self._text.find(part)
        if start >= 0:
            end = start + len(part)
            self._searched_to[kind], self._last_match[kind] = end, part
            if kind in ("call", "rejected"):
                start, end = self._include_markers(start, end)
            self._found.append(Highlight(start, end, kind, label, description, index))

    def _include_markers(self, start: int, end: int) -> tuple[int, int]:
        """Extend a block by its markers: the raw text of a rejection comes without them, and that
        of a call may lack its closing marker."""
        if closer := _CLOSER.match(self._text, end):
            end = closer.end()
            if opener := _OPENER.search(self._text, max(0, start - _MAX_MARKER), start):
                start = opener.start()
        return start, end


def utf16_offsets(text: str) -> Callable[[int], int]:
    """Return a function from offsets in the text to offsets that JavaScript counts."""
    wide = [] if text.isascii() else [at for at, char in enumerate(text) if char > "\uffff"]
    if not wide:
        return lambda at: at
    return lambda at: at + bisect_left(wide, at)


def encode_highlights(
    highlights: Iterable[Highlight], text: str, masker: Masker | None = None
) -> list[dict[str, Any]]:
    """Return highlights as JSON for the page, with UTF-16 offsets and masked secrets."""
    to_utf16 = utf16_offsets(text)
    encoded = [to_builtins(one) for one in highlights]
    for one in encoded:
        one["start"], one["end"] = to_utf16(one["start"]), to_utf16(one["end"])
        if masker:
            one["label"] = masker.mask_text(one["label"])
            one["description"] = masker.mask_text(one["description"])
    return encoded
