"""Lists files, and searches their lines.

    list_files(path="src", pattern="**/*.{js,ts}")
    search(r"def \\w+_name", path="src")     ->     src/names.py:12: def first_name() -> str:

Python's own regular expressions can take years for a short line, and nothing can stop them. So
patterns run on an engine that is linear in the length of the line: that of the JSON Schema
validator, which Toolspeak needs anyway. It has no look-around and no back references.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import monotonic

import jsonschema_rs

from .folder import (
    ConfinedFolder,
    FileContent,
    FileEntry,
    WorkspaceError,
    escape_path,
    find_entry,
    list_folder,
    read_content,
)
from .text import decode_text, is_binary, split_lines

MAX_LISTED = 200
MAX_FOUND = 100
MAX_SECONDS = 10.0
"""The time limit of a walk through a tree of files."""
SKIPPED_FOLDERS = {
    *(".git", ".hg", ".svn", ".venv", "venv", ".tox", "node_modules", "__pycache__"),
    *(".mypy_cache", ".pytest_cache", ".ruff_cache"),
}
"""Folders that a walk does not enter unless it starts there."""
_MAX_SHOWN_LINE = 240
_MAX_SHOWN_PATHS = 5
_PIECE, _OVERLAP = 10_000, 500
"""Longer lines are searched in overlapping pieces, to check the time in between."""
_MAX_REGEX_SIZE = 512 << 10
"""Bytes of a compiled pattern: the time per character is proportional to it."""
_LINES_PER_CHECK = 100
_PLAIN_TEXT = re.compile(r"[\w\s\"'`#%&,:;<=>@/!~-]*")
_GLOB_TOKEN = re.compile(r"\{[^{}]*\}|\[!?\w[\w-]*\]|\*\*/|\*\*|.", re.S)
_GLOB_REGEX = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_KIND_SUFFIXES = {"folder": "/", "link": " (a link)", "file": "", "other": " (not a file)"}
Matcher = Callable[[str], bool]


class FileWalk:
    """Everything below a folder, in order, or a single file; and a record of what was left out.
    Links are not followed: a target inside the folder is visited at its own path."""

    def __init__(self, folder: ConfinedFolder, path: str) -> None:
        self.start = find_entry(folder, path)
        self.file_count = 0
        self._folder = folder
        self._deadline = monotonic() + MAX_SECONDS
        self._skipped_names: set[str] = set()
        self._unreadable_paths: list[str] = []
        self._binary_count = 0

    def has_time(self) -> bool:
        """Return False from the deadline on. Long work on one entry must check it too."""
        return monotonic() <= self._deadline

    def __iter__(self) -> Iterator[FileEntry]:
        """Yield entries, each named by its path from the root."""
        if self.start.kind != "folder":
            yield self.start
            return
        remaining = list_folder(self._folder, self.start.name)[::-1]
        while remaining and self.has_time():
            entry = remaining.pop()
            yield entry
            if entry.kind == "folder":
                remaining += reversed(self._enter(entry.name))

    def _enter(self, path: str) -> list[FileEntry]:
        name = path.rpartition("/")[2]
        if name in SKIPPED_FOLDERS:
            self._skipped_names.add(name)
            return []
        try:
            return list_folder(self._folder, path)
        except WorkspaceError:
            self._unreadable_paths.append(path)
            return []

    def read_files(self, matches_path: Matcher) -> Iterator[FileContent]:
        """Yield the text files whose paths match."""
        for entry in self:
            if entry.kind != "file" or not matches_path(entry.name):
                continue
            try:
                content = read_content(self._folder, entry.name)
            except WorkspaceError:
                self._unreadable_paths.append(entry.name)
                continue
            if is_binary(content.data):
                self._binary_count += 1
            else:
                self.file_count += 1
                yield content

    def describe_omissions(self) -> Iterator[str]:
        """Yield what the walk left out, and why."""
        if self._binary_count:
            yield f"[Binary files skipped: {self._binary_count}.]"
        if paths := self._unreadable_paths:
            yield f"[Skipped, too large or unreadable: {_join_paths(paths)}.]"
        if self._skipped_names:
            yield f"[Folders skipped: {', '.join(sorted(self._skipped_names))}.]"
        if not self.has_time():
            yield f"[Stopped after {MAX_SECONDS:g} s. Set `path` to a smaller folder.]"


def _join_paths(paths: list[str]) -> str:
    shown = ", ".join(map(escape_path, paths[:_MAX_SHOWN_PATHS]))
    omitted = len(paths) - _MAX_SHOWN_PATHS
    return f"{shown} and {omitted} more" if omitted > 0 else shown


# Listing.


def list_files(folder: ConfinedFolder, path: str, pattern: str | None) -> str:
    """List the entries of a folder, or everything below it that matches a glob pattern."""
    walk = FileWalk(folder, path)
    if not pattern:
        is_folder = walk.start.kind == "folder"
        entries = list_folder(folder, walk.start.name) if is_folder else [walk.start]
        return _format_entries(entries, "The folder is empty.", [])
    matches = compile_glob(pattern, walk.start.name)
    entries = [one for one in walk if matches(one.name)]
    return _format_entries(entries, f"Nothing matches {pattern!r}.", walk.describe_omissions())


def _format_entries(entries: list[FileEntry], if_empty: str, remarks: Iterable[str]) -> str:
    lines = [escape_path(one.name) + _KIND_SUFFIXES[one.kind] for one in entries[:MAX_LISTED]]
    omitted = len(entries) - MAX_LISTED
    more = [f"[{omitted} more. Set `path` or `pattern` to list fewer.]"] if omitted > 0 else []
    return "\n".join([*(lines or [f"[{if_empty}]"]), *more, *remarks])


def compile_glob(pattern: str, start: str) -> Matcher:
    """Return a test for paths. `*.py` matches a name at any depth, `src/**/*.{js,ts}` a path
    relative to `start`."""
    prefix = "" if start == "." else f"{start}/"
    pattern = _replace_invalid(pattern.removeprefix("./").strip("/"))
    is_name = "/" not in pattern
    matches = _compile_regex(f"^{_translate_glob(pattern)}$") or pattern.__eq__

    def matches_path(path: str) -> bool:
        path = path.removeprefix(prefix)
        return matches(_replace_invalid(path.rpartition("/")[2] if is_name else path))

    return matches_path


def _translate_glob(pattern: str) -> str:
    """Translate a glob pattern into a regular expression. `**` is any number of names."""
    return _GLOB_TOKEN.sub(_translate_token, pattern)


def _translate_token(token: re.Match[str]) -> str:
    text = token[0]
    if len(text) > 2 and text.startswith("{"):
        return f"(?:{'|'.join(map(_translate_glob, text[1:-1].split(',')))})"
    if len(text) > 2 and text.startswith("["):
        return text.replace("!", "^")
    return _GLOB_REGEX.get(text) or re.escape(text)


def _replace_invalid(text: str) -> str:
    """Replace lone surrogates, which stand for invalid UTF-8 in a name."""
    return text.encode("utf-8", "replace").decode()


def _compile_regex(pattern: str) -> Matcher | None:
    """Compile a pattern for the linear engine; None if that does not support it."""
    options = jsonschema_rs.RegexOptions(size_limit=_MAX_REGEX_SIZE)
    try:
        schema = {"pattern": pattern}
        return jsonschema_rs.validator_for(schema, pattern_options=options).is_valid
    except (ValueError, jsonschema_rs.ValidationError):
        return None


# Searching.


def search_files(folder: ConfinedFolder, pattern: str, path: str, glob: str | None) -> str:
    """Return the lines that match a pattern, as `path:line number: text`."""
    if not pattern:
        raise WorkspaceError("`pattern` is empty. Set it to the text to search for.")
    if "\n" in pattern:
        raise WorkspaceError(
            "`pattern` must not contain a line break: each line is searched separately."
        )
    matches_line, problem = _compile_search(pattern)
    walk = FileWalk(folder, path)
    contents = walk.read_files(compile_glob(glob or "*", walk.start.name))
    found = list(islice(_find_lines(walk, contents, matches_line), MAX_FOUND + 1))
    lines = found[:MAX_FOUND] or [f"[No match in {walk.file_count} files.]"]
    if len(found) > MAX_FOUND:
        lines.append(f"[Only the first {MAX_FOUND} matches are shown. Narrow the search.]")
    return "\n".join([*lines, *filter(None, [problem]), *walk.describe_omissions()])


def _compile_search(pattern: str) -> tuple[Matcher, str]:
    """Return a test for lines, and a remark if the pattern is not a valid expression. Such a
    pattern is searched as plain text: models write `print(` and mean that."""
    if _PLAIN_TEXT.fullmatch(pattern):
        return (lambda line: pattern in line), ""
    if matcher := _compile_regex(pattern):
        return matcher, ""
    remark = f"[{_describe_invalid(pattern)}; it was searched as plain text.]"
    return (lambda line: pattern in line), remark


def _describe_invalid(pattern: str) -> str:
    """Describe the problem of a pattern. Python's message is better, if Python sees a problem."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError, Warning) as problem:
        return f"The pattern is not a valid regular expression ({problem})"
    return "The pattern is too large or uses something unsupported, such as look-around"


