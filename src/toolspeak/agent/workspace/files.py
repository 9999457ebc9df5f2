"""Files of a folder: read whole, listed, and replaced in one step.

A file is only opened if it is an ordinary one: a pipe would wait for ever, and a device may do
something by being opened.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from typing import BinaryIO, Literal

from msgspec import Struct

from .confined import FOLDER, NOFOLLOW, Folder, Place, Purpose
from .problems import Missing, WorkspaceError, shown

LARGEST = 8 << 20
"""Larger files are not read: no model could."""
Kind = Literal["folder", "file", "link", "other"]
_CAREFULLY: int = (
    NOFOLLOW
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CAREFULLY


class Content(Struct, frozen=True):
    """What a file holds, and what it was when that was read."""

    path: str
    data: bytes
    status: os.stat_result


class Entry(Struct, frozen=True, order=True):
    """A file or a folder, by its name or its whole path."""

    name: str
    kind: Kind


def read(folder: Folder, path: str, *, to_change: bool = False) -> Content:
    """A whole file. One that is to be changed has to be one that may be written."""
    with _found(folder, path, "change" if to_change else "read") as place:
        fd = _opened(place, os.O_RDWR if to_change else os.O_RDONLY)
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            data = b"" if status.st_size > LARGEST else _all_of(file, status.st_size)
            size = max(status.st_size, len(data))
    if size > LARGEST:
        limit = f"{LARGEST >> 20} MB"
        raise WorkspaceError(f"{shown(place.path)} is larger than {limit}, and was not read.")
    return Content(place.path, data, status)


def _all_of(file: BinaryIO, size: int) -> bytes:
    """A whole file, which may be longer than the system says, or grow while it is read. No more
    room is taken for it than is needed."""
    data = file.read(size + 1)
    return data if len(data) <= size else data + file.read(LARGEST + 1 - len(data))


def _opened(place: Place, flags: int) -> int:
    _check_ordinary(place, os.stat(place.name, dir_fd=place.folder, follow_symlinks=False))
    fd = os.open(place.name, flags | _CAREFULLY, dir_fd=place.folder)
    try:
        _check_ordinary(place, os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_ordinary(place: Place, status: os.stat_result) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    other = "no ordinary file, but a pipe, a socket or a device"
    kind = "a folder" if stat.S_ISDIR(status.st_mode) else other
    raise WorkspaceError(f"{shown(place.path)} is {kind}.")


def look_up(folder: Folder, path: str) -> Entry:
    """What is at a path, with its path from the root as its name."""
    with _found(folder, path) as place:
        mode = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode
    if stat.S_ISDIR(mode):
        return Entry(place.path, "folder")
    return Entry(place.path, "file" if stat.S_ISREG(mode) else "other")


def entries(folder: Folder, path: str) -> list[Entry]:
    """What is in a folder, in order."""
    with _found(folder, path) as place:
        return _entries(place)


def _entries(place: Place) -> list[Entry]:
    with _scanned(place) as found:
        return sorted(Entry(one.name, _kind(one)) for one in found)


@contextmanager
def _found(folder: Folder, path: str, purpose: Purpose = "read") -> Generator[Place]:
    """The place of something that exists. If it does not, names are told that are like it."""
    try:
        with folder.place(path, purpose) as place:
            yield place
    except Missing as problem:
        raise Missing(f"{problem}{_nearest(folder, path)}") from None


def _nearest(folder: Folder, path: str) -> str:
    above, name = os.path.split(path.rstrip("/"))
    try:
        with folder.place(above or ".") as place:
            names = [one.name for one in _entries(place)]
    except WorkspaceError:
        return ""
    near = get_close_matches(name, names, n=3, cutoff=0.7)
    return f" Its folder has: {', '.join(map(shown, near))}." if near else ""


@contextmanager
def _scanned(place: Place) -> Generator[Iterator[os.DirEntry[str]]]:
    if place.folder is None:
        with os.scandir(place.name) as found:
            yield found
        return
    fd = os.open(place.name, FOLDER, dir_fd=place.folder)
    try:
        with os.scandir(fd) as found:
            yield found
    finally:
        os.close(fd)


def _kind(entry: os.DirEntry[str]) -> Kind:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def create(folder: Folder, path: str, data: bytes) -> str:
    """Make a file that does not exist, and the folders on the way to it. The name is taken first,
    with an empty file, so that nobody else's file is replaced."""
    with folder.place(path, "create") as place:
        fd = os.open(place.name, _NEW, 0o666, dir_fd=place.folder)
        empty = os.fstat(fd)
        os.close(fd)
        try:
            _replace(place, data, empty)
        except BaseException:
            with suppress(OSError, WorkspaceError):
                _check_same(place, empty)
                os.unlink(place.name, dir_fd=place.folder)
            raise
        return place.path


def replace(folder: Folder, content: Content, data: bytes) -> None:
    """Put other data in a file that was read, unless somebody has changed it since."""
    with folder.place(content.path, "change") as place:
        _replace(place, data, content.status)


def _replace(place: Place, data: bytes, before: os.stat_result) -> None:
    """The new file is written beside the old one, and then takes its name: whatever happens in
    between, there is always a whole file of that name. If that has become a link, the link is
    replaced, and not what it points to."""
    beside = os.path.join(os.path.dirname(place.name), f".toolspeak-{secrets.token_hex(8)}")
    fd = os.open(beside, _NEW, 0o600, dir_fd=place.folder)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            _make_like(fd, before)
            os.fsync(fd)
        _check_same(place, before)
        os.replace(beside, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside, dir_fd=place.folder)
        raise


def _make_like(fd: int, before: os.stat_result) -> None:
    """Owner, group and mode of the file as it was. The bits that lend rights to whoever runs it
    are not kept: writing to a file takes them away, too."""
    if not hasattr(os, "fchown"):
        return
    with suppress(PermissionError):
        os.fchown(fd, before.st_uid, before.st_gid)
    os.fchmod(fd, before.st_mode & 0o777)


def _check_same(place: Place, before: os.stat_result) -> None:
    now = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
    if _version(now) != _version(before):
        problem = "was changed by somebody else in this moment, and is left as it is now"
        raise WorkspaceError(f"{shown(place.path)} {problem}: read it again.")


def _version(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
