"""A folder, and nothing outside of it: where a path leads, one name after the other.

    src/../README.md          inside, and allowed
    /home/me/project/a.py     allowed if that is below the folder
    docs/latest -> v2         a link that stays inside is followed, by walking where it points to
    ../secrets, /etc/passwd   refused, and so is a link that leads there

Each name is opened from the folder before it, and never through a link (`openat` with
`O_NOFOLLOW`). So it makes no difference what somebody puts in place of a name after it was
looked at. Windows has no such calls: there a path is resolved, then checked, then used, and
whoever is quick enough to put a link in between gets out.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

from msgspec import Struct

from ...errors import UsageError
from .problems import WorkspaceError, failed, shown

Purpose = Literal["read", "change", "create"]
HAS_OPENAT = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
FOLDER: int = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | NOFOLLOW
MOST_LINKS = 20
DEEPEST = 100
"""Every folder on the way is held open, and a process may not hold many."""
LONGEST = 4096
_NO_LINK = frozenset({errno.EINVAL, errno.ENOENT})


class Place(Struct, frozen=True):
    """A name that is no link, in a folder that is held open."""

    folder: int | None
    """None where the system cannot open from a folder: `name` is the whole path then."""
    name: str
    path: str
    """Seen from the root, without links; "." is the root."""


class Folder:
    """The folder that paths are confined to."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.root = os.path.realpath(path)
        self._said = os.path.abspath(path)
        if not os.path.isdir(self.root):
            raise UsageError(f"Expected a folder, got {os.fspath(path)!r} - at `$.folder`")
        self._identity = _identity(os.stat(self.root))

    @contextmanager
    def place(self, path: str, purpose: Purpose = "read") -> Generator[Place]:
        """Where a path leads. What fails there is told by that path."""
        way: _Way | None = None
        try:
            if HAS_OPENAT:
                way = _Way(self._opened(), path, purpose)
                yield self._walked(way)
            else:
                yield self._resolved(path, purpose)
        except OSError as problem:
            raise failed(path, problem) from None
        except UnicodeEncodeError:
            raise WorkspaceError(f"{shown(path)} is not a name that a file can have.") from None
        finally:
            if way:
                way.close()

    def _parts(self, path: str, said: str) -> list[str]:
        """The names of a path, seen from the root. `said` is the one that was asked for."""
        if "\0" in path or len(path) > LONGEST:
            raise WorkspaceError(f"{shown(said)} is not a path that a file can have.")
        if os.path.isabs(path) or os.path.splitdrive(path)[0]:
            path = self._inside(path, said)
        parts = path.replace(os.altsep or os.sep, os.sep).split(os.sep)
        return [part for part in parts if part not in ("", ".")]

    def _inside(self, path: str, said: str) -> str:
        """An absolute path seen from the root: models know where they are, and say so."""
        for root in (self.root, self._said):
            start = root.rstrip(os.sep) + os.sep
            if path == root or path.startswith(start):
                return path[len(start) :]
        raise _outside(said)

    def _opened(self) -> int:
        """The root, if it is still the folder that it was."""
        root = os.open(self.root, FOLDER)
        if _identity(os.fstat(root)) == self._identity:
            return root
        os.close(root)
        raise WorkspaceError("The folder has been replaced by another one.")

    def _walked(self, way: _Way) -> Place:
        todo = self._parts(way.said, way.said)[::-1]
        while todo:
            part = todo.pop()
            if part == "..":
                way.up()
                continue
            target = way.link(part)
            if target is not None:
                todo += self._parts(target, way.said)[::-1]
            elif todo:
                way.down(part, may_make=".." not in todo)
            else:
                return Place(way.fd, part, way.path(part))
        return Place(way.fd, ".", way.path())

    def _resolved(self, path: str, purpose: Purpose) -> Place:
        """The way of systems that cannot open from a folder."""
        whole = os.path.realpath(os.path.join(self.root, *self._parts(path, path)))
        if whole != self.root and not whole.startswith(self.root.rstrip(os.sep) + os.sep):
            raise _outside(path)
        below = os.path.relpath(whole, self.root)
        for part in below.split(os.sep):
            _check(part, purpose)
        if purpose == "create":
            os.makedirs(os.path.dirname(whole), exist_ok=True)
        return Place(None, whole, below.replace(os.sep, "/"))


class _Way:
    """The folders from the root to where a walk has come, all held open."""

    def __init__(self, root: int, said: str, purpose: Purpose) -> None:
        self.said = said
        """The path that was asked for."""
        self._purpose: Purpose = purpose
        self._fds = [root]
        self._names: list[str] = []
        self._links = 0

    @property
    def fd(self) -> int:
        return self._fds[-1]

    def path(self, *more: str) -> str:
        return "/".join((*self._names, *more)) or "."

    def link(self, name: str) -> str | None:
        """Where a link points to; None if there is no link of that name. What it says is seen from
        here, or from the root if it is absolute."""
        _check(name, self._purpose)
        try:
            target = os.readlink(name, dir_fd=self.fd)
        except OSError as problem:
            if problem.errno in _NO_LINK:
                return None
            raise
        self._links += 1
        if self._links > MOST_LINKS:
            raise WorkspaceError(f"{shown(self.said)} leads through too many links.")
        if os.path.isabs(target):
            self._restart()
        return target

    def down(self, name: str, *, may_make: bool) -> None:
        """Into a folder. It is made where that is wanted and nothing behind it leads back up, so
        that none is made for a path that turns out to lead outside."""
        if len(self._fds) > DEEPEST:
            raise WorkspaceError(f"{shown(self.said)} is too deep.")
        self._fds.append(self._open(name, may_make=may_make and self._purpose == "create"))
        self._names.append(name)

    def _open(self, name: str, *, may_make: bool) -> int:
        try:
            return os.open(name, FOLDER, dir_fd=self.fd)
        except FileNotFoundError:
            if not may_make:
                raise
            os.mkdir(name, dir_fd=self.fd)
            return os.open(name, FOLDER, dir_fd=self.fd)

    def up(self) -> None:
        """`..` is the folder that was walked through before, wherever it may be by now."""
        if not self._names:
            raise _outside(self.said)
        os.close(self._fds.pop())
        self._names.pop()

    def _restart(self) -> None:
        while self._names:
            os.close(self._fds.pop())
            self._names.pop()

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)


def _check(name: str, purpose: Purpose) -> None:
    """Git runs what its folder says, at the next `git status` even: nothing is changed there."""
    if purpose != "read" and name.lower() == ".git":
        raise WorkspaceError("What is in .git is not changed by this tool.")


def _outside(path: str) -> WorkspaceError:
    return WorkspaceError(
        f"{shown(path)} leads out of the folder that may be used: give a path inside of it."
    )


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
