"""Turns what the parser reads into events: text, reasoning and notes, and the calls.

`EventWriter` collects the events. `CallSink` turns accepted calls into `CallStart`,
`ArgumentsDelta` and `CallEnd`, and rejected ones into `CallRejected`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct, structs

from .._util import format_json
from ..calls.json_values import json_text_equals
from ..calls.resolution import CallResolver, CheckedDraft
from ..events import (
    ArgumentsDelta,
    CallEnd,
    CallRejected,
    CallStart,
    Event,
    ReasoningDelta,
    Reclassify,
    TextDelta,
)
from ..types import Note, Rejection
from .near_calls import FAULTS, ReplyTail
from .template import Dialect

_JSON_START = re.compile(r"\s*(?:\{|\[(?![A-Z]))")
MAX_NOTES = 200
MAX_EXCERPT = 400
"""The number of characters of the reply that a note quotes."""


class TentativeEvents:
    """Events that are emitted only if the text after them is as required, and where the last call
    ended."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.last_call_end = 0

    def has_calls(self) -> bool:
        return any(isinstance(event, CallEnd) for event in self.events)

    def has_rejections(self) -> bool:
        return any(isinstance(event, CallRejected) for event in self.events)

    def close_last_call(self, text: str) -> None:
        """Add to the last call what closes it, if `text` is all that was read."""
        last = max(at for at, event in enumerate(self.events) if isinstance(event, CallEnd))
        end = self.events[last]
        assert isinstance(end, CallEnd)
        self.events[last] = _add_closers(end, text[self.last_call_end :].rstrip())


def _add_closers(end: CallEnd, closers: str) -> CallEnd:
    return structs.replace(end, call=structs.replace(end.call, raw=end.call.raw + closers))


class EventWriter:
    """Collects events. White space next to a call or to reasoning is not text: it waits until more
    text follows, and is dropped if none does."""

    def __init__(self, on_text: Callable[[str], None], tail: ReplyTail | None = None) -> None:
        self._on_text = on_text
        """Called with all text, white space included."""
        self.tail = tail
        """Remembers the end of the text."""
        self._events: list[Event] = []
        self._text: list[str] = []
        """Text that is not an event yet."""
        self._edge_space: list[str] | None = []
        """White space after a call; None if other text came since."""
        self._drops_space = False
        """The white space follows reasoning: it is dropped even if text follows."""
        self._reasoning_space: list[str] = []
        self._reasoning_is_empty = True
        self._note_count = 0
        self._held_end: CallEnd | None = None
        """The end of the last call, while its closing markers are being read."""
        self.holds_call_end = False
        """Closing markers may follow: the end of a call is held back until they are read."""
        self.trial: TentativeEvents | None = None
        """Takes all events while it is not certain that they will be emitted."""
        self.last_character = ""
        """The last character of the text; "" after a call or reasoning, as at a line's start."""
        self.has_text = False
        self.length_since_call = 0
        """The length of the text since the last call, without the white space at its edge."""
        self.has_reasoning = False
        self.has_fault = False
        """A block that was meant as a call was rejected."""

    @property
    def begins_line(self) -> bool:
        return self.last_character in ("", "\n")

    @property
    def begins_section(self) -> bool:
        """Only white space was written since the reply began, or since a call or reasoning."""
        return self._edge_space is not None

    def take_events(self) -> list[Event]:
        """Return the events since the last time."""
        if not self.holds_call_end:
            self._release_call_end()
        self._flush_text()
        events, self._events = self._events, []
        return events

    def emit(self, *events: Event) -> None:
        """Add events, with at most `MAX_NOTES` notes per reply."""
        if self.trial is not None:
            self.trial.events.extend(events)
            return
        self._flush_text()
        for event in events:
            if self._held_end is not None:
                self._release_call_end()
            if isinstance(event, CallEnd):
                self._held_end = event
                continue
            if isinstance(event, Note):
                self._note_count += 1
                if self._note_count == MAX_NOTES:
                    self._events.append(Note("notes-omitted", "further notes are omitted"))
                if self._note_count >= MAX_NOTES:
                    continue
            elif isinstance(event, CallRejected) and event.rejection:
                self.has_fault |= event.rejection.code in FAULTS
            self._events.append(event)

    def end_trial(self, *, emits: bool) -> None:
        """Emit the events of the trial, or discard them."""
        trial, self.trial = self.trial, None
        if trial is None or not emits:
            return
        if trial.has_calls():
            self.mark_call_boundary()
        self.emit(*trial.events)

    def end_call(self, closers: str = "") -> None:
        """Release the end of the last call, with its closing markers."""
        self.holds_call_end = False
        if closers and (end := self._held_end):
            self._held_end = _add_closers(end, closers)
        self._release_call_end()

    def _release_call_end(self) -> None:
        if self._held_end is not None:
            self._events.append(self._held_end)
            self._held_end = None

    def _flush_text(self) -> None:
        if self._text:
            self._events.append(TextDelta("".join(self._text)))
            self._text = []

    def write_text(self, text: str) -> None:
        if not text:
            return
        if self._held_end is not None:
            self._release_call_end()
        self.last_character = text[-1]
        self._on_text(text)
        if self.tail:
            self.tail.append(text)
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
            self.has_text = True
        self._text.append(text)
        self.length_since_call += len(text)

    def mark_call_boundary(self) -> None:
        """A call was read here: drop the white space before it, hold back the one after it."""
        self._edge_space = []
        self.last_character = ""
        self.length_since_call = 0

    def finish_text(self, *, has_calls: bool) -> None:
        """End the reply. If it is nothing but white space, that is its text."""
        if self._edge_space and not has_calls and not self._drops_space:
            self._text.extend(self._edge_space)

    def write_reasoning(self, text: str) -> None:
        """Write reasoning, without the white space at its ends."""
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
        self.end_reasoning()
        self._reasoning_is_empty = True

    def end_reasoning(self) -> None:
        """Drop the white space at the end of the reasoning and before what follows it."""
        self._reasoning_space = []
        self._edge_space = []
        self._drops_space = True
        self.last_character = ""
        self.has_reasoning = True

    def reclassify(self) -> None:
        """Turn everything that was written so far into reasoning."""
        self.emit(Reclassify())
        self.end_reasoning()
        self.has_text = self.has_fault = False
        self.tail = self.tail and ReplyTail()

    def add_note(self, code: str, message: str, where: str = "") -> None:
        """Add a note that quotes the beginning of `where`."""
        self.emit(Note(code, message, where[:MAX_EXCERPT]))

    def note_control_token(self, token: str, where: str) -> None:
        message = f"the control token {token} was removed from the text"
        self.add_note("control-token", message, where)


