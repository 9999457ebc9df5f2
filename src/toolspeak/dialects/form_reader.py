"""One attempt to read one form, from its opener on: the header, then the body.

    <tool_call>  get_weather\\n   <arg_key>city</arg_key>…   </tool_call>
    opener       header          body                       closer

The header holds the tool's name, an id, the attributes of a tag. Each kind of body has a reader: a
generator that adds every call it finds to the attempt, and returns a `Body`. `FormReader` has each
call checked and written, and gives up if the model cannot have meant this form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, structs

from ..calls.drafts import CallDraft, unwrap_call
from ..calls.resolution import CallResolver, CheckedDraft, drop_repetition, reject_draft
from ..calls.tools import clean_name
from ..events import TextDelta
from ..types import Rejection
from .call_sink import CallSink, EventWriter
from .markers import MarkerTable, marker_set
from .template import CallForm, InvalidBody, ParsedArguments
from .text_buffer import HeldTooLong, Reading, TextBuffer

MAX_EXTRA_BRACKETS = 16
MAX_NAME_LENGTH = 256
_MAX_FENCE_LENGTH = 40
_FENCE_TICKS = 3
_TICKS = re.compile(r"`*")
_FENCE_LABEL = re.compile(r"[\w-]*")
_BODY_START = re.compile(r"\s*(?:\]<\]\w+\[>\[)?<\w|\s*[\w\-]+\s*:")
_BRACKETS = re.compile(r"[\s}\]]*")


class FormRejected(Exception):
    """The form's markers are there, but its body cannot be read: try other forms first."""


class UndeclaredCall(Exception):
    """Text in prose that looked like a call names no declared tool: it is prose."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        """The length of the call: nothing inside it is another call."""


class Body(Struct, frozen=True):
    """The result of reading a body. Its calls are in the reader's events."""

    has_calls: bool = True
    fence: tuple[str, ...] = ()
    """The end of a code fence, still to be read after the body."""
    is_closed: bool = False
    """The closing marker was read with the body."""
    in_list: bool = False
    """The calls are in a list, so it holds all of them."""
    has_unclosed_list: bool = False
    is_truncated: bool | None = None
    """The text ended inside the body; None if the reader did not get so far."""


class Header(Struct, frozen=True):
    """The words before the body."""

    name: str = ""
    id: str = ""
    is_self_closing: bool = False
    """The header is a tag that has no body: `<invoke name="now"/>`."""


NO_BODY = Body(has_calls=False)
BodyParser = Callable[[str, Mapping[str, Any]], ParsedArguments]
"""Parses the text of a body, given the schema of the tool's parameters."""


# The attempt.


class ParserState(Struct, frozen=True, eq=False):
    """The parts of a parser that all attempts of one reply share."""

    table: MarkerTable
    buffer: TextBuffer
    writer: EventWriter
    sink: CallSink
    resolver: CallResolver


