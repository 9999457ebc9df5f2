"""Shell commands: their results, and that everything they started is killed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolspeak.agent.workspace import shell as shells
from toolspeak.agent.workspace.shell import HEAD_SIZE, TAIL_SIZE, OutputBuffer, remove_secrets
from toolspeak.agent.workspace.tools import Workspace

from .support import SOON, get_error


def run_shell(workspace: Workspace, command: str, timeout: float = 10.0) -> str:
    return asyncio.run(workspace.shell(command, timeout))


RESULTS = [
    ("echo hi", "hi\n[Exit code 0.]"),
    ("printf hi", "hi\n[Exit code 0.]"),
    ("true", "[Exit code 0.]"),
    ("exit 3", "[Exit code 3.]"),
    ("nosuchcommand 2>/dev/null", "[Exit code 127.]"),
    ("echo out; echo err >&2; echo out", "out\nerr\nout\n[Exit code 0.]"),
    ("kill -9 $$", "[Ended by signal 9.]"),
    ("cat; echo no input", "no input\n[Exit code 0.]"),
    ("read -t 5 line; echo $?", "1\n[Exit code 0.]"),
    (r"printf 'caf\351'", "caf\ufffd\n[Exit code 0.]"),
    ("cat src/main.py | wc -l | tr -d ' '", "2\n[Exit code 0.]"),
    ("tty >/dev/null || echo none; echo x 2>&1 >/dev/tty || true", None),
]


@pytest.mark.parametrize(("command", "expected"), RESULTS)
def test_result_shows_output_and_exit_code(
    workspace: Workspace, command: str, expected: str | None
) -> None:
    result = run_shell(workspace, command)
    assert result == expected if expected else result.startswith("none\n")


def test_command_runs_in_the_workspace_folder(folder: Path, workspace: Workspace) -> None:
    assert run_shell(workspace, "pwd -P") == f"{folder}\n[Exit code 0.]"


INVALID_COMMANDS = [
    ("a\0b", "contains invalid characters"),
    ("\ud800", "contains invalid characters"),
    ("x" * 1_000_000, "cannot be started: Argument list too long"),
]


@pytest.mark.parametrize(("command", "problem"), INVALID_COMMANDS)
def test_invalid_command_is_reported(workspace: Workspace, command: str, problem: str) -> None:
    assert problem in get_error(lambda: run_shell(workspace, command))


def test_invalid_timeout_is_refused(workspace: Workspace) -> None:
    for timeout in (0, -1, float("nan")):
        assert "`timeout` must be more than 0 seconds" in get_error(
            lambda timeout=timeout: run_shell(workspace, "ls", timeout)
        )


# What it started is killed.

BEGIN = "echo here; touch begun"
PERSISTENT_COMMANDS = {
    "itself": f"{BEGIN}; exec sleep 98765",
    "a child": f"{BEGIN}; sleep 98765; true",
    "grandchildren": f"{BEGIN}; (sleep 98765 & sh -c 'sleep 98765; true' & wait); true",
    "deaf to signals": f"trap '' TERM INT HUP; {BEGIN}; sleep 98765; true",
    "another session": f"{BEGIN}; setsid sleep 98765 & sleep 98765; true",
    "another agent's": f"{BEGIN}; TOOLSPEAK_COMMAND_1=1 setsid sleep 98765 & sleep 98765; true",
    "a daemon": f"(setsid sh -c 'sleep 98765 & sleep 98765' &) ; {BEGIN}; sleep 98765; true",
}
needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


def wait_for_end_in(folder: Path) -> list[str]:
    """Return what still runs in the folder after a grace period."""
    deadline = time.monotonic() + SOON
    while (found := find_running_in(folder)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def find_running_in(folder: Path) -> list[str]:
    found: list[str] = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(place / "cwd") == str(folder):
                found.append((place / "cmdline").read_text())
        except OSError:
            continue
    return found


class Clock:
    """Replaces `monotonic`. No time passes until a condition holds; then every timeout ends.

    From then on, time passes at each call: on a busy machine, the condition may hold before the
    deadline is computed.
    """

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over
        self._now = 0.0

    def __call__(self) -> float:
        if self._is_over():
            self._now += 1e9
        return self._now


def has_begun(folder: Path) -> bool:
    """Return True once a persistent command has started its processes."""
    try:
        return time.time() - (folder / "begun").stat().st_mtime > 0.1
    except FileNotFoundError:
        return False


@needs_proc
@pytest.mark.parametrize("command", PERSISTENT_COMMANDS.values(), ids=PERSISTENT_COMMANDS.keys())
def test_timeout_kills_everything(
    folder: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(shells, "monotonic", Clock(lambda: has_begun(folder)))
    result = run_shell(workspace, command, 60)
    assert result == "here\n[Killed after 60 s with everything it started.]"
    assert wait_for_end_in(folder) == []


@needs_proc
@pytest.mark.parametrize("command", PERSISTENT_COMMANDS.values(), ids=PERSISTENT_COMMANDS.keys())
def test_cancellation_kills_everything(folder: Path, workspace: Workspace, command: str) -> None:
    async def cancel() -> None:
        running = asyncio.create_task(workspace.shell(command, 60))
        while not has_begun(folder):
            await asyncio.sleep(0.01)
        assert find_running_in(folder)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancel())
    assert wait_for_end_in(folder) == []


@needs_proc
def test_immediate_cancellation_kills_everything(folder: Path, workspace: Workspace) -> None:
    async def cancel(turns: int) -> None:
        running = asyncio.create_task(workspace.shell("sleep 98765 & sleep 98765", 60))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    for turns in range(8):
        asyncio.run(cancel(turns))
    assert wait_for_end_in(folder) == []


@needs_proc
def test_background_processes_end_with_the_command(folder: Path, workspace: Workspace) -> None:
    began = time.monotonic()
    result = run_shell(workspace, "sleep 98765 & setsid sleep 98765 & echo started")
    assert result == "started\n[Exit code 0.]"
    assert time.monotonic() - began < SOON
    assert wait_for_end_in(folder) == []


# Its output.


def test_endless_output_is_shortened(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[int] = []

    class CountingBuffer(OutputBuffer):
        def add(self, data: bytes) -> None:
            super().add(data)
            received.append(len(data))

    monkeypatch.setattr(shells, "OutputBuffer", CountingBuffer)
    monkeypatch.setattr(shells, "monotonic", Clock(lambda: sum(received) > 1_000_000))
    result = run_shell(workspace, "echo first; yes", 60)
    assert result.startswith("first\ny\ny\n")
    assert "bytes omitted …]\n" in result
    assert result.endswith("y\n[Killed after 60 s with everything it started.]")
    assert len(result) < HEAD_SIZE + TAIL_SIZE + 200


def test_end_of_long_output_is_kept(workspace: Workspace) -> None:
    result = run_shell(workspace, "seq 1 100000; exit 1")
    assert result.startswith("1\n2\n3\n")
    assert result.endswith("99999\n100000\n[Exit code 1.]")


@pytest.mark.parametrize("size", [1, 7, 1000, 100_000])
def test_output_buffer_is_independent_of_chunk_size(size: int) -> None:
    data = b"".join(b"%d\n" % number for number in range(10_000))
    output = OutputBuffer()
    for start in range(0, len(data), size):
        output.add(data[start : start + size])
    head, tail = data[:HEAD_SIZE].decode(), data[-TAIL_SIZE:].decode()
    left_out = len(data) - HEAD_SIZE - TAIL_SIZE
    assert output.text() == f"{head}\n[… {left_out} bytes omitted …]\n{tail}"


# Its environment.

VARIABLES = {
    "PATH": True,
    "HOME": True,
    "PWD": True,
    "OLDPWD": True,
    "LANG": True,
    "GIT_AUTHOR_NAME": True,
    "TOKENIZERS_PARALLELISM": True,
    "COMPASS_X": True,
    "OPENAI_API_KEY": False,
    "ANTHROPIC_AUTH_TOKEN": False,
    "github_token": False,
    "AWS_SECRET_ACCESS_KEY": False,
    "AWS_ACCESS_KEY_ID": False,
    "DB_PASSWORD": False,
    "DB_PASS": False,
    "MYSQL_PWD": False,
    "PGPASSWORD": False,
    "GH_PAT": False,
    "GOOGLE_APPLICATION_CREDENTIALS": False,
    "SENTRY_DSN": False,
    "SSH_AUTH_SOCK": False,
    "SESSION_COOKIE": False,
    "GPG_PASSPHRASE": False,
}


@pytest.mark.parametrize(("name", "is_passed"), VARIABLES.items())
def test_variable_with_secret_name_is_removed(name: str, is_passed: bool) -> None:
    assert (name in remove_secrets({name: "some value"})) is is_passed


def test_variable_with_secret_value_is_removed() -> None:
    secret = "postgres://me:" + "hunter2hunter2" + "@db/main"
    assert remove_secrets({"DATABASE_URL": secret, "HOST": "db"}) == {"HOST": "db"}


def test_command_gets_no_secret_variables(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sesame-1234")
    monkeypatch.setenv("SOMETHING_ELSE", "is passed")
    result = run_shell(workspace, "env")
    assert "sesame" not in result
    assert "SOMETHING_ELSE=is passed" in result


def test_sh_is_used_without_bash(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> Any:
        return None

    monkeypatch.setattr(shells.shutil, "which", nothing)
    assert run_shell(workspace, "echo $0") == "/bin/sh\n[Exit code 0.]"
