"""Finds lines in files.

    search(r"def \\w+_name", path="src")     ->     src/names.py:12: def first_name() -> str:

Python's own expressions can take years for a short line, and nothing can stop them meanwhile. So
they are matched by an engine that takes time in proportion to a line's length whatever the
expression is: that of the JSON Schema validator, which comes with Toolspeak anyway. It has no
look-around and no back references.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import islice

import jsonschema_rs

from .confined import Folder
from .files import Content, read
from .listing import Glob, Walk, listed
from .problems import WorkspaceError, shown
from .text import FileText, is_binary, lines_of

MOST_FOUND = 100
_MOST_SHOWN = 240
"""Characters of a line: those around what was found."""
_PIECE, _OVERLAP = 10_000, 500
"""Longer lines are searched piece by piece, so that the clock can be looked at in between."""
_LARGEST_EXPRESSION = 512 << 10
"""Bytes of a compiled expression: what a letter may cost is in proportion to that, too."""
_CLOCK = 100
"""The clock is looked at after so many lines."""
_PLAIN = re.compile(r"[\w\s\"'`#%&,:;<=>@/!~-]*")
Matcher = Callable[[str], bool]


def search_files(folder: Folder, pattern: str, path: str, glob: str | None) -> str:
    """The lines of files that a pattern is found in."""
    if not pattern:
        raise WorkspaceError("Expected something to search for - at `$.pattern`")
    if "\n" in pattern:
        raise WorkspaceError("Lines are searched one by one: search for a part of one line.")
    matcher, problem = matcher_of(pattern)
    search = _Search(folder, path, glob, matcher)
    lines = list(islice(search.found(), MOST_FOUND + 1))
    told = lines[:MOST_FOUND] or [f"[Nothing was found in {search.count} files.]"]
    if len(lines) > MOST_FOUND:
        told.append(f"[There is more than these {MOST_FOUND} lines. Search for less.]")
    return "\n".join([*told, *filter(None, [problem]), *search.remarks()])


def matcher_of(pattern: str) -> tuple[Matcher, str]:
    """What tells whether a line has it, and what is wrong with the pattern. One that is no
    expression is searched for as it stands: models mean `print(` like that."""
    if _PLAIN.fullmatch(pattern):
        return _containing(pattern), ""
    try:
        options = jsonschema_rs.RegexOptions(size_limit=_LARGEST_EXPRESSION)
        compiled = jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=options)
        return compiled.is_valid, ""
    except (ValueError, jsonschema_rs.ValidationError):
        said = f"[{_why(pattern)}: it was searched for as plain text.]"
        return _containing(pattern), said


def _containing(pattern: str) -> Matcher:
    return lambda line: pattern in line


def _why(pattern: str) -> str:
    """What is wrong with an expression. Python says it better, where it sees it."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError, Warning) as problem:
        return f"The pattern is no regular expression ({problem})"
    return "The pattern is too large, or has something that is not known here, like look-around"


class _Search:
    """Goes through files, and keeps account of those that were left out."""

    def __init__(self, folder: Folder, path: str, glob: str | None, matcher: Matcher) -> None:
        self._folder = folder
        self._walk = Walk(folder, path)
        self._glob = Glob(glob or "*", self._walk.start.name)
        self._matcher = matcher
        self._binary = 0
        self._unread: list[str] = []
        self.count = 0
        """How many files were searched."""

    def found(self) -> Iterator[str]:
        for content in self._contents():
            for number, line in enumerate(lines_of(FileText(content).shown), 1):
                if (hit := self._hit(line)) is not None:
                    yield f"{shown(content.path)}:{number}: {hit}"
                elif not number % _CLOCK and not self._walk.has_time():
                    return

    def _contents(self) -> Iterator[Content]:
        for entry in self._walk:
            if entry.kind != "file" or not self._glob.fits(entry.name):
                continue
            content = self._read(entry.name)
            if content and is_binary(content.data):
                self._binary += 1
            elif content:
                self.count += 1
                yield content

    def _read(self, path: str) -> Content | None:
        try:
            return read(self._folder, path)
        except WorkspaceError:
            self._unread.append(path)
            return None

    def _hit(self, line: str) -> str | None:
        """What to show of a line; None if nothing is in it."""
        if len(line) <= _MOST_SHOWN:
            return line if self._matcher(line) else None
        for piece in _pieces(line):
            if self._matcher(piece):
                return _around(piece, self._matcher)
            if len(line) > _PIECE and not self._walk.has_time():
                return None
        return None

    def remarks(self) -> Iterator[str]:
        if self._binary:
            yield f"[{self._binary} binary files were not searched.]"
        if self._unread:
            yield f"[Too large or not readable: {listed(self._unread)}.]"
        yield from self._walk.remarks()


def _pieces(line: str) -> Iterator[str]:
    """A line that is too long to be searched at once, in pieces that overlap."""
    for start in range(0, max(1, len(line) - _OVERLAP), _PIECE - _OVERLAP):
        yield line[start : start + _PIECE]


def _around(piece: str, matcher: Matcher) -> str:
    """The part of a long line that was meant. The engine does not say where it has found
    something, but where that ends can be told by halves: it is in the shortest beginning that
    matches. (With `$` it is the end of the line.)"""
    end = bisect_left(range(len(piece)), True, key=lambda length: matcher(piece[:length]))
    start = max(0, end - _MOST_SHOWN * 3 // 4)
    shown_part = piece[start : start + _MOST_SHOWN]
    before, after = "…" if start else "", "…" if start + _MOST_SHOWN < len(piece) else ""
    return f"{before}{shown_part}{after}"