class FormReader:
    """Reads one form at one place of the text."""

    def __init__(
        self,
        state: ParserState,
        form: CallForm,
        *,
        in_prose: bool = False,
        is_example: bool = False,
        is_truncated: bool = False,
        ends_message: bool = False,
        can_step_back: bool = False,
    ) -> None:
        self._state = state
        self.form = form
        self.buffer = state.buffer
        self.writer = state.writer
        self.sink = state.sink
        self.tools = state.resolver.tools
        self.accepts_undeclared = state.resolver.accepts_undeclared(declared_only=in_prose)
        """Tools that are not declared may be called too."""
        self.accepts_words = state.resolver.trust == "lenient"
        """Words without quotes may be strings."""
        self.in_prose = in_prose
        """The form has no marker and is within prose: only declared tools may be called."""
        self.is_example = is_example
        """The text announces an example: nothing here is a call."""
        self.is_truncated = is_truncated
        """The text ended inside a body here, or at an earlier attempt at the same marker."""
        self.ends_message = ends_message
        """The call is in a message to the user, unless it ends that message."""
        self._can_step_back = can_step_back
        """Other forms are tried if this one finds a fault."""
        self._repairs: list[str] = []
        self.fence: tuple[str, ...] = ()
        """The end of a code fence around the body that is not part of the form."""
        self.rejections = 0
        """Rejected drafts since the last call: their text is still to be written."""
        self.rejected_texts: list[str] = []
        """The texts of all rejected drafts."""
        self._has_accepted = False

    def run(self, reader: Reading[Body]) -> Reading[Body]:
        """Run a body reader.

        Raises `HeldTooLong`, `FormRejected` or `UndeclaredCall` if its text is not a call.
        """
        body = yield from self.buffer.limit(reader)
        if body.is_truncated is not None:
            self.is_truncated = body.is_truncated
        return structs.replace(body, fence=self.fence) if self.fence else body

    # For the body readers.

    def resolve_name(self, name: str) -> str | None:
        """Return the spelling under which the named tool may be called here, or None."""
        found = self.tools.resolve_name(name)
        return found or (clean_name(name) or None if self.accepts_undeclared else None)

    def find_named(self, text: str) -> str:
        """Return the tool that a broken call names, or ""."""
        return self.tools.find_named(text) or ""

    def may_begin_name(self, text: str) -> bool:
        """Return True if the name of a tool that may be called here begins with `text`."""
        return self.accepts_undeclared or self.tools.has_name_starting_with(text)

    def add_repair(self, code: str) -> None:
        """Add a repair that was needed to get to the next call."""
        self._repairs.append(code)

    def write_text(self, text: str) -> None:
        """Write text that stood beside the calls."""
        if self.writer.trial:
            self.writer.emit(TextDelta(text))
        else:
            self.writer.write_text(text)

    def is_expected(self) -> bool:
        return self.form.dialect in self._state.table.scope.named

    def start_streaming(self, name: str, wanted_id: str) -> bool:
        """Start to pass on a call's arguments; return False if they must be read first."""
        sink = self.sink
        if not sink.incremental or self.writer.trial or self.is_example or not name:
            return False
        spelled = self.resolve_name(name)
        if not spelled or self._is_no_call_name(name):
            return False
        sink.start_streaming(spelled, wanted_id, self.form.dialect)
        return True

    # Calls.

    def add_body(self, header: Header, text: str, parse: BodyParser) -> None:
        """Make or reject the call whose arguments are in the text of a body."""
        try:
            arguments, repairs = parse(text, self.tools.get_schema(header.name))
        except InvalidBody as error:
            self.add_call(CallDraft(header.name, problem=str(error)))
        else:
            self.add_call(CallDraft(header.name, arguments, header.id, repairs=repairs))

    def add_call(self, draft: CallDraft, start: int = 0, text: str = "") -> None:
        """Make a call, or reject it. Its text begins `start` characters after the buffer's hold;
        `text` is given if several calls have that text in common."""
        drafts = unwrap_call(draft, self.tools)
        for one in drafts:
            text = text if len(drafts) == 1 else one.describe()
            self._add_call(one, start, text)

    def _add_call(self, draft: CallDraft, start: int, text: str) -> None:
        if self.buffer.is_held_too_long():
            raise HeldTooLong
        draft = self._with_problems(draft)
        if draft.problem and not draft.name and self.form.opener:
            draft = structs.replace(draft, name=self.find_named(self.buffer.held_text()[start:]))
        if self.fence and self.form.opener:
            self._repairs.append("code-fence")
        if self._repairs:
            repairs = tuple(dict.fromkeys((*draft.repairs, *self._repairs)))
            draft = structs.replace(draft, repairs=repairs)
            self._repairs.clear()
        checked = self._check(draft, start)
        rejection = checked.rejection
        may_mean_no_call = rejection is None or rejection.code == "unknown-tool"
        if may_mean_no_call and self._is_no_call_name(draft.name):
            message = f"{draft.name} means that the model makes no call"
            self.writer.add_note("no-call", message, self._commit(start))
        elif rejection is not None:
            self._reject(rejection, checked.name, text or self.buffer.held_text()[start:])
        else:
            self._accept(checked, draft.id, start)

    def _with_problems(self, draft: CallDraft) -> CallDraft:
        """Return the draft, with a problem if the form rules it out."""
        if draft.is_bare and not self.form.opener:
            problem = "the object has a name but no arguments, so it is not a call"
            draft = structs.replace(draft, problem=problem)
        if self.form.body == "line" and self._is_blank(draft):
            draft = structs.replace(draft, problem="the parameter has no value")
        return draft

    def _is_blank(self, draft: CallDraft) -> bool:
        """Return True if a bare value is empty: the text may have ended before it."""
        values = list(draft.arguments.values()) if isinstance(draft.arguments, dict) else []
        held = self.buffer.held_text().rstrip()
        return held.endswith(">") and not "".join(map(str, values)).strip()

    def _check(self, draft: CallDraft, start: int) -> CheckedDraft:
        state, scope, trial = self._state, self._state.table.scope, self.writer.trial
        held = self.buffer.held_text()
        source = held[start:]
        raw = held[trial.last_call_end :] if trial else held
        checked = state.resolver.check(draft, source, raw, declared_only=self.in_prose)
        is_foreign = scope.is_strict and scope.named and not self.is_expected()
        if is_foreign and checked.rejection is None:
            problem = f"the dialect {self.form.dialect.name} is not expected here"
            checked = reject_draft("unexpected-dialect", problem, checked.name, raw=source)
        if self.is_example:
            problem = "the text before the call announces an example, or says that no tool fits"
            checked = reject_draft("example", problem, checked.name, raw=source)
        return checked

    def _is_no_call_name(self, name: str) -> bool:
        """Return True if the dialect uses the name to say "no call", and no tool has it."""
        is_no_call = clean_name(name) in self.form.dialect.no_call_names
        return is_no_call and not self.tools.is_declared(name)

    def _accept(self, checked: CheckedDraft, wanted_id: str, start: int) -> None:
        is_repeated = self.in_prose and self.sink.is_repeated_in_prose(checked)
        raw = self._commit(start)
        if is_repeated:
            self.sink.retract_streamed_call()
            self.writer.emit(*drop_repetition(raw).notes)
            return
        self.sink.last_dialect = self.form.dialect
        self._can_step_back = False
        self._has_accepted = True
        self.sink.accept(checked, self.form.dialect, wanted_id, raw)

    def _commit(self, start: int) -> str:
        """Let go of the text of a call that is certain, and return it."""
        writer = self.writer
        text = self.buffer.held_text()
        if writer.trial:
            raw = text[writer.trial.last_call_end :]
            writer.trial.last_call_end = len(text)
            return raw or text
        raw = text
        if self.rejections:
            raw = text[start:]
            writer.write_text(text[:start])
            self.rejections = 0
        self.buffer.hold()
        writer.mark_call_boundary()
        return raw

    def _reject(self, rejection: Rejection, name: str, text: str) -> None:
        is_unknown = rejection.code == "unknown-tool"
        is_prose = self.in_prose and not self._has_accepted
        if is_prose and (is_unknown or not self.tools.resolve_name(name)):
            self.sink.retract_streamed_call()
            raise UndeclaredCall(self.buffer.held_length() if is_unknown and name else 0)
        if self._can_step_back and not self.is_example:
            self.sink.retract_streamed_call()
            raise FormRejected
        self.rejections += 1
        self.rejected_texts.append(text)
        self.sink.reject(rejection)


