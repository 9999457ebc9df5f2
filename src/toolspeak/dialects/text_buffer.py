"""The text that has arrived: how far it was read, and what is held so that it can be given back.

Everything here that waits for more text is a generator: it yields while it waits, and `append` was
called before it resumes. So the control flow is the state, and every character is read once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Protocol, TypeVar

from .marker_table import MarkerSet, MarkerSetPair

_SPACE = re.compile(r"[\s\ufeff]*+")
_Result = TypeVar("_Result")

Reading = Generator[None, None, _Result]
"""Reads from the buffer and returns a result; yields whenever it needs more text."""


class HeldTooLong(Exception):
    """More text is held than a call may have. Never leaves the parser."""


class Scanner(Protocol):
    """Finds the end of one value; see `value_scanners`."""

    state: int

    def step(self, text: str, at: int) -> int:
        """Scan on from `at`; return the position where scanning stopped."""
        ...


class TextBuffer:
    """A window on the text: `text[position:]` is unread. Both may change at every `yield`."""

    __slots__ = (
        "_held_chunks",
        "_held_size",
        "_hold_start",
        "active_scanner",
        "furthest",
        "is_final",
        "max_held_length",
        "pending_search",
        "position",
        "text",
        "text_offset",
        "undecodable_text",
    )

    def __init__(self, max_held_length: int) -> None:
        self.max_held_length = max_held_length
        self.text = ""
        self.position = 0
        self.is_final = False
        """No more text will arrive."""
        self.text_offset = 0
        """Offset of `text` in the whole reply."""
        self.furthest = 0
        """Offset in the whole reply up to which text was read before it was given back."""
        self.active_scanner: Scanner | None = None
        """The scanner that waits for more text, while only the end of a value is awaited."""
        self.pending_search: tuple[MarkerSet | MarkerSetPair, Callable[[str], None]] | None = None
        """The markers searched for and where the text before them goes, while nothing is held."""
        self.undecodable_text = ""
        """The text that the JSON decoder failed on last: decoding it again would fail too."""
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

    def held_extent(self) -> int:
        """Return how far beyond `hold` any text was read, even if it was given back since."""
        here = self.text_offset + self.position
        return max(self.furthest, here) - here + self.held_length()

    def is_held_too_long(self) -> bool:
        return self.held_extent() > self.max_held_length

    def held_text(self) -> str:
        """Return the text that was read since `hold`."""
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
        """Run `steps`; raise `HeldTooLong` when it holds more text than a call may have."""
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return stop.value
            if self.held_length() > self.max_held_length:
                steps.close()
                raise HeldTooLong
            yield

    # Reading: each method returns when its result is certain, however the text is chunked.

    def find_marker(
        self, markers: MarkerSet | MarkerSetPair, let_go: Callable[[str], None]
    ) -> Reading[str]:
        """Pass the text before the next marker to `let_go`; return the marker, unread, or ""."""
        while True:
            text, position = self.text, self.position
            match = markers.search(text, position)
            settled = len(text) if self.is_final else markers.settled_end(text, position)
            if match and (match.start() < settled or self.is_final):
                let_go(text[position : match.start()])
                self.position = match.start()
                return match[0]
            let_go(text[position:settled])
            self.position = settled
            if self.is_final:
                return ""
            self.pending_search = (markers, let_go) if settled == len(text) else None
            yield
            self.pending_search = None

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
            match = markers.pattern.search(self.text, self.position)
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

    def match_marker(self, markers: MarkerSet) -> Reading[re.Match[str] | None]:
        """Return the match of the longest marker that comes next, unread, or None."""
        while not self.is_final and markers.may_continue(self.text, self.position):
            yield
        return markers.pattern.match(self.text, self.position)

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

    def peek(self) -> Reading[str]:
        """Return the next character, unread; "" at the end."""
        while self.position >= len(self.text) and not self.is_final:
            yield
        return self.text[self.position : self.position + 1]
