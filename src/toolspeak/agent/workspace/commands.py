"""Runs a command of the shell, and everything that it starts ends with it.

It runs in a session of its own, so that it and its children can be killed together, and so that
nothing in it can ask at the terminal. Programs that leave that session are found by a mark in
their environment, where the system lets us look (Linux).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic

from msgspec import Struct

from .environment import without_secrets
from .problems import WorkspaceError

HEAD, TAIL = 8_000, 16_000
"""Bytes of output that are kept: the end is worth more, errors stand there."""
_MARK = "TOOLSPEAK_COMMAND"
"""How the names of marks begin. Each is a variable of its own: a command may run another agent."""
_ROUNDS = 5
_AT_ONCE = 1 << 16
_PULSE = 0.02
_LAST_WORDS = 1.0
"""Seconds for output that is still on its way when all is over."""


class Ended(Struct, frozen=True):
    """What has come of a command."""

    output: str
    code: int | None
    """None if it was killed, since its time was over."""


async def run(command: str, folder: str, seconds: float, variables: Mapping[str, str]) -> Ended:
    """Run a command in a folder. If this is given up, the command ends too."""
    mark = f"{_MARK}_{secrets.token_hex(16)}"
    running = _Running(command, folder, {**without_secrets(variables), mark: "1"})
    try:
        code = await running.code_within(seconds)
    finally:
        _kill(running.pid, mark)
        await asyncio.to_thread(running.close)
    return Ended(running.output.text(), code)


class _Running:
    """A command while it runs. It is not started by asyncio: whoever gives up while that starts a
    process has to wait for all that this process has started."""

    def __init__(self, command: str, folder: str, environment: dict[str, str]) -> None:
        self.output = Output()
        self._process = _started(command, folder, environment)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def code_within(self, seconds: float) -> int | None:
        """The exit code; None if it has not ended in time. No thread waits for it: there are only
        a few for everybody."""
        deadline = monotonic() + seconds
        while (code := self._process.poll()) is None and monotonic() < deadline:
            await asyncio.sleep(_PULSE)
        return code

    def _read(self) -> None:
        with self._process.stdout as pipe:  # pyright: ignore[reportOptionalContextManager]
            while data := os.read(pipe.fileno(), _AT_ONCE):
                self.output.add(data)

    def close(self) -> None:
        """Wait for what it says last. A program that has got away may hold its output open."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_WORDS)
        self._reading.join(_LAST_WORDS)


def _started(command: str, folder: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - to run what it is given is what a shell is for
            _shell(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    except OSError as problem:
        raise WorkspaceError(f"The command cannot be started: {problem.strerror}.") from None
    except ValueError:
        raise WorkspaceError("The command has characters that no command can have.") from None


def _shell(command: str) -> list[str]:
    """Models write for bash, whatever there is."""
    if sys.platform == "win32":
        return [os.environ.get("COMSPEC", "cmd.exe"), "/d", "/s", "/c", command]
    return [shutil.which("bash") or "/bin/sh", "-c", command]


class Output:
    """The beginning and the end of what a command says, however much that is."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def add(self, data: bytes) -> None:
        room = HEAD - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if (extra := len(self._tail) - TAIL) > 0:
            self._left_out += extra
            del self._tail[:extra]

    def text(self) -> str:
        if not self._left_out:
            return (self._head + self._tail).decode("utf-8", "replace")
        head, tail = (part.decode("utf-8", "replace") for part in (self._head, self._tail))
        return f"{head}\n[… {self._left_out} bytes are left out …]\n{tail}"


def _kill(pid: int, mark: str) -> None:
    """End a command and all that it has started."""
    if sys.platform == "win32":
        kill = ["taskkill", "/F", "/T", "/PID", str(pid)]
        subprocess.run(kill, capture_output=True)  # noqa: S603 - a number is all that is filled in
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for _ in range(_ROUNDS):
        # Whoever is being started in this moment is found in the next round.
        found = list(_marked(f"{mark}=1".encode()))
        if not found:
            return
        for one in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGKILL)


def _marked(mark: bytes) -> Iterator[int]:
    """Processes that have it in their environment: those that have left the session, too."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (place / "environ").read_bytes().split(b"\0"):
                yield int(place.name)
