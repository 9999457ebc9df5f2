"""Confines paths to a folder, by walking them one name at a time.

    src/../README.md          allowed, it stays inside
    /home/me/project/a.py     allowed if that is below the folder
    docs/latest -> v2         a link that stays inside is followed, by walking its target
    ../secrets, /etc/passwd   refused, and so is a link that leads there

Each name is opened relative to the folder before it, and never through a link (`openat` with
`O_NOFOLLOW`). So it does not matter what somebody puts in place of a name after it was checked.
Windows has no such calls: there a path is resolved, then checked, then used, and a link swapped in
between leads outside.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

from msgspec import Struct

from ...errors import UsageError

Purpose = Literal["read", "change", "create"]
HAS_OPENAT = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
OPEN_FOLDER: int = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | NOFOLLOW
MAX_LINKS = 20
MAX_DEPTH = 100
"""Each folder of a path is held open, and file descriptors are limited."""
MAX_PATH_LENGTH = 4096
_MAX_SHOWN = 200
_NOT_A_LINK = frozenset({errno.EINVAL, errno.ENOENT})
_ERRORS = {
    errno.ENOENT: "does not exist",
    errno.ENOTDIR: "is not a folder, or a part of it is not",
    errno.ELOOP: "was just replaced by a link",
    errno.EEXIST: "exists already",
    errno.EISDIR: "is a folder",
    errno.EACCES: "cannot be used: permission denied",
    errno.EPERM: "cannot be used: permission denied",
}


class WorkspaceError(UsageError):
    """A workspace tool could not do what was asked; nothing was changed. The message is for the
    model."""


class FileMissing(WorkspaceError):
    """The path does not exist."""


class Location(Struct, frozen=True):
    """A name that is not a link, in a folder that is held open."""

    folder_fd: int | None
    """None where the system has no `openat`: `name` is an absolute path then."""
    name: str
    path: str
    """Relative to the root and without links; "." is the root."""


class ConfinedFolder:
    """The folder that paths are confined to."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.root = os.path.realpath(path)
        self._named_root = os.path.abspath(path)
        if not os.path.isdir(self.root):
            raise UsageError(f"Expected a folder, got {os.fspath(path)!r} - at `$.folder`")
        self._identity = _identify(os.stat(self.root))

    @contextmanager
    def locate(self, path: str, purpose: Purpose = "read") -> Generator[Location]:
        """Walk to a path and hold its folder open. An OSError raised inside becomes a
        `WorkspaceError` about the path."""
        walk: _PathWalk | None = None
        try:
            if HAS_OPENAT:
                walk = _PathWalk(self._open_root(), path, purpose)
                yield self._walk(walk)
            else:
                yield self._resolve(path, purpose)
        except OSError as problem:
            raise _describe_os_error(path, problem) from None
        except UnicodeEncodeError:
            raise WorkspaceError(f"{show_path(path)} is not a valid file name.") from None
        finally:
            if walk:
                walk.close()

    def _walk(self, walk: _PathWalk) -> Location:
        remaining = self._split(walk.requested, walk.requested)[::-1]
        while remaining:
            name = remaining.pop()
            if name == "..":
                walk.go_up()
                continue
            target = walk.read_link(name)
            if target is not None:
                remaining += self._split(target, walk.requested)[::-1]
            elif remaining:
                walk.go_down(name, can_create=".." not in remaining)
            else:
                return Location(walk.fd, name, walk.join_path(name))
        return Location(walk.fd, ".", walk.join_path())

    def _split(self, path: str, requested: str) -> list[str]:
        """Return the names of a path relative to the root; `requested` is for error messages."""
        if "\0" in path or len(path) > MAX_PATH_LENGTH:
            raise WorkspaceError(f"{show_path(requested)} is not a valid path.")
        if os.path.isabs(path) or os.path.splitdrive(path)[0]:
            path = self._strip_root(path, requested)
        names = path.replace(os.altsep or os.sep, os.sep).split(os.sep)
        return [name for name in names if name not in ("", ".")]

    def _strip_root(self, path: str, requested: str) -> str:
        """Make an absolute path relative: models know the folder's path, and use it."""
        for root in (self.root, self._named_root):
            prefix = root.rstrip(os.sep) + os.sep
            if path == root or path.startswith(prefix):
                return path[len(prefix) :]
        raise _outside(requested)

    def _open_root(self) -> int:
        root = os.open(self.root, OPEN_FOLDER)
        if _identify(os.fstat(root)) == self._identity:
            return root
        os.close(root)
        raise WorkspaceError("The workspace folder was replaced by another folder.")

    def _resolve(self, path: str, purpose: Purpose) -> Location:
        """Locate a path on systems without `openat`."""
        resolved = os.path.realpath(os.path.join(self.root, *self._split(path, path)))
        prefix = self.root.rstrip(os.sep) + os.sep
        if resolved != self.root and not resolved.startswith(prefix):
            raise _outside(path)
        relative = os.path.relpath(resolved, self.root)
        for name in relative.split(os.sep):
            _check_name(name, purpose)
        if purpose == "create":
            os.makedirs(os.path.dirname(resolved), exist_ok=True)
        return Location(None, resolved, relative.replace(os.sep, "/"))


