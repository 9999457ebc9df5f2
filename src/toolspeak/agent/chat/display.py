"""What is shown of an agent's work. It reads without colours, and in a file too."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..._util import escape_for_terminal
from ...events import ReasoningDelta, TextDelta
from ...types import Note
from .. import AgentEvent, ApprovalAsked, CallMade, Done, Question, ResultGiven
from ..approvals import summary
from ..secrets import question as secret_question

_MOST_LINES, _MOST_CHARACTERS = 12, 1200
_MOST_ASKED, _WIDEST = 30, 600
"""How much of a question is shown at first: lines, and characters of each."""
_SHOWN_NOTES = frozenset({"retried"})


class Display:
    """Writes to a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_open = ""
        """What the line that is not ended yet belongs to: "said" or "thought"."""
        self._status = console.status("waiting for the model")

    def say(self, text: str, style: str = "") -> None:
        """A line of the program's own."""
        self.end_line()
        self._console.print(Text(escape_for_terminal(text), style), soft_wrap=True)

    def table(self, rows: list[tuple[str, str]]) -> None:
        """Names, and what there is to say of them."""
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        for name, about in rows:
            table.add_row(Text(escape_for_terminal(name), "bold"), Text(escape_for_terminal(about)))
        self._console.print(table)

    def wait(self) -> None:
        """Nothing has come yet."""
        if self._console.is_terminal:
            self._status.start()

    def stop_waiting(self) -> None:
        """Something has."""
        self._status.stop()

    def show(self, event: AgentEvent) -> None:
        """What has just happened."""
        self.stop_waiting()
        match event:
            case TextDelta():
                self._write(event.text, "said", "")
            case ReasoningDelta():
                self._write(event.text, "thought", "dim italic")
            case CallMade():
                self.say(f"● {event.call.name}({summary(event.call.arguments)})", "cyan")
            case ResultGiven():
                self._result(event)
            case Note() if event.code in _SHOWN_NOTES:
                self.say(f"  ({event.message})", "dim")
            case Done():
                self._done(event)
            case ApprovalAsked() | Note():
                pass

    def end_line(self) -> None:
        """End the line that is open, if there is one."""
        if self._is_open:
            self._console.print()
        self._is_open = ""

    def question(self, question: Question, *, whole: bool = False) -> bool:
        """What somebody is asked about a call; whether there is more of it than is shown."""
        lines = [line for pair in question.arguments.items() for line in _lines(*pair)]
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

    def _write(self, text: str, whose: str, style: str) -> None:
        if self._is_open and self._is_open != whose:
            self.end_line()
        self._is_open = whose
        self._console.print(Text(escape_for_terminal(text), style), end="", soft_wrap=True)

    def _result(self, event: ResultGiven) -> None:
        self.end_line()
        is_error = event.result.is_error
        took = f" {event.seconds:.1f} s" if event.seconds >= 0.1 else ""
        title = f"{escape_for_terminal(event.call.name)} {'✗' if is_error else '✓'}{took}"
        shown = Text(escape_for_terminal(shortened(event.shown)))
        style = "red" if is_error else "green"
        self._console.print(Panel(shown, title=Text(title), title_align="left", border_style=style))

    def _done(self, event: Done) -> None:
        self.end_line()
        run = event.run
        if run.stop != "answer":
            self.say(f"({run.why})", "yellow")
        elif not run.text:
            self.say("(the model has said nothing)", "yellow")


def _lines(key: str, value: Any) -> list[str]:
    """An argument as it is: JSON, or a text of several lines, each behind a bar that no text can
    have made."""
    name = summary({key: None}).removesuffix(": null")
    if not isinstance(value, str) or "\n" not in value:
        return [f"{name}: {json.dumps(value, ensure_ascii=False)}"]
    return [f"{name}:", *(f"  ┃ {line}" for line in value.split("\n"))]


def shortened(text: str) -> str:
    """The beginning of a long text, and how much is left out."""
    lines = text[:_MOST_CHARACTERS].splitlines()[:_MOST_LINES]
    kept = "\n".join(lines)
    left = len(text) - len(kept)
    return f"{kept}\n… {left} more characters" if left > 20 else text