def _find_lines(walk: FileWalk, contents: Iterable[FileContent], matches: Matcher) -> Iterator[str]:
    for content in contents:
        for number, line in enumerate(split_lines(decode_text(content).masked_text), 1):
            if (excerpt := _find_excerpt(walk, line, matches)) is not None:
                yield f"{escape_path(content.path)}:{number}: {excerpt}"
            elif not number % _LINES_PER_CHECK and not walk.has_time():
                return


def _find_excerpt(walk: FileWalk, line: str, matches: Matcher) -> str | None:
    """Return what to show of a line that matches, or None."""
    if len(line) <= _MAX_SHOWN_LINE:
        return line if matches(line) else None
    for piece in split_long_line(line):
        if matches(piece):
            return _cut_around_match(piece, matches)
        if len(line) > _PIECE and not walk.has_time():
            return None
    return None


def split_long_line(line: str) -> Iterator[str]:
    """Yield overlapping pieces of a line."""
    for start in range(0, max(1, len(line) - _OVERLAP), _PIECE - _OVERLAP):
        yield line[start : start + _PIECE]


def _cut_around_match(piece: str, matches: Matcher) -> str:
    """Return the part of a long line around its match. The engine does not say where the match
    is, but bisecting finds the shortest beginning that matches, and with it the end."""
    end = bisect_left(range(len(piece)), True, key=lambda length: matches(piece[:length]))
    start = max(0, end - _MAX_SHOWN_LINE * 3 // 4)
    stop = start + _MAX_SHOWN_LINE
    before, after = "…" if start else "", "…" if stop < len(piece) else ""
    return f"{before}{piece[start:stop]}{after}"
