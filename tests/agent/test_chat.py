"""`toolspeak chat` at a terminal."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from rich.console import Console

from tests.agent.scripted import (
    make_call,
)
from toolspeak import Event, Reply, Request, Text, TextDelta, ToolResult
from toolspeak._util import escape_for_terminal
from toolspeak.agent import ApprovalRequest
from toolspeak.agent.chat_terminal import Display, Keyboard, shorten_output
from toolspeak.cli import main
from toolspeak.events import Finish, Started, unfold
from toolspeak.security.message_origin import last_user_text
from toolspeak.testing import ScriptedServer

_PATIENCE = 60
SLOW = [Started(), *(TextDelta(f"word{number} ") for number in range(400)), Finish("stop")]


def model(request: Request) -> Iterable[Event]:
    """Obey the user: `CALL name key=value`, `LATER …` after some text, `slow`, or anything else."""
    last = request.messages[-1].parts[-1]
    if isinstance(last, ToolResult):
        return _unfold(Text(f"It gave: {last.text.splitlines()[0][:60]}"))
    words = last_user_text(request.messages).split()
    match words:
        case ["CALL" | "LATER", name, *given]:
            arguments = dict(one.split("=", 1) for one in given)
            plain = {key: value.replace("_", " ") for key, value in arguments.items()}
            made = _unfold(make_call(name, f"call_{len(request.messages)}", **plain))
            return [*SLOW[:40], *made[1:]] if words[0] == "LATER" else made
        case ["slow", *_]:
            return SLOW
        case _:
            return _unfold(Text(f"You said {words[-1]}, after {len(request.messages)} messages."))


def _unfold(*parts: Any) -> list[Event]:
    return list(unfold(Reply(parts=parts, stop_reason="stop")))


class Terminal:
    """A user at a terminal."""

    def __init__(self, server: ScriptedServer, folder: Path, *options: str) -> None:
        environ = {
            **{key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")},
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "XDG_STATE_HOME": str(folder / "state"),
        }
        address = f"{server.url}/v1#scripted"
        self._child = pexpect.spawn(
            sys.executable,
            ["-m", "toolspeak", "chat", address, *options],
            cwd=str(folder),
            env=environ,
            dimensions=(50, 110),
            encoding="utf-8",
            timeout=_PATIENCE,
        )

    def type(self, line: str) -> None:
        self._child.sendline(line)

    def see(self, text: str) -> str:
        """Wait for a text, and return the output before it."""
        self._child.expect(re.escape(text))
        return str(self._child.before)

    def ready(self) -> None:
        self.see("›")

    def interrupt(self) -> None:
        self._child.sendintr()

    def leave(self) -> int:
        """Press Ctrl-D and return the exit code."""
        self._child.sendeof()
        self._child.expect(pexpect.EOF)
        self._child.close()
        return int(self._child.exitstatus or 0)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(model, pause=0.02) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.txt").write_text("The tide is at noon.\n")
    return tmp_path


def test_chat_answers_until_ctrl_d(server: ScriptedServer, folder: Path) -> None:
    terminal = Terminal(server, folder)
    terminal.ready()
    terminal.type("Good morning")
    terminal.see("You said morning, after 1 messages.")
    terminal.ready()
    terminal.type("And now")
    terminal.see("You said now, after 3 messages.")
    terminal.ready()
    assert terminal.leave() == 0


def test_chat_asks_for_approval(server: ScriptedServer, folder: Path) -> None:
    terminal = Terminal(server, folder, "--files", "work", "--audit", "audit.jsonl")
    terminal.ready()
    for answer, seen in [
        ("n", "the user denied it"),
        ("what?", "'what?' is neither yes nor no: it counts as no."),
        ("y", "The tide is at noon."),
        ("a", "read_file is allowed for the rest of this session."),
    ]:
        terminal.type("CALL read_file path=notes.txt")
        terminal.see("Run read_file?")
        terminal.see('path: "notes.txt"')
        terminal.see("[a]lways")
        terminal.type(answer)
        terminal.see(seen)
        terminal.see("It gave:")
        terminal.ready()
    terminal.type("CALL read_file path=notes.txt")
    assert "Run read_file?" not in terminal.see("It gave:")
    terminal.ready()
    assert terminal.leave() == 0
    log = (folder / "audit.jsonl").read_text().splitlines()
    assert len(log) == 5
    assert sum('"decision":"allowed"' in line for line in log) == 3


def test_ctrl_c_during_an_answer_interrupts_it(server: ScriptedServer, folder: Path) -> None:
    terminal = Terminal(server, folder, "--transcript", "talk.jsonl")
    terminal.ready()
    terminal.type("slow please")
    terminal.see("word7 ")
    terminal.interrupt()
    terminal.see("(interrupted)")
    terminal.ready()
    terminal.type("And now")
    terminal.see("You said now, after 3 messages.")
    terminal.ready()
    assert terminal.leave() == 0
    assert "word7 " in (folder / "talk.jsonl").read_text()


def test_ctrl_c_during_a_tool_stops_it(server: ScriptedServer, folder: Path) -> None:
    terminal = Terminal(server, folder, "--files", "work", "--shell", "--approve", "full")
    terminal.ready()
    terminal.type("CALL shell command=echo_begun_>_begun;_sleep_300.25")
    terminal.see("Run shell?")
    assert "[a]lways" not in terminal.see("[n]o:")
    terminal.type("y")
    _wait_until((folder / "work" / "begun").exists)
    terminal.interrupt()
    terminal.see("(interrupted)")
    terminal.ready()
    _wait_until(lambda: not _is_running("300.25"))
    terminal.type("And now")
    terminal.see("You said now")
    terminal.ready()
    assert terminal.leave() == 0


def test_ctrl_c_at_a_question_denies_and_at_a_prompt_hints(
    server: ScriptedServer, folder: Path
) -> None:
    terminal = Terminal(server, folder, "--files", "work")
    terminal.ready()
    terminal.interrupt()
    terminal.see("press Ctrl-D to leave")
    terminal.ready()
    terminal.type("CALL read_file path=notes.txt")
    terminal.see("[a]lways")
    terminal.interrupt()
    terminal.see("(interrupted)")
    terminal.ready()
    assert terminal.leave() == 0


def test_shortened_question_can_be_shown_completely(server: ScriptedServer, folder: Path) -> None:
    terminal = Terminal(server, folder, "--shell")
    terminal.ready()
    padding = "_" * 700
    terminal.type(f"CALL shell command=echo_begun{padding};_touch_pwned")
    assert "pwned" not in terminal.see("[s]how all").split("Run shell?")[-1]
    terminal.type("s")
    terminal.see("touch pwned")
    terminal.see("[s]how all")
    terminal.type("n")
    terminal.see("the user denied it")
    terminal.ready()
    assert terminal.leave() == 0
    assert not (folder / "pwned").exists()


def test_text_typed_before_a_question_is_discarded(server: ScriptedServer, folder: Path) -> None:
    terminal = Terminal(server, folder, "--files", "work")
    terminal.ready()
    terminal.type("LATER read_file path=notes.txt")
    terminal.see("word3 ")
    terminal.type("y")
    terminal.see("[a]lways")
    terminal.type("n")
    assert "tide" not in terminal.see("the user denied it")
    terminal.ready()
    assert terminal.leave() == 0


def test_slash_commands(server: ScriptedServer, folder: Path) -> None:
    terminal = Terminal(server, folder, "--files", "work", "--edit")
    terminal.ready()
    for typed, seen in [
        ("/help", "/save [FILE]"),
        ("/tools", "[asks]"),
        ("/mode full", "full: calls run without asking, except"),
        ("/tools", "[allowed]"),
        ("/mode read_only", "read_only:"),
        ("/tools", "[denied]"),
        ("/mode sometimes", "There is no mode 'sometimes': choose one of full, read_only, ask"),
        ("/tols", "did you mean /tools?"),
        ("/model nosuch", "the model 'nosuch' is not available"),
        ("/model http://[::1", "Expected a URL such as http://127.0.0.1:8080/v1"),
        ("/save ~nosuchuser/x", "RuntimeError"),
        ("Hello there", "You said there"),
        ("/save talk.jsonl", "Saved to talk.jsonl"),
        (f"/model {server.url}/v1#other", "#other"),
        ("Hello again", "You said again, after 3 messages."),
    ]:
        terminal.type(typed)
        terminal.see(seen)
        terminal.ready()
    assert terminal.leave() == 0
    assert {request.model for request in server.requests} == {"scripted", "other"}
    assert len((folder / "talk.jsonl").read_text().splitlines()) == 4


def test_piped_input_denies_calls_that_need_approval(server: ScriptedServer, folder: Path) -> None:
    typed = "CALL read_file path=notes.txt\nHello there\n"
    command = [sys.executable, "-m", "toolspeak", "chat", f"{server.url}/v1#m", "--files", "work"]
    done = subprocess.run(
        command, input=typed, capture_output=True, text=True, cwd=folder, timeout=_PATIENCE
    )
    assert done.returncode == 0
    assert "there is no one to ask" in done.stdout
    assert "You said there" in done.stdout
    assert "\x1b" not in done.stdout


def test_mcp_tools_are_used(server: ScriptedServer, folder: Path) -> None:
    script = Path(__file__).parent / "servers" / "raw.py"
    entry = {"command": sys.executable, "args": [str(script)]}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"own": entry}}))
    options = ["--mcp", "servers.json", "--auto-approve", "own__*"]
    command = [sys.executable, "-m", "toolspeak", "chat", f"{server.url}/v1#m", *options]
    done = subprocess.run(
        command,
        input="CALL own__add a=40 b=2\n",
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=_PATIENCE,
    )
    assert "It gave: 40 + 2 = 42" in done.stdout
    assert done.returncode == 0


def test_unreachable_model_is_reported(folder: Path) -> None:
    command = [sys.executable, "-m", "toolspeak", "chat", "http://127.0.0.1:9/v1#m"]
    done = subprocess.run(
        command, input="Hi\n", capture_output=True, text=True, cwd=folder, timeout=_PATIENCE
    )
    assert done.returncode == 0
    assert "The model failed: the upstream server cannot be reached" in done.stdout


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("box/modle-a", "'box/modle-a' is not available; the nearest names are: box/model-a"),
        ("model-b", "'model-b' is not available; the nearest names are"),
        ("embeded", "or name `embedded`, the model that comes with Toolspeak"),
        ("openai/gpt-4", "openai needs a key: set OPENAI_API_KEY"),
        ("http://[::1", "Expected a URL such as http://127.0.0.1:8080/v1, got 'http://[::1'"),
        ("http://127.0.0.1:port/v1#m", "Expected a URL such as"),
        ("http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1 does not respond, or lists no models"),
    ],
)
def test_model_that_does_not_exist_is_an_error_before_the_prompt(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, model: str, problem: str
) -> None:
    async def fail_to_read(_: Keyboard) -> None:
        raise AssertionError("the prompt appeared")

    monkeypatch.setattr(Keyboard, "read_line", fail_to_read)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(folder)
    upstream = '[upstreams.u]\nprovider = "custom"\nbase_url = "http://127.0.0.1:9/v1"\n'
    model_row = '[models."box/model-a"]\nupstream = "u"\n'
    (folder / "toolspeak.toml").write_text(f'{upstream}wire = "openai_chat"\n{model_row}')
    assert main(["chat", model]) == 2
    captured = capsys.readouterr()
    assert problem in captured.err
    assert "approval" not in captured.out


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one two three", ["one two", "three"]),
        ("exactly ten", ["exactly", "ten"]),
        ("ten  cells", ["ten  cells"]),
        ("ten  cells x", ["ten  cells", "x"]),
        ("a\n\n  indented code", ["a", "", "  indented", "code"]),
        ("- an item\n- a second", ["- an item", "- a second"]),
        ("see https://example.org/long ok", ["see", "https://example.org/long", "ok"]),
        ("a\tb\tc\td", ["a    b", "c    d"]),
        ("日本語の文章です", ["日本語の文", "章です"]),
        ("größer e\u0301e\u0301 x", ["größer e\u0301e\u0301", "x"]),
        ("tail   \nnext", ["tail", "next"]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_streamed_text_is_wrapped_between_words(text: str, lines: list[str], size: int) -> None:
    console = Console(width=10, file=io.StringIO(), force_terminal=True, color_system=None)
    display = Display(console)
    for start in range(0, len(text), size):
        display.show_event(TextDelta(text[start : start + size]))
    display.end_line()
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert written == "\n".join(lines) + "\n"


def test_words_are_written_as_they_end_and_files_are_not_wrapped() -> None:
    shown: list[str] = []
    for is_terminal in (True, False):
        console = Console(
            width=10, file=io.StringIO(), force_terminal=is_terminal, color_system=None
        )
        display = Display(console)
        for text in ("All good ", "thi", "ngs come"):
            display.show_event(TextDelta(text))
            shown.append(console.file.getvalue())  # type: ignore[attr-defined]
    assert shown == [
        *("All good", "All good", "All good\nthings"),
        *("All good ", "All good thi", "All good things come"),
    ]


def test_terminal_escapes_are_escaped() -> None:
    assert escape_for_terminal("a\x1b[2Jb\x07\u202ec\r\nd\te") == "a\\x1b[2Jb\\x07\\x202ec\nd\te"


def test_multiline_argument_is_marked() -> None:
    arguments = {"command": "ls  # list\nrm -rf ~", "x\ny": 1}
    question = ApprovalRequest(
        id="", tool="sh\x1b[2J", arguments=arguments, digest="", expires_at=0
    )
    console = Console(width=60, file=io.StringIO())
    assert not Display(console).show_question(question)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "┃ ls  # list" in shown
    assert "┃ rm -rf ~" in shown
    assert '"x\\ny": 1' in shown
    assert "\x1b[2J" not in shown


def test_long_result_is_shortened() -> None:
    assert shorten_output("short") == "short"
    assert shorten_output("line\n" * 500).endswith("… 2441 more characters")


def _is_running(words: str) -> bool:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return any(words in line and "ps -eo" not in line for line in listed.stdout.splitlines())


def _wait_until(condition: Any) -> None:
    import time

    deadline = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_typed_lines_are_kept_in_a_private_file(server: ScriptedServer, folder: Path) -> None:
    terminal = Terminal(server, folder)
    terminal.ready()
    terminal.type("remember me")
    terminal.see("You said me")
    terminal.ready()
    assert terminal.leave() == 0
    history = folder / "state" / "toolspeak" / "history"
    assert "remember me" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600
