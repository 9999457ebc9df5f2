"""Which gateways of this user run, and what opens their inspectors.

A gateway leaves a note in a folder that only its user can read, and takes it away when it ends. So
`toolspeak explain` and `toolspeak chat` on the same machine need not be told any address.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from ..folders import state_folder

log = logging.getLogger("toolspeak.gateway")


class Whereabouts(Struct, frozen=True):
    """A gateway that runs."""

    url: str
    process: int
    token: str = ""

    def __repr__(self) -> str:
        return f"Whereabouts({self.url!r}, {self.process})"


@contextlib.contextmanager
def noted(here: Whereabouts) -> Generator[None, None, None]:
    """Leave a note for as long as the gateway runs."""
    path = _folder() / f"{here.process}.json"
    running()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(file, "wb") as out:
            out.write(msgspec.json.encode(here))
    except OSError as problem:
        log.info("nobody is told where this gateway is: %s", problem)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def running() -> list[Whereabouts]:
    """The gateways of this user, the one that started last first. The notes of those that were
    killed go."""
    found: list[tuple[float, Whereabouts]] = []
    for path in _notes():
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            when = path.stat().st_mtime
            here = msgspec.json.decode(path.read_bytes(), type=Whereabouts)
            if _lives(here.process):
                found.append((when, here))
            else:
                path.unlink()
    return [here for _, here in sorted(found, key=lambda one: -one[0])]


def _notes() -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from _folder().glob("*.json")


def _folder() -> Path:
    return state_folder() / "gateways"


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
