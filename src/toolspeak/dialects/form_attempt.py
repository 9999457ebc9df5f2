"""One attempt to read one form at one place of the text.

An attempt is created when a form is tried and dropped afterwards. The body readers read through
`attempt.buffer`, hand in every call with `add_draft`, and report with a few methods what else they
found out: repairs, a code fence, whether the calls were closed or cut off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from ..calls.drafts import CallDraft
from ..calls.resolution import CallResolver, CheckedCall, rejected, repetition
from ..calls.tools import Toolset, strip_name_prefix
from ..types import Note, Rejection
from .call_sink import MAX_EXCERPT, CallSink, DeferredEvents, EventWriter
from .marker_table import marker_set
from .template import CallForm, Dialect
from .text_buffer import HeldTooLong, Reading, TextBuffer

Header = Mapping[str, str]
"""The words that were read before the body, by slot: `name`, `id` …"""

MAX_EXTRA_BRACKETS = 16
_MAX_GAP_LENGTH = 256
_MAX_FENCE_LENGTH = 40
_FENCE_TICKS = 3
_TICKS = re.compile(r"`*")
_FENCE_LABEL = re.compile(r"[\w-]*")
_BRACKETS = re.compile(r"[\s}\]]*")
_SEPARATOR = re.compile(r"\s*+[,;]?+\s*+")


class FormRejected(Exception):
    """The form's markers are there, but its body cannot be read: try other forms first."""


class UndeclaredCall(Exception):
    """What looked like a call in prose names no declared tool: it is prose."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        """How many characters of it are a call, so that nothing inside is another one."""


class ParserState(Struct, frozen=True, eq=False):
    """What all attempts of one reply share."""

    buffer: TextBuffer
    writer: EventWriter
    sink: CallSink
    resolver: CallResolver
    expected_dialects: tuple[Dialect, ...]
    """The dialects that were named."""
    only_expected: bool
    """Calls in other dialects are rejected."""

    @property
    def accepts_any_tool(self) -> bool:
        """Tools that are not declared may be called too."""
        return self.resolver.tools is None or self.resolver.types_only

    def may_begin_tool_name(self, text: str) -> bool:
        """Return whether the name of a tool that may be called begins with `text`."""
        tools = self.resolver.tools
        return tools is None or self.accepts_any_tool or tools.has_name_starting_with(text)

    def find_tool(self, name: str) -> str | None:
        """Return the declared spelling of a tool's name, or None."""
        tools = self.resolver.tools
        return strip_name_prefix(name) if tools is None else tools.resolve_name(name)


