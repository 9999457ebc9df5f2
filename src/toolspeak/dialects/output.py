"""What the parser says: events, without the white space that joins text, calls and reasoning."""

from __future__ import annotations

from ..events import Event, ReasoningDelta, TextDelta
from ..types import Note
from .code_spans import CodeSpanTracker

MAX_NOTES = 200
_TAIL_LENGTH = 400
MAX_EXCERPT = 400
"""How much of a text a note shows."""


class EventWriter:
    """Collects events. Text next to a call or to reasoning loses the white space that joins them:
    it waits until more text follows it, and is dropped if none does."""

    __slots__ = (
        "_drops_space",
        "_edge_space",
        "_events",
        "_note_count",
        "_reasoning_is_empty",
        "_reasoning_space",
        "_text",
        "code_spans",
        "has_reasoning",
        "has_text",
        "last_character",
        "length_since_call",
        "only_space_since_call",
        "tail",
    )

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._text: list[str] = []
        """Text that was said but is no event yet."""
        self._edge_space: list[str] | None = []
        """White space at an edge: it is text only if more text follows. None: not at an edge."""
        self._drops_space = False
        """The edge follows reasoning: its white space is nobody's."""
        self._reasoning_space: list[str] = []
        self._reasoning_is_empty = True
        self._note_count = 0
        self.last_character = ""
        """The last character of the text; "" where a line begins anyway."""
        self.only_space_since_call = True
        """Nothing but white space was said since the last call."""
        self.has_text = False
        """There was text."""
        self.length_since_call = 0
        """How much text there was since the last call."""
        self.code_spans = CodeSpanTracker()
        self.tail = ""
        """The last few characters of the text."""
        self.has_reasoning = False
        """There was reasoning."""

    def take_events(self) -> list[Event]:
        """The events so far; they are not given again."""
        self._flush()
        events, self._events = self._events, []
        return events

    def emit(self, *events: Event) -> None:
        """Say something that is not text."""
        self._flush()
        self._events.extend(events)

    def _flush(self) -> None:
        if self._text:
            self._events.append(TextDelta("".join(self._text)))
            self._text = []

    def write_text(self, text: str) -> None:
        """Say some text."""
        if not text:
            return
        self.last_character = text[-1]
        self.tail = (
            (self.tail + text)[-_TAIL_LENGTH:] if len(text) < _TAIL_LENGTH else text[-_TAIL_LENGTH:]
        )
        self.code_spans.append(text)
        if self._edge_space is not None:
            stripped = text.lstrip()
            if not stripped:
                self._edge_space.append(text)
                return
            if self._drops_space:
                text = stripped
            else:
                self._text.extend(self._edge_space)
            self._edge_space = None
            self._drops_space = False
            self.only_space_since_call = False
            self.has_text = True
        self._text.append(text)
        self.length_since_call += len(text)

    def mark_call_boundary(self) -> None:
        """A call stands here: white space before it is dropped, and after it waits."""
        self._edge_space = []
        self.only_space_since_call = True
        self.last_character = ""
        self.length_since_call = 0

    def finish_text(self, *, calls: bool) -> None:
        """The text is over: white space that is all there was is text after all."""
        if self._edge_space and not calls and not self._drops_space:
            self._text.extend(self._edge_space)

    def write_reasoning(self, text: str) -> None:
        """Some reasoning, without the white space at its ends."""
        if self._reasoning_is_empty:
            text = text.lstrip()
        stripped = text.rstrip()
        if stripped:
            self.emit(ReasoningDelta("".join(self._reasoning_space) + stripped))
            self._reasoning_space = []
            self._reasoning_is_empty = False
        if len(stripped) < len(text):
            self._reasoning_space.append(text[len(stripped) :])

    def begin_reasoning(self) -> None:
        """Reasoning begins."""
        self.end_reasoning()
        self._reasoning_is_empty = True

    def end_reasoning(self) -> None:
        """Reasoning is over: white space at its end, and before what follows, is dropped."""
        self._reasoning_space = []
        self._edge_space = []
        self._drops_space = True
        self.last_character = ""
        self.has_reasoning = True

    def add_note(self, code: str, message: str, where: str = "") -> None:
        """Remark on something; a flood of remarks is cut off."""
        self._note_count += 1
        if self._note_count == MAX_NOTES:
            code, message, where = "notes-omitted", "further notes are left out", ""
        if self._note_count <= MAX_NOTES:
            self.emit(Note(code, message, where[:MAX_EXCERPT]))
