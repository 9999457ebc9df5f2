"""The text that has arrived: how far it was read, and what is held so that it can be given back.

Everything that waits for more text is a generator: it yields while it waits, and `append` is
called before it resumes. So the control flow is the state, and every character is read once.

A scanner finds the end of one value while its text arrives: JSON, a JSON string, or text in
brackets. It looks at every character once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Any, Literal, Protocol, TypeVar

from ..calls.lenient_json import MAX_DEPTH
from .markers import MarkerSet, first_match, marker_set

_SPACE = re.compile(r"[\s\ufeff]*+")
_SEPARATOR = re.compile(r"\s*+[,;]?+\s*+")
_MAX_SEPARATOR_LENGTH = 256
NEED_MORE, COMPLETE, INVALID = 0, 1, 2
"""States of a scanner."""
_NOT_SEARCHED = object()
_Result = TypeVar("_Result")

Reading = Generator[None, None, _Result]
"""Reads from the buffer and returns a result; yields whenever it needs more text."""


def read_now(steps: Reading[_Result]) -> _Result:
    """Return the result of steps that read text which has arrived whole."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


class HeldTooLong(Exception):
    """More text is held than a call may have. Never leaves the parser."""


class Scanner(Protocol):
    """Finds the end of one value."""

    state: int

    def step(self, text: str, at: int) -> int:
        """Scan on from `at`; return the position where scanning stopped.

        While the state is `NEED_MORE`, the text from there on must be passed again with more.
        """
        ...


