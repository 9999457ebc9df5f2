"""The text under the parser's eyes: what has arrived, how far it was read, what may be given back.

Everything here that has to wait for more text is a generator: it yields while it waits, and `add`
was called before it goes on. So the control flow is the state, and text is looked at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Protocol

from .marker_table import MarkerSet, MarkerSetPair

_SPACE = re.compile(r"[\s\ufeff]*+")

Steps = Generator[None, None, None]
"""Something that reads; it yields when it needs more text."""
Found = Generator[None, None, bool]
"""The same, and says in the end whether it found what it was looking for."""


class Scanner(Protocol):
    """Finds the end of one value; see `scan`."""

    state: int

    def step(self, text: str, at: int) -> int:
        """Read on from `at`; returns where it stopped."""
        ...


class TextBuffer:
    """A window on the text: `text[at:]` is unread. After every `yield`, both may be new."""

    __slots__ = (
        "_held_chunks",
        "_held_size",
        "_hold_start",
        "active_scanner",
        "furthest",
        "is_final",
        "pending_search",
        "position",
        "text",
        "text_offset",
        "undecodable_text",
    )

    def __init__(self) -> None:
        self.text = ""
        self.position = 0
        self.is_final = False
        self.text_offset = 0
        """Where in the whole text `text` begins."""
        self.furthest = 0
        """How far in the whole text anything was read before it was given back."""
        self.active_scanner: Scanner | None = None
        """What waits for more text, if it is only to find the end of a value."""
        self.pending_search: tuple[MarkerSet | MarkerSetPair, Callable[[str], None]] | None = None
        """What is looked for in the next text, and where all before that goes, while nothing is
        kept back."""
        self.undecodable_text = ""
        """A text that the JSON decoder could not read: it is not asked again about the same."""
        self._held_chunks: list[str] | None = None
        self._held_size = 0
        self._hold_start = 0

    def append(self, chunk: str) -> None:
        """More text has arrived."""
        text, at = self.text, self.position
        if self._held_chunks is not None:
            self._held_chunks.append(text[self._hold_start : at])
            self._held_size += at - self._hold_start
            self._hold_start = 0
        self.text = text[at:] + chunk if at < len(text) else chunk
        self.text_offset += at
        self.position = 0

    # Holding: from `hold` on, what is read can be given back.

    def hold(self) -> None:
        """Remember everything from here on."""
        self._held_chunks = []
        self._held_size = 0
        self._hold_start = self.position
        self.furthest = self.text_offset + self.position

    def held_length(self) -> int:
        """How much was read since `hold`."""
        return self._held_size + self.position - self._hold_start

    def held_extent(self) -> int:
        """How far beyond `hold` anything was read, be it given back since."""
        here = self.text_offset + self.position
        return max(self.furthest, here) - here + self.held_length()

    def held_text(self) -> str:
        """What was read since `hold`."""
        if not self._held_chunks:
            return self.text[self._hold_start : self.position]
        self._held_chunks = ["".join(self._held_chunks)]
        return self._held_chunks[0] + self.text[self._hold_start : self.position]

    def release(self) -> str:
        """What was read since `hold`; it cannot be given back any more."""
        text = self.held_text()
        self._held_chunks = None
        return text

    def seek(self, offset: int) -> None:
        """Go to where `offset` was read since `hold`, and go on holding."""
        self.furthest = max(self.furthest, self.text_offset + self.position)
        if self._held_chunks:
            self.text = "".join(self._held_chunks) + self.text[self._hold_start :]
            self.text_offset -= self._held_size
            self._hold_start = 0
            self._held_chunks = []
            self._held_size = 0
        self.position = self._hold_start + offset

    def restore(self) -> None:
        """Give back what was read since `hold`, and hold no more."""
        self.seek(0)
        self._held_chunks = None

    # Reading: each returns when it knows, whatever the chunks were.

    def find_marker(
        self, markers: MarkerSet | MarkerSetPair, let_go: Callable[[str], None]
    ) -> Generator[None, None, str]:
        """Let go of everything up to the next marker, which is returned; "" if there is none."""
        while True:
            text, at = self.text, self.position
            match = markers.search(text, at)
            certain = len(text) if self.is_final else markers.settled_end(text, at)
            if match and (match.start() < certain or self.is_final):
                let_go(text[at : match.start()])
                self.position = match.start()
                return match[0]
            let_go(text[at:certain])
            self.position = certain
            if self.is_final:
                return ""
            self.pending_search = (markers, let_go) if certain == len(text) else None
            yield
            self.pending_search = None

    def forward_chunk(self, text: str) -> bool:
        """Let go of text that has just arrived, if it is only more of what is let go of anyway, as
        nearly all is: what waits need not be woken for it."""
        if not self.pending_search or not self.pending_search[0].cannot_begin_in(text):
            return False
        self.position = len(self.text)
        self.pending_search[1](text)
        return True

    def read_space(self) -> Generator[None, None, str]:
        """Read white space; returns it once something else, or the end, is in sight."""
        found: list[str] = []
        while True:
            match = _SPACE.match(self.text, self.position)
            if match and match.end() > self.position:
                found.append(match[0])
                self.position = match.end()
            if self.position < len(self.text) or self.is_final:
                return "".join(found)
            yield

    def read_literal(self, literal: str) -> Found:
        """Read exactly `literal`, or nothing."""
        while True:
            text, at = self.text, self.position
            if text.startswith(literal, at):
                self.position = at + len(literal)
                return True
            if self.is_final or len(text) - at >= len(literal) or not literal.startswith(text[at:]):
                return False
            yield

    def read_run(
        self, pattern: re.Pattern[str], limit: int, viable: Callable[[str], bool] | None = None
    ) -> Generator[None, None, str | None]:
        """Read a run of characters that ends where `pattern` stops matching; None if it is too long
        or not `viable`."""
        while True:
            match = pattern.match(self.text, self.position, self.position + limit + 1)
            end = match.end() if match else self.position
            if end - self.position > limit or (
                viable and not viable(self.text[self.position : end])
            ):
                return None
            if end < len(self.text) or self.is_final:
                found = self.text[self.position : end]
                self.position = end
                return found
            yield

    def read_through_marker(
        self, markers: MarkerSet, limit: int | None = None
    ) -> Generator[None, None, str]:
        """Read up to and with the first marker; returns it, or "" if the text ended without one, or
        went on for longer than `limit`."""
        start = self.text_offset + self.position
        while True:
            match = markers.pattern.search(self.text, self.position)
            if match and (self.is_final or not markers.may_continue(self.text, match.start())):
                self.position = match.end()
                return match[0]
            if self.is_final:
                self.position = len(self.text)
                return ""
            self.position = (
                match.start() if match else markers.settled_end(self.text, self.position)
            )
            if limit is not None and self.text_offset + self.position - start > limit:
                return ""
            yield

    def peek(self) -> Generator[None, None, str]:
        """The next character, unread; "" at the end."""
        while self.position >= len(self.text) and not self.is_final:
            yield
        return self.text[self.position : self.position + 1]

    def read_through(self, pattern: re.Pattern[str], longest: int) -> Generator[None, None, str]:
        """Read up to and with the first match of `pattern`, none of whose matches is longer than
        `longest`; returns the match, or "" if the text ended without one."""
        while True:
            match = pattern.search(self.text, self.position)
            if match and (
                match.end() < len(self.text) or self.is_final or longest == len(match[0])
            ):
                self.position = match.end()
                return match[0]
            if self.is_final:
                self.position = len(self.text)
                return ""
            keep = match.start() if match else len(self.text) - longest + 1
            self.position = max(self.position, keep)
            yield
