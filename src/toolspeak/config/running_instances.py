"""Which gateways of this user run, and what opens their inspectors.

A gateway leaves a note in a folder that only its user can read, and takes it away when it ends. So
`toolspeak explain` and `toolspeak chat` on the same machine need not be told any address.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Generator, Iterator
from http.client import HTTPException
from pathlib import Path
from urllib.parse import SplitResult, urlsplit
from urllib.request import ProxyHandler, build_opener

import msgspec
from msgspec import Struct

from .._util import state_directory
from ..errors import UsageError

log = logging.getLogger("toolspeak.gateway")
_PATIENCE = 0.5
_PLAIN = re.compile(r"[!-~]+")


class RunningInstance(Struct, frozen=True):
    """A gateway that runs."""

    url: str
    process: int
    token: str = ""

    def __repr__(self) -> str:
        return f"Whereabouts({self.url!r}, {self.process})"


@contextlib.contextmanager
def register_instance(here: RunningInstance) -> Generator[None, None, None]:
    """Leave a note for as long as the gateway runs."""
    list_instances()
    path: Path | None = None
    try:
        path = _folder() / f"{here.process}.json"
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(file, "wb") as out:
            out.write(msgspec.json.encode(here))
    except (OSError, RuntimeError) as problem:
        log.info("nobody is told where this gateway is: %s", problem)
    try:
        yield
    finally:
        if path:
            with contextlib.suppress(OSError):
                path.unlink()


def list_instances() -> list[RunningInstance]:
    """The gateways of this user, the one that started last first. The notes of those that were
    killed go."""
    found: list[tuple[float, RunningInstance]] = []
    for path in _instance_files():
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            when = path.stat().st_mtime
            here = msgspec.json.decode(path.read_bytes(), type=RunningInstance)
            if _is_alive(here.process):
                found.append((when, here))
            else:
                path.unlink()
    return [here for _, here in sorted(found, key=lambda one: -one[0])]


def list_responding() -> Iterator[RunningInstance]:
    """Those of them that are there indeed: the number of a process that was killed may be that of
    another by now."""
    return (here for here in list_instances() if _is_responding(here.url))


def parse_gateway_url(url: str) -> SplitResult:
    """The parts of an address at which a gateway may be."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        # Asked for its port, it complains of one that is no number.
        has_place = bool(parts.hostname) and parts.port != 0
        if parts.scheme in ("http", "https") and has_place and _PLAIN.fullmatch(url):
            return parts
    raise UsageError(f"Expected an address such as http://127.0.0.1:7878, got {url!r}")


def _is_responding(url: str) -> bool:
    opener = build_opener(ProxyHandler({}))
    try:
        parse_gateway_url(url)
        with opener.open(f"{url}/health", timeout=_PATIENCE) as answer:
            return json.load(answer) == {"status": "ok"}
    except (OSError, HTTPException, ValueError, UsageError) as problem:
        # One that has much to do is there all the same.
        return isinstance(getattr(problem, "reason", problem), TimeoutError)


def _instance_files() -> Iterator[Path]:
    # Without a home there is no folder for notes.
    with contextlib.suppress(OSError, RuntimeError):
        yield from _folder().glob("*.json")


def _folder() -> Path:
    return state_directory() / "gateways"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