class _PathWalk:
    """The folders from the root to the current one, all held open."""

    def __init__(self, root: int, requested: str, purpose: Purpose) -> None:
        self.requested = requested
        """The path as the model gave it."""
        self._purpose: Purpose = purpose
        self._fds = [root]
        self._names: list[str] = []
        self._links = 0

    @property
    def fd(self) -> int:
        return self._fds[-1]

    def join_path(self, *names: str) -> str:
        return "/".join((*self._names, *names)) or "."

    def read_link(self, name: str) -> str | None:
        """Return the target of a link, or None if `name` is not a link. A relative target counts
        from the current folder, an absolute one from the root."""
        _check_name(name, self._purpose)
        try:
            target = os.readlink(name, dir_fd=self.fd)
        except OSError as problem:
            if problem.errno in _NOT_A_LINK:
                return None
            raise
        self._links += 1
        if self._links > MAX_LINKS:
            raise WorkspaceError(f"{show_path(self.requested)} leads through too many links.")
        if os.path.isabs(target):
            while self._names:
                self._leave_folder()
        return target

    def go_down(self, name: str, *, can_create: bool) -> None:
        """Enter a folder. It is created only if no later name leads back up, so that none is
        created for a path that turns out to lead outside."""
        if len(self._fds) > MAX_DEPTH:
            raise WorkspaceError(f"{show_path(self.requested)} is too deep.")
        self._fds.append(self._open(name, can_create=can_create and self._purpose == "create"))
        self._names.append(name)

    def go_up(self) -> None:
        """Return to the folder before this one in the walk, wherever it may be by now."""
        if not self._names:
            raise _outside(self.requested)
        self._leave_folder()

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)

    def _open(self, name: str, *, can_create: bool) -> int:
        try:
            return os.open(name, OPEN_FOLDER, dir_fd=self.fd)
        except FileNotFoundError:
            if not can_create:
                raise
            os.mkdir(name, dir_fd=self.fd)
            return os.open(name, OPEN_FOLDER, dir_fd=self.fd)

    def _leave_folder(self) -> None:
        os.close(self._fds.pop())
        self._names.pop()


def _check_name(name: str, purpose: Purpose) -> None:
    """Refuse changes in `.git`: git executes what is configured there, even at `git status`."""
    if purpose != "read" and name.lower() == ".git":
        raise WorkspaceError("This tool does not change anything in .git.")


def _outside(path: str) -> WorkspaceError:
    return WorkspaceError(
        f"{show_path(path)} leads out of the workspace folder. Use a path inside it."
    )


def _identify(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _describe_os_error(path: str, problem: OSError) -> WorkspaceError:
    """Describe an error by the path that was given: the system's message shows the whole path."""
    number = problem.errno or 0
    message = _ERRORS.get(number) or f"cannot be used: {os.strerror(number)}"
    kind = FileMissing if number == errno.ENOENT else WorkspaceError
    return kind(f"{show_path(path)} {message}.")


def show_path(path: str) -> str:
    """Escape a path for one line of text. A name may contain line breaks or invalid UTF-8, and
    could imitate a message of ours."""
    shown = path if len(path) <= _MAX_SHOWN else f"{path[:_MAX_SHOWN]}…"
    return "".join(one if one.isprintable() else _escape(one) for one in shown)


def _escape(character: str) -> str:
    code = ord(character)
    is_byte = 0xDC80 <= code <= 0xDCFF
    return f"\\x{code - 0xDC00:02x}" if is_byte else ascii(character)[1:-1]
