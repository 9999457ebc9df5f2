"""Where a value ends, found as its text arrives. Each scanner looks at every character once.

A scanner's `step(text, at)` reads on from `at` and returns where it stopped. `state` then tells:
`MORE` (it needs more text; what it left unread must come again), `DONE` or `BAD`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ..calls.lenient_json import MAX_DEPTH
from .text_buffer import Reading, Scanner, TextBuffer

NEED_MORE, COMPLETE, INVALID = 0, 1, 2

_STRING = re.compile(r'(?:[^"\\]++|\\.)*+', re.S)
_TOKEN = re.compile(r'[ \t\r\n]*+(?:(["{}\[\]:,])|([-+.\w]++))?')
_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_LONGEST_SCALAR = 4000

# What a JSON text may go on with.
_VALUE, _FIRST_ITEM, _FIRST_KEY, _KEY, _COLON, _NEXT = range(6)


class JsonScanner:
    """One JSON object or list. Stops at the first character that JSON does not allow there, except
    that line breaks may stand raw inside strings, as models often write them."""

    __slots__ = ("_expect", "_stack", "in_string", "is_paused", "pauses_after_member", "state")

    def __init__(self) -> None:
        self.state = NEED_MORE
        self._expect = _VALUE
        self.in_string = False
        self._stack: list[str] = []
        self.pauses_after_member = False
        """Stop each time an object or list directly inside the outermost one ends."""
        self.is_paused = False
        """It has just stopped there."""

    def step(self, text: str, at: int) -> int:
        end = len(text)
        self.is_paused = False
        while at < end:
            if self.in_string:
                at = _STRING.match(text, at).end()  # pyright: ignore[reportOptionalMemberAccess]
                if at == end or text[at] == "\\":
                    return at
                at += 1
                self.in_string = False
                self._expect = _COLON if self._expect in (_KEY, _FIRST_KEY) else _NEXT
                continue
            match = _TOKEN.match(text, at)
            assert match is not None
            mark, scalar = match.groups()
            if scalar is not None:
                if match.end() == end and len(scalar) <= _LONGEST_SCALAR:
                    return match.start(2)
                if not self._accept_scalar(scalar):
                    self.state = INVALID
                    return match.start(2)
                at = match.end()
            elif mark is None:
                if match.end() < end:
                    self.state = INVALID
                return match.end()
            elif not self._accept(mark):
                self.state = INVALID
                return match.start(1)
            else:
                at = match.end()
                if self.state == COMPLETE or self.is_paused:
                    return at
        return at

    def _accept_scalar(self, scalar: str) -> bool:
        if self._expect not in (_VALUE, _FIRST_ITEM) or not self._stack:
            return False
        self._expect = _NEXT
        return len(scalar) <= _LONGEST_SCALAR and _SCALAR.fullmatch(scalar) is not None

    def _accept(self, mark: str) -> bool:
        expect = self._expect
        if mark == '"':
            self.in_string = True
            return expect in (_VALUE, _FIRST_ITEM, _KEY, _FIRST_KEY) and bool(self._stack)
        if mark in "{[":
            self._stack.append(mark)
            self._expect = _FIRST_KEY if mark == "{" else _FIRST_ITEM
            return expect in (_VALUE, _FIRST_ITEM) and len(self._stack) <= MAX_DEPTH
        if mark in "}]":
            return self._close(mark)
        if mark == ":":
            self._expect = _VALUE
            return expect == _COLON
        self._expect = _KEY if self._stack and self._stack[-1] == "{" else _VALUE
        return expect == _NEXT and bool(self._stack)

    def _close(self, mark: str) -> bool:
        opened, first = ("{", _FIRST_KEY) if mark == "}" else ("[", _FIRST_ITEM)
        if self._expect not in (_NEXT, first) or not self._stack or self._stack.pop() != opened:
            return False
        self._expect = _NEXT
        self.is_paused = self.pauses_after_member and len(self._stack) == 1
        if not self._stack:
            self.state = COMPLETE
        return True


class StringScanner:
    """One JSON string."""

    __slots__ = ("_opened", "state")

    def __init__(self) -> None:
        self.state = NEED_MORE
        self._opened = False

    def step(self, text: str, at: int) -> int:
        if not self._opened and at < len(text):
            self._opened = True
            at += 1
        at = _STRING.match(text, at).end()  # pyright: ignore[reportOptionalMemberAccess]
        if at < len(text) and text[at] == '"':
            self.state = COMPLETE
            at += 1
        return at


_CLOSES = {"(": ")", "[": "]", "{": "}"}
_QUOTED = {quote: re.compile(rf"(?:[^{quote}\\]++|\\.)*+", re.S) for quote in "\"'"}


class BracketScanner:
    """Text in balanced brackets with strings in it, as in `(city="Oslo", days=[1, 2])`.

    Strings stand in `quote` tokens without escapes; with no token given, in Python's quotes. At
    `stop`, which stands in no string, it gives up.
    """

    __slots__ = ("_inside", "_quote", "_stack", "_stop", "_token", "state")

    def __init__(self, quote: str = "", stop: str = "") -> None:
        self.state = NEED_MORE
        self._stack: list[str] = []
        self._quote = quote
        self._stop = stop
        self._token = _bracket_token(quote, stop)
        self._inside = ""
        """The quote that will end the string we are in."""

    def step(self, text: str, at: int) -> int:
        end = len(text)
        while at < end and self.state == NEED_MORE:
            if self._inside:
                at, closed = self._string(text, at)
                if not closed:
                    return at
                self._inside = ""
                continue
            match = self._token.search(text, at)
            if match is None:
                return min(
                    _partial_token_start(text, at, self._quote),
                    _partial_token_start(text, at, self._stop),
                )
            at = match.start()
            mark = match[0]
            if mark == self._stop:
                self.state = INVALID
                return at
            if end - at < len(self._stop) and self._stop.startswith(text[at:]):
                return at
            if mark in _QUOTED:
                if end - at < 3 and text[at:] == mark * (end - at):
                    return at  # A string, an empty one, or the first of three quotes.
                mark = mark * 3 if text.startswith(mark * 3, at) else mark
            at += len(mark)
            self._accept(mark)
        return at

    def _accept(self, mark: str) -> None:
        if mark in _CLOSES:
            self._stack.append(_CLOSES[mark])
            if len(self._stack) > MAX_DEPTH:
                self.state = INVALID
        elif mark not in ")]}":
            self._inside = mark
        elif not self._stack or self._stack.pop() != mark:
            self.state = INVALID
        elif not self._stack:
            self.state = COMPLETE

    def _string(self, text: str, at: int) -> tuple[int, bool]:
        quote = self._inside
        if quote == self._quote:
            found = text.find(quote, at)
            return (
                (found + len(quote), True)
                if found >= 0
                else (_partial_token_start(text, at, quote), False)
            )
        while True:
            match = _QUOTED[quote[0]].match(text, at)
            at = match.end() if match else at
            if at == len(text) or text[at] == "\\":
                return at, False
            if text.startswith(quote, at):
                return at + len(quote), True
            if quote.startswith(text[at:]):
                return at, False
            at += 1


@lru_cache(maxsize=256)
def _bracket_token(quote: str, stop: str) -> re.Pattern[str]:
    """What a scanner has to look at. A marker counts before a bracket that it begins with."""
    strings = re.escape(quote) if quote else "[\"']"
    marker = f"{re.escape(stop)}|" if stop else ""
    return re.compile(rf"{marker}{strings}|[()\[\]{{}}]")


def _partial_token_start(text: str, at: int, token: str) -> int:
    """Where in `text[at:]` the token may have begun; the end if nowhere."""
    for start in range(max(at, len(text) - len(token) + 1), len(text)):
        if token.startswith(text[start:]):
            return start
    return len(text)


def run_scanner(buffer: TextBuffer, scanner: Scanner) -> Reading[int]:
    """Run a scanner to its end; MORE means that the text ended first."""
    while True:
        if scanner.state == NEED_MORE:
            buffer.position = scanner.step(buffer.text, buffer.position)
        if scanner.state != NEED_MORE:
            return scanner.state
        if buffer.is_final:
            buffer.position = len(buffer.text)
            return NEED_MORE
        buffer.active_scanner = scanner
        yield
        buffer.active_scanner = None
