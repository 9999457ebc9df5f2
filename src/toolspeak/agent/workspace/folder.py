"""Reads, lists and writes the files of one folder, and nothing outside it.

    src/../README.md          allowed, it stays inside
    /home/me/project/a.py     allowed if that is below the folder
    docs/latest -> v2         a link that stays inside is followed, by walking its target
    ../secrets, /etc/passwd   refused, and so is a link that leads there

A path is walked one name at a time. Each name is opened relative to the folder before it, and never
through a link (`openat` with `O_NOFOLLOW`): nothing that replaces a name after its check can lead
outside. Windows has no such calls: there a path is resolved, then checked, then used, and a link
swapped in between leads outside.

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
MAX_LINKS = 20
MAX_DEPTH = 100
"""Each folder of a path is held open, and file descriptors are limited."""
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
_NOT_A_LINK = frozenset({errno.EINVAL, errno.ENOENT})
_ERRORS = {
    errno.ENOENT: "does not exist",
    errno.ENOTDIR: "is not a folder, or one of its parents is not",
    errno.ELOOP: "was just replaced by a link",
    errno.EEXIST: "exists already",
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
    """A directory entry, by its name or its path."""

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


class ConfinedFolder(Struct, frozen=True):
    """The folder that paths are confined to."""

    root: str
    """Without links."""
    named_root: str
    """As the user named it."""
    identity: tuple[int, int]
    """Device and inode: another folder of the same name is not used."""

    @contextmanager
    def locate(self, path: str, purpose: Purpose = "read") -> Generator[Location]:
        """Walk to a path and hold its folder open. An `OSError` raised inside becomes a
        `WorkspaceError` about the path."""
        walk: _PathWalk | None = None
        try:
            if HAS_OPENAT:
                walk = _PathWalk(self, self._open_root(), path, purpose)
                yield walk.find()
            else:
                yield self._resolve(path, purpose)
        except OSError as problem:
            raise _describe_os_error(path, problem) from None
        except UnicodeEncodeError:
            raise WorkspaceError(f"{escape_path(path)} is not a valid file name.") from None
        finally:
            if walk:
                walk.close()

    def split(self, path: str, requested: str) -> list[str]:
        """Return the names of a path relative to the root; `requested` is for error messages."""
        if "\0" in path or len(path) > MAX_PATH_LENGTH:
            raise WorkspaceError(f"{escape_path(requested)} is not a valid path.")
        if os.path.isabs(path) or os.path.splitdrive(path)[0]:
            path = self._strip_root(path, requested)
        names = path.replace(os.altsep or os.sep, os.sep).split(os.sep)
        return [name for name in names if name not in ("", ".")]

    def _strip_root(self, path: str, requested: str) -> str:
        """Make an absolute path relative: models know the folder's path, and use it."""
        for root in (self.root, self.named_root):
            prefix = root.rstrip(os.sep) + os.sep
            if path == root or path.startswith(prefix):
                return path[len(prefix) :]
        raise _outside_error(requested)

    def _open_root(self) -> int:
        root = os.open(self.root, _OPEN_FOLDER)
        if _identify(os.fstat(root)) == self.identity:
            return root
        os.close(root)
        raise WorkspaceError("The workspace folder was replaced by another folder.")

    def _resolve(self, path: str, purpose: Purpose) -> Location:
        """Locate a path on systems without `openat`."""
        resolved = os.path.realpath(os.path.join(self.root, *self.split(path, path)))
        prefix = self.root.rstrip(os.sep) + os.sep
        if resolved != self.root and not resolved.startswith(prefix):
            raise _outside_error(path)
        relative = os.path.relpath(resolved, self.root)
        for name in relative.split(os.sep):
            _check_name(name, purpose)
        if purpose == "create":
            os.makedirs(os.path.dirname(resolved), exist_ok=True)
        return Location(None, resolved, relative.replace(os.sep, "/"))


def open_folder(path: str | os.PathLike[str]) -> ConfinedFolder:
    path = os.path.expanduser(path)
    root = os.path.realpath(path)
    if not os.path.isdir(root):
        raise UsageError(f"Expected a folder, got {os.fspath(path)!r} - at `$.folder`")
    return ConfinedFolder(root, os.path.abspath(path), _identify(os.stat(root)))


