"""Shows the text of files to a model, and replaces parts of it.

A model gets lines that end with `\\n`, whatever the file has, and no line numbers: weak models copy
what they see into their next edit, numbers included. An edit changes nothing but the text that it
names. Errors tell the model how to succeed next time: where the text occurs if it does so more than
once, and the most similar lines if it does not occur at all.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from difflib import SequenceMatcher, get_close_matches
from heapq import nlargest
from itertools import islice

from msgspec import Struct

from .folder import (
    MAX_FILE_SIZE,
    ConfinedFolder,
    FileContent,
    FileMissing,
    WorkspaceError,
    create_file,
    escape_path,
    read_content,
    replace_file,
)

MAX_LINES = 400
MAX_CHARACTERS = 20_000
_BINARY_SAMPLE = 8192
_INVALID_UTF8 = re.compile("[\udc80-\udcff]")
"""Bytes that are not UTF-8, as `surrogateescape` decodes them."""
_PRIVATE_KEY = re.compile(
    r"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----[ \t]*\n)(.*?)(?=\n[ \t]*-----END |\Z)", re.S
)
_MAX_MATCHES = 1000
_MAX_LISTED = 10
_MAX_QUOTED_LINES = 12
_MAX_SCANNED_LINES = 10_000
_MAX_COMPARED_LINES = 50
_MAX_COMPARED_LENGTH = 200


class FileText(Struct, frozen=True):
    """The text of a file with `\\n` for every line break, and the way back to the original."""

    path: str
    original: str
    text: str
    crlf_positions: list[int]
    """Positions in `text` of the line breaks that are `\\r\\n` in the file."""

    @property
    def masked_text(self) -> str:
        """The text as a model may see it: invalid bytes as \\ufffd, private keys masked. The keys
        are masked here because a part of one, without its first line, is not recognizable."""
        text = _INVALID_UTF8.sub("\ufffd", self.text).removeprefix("\ufeff")
        return _PRIVATE_KEY.sub(_mask_key, text) if "PRIVATE KEY" in text else text

    def original_position(self, position: int) -> int:
        return position + bisect_left(self.crlf_positions, position)


def decode_text(content: FileContent) -> FileText:
    if is_binary(content.data):
        size = f"{len(content.data):,} bytes"
        raise WorkspaceError(f"{escape_path(content.path)} is not text ({size} of binary data).")
    original = content.data.decode("utf-8", "surrogateescape")
    breaks = enumerate(re.finditer("\r\n", original))
    crlf_positions = [match.start() - index for index, match in breaks]
    return FileText(content.path, original, original.replace("\r\n", "\n"), crlf_positions)


def is_binary(data: bytes) -> bool:
    return b"\0" in data[:_BINARY_SAMPLE]


def _mask_key(key: re.Match[str]) -> str:
    """Mask a private key, keeping its number of lines."""
    return key[1] + "\n".join("*[REDACTED]" for _ in key[2].split("\n"))


def split_lines(text: str) -> list[str]:
    """Split at `\\n` only, as editors count lines."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


# Showing.


def format_page(file: FileText, offset: int | None, limit: int | None) -> str:
    """Return `limit` lines from line `offset` on, with remarks about the rest."""
    lines = split_lines(file.masked_text)
    first = max(1, offset or 1)
    if not lines:
        return "[The file is empty.]"
    if first > len(lines):
        raise WorkspaceError(f"{escape_path(file.path)} has only {len(lines)} lines.")
    count = max(1, limit) if limit else MAX_LINES
    page = _limit_characters(lines[first - 1 : first - 1 + count])
    last = first + len(page) - 1
    if first > 1 or last < len(lines):
        rest = f" Continue with offset={last + 1}." if last < len(lines) else ""
        page.append(f"[Lines {first} to {last} of {len(lines)}.{rest}]")
    if _INVALID_UTF8.search(file.text):
        page.append("[Invalid UTF-8 is shown as \ufffd. Edits keep the original bytes.]")
    return "\n".join(page)


def _limit_characters(lines: list[str]) -> list[str]:
    """Return as many lines as fit into MAX_CHARACTERS, but at least one."""
    room = MAX_CHARACTERS
    for count, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return lines[:count] or [_shorten_line(line, MAX_CHARACTERS)]
    return lines


def _shorten_line(line: str, limit: int) -> str:
    omitted = len(line) - limit
    return line if omitted <= 0 else f"{line[:limit]}… [{omitted} more characters]"


# Editing.


