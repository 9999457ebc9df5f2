"""What a tool of the workspace cannot do, in words for the model that has called it."""

from __future__ import annotations

import errno
import os

from ...errors import UsageError

_SAID = {
    errno.ENOENT: "does not exist",
    errno.ENOTDIR: "is not a folder, or a part of it is not",
    errno.ELOOP: "has become a link in this moment",
    errno.EEXIST: "exists already",
    errno.EISDIR: "is a folder",
    errno.EACCES: "may not be used: permission denied",
    errno.EPERM: "may not be used: permission denied",
}
_LONGEST_SHOWN = 200


class WorkspaceError(UsageError):
    """A file cannot be read or changed, or a command cannot be run. Nothing was done."""


class Missing(WorkspaceError):
    """There is nothing of that name."""


def failed(path: str, problem: OSError) -> WorkspaceError:
    """What the system says of a path; not in its own words, since they name the whole path."""
    number = problem.errno or 0
    said = _SAID.get(number) or f"cannot be used: {os.strerror(number)}"
    return (Missing if number == errno.ENOENT else WorkspaceError)(f"{shown(path)} {said}.")


def shown(path: str) -> str:
    """A path as it may stand in a line of text. A name may hold line breaks, or bytes that are no
    text at all: somebody could make one that reads like a message of ours."""
    cut = path if len(path) <= _LONGEST_SHOWN else f"{path[:_LONGEST_SHOWN]}…"
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in cut)


def _escaped(letter: str) -> str:
    code = ord(letter)
    is_byte = 0xDC80 <= code <= 0xDCFF
    return f"\\x{code - 0xDC00:02x}" if is_byte else ascii(letter)[1:-1]