class TextBuffer:
    """A window on the text: `text[position:]` is unread. Both may change at every `yield`."""

    def __init__(self, max_held_length: int) -> None:
        self.max_held_length = max_held_length
        self.text = ""
        self.position = 0
        self.is_final = False
        """No more text will arrive."""
        self.is_complete = True
        """The reply has not been cut off; known at the end."""
        self.text_offset = 0
        """Offset of `text` in the whole reply."""
        self.furthest = 0
        """Offset in the whole reply up to which text was read before it was given back."""
        self.active_scanner: Scanner | None = None
        """The scanner that waits for more text, while only the end of a value is awaited."""
        self.pending_search: tuple[MarkerSet, Callable[[str], None]] | None = None
        """The markers searched for and where the text before them goes, while nothing is held."""
        self.undecodable_text = ""
        """The text that the JSON decoder failed on last: decoding it again would fail too."""
        self._searched_text = ""
        self._found: dict[MarkerSet, Any] = {}
        """The next match of each part of a set of markers in `_searched_text`, or None."""
        self._held_chunks: list[str] | None = None
        self._held_size = 0
        self._hold_start = 0

    def append(self, chunk: str) -> None:
        """Add text that has arrived; drop what was read, unless it is held."""
        text, position = self.text, self.position
        if self._held_chunks is not None:
            self._held_chunks.append(text[self._hold_start : position])
            self._held_size += position - self._hold_start
            self._hold_start = 0
        self.text = text[position:] + chunk if position < len(text) else chunk
        self.text_offset += position
        self.position = 0

    @property
    def offset(self) -> int:
        """Offset of the read position in the whole reply."""
        return self.text_offset + self.position

    # Holding: text that is read after `hold` can be given back.

    def hold(self) -> None:
        """Hold everything that is read from here on."""
        self._held_chunks = []
        self._held_size = 0
        self._hold_start = self.position
        self.furthest = self.text_offset + self.position

    def held_length(self) -> int:
        """Return how much was read since `hold`."""
        return self._held_size + self.position - self._hold_start

    def is_held_too_long(self) -> bool:
        """Return True if more was read since `hold` than a call may have.

        Text counts even if it was given back since.
        """
        given_back = max(self.furthest - self.offset, 0)
        return given_back + self.held_length() > self.max_held_length

    def held_text(self) -> str:
        if not self._held_chunks:
            return self.text[self._hold_start : self.position]
        self._held_chunks = ["".join(self._held_chunks)]
        return self._held_chunks[0] + self.text[self._hold_start : self.position]

    def release(self) -> str:
        """Return the text that was read since `hold`, and hold it no longer."""
        text = self.held_text()
        self._held_chunks = None
        return text

    def seek(self, offset: int) -> None:
        """Move to `offset` characters after `hold`, and go on holding."""
        self.furthest = max(self.furthest, self.text_offset + self.position)
        if self._held_chunks:
            self.text = "".join(self._held_chunks) + self.text[self._hold_start :]
            self.text_offset -= self._held_size
            self._hold_start = 0
            self._held_chunks = []
            self._held_size = 0
        self.position = self._hold_start + offset

    def restore(self) -> None:
        """Give back everything that was read since `hold`, and hold no longer."""
        self.seek(0)
        self._held_chunks = None

    def limit(self, steps: Reading[_Result]) -> Reading[_Result]:
        """Return the result of `steps`; raise `HeldTooLong` if they read too much for a call."""
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                if self.held_length() <= self.max_held_length:
                    return stop.value
                raise HeldTooLong from None
            if self.held_length() > self.max_held_length:
                steps.close()
                raise HeldTooLong
            yield

    def look_ahead(self, steps: Reading[_Result]) -> Reading[_Result | None]:
        """Return the result of `steps`, unread; None if they read too much for a call."""
        self.hold()
        try:
            result = yield from self.limit(steps)
        except HeldTooLong:
            result = None
        self.restore()
        return result

    # Reading: each method returns when its result is certain, however the text is chunked.

    def find_marker(self, markers: MarkerSet, write_text: Callable[[str], None]) -> Reading[str]:
        """Pass the text before the next marker to `write_text`; return the marker, unread, or
        ""."""
        while True:
            text, position = self.text, self.position
            match = self._search(markers)
            settled = len(text) if self.is_final else markers.settled_end(text, position)
            if match and (match.start() < settled or self.is_final):
                write_text(text[position : match.start()])
                self.position = match.start()
                return match[0]
            write_text(text[position:settled])
            self.position = settled
            if self.is_final:
                return ""
            self.pending_search = (markers, write_text) if settled == len(text) else None
            yield
            self.pending_search = None

    def _search(self, markers: MarkerSet) -> re.Match[str] | None:
        """Return the first marker in the unread text. No part of the set is searched for twice."""
        if len(markers.parts) == 1:
            return markers.pattern.search(self.text, self.position)
        if self._searched_text is not self.text:
            self._searched_text, self._found = self.text, {}
        for part in markers.parts:
            known = self._found.get(part, _NOT_SEARCHED)
            if known is _NOT_SEARCHED or (known and known.start() < self.position):
                self._found[part] = part.pattern.search(self.text, self.position)
        return first_match(self._found[part] for part in markers.parts)

    def forward_chunk(self, chunk: str) -> bool:
        """Pass on the chunk that has just arrived if no marker can begin in it.

        Most chunks are such text: the parser's generator need not be resumed for them.
        """
        if not self.pending_search or not self.pending_search[0].cannot_begin_in(chunk):
            return False
        self.position = len(self.text)
        self.pending_search[1](chunk)
        return True

    def read_space(self) -> Reading[str]:
        """Read white space; return it once something else, or the end, follows."""
        found: list[str] = []
        while True:
            match = _SPACE.match(self.text, self.position)
            if match and match.end() > self.position:
                found.append(match[0])
                self.position = match.end()
            if self.position < len(self.text) or self.is_final:
                return "".join(found)
            yield

    def read_literal(self, literal: str) -> Reading[bool]:
        """Read exactly `literal`, or nothing."""
        while True:
            text, position = self.text, self.position
            if text.startswith(literal, position):
                self.position = position + len(literal)
                return True
            too_short = len(text) - position < len(literal)
            if self.is_final or not too_short or not literal.startswith(text[position:]):
                return False
            yield

    def read_run(
        self, pattern: re.Pattern[str], limit: int, is_viable: Callable[[str], bool] | None = None
    ) -> Reading[str | None]:
        """Read what `pattern` matches; None if it is longer than `limit` or not viable."""
        while True:
            match = pattern.match(self.text, self.position, self.position + limit + 1)
            end = match.end() if match else self.position
            is_too_long = end - self.position > limit
            if is_too_long or (is_viable and not is_viable(self.text[self.position : end])):
                return None
            if end < len(self.text) or self.is_final:
                found = self.text[self.position : end]
                self.position = end
                return found
            yield

    def read_through_marker(self, markers: MarkerSet, limit: int | None = None) -> Reading[str]:
        """Read through the first marker and return it; "" if there is none within `limit`."""
        start = self.text_offset + self.position
        while True:
            match = markers.search(self.text, self.position)
            if match and (self.is_final or not markers.may_continue(self.text, match.start())):
                self.position = match.end()
                return match[0]
            if self.is_final:
                self.position = len(self.text)
                return ""
            settled = match.start() if match else markers.settled_end(self.text, self.position)
            self.position = settled
            if limit is not None and self.text_offset + self.position - start > limit:
                return ""
            yield

    def read_until_marker(self, markers: MarkerSet) -> Reading[tuple[str, str]]:
        """Read held text up to the first marker; return the text, and the marker or ""."""
        start = self.held_length()
        found = yield from self.read_through_marker(markers)
        self.seek(self.held_length() - len(found))
        return self.held_text()[start:], found

    def match_marker(self, markers: MarkerSet) -> Reading[re.Match[str] | None]:
        """Return the match of the longest marker that comes next, unread, or None."""
        while not self.is_final and markers.may_continue(self.text, self.position):
            yield
        return markers.match(self.text, self.position)

    def read_through(self, pattern: re.Pattern[str], longest: int) -> Reading[str]:
        """Read through the first match of `pattern` and return it; "" if there is none.

        No match may be longer than `longest` characters.
        """
        while True:
            match = pattern.search(self.text, self.position)
            if match:
                is_whole = match.end() < len(self.text) or longest == len(match[0])
                if is_whole or self.is_final:
                    self.position = match.end()
                    return match[0]
            if self.is_final:
                self.position = len(self.text)
                return ""
            keep = match.start() if match else len(self.text) - longest + 1
            self.position = max(self.position, keep)
            yield

    def read_to_end(self) -> Reading[Literal[True]]:
        while True:
            self.position = len(self.text)
            if self.is_final:
                return True
            yield

    def peek(self) -> Reading[str]:
        """Return the next character, unread; "" at the end."""
        while self.position >= len(self.text) and not self.is_final:
            yield
        return self.text[self.position : self.position + 1]

    def peek_past_separator(self, wanted: str = "") -> Reading[str]:
        """Return the next character after white space and a separator; read up to `wanted`."""
        while True:
            limit = self.position + _MAX_SEPARATOR_LENGTH + 2
            match = _SEPARATOR.match(self.text, self.position, limit)
            end = match.end() if match else self.position
            is_too_long = end - self.position > _MAX_SEPARATOR_LENGTH
            if end < len(self.text) and not is_too_long:
                character = self.text[end]
                if character == wanted:
                    self.position = end
                return character
            if self.is_final or is_too_long:
                return ""
            yield

    def is_comma_next(self) -> bool:
        match = _SEPARATOR.match(self.text, self.position)
        return match is not None and "," in match[0]

    def is_next(self, literal: str) -> Reading[bool]:
        """Return True if `literal` comes next, unread."""
        found = yield from self.read_literal(literal)
        self.position -= len(literal) if found else 0
        return found

    def scan(self, scanner: Scanner) -> Reading[int]:
        """Read what a scanner reads; return its state, `NEED_MORE` if the text ends before."""
        while True:
            if scanner.state == NEED_MORE:
                self.position = scanner.step(self.text, self.position)
            if scanner.state != NEED_MORE:
                return scanner.state
            if self.is_final:
                self.position = len(self.text)
                return NEED_MORE
            self.active_scanner = scanner
            yield
            self.active_scanner = None


