"""Where in a text everything stands that was found in it, for highlighting."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any, Literal

from msgspec import Struct, structs, to_builtins

from ...types import Note, Reasoning, Rejection, Reply
from .masking import Covering

Kind = Literal["call", "rejected", "note", "reasoning", "secret"]
_CLOSER = re.compile(r"\s*(?:</[\w:.\-]+>|<[|｜][^<>\n]*?(?:end|/)[^<>\n]*[|｜]>|\[/\w+\])")
_OPENER = re.compile(r"(?:<[\w:.\-]+>|<[|｜][^<>\n]+[|｜]>|\[\w+\])\s*$")
_LONGEST_MARKER = 60
_SHORTEST = 3
"""Shorter texts stand anywhere."""


class Place(Struct, frozen=True):
    """A part of a text."""

    start: int
    end: int
    kind: Kind
    label: str
    title: str
    """A sentence."""
    index: int = 0
    """Which of its kind it is."""


class Places:
    """Collects the places in one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: list[Place] = []
        self._at: dict[str, int] = {}
        """Up to where the text was searched, for each kind."""
        self._last: dict[str, str] = {}

    def add(self, place: Place) -> None:
        """A place that is known."""
        self._found.append(place)

    def calls(self, calls: Iterable[tuple[str, str]]) -> None:
        """Calls, by name and the text that they were read from."""
        for index, (name, raw) in enumerate(calls):
            self._find("call", raw, name, f"a call of {name}", index)

    def rejected(self, rejections: Iterable[Rejection]) -> None:
        """Blocks that are no calls."""
        for index, one in enumerate(rejections):
            self._find("rejected", one.raw, one.name or one.code, one.problem, index)

    def notes(self, notes: Iterable[Note]) -> None:
        """What notes are about, if that is a part of the text."""
        for index, note in enumerate(notes):
            if not note.where.startswith("$"):
                self._find("note", note.where, note.code, note.message, index)

    def reasoning(self, reply: Reply) -> None:
        """What a model thought, as far as it stands in the text."""
        thoughts = (part for part in reply.parts if isinstance(part, Reasoning))
        for index, part in enumerate(thoughts):
            thought = part.text.strip()
            self._find("reasoning", thought, "reasoning", "what the model thought", index)

    def all(self) -> list[Place]:
        """All of them in order. One may stand in another; one that would cross another goes."""
        nested: list[Place] = []
        around: list[Place] = []
        for place in sorted(self._found, key=lambda one: (one.start, -one.end)):
            while around and around[-1].end <= place.start:
                around.pop()
            if not around or place.end <= around[-1].end:
                nested.append(place)
                around.append(place)
        return nested

    def _find(self, kind: Kind, part: str, label: str, title: str, index: int) -> None:
        if len(part) < _SHORTEST:
            return
        if part == self._last.get(kind):
            # Several calls that stand in one block.
            self._found.append(structs.replace(self._found[-1], label=label, index=index))
            return
        at = self._text.find(part, self._at.get(kind, 0))
        if at < 0:
            at = self._text.find(part)
        if at >= 0:
            self._at[kind], self._last[kind] = at + len(part), part
            start, end = at, at + len(part)
            if kind in ("call", "rejected"):
                start, end = self._with_markers(start, end)
            self._found.append(Place(start, end, kind, label, title, index))

    def _with_markers(self, start: int, end: int) -> tuple[int, int]:
        """A block with what opens and closes it. It is known for what it is before the last of it
        has come, and what is no call is told of without."""
        if closer := _CLOSER.match(self._text, end):
            end = closer.end()
            if opener := _OPENER.search(self._text, max(0, start - _LONGEST_MARKER), start):
                start = opener.start()
        return start, end


def in_utf16(text: str) -> Callable[[int], int]:
    """From places in a text to those that JavaScript counts, where some characters are two."""
    wide = [] if text.isascii() else [at for at, sign in enumerate(text) if sign > "\uffff"]
    if not wide:
        return lambda at: at
    return lambda at: at + bisect_left(wide, at)


def spans_of(
    places: Iterable[Place], text: str, cover: Covering | None = None
) -> list[dict[str, Any]]:
    """Places as the page has them; what they say without secrets, if there may be any."""
    count = in_utf16(text)
    said = [to_builtins(one) for one in places]
    for one in said:
        one["start"], one["end"] = count(one["start"]), count(one["end"])
        if cover:
            one["label"], one["title"] = cover.text(one["label"]), cover.text(one["title"])
    return said
