"""Where bodies hand in what they read: a draft becomes a call, or is rejected and stays text."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, TypeVar

from msgspec import structs

from .._util import encode_json
from ..calls.drafts import CallDraft
from ..calls.json_values import json_text_equals
from ..calls.resolution import CallResolver, CheckedCall, rejected, repetition
from ..calls.toolset import strip_name_prefix
from ..events import ArgumentsDelta, CallEnd, CallRejected, CallStart, Event, TextDelta
from ..types import Note, Rejection
from .output import MAX_EXCERPT, EventWriter
from .template import CallForm, Dialect
from .text_buffer import TextBuffer

_Result = TypeVar("_Result")


class CallTooLong(Exception):
    """A call is longer than allowed. Never leaves the parser."""


class FormRejected(Exception):
    """A form has found its markers but no body it can read; another form may. Stays inside too."""


class UndeclaredCall(Exception):
    """What looked like a call names no declared tool: it is prose. Stays inside too."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        """How much of it is a call all the same: nothing in its arguments is another."""


class CallSink:
    """What a body needs to know, and where it reports."""

    def __init__(
        self,
        resolver: CallResolver,
        *,
        incremental: bool,
        max_call: int,
    ) -> None:
        self.buffer = TextBuffer()
        self.writer = EventWriter()
        self._resolver = resolver
        self.tools = resolver.tools
        self.incremental = incremental
        self.max_call_length = max_call
        self.call_count = 0
        """Calls so far."""
        self.rejections = 0
        """Rejections since the last commit: their text is still to be said."""
        self.tentative: list[Event] | None = None
        """Calls that count only if the whole message is nothing else."""
        self._started: CallStart | None = None
        """A call whose arguments are being streamed."""
        self._streamed: list[str] = []
        self._started_as = ""
        """The id that the call was begun with."""
        self._mark = 0
        """Where the last tentative call ended, since the hold."""
        self.cut_off = False
        """The text ended inside a body: nothing in it is a call of its own."""
        self.listed = False
        """The last calls stood in a list: they are all there are of an answer in prose."""
        self.expected_dialects: tuple[Dialect, ...] = ()
        """Dialects that somebody has named."""
        self.only_expected = False
        """Calls in other dialects are read, but not made."""
        self.embedded = False
        """What is read stands in prose: it counts only if it calls a declared tool."""
        self.shows = False
        """What is read is an example: none of it counts."""
        self.steps_back = False
        """Other forms are still to be tried at this marker."""
        self.last_dialect: Dialect | None = None
        """The dialect of the last call."""
        self.closed = False
        """The marker that closes the call was read with its body."""
        self.unclosed = False
        """The bracket is missing that closes the list of calls."""
        self.liberties: dict[str, None] = {}
        """Repairs that the way to the next call took."""
        self.fence: tuple[str, ...] = ()
        """What closes a code fence that stands around a body without being part of the form."""

    def begin_trial(self) -> None:
        """Calls from here on count only if the trial succeeds."""
        self.defer()
        self.rejections = 0
        self.liberties.clear()
        self.closed = self.unclosed = False
        self.fence = ()
        self.cut_off = self.steps_back = self.embedded = False
        self.buffer.hold()

    def defer(self) -> None:
        """Keep back what happens from here on."""
        self.tentative = []
        self._mark = 0

    def deferred(self) -> list[Event]:
        """What was kept back; from here on nothing is."""
        tentative, self.tentative = self.tentative, None
        self._mark = 0
        return tentative or []

    def forget_calls(self, count: int = 0) -> None:
        """Only the first `count` calls so far were calls."""
        self.call_count = count
        self._resolver.ids.keep_first(count)

    def limit_length(self, steps: Generator[None, None, _Result]) -> Generator[None, None, _Result]:
        """Run something that holds text, but not for longer than a call may be."""
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return stop.value
            if self.buffer.held_length() > self.max_call_length:
                steps.close()
                raise CallTooLong
            yield

    # Tools.

    def schema_of(self, name: str) -> dict[str, Any]:
        """The parameters that a tool declares; nothing if it is not known."""
        return self.tools.get_schema(name) if self.tools else {}

    def find_tool(self, name: str) -> str | None:
        """The declared spelling of a tool's name; None if no tool has it."""
        if self.tools is None:
            return strip_name_prefix(name)
        return self.tools.resolve_name(name)

    @property
    def accepts_any_tool(self) -> bool:
        """Whether any tool may be called, be it declared or not."""
        return self.tools is None or (self._resolver.types_only and not self.embedded)

    def resolve_name(self, name: str) -> str | None:
        """The spelling in which a tool of that name may be called; None if it may not."""
        return self.find_tool(name) or (
            strip_name_prefix(name) or None if self.accepts_any_tool else None
        )

    def may_begin_tool_name(self, beginning: str) -> bool:
        """Whether the name of a tool that may be called begins like this."""
        return (
            self.accepts_any_tool
            or self.tools is None
            or self.tools.has_name_starting_with(beginning)
        )

    # What the bodies report.

    def fenced(self, ticks: str) -> None:
        """The body stands in a code fence, which will have to be closed."""
        self.fence = (ticks,) if ticks else ()

    def say_before_calls(self, text: str) -> None:
        """Text that stands inside the same value as the calls."""
        if self.tentative is not None:
            self.tentative.append(TextDelta(text))
        else:
            self.writer.write_text(text)

    def start_streaming(self, form: CallForm, name: str, identity: str) -> bool:
        """Start to stream a call's arguments; False if that is not wanted or not possible."""
        if not self.incremental or self.tentative is not None or self.shows or not name:
            return False
        spelled = self.resolve_name(name)
        if not spelled or self._means_nothing(form, name):
            return False
        self._started = CallStart(
            self.call_count, self._claim_id(identity), spelled, form.dialect.name
        )
        self._streamed = []
        self._started_as = identity
        self.writer.emit(self._started)
        return True

    def stream_arguments(self, json: str) -> None:
        """More of the arguments of the call that was begun."""
        if json and self._started:
            self._streamed.append(json)
            self.writer.emit(ArgumentsDelta(self._started.index, json))

    def add_draft(self, form: CallForm, draft: CallDraft, start: int) -> None:
        """A block has been read, from `start` since the hold to here."""
        if self.buffer.held_extent() > self.max_call_length:
            raise CallTooLong
        if draft.is_bare and not form.opener:
            problem = "an object with a name but no arguments, and no marker that says it is a call"
            draft = structs.replace(draft, problem=problem)
        if form.body == "line" and self._is_blank(draft):
            draft = structs.replace(draft, problem="nothing stands where the value should")
        if self.fence and form.opener:
            self.liberties["code-fence"] = None
        if self.liberties:
            repairs = tuple(dict.fromkeys((*draft.repairs, *self.liberties)))
            draft = structs.replace(draft, repairs=repairs)
            self.liberties.clear()
        held = self.buffer.held_text()
        source = held[start:]
        checked = self._resolver.check(
            draft, source, held[self._mark :], declared_only=self.embedded
        )
        is_expected = not self.only_expected or form.dialect in self.expected_dialects
        if not is_expected and not checked.rejection:
            problem = f"the dialect {form.dialect.name} is not expected here"
            checked = rejected("unexpected-dialect", problem, checked.name, raw=source)
        if self.shows:
            problem = "the text before it announces an example"
            checked = rejected("example", problem, checked.name, raw=source)
        rejection = checked.rejection
        can_state_none = rejection is None or rejection.code == "unknown-tool"
        if can_state_none and self._means_nothing(form, draft.name):
            raw = self._commit(start)
            self.add_note("no-call", f"the model states that it makes no call: {draft.name}", raw)
        elif rejection is not None:
            self._reject(rejection, checked.name)
        else:
            self._accept(form, checked, draft.id, start)

    def _means_nothing(self, form: CallForm, name: str) -> bool:
        """Whether a dialect says by that name that there is no call, and no tool has it."""
        is_none = strip_name_prefix(name) in form.dialect.no_call_names
        return is_none and not (self.tools and self.tools.resolve_name(name))

    def _is_blank(self, draft: CallDraft) -> bool:
        """Whether a bare value is empty: the text may have been cut off before it."""
        values = list(draft.arguments.values()) if isinstance(draft.arguments, dict) else []
        return (
            self.buffer.held_text().rstrip().endswith(">") and not "".join(map(str, values)).strip()
        )

    def _accept(self, form: CallForm, checked: CheckedCall, identity: str, start: int) -> None:
        again = (
            self.embedded
            and self.writer.length_since_call
            and self._resolver.ids.has_call(checked.name, checked.arguments)
        )
        raw = self._commit(start)
        if again:
            self.retract_started_call()
            self._add_notes(repetition(raw).notes)
            return
        self.last_dialect = form.dialect
        self.steps_back = False
        started = self._streamed_start(checked.arguments)
        claimed_id = started.id if started else ""
        resolution = self._resolver.make_call(checked, identity, raw, claimed_id=claimed_id)
        call = resolution.call
        if call is None:
            self.retract_started_call()
            self._add_notes(resolution.notes)
            return
        self._started = None
        self._add_notes(resolution.notes)
        if started is None:
            started = CallStart(self.call_count, call.id, call.name, form.dialect.name)
            delta = ArgumentsDelta(self.call_count, encode_json(call.arguments))
            events: list[Event] = [started, delta]
        else:
            events = []
            if identity not in ("", self._started_as):
                message = f"the id {identity!r} arrived after the arguments had been sent"
                self.add_note("id-replaced", message, identity)
        events.append(CallEnd(self.call_count, call))
        self.call_count += 1
        if self.tentative is None:
            self.writer.emit(*events)
        else:
            self.tentative.extend(events)

    def _streamed_start(self, arguments: dict[str, Any]) -> CallStart | None:
        """The start of this call, if its arguments were streamed and are what came out of them."""
        if self._started and not json_text_equals("".join(self._streamed), arguments):
            self.retract_started_call()
        return self._started

    def add_note(self, code: str, message: str, where: str = "") -> None:
        """A remark on a call; it counts only if the call does."""
        if self.tentative is None:
            self.writer.add_note(code, message, where)
        else:
            self.tentative.append(Note(code, message, where[:MAX_EXCERPT]))

    def _add_notes(self, notes: Iterable[Note]) -> None:
        for note in notes:
            self.add_note(note.code, note.message, note.where)

    def _claim_id(self, wanted: str) -> str:
        identity, notes = self._resolver.claim_id(wanted)
        self._add_notes(notes)
        return identity

    def _commit(self, start: int) -> str:
        """A call is certain: its text cannot be given back. Returns that text."""
        text = self.buffer.held_text()
        if self.tentative is not None:
            raw, self._mark = text[self._mark :], len(text)
            return raw or text
        raw = text[start:] if self.rejections else text
        if self.rejections:
            self.writer.write_text(text[:start])
            self.rejections = 0
        self.buffer.hold()
        self.writer.mark_call_boundary()
        return raw

    def _reject(self, rejection: Rejection, name: str) -> None:
        code = rejection.code
        if self.embedded and (code == "unknown-tool" or not self.find_tool(name)):
            self.retract_started_call()
            is_call = code == "unknown-tool" and name
            raise UndeclaredCall(self.buffer.held_length() if is_call else 0)
        if self.steps_back and not self.shows:
            self.retract_started_call()
            raise FormRejected
        self.rejections += 1
        started, self._started = self._started, None
        if started:
            self._resolver.ids.release(started.id)
        rejected = CallRejected(rejection, started.index if started else None)
        if self.tentative is None:
            self.writer.emit(rejected)
        else:
            self.tentative.append(rejected)
        self._add_notes(self._resolver.reject(rejection).notes)

    def retract_started_call(self) -> None:
        """Take back a call that was begun and cannot be read to its end."""
        started, self._started = self._started, None
        if started:
            self._resolver.ids.release(started.id)
            self.writer.emit(CallRejected(None, started.index))
