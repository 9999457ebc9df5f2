"""Finds the gateways that this user runs, and the tokens for their inspectors.

A gateway writes a file to a directory that only its user can read, and removes it when it stops.
`toolspeak explain` and `toolspeak chat` on the same machine therefore need no URL.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Generator, Iterator
from http.client import HTTPException
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import msgspec
from msgspec import Struct

from .._util import state_directory
from ..errors import UsageError
from .addresses import parse_gateway_url

log = logging.getLogger("toolspeak.gateway")
_HEALTH_TIMEOUT = 0.5


class RunningInstance(Struct, frozen=True):
    """A gateway that runs."""

    url: str
    process: int
    token: str = ""

    def __repr__(self) -> str:
        return f"RunningInstance({self.url!r}, {self.process})"


@contextlib.contextmanager
def register_instance(instance: RunningInstance) -> Generator[None, None, None]:
    """List a gateway for as long as it runs."""
    list_instances()
    path: Path | None = None
    try:
        path = _folder() / f"{instance.process}.json"
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(file, "wb") as out:
            out.write(msgspec.json.encode(instance))
    except (OSError, RuntimeError) as problem:
        log.info("this gateway cannot be registered, so other commands need --url: %s", problem)
    try:
        yield
    finally:
        if path:
            with contextlib.suppress(OSError):
                path.unlink()


def list_instances() -> list[RunningInstance]:
    """Return this user's gateways, the latest first, and remove the files of killed ones."""
    found: list[tuple[float, RunningInstance]] = []
    paths: list[Path] = []
    # There is no folder without a home directory.
    with contextlib.suppress(OSError, RuntimeError):
        paths += _folder().glob("*.json")
    for path in paths:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            started = path.stat().st_mtime
            instance = msgspec.json.decode(path.read_bytes(), type=RunningInstance)
            if _is_alive(instance.process):
                found.append((started, instance))
            else:
                path.unlink()
    return [instance for _, instance in sorted(found, key=lambda one: -one[0])]


def list_responding() -> Iterator[RunningInstance]:
    """Yield the gateways that respond: another process may have a killed gateway's id."""
    return (instance for instance in list_instances() if _is_responding(instance.url))


def _is_responding(url: str) -> bool:
    opener = build_opener(ProxyHandler({}))
    try:
        parse_gateway_url(url)
        with opener.open(f"{url}/health", timeout=_HEALTH_TIMEOUT) as response:
            return json.load(response) == {"status": "ok"}
    except (OSError, HTTPException, ValueError, UsageError) as problem:
        # A gateway under load may time out.
        return isinstance(getattr(problem, "reason", problem), TimeoutError)


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
