"""Completion in real shells, and the help texts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from toolspeak import DIALECTS
from toolspeak.cli import COMMANDS, build_parser, completion, main
from toolspeak.config.providers import PROVIDERS

CASES: list[tuple[str, set[str]]] = [
    ("pr", {"probe", "providers"}),
    ("parse --tr", {"--trust"}),
    ("parse --trust ", {"strict", "standard", "lenient"}),
    ("parse --dialect herm", {"hermes"}),
    ("convert --from o", {"openai_chat", "openai_responses", "ollama"}),
    ("dialects kimi", {name for name in DIALECTS if name.startswith("kimi")}),
    ("run cl", {"claude"}),
    ("chat open", {f"{name}/" for name in PROVIDERS if name.startswith("open")}),
    ("completion z", {"zsh"}),
    ("check --config tool", {"toolspeak.toml"}),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a configuration, and a program that logs how often it is started."""
    (tmp_path / "toolspeak.toml").touch()
    program = tmp_path / "bin" / "toolspeak"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/started\nexec {sys.executable} -m toolspeak "$@"\n'
    )
    program.chmod(0o755)
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    python_path = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    return {**python_path, "PATH": path, "HOME": str(folder), "TERM": "dumb", "LANG": "C.UTF-8"}


def print_script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def find_shell(shell: str) -> str:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    return program


BASH_PROGRAM = """
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_toolspeak; printf '%s\\n' "${{COMPREPLY[@]}}"
"""


BASH_CASES = [
    *CASES,
    ("parse --trust = st", {"strict", "standard"}),
    ("parse --trust =", {"strict", "standard", "lenient"}),
    ("run claude -- c", set[str]()),
]
"""bash splits `--trust=st` into three words."""


@pytest.mark.parametrize(("typed", "completions"), BASH_CASES)
def test_bash_completes_words(
    typed: str, completions: set[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = "''" if typed.endswith(" ") else ""
    program_text = BASH_PROGRAM.format(words=f"toolspeak {typed}{last}")
    finished = subprocess.run(
        [find_shell("bash"), "-c", print_script("bash", capsys) + program_text],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(finished.stdout.split()) == completions
    assert finished.stderr == ""


@pytest.mark.parametrize(("typed", "completions"), CASES)
def test_fish_completes_words(
    typed: str, completions: set[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fish = find_shell("fish")
    (folder / "script.fish").write_text(print_script("fish", capsys))
    command = f"source script.fish; complete -C 'toolspeak {typed}'"
    finished = subprocess.run(
        [fish, "--no-config", "-c", command],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=True,
    )
    assert {line.partition("\t")[0] for line in finished.stdout.splitlines()} == completions


SHELLS = {
    "bash": (["--norc", "--noprofile"], ""),
    "zsh": (["-f"], "autoload -Uz compinit && compinit -u -D; "),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_tab_at_a_terminal_completes_without_starting_python(shell: str, folder: Path) -> None:
    program = find_shell(shell)
    options, setup = SHELLS[shell]
    terminal = pexpect.spawn(
        program, options, cwd=str(folder), env=environment(folder), encoding="utf-8", timeout=60
    )
    try:
        terminal.sendline(
            f"PS1='ready> '; {setup}eval \"$(toolspeak completion {shell})\"; echo don''e"
        )
        terminal.expect("done")
        terminal.expect("ready> ")
        for typed, expected in (
            ("toolspeak parse --dialect herm", "es "),
            ("toolspeak parse --tru", "st "),
            ("toolspeak check --config tool", "speak.toml"),
            ("toolspeak chat openr", "outer/"),
        ):
            terminal.send(f"{typed}\t")
            terminal.expect_exact(expected)
            # Ctrl-C might be lost while the shell still completes; keys are not.
            terminal.sendcontrol("u")
            terminal.send("\r")
            terminal.expect("ready> ")
        started = (folder / "started").read_text().splitlines()
        assert started == [f"completion {shell}"], "Tab must not start the program"
    finally:
        terminal.close(force=True)


def test_every_list_of_values_has_an_argument() -> None:
    _, commands = build_parser()
    named = {action.dest for parser in commands.values() for action in parser.actions}
    assert named >= set(completion.VALUES)


# Help.


def print_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> list[str]:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as end:
        main([*words, "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out.splitlines()


def test_help_fits_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = print_help(monkeypatch, capsys)
    assert max(map(len, lines)) < 80
    # The first line stays on the screen when the prompt follows.
    assert len(lines) < 24


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_fits_a_screen(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = print_help(monkeypatch, capsys, name)
    assert max(map(len, lines)) < 80
    assert len(lines) <= 32
    assert lines[0].startswith(f"usage: toolspeak {name} [options]")


def test_commands_are_sorted() -> None:
    assert sorted(COMMANDS) == list(COMMANDS)


def test_every_argument_has_a_help_text() -> None:
    _, commands = build_parser()
    for name, parser in commands.items():
        for action in parser.actions:
            assert action.help, f"{name} {action.dest}"
