"""The terminal of a chat: `Display` shows an agent's events, `Keyboard` reads lines and answers.

The output reads well without colours and in a file.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from functools import cached_property
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from .._util import create_private_file, escape_for_terminal
from ..events import ReasoningDelta, TextDelta
from ..types import Note
from . import (
    AgentEvent,
    ApprovalRequest,
    ApprovalRequested,
    RunFinished,
    ToolCallFinished,
    ToolCallRequested,
)
from .approvals import summarize_arguments
from .concurrency import run_in_thread

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

_MAX_RESULT_LINES, _MAX_RESULT_CHARACTERS = 12, 1200
_MAX_QUESTION_LINES, _MAX_LINE_LENGTH = 30, 600
_DISPLAYED_NOTES = frozenset({"retried"})
_TAB = "    "
_PROMPT = "› "


class Display:
    """Writes to a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._open_line = ""
        """The kind of text in the unfinished line: "text", "reasoning", or "" for none."""
        self._open_style = ""
        self._wrapper = WordWrapper()
        self._status = console.status("waiting for the model")

    def print_line(self, text: str, style: str = "") -> None:
        self.end_line()
        self._console.print(Text(escape_for_terminal(text), style), soft_wrap=True)

    def print_table(self, rows: list[tuple[str, str]]) -> None:
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        for name, description in rows:
            table.add_row(
                Text(escape_for_terminal(name), "bold"), Text(escape_for_terminal(description))
            )
        self._console.print(table)

    def start_waiting(self) -> None:
        if self._console.is_terminal:
            self._status.start()

    def stop_waiting(self) -> None:
        self._status.stop()

    def end_line(self) -> None:
        """End the unfinished line, if there is one."""
        if self._open_line:
            self._write(self._wrapper.finish(self._console.width))
            self._console.print()
        self._open_line = ""

    def show_event(self, event: AgentEvent) -> None:
        self.stop_waiting()
        match event:
            case TextDelta():
                self._write_delta(event.text, "text", "")
            case ReasoningDelta():
                self._write_delta(event.text, "reasoning", "dim italic")
            case ToolCallRequested():
                arguments = summarize_arguments(event.call.arguments)
                self.print_line(f"● {event.call.name}({arguments})", "cyan")
            case ToolCallFinished():
                self._show_result(event)
            case Note() if event.code in _DISPLAYED_NOTES:
                self.print_line(f"  ({event.message})", "dim")
            case RunFinished():
                self._show_end(event)
            case ApprovalRequested() | Note():
                pass

    def show_question(self, request: ApprovalRequest, *, whole: bool = False) -> bool:
        """Show a call that needs approval; return whether it was shortened."""
        lines = [line for pair in request.arguments.items() for line in _format_argument(*pair)]
        excerpt = lines
        if not whole:
            excerpt = [line[:_MAX_LINE_LENGTH] for line in lines[:_MAX_QUESTION_LINES]]
        body = Text("\n".join(map(escape_for_terminal, excerpt or ["(no arguments)"])))
        warnings = [use.question(request.tool) for use in request.secrets]
        if request.is_echo:
            warnings.append(
                "You may not have asked for this: the call repeats one from a tool result."
            )
        for warning in warnings:
            body.append(f"\n{escape_for_terminal(warning)}", "bold")
        source = f" (from {escape_for_terminal(request.source)})" if request.source else ""
        title = Text(f"Run {escape_for_terminal(request.tool)}{source}?")
        self.end_line()
        self._console.print(Panel(body, title=title, title_align="left"))
        return excerpt != lines

    def _write_delta(self, text: str, kind: str, style: str) -> None:
        if self._open_line and self._open_line != kind:
            self.end_line()
        self._open_line, self._open_style = kind, style
        text = escape_for_terminal(text)
        # A file has no width.
        is_wrapped = self._console.is_terminal
        self._write(self._wrapper.feed(text, self._console.width) if is_wrapped else text)

    def _write(self, text: str) -> None:
        if text:
            self._console.print(Text(text, self._open_style), end="", soft_wrap=True)

    def _show_result(self, event: ToolCallFinished) -> None:
        self.end_line()
        is_error = event.result.is_error
        duration = f" {event.seconds:.1f} s" if event.seconds >= 0.1 else ""
        title = f"{escape_for_terminal(event.call.name)} {'✗' if is_error else '✓'}{duration}"
        body = Text(escape_for_terminal(shorten_output(event.display_text)))
        style = "red" if is_error else "green"
        self._console.print(Panel(body, title=Text(title), title_align="left", border_style=style))

    def _show_end(self, event: RunFinished) -> None:
        self.end_line()
        result = event.result
        if result.stop != "answer":
            self.print_line(f"({result.stop_message})", "yellow")
        elif not result.text:
            self.print_line("(the model sent no text)", "yellow")


