"""Reads, lists and replaces files of the workspace, and shows their text to a model.

A file is opened only if it is a regular one: a pipe would block for ever, and opening a device may
have effects. A model gets lines that end with `\\n`, whatever the file has, and no line numbers:
weak models copy what they see into their next edit, numbers included.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from bisect import bisect_left
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import cached_property
from typing import BinaryIO, Literal

from msgspec import Struct

from .folder import (
    NOFOLLOW,
    OPEN_FOLDER,
    ConfinedFolder,
    FileMissing,
    Location,
    Purpose,
    WorkspaceError,
    show_path,
)

MAX_FILE_SIZE = 8 << 20
MAX_LINES = 400
MAX_CHARACTERS = 20_000
FileKind = Literal["folder", "file", "link", "other"]
_OPEN_SAFELY: int = (
    NOFOLLOW
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)
_CREATE_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN_SAFELY
_BINARY_SAMPLE = 8192
_INVALID_UTF8 = re.compile("[\udc80-\udcff]")
"""Bytes that are not UTF-8, as `surrogateescape` decodes them."""
_PRIVATE_KEY = re.compile(
    r"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----[ \t]*\n)(.*?)(?=\n[ \t]*-----END |\Z)", re.S
)


class FileContent(Struct, frozen=True):
    """The bytes of a file, and its status when they were read."""

    path: str
    data: bytes
    status: os.stat_result


class FileEntry(Struct, frozen=True, order=True):
    """A directory entry, by its name or its path."""

    name: str
    kind: FileKind


# Reading.


def read_content(folder: ConfinedFolder, path: str, *, to_change: bool = False) -> FileContent:
    """Read a whole file. With `to_change` it must be writable."""
    with _locate_existing(folder, path, "change" if to_change else "read") as location:
        fd = _open_regular(location, os.O_RDWR if to_change else os.O_RDONLY)
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            data = b"" if status.st_size > MAX_FILE_SIZE else _read_all(file, status.st_size)
            size = max(status.st_size, len(data))
    if size > MAX_FILE_SIZE:
        limit = f"{MAX_FILE_SIZE >> 20} MB"
        raise WorkspaceError(f"{show_path(location.path)} is larger than {limit}.")
    return FileContent(location.path, data, status)


def _read_all(file: BinaryIO, size: int) -> bytes:
    """Read to the end, which may be beyond the reported size, with no larger buffer than needed."""
    data = file.read(size + 1)
    return data if len(data) <= size else data + file.read(MAX_FILE_SIZE + 1 - len(data))


def _open_regular(location: Location, flags: int) -> int:
    status = os.stat(location.name, dir_fd=location.folder_fd, follow_symlinks=False)
    _check_regular(location, status)
    fd = os.open(location.name, flags | _OPEN_SAFELY, dir_fd=location.folder_fd)
    try:
        _check_regular(location, os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_regular(location: Location, status: os.stat_result) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    is_folder = stat.S_ISDIR(status.st_mode)
    kind = "a folder" if is_folder else "a pipe, a socket or a device, not a file"
    raise WorkspaceError(f"{show_path(location.path)} is {kind}.")


def find_entry(folder: ConfinedFolder, path: str) -> FileEntry:
    """Return what is at a path, named by its path from the root."""
    with _locate_existing(folder, path) as location:
        mode = os.stat(location.name, dir_fd=location.folder_fd, follow_symlinks=False).st_mode
    if stat.S_ISDIR(mode):
        return FileEntry(location.path, "folder")
    return FileEntry(location.path, "file" if stat.S_ISREG(mode) else "other")


def list_folder(folder: ConfinedFolder, path: str) -> list[FileEntry]:
    """Return the sorted entries of a folder."""
    with _locate_existing(folder, path) as location:
        return _list_entries(location)


def _list_entries(location: Location) -> list[FileEntry]:
    with _scan(location) as entries:
        return sorted(FileEntry(one.name, _get_kind(one)) for one in entries)


@contextmanager
def _scan(location: Location) -> Generator[Iterator[os.DirEntry[str]]]:
    if location.folder_fd is None:
        with os.scandir(location.name) as entries:
            yield entries
        return
    fd = os.open(location.name, OPEN_FOLDER, dir_fd=location.folder_fd)
    try:
        with os.scandir(fd) as entries:
            yield entries
    finally:
        os.close(fd)


def _get_kind(entry: os.DirEntry[str]) -> FileKind:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


@contextmanager
def _locate_existing(
    folder: ConfinedFolder, path: str, purpose: Purpose = "read"
) -> Generator[Location]:
    """Locate a path; if it does not exist, the error suggests similar names."""
    try:
        with folder.locate(path, purpose) as location:
            yield location
    except FileMissing as problem:
        raise FileMissing(f"{problem}{_suggest_names(folder, path)}") from None


def _suggest_names(folder: ConfinedFolder, path: str) -> str:
    parent, name = os.path.split(path.rstrip("/"))
    try:
        with folder.locate(parent or ".") as location:
            names = [one.name for one in _list_entries(location)]
    except WorkspaceError:
        return ""
    similar = get_close_matches(name, names, n=3, cutoff=0.7)
    return f" Similar names there: {', '.join(map(show_path, similar))}." if similar else ""


# Writing.


def create_file(folder: ConfinedFolder, path: str, data: bytes) -> str:
    """Create a file and the folders on the way to it, and return its path. The name is claimed
    first with an empty file, so that no file of somebody else is replaced."""
    with folder.locate(path, "create") as location:
        fd = os.open(location.name, _CREATE_NEW, 0o666, dir_fd=location.folder_fd)
        empty = os.fstat(fd)
        os.close(fd)
        try:
            _replace(location, data, empty)
        except BaseException:
            with suppress(OSError, WorkspaceError):
                _check_unchanged(location, empty)
                os.unlink(location.name, dir_fd=location.folder_fd)
            raise
        return location.path


def replace_file(folder: ConfinedFolder, content: FileContent, data: bytes) -> None:
    """Replace a file that was read, unless somebody has changed it since."""
    with folder.locate(content.path, "change") as location:
        _replace(location, data, content.status)


def _replace(location: Location, data: bytes, before: os.stat_result) -> None:
    """Write a new file and rename it over the old one: at every moment there is a complete file of
    that name. If the name has become a link, the link is replaced, not its target."""
    folder_fd = location.folder_fd
    temporary = os.path.join(os.path.dirname(location.name), f".toolspeak-{secrets.token_hex(8)}")
    fd = os.open(temporary, _CREATE_NEW, 0o600, dir_fd=folder_fd)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            _copy_mode(fd, before)
            os.fsync(fd)
        _check_unchanged(location, before)
        os.replace(temporary, location.name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder_fd)
        raise


def _copy_mode(fd: int, before: os.stat_result) -> None:
    """Copy owner, group and mode. The setuid and setgid bits are dropped, as by any write."""
    if not hasattr(os, "fchown"):
        return
    with suppress(PermissionError):
        os.fchown(fd, before.st_uid, before.st_gid)
    os.fchmod(fd, before.st_mode & 0o777)


def _check_unchanged(location: Location, before: os.stat_result) -> None:
    now = os.stat(location.name, dir_fd=location.folder_fd, follow_symlinks=False)
    if _get_version(now) != _get_version(before):
        problem = "was just changed by somebody else and was not edited. Read it again"
        raise WorkspaceError(f"{show_path(location.path)} {problem}.")


def _get_version(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


# Text.


class FileText:
    """The text of a file with `\\n` for every line break, and the way back to the original."""

    def __init__(self, content: FileContent) -> None:
        if is_binary(content.data):
            size = f"{len(content.data):,} bytes"
            raise WorkspaceError(f"{show_path(content.path)} is not text ({size} of binary data).")
        self.path = content.path
        self.original = content.data.decode("utf-8", "surrogateescape")
        self.text = self.original.replace("\r\n", "\n")
        self._shortened: list[int] = []
        """Positions in the text of line breaks that are `\\r\\n` in the file."""
        if self.text != self.original:
            breaks = re.finditer("\r\n", self.original)
            self._shortened = [match.start() - index for index, match in enumerate(breaks)]

    @property
    def shown(self) -> str:
        """The text as a model may see it: invalid bytes as \\ufffd, private keys masked. The keys
        are masked here because a part of one, without its first line, is not recognizable."""
        text = _INVALID_UTF8.sub("\ufffd", self.text).removeprefix("\ufeff")
        return _PRIVATE_KEY.sub(_mask_key, text) if "PRIVATE KEY" in text else text

    @property
    def has_invalid_bytes(self) -> bool:
        return _INVALID_UTF8.search(self.text) is not None

    def original_position(self, position: int) -> int:
        return position + bisect_left(self._shortened, position)

    def find_line_break(self, start: int, end: int) -> str:
        """Return how lines end in this range; if none ends there, how most of the file's do."""
        original = self.original[self.original_position(start) : self.original_position(end)]
        return _usual_line_break(original) if "\n" in original else self._line_break

    @cached_property
    def _line_break(self) -> str:
        return _usual_line_break(self.original)

    def line_number(self, position: int) -> int:
        return self.text.count("\n", 0, position) + 1


