"""Messages that are nothing but calls: forms without a marker count only there.

    {"name": "get_weather", "arguments": {"city": "Oslo"}}        the whole reply

Everything is read on trial: only if the end of the message is reached were they calls.
"""

from __future__ import annotations

import re
from typing import Literal

from .call_sink import DeferredEvents
from .form_attempt import FormAttempt, ParserState
from .form_reader import read_form
from .marker_table import MarkerTable, marker_set
from .template import JSON_SLOTS, CallForm
from .text_buffer import HeldTooLong, Reading

Outcome = Literal["calls", "truncated", "text"]

_FENCE = "```"
_BEFORE_JSON = frozenset("{[`")
_BEFORE_CODE = frozenset("[`")
_TICKS = re.compile(r"`*")
_FENCE_LABEL = re.compile(r"[\w+\-]*")
_MAX_WORD_LENGTH = 40
_TAG = re.compile(r"</?+[\w:.\-]*+>?+")


class _Trial:
    """What one trial has found: the events, and the last form that was read."""

    def __init__(self) -> None:
        self.deferred = DeferredEvents()
        self.attempt: FormAttempt | None = None


class BareMessageReader:
    """Reads the rest of a message, if it is nothing but calls."""

    def __init__(self, state: ParserState, table: MarkerTable) -> None:
        self._state = state
        self._buffer = state.buffer
        self._table = table

    def read(self) -> Reading[Outcome]:
        """Try every form that may be the whole message, and a code fence around any other."""
        first = yield from self._buffer.peek()
        may_begin_name = self._state.may_begin_tool_name(first)
        for form in self._table.bare_forms:
            if form.opener:
                may_begin = form.opener[0] == first and (yield from self._is_next(form.opener))
            elif form.body in JSON_SLOTS and not form.header:
                may_begin = first in _BEFORE_JSON
            else:
                may_begin = may_begin_name or first in _BEFORE_CODE
            if may_begin:
                trial = _Trial()
                outcome = yield from self._run_trial(trial, self._read_form(trial, form))
                if outcome != "text":
                    return outcome
        if not self._table.scope.is_strict and (yield from self._is_next(_FENCE)):
            trial = _Trial()
            return (yield from self._run_trial(trial, self._read_fenced_forms(trial)))
        return "text"

    def _run_trial(self, trial: _Trial, steps: Reading[bool]) -> Reading[Outcome]:
        """Run `steps`; write the events if they reach the end, else give the text back."""
        state, buffer = self._state, self._buffer
        buffer.hold()
        is_too_long = False
        try:
            found = yield from steps
        except HeldTooLong:
            buffer.active_scanner = None
            found, is_too_long = False, True
        if found and trial.deferred.has_calls():
            buffer.release()
            state.writer.mark_call_boundary()
            state.writer.emit(*trial.deferred.events)
            return "calls"
        is_truncated = trial.attempt is not None and trial.attempt.is_truncated
        is_truncated = is_truncated and not is_too_long and not buffer.is_held_too_long()
        buffer.restore()
        state.sink.forget_calls()
        return "truncated" if is_truncated else "text"

    def _attempt(self, trial: _Trial, form: CallForm) -> FormAttempt:
        is_truncated = trial.attempt is not None and trial.attempt.is_truncated
        attempt = FormAttempt(self._state, form, deferred=trial.deferred, is_truncated=is_truncated)
        trial.attempt = attempt
        return attempt

    def _is_next(self, opener: str) -> Reading[bool]:
        buffer = self._buffer
        while len(buffer.text) - buffer.position < len(opener) and not buffer.is_final:
            if not opener.startswith(buffer.text[buffer.position :]):
                return False
            yield
        return buffer.text.startswith(opener, buffer.position)

    def _read_form(self, trial: _Trial, form: CallForm) -> Reading[bool]:
        """Read one form, and nothing behind it but what closes it."""
        attempt = self._attempt(trial, form)
        found = yield from self._buffer.limit(read_form(attempt))
        if not found or attempt.rejections:
            return False
        wanted = "" if attempt.is_closed else form.closer or "".join(attempt.fence)
        return (yield from self._read_end(attempt, (*attempt.fence, *form.all_closers), wanted))

    def _read_fenced_forms(self, trial: _Trial) -> Reading[bool]:
        """Read a code fence in any language around calls that have markers."""
        buffer = self._buffer
        ticks = (yield from buffer.read_run(_TICKS, _MAX_WORD_LENGTH)) or _FENCE
        yield from buffer.read_run(_FENCE_LABEL, _MAX_WORD_LENGTH)
        closers: tuple[str, ...] = ()
        while True:
            yield from buffer.limit(buffer.read_space())
            match = yield from buffer.match_marker(self._table.literals)
            forms = self._table.markers[match[0]].forms if match else ()
            if not forms or buffer.text.startswith(ticks, buffer.position):
                if trial.attempt is None:
                    return False  # An empty fence holds no call.
                return (yield from self._read_end(trial.attempt, (*closers, ticks), ticks))
            form = yield from self._read_fenced_form(trial, forms)
            if form is None:
                return False
            closers = form.all_closers

    def _read_fenced_form(
        self, trial: _Trial, forms: tuple[CallForm, ...]
    ) -> Reading[CallForm | None]:
        """Read one of the forms with what closes it; return the form, or None."""
        buffer = self._buffer
        for form in forms:
            mark = buffer.held_length()
            attempt = self._attempt(trial, form)
            found = yield from buffer.limit(read_form(attempt))
            if found and not attempt.rejections:
                closers = form.all_closers
                is_closed = yield from self._read_closers(attempt, closers, form.closer)
                if not is_closed and not attempt.is_closed:
                    _note_unclosed(attempt, form.closer)
                return form
            buffer.seek(mark)
        return None

    def _read_closers(
        self, attempt: FormAttempt, closers: tuple[str, ...], wanted: str
    ) -> Reading[bool]:
        """Read any of the closers; return whether the wanted one was among them."""
        buffer, markers = self._buffer, marker_set(closers)
        found = not wanted
        while True:
            yield from buffer.limit(buffer.read_space())
            match = yield from buffer.match_marker(markers)
            if match is None:
                return found
            buffer.position = match.end()
            found = found or match[0] == wanted
            self._note_control_token(attempt, match[0])

    def _note_control_token(self, attempt: FormAttempt, token: str) -> None:
        """Note a control token that the named dialects do not have."""
        named = self._table.scope.named
        is_expected = any(token in dialect.control_tokens for dialect in named)
        if token in self._table.control_tokens and not is_expected:
            attempt.add_note("control-token", f"{token} is not text; dropped", token)

    def _read_stray_end(self, attempt: FormAttempt) -> Reading[bool]:
        """Read a sign that ends a statement, or a tag that closes nothing."""
        buffer = self._buffer
        follows = yield from buffer.peek()
        if follows and buffer.held_text().rstrip()[-1:] + follows in ("],", "];", ");"):
            buffer.position += 1
            if follows == ",":
                attempt.add_note("repaired-trailing-comma", "a comma follows the last call")
            return True
        mark = buffer.held_length()
        if follows != "<" or attempt.fence:
            return False
        tag = yield from buffer.read_run(_TAG, _MAX_WORD_LENGTH)
        if tag and _TAG.fullmatch(tag) and tag.endswith(">"):
            attempt.add_note("wrong-closer", f"{tag} closes nothing", tag)
            return True
        buffer.seek(mark)
        return False

    def _read_end(
        self, attempt: FormAttempt, closers: tuple[str, ...], wanted: str
    ) -> Reading[bool]:
        """Return whether only closers and control tokens are left, the last one perhaps cut off."""
        buffer, closers = self._buffer, (*closers, *self._table.control_tokens)
        is_closed = yield from self._read_closers(attempt, closers, wanted)
        if (yield from self._read_stray_end(attempt)):
            is_closed = (yield from self._read_closers(attempt, closers, wanted)) or is_closed
        if not buffer.is_final:
            return False
        if (attempt.has_unclosed_list or not is_closed) and not attempt.is_truncated:
            _note_unclosed(attempt, wanted)
        is_at_end = buffer.position == len(buffer.text)
        return is_at_end or marker_set(closers).may_continue(buffer.text, buffer.position)


def _note_unclosed(attempt: FormAttempt, closer: str) -> None:
    attempt.add_note("unclosed", "the call has no closing marker", closer or "]")