# Scanners.

_STRING = re.compile(r'(?:[^"\\]++|\\.)*+', re.S)
_TOKEN = re.compile(r'[ \t\r\n]*+(?:(["{}\[\]:,])|([-+.\w]++))?')
_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_LONGEST_SCALAR = 4000

# The tokens that may come next in a JSON text.
_VALUE, _FIRST_ITEM, _FIRST_KEY, _KEY, _COLON, _NEXT = range(6)


class JsonScanner:
    """Scans one object, list or string, up to the first character that JSON does not allow there.

    Line breaks may be unescaped inside strings: models often write them so.
    """

    __slots__ = ("_expect", "_stack", "in_string", "is_paused", "pauses_after_member", "state")

    def __init__(self) -> None:
        self.state = NEED_MORE
        self._expect = _VALUE
        self.in_string = False
        self._stack: list[str] = []
        self.pauses_after_member = False
        """Stop at the end of every object or list directly inside the outermost one."""
        self.is_paused = False
        """The last step stopped there."""

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
                if not self._stack:
                    self.state = COMPLETE
                    return at
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
            return expect in (_VALUE, _FIRST_ITEM, _KEY, _FIRST_KEY)
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


_CLOSES = {"(": ")", "[": "]", "{": "}"}
_QUOTED = {quote: re.compile(rf"(?:[^{quote}\\]++|\\.)*+", re.S) for quote in "\"'"}


