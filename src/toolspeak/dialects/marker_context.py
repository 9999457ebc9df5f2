"""What the text around a marker says of it: whether it is a call, or only shown or mentioned."""

from __future__ import annotations

import re
from functools import lru_cache

from ..types import Trust
from .call_sink import CallSink, CallTooLong
from .marker_table import Marker
from .template import EXAMPLE_CONCLUSIONS, EXAMPLE_INTRODUCTIONS
from .text_buffer import Found

_DEFINES = re.compile(r"\b(?:def|class|fn|func|function)\s+\Z")
_NOT_RUN = re.compile(
    r"(?:#|//)[^\n]*\Z"
    r"|\n[ \t]*(?:async |if|elif|else|for|while|try|except|finally|with|def|class|return)\b[^\n]*\Z"
    r"|[:{][ \t]*\n(?:[ \t]+[^\n]*\n|\n)*+[ \t]+[^\n]*\Z"
)
"""Code before a call that is a comment, or that leaves open whether the call is ever made."""
_IN_BLOCK = re.compile(
    r"(?:\A|\n)[ \t]*(?:async |if|elif|else|for|while|try|except|finally|with|def|class)\b[^\n]*:"
    r"[ \t]*\n(?:[ \t]+[^\n]*\n|\n)*+[ \t]+\Z"
)
"""The same in no fence: an indented line below one that opens a block."""
_INSIDE = r"""[A-Za-z_]\w*\((?:[^()\n"']|"[^"\n]*"|'[^'\n]*')*"""
_QUOTED = re.compile(rf"""{_INSIDE}["'][^()\n]*\Z""")
_ARGUMENT = re.compile(rf"""{_INSIDE}(?:["'][^()\n]*|=\s*)\Z""")
"""The beginning of some call: what follows stands in a text that is its argument, or is one."""
_BEGINS, _ENDS = (
    "|".join(map(re.escape, words)) for words in (EXAMPLE_INTRODUCTIONS, EXAMPLE_CONCLUSIONS)
)
_RECITED = re.compile(rf"(?:{_BEGINS})(?!.*(?:{_ENDS}))", re.S)
"""The words with which a prompt begins to show calls, and not those with which it ends."""
_ANNOUNCED = re.compile(
    r"(?:\b(?:examples?|instance|e\.g\.|beispiele?|exemples?|ejemplos?|esempi[oi]?|exemplos?|voorbeeld"
    r"|примеру?|например)|例如|比如|举例|例えば|例|예시|예를 들어)[ \t]*[:：]\s*\Z",
    re.I,
)
"""Words behind which something is shown, and not done: `For example:`."""
_ADDRESS = re.compile(r"[A-Za-z]://[^\s\"'<>()]*\Z")
"""The beginning of a URL: what follows is part of it."""
_BRACKETS = ("{", "[")
_LONGEST_MARK = 64
_HTML = {
    "!--": re.compile("<!--|-->"),
    "code": re.compile("</?code", re.I),
    "pre": re.compile("</?pre", re.I),
}
"""What opens and closes elements that show code, and comments."""
_CLOSES = ("</", "--")


class MarkerContext:
    """Looks at what was said before a marker, and behind it where need be."""

    def __init__(self, sink: CallSink, trust: Trust) -> None:
        self._sink = sink
        self._buffer = sink.buffer
        self._writer = sink.writer
        self._trust = trust
        self._example_end = -1
        """Where in the whole text the last example that was announced has ended."""

    def is_mention(self, literal: str) -> bool:
        """Whether what begins here is part of a URL or an argument of something else; or code
        defines it, has it in a comment, or behind a condition."""
        tail = self._writer.tail
        if _ADDRESS.search(tail):
            return True
        if literal in _BRACKETS:
            return _ARGUMENT.search(tail) is not None
        if _DEFINES.search(tail) or _QUOTED.search(tail):
            return True
        not_run = _NOT_RUN if self._writer.code_spans.fence else _IN_BLOCK
        return not_run.search(tail) is not None

    def is_shown(self, literal: str, marker: Marker) -> Found:
        """Whether a call that begins here is only shown: it stands in inline code, in a fence or in
        HTML for code, or is recited from the prompt. A fence that is all of the reply is dealt with
        before."""
        if self._trust == "lenient":
            return False
        if _RECITED.search(self._writer.tail):
            where = "behind the words with which a prompt shows it"
        elif (yield from self.is_code(marker)):
            where = "inside of code"
        else:
            return False
        self._writer.add_note("example", f"{literal} stands {where}: it is an example", literal)
        return True

    def is_announced_example(self) -> bool:
        """Whether what begins here is an example: words say so right before it, or it follows on
        another one, as several do in a row."""
        if self._trust == "lenient":
            return False
        tail, between = self._writer.tail, self._place() - self._example_end
        if (
            self._example_end >= 0
            and between <= len(tail)
            and not tail[len(tail) - between :].strip()
        ):
            return True
        return _ANNOUNCED.search(tail) is not None

    def end_example(self, size: int = 0) -> None:
        """An example ends so far from here."""
        self._example_end = self._place() + size

    def _place(self) -> int:
        return self._buffer.text_offset + self._buffer.position

    def is_code(self, marker: Marker) -> Found:
        """Whether the text has come to a place inside of code. Backticks that are not paired before
        the end of their paragraph are no more than that."""
        code = self._writer.code_spans
        inside = code.is_inside()
        if inside and (ticks := code.undecided_backticks()):
            inside = yield from self._is_paired(ticks, marker)
            code.settle_backticks(paired=inside)
        if not inside and code.html:
            inside = code.html_is_closed or (yield from self._is_html_closed(code.html))
            code.settle_html(closed=inside)
        return inside

    def _is_html_closed(self, element: str) -> Found:
        """Whether an element that was opened is closed, before another one like it is opened."""
        buffer = self._buffer
        buffer.hold()
        found = ""
        try:
            tags = buffer.read_through(_HTML[element], len(element) + 2)
            found = yield from self._sink.limit_length(tags)
        except CallTooLong:
            pass
        closed = found.startswith(_CLOSES) or buffer.held_length() > self._sink.max_call_length
        buffer.restore()
        return closed

    def _is_paired(self, ticks: str, marker: Marker) -> Found:
        """Whether the backticks come again. What the marker begins has no part in where the
        paragraph ends."""
        buffer = self._buffer
        ends = _closers_of(marker)
        marks = _paragraph_marks(ends)
        buffer.hold()
        found, over = "", not ends
        try:
            while found != ticks and not (over and found[:1] == "\n"):
                found = yield from self._sink.limit_length(
                    buffer.read_through(marks, _LONGEST_MARK)
                )
                over = over or found in ends
                if not found:
                    break
        except CallTooLong:
            pass
        paired = found == ticks or buffer.held_length() > self._sink.max_call_length
        buffer.restore()
        return paired


def _closers_of(marker: Marker) -> tuple[str, ...]:
    """What may end that which a marker begins."""
    closers = (closer for form in marker.forms for closer in form.all_closers)
    frames = (
        end
        for dialect in marker.framed_dialects
        if dialect.message_frame
        for end in dialect.message_frame.message_ends
    )
    ends = (*closers, *frames, marker.reasoning_closer, marker.result_closer)
    return tuple(dict.fromkeys(end for end in ends if end and "`" not in end and "$" not in end))


@lru_cache(maxsize=256)
def _paragraph_marks(ends: tuple[str, ...]) -> re.Pattern[str]:
    """What to look for to know whether backticks are paired."""
    return re.compile("|".join(["`+", r"\n[ \t\r]{0,16}\n", *map(re.escape, ends)]))
