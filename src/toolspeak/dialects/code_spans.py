"""Whether a text has come to a place inside inline code, a code fence or an HTML element for code.

A call that is shown there is an example, not an action.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(r"`+|~{3,}|~+|\n|[<>]|[^`~\n<>]+")
_FENCE_TICKS = 3
_MOST_TICKS = 2
"""How many backticks are left unpaired by mistake."""
_CONTAINERS = re.compile(r"[^\S\n]*+(?:(?:>|(?:[-*+]|\d{1,9}[.)])(?=[^\S\n]))[^\S\n]*+)*+")
"""What may stand before a fence: the marks of quotes and lists."""
_BEGINS_CONTAINERS = re.compile(rf"{_CONTAINERS.pattern}(?:[-*+]|\d{{1,9}}[.)]?)?")
_LONGEST_PREFIX = 100
_CODE_TAG = re.compile(r"(code|pre)(?:\s.*)?", re.I)
_LONGEST_TAG = 200
_COMMENT = "!--"
_ENDS_COMMENT = "--"


class CodeSpanTracker:
    """Follows a text, however it is cut into pieces."""

    __slots__ = (
        "_fence_is_new",
        "_inline",
        "_line",
        "_paired",
        "_quoted",
        "_run",
        "_run_after",
        "_tag",
        "_tail",
        "fence",
        "html",
        "html_is_closed",
    )

    def __init__(self) -> None:
        self.fence = ""
        """The marks that opened the fence we are in."""
        self._quoted = False
        """The fence stands in a quote, and so does its end."""
        self._fence_is_new = False
        """The fence was opened on this line."""
        self._inline = 0
        """How many backticks opened the inline code we are in. It ends with its line, because
        models leave backticks unpaired, unless it is known to have an end."""
        self._paired = False
        self._line: str | None = ""
        """This line so far, while a fence may begin on it."""
        self._run = ""
        """Marks that may go on in the next piece."""
        self._run_after: str | None = None
        """What stands before these marks on their line, if they may be a fence."""
        self.html = ""
        """The element that was opened last and shows code, or `!--`, if it is not closed yet."""
        self.html_is_closed = False
        """It is known to have an end."""
        self._tag: str | None = None
        """A tag that may go on in the next piece, without its bracket."""
        self._tail = ""
        """The end of a comment so far."""

    def append(self, text: str) -> None:
        """More text."""
        marked = "`" in text or "<" in text or "~" in text
        if not (marked or self._run or self._inline or self.html) and self._tag is None:
            self._plain(text)
            return
        for token in _TOKEN.findall(text):
            if self._run and self._goes_on(token):
                self._run += token
                continue
            self._end_run(before_text=token.strip()[:1].isalnum())
            self._follow_tag(token)
            if token[0] in "`~":
                self._run, self._run_after = token, self._prefix()
            else:
                self._plain(token)

    def is_inside(self) -> bool:
        """Whether the text has come to a place inside a fence or inline code. Code that begins
        right here is taken at its word, even if the text is cut off before its end."""
        outside = not self._inline
        self._end_run(before_text=False)
        self._paired = self._paired or (outside and self._inline > 0)
        return bool(self.fence or self._inline)

    def undecided_backticks(self) -> str:
        """The backticks before here that open inline code only if they are paired later on."""
        known = self.fence or self._paired or self._inline > _MOST_TICKS
        return "" if known else "`" * self._inline

    def settle_backticks(self, *, paired: bool) -> None:
        """What was in question is code, or is just a backtick."""
        self._paired = paired
        self._inline = self._inline if paired else 0

    def settle_html(self, *, closed: bool) -> None:
        """The element that was opened has an end, or is only spoken of."""
        self.html = self.html if closed else ""
        self.html_is_closed = closed

    # Tags: whatever is marked as code is none.

    def _follow_tag(self, piece: str) -> None:
        if self.html == _COMMENT:
            if piece == ">" and self._tail == _ENDS_COMMENT:
                self.settle_html(closed=False)
            self._tail = (self._tail + piece)[-len(_ENDS_COMMENT) :]
        elif piece == "<":
            self._tag = None if self.fence or self._inline else ""
        elif self._tag is None:
            return
        elif piece[0] in "`~\n":
            self._tag = None
        elif piece == ">":
            self._end_tag(self._tag)
            self._tag = None
        else:
            self._tag += piece
            if not self.html and self._tag.startswith(_COMMENT):
                self.html, self._tail = _COMMENT, self._tag[len(_COMMENT) :][-2:]
                self._tag = None
            elif len(self._tag) > _LONGEST_TAG:
                self._tag = None

    def _end_tag(self, tag: str) -> None:
        if self.html:
            if tag.rstrip().lower() == f"/{self.html}":
                self.settle_html(closed=False)
        elif (match := _CODE_TAG.fullmatch(tag)) and not tag.endswith("/"):
            self.html = match[1].lower()

    # Backticks and tildes.

    def _goes_on(self, token: str) -> bool:
        """Whether a token belongs to the marks before it: more of them, or space that may be all
        that follows a fence on its line."""
        if token[0] in "`~":
            return token[0] == self._run[-1]
        fence = self._run_after is not None and len(self._run) >= _FENCE_TICKS
        return fence and token.isspace() and "\n" not in token

    def _plain(self, text: str) -> None:
        last = text
        if "\n" in text:
            last = text[text.rindex("\n") + 1 :]
            self._inline = self._inline if self._paired else 0
            self._fence_is_new = False
            self._line = ""
        if self._line is None or not last:
            return
        line = self._line + last
        if not line.strip():
            self._line = line[:_LONGEST_PREFIX]
        elif len(line) <= _LONGEST_PREFIX and _BEGINS_CONTAINERS.fullmatch(line):
            self._line = line
        else:
            self._line = None

    def _prefix(self) -> str | None:
        """What stands before here on its line, if it is nothing but the marks of quotes and
        lists."""
        is_prefix = self._line is not None and _CONTAINERS.fullmatch(self._line)
        return self._line if is_prefix else None

    def _end_run(self, *, before_text: bool) -> None:
        run, self._run = self._run.rstrip(), ""
        if not run:
            return
        prefix, self._line = self._run_after, None
        if self.fence and self._fence_is_new and run[0] == self.fence[0] == "`":
            # No fence has more backticks on its line: it was inline code.
            self._inline = 0 if len(run) == len(self.fence) else len(self.fence)
            self.fence = ""
        elif len(run) >= _FENCE_TICKS and prefix is not None:
            self._fence_mark(run, prefix, before_text=before_text)
        elif run[0] == "`" and not self.fence:
            self._paired = self._paired and self._inline != len(run)
            self._inline = 0 if self._inline == len(run) else self._inline or len(run)

    def _fence_mark(self, run: str, prefix: str, *, before_text: bool) -> None:
        """A mark that begins or ends a fence. What ends it begins no item of a list."""
        if not self.fence:
            self.fence, self._quoted, self._fence_is_new = run, ">" in prefix, True
        elif run.startswith(self.fence) and not before_text:
            marks = prefix.replace(">", "") if self._quoted else prefix
            self.fence = self.fence if marks.strip() else ""
