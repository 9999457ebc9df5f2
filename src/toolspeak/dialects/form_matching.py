"""Tries the forms that may begin at a marker, and reads what closes the call.

A form that cannot read the text gives it back, and the next form is tried. Text that no form can
read stays text; so do a call that is too long and one that is cut off.
"""

from __future__ import annotations

import re

from ..events import CallRejected
from .call_sink import DeferredEvents
from .form_attempt import FormAttempt, FormRejected, ParserState, UndeclaredCall
from .form_reader import read_form
from .marker_table import MarkerSet, MarkerTable, marker_set
from .template import CODE_SLOTS, END_OF_TURN_TOKENS, JSON_SLOTS, OTHER_TURN_OPENERS, CallForm
from .text_buffer import HeldTooLong, Reading

_END_TAG = re.compile(r"</(?:[\w:.\-]{1,30}(>?)|\Z)|<\Z()")
_MAX_LINK_LENGTH = 200
"""How much text may stand between two calls in prose."""
_RESCAN_FACTOR, _FREE_RESCAN = 8, 65_536
"""Text may be read this often in vain, on average, before it is passed on unread: this bounds the
parser's time."""


class FormMatcher:
    """Reads the calls of one reply, form by form.

    `is_exhaustive` is for text that is only searched: calls inside other calls, after a complete
    answer and after a truncated one are read too.
    """

    def __init__(
        self, state: ParserState, table: MarkerTable, *, is_exhaustive: bool = False
    ) -> None:
        self._state = state
        self._buffer = state.buffer
        self._writer = state.writer
        self._sink = state.sink
        self._table = table
        self.is_exhaustive = is_exhaustive
        self.is_turn_over = False
        """The final answer, or somebody else's turn, has begun: what follows is not a call."""
        self.reached_end = False
        """The last attempt read to the end of the text."""
        self._open_closers: dict[str, None] = {}
        """Markers that may still close the calls so far, until text comes."""
        self._missing_closers: tuple[str, ...] = ()
        """Markers of which the last call lacked one."""
        self._rescanned = 0
        """How much text was read in vain so far."""
        self._is_answer_complete = False
        """The calls stood in a list or between markers: calls in prose after them are chatter."""
        self._has_noted_chatter = False
        self._has_noted_stray_closer = False

    def match_forms(
        self, forms: tuple[CallForm, ...], *, is_example: bool = False
    ) -> Reading[bool]:
        """Read a call in one of the forms; return False if the marker stays text."""
        forms = self._order_forms(forms)
        rejected: list[CallForm] = []
        undeclared_size = 0
        is_truncated = False
        for index, form in enumerate(forms):
            in_prose = self._is_prose_form(form)
            if in_prose and self._is_answered():
                self._note_chatter()
                continue
            attempt = FormAttempt(
                self._state,
                form,
                in_prose=in_prose,
                is_example=is_example,
                is_truncated=is_truncated,
                can_step_back=index + 1 < len(forms) or bool(rejected),
            )
            try:
                if (yield from self._try_form(attempt)):
                    self._is_answer_complete = not in_prose or attempt.in_list
                    return True
            except FormRejected:
                self._buffer.restore()
                rejected.append(form)
            except UndeclaredCall as undeclared:
                self._buffer.restore()
                undeclared_size = max(undeclared_size, undeclared.size)
            is_truncated = attempt.is_truncated
        if rejected:
            # Every form found a fault: the first one reports its own.
            attempt = FormAttempt(
                self._state, rejected[0], is_example=is_example, is_truncated=is_truncated
            )
            return (yield from self._try_form(attempt))
        if undeclared_size and not self.is_exhaustive:
            self._write_unread(undeclared_size)
            return True
        return is_truncated and self.write_truncated_call()

    def _order_forms(self, forms: tuple[CallForm, ...]) -> tuple[CallForm, ...]:
        """Put the dialect of the last call first."""
        last = self._sink.last_dialect
        if last and len(forms) > 1:
            return tuple(sorted(forms, key=lambda form: form.dialect is not last))
        return forms

    def _try_form(self, attempt: FormAttempt) -> Reading[bool]:
        """Read one form; what it cannot read is given back."""
        self._buffer.hold()
        if (yield from self.read_calls(attempt, read_form(attempt))):
            return True
        self._buffer.restore()
        return self.charge_rescan()

    def read_calls(self, attempt: FormAttempt, body: Reading[bool]) -> Reading[bool]:
        """Read the calls of a form with what closes them; too long a call becomes text."""
        form, sink = attempt.form, self._sink
        is_inert = any(form.opener == opener for opener, _ in form.dialect.inert_spans)
        has_end = bool(form.closer) or form.body in JSON_SLOTS | CODE_SLOTS
        must_close = (self._table.scope.is_strict and has_end) or is_inert
        calls_before = sink.call_count
        if must_close or self.is_exhaustive:
            attempt.deferred = DeferredEvents()
        deferred, found = attempt.deferred, False
        try:
            found = yield from self._buffer.limit(body)
            if found and must_close:
                found = yield from self._is_closed(attempt, or_ends=is_inert)
            if self._buffer.is_held_too_long():
                raise HeldTooLong
        except HeldTooLong:
            self._write_overlong_call()
            return True
        finally:
            attempt.deferred = None
        if not found:
            sink.retract_streamed_call()
            sink.forget_calls(keep=calls_before)
            return False
        if deferred:
            if deferred.has_calls():
                self._writer.mark_call_boundary()
            self._writer.emit(*deferred.events)
            if self.is_exhaustive and any(isinstance(e, CallRejected) for e in deferred.events):
                return False
        yield from self._read_closers(attempt)
        return True

    def _is_closed(self, attempt: FormAttempt, *, or_ends: bool) -> Reading[bool]:
        """Return whether a closing marker of the form comes next, or the end of the text."""
        buffer, form = self._buffer, attempt.form
        if attempt.has_unclosed_list:
            return False
        if attempt.is_closed or not form.closer:
            return True
        mark = buffer.held_length()
        yield from buffer.read_space()
        match = yield from buffer.match_marker(marker_set((*attempt.fence, *form.all_closers)))
        is_closed = match is not None or (or_ends and buffer.position == len(buffer.text))
        buffer.seek(mark)
        return is_closed

    # Closing markers.

    def _read_closers(self, attempt: FormAttempt) -> Reading[None]:
        """Read what closes a call, and write the text of rejected drafts."""
        buffer, writer, form = self._buffer, self._writer, attempt.form
        earlier = self._open_closers if writer.only_space_since_call else {}
        self._open_closers = dict.fromkeys((*attempt.fence, *form.all_closers, *earlier))
        self._missing_closers, self._has_noted_stray_closer = (), False
        space = ""
        is_closed = not form.closer
        while True:
            closers = marker_set(tuple(self._open_closers))
            space += yield from buffer.read_space()
            match = yield from buffer.match_marker(closers)
            if match:
                space = ""
                is_closed = True
                buffer.position = match.end()
                if match[0] == form.dialect.turn_end_closer or match[0] in OTHER_TURN_OPENERS:
                    self.is_turn_over = True
                del self._open_closers[match[0]]
            elif not is_closed and (yield from self._read_wrong_closer(attempt)):
                is_closed = True
                space = ""
            else:
                break
        if buffer.is_final and self._begins_closer(closers):
            rest = buffer.text[buffer.position :]
            writer.add_note("unclosed", "the closing marker of a call is cut off", rest)
            buffer.position = len(buffer.text)
        elif attempt.has_unclosed_list or not (
            is_closed or attempt.is_closed or form.closer in END_OF_TURN_TOKENS
        ):
            self._note_missing_closer(attempt)
        text = buffer.release()
        if attempt.rejections:
            writer.write_text(text)
        else:
            writer.mark_call_boundary()
            writer.write_text(space)

    def _note_missing_closer(self, attempt: FormAttempt) -> None:
        """Note that a call is not closed, and expect its closer later."""
        if not attempt.is_truncated and not attempt.rejections:
            where = attempt.form.closer or "]"
            self._writer.add_note("unclosed", "the call has no closing marker", where)
            self._missing_closers = attempt.form.all_closers

    def _read_wrong_closer(self, attempt: FormAttempt) -> Reading[bool]:
        """Read another tag's end where the call's own should be."""
        buffer, opener = self._buffer, attempt.form.opener
        if not opener.startswith("<") or opener.startswith("<|"):
            return False
        while True:
            match = _END_TAG.match(buffer.text, buffer.position)
            if match is None:
                return False
            if match[1]:
                if not attempt.is_example:
                    message = f"{match[0]} closes {opener}"
                    self._writer.add_note("wrong-closer", message, match[0])
                buffer.position = match.end()
                return True
            if buffer.is_final or match.end() < len(buffer.text):
                return False
            yield

    def _begins_closer(self, closers: MarkerSet) -> bool:
        """Return whether the text ends with more than one character of a closing marker."""
        rest = self._buffer.text[self._buffer.position :]
        return len(rest) > 1 and rest[0] in "<[`~]" and closers.may_continue(rest, 0)

    def read_late_closer(self, literal: str) -> bool:
        """Read a closing marker after a call that lacked it, or that has it twice.

        In the midst of text it stays text: one of the call's values may have held it and been cut
        short by it.
        """
        last = self._sink.last_dialect if self._sink.call_count else None
        if last is None or literal not in last.closing_tags or self.is_turn_over:
            return False
        is_late, is_second = literal in self._missing_closers, self._writer.only_space_since_call
        if is_second and not is_late:
            self._writer.add_note("repaired-extra-closer", f"{literal} comes twice", literal)
        elif not is_late and not self._has_noted_stray_closer:
            self._has_noted_stray_closer = True
            message = f"{literal} closes nothing here; it may have cut the last call short"
            self._writer.add_note("stray-closer", message, literal)
        if is_late or is_second:
            self._missing_closers = ()
            self._buffer.position += len(literal)
        return is_late or is_second

    # Calls that do not count.

    def are_prose_forms(self, forms: tuple[CallForm, ...]) -> bool:
        """Return whether all forms are ones that count in prose: failing to read them is normal."""
        return bool(forms) and all(map(self._is_prose_form, forms))

    def _is_prose_form(self, form: CallForm) -> bool:
        """Return whether a form counts only because trust is lenient; control tokens always do."""
        is_bare = not form.opener or form.opener.startswith("`")
        return is_bare and form.dialect in self._table.scope.in_prose

    def _is_answered(self) -> bool:
        """Return whether the calls so far are all: models go on with explanations and examples."""
        if self.is_exhaustive or not self._sink.call_count:
            return False
        return self._is_answer_complete or self._writer.length_since_call > _MAX_LINK_LENGTH

    def is_too_late(self) -> bool:
        """Return whether a call here would rest on a fabricated result or follow the answer."""
        if self.is_turn_over and not self.is_exhaustive:
            self._note_chatter()
            return True
        return False

    def end_turn(self) -> None:
        """The final answer, or somebody else's turn, begins: nothing after it is a call."""
        self.is_turn_over = True

    def _note_chatter(self) -> None:
        """Note once that a tool is named after the answer."""
        if not self._has_noted_chatter and self._buffer.text[self._buffer.position] not in "{[`":
            self._has_noted_chatter = True
            self._writer.add_note("after-answer", "calls after a complete answer are text")

    # Text instead of calls.

    def write_truncated_call(self) -> bool:
        """Write the rest of the text, which ends inside a call; calls inside it do not count."""
        if self.is_exhaustive:
            return False
        rest = self._buffer.text[self._buffer.position :]
        self._buffer.position = len(self._buffer.text)
        self._writer.add_note("truncated", "a call is cut off; it is not made", rest)
        self._writer.write_text(rest)
        return True

    def _write_overlong_call(self) -> None:
        """Write as much text as a call may have."""
        buffer = self._buffer
        self._sink.retract_streamed_call()
        buffer.active_scanner = None
        buffer.seek(buffer.max_held_length)
        text = buffer.release()
        message = f"a call of more than {buffer.max_held_length} characters is text"
        self._writer.add_note("too-long", message, text)
        self._writer.write_text(text)

    def _write_unread(self, length: int) -> None:
        """Write text that was read in vain without reading it again."""
        buffer = self._buffer
        self._writer.write_text(buffer.text[buffer.position : buffer.position + length])
        buffer.position += length

    def charge_rescan(self) -> bool:
        """Account for text that was read in vain; return True if it was written as text.

        That happens once so much text was read in vain that time would not be linear.
        """
        buffer = self._buffer
        length = buffer.furthest - buffer.offset
        is_at_end = buffer.is_final and buffer.position + length >= len(buffer.text)
        self.reached_end = self.reached_end or is_at_end
        self._rescanned += length
        if self._rescanned <= _FREE_RESCAN + _RESCAN_FACTOR * buffer.furthest:
            return False
        self._write_unread(length)
        return True
