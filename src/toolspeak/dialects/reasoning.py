"""What a model thinks before it speaks: reasoning, up to where it is closed, or a call ends it."""

from __future__ import annotations

from .call_sink import Desk, TooLong
from .form_matching import Attempts
from .grammar import Grammar, Markers, markers_of
from .reader import Found, Steps


class Thinking:
    """Reads the reasoning of one reply."""

    def __init__(self, desk: Desk, attempts: Attempts, grammar: Grammar, *, keeps: bool) -> None:
        self._desk = desk
        self._reader = desk.reader
        self._output = desk.output
        self._attempts = attempts
        self._thoughts = grammar.thoughts
        """What opens a call, also where somebody only thinks."""
        self._keeps = keeps
        self.of_calls: list[str] = []
        """Thoughts that hold what looks like calls, if somebody wants them."""
        self._unclosed: list[Markers] = []
        """What is known not to close any reasoning in the rest of the text."""

    def read(self, closers: tuple[str, ...], before: tuple[str, ...] = ()) -> Steps:
        """Reasoning up to and with the first of `closers`, or up to the first of `before`."""
        if self._attempts.exhaustive:
            # All of the text is searched for calls, whoever thinks them.
            return
        self._output.begin_thought()
        ends = markers_of(closers)
        markers = markers_of((*closers, *before, *self._thoughts))
        while marker := (yield from self._reader.next_marker(markers, self._output.think)):
            if marker in before:
                break
            if marker in closers:
                self._reader.at += len(marker)
                break
            if not (yield from self._call(ends)):
                break
        self._output.end_thought()

    def _call(self, ends: Markers) -> Found:
        """A call opens inside reasoning: it is a thought if the reasoning is closed after it, and
        the end of the reasoning if not. Returns whether the reasoning goes on."""
        reader, limit = self._reader, self._desk.max_call
        reader.hold()
        closer = ""
        try:
            if ends not in self._unclosed:
                closer = yield from self._desk.bounded(reader.until_marker(ends))
        except TooLong:
            pass
        if reader.offset() > limit:
            # Too much to hold: whatever it is, it is part of the reasoning.
            reader.seek(limit)
            self._output.think(reader.release())
            return True
        if closer:
            thought = reader.release().removesuffix(closer)
            self._output.think(thought)
            if self._keeps and not self._attempts.turn_is_over:
                self.of_calls.append(thought)
            return False
        self._unclosed.append(ends)
        reader.restore()
        self._output.note("unclosed-reasoning", "a call ends reasoning that was never closed")
        return False