# Reading that several kinds of bodies share.


def read_fence(attempt: FormReader) -> Reading[None]:
    """Read the opening of a code fence: models put JSON in one even between markers."""
    buffer = attempt.buffer
    yield from buffer.read_space()
    if (yield from buffer.peek()) != "`" or attempt.form.opener.startswith("`"):
        return
    ticks = (yield from buffer.read_run(_TICKS, _MAX_FENCE_LENGTH)) or ""
    if len(ticks) >= _FENCE_TICKS:
        yield from buffer.read_run(_FENCE_LABEL, _MAX_FENCE_LENGTH)
    yield from buffer.read_space()
    attempt.fence = (ticks,) if ticks else ()


def skip_extra_brackets(attempt: FormReader) -> Reading[None]:
    """Skip brackets before the closer: models often close one more than they opened."""
    buffer, closer = attempt.buffer, attempt.form.closer
    if not closer and not attempt.is_expected():
        return
    mark = buffer.held_length()
    brackets = yield from buffer.read_run(_BRACKETS, MAX_EXTRA_BRACKETS)
    if brackets and brackets.strip():
        if not closer and not (yield from buffer.peek()):
            note_extra_brackets(attempt, brackets)
            return
        for end in (*attempt.fence, closer):
            if (yield from buffer.read_literal(end)):
                buffer.position -= len(end)
                note_extra_brackets(attempt, brackets)
                return
    buffer.seek(mark)


def note_extra_brackets(attempt: FormReader, brackets: str) -> None:
    message = "closing brackets without opening brackets"
    attempt.writer.add_note("repaired-extra-closer", message, brackets)


def seek_closer(attempt: FormReader, start: int) -> Reading[bool]:
    """Go to the form's closer; return False if there is none before the next opener."""
    buffer, form = attempt.buffer, attempt.form
    if not form.closer:
        return False
    markers = marker_set(tuple(marker for marker in (form.closer, form.opener) if marker))
    buffer.seek(start)
    _, found = yield from buffer.read_until_marker(markers)
    return found == form.closer


def read_to_closer(
    attempt: FormReader, header: Header, parse: BodyParser, closers: tuple[str, ...]
) -> Reading[Body]:
    """Read a body up to one of the closers."""
    text, found = yield from attempt.buffer.read_until_marker(marker_set(closers))
    if not found:
        return Body(has_calls=False, is_truncated=_BODY_START.match(text) is not None)
    attempt.buffer.position += len(found)
    attempt.add_body(header, text, parse)
    return Body(is_closed=True)
