"""What is wrong with a configuration, where, and what to do about it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from ..errors import UsageError

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Problem(Struct, frozen=True):
    """One thing that is wrong, and its path in the configuration."""

    message: str
    path: str = "$"


class ConfigError(UsageError):
    """A configuration cannot be used. Every problem is one line; no line holds a secret."""

    def __init__(self, problems: Sequence[str], warnings: Sequence[str] = ()) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)


def at(path: str, key: str | int) -> str:
    """The path of what stands under a key: `$.models["claude-*"]`, `$.server.keys[0]`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if _BARE.fullmatch(key) else f'{path}["{key}"]'


def within(path: str, outer: str) -> bool:
    """Whether a path is `outer`, or leads further into it."""
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))


def instead(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """What to write in place of an unknown name: the nearest ones, or else all of them."""
    names = list(known)
    if near := difflib.get_close_matches(name, names, 3):
        return f"; did you mean {' or '.join(near)}?"
    if otherwise:
        return f"; {otherwise}"
    return f"; known are {', '.join(names)}" if names else "; there is none yet"
