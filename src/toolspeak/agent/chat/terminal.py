"""What is shown of an agent's work. It reads without colours, and in a file too."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..._util import escape_for_terminal
from ...events import ReasoningDelta, TextDelta
from ...types import Note
from .. import (
    AgentEvent,
    ApprovalRequest,
    ApprovalRequested,
    RunFinished,
    ToolCallFinished,
    ToolCallRequested,
)
from ..approvals import summarize_arguments
from ..concurrency import run_in_thread
from ..secrets import format_secret_question as secret_question

_MOST_LINES, _MOST_CHARACTERS = 12, 1200
_MOST_ASKED, _WIDEST = 30, 600
"""How much of a question is shown at first: lines, and characters of each."""
_SHOWN_NOTES = frozenset({"retried"})


class Display:
    """Writes to a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._open_line = ""
        """What the line that is not ended yet belongs to: "said" or "thought"."""
        self._status = console.status("waiting for the model")

    def print_line(self, text: str, style: str = "") -> None:
        """A line of the program's own."""
        self.end_line()
        self._console.print(Text(escape_for_terminal(text), style), soft_wrap=True)

    def print_table(self, rows: list[tuple[str, str]]) -> None:
        """Names, and what there is to say of them."""
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        for name, about in rows:
            table.add_row(Text(escape_for_terminal(name), "bold"), Text(escape_for_terminal(about)))
        self._console.print(table)

    def start_waiting(self) -> None:
        """Nothing has come yet."""
        if self._console.is_terminal:
            self._status.start()

    def stop_waiting(self) -> None:
        """Something has."""
        self._status.stop()

    def show_event(self, event: AgentEvent) -> None:
        """What has just happened."""
        self.stop_waiting()
        match event:
            case TextDelta():
                self._write_delta(event.text, "said", "")
            case ReasoningDelta():
                self._write_delta(event.text, "thought", "dim italic")
            case ToolCallRequested():
                self.print_line(
                    f"● {event.call.name}({summarize_arguments(event.call.arguments)})", "cyan"
                )
            case ToolCallFinished():
                self._show_result(event)
            case Note() if event.code in _SHOWN_NOTES:
                self.print_line(f"  ({event.message})", "dim")
            case RunFinished():
                self._show_end(event)
            case ApprovalRequested() | Note():
                pass

    def end_line(self) -> None:
        """End the line that is open, if there is one."""
        if self._open_line:
            self._console.print()
        self._open_line = ""

    def show_question(self, question: ApprovalRequest, *, whole: bool = False) -> bool:
        """What somebody is asked about a call; whether there is more of it than is shown."""
        lines = [line for pair in question.arguments.items() for line in _argument_lines(*pair)]
        shown = lines if whole else [line[:_WIDEST] for line in lines[:_MOST_ASKED]]
        asked = [secret_question(use, question.tool) for use in question.secrets]
        body = Text("\n".join(map(escape_for_terminal, shown or ["(no arguments)"])))
        if question.is_echo:
            asked.append("Nobody but a tool's result asks for this: the model only repeats it.")
        for one in asked:
            body.append(f"\n{escape_for_terminal(one)}", "bold")
        from_ = f" (of {escape_for_terminal(question.source)})" if question.source else ""
        title = Text(f"Run {escape_for_terminal(question.tool)}{from_}?")
        self.end_line()
        self._console.print(Panel(body, title=title, title_align="left"))
        return shown != lines

    def _write_delta(self, text: str, whose: str, style: str) -> None:
        if self._open_line and self._open_line != whose:
            self.end_line()
        self._open_line = whose
        self._console.print(Text(escape_for_terminal(text), style), end="", soft_wrap=True)

    def _show_result(self, event: ToolCallFinished) -> None:
        self.end_line()
        is_error = event.result.is_error
        took = f" {event.seconds:.1f} s" if event.seconds >= 0.1 else ""
        title = f"{escape_for_terminal(event.call.name)} {'✗' if is_error else '✓'}{took}"
        shown = Text(escape_for_terminal(shorten_output(event.display_text)))
        style = "red" if is_error else "green"
        self._console.print(Panel(shown, title=Text(title), title_align="left", border_style=style))

    def _show_end(self, event: RunFinished) -> None:
        self.end_line()
        run = event.result
        if run.stop != "answer":
            self.print_line(f"({run.stop_message})", "yellow")
        elif not run.text:
            self.print_line("(the model has said nothing)", "yellow")


def _argument_lines(key: str, value: Any) -> list[str]:
    """An argument as it is: JSON, or a text of several lines, each behind a bar that no text can
    have made."""
    name = summarize_arguments({key: None}).removesuffix(": null")
    if not isinstance(value, str) or "\n" not in value:
        return [f"{name}: {json.dumps(value, ensure_ascii=False)}"]
    return [f"{name}:", *(f"  ┃ {line}" for line in value.split("\n"))]


def shorten_output(text: str) -> str:
    """The beginning of a long text, and how much is left out."""
    lines = text[:_MOST_CHARACTERS].splitlines()[:_MOST_LINES]
    kept = "\n".join(lines)
    left = len(text) - len(kept)
    return f"{kept}\n… {left} more characters" if left > 20 else text


if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

_PROMPT = "› "


class Interrupted(Exception):
    """Ctrl-C, at a line that is being typed."""


class Keyboard:
    """Reads from whoever is there."""

    def __init__(self, history: Path | None = None) -> None:
        self.is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._history = history
        self._session: PromptSession[str] | None = None
        self._piped = _PipeReader()

    async def read_line(self) -> str | None:
        """The next line; None if there is none any more."""
        if not self.is_terminal:
            return await run_in_thread(self._piped.read_line)
        try:
            return await self._get_session().prompt_async(_PROMPT, handle_sigint=False)
        except EOFError:
            return None
        except KeyboardInterrupt:
            raise Interrupted from None

    async def read_answer(self, words: str) -> str:
        """What somebody says to a question; "" if they say nothing."""
        from prompt_toolkit import PromptSession

        _discard_typed()
        try:
            # Answers to questions are no lines to come back to.
            return await PromptSession[str]().prompt_async(words, handle_sigint=False)
        except EOFError:
            return ""
        except KeyboardInterrupt:
            raise Interrupted from None

    def _get_session(self) -> PromptSession[str]:
        if self._session is None:
            from prompt_toolkit import PromptSession
            from prompt_toolkit.history import FileHistory, InMemoryHistory

            file = _prepare_history(self._history)
            history = FileHistory(str(file)) if file else InMemoryHistory()
            self._session = PromptSession(history=history)
        return self._session


class _PipeReader:
    """The lines of standard input, in whatever encoding they are. Python's own buffer is not used:
    a thread that waits for more would keep it locked when the program ends."""

    def __init__(self) -> None:
        self._buffer = b""

    def read_line(self) -> str | None:
        """The next line; None if there is none any more."""
        while b"\n" not in self._buffer:
            data = os.read(0, 65_536)
            if not data:
                break
            self._buffer += data
        if not self._buffer:
            return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")


def _discard_typed() -> None:
    """What was typed before a question was seen is no answer to it."""
    with suppress(ImportError, OSError):
        import termios

        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def _prepare_history(path: Path | None) -> Path | None:
    """The file for the history, which nobody else may read; None if there can be none."""
    if path is None:
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError:
        return None
    return path
