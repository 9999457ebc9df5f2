"""What a file says: its text for a model, and where in the file that text stands.

A model gets lines that end with a line feed, whatever the file has, and no line numbers: weak
models copy what they see into the next edit, and numbers with it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import cached_property

from .files import Content
from .problems import WorkspaceError, shown

MOST_LINES = 400
MOST_CHARACTERS = 20_000
_LOOKED_AT = 8192
_NO_TEXT = re.compile("[\udc80-\udcff]")
"""Bytes that are no UTF-8, as Python carries them through a text."""


_KEY = re.compile(
    r"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----[ \t]*\n)(.*?)(?=\n[ \t]*-----END |\Z)", re.S
)


def _hidden(key: re.Match[str]) -> str:
    """A private key with as many lines as it has."""
    return key[1] + "\n".join("*[REDACTED]" for _ in key[2].split("\n"))


class FileText:
    """The text of a file, with `\\n` for every line break."""

    def __init__(self, content: Content) -> None:
        if is_binary(content.data):
            size = f"{len(content.data):,} bytes"
            raise WorkspaceError(f"{shown(content.path)} is not text, but {size} of binary data.")
        self.path = content.path
        self.original = content.data.decode("utf-8", "surrogateescape")
        self.text = self.original.replace("\r\n", "\n")
        self._shortened = _shortened(self.original) if self.text != self.original else []

    @property
    def shown(self) -> str:
        """The text as it can be told. What is no UTF-8 has no letters to be told by, and the lines
        of a private key, which nobody would know for one without the first, are not told at all."""
        told = _NO_TEXT.sub("\ufffd", self.text).removeprefix("\ufeff")
        return _KEY.sub(_hidden, told) if "PRIVATE KEY" in told else told

    @property
    def has_other_bytes(self) -> bool:
        return _NO_TEXT.search(self.text) is not None

    def in_original(self, place: int) -> int:
        """Where a place of the text is in the file."""
        return place + bisect_left(self._shortened, place)

    def line_break(self, start: int, end: int) -> str:
        """How lines end from here to there; where no line ends, how most do in this file."""
        there = self.original[self.in_original(start) : self.in_original(end)]
        return _line_break(there) if "\n" in there else self._usual_line_break

    @cached_property
    def _usual_line_break(self) -> str:
        return _line_break(self.original)

    def line_of(self, place: int) -> int:
        """The number of the line that a place is in."""
        return self.text.count("\n", 0, place) + 1


def _line_break(text: str) -> str:
    """How most lines end."""
    return "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"


def is_binary(data: bytes) -> bool:
    """Whether data is something else than text: no text has zeros."""
    return b"\0" in data[:_LOOKED_AT]


def lines_of(text: str) -> list[str]:
    """Lines as editors count them. Other line breaks than `\\n` stay where they are."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def page(file: FileText, offset: int | None, limit: int | None) -> str:
    """So many lines from a line on, and what there is to know beside them."""
    lines = lines_of(file.shown)
    first = max(1, offset or 1)
    if not lines:
        return "[The file is empty.]"
    if first > len(lines):
        raise WorkspaceError(f"{shown(file.path)} has only {len(lines)} lines.")
    most = max(1, limit) if limit else MOST_LINES
    taken = _within(lines[first - 1 : first - 1 + most])
    last = first + len(taken) - 1
    return "\n".join([*taken, *_remarks(file, first, last, len(lines))])


def _within(lines: list[str]) -> list[str]:
    """As many lines as a model can take at once, but one at least."""
    room = MOST_CHARACTERS
    for count, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return lines[:count] or [cut(line, MOST_CHARACTERS)]
    return lines


def _remarks(file: FileText, first: int, last: int, count: int) -> list[str]:
    remarks: list[str] = []
    if first > 1 or last < count:
        more = f" Read on with offset={last + 1}." if last < count else ""
        remarks.append(f"[Lines {first} to {last} of {count}.{more}]")
    if file.has_other_bytes:
        remarks.append("[Some bytes are no UTF-8. They are shown as \ufffd, and edits keep them.]")
    return remarks


def cut(line: str, most: int) -> str:
    """The beginning of a line that is too long."""
    left = len(line) - most
    return line if left <= 0 else f"{line[:most]}… [{left} more characters]"


def _shortened(original: str) -> list[int]:
    """The places in the text of line breaks that are longer in the file, in order."""
    found = re.finditer("\r\n", original)
    return [match.start() - index for index, match in enumerate(found)]