class FormAttempt:
    """One form that is being read, and what is known about its calls so far."""

    __slots__ = (
        "_can_step_back",
        "_repairs",
        "_state",
        "buffer",
        "deferred",
        "fence",
        "form",
        "has_unclosed_list",
        "in_list",
        "in_prose",
        "is_closed",
        "is_example",
        "is_truncated",
        "rejections",
        "sink",
    )

    def __init__(
        self,
        state: ParserState,
        form: CallForm,
        *,
        deferred: DeferredEvents | None = None,
        in_prose: bool = False,
        is_example: bool = False,
        is_truncated: bool = False,
        can_step_back: bool = False,
    ) -> None:
        self._state = state
        self.form = form
        self.buffer = state.buffer
        self.sink = state.sink
        self.deferred = deferred
        """Takes the events if they count only should the attempt succeed."""
        self.in_prose = in_prose
        """The form has no marker and stands in prose: only declared tools count."""
        self.is_example = is_example
        """The text announces an example: nothing here is a call."""
        self.is_truncated = is_truncated
        """The text ended inside a body here, or at an earlier attempt at the same marker."""
        self._can_step_back = can_step_back
        """Other forms are tried if this one finds a fault."""
        self._repairs: dict[str, None] = {}
        """The repairs that were needed to get to the next call."""
        self.fence: tuple[str, ...] = ()
        """The end of a code fence around the body that is not part of the form."""
        self.is_closed = False
        """The closing marker was read with the body."""
        self.has_unclosed_list = False
        self.in_list = False
        """The calls stood in a list, so it holds all of them."""
        self.rejections = 0
        """Rejected drafts since the last call: their text is still to be written."""

    # Reports of the body readers.

    def add_repair(self, code: str) -> None:
        """Note a repair for the next draft."""
        self._repairs[code] = None

    def open_fence(self, ticks: str) -> None:
        self.fence = (ticks,) if ticks else ()

    def drop_fence(self) -> None:
        self.fence = ()

    def mark_closed(self) -> None:
        self.is_closed = True

    def mark_truncated(self, is_truncated: bool = True) -> None:
        self.is_truncated = is_truncated

    def end_list(self, *, in_list: bool, is_closed: bool) -> None:
        """All calls of the body were read."""
        self.in_list = in_list
        self.has_unclosed_list = not is_closed

    def leave_list(self, *, in_list: bool) -> None:
        """Reading stopped before the end of the body."""
        self.has_unclosed_list = in_list

    def add_note(self, code: str, message: str, where: str = "") -> None:
        """Add a note; it counts only if the calls do."""
        self.sink.add_notes((Note(code, message, where[:MAX_EXCERPT]),), self.deferred)

    def add_text(self, text: str) -> None:
        """Add text that stands inside the same value as the calls."""
        if self.deferred is not None:
            self.deferred.add_text(text)
        else:
            self._state.writer.write_text(text)

    def begins_line(self) -> bool:
        return self._state.writer.last_character in ("", "\n")

    # Names of tools.

    @property
    def tools(self) -> Toolset | None:
        return self._state.resolver.tools

    def schema_of(self, name: str) -> dict[str, Any]:
        """Return the schema of a tool's parameters; {} if the tool is not declared."""
        return self.tools.get_schema(name) if self.tools else {}

    def find_tool(self, name: str) -> str | None:
        """Return the declared spelling of a tool's name, or None."""
        return self._state.find_tool(name)

    @property
    def accepts_any_tool(self) -> bool:
        """Tools that are not declared may be called too, except in prose."""
        return self.tools is None or (self._state.accepts_any_tool and not self.in_prose)

    def resolve_name(self, name: str) -> str | None:
        """Return the spelling under which the named tool may be called, or None."""
        found = self.find_tool(name)
        return found or (strip_name_prefix(name) or None if self.accepts_any_tool else None)

    def may_begin_tool_name(self, text: str) -> bool:
        """Return whether the name of a tool that may be called begins with `text`."""
        tools = self.tools
        return tools is None or self.accepts_any_tool or tools.has_name_starting_with(text)

    def is_expected(self) -> bool:
        return self.form.dialect in self._state.expected_dialects

    # Calls.

    def start_streaming(self, name: str, wanted_id: str) -> bool:
        """Start to pass on a call's arguments; return False if they must be read first."""
        sink = self.sink
        if not sink.incremental or self.deferred is not None or self.is_example or not name:
            return False
        spelled = self.resolve_name(name)
        if not spelled or self._is_no_call_name(name):
            return False
        sink.start_streaming(spelled, wanted_id, self.form.dialect)
        return True

    def add_draft(self, draft: CallDraft, start: int) -> None:
        """Make a call of a draft, or reject it; its text was read from `start` since the hold."""
        if self.buffer.is_held_too_long():
            raise HeldTooLong
        draft = self._with_problems(draft)
        if self.fence and self.form.opener:
            self._repairs["code-fence"] = None
        if self._repairs:
            repairs = tuple(dict.fromkeys((*draft.repairs, *self._repairs)))
            draft = structs.replace(draft, repairs=repairs)
            self._repairs.clear()
        checked = self._check(draft, start)
        rejection = checked.rejection
        may_mean_no_call = rejection is None or rejection.code == "unknown-tool"
        if may_mean_no_call and self._is_no_call_name(draft.name):
            raw = self._commit(start)
            self.add_note("no-call", f"{draft.name} means that the model makes no call", raw)
        elif rejection is not None:
            self._reject(rejection, checked.name)
        else:
            self._accept(checked, draft.id, start)

    def _with_problems(self, draft: CallDraft) -> CallDraft:
        """Return the draft, with a problem if the form rules it out."""
        if draft.is_bare and not self.form.opener:
            problem = "an object with a name but no arguments, and no marker, is not a call"
            draft = structs.replace(draft, problem=problem)
        if self.form.body == "line" and self._is_blank(draft):
            draft = structs.replace(draft, problem="the value is missing")
        return draft

    def _check(self, draft: CallDraft, start: int) -> CheckedCall:
        state, dialect = self._state, self.form.dialect
        held = self.buffer.held_text()
        source = held[start:]
        call_start = self.deferred.last_call_end if self.deferred else 0
        checked = state.resolver.check(
            draft, source, held[call_start:], declared_only=self.in_prose
        )
        is_unexpected = state.only_expected and not self.is_expected()
        if is_unexpected and checked.rejection is None:
            problem = f"the dialect {dialect.name} is not expected here"
            checked = rejected("unexpected-dialect", problem, checked.name, raw=source)
        if self.is_example:
            problem = "the text before it announces an example"
            checked = rejected("example", problem, checked.name, raw=source)
        return checked

    def _is_no_call_name(self, name: str) -> bool:
        """Return whether the dialect uses the name to say "no call", and no tool has it."""
        is_no_call = strip_name_prefix(name) in self.form.dialect.no_call_names
        return is_no_call and not (self.tools and self.tools.resolve_name(name))

    def _is_blank(self, draft: CallDraft) -> bool:
        """Return whether a bare value is empty: the text may have ended before it."""
        values = list(draft.arguments.values()) if isinstance(draft.arguments, dict) else []
        held = self.buffer.held_text().rstrip()
        return held.endswith(">") and not "".join(map(str, values)).strip()

    def _accept(self, checked: CheckedCall, wanted_id: str, start: int) -> None:
        is_repeated = self.in_prose and self.sink.is_repeated_in_prose(checked)
        raw = self._commit(start)
        if is_repeated:
            self.sink.retract_streamed_call()
            self.sink.add_notes(repetition(raw).notes, self.deferred)
            return
        self.sink.last_dialect = self.form.dialect
        self._can_step_back = False
        self.sink.accept(checked, self.form.dialect, wanted_id, raw, self.deferred)

    def _commit(self, start: int) -> str:
        """Let go of the text of a call that is certain, and return it."""
        text = self.buffer.held_text()
        if self.deferred is not None:
            raw = text[self.deferred.last_call_end :]
            self.deferred.last_call_end = len(text)
            return raw or text
        raw = text
        if self.rejections:
            raw = text[start:]
            self._state.writer.write_text(text[:start])
            self.rejections = 0
        self.buffer.hold()
        self._state.writer.mark_call_boundary()
        return raw

    def _reject(self, rejection: Rejection, name: str) -> None:
        is_unknown = rejection.code == "unknown-tool"
        if self.in_prose and (is_unknown or not self.find_tool(name)):
            self.sink.retract_streamed_call()
            raise UndeclaredCall(self.buffer.held_length() if is_unknown and name else 0)
        if self._can_step_back and not self.is_example:
            self.sink.retract_streamed_call()
            raise FormRejected
        self.rejections += 1
        self.sink.reject(rejection, self.deferred)