class WordWrapper:
    """Breaks the lines of a streamed text between words, so that none is longer than the terminal
    is wide. A word is held back until it ends; a word that is longer than a line is not broken."""

    def __init__(self) -> None:
        self._column = 0
        self._spaces = self._word = ""

    def feed(self, text: str, width: int) -> str:
        """Return what can be written once this text has arrived."""
        return "".join(self._add(character, width) for character in text)

    def finish(self, width: int) -> str:
        """Return what is held back, and begin a new line."""
        rest = self._end_word(width)
        self._column, self._spaces = 0, ""
        return rest

    def _add(self, character: str, width: int) -> str:
        if character == "\n":
            return self.finish(width) + character
        if character in " \t":
            ended = self._end_word(width)
            self._spaces += character
            return ended
        if cell_len(character) < 2:
            self._word += character
            return ""
        # Lines may be broken before and after each character of Chinese or Japanese.
        ended = self._end_word(width)
        self._word = character
        return ended + self._end_word(width)

    def _end_word(self, width: int) -> str:
        if not self._word:
            return ""
        word, self._word = self._word, ""
        spaces, self._spaces = self._spaces.replace("\t", _TAB), ""
        size = cell_len(word)
        if self._column and self._column + len(spaces) + size > width:
            self._column, before = size, "\n"
        else:
            self._column, before = self._column + len(spaces) + size, spaces
        return before + word


def _format_argument(key: str, value: Any) -> list[str]:
    """Format an argument as JSON, or a text of several lines with a bar before each line. The bar
    shows which lines belong to the text."""
    name = summarize_arguments({key: None}).removesuffix(": null")
    if not isinstance(value, str) or "\n" not in value:
        return [f"{name}: {json.dumps(value, ensure_ascii=False)}"]
    return [f"{name}:", *(f"  ┃ {line}" for line in value.split("\n"))]


def shorten_output(text: str) -> str:
    """Return the beginning of a long text, and how much is omitted."""
    lines = text[:_MAX_RESULT_CHARACTERS].splitlines()[:_MAX_RESULT_LINES]
    beginning = "\n".join(lines)
    omitted = len(text) - len(beginning)
    return f"{beginning}\n… {omitted} more characters" if omitted > 20 else text


class Interrupted(Exception):
    """Ctrl-C while a line was being typed."""


class Keyboard:
    """Reads lines from a terminal, with history, or from a pipe."""

    def __init__(self, history: Path | None = None) -> None:
        self.is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._history = history

    async def read_line(self) -> str | None:
        """Return the next line, or None at the end of the input."""
        if not self.is_terminal:
            return await run_in_thread(_read_piped_line)
        return await _prompt_user(self._session, _PROMPT)

    async def read_answer(self, prompt: str) -> str:
        """Return the answer to a question, which is kept out of the history; "" at Ctrl-D."""
        from prompt_toolkit import PromptSession

        _discard_input()
        return await _prompt_user(PromptSession(), prompt) or ""

    @cached_property
    def _session(self) -> PromptSession[str]:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory, InMemoryHistory

        try:
            if self._history:
                create_private_file(self._history)
                return PromptSession(history=FileHistory(str(self._history)))
        except OSError:
            pass  # The history lasts for this session only.
        return PromptSession(history=InMemoryHistory())


async def _prompt_user(session: PromptSession[str], prompt: str) -> str | None:
    """Return what is typed, or None at Ctrl-D."""
    try:
        return await session.prompt_async(prompt, handle_sigint=False)
    except EOFError:
        return None
    except KeyboardInterrupt:
        raise Interrupted from None


def _read_piped_line() -> str | None:
    """Read a line of standard input without Python's buffer: a thread waiting in it would keep its
    lock while the program exits."""
    line = FileIO(0, closefd=False).readline()
    return line.decode("utf-8", "replace").rstrip("\r\n") if line else None


def _discard_input() -> None:
    """Discard text that was typed before the question appeared: it cannot be the answer."""
    with suppress(ImportError, OSError):
        import termios

        termios.tcflush(sys.stdin, termios.TCIFLUSH)