class _PathWalk:
    """The folders from the root to the current one, all held open."""

    def __init__(self, folder: ConfinedFolder, root: int, requested: str, purpose: Purpose) -> None:
        self._folder = folder
        self._requested = requested
        """The path as the model gave it."""
        self._purpose: Purpose = purpose
        self._fds = [root]
        self._names: list[str] = []
        self._links = 0

    def find(self) -> Location:
        """Walk the whole path. The targets of links are walked in place of their names."""
        remaining = self._folder.split(self._requested, self._requested)[::-1]
        while remaining:
            name = remaining.pop()
            if name == "..":
                self._go_up()
            elif (target := self._read_link(name)) is not None:
                remaining += self._folder.split(target, self._requested)[::-1]
            elif remaining:
                self._go_down(name, can_create=".." not in remaining)
            else:
                return Location(self._fds[-1], name, "/".join((*self._names, name)))
        return Location(self._fds[-1], ".", "/".join(self._names) or ".")

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)

    def _read_link(self, name: str) -> str | None:
        """Return the target of a link, or None if `name` is not a link. A relative target counts
        from the current folder, an absolute one from the root."""
        _check_name(name, self._purpose)
        try:
            target = os.readlink(name, dir_fd=self._fds[-1])
        except OSError as problem:
            if problem.errno in _NOT_A_LINK:
                return None
            raise
        self._links += 1
        if self._links > MAX_LINKS:
            raise WorkspaceError(f"{escape_path(self._requested)} leads through too many links.")
        if os.path.isabs(target):
            while self._names:
                self._go_up()
        return target

    def _go_down(self, name: str, *, can_create: bool) -> None:
        """Enter a folder. It is created only if no later name leads back up, so that none is
        created for a path that turns out to lead outside."""
        if len(self._fds) > MAX_DEPTH:
            raise WorkspaceError(f"{escape_path(self._requested)} is too deep.")
        try:
            fd = os.open(name, _OPEN_FOLDER, dir_fd=self._fds[-1])
        except FileNotFoundError:
            if not can_create or self._purpose != "create":
                raise
            os.mkdir(name, dir_fd=self._fds[-1])
            fd = os.open(name, _OPEN_FOLDER, dir_fd=self._fds[-1])
        self._fds.append(fd)
        self._names.append(name)

    def _go_up(self) -> None:
        """Return to the previous folder of the walk, even if it was moved meanwhile."""
        if not self._names:
            raise _outside_error(self._requested)
        os.close(self._fds.pop())
        self._names.pop()


def _check_name(name: str, purpose: Purpose) -> None:
    """Refuse changes in `.git`: git executes what is configured there, even at `git status`."""
    if purpose != "read" and name.lower() == ".git":
        raise WorkspaceError("This tool does not change anything in .git.")


def _identify(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


# Reading.


def read_content(folder: ConfinedFolder, path: str, *, to_change: bool = False) -> FileContent:
    """Read a whole file. With `to_change` it must be writable."""
    with _locate_existing(folder, path, "change" if to_change else "read") as location:
        fd = _open_regular(location, os.O_RDWR if to_change else os.O_RDONLY)
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            data = file.read(min(status.st_size, MAX_FILE_SIZE) + 1)
            if status.st_size < len(data) <= MAX_FILE_SIZE:
                # Files in /proc have more than they report.
                data += file.read(MAX_FILE_SIZE + 1 - len(data))
    if len(data) > MAX_FILE_SIZE:
        limit = f"{MAX_FILE_SIZE >> 20} MB"
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
    if stat.S_ISREG(status.st_mode):
        return
    is_folder = stat.S_ISDIR(status.st_mode)
    kind = "a folder" if is_folder else "a pipe, a socket or a device, not a file"
    raise WorkspaceError(f"{escape_path(location.path)} is {kind}.")


def find_entry(folder: ConfinedFolder, path: str) -> FileEntry:
    """Return the entry at a path, named by its path from the root."""
    with _locate_existing(folder, path) as location:
        mode = location.stat().st_mode
    if stat.S_ISDIR(mode):
        return FileEntry(location.path, "folder")
    return FileEntry(location.path, "file" if stat.S_ISREG(mode) else "other")


def list_folder(folder: ConfinedFolder, path: str) -> list[FileEntry]:
    """Return the sorted entries of a folder."""
    with _locate_existing(folder, path) as location:
        return _list_entries(location)


def _list_entries(location: Location) -> list[FileEntry]:
    fd = None if location.folder_fd is None else location.open(_OPEN_FOLDER)
    try:
        with os.scandir(location.name if fd is None else fd) as entries:
            return sorted(FileEntry(one.name, _get_kind(one)) for one in entries)
    finally:
        if fd is not None:
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
    return f" Similar names there: {', '.join(map(escape_path, similar))}." if similar else ""


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


def _outside_error(path: str) -> WorkspaceError:
    return WorkspaceError(
        f"{escape_path(path)} leads out of the workspace folder. Use a path inside it."
    )


def _describe_os_error(path: str, problem: OSError) -> WorkspaceError:
    """Describe an error by the path that was given: the system's message shows the whole path."""
    number = problem.errno or 0
    message = _ERRORS.get(number) or f"cannot be used: {os.strerror(number)}"
    kind = FileMissing if number == errno.ENOENT else WorkspaceError
    return kind(f"{escape_path(path)} {message}.")


def escape_path(path: str) -> str:
    """Escape a path for one line of text. A name may contain line breaks or invalid UTF-8, and
    could imitate a message of this program."""
    short = path if len(path) <= _MAX_SHOWN else f"{path[:_MAX_SHOWN]}…"
    return "".join(one if one.isprintable() else _escape(one) for one in short)


def _escape(character: str) -> str:
    code = ord(character)
    is_byte = 0xDC80 <= code <= 0xDCFF
    return f"\\x{code - 0xDC00:02x}" if is_byte else ascii(character)[1:-1]
