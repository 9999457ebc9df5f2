"""What somebody types: lines at a terminal, with their history, or the lines of a pipe."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..agent import Answer, Question, answer_of
from ..agent.threads import in_thread

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

_PROMPT = "› "
_ONCE_OR_ALWAYS = "y)es, n)o, a)lways in this session: "
_ONCE = "y)es, n)o: "


class Interrupted(Exception):
    """Ctrl-C, at a line that is being typed."""


class Keyboard:
    """Reads from whoever is there."""

    def __init__(self, history: Path | None = None) -> None:
        self.is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._history = history
        self._session: PromptSession[str] | None = None

    async def line(self) -> str | None:
        """The next line; None if there is none any more."""
        if not self.is_terminal:
            line = await in_thread(_read_line)
            return line.rstrip("\r\n") if line else None
        try:
            return await self._prompts().prompt_async(_PROMPT, handle_sigint=False)
        except EOFError:
            return None
        except KeyboardInterrupt:
            raise Interrupted from None

    async def approve(self, question: Question) -> Answer:
        """What somebody says to a question. All but a clear yes is a no."""
        from prompt_toolkit import PromptSession

        words = _ONCE_OR_ALWAYS if question.can_last else _ONCE
        _forget_typed()
        try:
            # Answers to questions are no lines to come back to.
            said = await PromptSession[str]().prompt_async(words, handle_sigint=False)
        except EOFError:
            return "no"
        except KeyboardInterrupt:
            raise Interrupted from None
        return answer_of(said)

    def _prompts(self) -> PromptSession[str]:
        if self._session is None:
            from prompt_toolkit import PromptSession
            from prompt_toolkit.history import FileHistory, InMemoryHistory

            file = _writable(self._history)
            history = FileHistory(str(file)) if file else InMemoryHistory()
            self._session = PromptSession(history=history)
        return self._session


def _read_line() -> str:
    """A line of a pipe, in whatever encoding it is."""
    return sys.stdin.buffer.readline().decode("utf-8", "replace")


def _forget_typed() -> None:
    """What was typed before a question was seen is no answer to it."""
    with suppress(ImportError, OSError):
        import termios

        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def _writable(path: Path | None) -> Path | None:
    """The file for the history, which nobody else may read; None if there can be none."""
    if path is None:
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError:
        return None
    return path
