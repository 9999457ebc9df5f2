"""What the parser says: events, without the white space that joins text, calls and reasoning."""

from __future__ import annotations

from ..events import Event, ReasoningDelta, TextDelta
from ..types import Note
from .code_spans import CodeSpans

MAX_NOTES = 200
_TAIL = 400
SHOWN = 400
"""How much of a text a note shows."""


class Output:
    """Collects events. Text next to a call or to reasoning loses the white space that joins them:
    it waits until more text follows it, and is dropped if none does."""

    __slots__ = (
        "_drop",
        "_events",
        "_first_thought",
        "_notes",
        "_space",
        "_text",
        "_thought_space",
        "code",
        "last",
        "quiet",
        "said",
        "since",
        "tail",
        "thought",
    )

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._text: list[str] = []
        """Text that was said but is no event yet."""
        self._space: list[str] | None = []
        """White space at an edge: it is text only if more text follows. None: not at an edge."""
        self._drop = False
        """The edge follows reasoning: its white space is nobody's."""
        self._thought_space: list[str] = []
        self._first_thought = True
        self._notes = 0
        self.last = ""
        """The last character of the text; "" where a line begins anyway."""
        self.quiet = True
        """Nothing but white space was said since the last call."""
        self.said = False
        """There was text."""
        self.since = 0
        """How much text there was since the last call."""
        self.code = CodeSpans()
        self.tail = ""
        """The last few characters of the text."""
        self.thought = False
        """There was reasoning."""

    def drain(self) -> list[Event]:
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

    def say(self, text: str) -> None:
        """Say some text."""
        if not text:
            return
        self.last = text[-1]
        self.tail = (self.tail + text)[-_TAIL:] if len(text) < _TAIL else text[-_TAIL:]
        self.code.add(text)
        if self._space is not None:
            stripped = text.lstrip()
            if not stripped:
                self._space.append(text)
                return
            if self._drop:
                text = stripped
            else:
                self._text.extend(self._space)
            self._space = None
            self._drop = False
            self.quiet = False
            self.said = True
        self._text.append(text)
        self.since += len(text)

    def edge(self) -> None:
        """A call stands here: white space before it is dropped, and after it waits."""
        self._space = []
        self.quiet = True
        self.last = ""
        self.since = 0

    def close(self, *, calls: bool) -> None:
        """The text is over: white space that is all there was is text after all."""
        if self._space and not calls and not self._drop:
            self._text.extend(self._space)

    def think(self, text: str) -> None:
        """Some reasoning, without the white space at its ends."""
        if self._first_thought:
            text = text.lstrip()
        stripped = text.rstrip()
        if stripped:
            self.emit(ReasoningDelta("".join(self._thought_space) + stripped))
            self._thought_space = []
            self._first_thought = False
        if len(stripped) < len(text):
            self._thought_space.append(text[len(stripped) :])

    def begin_thought(self) -> None:
        """Reasoning begins."""
        self.end_thought()
        self._first_thought = True

    def end_thought(self) -> None:
        """Reasoning is over: white space at its end, and before what follows, is dropped."""
        self._thought_space = []
        self._space = []
        self._drop = True
        self.last = ""
        self.thought = True

    def note(self, code: str, message: str, where: str = "") -> None:
        """Remark on something; a flood of remarks is cut off."""
        self._notes += 1
        if self._notes == MAX_NOTES:
            code, message, where = "notes-omitted", "further notes are left out", ""
        if self._notes <= MAX_NOTES:
            self.emit(Note(code, message, where[:SHOWN]))