class StreamedCall(Struct, eq=False):
    """A call whose arguments are passed on while they arrive."""

    start: CallStart
    wanted_id: str
    """The id that stood before the arguments."""
    json: list[str]


class CallSink:
    """Turns drafts that were checked into events, and counts the calls of the reply."""

    def __init__(self, writer: EventWriter, resolver: CallResolver, *, incremental: bool) -> None:
        self._writer = writer
        self._resolver = resolver
        self.incremental = incremental
        """Arguments are passed on while they arrive."""
        self.call_count = 0
        self.last_dialect: Dialect | None = None
        """The dialect of the last call."""
        self._streamed: StreamedCall | None = None
        self._has_rejected_truncated = False

    def forget_calls(self, keep: int = 0) -> None:
        """Forget all calls but the first `keep`."""
        self.call_count = keep
        self._resolver.ids.keep_first(keep)

    def is_repeated_in_prose(self, checked: CheckedDraft) -> bool:
        """Return True if the same call was made before, with text in between."""
        has_text = self._writer.length_since_call > 0
        return has_text and self._resolver.ids.has_call(checked.name, checked.arguments)

    def accept(self, checked: CheckedDraft, dialect: Dialect, wanted_id: str, raw: str) -> None:
        """Write the events of a call, unless the same call with the same id was made before."""
        streamed = self._streamed
        if streamed and not json_text_equals("".join(streamed.json), checked.arguments):
            self.retract_streamed_call()
            streamed = None
        claimed_id = streamed.start.id if streamed else ""
        resolution = self._resolver.make_call(
            checked, wanted_id, raw, claimed_id=claimed_id, dialect=dialect.name
        )
        call = resolution.call
        if call is None:
            self.retract_streamed_call()
            self._writer.emit(*resolution.notes)
            return
        self._streamed = None
        self._writer.emit(*resolution.notes)
        events: list[Event] = []
        if streamed is None:
            events.append(CallStart(self.call_count, call.id, call.name, dialect.name))
            events.append(ArgumentsDelta(self.call_count, format_json(call.arguments)))
        elif wanted_id not in ("", streamed.wanted_id):
            message = f"the id {wanted_id!r} arrived after the arguments had been sent"
            self._writer.add_note("id-replaced", message, wanted_id)
        events.append(CallEnd(self.call_count, call))
        self.call_count += 1
        self._writer.emit(*events)

    def reject(self, rejection: Rejection) -> None:
        """Write that a draft is not a call, and a note that says why."""
        streamed, self._streamed = self._streamed, None
        if streamed:
            self._resolver.ids.release(streamed.start.id)
        self._writer.emit(CallRejected(rejection, streamed.start.index if streamed else None))
        self._writer.emit(*self._resolver.reject(rejection).notes)

    def reject_truncated(self, text: str) -> None:
        """Reject, once, the call that the reply ends in. JSON that names no tool may be data: it
        gets only a note."""
        if self._has_rejected_truncated:
            return
        self._has_rejected_truncated = True
        problem = "the call is cut off; it was not accepted"
        tools = self._resolver.tools
        name = tools.find_named(text)
        is_data = _JSON_START.match(text) and not tools.is_being_named(text)
        if name or not is_data:
            self.reject(Rejection(text, "truncated", problem, name=name))
        else:
            self._writer.add_note("truncated", problem, text)

    # Arguments that are passed on while they arrive.

    def start_streaming(self, name: str, wanted_id: str, dialect: Dialect) -> None:
        call_id, notes = self._resolver.claim_id(wanted_id)
        self._writer.emit(*notes)
        start = CallStart(self.call_count, call_id, name, dialect.name)
        self._streamed = StreamedCall(start, wanted_id, [])
        self._writer.emit(start)

    def stream_arguments(self, json: str) -> None:
        if json and self._streamed:
            self._streamed.json.append(json)
            self._writer.emit(ArgumentsDelta(self._streamed.start.index, json))

    def retract_streamed_call(self) -> None:
        """Take back a call that was started and cannot be read to its end."""
        streamed, self._streamed = self._streamed, None
        if streamed:
            self._resolver.ids.release(streamed.start.id)
            self._writer.emit(CallRejected(None, streamed.start.index))
