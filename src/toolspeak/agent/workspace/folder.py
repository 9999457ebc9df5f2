"""Reads, lists and writes the files of one folder, and nothing outside it.

    src/../README.md          allowed, it stays inside
    /home/me/project/a.py     allowed if that is below the folder
    docs/latest -> v2         a link that leads inside is followed
    ../secrets, /etc/passwd   refused, and so is a link that leads there

A path is resolved, then checked, then opened one name at a time: each name relative to the folder
before it, and never through a link (`openat` with `O_NOFOLLOW`). So a link that replaces a name
after the check is refused. Windows has no such calls: there, such a link would lead outside.

Only regular files are opened: a pipe would block for ever, and opening a device may have effects.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from typing import Literal

from msgspec import Struct

from ...errors import UsageError

MAX_FILE_SIZE = 8 << 20
MAX_PATH_LENGTH = 4096
HAS_OPENAT = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_OPEN_FOLDER: int = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NOFOLLOW
_OPEN_FILE: int = (
    _NOFOLLOW
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)
_CREATE_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN_FILE
_MAX_SHOWN = 200
_NOT_REGULAR = {stat.S_IFDIR: "is a folder", stat.S_IFLNK: "goes through too many links"}
_IS_DEVICE = "is a pipe, a socket or a device, not a file"
_ERRORS = {
    errno.ENOTDIR: "is not a valid path: a part of it is not a folder, or it has too many links",
    errno.ELOOP: "was just replaced by a link",
    errno.EEXIST: "already exists",
    errno.EISDIR: "is a folder",
    errno.EACCES: "cannot be used: permission denied",
    errno.EPERM: "cannot be used: permission denied",
}
Purpose = Literal["read", "change", "create"]
FileKind = Literal["folder", "file", "link", "other"]


class WorkspaceError(UsageError):
    """A workspace tool cannot do what it was called for; nothing was changed. The message is for
    the model."""


class FileMissing(WorkspaceError):
    """The path does not exist."""


class FileContent(Struct, frozen=True):
    """The bytes of a file, and its status when they were read."""

    path: str
    data: bytes
    status: os.stat_result


class FileEntry(Struct, frozen=True, order=True):
    """A directory entry, by its path from the root."""

    name: str
    kind: FileKind


class Location(Struct, frozen=True):
    """A name that is not a link, in a folder that is held open."""

    folder_fd: int | None
    """None where the system has no `openat`: then `name` is an absolute path."""
    name: str
    path: str
    """Relative to the root and without links; "." is the root."""

    def stat(self) -> os.stat_result:
        return os.stat(self.name, dir_fd=self.folder_fd, follow_symlinks=False)

    def open(self, flags: int, mode: int = 0o666) -> int:
        return os.open(self.name, flags, mode, dir_fd=self.folder_fd)

    def unlink(self) -> None:
        os.unlink(self.name, dir_fd=self.folder_fd)

    def suggest_names(self) -> str:
        """Return a sentence with the similar names in the folder, or ""."""
        folder = os.path.dirname(self.name) if self.folder_fd is None else self.folder_fd
        try:
            names = os.listdir(folder)
        except OSError:
            return ""
        similar = get_close_matches(os.path.basename(self.name), names, 3, 0.7)
        return f" Similar names there: {', '.join(map(escape_path, similar))}." if similar else ""


class ConfinedFolder(Struct, frozen=True):
    """The folder that paths are confined to."""

    root: str
    """Without links."""
    identity: tuple[int, int]
    """Device and inode: another folder of the same name is not used."""

    @contextmanager
    def locate(self, path: str, purpose: Purpose = "read") -> Generator[Location]:
        """Resolve a path and hold its folder open. An `OSError` raised inside becomes a
        `WorkspaceError` about the path."""
        location: Location | None = None
        try:
            location = self._open_location(path, purpose)
            yield location
        except FileNotFoundError:
            similar = location.suggest_names() if location else ""
            raise FileMissing(f"{escape_path(path)} does not exist.{similar}") from None
        except OSError as problem:
            raise _describe_os_error(path, problem) from None
        except UnicodeEncodeError:
            raise WorkspaceError(f"{escape_path(path)} is not a valid file name.") from None
        finally:
            if location and location.folder_fd is not None:
                os.close(location.folder_fd)

    def _open_location(self, path: str, purpose: Purpose) -> Location:
        names = self._resolve(path)
        if purpose != "read" and ".git" in map(str.lower, names):
            # Git executes what is configured there, even at `git status`.
            raise WorkspaceError(
                "Files in .git cannot be changed with this tool. Use git commands instead."
            )
        relative = "/".join(names) or "."
        if HAS_OPENAT:
            folder_fd = self._open_parent(names[:-1], can_create=purpose == "create")
            return Location(folder_fd, names[-1] if names else ".", relative)
        absolute = os.path.join(self.root, *names)
        if purpose == "create":
            os.makedirs(os.path.dirname(absolute), exist_ok=True)
        return Location(None, absolute, relative)

    def _resolve(self, path: str) -> list[str]:
        """Return the names that lead from the root to a path, with all links followed."""
        if "\0" in path or len(path) > MAX_PATH_LENGTH:
            raise WorkspaceError(f"{escape_path(path)} is not a valid path.")
        resolved = os.path.realpath(os.path.join(self.root, path))
        prefix = os.path.join(self.root, "")
        if not os.path.join(resolved, "").startswith(prefix):
            raise WorkspaceError(
                f"{escape_path(path)} leads out of the workspace folder. Use a path inside it."
            )
        return [name for name in resolved[len(prefix) :].split(os.sep) if name]

    def _open_parent(self, names: list[str], *, can_create: bool) -> int:
        """Open a folder, one name at a time and never through a link."""
        folder_fd = self._open_root()
        for name in names:
            try:
                if can_create:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=folder_fd)
                inner_fd = os.open(name, _OPEN_FOLDER, dir_fd=folder_fd)
            finally:
                os.close(folder_fd)
            folder_fd = inner_fd
        return folder_fd

    def _open_root(self) -> int:
        root_fd = os.open(self.root, _OPEN_FOLDER)
        if _identify(os.fstat(root_fd)) == self.identity:
            return root_fd
        os.close(root_fd)
        raise WorkspaceError("The workspace folder was replaced by another folder.")


def open_folder(path: str | os.PathLike[str]) -> ConfinedFolder:
    root = os.path.realpath(os.path.expanduser(path))
    if not os.path.isdir(root):
        raise UsageError(f"`folder` must be an existing folder, got {os.fspath(path)!r}")
    return ConfinedFolder(root, _identify(os.stat(root)))


def _identify(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


# Reading.


def read_content(folder: ConfinedFolder, path: str, *, to_change: bool = False) -> FileContent:
    """Read a whole file. With `to_change` it must be writable."""
    with folder.locate(path, "change" if to_change else "read") as location:
        fd = _open_regular(location, os.O_RDWR if to_change else os.O_RDONLY)
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            # Files in /proc are longer than their reported size.
            data = file.read(MAX_FILE_SIZE + 1)
    if len(data) > MAX_FILE_SIZE:
        limit = f"{MAX_FILE_SIZE >> 20} MiB"
        raise WorkspaceError(f"{escape_path(location.path)} is larger than {limit}.")
    return FileContent(location.path, data, status)


def _open_regular(location: Location, flags: int) -> int:
    _check_regular(location, location.stat())
    fd = location.open(flags | _OPEN_FILE)
    try:
        _check_regular(location, os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_regular(location: Location, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        problem = _NOT_REGULAR.get(stat.S_IFMT(status.st_mode), _IS_DEVICE)
        raise WorkspaceError(f"{escape_path(location.path)} {problem}.")


def find_entry(folder: ConfinedFolder, path: str) -> FileEntry:
    """Return the entry at a path, named by its path from the root."""
    with folder.locate(path) as location:
        mode = location.stat().st_mode
    if stat.S_ISDIR(mode):
        return FileEntry(location.path, "folder")
    return FileEntry(location.path, "file" if stat.S_ISREG(mode) else "other")


def list_folder(folder: ConfinedFolder, path: str) -> list[FileEntry]:
    """Return the sorted entries of a folder, named by their paths from the root."""
    with folder.locate(path) as location:
        prefix = "" if location.path == "." else f"{location.path}/"
        fd = None if location.folder_fd is None else location.open(_OPEN_FOLDER)
        try:
            with os.scandir(location.name if fd is None else fd) as entries:
                return sorted(FileEntry(prefix + one.name, _get_kind(one)) for one in entries)
        finally:
            if fd is not None:
                os.close(fd)


def _get_kind(entry: os.DirEntry[str]) -> FileKind:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


# Writing.


def create_file(folder: ConfinedFolder, path: str, data: bytes) -> str:
    """Create a file and the folders on the way to it; return its path. An empty file claims the
    name first, so that a file of another program is never replaced."""
    with folder.locate(path, "create") as location:
        fd = location.open(_CREATE_NEW)
        empty = os.fstat(fd)
        os.close(fd)
        try:
            _replace(location, data, empty)
        except BaseException:
            with suppress(OSError, WorkspaceError):
                _check_unchanged(location, empty)
                location.unlink()
            raise
        return location.path


def replace_file(folder: ConfinedFolder, content: FileContent, data: bytes) -> None:
    """Replace a file that was read, unless it was changed since."""
    with folder.locate(content.path, "change") as location:
        _replace(location, data, content.status)


def _replace(location: Location, data: bytes, before: os.stat_result) -> None:
    """Write a new file and rename it over the old one: at every moment there is a complete file of
    that name. If the name has become a link, the link is replaced, not its target."""
    folder_fd, parent = location.folder_fd, os.path.dirname(location.name)
    name = os.path.join(parent, f".toolspeak-{secrets.token_hex(8)}")
    temporary = Location(folder_fd, name, name)
    fd = temporary.open(_CREATE_NEW, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            _copy_mode(fd, before)
            os.fsync(fd)
        _check_unchanged(location, before)
        os.replace(name, location.name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _copy_mode(fd: int, before: os.stat_result) -> None:
    """Copy owner, group and mode. The setuid and setgid bits are dropped, as by any write."""
    if not hasattr(os, "fchown"):
        return
    with suppress(PermissionError):
        os.fchown(fd, before.st_uid, before.st_gid)
    os.fchmod(fd, before.st_mode & 0o777)


def _check_unchanged(location: Location, before: os.stat_result) -> None:
    if _get_version(location.stat()) != _get_version(before):
        problem = "was just changed by another program and was not edited. Read it again"
        raise WorkspaceError(f"{escape_path(location.path)} {problem}.")


def _get_version(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


# Messages.


def _describe_os_error(path: str, problem: OSError) -> WorkspaceError:
    """Describe an error by the path that was given: the system's message shows the whole path."""
    number = problem.errno or 0
    message = _ERRORS.get(number) or f"cannot be used: {os.strerror(number)}"
    return WorkspaceError(f"{escape_path(path)} {message}.")


def escape_path(path: str) -> str:
    """Escape a path for one line of text. A name may contain line breaks or invalid UTF-8, and
    could imitate a message of this program."""
    short = path if len(path) <= _MAX_SHOWN else f"{path[:_MAX_SHOWN]}…"
    return "".join(one if one.isprintable() else _escape(one) for one in short)


def _escape(character: str) -> str:
    code = ord(character)
    is_byte = 0xDC80 <= code <= 0xDCFF
    return f"\\x{code - 0xDC00:02x}" if is_byte else ascii(character)[1:-1]
