"""Whether a text has come to a place inside inline code or a code fence.

A call that is shown there is an example, not an action.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(r"`+|~{3,}|~+|\n|[^`~\n]+")
_FENCE_TICKS = 3
_MOST_TICKS = 2
"""How many backticks are left unpaired by mistake."""


class CodeSpans:
    """Follows a text, however it is cut into pieces."""

    __slots__ = ("_blank", "_inline", "_paired", "_run", "_run_begins_line", "fence")

    def __init__(self) -> None:
        self.fence = ""
        """The marks that opened the fence we are in."""
        self._inline = 0
        """How many backticks opened the inline code we are in. It ends with its line, because
        models leave backticks unpaired, unless it is known to have an end."""
        self._paired = False
        self._blank = True
        """Nothing but white space stands on this line so far."""
        self._run = ""
        """Marks that may go on in the next piece."""
        self._run_begins_line = False

    def add(self, text: str) -> None:
        """More text."""
        if not self._run and not self._inline and "`" not in text and "~" not in text:
            self._plain(text)
            return
        for token in _TOKEN.findall(text):
            if self._run and self._goes_on(token):
                self._run += token
                continue
            self._end_run(before_text=token.strip()[:1].isalnum())
            if token[0] in "`~":
                self._run, self._run_begins_line = token, self._blank
            else:
                self._plain(token)

    def inside(self) -> bool:
        """Whether the text has come to a place inside of code. Code that begins right here is taken
        at its word, even if the text is cut off before its end."""
        outside = not self._inline
        self._end_run(before_text=False)
        self._paired = self._paired or (outside and self._inline > 0)
        return bool(self.fence or self._inline)

    def in_question(self) -> str:
        """The backticks before here that open inline code only if they are paired later on."""
        known = self.fence or self._paired or self._inline > _MOST_TICKS
        return "" if known else "`" * self._inline

    def settle(self, *, paired: bool) -> None:
        """What was in question is code, or is just a backtick."""
        self._paired = paired
        self._inline = self._inline if paired else 0

    def _goes_on(self, token: str) -> bool:
        """Whether a token belongs to the marks before it: more of them, or space that may be all
        that follows a fence on its line."""
        if token[0] in "`~":
            return token[0] == self._run[-1]
        fence = self._run_begins_line and len(self._run) >= _FENCE_TICKS
        return fence and token.isspace() and "\n" not in token

    def _plain(self, text: str) -> None:
        _, newline, last = text.rpartition("\n")
        if newline and not self._paired:
            self._inline = 0
        if newline or last.strip():
            self._blank = not last.strip()

    def _end_run(self, *, before_text: bool) -> None:
        run, self._run = self._run.rstrip(), ""
        if not run:
            return
        if len(run) >= _FENCE_TICKS and self._run_begins_line:
            if not self.fence:
                self.fence = run
            elif run.startswith(self.fence) and not before_text:
                self.fence = ""
        elif run[0] == "`" and not self.fence:
            self._paired = self._paired and self._inline != len(run)
            self._inline = 0 if self._inline == len(run) else self._inline or len(run)
        self._blank = False
