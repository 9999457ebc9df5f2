"""Reads an upstream's reply: bytes to events, with every call found, resolved and validated.

    reader = ReplyReader(attempt)
    reader.feed(b'data: {"choices": ...')   ->   [TextDelta(...), CallStart(...), ...]
    reader.finish()

The upstream's wire decodes the bytes (`StreamDecoder`). `CallExtractor` finds the calls that the
model wrote into its text; the `CallResolver` checks these and the structured ones. A call is
emitted when it is complete, with the name of a declared tool and arguments that match its schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from io import StringIO
from itertools import filterfalse
from typing import Any, ClassVar, Protocol

from msgspec import structs

from ..calls.resolution import CallResolver
from ..dialects import Dialect, Parser
from ..dialects.markers import AUTO
from ..events import (
    ArgumentsDelta,
    CallEnd,
    CallRejected,
    CallStart,
    Event,
    Finish,
    PartAdded,
    ReasoningDelta,
    TextDelta,
)
from ..notes import NOTES
from ..security.escaping import Escaper
from ..types import (
    COMPLETE_STOP_REASONS,
    Failure,
    Note,
    Rejection,
    Request,
    StopReason,
    ToolCall,
)
from ..wires import StreamDecoder
from .attempt import Attempt
from .constrained import ConstrainedReader
from .plan import OfferedTools

_MAX_SEARCHED = 2**20
"""The number of characters of a reply that are searched for calls; no model writes as many."""
_OPENING = re.compile(r"\s*(\W*\w+)")
_CONTENT = frozenset({TextDelta, ReasoningDelta, CallStart, ArgumentsDelta, PartAdded})


class ReplyReader:
    """Reads the reply to one attempt, as bytes in any chunks or as one value."""

    def __init__(self, attempt: Attempt) -> None:
        self._decoder = StreamDecoder(
            attempt.wire,
            attempt.outgoing.names,
            new_id=attempt.new_id,
            can_forward=attempt.may_forward_frame if attempt.is_forwardable else None,
        )
        self._extractor = CallExtractor(
            attempt.request,
            attempt.offered,
            attempt.escaper,
            _make_text_reader_factory(attempt),
            attempt.new_id,
            is_native=attempt.plan.mode == "native",
            keeps_reasoning=attempt.profile.trust == "lenient",
        )
        self.parse_body = attempt.wire.parse_reply_body
        """Decodes the body of a whole reply for `read_whole`."""
        self.decoded: list[Event] = []
        """The last chunk's events as the wire decoded them, before calls are extracted."""
        self.frame_count = 0
        """Frames received so far; comments and white space are not counted."""
        self.is_complete = False
        """The reply is complete, even if its stream has not ended."""

    @property
    def is_in_call(self) -> bool:
        """True while a call has started and not ended."""
        return self._decoder.is_in_call or self._extractor.is_in_call

    @property
    def has_chunk_content(self) -> bool:
        """True if the last chunk held content, even if it is not released yet."""
        return not _CONTENT.isdisjoint(map(type, self.decoded))

    def feed(self, data: bytes) -> list[Event]:
        """Read the next chunk of a stream."""
        decoder = self._decoder
        self.decoded = events = decoder.feed(data)
        self.frame_count, self.is_complete = decoder.frame_count, decoder.is_complete
        return self._extractor.feed(events)

    def finish(self) -> list[Event]:
        """Read the end of a stream."""
        decoder = self._decoder
        self.decoded = events = decoder.finish()
        self.frame_count, self.is_complete = decoder.frame_count, decoder.is_complete
        return self._extractor.feed(events)

    def read_whole(self, value: Any) -> list[Event]:
        """Read a whole reply, as `parse_body` returned it."""
        self.decoded = self._decoder.feed_whole(value)
        return self._extractor.feed(self.decoded)

    def read_events(self, events: Iterable[Event]) -> list[Event]:
        """Read a reply that needs no decoding."""
        return self._extractor.feed(events)

    def take_forwarded(self) -> bytes:
        """Return the frames to forward to the client, and forget them."""
        frames, self._decoder.forwarded = self._decoder.forwarded, []
        return b"".join(frames)


class TextReader(Protocol):
    """Finds the calls in text: a dialect's `Parser`, or the reader of constrained replies."""

    def feed(self, text: str) -> Iterable[Event]: ...

    def finish(self, *, is_complete: bool) -> Iterable[Event]: ...

    def find_calls_in_reasoning(self, reasoning: str) -> Iterable[Event]: ...

    @property
    def is_in_call(self) -> bool: ...


