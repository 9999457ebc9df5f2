"""What is in a folder: one level of it, or all that fits a pattern, however deep."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from time import monotonic

from .confined import Folder
from .files import Entry, entries, look_up
from .problems import WorkspaceError, shown

MOST_LISTED = 200
SECONDS = 10.0
"""Nothing goes on for longer through a tree of files."""
PASSED_BY = {
    *(".git", ".hg", ".svn", ".venv", "venv", ".tox", "node_modules", "__pycache__"),
    *(".mypy_cache", ".pytest_cache", ".ruff_cache"),
}
"""Folders that are not looked into, unless they are named: nobody means what is in there."""
_MOST_ALTERNATIVES = 64
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


class Walk:
    """Everything below a folder, in order; or a file alone. Links are not followed: what they lead
    to comes in its own place, or is outside."""

    def __init__(self, folder: Folder, path: str) -> None:
        self._folder = folder
        self.start = look_up(folder, path)
        self._deadline = monotonic() + SECONDS
        self.passed_by: set[str] = set()
        """The names of folders that were not looked into."""
        self.unreadable: list[str] = []
        self.is_cut = False
        """Whether there was no time for all of it."""

    def has_time(self) -> bool:
        """Whether to go on. To be asked now and then by whoever does something with a file."""
        self.is_cut = self.is_cut or monotonic() > self._deadline
        return not self.is_cut

    def __iter__(self) -> Iterator[Entry]:
        """Each with its path from the root as its name."""
        start = self.start
        if start.kind != "folder":
            yield start
            return
        todo = inside(self._folder, start.name)[::-1]
        while todo and self.has_time():
            entry = todo.pop()
            yield entry
            if entry.kind == "folder":
                todo += reversed(self._inside(entry.name))

    def _inside(self, path: str) -> list[Entry]:
        name = path.rpartition("/")[2]
        if name in PASSED_BY:
            self.passed_by.add(name)
            return []
        try:
            return inside(self._folder, path)
        except WorkspaceError:
            self.unreadable.append(path)
            return []

    def remarks(self) -> Iterator[str]:
        """What is missing, and why."""
        if self.passed_by:
            yield f"[Not looked into: {', '.join(sorted(self.passed_by))}.]"
        if self.unreadable:
            yield f"[Not readable: {listed(self.unreadable)}.]"
        if self.is_cut:
            yield f"[Not all was looked at: it takes longer than {SECONDS:g} s. Name a folder.]"


def inside(folder: Folder, path: str) -> list[Entry]:
    """What is in a folder, each with its whole path."""
    start = "" if path == "." else f"{path}/"
    return [Entry(start + one.name, one.kind) for one in entries(folder, path)]


def list_entries(folder: Folder, path: str, pattern: str | None) -> str:
    """The entries of a folder, or those below it that fit a pattern."""
    walk = Walk(folder, path)
    if not pattern:
        is_folder = walk.start.kind == "folder"
        found = inside(folder, walk.start.name) if is_folder else [walk.start]
        return _told(found, "The folder is empty.", [])
    wanted = Glob(pattern, walk.start.name)
    found = [one for one in walk if wanted.fits(one.name)]
    return _told(found, f"Nothing fits {pattern!r}.", walk.remarks())


def _told(found: list[Entry], nothing: str, remarks: Iterable[str]) -> str:
    lines = [shown(one.name) + _mark(one) for one in found]
    left = len(lines) - MOST_LISTED
    more = [f"[{left} more are left out. Name a folder or a pattern.]"] if left > 0 else []
    told = lines[:MOST_LISTED] or [f"[{nothing}]"]
    return "\n".join([*told, *more, *remarks])


def _mark(entry: Entry) -> str:
    return {"folder": "/", "link": " (a link)", "file": "", "other": " (no file)"}[entry.kind]


def listed(paths: list[str], most: int = 5) -> str:
    """Some of many paths."""
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(map(shown, paths[:most])) + more


class Glob:
    """`*.py`: a name at any depth. `src/**/*.{js,ts}`: a path from the start on."""

    def __init__(self, pattern: str, start: str) -> None:
        plain = pattern.removeprefix("./").strip("/")
        self._prefix = "" if start == "." else f"{start}/"
        self._patterns = [one.split("/") for one in _alternatives(plain)]

    def fits(self, path: str) -> bool:
        parts = path.removeprefix(self._prefix).split("/")
        return any(
            fnmatchcase(parts[-1], wanted[0]) if len(wanted) == 1 else _fits(parts, wanted)
            for wanted in self._patterns
        )


def _alternatives(pattern: str) -> list[str]:
    """The patterns that braces stand for."""
    made = [pattern]
    while len(made) < _MOST_ALTERNATIVES and (match := _BRACES.search(made[0])):
        choices = match[1].split(",")[:_MOST_ALTERNATIVES]
        made = [one.replace(match[0], choice, 1) for one in made for choice in choices]
    return made[:_MOST_ALTERNATIVES]


def _fits(parts: list[str], wanted: list[str]) -> bool:
    """Whether names fit patterns one by one, where `**` is any number of names. All places of the
    pattern that the names so far may have led to are known at once, so that it takes no longer for
    many of them."""
    reached = _skipping({0}, wanted)
    for part in parts:
        steps = {
            place if wanted[place] == "**" else place + 1
            for place in reached
            if place < len(wanted) and (wanted[place] == "**" or fnmatchcase(part, wanted[place]))
        }
        reached = _skipping(steps, wanted)
    return len(wanted) in reached


def _skipping(places: set[int], wanted: list[str]) -> set[int]:
    """`**` may be no name at all."""
    reached: set[int] = set()
    for place in places:
        reached.add(place)
        while place < len(wanted) and wanted[place] == "**":
            place += 1
            reached.add(place)
    return reached
