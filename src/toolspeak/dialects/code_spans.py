"""Follows a text and knows whether it has come to code: inline, in a fence, or in HTML for code.

tracker = CodeSpanTracker()
tracker.append("Write `<tool_call>")
tracker.is_inside()                   # True
"""

from __future__ import annotations

import re

_TOKEN = re.compile(r"`+|~{3,}|~+|\n|[<>]|[^`~\n<>]+")
_FENCE_TICKS = 3
_MAX_UNPAIRED_TICKS = 2
"""Models leave at most this many backticks unpaired."""
_CONTAINERS = re.compile(r"[^\S\n]*+(?:(?:>|(?:[-*+]|\d{1,9}[.)])(?=[^\S\n]))[^\S\n]*+)*+")
"""The marks of quotes and lists, which may stand before a fence."""
_BEGINS_CONTAINERS = re.compile(rf"{_CONTAINERS.pattern}(?:[-*+]|\d{{1,9}}[.)]?)?")
_MAX_PREFIX_LENGTH = 100
_CODE_TAG = re.compile(r"(code|pre)(?:\s.*)?", re.I)
_MAX_TAG_LENGTH = 200
_DATA_LABEL = re.compile(r"\s*(?:json\w*|action|invoke|[\w-]*(?:tool|call)[\w-]*)?(?:\s.*)?", re.I)
_COMMENT = "!--"
_COMMENT_END = "--"


class CodeSpanTracker:
    """Follows a text, however it is chunked, and knows whether it has come to code."""

    def __init__(self) -> None:
        self.fence = ""
        """The backticks or tildes that opened the current fence."""
        self._quoted = False
        """The fence is in a block quote, and so is its end."""
        self._fence_is_new = False
        """The fence was opened on this line."""
        self._fence_label = ""
        """The rest of that line."""
        self._inline = 0
        """The number of backticks that opened the inline code.

        It ends with its line unless it is known to be closed: models leave backticks unpaired.
        """
        self._paired = False
        self._line: str | None = ""
        """The current line, while a fence may begin on it."""
        self._run = ""
        """Backticks or tildes that may continue in the next chunk."""
        self._run_after: str | None = None
        """The text before them on their line, if they may be a fence."""
        self.html = ""
        """The open element that shows code, or `!--` for a comment."""
        self.html_is_closed = False
        """The element is known to be closed later."""
        self._tag: str | None = None
        """A tag that may continue in the next chunk, without its `<`."""
        self._comment_tail = ""
        """The last characters of the comment."""

    def append(self, text: str) -> None:
        marked = "`" in text or "<" in text or "~" in text
        if not (marked or self._run or self._inline or self.html) and self._tag is None:
            self._follow_plain(text)
            return
        for token in _TOKEN.findall(text):
            if self._run and self._continues_run(token):
                self._run += token
                continue
            self._end_run(before_text=token.strip()[:1].isalnum())
            self._follow_tag(token)
            if token[0] in "`~":
                self._run, self._run_after = token, self._fence_prefix()
            else:
                self._follow_plain(token)

    def is_inside(self) -> bool:
        """Return True if the text has come to a place inside a fence or inline code.

        The text is inside code that begins right here, even if the text ends before it is closed.
        """
        outside = not self._inline
        self._end_run(before_text=False)
        self._paired = self._paired or (outside and self._inline > 0)
        return bool(self.fence or self._inline)

    def is_in_data_fence(self) -> bool:
        """Return True inside a fence whose label names no programming language; not in a quote."""
        is_data = _DATA_LABEL.fullmatch(self._fence_label) is not None
        return bool(self.fence) and is_data and not self._quoted

    def undecided_backticks(self) -> str:
        """Return the backticks that open inline code only if they are paired later."""
        known = self.fence or self._paired or self._inline > _MAX_UNPAIRED_TICKS
        return "" if known else "`" * self._inline

    def settle_backticks(self, *, paired: bool) -> None:
        """Record whether the undecided backticks open inline code or are just backticks."""
        self._paired = paired
        self._inline = self._inline if paired else 0

    def settle_html(self, *, closed: bool) -> None:
        """Record whether the open element is closed later or is only mentioned."""
        self.html = self.html if closed else ""
        self.html_is_closed = closed

    # Tags; those inside code do not count.

    def _follow_tag(self, piece: str) -> None:
        if self.html == _COMMENT:
            if piece == ">" and self._comment_tail == _COMMENT_END:
                self.settle_html(closed=False)
            self._comment_tail = (self._comment_tail + piece)[-len(_COMMENT_END) :]
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
                self.html, self._comment_tail = _COMMENT, self._tag[len(_COMMENT) :][-2:]
                self._tag = None
            elif len(self._tag) > _MAX_TAG_LENGTH:
                self._tag = None

    def _end_tag(self, tag: str) -> None:
        if self.html:
            if tag.rstrip().lower() == f"/{self.html}":
                self.settle_html(closed=False)
        elif (match := _CODE_TAG.fullmatch(tag)) and not tag.endswith("/"):
            self.html = match[1].lower()

    # Backticks and tildes.

    def _continues_run(self, token: str) -> bool:
        """Return True if a token continues the marks: more of them, or space after a fence."""
        if token[0] in "`~":
            return token[0] == self._run[-1]
        fence = self._run_after is not None and len(self._run) >= _FENCE_TICKS
        return fence and token.isspace() and "\n" not in token

    def _follow_plain(self, text: str) -> None:
        last = text
        if self._fence_is_new:
            self._fence_label += text.split("\n", 1)[0]
        if "\n" in text:
            last = text[text.rindex("\n") + 1 :]
            self._inline = self._inline if self._paired else 0
            self._fence_is_new = False
            self._line = ""
        if self._line is None or not last:
            return
        line = self._line + last
        if not line.strip():
            self._line = line[:_MAX_PREFIX_LENGTH]
        elif len(line) <= _MAX_PREFIX_LENGTH and _BEGINS_CONTAINERS.fullmatch(line):
            self._line = line
        else:
            self._line = None

    def _fence_prefix(self) -> str | None:
        """Return the line so far if it holds only the marks of quotes and lists, else None."""
        is_prefix = self._line is not None and _CONTAINERS.fullmatch(self._line)
        return self._line if is_prefix else None

    def _end_run(self, *, before_text: bool) -> None:
        run, self._run = self._run.rstrip(), ""
        if not run:
            return
        prefix, self._line = self._run_after, None
        if self.fence and self._fence_is_new and run[0] == self.fence[0] == "`":
            # A fence has no more backticks on its line: it was inline code.
            self._inline = 0 if len(run) == len(self.fence) else len(self.fence)
            self.fence = ""
        elif len(run) >= _FENCE_TICKS and prefix is not None:
            self._handle_fence_marks(run, prefix, before_text=before_text)
        elif run[0] == "`" and not self.fence:
            self._paired = self._paired and self._inline != len(run)
            self._inline = 0 if self._inline == len(run) else self._inline or len(run)

    def _handle_fence_marks(self, run: str, prefix: str, *, before_text: bool) -> None:
        """Handle marks that begin or end a fence; the end of one does not begin a list item."""
        if not self.fence:
            self.fence, self._quoted, self._fence_is_new = run, ">" in prefix, True
            self._fence_label = ""
        elif run.startswith(self.fence) and not before_text:
            marks = prefix.replace(">", "") if self._quoted else prefix
            self.fence = self.fence if marks.strip() else ""
