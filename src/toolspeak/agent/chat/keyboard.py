"""What somebody types: lines at a terminal, with their history, or the lines of a pipe."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..threads import in_thread

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
        self._piped = _Pipe()

    async def line(self) -> str | None:
        """The next line; None if there is none any more."""
        if not self.is_terminal:
            return await in_thread(self._piped.line)
        try:
            return await self._prompts().prompt_async(_PROMPT, handle_sigint=False)
        except EOFError:
            return None
        except KeyboardInterrupt:
            raise Interrupted from None

    async def answer(self, words: str) -> str:
        """What somebody says to a question; "" if they say nothing."""
        from prompt_toolkit import PromptSession

        _forget_typed()
        try:
            # Answers to questions are no lines to come back to.
            return await PromptSession[str]().prompt_async(words, handle_sigint=False)
        except EOFError:
            return ""
        except KeyboardInterrupt:
            raise Interrupted from None

    def _prompts(self) -> PromptSession[str]:
        if self._session is None:
            from prompt_toolkit import PromptSession
            from prompt_toolkit.history import FileHistory, InMemoryHistory

            file = _writable(self._history)
            history = FileHistory(str(file)) if file else InMemoryHistory()
            self._session = PromptSession(history=history)
        return self._session


class _Pipe:
    """The lines of standard input, in whatever encoding they are. Python's own buffer is not used:
    a thread that waits for more would keep it locked when the program ends."""

    def __init__(self) -> None:
        self._left = b""

    def line(self) -> str | None:
        """The next line; None if there is none any more."""
        while b"\n" not in self._left:
            data = os.read(0, 65_536)
            if not data:
                break
            self._left += data
        if not self._left:
            return None
        line, _, self._left = self._left.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")


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
