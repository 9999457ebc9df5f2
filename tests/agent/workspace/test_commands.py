"""Commands of the shell: what is told of them, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from toolspeak.agent.workspace import Workspace, commands
from toolspeak.agent.workspace.commands import HEAD, TAIL, Output
from toolspeak.agent.workspace.environment import without_secrets

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
def test_what_is_told(workspace: Workspace, command: str, told: str | None) -> None:
    said = shell(workspace, command)
    assert said == told if told else said.startswith("none\n")


def test_it_runs_in_the_folder(folder: Path, workspace: Workspace) -> None:
    assert shell(workspace, "pwd -P") == f"{folder}\n[Exit code 0.]"


UNUSABLE = [
    ("a\0b", "characters that no command can have"),
    ("\ud800", "characters that no command can have"),
    ("x" * 1_000_000, "cannot be started: Argument list too long"),
]


@pytest.mark.parametrize(("command", "told"), UNUSABLE)
def test_what_cannot_be_started(workspace: Workspace, command: str, told: str) -> None:
    assert told in problem_of(lambda: shell(workspace, command))


def test_seconds_that_are_none(workspace: Workspace) -> None:
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
    """What runs in the folder, once there was time for it to end."""
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
def test_nothing_is_left_when_the_time_is_over(
    folder: Path, workspace: Workspace, command: str
) -> None:
    began = time.monotonic()
    told = shell(workspace, command, 0.8)
    assert told == "here\n[Killed after 0.8 s, with all that it had started.]"
    assert time.monotonic() - began < SOON
    assert left(folder) == []


@needs_proc
@pytest.mark.parametrize("command", STAYING.values(), ids=STAYING.keys())
def test_nothing_is_left_when_it_is_given_up(
    folder: Path, workspace: Workspace, command: str
) -> None:
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
def test_nothing_is_left_when_it_is_given_up_at_once(folder: Path, workspace: Workspace) -> None:
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
def test_the_background_ends_with_the_command(folder: Path, workspace: Workspace) -> None:
    began = time.monotonic()
    told = shell(workspace, "sleep 98765 & setsid sleep 98765 & echo started")
    assert told == "started\n[Exit code 0.]"
    assert time.monotonic() - began < SOON
    assert left(folder) == []


# How much it says.


def test_output_without_an_end(workspace: Workspace) -> None:
    told = shell(workspace, "echo first; yes", 0.4)
    assert told.startswith("first\ny\ny\n")
    assert "bytes are left out …]\n" in told
    assert told.endswith("y\n[Killed after 0.4 s, with all that it had started.]")
    assert len(told) < HEAD + TAIL + 200


def test_the_end_of_much_output(workspace: Workspace) -> None:
    told = shell(workspace, "seq 1 100000; exit 1")
    assert told.startswith("1\n2\n3\n")
    assert told.endswith("99999\n100000\n[Exit code 1.]")


@pytest.mark.parametrize("size", [1, 7, 1000, 100_000])
def test_output_is_kept_however_it_comes(size: int) -> None:
    data = b"".join(b"%d\n" % number for number in range(10_000))
    output = Output()
    for start in range(0, len(data), size):
        output.add(data[start : start + size])
    head, tail = data[:HEAD].decode(), data[-TAIL:].decode()
    left_out = len(data) - HEAD - TAIL
    assert output.text() == f"{head}\n[… {left_out} bytes are left out …]\n{tail}"


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
def test_names_of_secrets(name: str, is_passed: bool) -> None:
    assert (name in without_secrets({name: "some value"})) is is_passed


def test_values_that_are_secrets() -> None:
    secret = "postgres://me:" + "hunter2hunter2" + "@db/main"
    assert without_secrets({"DATABASE_URL": secret, "HOST": "db"}) == {"HOST": "db"}


def test_a_command_gets_no_secret(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sesame-1234")
    monkeypatch.setenv("SOMETHING_ELSE", "is passed")
    told = shell(workspace, "env")
    assert "sesame" not in told
    assert "SOMETHING_ELSE=is passed" in told


def test_without_bash_there_is_sh(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> Any:
        return None

    monkeypatch.setattr(commands.shutil, "which", nothing)
    assert shell(workspace, "echo $0") == "/bin/sh\n[Exit code 0.]"