class BracketScanner:
    """Scans balanced brackets with strings in them, as in `(city="Oslo", days=[1, 2])`.

    Strings are enclosed in `quote`, without escapes, or by default in Python's quotes. A `stop`
    outside of strings makes the text invalid.
    """

    __slots__ = ("_inside", "_pattern", "_quote", "_stack", "_stop", "_tokens", "state")

    def __init__(self, quote: str = "", stop: str = "") -> None:
        self.state = NEED_MORE
        self._stack: list[str] = []
        self._quote = quote
        self._stop = stop
        self._tokens = marker_set(tuple(filter(None, (quote, stop))))
        self._pattern = _bracket_pattern(quote, stop)
        self._inside = ""
        """The quote that ends the current string; "" outside of strings."""

    def step(self, text: str, at: int) -> int:
        end = len(text)
        while at < end and self.state == NEED_MORE:
            if self._inside:
                at, closed = self._skip_string(text, at)
                if not closed:
                    return at
                self._inside = ""
                continue
            match = self._pattern.search(text, at)
            if match is None:
                return self._tokens.settled_end(text, at)
            at = match.start()
            mark = match[0]
            if mark == self._stop:
                self.state = INVALID
                return at
            if self._tokens.may_continue(text, at):
                return at
            if mark in _QUOTED:
                if end - at < 3 and text[at:] == mark * (end - at):
                    return at  # It may become a string, an empty string or a triple quote.
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

    def _skip_string(self, text: str, at: int) -> tuple[int, bool]:
        """Return the end of the text that belongs to the string, and whether the string ends."""
        quote = self._inside
        if quote == self._quote:
            end = text.find(quote, at)
            if end < 0:
                return marker_set((quote,)).settled_end(text, at), False
            return end + len(quote), True
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
def _bracket_pattern(quote: str, stop: str) -> re.Pattern[str]:
    """Return a pattern for `stop`, strings and brackets; `stop` may begin with a bracket."""
    strings = re.escape(quote) if quote else "[\"']"
    marker = f"{re.escape(stop)}|" if stop else ""
    return re.compile(rf"{marker}{strings}|[()\[\]{{}}]")
