"""The text under the parser's eyes: what has arrived, how far it was read, what may be given back.

Everything here that has to wait for more text is a generator: it yields while it waits, and `add`
was called before it goes on. So the control flow is the state, and text is looked at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Protocol

from .grammar import Both, Markers

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


class Reader:
    """A window on the text: `text[at:]` is unread. After every `yield`, both may be new."""

    __slots__ = (
        "_held",
        "_held_size",
        "_start",
        "at",
        "base",
        "ended",
        "reach",
        "refused",
        "scanner",
        "text",
        "waiting",
    )

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False
        self.base = 0
        """Where in the whole text `text` begins."""
        self.reach = 0
        """How far in the whole text anything was read before it was given back."""
        self.scanner: Scanner | None = None
        """What waits for more text, if it is only to find the end of a value."""
        self.waiting: tuple[Markers | Both, Callable[[str], None]] | None = None
        """What is looked for in the next text, and where all before that goes, while nothing is
        kept back."""
        self.refused = ""
        """A text that the JSON decoder could not read: it is not asked again about the same."""
        self._held: list[str] | None = None
        self._held_size = 0
        self._start = 0

    def add(self, chunk: str) -> None:
        """More text has arrived."""
        text, at = self.text, self.at
        if self._held is not None:
            self._held.append(text[self._start : at])
            self._held_size += at - self._start
            self._start = 0
        self.text = text[at:] + chunk if at < len(text) else chunk
        self.base += at
        self.at = 0

    # Holding: from `hold` on, what is read can be given back.

    def hold(self) -> None:
        """Remember everything from here on."""
        self._held = []
        self._held_size = 0
        self._start = self.at
        self.reach = self.base + self.at

    def offset(self) -> int:
        """How much was read since `hold`."""
        return self._held_size + self.at - self._start

    def extent(self) -> int:
        """How far beyond `hold` anything was read, be it given back since."""
        here = self.base + self.at
        return max(self.reach, here) - here + self.offset()

    def held(self) -> str:
        """What was read since `hold`."""
        if not self._held:
            return self.text[self._start : self.at]
        self._held = ["".join(self._held)]
        return self._held[0] + self.text[self._start : self.at]

    def release(self) -> str:
        """What was read since `hold`; it cannot be given back any more."""
        text = self.held()
        self._held = None
        return text

    def seek(self, offset: int) -> None:
        """Go to where `offset` was read since `hold`, and go on holding."""
        self.reach = max(self.reach, self.base + self.at)
        if self._held:
            self.text = "".join(self._held) + self.text[self._start :]
            self.base -= self._held_size
            self._start = 0
            self._held = []
            self._held_size = 0
        self.at = self._start + offset

    def restore(self) -> None:
        """Give back what was read since `hold`, and hold no more."""
        self.seek(0)
        self._held = None

    # Reading: each returns when it knows, whatever the chunks were.

    def next_marker(
        self, markers: Markers | Both, let_go: Callable[[str], None]
    ) -> Generator[None, None, str]:
        """Let go of everything up to the next marker, which is returned; "" if there is none."""
        while True:
            text, at = self.text, self.at
            match = markers.search(text, at)
            certain = len(text) if self.ended else markers.certain(text, at)
            if match and (match.start() < certain or self.ended):
                let_go(text[at : match.start()])
                self.at = match.start()
                return match[0]
            let_go(text[at:certain])
            self.at = certain
            if self.ended:
                return ""
            self.waiting = (markers, let_go) if certain == len(text) else None
            yield
            self.waiting = None

    def pass_on(self, text: str) -> bool:
        """Let go of text that has just arrived, if it is only more of what is let go of anyway, as
        nearly all is: what waits need not be woken for it."""
        if not self.waiting or not self.waiting[0].are_far(text):
            return False
        self.at = len(self.text)
        self.waiting[1](text)
        return True

    def space(self) -> Generator[None, None, str]:
        """Read white space; returns it once something else, or the end, is in sight."""
        found: list[str] = []
        while True:
            match = _SPACE.match(self.text, self.at)
            if match and match.end() > self.at:
                found.append(match[0])
                self.at = match.end()
            if self.at < len(self.text) or self.ended:
                return "".join(found)
            yield

    def literal(self, literal: str) -> Found:
        """Read exactly `literal`, or nothing."""
        while True:
            text, at = self.text, self.at
            if text.startswith(literal, at):
                self.at = at + len(literal)
                return True
            if self.ended or len(text) - at >= len(literal) or not literal.startswith(text[at:]):
                return False
            yield

    def run(
        self, pattern: re.Pattern[str], limit: int, viable: Callable[[str], bool] | None = None
    ) -> Generator[None, None, str | None]:
        """Read a run of characters that ends where `pattern` stops matching; None if it is too long
        or not `viable`."""
        while True:
            match = pattern.match(self.text, self.at, self.at + limit + 1)
            end = match.end() if match else self.at
            if end - self.at > limit or (viable and not viable(self.text[self.at : end])):
                return None
            if end < len(self.text) or self.ended:
                found = self.text[self.at : end]
                self.at = end
                return found
            yield

    def until_marker(
        self, markers: Markers, limit: int | None = None
    ) -> Generator[None, None, str]:
        """Read up to and with the first marker; returns it, or "" if the text ended without one, or
        went on for longer than `limit`."""
        start = self.base + self.at
        while True:
            match = markers.pattern.search(self.text, self.at)
            if match and (self.ended or not markers.may_grow(self.text, match.start())):
                self.at = match.end()
                return match[0]
            if self.ended:
                self.at = len(self.text)
                return ""
            self.at = match.start() if match else markers.certain(self.text, self.at)
            if limit is not None and self.base + self.at - start > limit:
                return ""
            yield

    def peek(self) -> Generator[None, None, str]:
        """The next character, unread; "" at the end."""
        while self.at >= len(self.text) and not self.ended:
            yield
        return self.text[self.at : self.at + 1]

    def until(self, pattern: re.Pattern[str], longest: int) -> Generator[None, None, str]:
        """Read up to and with the first match of `pattern`, none of whose matches is longer than
        `longest`; returns the match, or "" if the text ended without one."""
        while True:
            match = pattern.search(self.text, self.at)
            if match and (match.end() < len(self.text) or self.ended or longest == len(match[0])):
                self.at = match.end()
                return match[0]
            if self.ended:
                self.at = len(self.text)
                return ""
            keep = match.start() if match else len(self.text) - longest + 1
            self.at = max(self.at, keep)
            yield
