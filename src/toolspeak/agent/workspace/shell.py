"""Runs a shell command, and kills everything that it started.

Each command runs in a new session, so that it can be killed with its children, and so that nothing
in it can ask at the terminal. Programs that leave the session are found by a mark in their
environment, on systems that show it (Linux).
"""

from __future__ import annotations

import asyncio
import os
import re
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

from ...security.scrubbing import scrub
from .folder import WorkspaceError

HEAD_SIZE, TAIL_SIZE = 8_000, 16_000
"""Bytes of output to keep. The end matters more: errors are there."""
_MARK = "TOOLSPEAK_COMMAND"
"""Prefix of marks. Each command gets a variable of its own: a command may run another agent."""
_KILL_ROUNDS = 5
_READ_SIZE = 1 << 16
_POLL_SECONDS = 0.02
_DRAIN_SECONDS = 1.0
"""Time to wait for the rest of the output after the command has ended."""
_SECRET_NAME = re.compile(
    r"key|token(?!iz)|secret|passw|passphrase|credential|cookie|dsn"
    r"|auth(?!or(?:_|$))|(?:^|_)(?:pass|pat|creds?)(?:_|$)|.pwd$",
    re.IGNORECASE,
)
"""Names of secrets, and of ways to get them (`SSH_AUTH_SOCK`). It matches too many names
rather than too few, but neither `GIT_AUTHOR_NAME` nor `TOKENIZERS_PARALLELISM`."""
_NOT_SECRET = frozenset({"OLDPWD"})


async def run_command(command: str, folder: str, timeout: float) -> str:
    """Run a command in a folder and return its output and how it ended. It is also killed if this
    is cancelled.

    asyncio's subprocesses are not used: cancelling while one starts would wait for everything that
    it has started."""
    mark = f"{_MARK}_{secrets.token_hex(16)}"
    process = _start_process(command, folder, {**remove_secrets(os.environ), mark: "1"})
    output = OutputBuffer()
    reader = threading.Thread(target=_read_output, args=(process, output), daemon=True)
    reader.start()
    try:
        exit_code = await _wait_for_end(process, timeout)
    finally:
        _kill(process.pid, mark)
        await asyncio.to_thread(_wait_for_output, process, reader)
    text = output.text()
    line_break = "\n" if text and not text.endswith("\n") else ""
    return f"{text}{line_break}[{_describe_end(exit_code, timeout)}]"


def _describe_end(exit_code: int | None, timeout: float) -> str:
    if exit_code is None:
        return f"Killed after {timeout:g} s with everything it started."
    if exit_code < 0:
        return f"Ended by signal {-exit_code}."
    return f"Exit code {exit_code}."


async def _wait_for_end(process: subprocess.Popen[bytes], timeout: float) -> int | None:
    """Return the exit code; None after the timeout. Polling needs no thread of the shared pool."""
    deadline = monotonic() + timeout
    while (code := process.poll()) is None and monotonic() < deadline:
        await asyncio.sleep(_POLL_SECONDS)
    return code


def _read_output(process: subprocess.Popen[bytes], output: OutputBuffer) -> None:
    with process.stdout as pipe:  # pyright: ignore[reportOptionalContextManager]
        while data := os.read(pipe.fileno(), _READ_SIZE):
            output.add(data)


def _wait_for_output(process: subprocess.Popen[bytes], reader: threading.Thread) -> None:
    """Wait for the last output, but not long: an escaped program may hold the pipe open."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(_DRAIN_SECONDS)
    reader.join(_DRAIN_SECONDS)


def _start_process(
    command: str, folder: str, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - running what it is given is what a shell does
            _shell_arguments(command),
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
        raise WorkspaceError("The command contains invalid characters.") from None


def _shell_arguments(command: str) -> list[str]:
    """Prefer bash: models write for it."""
    if sys.platform == "win32":
        return [os.environ.get("COMSPEC", "cmd.exe"), "/d", "/s", "/c", command]
    return [shutil.which("bash") or "/bin/sh", "-c", command]


class OutputBuffer:
    """Keeps the beginning and the end of an output of any length."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._omitted = 0

    def add(self, data: bytes) -> None:
        room = HEAD_SIZE - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if (extra := len(self._tail) - TAIL_SIZE) > 0:
            self._omitted += extra
            del self._tail[:extra]

    def text(self) -> str:
        if not self._omitted:
            return (self._head + self._tail).decode("utf-8", "replace")
        head, tail = (part.decode("utf-8", "replace") for part in (self._head, self._tail))
        return f"{head}\n[… {self._omitted} bytes omitted …]\n{tail}"


def _kill(pid: int, mark: str) -> None:
    """Kill a command and everything that it started."""
    if sys.platform == "win32":
        kill = ["taskkill", "/F", "/T", "/PID", str(pid)]
        subprocess.run(kill, capture_output=True)  # noqa: S603 - only a number is filled in
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for _ in range(_KILL_ROUNDS):
        # A process that is just being started is found in the next round.
        found = list(_find_marked(f"{mark}=1".encode()))
        if not found:
            return
        for one in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGKILL)


def _find_marked(mark: bytes) -> Iterator[int]:
    """Yield the processes that have the mark in their environment."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def remove_secrets(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose names and values do not look like secrets."""
    return {name: value for name, value in variables.items() if not _is_secret(name, value)}


def _is_secret(name: str, value: str) -> bool:
    if name in _NOT_SECRET:
        return False
    assignment = f"{name}={value}"
    return _SECRET_NAME.search(name) is not None or scrub(assignment).text != assignment
