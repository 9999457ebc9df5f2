"""Secrets that are known by how they look, or by the words right before them.

ghp_16C7e42F292c6912E7710c838347Ae178B4a      postgres://app:hunter2@db/app
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .quoting import end_of
from .rules import CuePattern, KeyShape, load_rules
from .values import is_placeholder, is_random
from .window import Span, Window

BACK = 24
"""So far before a long word its own beginning may stand: `SG.`, `12345678:`."""
_SAME = 8
"""A key does not end with so many times the same: `ghp_xxxxxxxx` stands for one."""
_JOINTS = frozenset("\\%.:/~")
_PART = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9]|(?<=bot)\d")
_ESCAPE = re.compile(r"[nrtbf]|u[0-9a-fA-F]{4}")
_DASHES = re.compile(r"[-_]{0,8}")
_MORE = re.compile(r"[A-Za-z0-9_.+/=~-]*")
_WORDS = re.compile(r"[A-Za-z]+(?:[-_][A-Za-z]+)*(?:[-_]\d{1,3})*")
_ANY_SHAPE = re.compile("|".join(shape.shape for shape in load_rules().shapes))
_GLUED = re.compile(
    r"(?:\d{1,3}m|3D|(?:[A-Za-z0-9]{0,64}+[-_]){1,32}?)(?=(?:"
    + "|".join(shape.shape for shape in load_rules().shapes if not shape.alone)
    + "))"
)
"""What stands right before a key in a word: a colour (`\\x1b[33m`), an escape of mail, a name."""
_ANY_OR_GLUED = re.compile(f"{_ANY_SHAPE.pattern}|{_GLUED.pattern}")
_EXAMPLES = ("password", "passwd", "pass", "pwd")
_SHAPES = tuple((re.compile(shape.shape), shape) for shape in load_rules().shapes)


def may_be_shape(text: str, at: int) -> bool:
    """Whether a long word may be a key."""
    if _ANY_OR_GLUED.match(text, at):
        return True
    return (at > 0 and text[at - 1] in _JOINTS) or text[at] in "-_"


def find_shapes(window: Window) -> Iterator[Span]:
    """The key that a long word is; or several, if nothing but dashes stands between them."""
    for start in _starts(window.text, window.at):
        found = False
        while span := _shape_at(window, start):
            found = True
            yield span
            start = end_of(_DASHES, window.text, span.end, window.end)
        if found:
            return


def _shape_at(window: Window, start: int) -> Span | None:
    text, end = window.text, window.end
    if not _ANY_SHAPE.match(text, start, end):
        return None
    for pattern, shape in _SHAPES:
        match = pattern.match(text, start, end)
        if match and _counts(shape, match[0]):
            return Span(start, match.end(), shape.kind, body=_MORE)
    return None


def _counts(shape: KeyShape, value: str) -> bool:
    if shape.random and (_WORDS.fullmatch(value) or not any(map(str.isdigit, value))):
        return False
    return not is_placeholder(value) and len(set(value[-_SAME:])) > 1


def _starts(text: str, at: int) -> Iterator[int]:
    """Where the key may begin: with the word, behind an escape, a dash or what is glued to it, or
    before a dot."""
    before = text[at - 1 : at] if at else ""
    if before == "\\" and (escape := _ESCAPE.match(text, at)):
        yield escape.end()
    elif before == "%":
        yield at + 2
    elif before in _JOINTS:
        for part in _PART.finditer(text, max(0, at - BACK), at):
            yield part.start()
    yield end_of(_DASHES, text, at, len(text))
    if glued := _GLUED.match(text, at):
        yield glued.end()


def pattern_finder(rows: tuple[CuePattern, ...]) -> Callable[[Window], Iterator[Span]]:
    """What is found at a cue that these rows share."""
    compiled = [(re.compile(row.pattern), row) for row in rows]

    def found(window: Window) -> Iterator[Span]:
        for pattern, row in compiled:
            match = pattern.match(window.text, window.at, window.end)
            if match and _is_value(row, match["value"]):
                yield Span(*match.span("value"), row.kind, body=_MORE if row.random else None)
                return

    return found


def _is_value(row: CuePattern, value: str) -> bool:
    if is_placeholder(value) or value.lower() in _EXAMPLES:
        return False
    return not row.random or is_random(value)