TextReaderFactory = Callable[[bool], TextReader]
"""Opens a reader; the argument is False if the API has separated the reasoning from the text."""


def _make_text_reader_factory(attempt: Attempt) -> TextReaderFactory | None:
    """Return a factory of readers for the reply's texts; None if no text can hold a call."""
    if not attempt.offered.allowed and attempt.plan.mode == "native":
        return None
    prefix = attempt.prefix

    def open_text_reader(reads_reasoning: bool) -> TextReader:
        nonlocal prefix
        parser = Parser(
            dialect=attempt.read_dialects or AUTO,
            tools=attempt.offered.allowed,
            trust=attempt.profile.trust,
            context=attempt.context,
            reasoning_open=attempt.plan.reasoning_open,
            reads_reasoning=reads_reasoning,
            new_id=attempt.new_id,
        )
        reader = ConstrainedReader(parser) if attempt.plan.mode == "constrained" else parser
        if prefix:
            # A truncated call continues in the first text, if at all.
            reader, prefix = ContinuationReader(reader, prefix, attempt.dialect), ""
        return reader

    return open_text_reader


class ContinuationReader:
    """Reads the rest of a truncated call, or the whole call if the model begins it again."""

    def __init__(self, reader: TextReader, prefix: str, dialect: Dialect | None) -> None:
        self._reader = reader
        self._prefix = prefix
        opening = _OPENING.match(prefix)
        forms = dialect.forms if dialect else ()
        openings = (opening[1] if opening else prefix, *(form.opener for form in forms))
        self._openings = tuple(filter(None, openings))
        """Beginnings of calls; a continuation does not begin so."""
        self._start = ""

    @property
    def is_in_call(self) -> bool:
        return self._reader.is_in_call

    def feed(self, text: str) -> Iterable[Event]:
        if not self._prefix:
            return self._reader.feed(text)
        self._start += text
        start = self._start.lstrip()
        is_undecided = any(one.startswith(start) and one != start for one in self._openings)
        return () if is_undecided else self._begin()

    def find_calls_in_reasoning(self, reasoning: str) -> Iterable[Event]:
        return self._reader.find_calls_in_reasoning(reasoning)

    def finish(self, *, is_complete: bool) -> Iterable[Event]:
        events = self._begin() if self._prefix else ()
        return [*events, *self._reader.finish(is_complete=is_complete)]

    def _begin(self) -> Iterable[Event]:
        is_new = self._start.lstrip().startswith(self._openings)
        text = self._start if is_new else self._prefix + self._start
        self._prefix = ""
        return self._reader.feed(text)