def _mask_key(key: re.Match[str]) -> str:
    """Mask a private key, keeping its number of lines."""
    return key[1] + "\n".join("*[REDACTED]" for _ in key[2].split("\n"))


def _usual_line_break(text: str) -> str:
    return "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"


def is_binary(data: bytes) -> bool:
    return b"\0" in data[:_BINARY_SAMPLE]


def split_lines(text: str) -> list[str]:
    """Split at `\\n` only, as editors count lines."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def format_page(file: FileText, offset: int | None, limit: int | None) -> str:
    """Return `limit` lines from line `offset` on, with remarks about the rest."""
    lines = split_lines(file.shown)
    first = max(1, offset or 1)
    if not lines:
        return "[The file is empty.]"
    if first > len(lines):
        raise WorkspaceError(f"{show_path(file.path)} has only {len(lines)} lines.")
    count = max(1, limit) if limit else MAX_LINES
    page = _limit_characters(lines[first - 1 : first - 1 + count])
    last = first + len(page) - 1
    if first > 1 or last < len(lines):
        rest = f" Continue with offset={last + 1}." if last < len(lines) else ""
        page.append(f"[Lines {first} to {last} of {len(lines)}.{rest}]")
    if file.has_invalid_bytes:
        page.append("[Invalid UTF-8 is shown as \ufffd. Edits keep the original bytes.]")
    return "\n".join(page)


def _limit_characters(lines: list[str]) -> list[str]:
    """Return as many lines as fit into MAX_CHARACTERS, but at least one."""
    room = MAX_CHARACTERS
    for count, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return lines[:count] or [shorten_line(line, MAX_CHARACTERS)]
    return lines


def shorten_line(line: str, limit: int) -> str:
    omitted = len(line) - limit
    return line if omitted <= 0 else f"{line[:limit]}… [{omitted} more characters]"
