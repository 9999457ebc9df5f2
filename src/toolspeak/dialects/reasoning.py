"""What a model thinks before it speaks: reasoning, up to where it is closed, or a call ends it."""

from __future__ import annotations

from .call_sink import CallSink, CallTooLong
from .form_matching import FormMatcher
from .marker_table import MarkerSet, MarkerTable, marker_set
from .text_buffer import Found, Steps


class ReasoningReader:
    """Reads the reasoning of one reply."""

    def __init__(
        self, sink: CallSink, matcher: FormMatcher, table: MarkerTable, *, keeps: bool
    ) -> None:
        self._sink = sink
        self._buffer = sink.buffer
        self._writer = sink.writer
        self._matcher = matcher
        self._thoughts = table.call_openers
        """What opens a call, also where somebody only thinks."""
        self._keeps = keeps
        self.thoughts_with_calls: list[str] = []
        """Thoughts that hold what looks like calls, if somebody wants them."""
        self._unclosed: list[MarkerSet] = []
        """What is known not to close any reasoning in the rest of the text."""

    def read(self, closers: tuple[str, ...], before: tuple[str, ...] = ()) -> Steps:
        """Reasoning up to and with the first of `closers`, or up to the first of `before`."""
        if self._matcher.is_exhaustive:
            # All of the text is searched for calls, whoever thinks them.
            return
        self._writer.begin_reasoning()
        ends = marker_set(closers)
        markers = marker_set((*closers, *before, *self._thoughts))
        while marker := (
            yield from self._buffer.find_marker(markers, self._writer.write_reasoning)
        ):
            if marker in before:
                break
            if marker in closers:
                self._buffer.position += len(marker)
                break
            if not (yield from self._call(ends)):
                break
        self._writer.end_reasoning()

    def _call(self, ends: MarkerSet) -> Found:
        """A call opens inside reasoning: it is a thought if the reasoning is closed after it, and
        the end of the reasoning if not. Returns whether the reasoning goes on."""
        buffer, limit = self._buffer, self._sink.max_call_length
        buffer.hold()
        closer = ""
        try:
            if ends not in self._unclosed:
                closer = yield from self._sink.limit_length(buffer.read_through_marker(ends))
        except CallTooLong:
            pass
        if buffer.held_length() > limit:
            # Too much to hold: whatever it is, it is part of the reasoning.
            buffer.seek(limit)
            self._writer.write_reasoning(buffer.release())
            return True
        if closer:
            thought = buffer.release().removesuffix(closer)
            self._writer.write_reasoning(thought)
            if self._keeps and not self._matcher.is_turn_over:
                self.thoughts_with_calls.append(thought)
            return False
        self._unclosed.append(ends)
        buffer.restore()
        self._writer.add_note("unclosed-reasoning", "a call ends reasoning that was never closed")
        return False