def edit_file(folder: ConfinedFolder, path: str, old: str, new: str, *, everywhere: bool) -> str:
    """Replace `old` by `new`; without `old`, create a file. Return a line about the change."""
    data = _encode(new)
    try:
        content = read_content(folder, path, to_change=True)
    except FileMissing as problem:
        if old:
            raise FileMissing(f"{problem} To create it, leave `old` empty.") from None
        return f"[Created {escape_path(create_file(folder, path, data))}.]"
    if old:
        return _replace_text(folder, content, old, new, everywhere)
    if content.data:
        advice = "Put the text to replace in `old`"
        raise WorkspaceError(f"{escape_path(content.path)} already exists. {advice}.")
    replace_file(folder, content, data)
    return f"[Wrote {escape_path(content.path)}. It was empty before.]"


def _encode(text: str) -> bytes:
    _check_size(len(text))
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise WorkspaceError("`new` contains an invalid character (a lone surrogate).") from None


def _check_size(size: int) -> None:
    """Refuse to write a file that could not be read again."""
    if size > MAX_FILE_SIZE:
        raise WorkspaceError(f"The file would become larger than {MAX_FILE_SIZE >> 20} MiB.")


def _replace_text(
    folder: ConfinedFolder, content: FileContent, old: str, new: str, everywhere: bool
) -> str:
    file = decode_text(content)
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
    return f"[Changed {escape_path(file.path)}, {_format_lines(file, positions)}.]"


def _find_matches(text: str, old: str, *, can_overlap: bool) -> Iterator[int]:
    """Yield the positions of `old`. Overlapping matches count when only one match is allowed: the
    edit would be ambiguous."""
    position = text.find(old)
    while position >= 0:
        yield position
        position = text.find(old, position + (1 if can_overlap else len(old)))


def _splice(file: FileText, positions: list[int], length: int, new: str) -> str:
    """Return the file's original text with `new` at the positions; every other byte is kept. Line
    breaks are written as in the text that is replaced, or as in most of the file."""
    usual = _find_line_break(file.original)
    parts: list[str] = []
    done = 0
    for position in positions:
        start, end = file.original_position(position), file.original_position(position + length)
        replaced = file.original[start:end]
        line_break = _find_line_break(replaced) if "\n" in replaced else usual
        parts += [file.original[done:start], new.replace("\n", line_break)]
        done = end
    return "".join([*parts, file.original[done:]])


def _find_line_break(text: str) -> str:
    return "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"


def _format_lines(file: FileText, positions: list[int]) -> str:
    listed = positions[:_MAX_LISTED]
    numbers = sorted({file.text.count("\n", 0, one) + 1 for one in listed})
    more = f" and {len(positions) - _MAX_LISTED} more" if len(positions) > _MAX_LISTED else ""
    word = "line" if len(numbers) == 1 and not more else "lines"
    return f"{word} {', '.join(map(str, numbers))}{more}"


def _describe_ambiguity(file: FileText, positions: list[int]) -> str:
    is_capped = len(positions) == _MAX_MATCHES
    count = f"{_MAX_MATCHES} times or more" if is_capped else f"{len(positions)} times"
    return (
        f"`old` occurs {count} in {escape_path(file.path)} ({_format_lines(file, positions)}). "
        "Add lines around it until it occurs once, or set `all`."
    )


def _describe_no_match(file: FileText, old: str) -> str:
    problem = f"`old` does not occur in {escape_path(file.path)}."
    lines, wanted = split_lines(file.masked_text), split_lines(old)
    start = _find_similar(lines, wanted)
    if start is None:
        return f"{problem} No line is similar. Read the file again."
    found = lines[start : start + min(len(wanted), _MAX_QUOTED_LINES)]
    has_other_spaces = [line.split() for line in found] == [line.split() for line in wanted]
    reason = " Only the spaces differ." if has_other_spaces else ""
    quoted = "\n".join(_shorten_line(line, _MAX_COMPARED_LENGTH) for line in found)
    return f"{problem} The most similar text starts at line {start + 1}.{reason}\n{quoted}"


def _find_similar(lines: list[str], wanted: list[str]) -> int | None:
    """Return the index where the most similar lines start, located by the longest wanted line."""
    longest = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    matcher = SequenceMatcher(None, b=_trim(wanted[longest]))

    def measure_upper_bound(line: str) -> float:
        matcher.set_seq1(line)
        return matcher.quick_ratio()

    trimmed = [_trim(line) for line in lines[:_MAX_SCANNED_LINES]]
    # The upper bound is much faster than the ratio itself.
    candidates = nlargest(_MAX_COMPARED_LINES, trimmed, key=measure_upper_bound)
    best = get_close_matches(_trim(wanted[longest]), candidates, 1)
    return max(0, trimmed.index(best[0]) - longest) if best else None


def _trim(line: str) -> str:
    return line.strip()[:_MAX_COMPARED_LENGTH]