class CallExtractor:
    """Turns decoded events into the events that a client may see."""

    def __init__(
        self,
        request: Request,
        tools: OfferedTools,
        escaper: Escaper,
        open_text_reader: TextReaderFactory | None,
        new_id: Callable[[], str],
        *,
        is_native: bool = False,
        keeps_reasoning: bool = False,
    ) -> None:
        self._notes_text_call = is_native
        """The model was given native tools, so its first call in the text gets a note."""
        self._one_call = not request.parallel_tool_calls
        self._tools = tools
        self._escaper = escaper
        self._open_text_reader = open_text_reader
        self._text_reader: TextReader | None = None
        self._has_reasoning = False
        """The API has separated the reasoning: its tags in the text are text."""
        self._reasoning = StringIO() if keeps_reasoning else None
        """The reasoning that the API has separated, if calls in it may count."""
        self._resolver = CallResolver(tools.toolset, new_id=new_id)
        # Many models call the first call of each reply `call_1`; clients tell calls by their ids.
        for call_id in _history_ids(request):
            self._resolver.ids.claim(call_id)
        self._start: CallStart | None = None
        self._arguments: list[str] = []
        self._searched = 0
        """Characters of the reply that were searched for calls."""
        self._has_rejected = False
        """A structured call was rejected."""
        self.count = 0
        """Calls accepted so far."""

    @property
    def is_in_call(self) -> bool:
        """True while a call in the text has started and not ended."""
        return self._text_reader is not None and self._text_reader.is_in_call

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """Resolve the calls in these events; return what the client may see."""
        extracted: list[Event] = []
        for event in events:
            # Every chunk of a stream passes here: a lookup by type is faster than a match.
            handle = self._HANDLERS.get(type(event))
            if handle:
                extracted += handle(self, event)
            else:
                extracted.append(event)
        return extracted

    def _handle_text(self, event: TextDelta) -> Iterable[Event]:
        if not self._open_text_reader or event.extra:
            return self._pass_text(event)
        room = _MAX_SEARCHED - self._searched
        if len(event.text) > room:
            return self._stop_search(event.text[:room], event.text[room:])
        return self._search(event.text)

    def _search(self, text: str) -> list[Event]:
        assert self._open_text_reader
        self._searched += len(text)
        if (reader := self._text_reader) is None:
            self._text_reader = reader = self._open_text_reader(not self._has_reasoning)
        return self._finish_text_calls(reader.feed(text))

    def _stop_search(self, text: str, rest: str) -> Iterable[Event]:
        """Search `text` for calls, and pass the rest of the reply as it is."""
        events = [*self._search(text), *self._flush_text()]
        self._open_text_reader = None
        note = Note("unsearched-text", NOTES["unsearched-text"])
        return [*events, note, self._unescape(TextDelta(rest))]

    def _pass_text(self, event: TextDelta | ReasoningDelta) -> Iterable[Event]:
        return [*self._flush_text(), self._unescape(event)]

    def _handle_reasoning(self, event: ReasoningDelta) -> Iterable[Event]:
        self._has_reasoning = self._has_reasoning or not event.is_empty
        if self._reasoning and self._reasoning.tell() < _MAX_SEARCHED:
            self._reasoning.write(event.text)
        return self._pass_text(event)

    def _handle_start(self, event: CallStart) -> Iterable[Event]:
        self._start, self._arguments = event, []
        flushed = self._flush_text() if self._text_reader else ()
        # The model does make a call: the text before it only mentions it.
        return list(filterfalse(_is_near_call, flushed))

    def _handle_arguments(self, event: ArgumentsDelta) -> Iterable[Event]:
        self._arguments.append(event.json)
        return ()

    def _handle_call(self, event: CallEnd) -> Iterable[Event]:
        return self._check_structured(event.call)

    def _handle_finish(self, event: Finish) -> Iterable[Event]:
        is_complete = event.stop_reason in COMPLETE_STOP_REASONS
        flushed = self._flush_text(is_complete=is_complete) if self._text_reader else []
        if is_complete and not self.count and (calls := self._accept_calls_in_reasoning()):
            flushed = [*filterfalse(_is_near_call, flushed), *calls]
        reason = self._correct_stop_reason(event.stop_reason)
        if reason != event.stop_reason:
            event = structs.replace(event, stop_reason=reason)
        return (*flushed, event)

    def _handle_failure(self, event: Failure) -> Iterable[Event]:
        return [*self._flush_text(), event]

    # Calls in text.

    def _flush_text(self, *, is_complete: bool = False) -> list[Event]:
        """End the current text. `is_complete`: the model ended the reply here by itself."""
        reader, self._text_reader = self._text_reader, None
        if reader is None:
            return []
        return self._finish_text_calls(reader.finish(is_complete=is_complete))

    def _accept_calls_in_reasoning(self) -> list[Event]:
        """Return the events of the calls in separated reasoning, if they count."""
        reasoning = self._reasoning.getvalue() if self._reasoning else ""
        if not reasoning or not self._open_text_reader:
            return []
        reader = self._open_text_reader(False)
        return self._finish_text_calls(reader.find_calls_in_reasoning(reasoning))

    def _finish_text_calls(self, events: Iterable[Event]) -> list[Event]:
        """Return a text reader's events, with each call under the client's name for its tool."""
        finished: list[Event] = []
        is_unescaped = not self._escaper.character
        for event in events:
            if is_unescaped and type(event) is TextDelta:
                # Nearly all events are this one.
                finished.append(event)
                continue
            match event:
                case TextDelta() | ReasoningDelta():
                    finished.append(self._unescape(event))
                case CallStart():
                    self._start = event
                case ArgumentsDelta() | Finish():
                    pass
                case CallEnd():
                    if self._notes_text_call:
                        self._notes_text_call = False
                        finished.append(Note("text-call", NOTES["text-call"], event.call.name))
                    finished += self._claim_and_accept(self._tools.to_client_call(event.call), "")
                case _:
                    finished.append(event)
        return finished

    # Structured calls.

    def _check_structured(self, call: ToolCall) -> list[Event]:
        """Resolve the name and validate the arguments of a call that came as a structure."""
        written = self._tools.read_reply_call(call)
        text = "".join(self._arguments)
        events: list[Event] = []
        for resolution in self._resolver.resolve_structured(written, text):
            resolved = resolution.call
            if resolution.rejection:
                events += self._keep_rejected(call, resolution.rejection, text)
            elif resolved is None:
                events += resolution.notes
            else:
                # The text of the arguments may no longer match the call.
                is_same = resolved.name == written.name and resolved.arguments == call.arguments
                accepted = self._tools.to_client_call(resolved)
                events += resolution.notes
                events += self._accept(accepted, text if is_same else "")
        return events

    def _keep_rejected(self, call: ToolCall, rejection: Rejection, text: str) -> list[Event]:
        """Keep a rejected call as text, unless the upstream runs its tool."""
        if rejection.code == "unknown-tool" and self._tools.has_hosted_tools:
            return self._claim_and_accept(call, text)
        rejection = structs.replace(rejection, name=call.name)
        note = Note(rejection.code, rejection.problem, rejection.raw)
        return [CallRejected(rejection), note, self._write_rejected(call.name, call.input)]

    def _handle_rejected(self, event: CallRejected) -> list[Event]:
        """Keep, as text, a call that the wire could not read."""
        if not event.rejection:
            return [CallRejected(None)]
        text = self._write_rejected(event.rejection.name or "", event.rejection.raw)
        return [CallRejected(event.rejection), text]

    def _write_rejected(self, name: str, arguments: str) -> TextDelta:
        """Return a rejected structured call as text, apart from the text before it."""
        separator = "\n\n" if self._searched or self._has_rejected else ""
        self._has_rejected = True
        return TextDelta(f"{separator}{name}({arguments})")

    def _claim_and_accept(self, call: ToolCall, text: str) -> list[Event]:
        call_id, notes = self._resolver.claim_id(call.id)
        call = call if call_id == call.id else structs.replace(call, id=call_id)
        return [*notes, *self._accept(call, text)]

    def _accept(self, call: ToolCall, text: str) -> list[Event]:
        """Return the events of an accepted call. `text` is the JSON of its arguments as received,
        or "" if they were changed."""
        if self._one_call and self.count:
            message = f"{NOTES['extra-call']} A call to {call.name!r} was dropped."
            return [Note("extra-call", message, call.id)]
        arguments = self._escaper.unescape_value(call.arguments)
        if arguments is not call.arguments:
            call = structs.replace(call, arguments=arguments)
        index, self.count = self.count, self.count + 1
        start, self._start = self._start, None
        extra = start.extra if start else None
        dialect = start.dialect if start else None
        return [
            CallStart(index, call.id, call.name, dialect, call.namespace, call.freeform, extra),
            ArgumentsDelta(index, self._escaper.unescape(text) or call.input),
            CallEnd(index, call),
        ]

    def _correct_stop_reason(self, reason: StopReason | None) -> StopReason | None:
        """Return "calls" only for a reply that has calls."""
        if self.count:
            return "calls" if reason in COMPLETE_STOP_REASONS else reason
        return "stop" if reason == "calls" else reason

    def _unescape(self, event: TextDelta | ReasoningDelta) -> Event:
        if not self._escaper.character:
            return event
        return structs.replace(event, text=self._escaper.unescape(event.text))

    _HANDLERS: ClassVar[dict[type[Any], Callable[[CallExtractor, Any], Iterable[Event]]]] = {
        TextDelta: _handle_text,
        ReasoningDelta: _handle_reasoning,
        CallStart: _handle_start,
        ArgumentsDelta: _handle_arguments,
        CallEnd: _handle_call,
        CallRejected: _handle_rejected,
        Finish: _handle_finish,
        Failure: _handle_failure,
    }
    """Events of other types pass unchanged."""


def _is_near_call(event: Event) -> bool:
    match event:
        case CallRejected(rejection=Rejection(code="near-call")) | Note(code="near-call"):
            return True
        case _:
            return False


def _history_ids(request: Request) -> set[str]:
    return {
        part.id
        for message in request.messages
        for part in message.parts
        if isinstance(part, ToolCall)
    }
