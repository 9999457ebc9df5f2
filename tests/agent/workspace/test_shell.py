"""Shell commands: their results, and that nothing of them is left running."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from toolspeak.agent.workspace import Workspace
from toolspeak.agent.workspace import shell as shells
from toolspeak.agent.workspace.shell import HEAD_SIZE, TAIL_SIZE, OutputBuffer, remove_secrets

from .support import SOON, problem_of


def shell(workspace: Workspace, command: str, timeout: float = 10.0) -> str:
    return asyncio.run(workspace.shell(command, timeout))


TOLD = [
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


@pytest.mark.parametrize(("command", "told"), TOLD)
def test_result_shows_output_and_exit_code(
    workspace: Workspace, command: str, told: str | None
) -> None:
    said = shell(workspace, command)
    assert said == told if told else said.startswith("none\n")


def test_command_runs_in_the_workspace_folder(folder: Path, workspace: Workspace) -> None:
    assert shell(workspace, "pwd -P") == f"{folder}\n[Exit code 0.]"


UNUSABLE = [
    ("a\0b", "contains invalid characters"),
    ("\ud800", "contains invalid characters"),
    ("x" * 1_000_000, "cannot be started: Argument list too long"),
]


@pytest.mark.parametrize(("command", "told"), UNUSABLE)
def test_invalid_command_is_reported(workspace: Workspace, command: str, told: str) -> None:
    assert told in problem_of(lambda: shell(workspace, command))


def test_invalid_timeout_is_refused(workspace: Workspace) -> None:
    for timeout in (0, -1, float("nan")):
        assert "Expected seconds" in problem_of(
            lambda timeout=timeout: shell(workspace, "ls", timeout)
        )


# Nothing is left of it.

STAYING = {
    "itself": "echo here; exec sleep 98765",
    "a child": "echo here; sleep 98765; true",
    "grandchildren": "echo here; (sleep 98765 & sh -c 'sleep 98765; true' & wait); true",
    "deaf to signals": "trap '' TERM INT HUP; echo here; sleep 98765; true",
    "another session": "echo here; setsid sleep 98765 & sleep 98765; true",
    "another agent's": "echo here; TOOLSPEAK_COMMAND_1=1 setsid sleep 98765 & sleep 98765; true",
    "a daemon": "(setsid sh -c 'sleep 98765 & sleep 98765' &) ; echo here; sleep 98765; true",
}
needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


def left(folder: Path) -> list[str]:
    """Return what still runs in the folder after a grace period."""
    deadline = time.monotonic() + SOON
    while (found := _running_in(folder)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def _running_in(folder: Path) -> list[str]:
    found: list[str] = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(place / "cwd") == str(folder):
                found.append((place / "cmdline").read_text())
        except OSError:
            continue
    return found


@needs_proc
@pytest.mark.parametrize("command", STAYING.values(), ids=STAYING.keys())
def test_timeout_kills_everything(folder: Path, workspace: Workspace, command: str) -> None:
    began = time.monotonic()
    told = shell(workspace, command, 0.8)
    assert told == "here\n[Killed after 0.8 s with everything it started.]"
    assert time.monotonic() - began < SOON
    assert left(folder) == []


@needs_proc
@pytest.mark.parametrize("command", STAYING.values(), ids=STAYING.keys())
def test_cancellation_kills_everything(folder: Path, workspace: Workspace, command: str) -> None:
    async def give_up() -> None:
        running = asyncio.create_task(workspace.shell(command, 60))
        await asyncio.sleep(0.3)
        assert _running_in(folder)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(give_up())
    assert left(folder) == []


@needs_proc
def test_immediate_cancellation_kills_everything(folder: Path, workspace: Workspace) -> None:
    async def give_up(turns: int) -> None:
        running = asyncio.create_task(workspace.shell("sleep 98765 & sleep 98765", 60))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    for turns in range(8):
        asyncio.run(give_up(turns))
    assert left(folder) == []


@needs_proc
def test_background_processes_end_with_the_command(folder: Path, workspace: Workspace) -> None:
    began = time.monotonic()
    told = shell(workspace, "sleep 98765 & setsid sleep 98765 & echo started")
    assert told == "started\n[Exit code 0.]"
    assert time.monotonic() - began < SOON
    assert left(folder) == []


# How much it says.


def test_endless_output_is_shortened(workspace: Workspace) -> None:
    told = shell(workspace, "echo first; yes", 0.4)
    assert told.startswith("first\ny\ny\n")
    assert "bytes omitted …]\n" in told
    assert told.endswith("y\n[Killed after 0.4 s with everything it started.]")
    assert len(told) < HEAD_SIZE + TAIL_SIZE + 200


def test_end_of_long_output_is_kept(workspace: Workspace) -> None:
    told = shell(workspace, "seq 1 100000; exit 1")
    assert told.startswith("1\n2\n3\n")
    assert told.endswith("99999\n100000\n[Exit code 1.]")


@pytest.mark.parametrize("size", [1, 7, 1000, 100_000])
def test_output_buffer_is_independent_of_chunk_size(size: int) -> None:
    data = b"".join(b"%d\n" % number for number in range(10_000))
    output = OutputBuffer()
    for start in range(0, len(data), size):
        output.add(data[start : start + size])
    head, tail = data[:HEAD_SIZE].decode(), data[-TAIL_SIZE:].decode()
    left_out = len(data) - HEAD_SIZE - TAIL_SIZE
    assert output.text() == f"{head}\n[… {left_out} bytes omitted …]\n{tail}"


# What it knows.

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
    told = shell(workspace, "env")
    assert "sesame" not in told
    assert "SOMETHING_ELSE=is passed" in told


def test_sh_is_used_without_bash(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> Any:
        return None

    monkeypatch.setattr(shells.shutil, "which", nothing)
    assert shell(workspace, "echo $0") == "/bin/sh\n[Exit code 0.]"
