"""Replaces a text in a file, exactly where it occurs.

An error tells the model how to succeed next time: where the text occurs if it does so more than
once, and the most similar lines if it does not occur at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from heapq import nlargest
from itertools import islice

from .files import (
    MAX_FILE_SIZE,
    FileContent,
    FileText,
    create_file,
    read_content,
    replace_file,
    shorten_line,
    split_lines,
)
from .folder import ConfinedFolder, FileMissing, WorkspaceError, show_path

_MAX_MATCHES = 1000
_MAX_LISTED = 10
_MAX_QUOTED_LINES = 12
_MAX_SCANNED_LINES = 10_000
_MAX_COMPARED_LINES = 50
_MAX_COMPARED_LENGTH = 200
_MIN_SIMILARITY = 0.6


def edit_file(folder: ConfinedFolder, path: str, old: str, new: str, *, everywhere: bool) -> str:
    """Replace `old` by `new`; without `old`, create a file. Return what was done."""
    data = _encode(new)
    try:
        content = read_content(folder, path, to_change=True)
    except FileMissing as problem:
        if old:
            raise FileMissing(f"{problem} To create it, leave `old` empty.") from None
        return f"[Created {show_path(create_file(folder, path, data))}.]"
    if old:
        return _replace_text(folder, content, old, new, everywhere)
    if content.data:
        advice = "Put the text to replace in `old`"
        raise WorkspaceError(f"{show_path(content.path)} exists already. {advice}.")
    replace_file(folder, content, data)
    return f"[Wrote {show_path(content.path)}, which was empty.]"


def _replace_text(
    folder: ConfinedFolder, content: FileContent, old: str, new: str, everywhere: bool
) -> str:
    file = FileText(content)
    old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    matches = _find_matches(file.text, old, can_overlap=not everywhere)
    positions = list(matches if everywhere else islice(matches, _MAX_MATCHES))
    if not positions:
        raise WorkspaceError(_describe_no_match(file, old))
    if len(positions) > 1 and not everywhere:
        raise WorkspaceError(_describe_ambiguity(file, positions))
    if old == new:
        raise WorkspaceError("`old` and `new` are the same. Nothing was changed.")
    _check_size(len(file.original) + len(positions) * (len(new) - len(old)))
    edited = _splice(file, positions, len(old), new)
    replace_file(folder, content, edited.encode("utf-8", "surrogateescape"))
    return f"[Changed {show_path(file.path)}, {_format_lines(file, positions)}.]"


def _encode(text: str) -> bytes:
    _check_size(len(text))
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise WorkspaceError("`new` contains an invalid character (a lone surrogate).") from None


def _check_size(size: int) -> None:
    """Refuse to write what could not be read again."""
    if size > MAX_FILE_SIZE:
        raise WorkspaceError(f"The file would become larger than {MAX_FILE_SIZE >> 20} MB.")


def _find_matches(text: str, old: str, *, can_overlap: bool) -> Iterator[int]:
    """Yield where `old` occurs. Overlapping matches count when only one is allowed: it would not
    be clear which is meant."""
    position = text.find(old)
    while position >= 0:
        yield position
        position = text.find(old, position + (1 if can_overlap else len(old)))


def _splice(file: FileText, positions: list[int], length: int, new: str) -> str:
    """Return the file's original text with `new` at the positions; every other byte is kept."""
    parts: list[str] = []
    done = 0
    for position in positions:
        start, end = file.original_position(position), file.original_position(position + length)
        line_break = file.find_line_break(position, position + length)
        parts += [file.original[done:start], new.replace("\n", line_break)]
        done = end
    return "".join([*parts, file.original[done:]])


def _format_lines(file: FileText, positions: list[int]) -> str:
    numbers = sorted({file.line_number(one) for one in positions[:_MAX_LISTED]})
    more = f" and {len(positions) - _MAX_LISTED} more" if len(positions) > _MAX_LISTED else ""
    word = "line" if len(numbers) == 1 and not more else "lines"
    return f"{word} {', '.join(map(str, numbers))}{more}"


def _describe_ambiguity(file: FileText, positions: list[int]) -> str:
    is_capped = len(positions) == _MAX_MATCHES
    count = f"{_MAX_MATCHES} times or more" if is_capped else f"{len(positions)} times"
    return (
        f"`old` occurs {count} in {show_path(file.path)} ({_format_lines(file, positions)}). "
        "Add lines around it until it occurs once, or set `all`."
    )


def _describe_no_match(file: FileText, old: str) -> str:
    problem = f"`old` does not occur in {show_path(file.path)}."
    lines, wanted = split_lines(file.shown), split_lines(old)
    start = _find_similar(lines, wanted)
    if start is None:
        return f"{problem} No line is similar. Read the file again."
    found = lines[start : start + min(len(wanted), _MAX_QUOTED_LINES)]
    has_other_spaces = [line.split() for line in found] == [line.split() for line in wanted]
    reason = " Only the spaces differ." if has_other_spaces else ""
    quoted = "\n".join(shorten_line(line, _MAX_COMPARED_LENGTH) for line in found)
    return f"{problem} The most similar text starts at line {start + 1}.{reason}\n{quoted}"


def _find_similar(lines: list[str], wanted: list[str]) -> int | None:
    """Return the index where the most similar lines start, located by the longest wanted line."""
    longest = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    matcher = SequenceMatcher(None)
    matcher.set_seq2(_trim(wanted[longest]))

    def bound_similarity(index: int) -> float:
        matcher.set_seq1(_trim(lines[index]))
        return matcher.quick_ratio()

    def measure_similarity(index: int) -> float:
        matcher.set_seq1(_trim(lines[index]))
        return matcher.ratio()

    # The upper bound is much faster than the ratio itself.
    scanned = range(min(len(lines), _MAX_SCANNED_LINES))
    candidates = nlargest(_MAX_COMPARED_LINES, scanned, key=bound_similarity)
    if not candidates:
        return None
    best = max(candidates, key=measure_similarity)
    return max(0, best - longest) if measure_similarity(best) >= _MIN_SIMILARITY else None


def _trim(line: str) -> str:
    return line.strip()[:_MAX_COMPARED_LENGTH]