# Reading that several kinds of bodies share.


def read_fence(attempt: FormAttempt) -> Reading[None]:
    """Read the opening of a code fence: models put JSON in one even between markers."""
    buffer = attempt.buffer
    yield from buffer.read_space()
    if (yield from buffer.peek()) == "`" and not attempt.form.opener.startswith("`"):
        ticks = (yield from buffer.read_run(_TICKS, _MAX_FENCE_LENGTH)) or ""
        if len(ticks) >= _FENCE_TICKS:
            yield from buffer.read_run(_FENCE_LABEL, _MAX_FENCE_LENGTH)
        yield from buffer.read_space()
        attempt.open_fence(ticks)


def peek_past_separator(buffer: TextBuffer, wanted: str = "") -> Reading[str]:
    """Return the next character after white space and a separator; read up to it if wanted."""
    while True:
        limit = buffer.position + _MAX_GAP_LENGTH + 2
        match = _SEPARATOR.match(buffer.text, buffer.position, limit)
        end = match.end() if match else buffer.position
        is_too_long = end - buffer.position > _MAX_GAP_LENGTH
        if end < len(buffer.text) and not is_too_long:
            character = buffer.text[end]
            if character == wanted:
                buffer.position = end
            return character
        if buffer.is_final or is_too_long:
            return ""
        yield


def is_comma_next(buffer: TextBuffer) -> bool:
    match = _SEPARATOR.match(buffer.text, buffer.position)
    return match is not None and "," in match[0]


def skip_extra_brackets(attempt: FormAttempt) -> Reading[None]:
    """Skip brackets before the closer: models like to close one more than they opened."""
    buffer, closer = attempt.buffer, attempt.form.closer
    if not closer:
        return
    mark = buffer.held_length()
    brackets = yield from buffer.read_run(_BRACKETS, MAX_EXTRA_BRACKETS)
    if brackets and brackets.strip():
        for end in (*attempt.fence, closer):
            if (yield from buffer.read_literal(end)):
                buffer.position -= len(end)
                note_extra_brackets(attempt, brackets)
                return
    buffer.seek(mark)


def seek_closer(attempt: FormAttempt, start: int) -> Reading[bool]:
    """Go to the form's closer; return False if there is none before the next opener."""
    buffer, form = attempt.buffer, attempt.form
    if not form.closer:
        return False
    markers = marker_set(tuple(marker for marker in (form.closer, form.opener) if marker))
    buffer.seek(start)
    found = yield from buffer.read_through_marker(markers)
    buffer.seek(buffer.held_length() - len(found))
    return found == form.closer


def note_extra_brackets(attempt: FormAttempt, brackets: str) -> None:
    attempt.add_note("repaired-extra-closer", "closing brackets that open nothing", brackets)
