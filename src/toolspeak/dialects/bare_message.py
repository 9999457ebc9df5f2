"""Messages that are nothing but calls: what has no marker of its own counts only there.

Everything is read on trial. Only if the end of the message is reached that way were they calls.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Literal

from ..events import CallEnd
from . import bodies
from .call_sink import CallSink, CallTooLong
from .marker_table import MarkerTable, marker_set
from .template import JSON_SLOTS, CallForm
from .text_buffer import Found

Outcome = Literal["calls", "cut off", "text"]

_FENCE = "```"
_BEFORE_JSON = frozenset("{[`")
_BEFORE_CALLS = frozenset("[`")
_TICKS = re.compile(r"`*")
_WORD = re.compile(r"[\w+\-]*")
_LONGEST_WORD = 40
_END_TAG = re.compile(r"</?+[\w:.\-]*+>?+")


class BareMessageReader:
    """Reads what is left of a message, if it is nothing but calls."""

    def __init__(self, sink: CallSink, table: MarkerTable) -> None:
        self._sink = sink
        self._table = table

    def read(self) -> Generator[None, None, Outcome]:
        """Try every form that may be all of the message, and a fence around any other."""
        first = yield from self._sink.buffer.peek()
        may_be_name = self._sink.may_begin_tool_name(first)
        for form in self._table.bare_forms:
            if form.opener:
                may_begin = form.opener[0] == first and (yield from self._sees(form.opener))
            elif form.body in JSON_SLOTS and not form.header:
                may_begin = first in _BEFORE_JSON
            else:
                may_begin = may_be_name or first in _BEFORE_CALLS
            if may_begin:
                outcome = yield from self._trial(self._form(form))
                if outcome != "text":
                    return outcome
        if not self._table.scope.is_strict and (yield from self._sees(_FENCE)):
            return (yield from self._trial(self._fenced()))
        return "text"

    def _trial(self, steps: Found) -> Generator[None, None, Outcome]:
        sink, buffer = self._sink, self._sink.buffer
        sink.begin_trial()
        try:
            found = yield from steps
        except CallTooLong:
            buffer.active_scanner = None
            found = sink.cut_off = False
        tentative = sink.deferred()
        if found and any(isinstance(event, CallEnd) for event in tentative):
            buffer.release()
            sink.writer.mark_call_boundary()
            sink.writer.emit(*tentative)
            return "calls"
        cut_off = sink.cut_off and buffer.held_extent() <= sink.max_call_length
        buffer.restore()
        sink.forget_calls()
        return "cut off" if cut_off else "text"

    def _sees(self, opener: str) -> Found:
        buffer = self._sink.buffer
        while len(buffer.text) - buffer.position < len(opener) and not buffer.is_final:
            if not opener.startswith(buffer.text[buffer.position :]):
                return False
            yield
        return buffer.text.startswith(opener, buffer.position)

    def _form(self, form: CallForm) -> Found:
        """One form, and nothing behind it but what closes it."""
        sink = self._sink
        if not (yield from sink.limit_length(bodies.read_form(sink, form))) or sink.rejections:
            return False
        wanted = "" if sink.closed else form.closer or "".join(sink.fence)
        return (yield from self._only((*sink.fence, *form.all_closers), wanted))

    def _fenced(self) -> Found:
        """A code fence of any language around calls that have markers."""
        sink, buffer = self._sink, self._sink.buffer
        ticks = (yield from buffer.read_run(_TICKS, _LONGEST_WORD)) or _FENCE
        yield from buffer.read_run(_WORD, _LONGEST_WORD)
        markers = self._table.literals
        closers: tuple[str, ...] = ()
        while True:
            yield from sink.limit_length(buffer.read_space())
            while not buffer.is_final and markers.may_continue(buffer.text, buffer.position):
                yield
            match = markers.pattern.match(buffer.text, buffer.position)
            forms = self._table.markers[match[0]].forms if match else ()
            if not forms or buffer.text.startswith(ticks, buffer.position):
                return (yield from self._only((*closers, ticks), ticks))
            for form in forms:
                mark = buffer.held_length()
                if (
                    yield from sink.limit_length(bodies.read_form(sink, form))
                ) and not sink.rejections:
                    closers = form.all_closers
                    if not (yield from self._swallow(closers, form.closer)) and not sink.closed:
                        self._remark_on_end(form.closer)
                    break
                buffer.seek(mark)
                sink.rejections = 0
            else:
                return False

    def _swallow(self, closers: tuple[str, ...], wanted: str) -> Found:
        """Read any of these; returns whether the one that is wanted was among them."""
        buffer, markers = self._sink.buffer, marker_set(closers)
        found = not wanted
        while True:
            yield from self._sink.limit_length(buffer.read_space())
            match = markers.pattern.match(buffer.text, buffer.position)
            if not buffer.is_final and markers.may_continue(buffer.text, buffer.position):
                yield
            elif match:
                buffer.position = match.end()
                found = found or match[0] == wanted
                self._remark_on_token(match[0])
            else:
                return found

    def _remark_on_end(self, closer: str) -> None:
        self._sink.add_note("unclosed", "the call is not closed where it ends", closer or "]")

    def _remark_on_token(self, token: str) -> None:
        expected = any(token in dialect.control_tokens for dialect in self._table.scope.named)
        if token in self._table.control_tokens and not expected:
            self._sink.add_note("control-token", f"{token} belongs to no text", token)

    def _stray_end(self) -> Found:
        """A sign that ends a statement, or a tag that nothing has opened."""
        sink, buffer = self._sink, self._sink.buffer
        follows = yield from buffer.peek()
        if follows and buffer.held_text().rstrip()[-1:] + follows in ("],", "];", ");"):
            buffer.position += 1
            if follows == ",":
                sink.add_note("repaired-trailing-comma", "a comma after the last call")
            return True
        mark = buffer.held_length()
        if follows != "<" or sink.fence:
            return False
        tag = yield from buffer.read_run(_END_TAG, _LONGEST_WORD)
        if tag and _END_TAG.fullmatch(tag) and tag.endswith(">"):
            sink.add_note("wrong-closer", f"{tag} closes what nothing has opened", tag)
            return True
        buffer.seek(mark)
        return False

    def _only(self, closers: tuple[str, ...], wanted: str) -> Found:
        """Whether nothing is left but these, the last of them cut off perhaps, and tokens that are
        no text. That the one is missing which is wanted is remarked on."""
        buffer, closers = self._sink.buffer, (*closers, *self._table.control_tokens)
        closed = yield from self._swallow(closers, wanted)
        if (yield from self._stray_end()):
            closed = (yield from self._swallow(closers, wanted)) or closed
        if not buffer.is_final:
            return False
        if (self._sink.unclosed or not closed) and not self._sink.cut_off:
            self._remark_on_end(wanted)
        rest = buffer.position < len(buffer.text)
        return not rest or marker_set(closers).may_continue(buffer.text, buffer.position)
