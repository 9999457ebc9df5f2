"""Tries to read a call where one may begin, and what closes it.

A form that cannot read what stands there gives it back, and the next one tries. What no form can
read is text, and so is a call that is too long, or that the text ends in.
"""

from __future__ import annotations

import re

from ..events import CallEnd, CallRejected
from . import bodies
from .call_sink import CallSink, CallTooLong, FormRejected, UndeclaredCall
from .marker_table import MarkerSet, MarkerTable, marker_set
from .template import CODE_SLOTS, END_OF_TURN_TOKENS, JSON_SLOTS, OTHER_TURN_OPENERS, CallForm
from .text_buffer import Found, Steps

_END_TAG = re.compile(r"</(?:[\w:.\-]{1,30}(>?)|\Z)|<\Z()")
_LONGEST_LINK = 200
"""How much text may stand between two calls in prose."""
_RESCAN_FACTOR, _RESCAN_FREE = 8, 65_536
"""How often text may be read in vain, on average, before it is given up."""


class FormMatcher:
    """Every attempt at a call, in one reply.

    `exhaustive` is for texts that nobody acts on: calls inside of others, after a complete answer
    and after one that is cut off are read too.
    """

    def __init__(self, sink: CallSink, table: MarkerTable, *, exhaustive: bool = False) -> None:
        self._sink = sink
        self._buffer = sink.buffer
        self._writer = sink.writer
        self._table = table
        self.is_exhaustive = exhaustive
        self._open: dict[str, None] = {}
        """What may still close the calls so far, each once, until text comes."""
        self._debt = 0
        """How much text was read in vain, to be read again."""
        self._complete = False
        """The calls so far stood in a list, or in a wrapper: there is no reason to expect more."""
        self._said_chatter = False
        self.is_turn_over = False
        """What follows is not the model's to say, or only the answer."""
        self._late: tuple[str, ...] = ()
        """What the last call should have been closed by."""
        self._said_stray = False
        self.reached_end = False
        """The last attempt to read a call came to the end of the text."""

    def match_forms(self, forms: tuple[CallForm, ...]) -> Found:
        """Try the forms that may begin here. One that finds a fault steps back for the others."""
        last = self._sink.last_dialect
        if last and len(forms) > 1:
            forms = tuple(sorted(forms, key=lambda form: form.dialect is not last))
        faulty: list[CallForm] = []
        foreign = 0
        self._sink.cut_off = False
        for index, form in enumerate(forms):
            self._sink.steps_back = index + 1 < len(forms) or bool(faulty)
            self._sink.embedded = self._is_embedded(form)
            if self._sink.embedded and self._answered():
                self._remark_on_chatter()
                continue
            try:
                if (yield from self._attempt(form)):
                    self._complete = not self._sink.embedded or self._sink.listed
                    self._sink.steps_back = self._sink.embedded = False
                    return True
            except FormRejected:
                self._buffer.restore()
                faulty.append(form)
            except UndeclaredCall as prose:
                self._buffer.restore()
                foreign = max(foreign, prose.size)
        self._sink.steps_back = self._sink.embedded = False
        if faulty:
            return (yield from self._attempt(faulty[0]))
        if foreign and not self.is_exhaustive:
            self._say_unread(foreign)
            return True
        return self._sink.cut_off and self.write_truncated_call()

    def _say_unread(self, size: int) -> None:
        """Let go of text that was read already, and is none of our calls."""
        buffer = self._buffer
        self._writer.write_text(buffer.text[buffer.position : buffer.position + size])
        buffer.position += size

    def are_prose_forms(self, forms: tuple[CallForm, ...]) -> bool:
        """Whether what none of these forms can read is nothing to speak of."""
        return bool(forms) and all(map(self._is_embedded, forms))

    def _is_embedded(self, form: CallForm) -> bool:
        """Whether a form counts only because trust is lenient; control tokens always count."""
        bare = not form.opener or form.opener.startswith("`")
        return bare and form.dialect in self._table.scope.in_prose

    def _answered(self) -> bool:
        """Whether the calls so far are all: models go on with explanations and examples."""
        if self.is_exhaustive or not self._sink.call_count:
            return False
        return self._complete or self._writer.length_since_call > _LONGEST_LINK

    def is_too_late(self) -> bool:
        """Whether calls rest on what only others could say: on results that the model invents."""
        if self.is_turn_over and not self.is_exhaustive:
            self._remark_on_chatter()
            return True
        return False

    def end_turn(self) -> None:
        """The final answer begins: all that follows is prose."""
        self.is_turn_over = True

    def _remark_on_chatter(self) -> None:
        """Say once that a tool is named again after the answer."""
        if not self._said_chatter and self._buffer.text[self._buffer.position] not in "{[`":
            self._said_chatter = True
            self._writer.add_note("after-answer", "calls after a complete answer are prose")

    def write_truncated_call(self) -> bool:
        """The text ends inside a call: what is there of it is text, and holds no calls itself."""
        if self.is_exhaustive:
            return False
        rest = self._buffer.text[self._buffer.position :]
        self._buffer.position = len(self._buffer.text)
        self._writer.add_note("truncated", "a call is cut off, and is not made", rest)
        self._writer.write_text(rest)
        return True

    def _attempt(self, form: CallForm) -> Found:
        """Try to read a form here; what cannot be read is given back."""
        self._buffer.hold()
        if (yield from self.read(form, bodies.read_form(self._sink, form))):
            return True
        self._buffer.restore()
        return self.charge_rescan()

    def read(self, form: CallForm, body: Found) -> Found:
        """Read calls with what closes them, or as much of them as a call may have as text."""
        sink = self._sink
        sink.rejections = 0
        sink.closed = sink.unclosed = False
        sink.liberties.clear()
        sink.fence = ()
        inert = any(form.opener == opener for opener, _ in form.dialect.inert_spans)
        ends = bool(form.closer) or form.body in JSON_SLOTS | CODE_SLOTS
        strict = (self._table.scope.is_strict and ends) or inert
        made = sink.call_count
        if strict or self.is_exhaustive:
            sink.defer()
        try:
            found = yield from sink.limit_length(body)
            if found and strict:
                found = yield from self._is_closed(form, or_ends=inert)
            if self._buffer.held_extent() > sink.max_call_length:
                raise CallTooLong
        except CallTooLong:
            self._overflow()
            return True
        finally:
            tentative = sink.deferred()
        if found:
            if any(isinstance(event, CallEnd) for event in tentative):
                self._writer.mark_call_boundary()
            self._writer.emit(*tentative)
            if self.is_exhaustive and any(isinstance(event, CallRejected) for event in tentative):
                return False
            yield from self._closers(form)
            return True
        sink.retract_started_call()
        sink.forget_calls(made)
        return False

    def _is_closed(self, form: CallForm, *, or_ends: bool) -> Found:
        """Whether one of a form's closing markers comes next, or the end of the text."""
        buffer = self._buffer
        if self._sink.unclosed:
            return False
        if self._sink.closed or not form.closer:
            return True
        mark = buffer.held_length()
        closers = marker_set((*self._sink.fence, *form.all_closers))
        yield from buffer.read_space()
        while not buffer.is_final and closers.may_continue(buffer.text, buffer.position):
            yield
        found = closers.pattern.match(buffer.text, buffer.position) is not None
        found = found or (or_ends and buffer.position == len(buffer.text))
        buffer.seek(mark)
        return found

    def charge_rescan(self) -> bool:
        """Whether so much was read in vain that what was read last is text without another look."""
        buffer = self._buffer
        size = buffer.furthest - buffer.text_offset - buffer.position
        self.reached_end = self.reached_end or (
            buffer.is_final and buffer.position + size >= len(buffer.text)
        )
        self._debt += size
        if self._debt <= _RESCAN_FREE + _RESCAN_FACTOR * buffer.furthest:
            return False
        self._say_unread(size)
        return True

    def _overflow(self) -> None:
        """The call is too long: as much of it as a call may have becomes text."""
        limit = self._sink.max_call_length
        self._sink.retract_started_call()
        self._buffer.active_scanner = None
        self._buffer.seek(limit)
        text = self._buffer.release()
        self._writer.add_note("too-long", f"a call of more than {limit} characters is text", text)
        self._writer.write_text(text)

    def _closers(self, form: CallForm) -> Steps:
        """Swallow what closes a call, and say what was rejected."""
        buffer, writer, sink = self._buffer, self._writer, self._sink
        earlier = self._open if writer.only_space_since_call else {}
        self._open = dict.fromkeys((*sink.fence, *form.all_closers, *earlier))
        self._late, self._said_stray = (), False
        space = ""
        closed = not form.closer
        while True:
            closers = marker_set(tuple(self._open))
            space += yield from buffer.read_space()
            match = closers.pattern.match(buffer.text, buffer.position)
            if not buffer.is_final and closers.may_continue(buffer.text, buffer.position):
                yield
            elif match:
                space = ""
                buffer.position = match.end()
                closed = True
                if match[0] == form.dialect.turn_end_closer or match[0] in OTHER_TURN_OPENERS:
                    self.is_turn_over = True
                del self._open[match[0]]
            elif not closed and (yield from self._foreign_closer(form)):
                closed = True
                space = ""
            else:
                break
        if buffer.is_final and self._begins_closer(closers):
            writer.add_note(
                "unclosed", "a call's closing marker is cut off", buffer.text[buffer.position :]
            )
            buffer.position = len(buffer.text)
        elif sink.unclosed or not (closed or sink.closed or form.closer in END_OF_TURN_TOKENS):
            self._remark_on_end(form)
        text = buffer.release()
        if sink.rejections:
            writer.write_text(text)
            sink.rejections = 0
        else:
            writer.mark_call_boundary()
            writer.write_text(space)

    def _remark_on_end(self, form: CallForm) -> None:
        """A call is made all the same, unless trust is strict. Its closer may still come."""
        if not self._sink.cut_off and not self._sink.rejections:
            message = "the call is not closed where it ends"
            self._writer.add_note("unclosed", message, form.closer or "]")
            self._late = form.all_closers

    def read_late_closer(self, literal: str) -> bool:
        """Deal with a closer behind a call: the call has lacked it, or has it twice. In the midst
        of text, it may be that one of the call's values held the same, and was cut short by it."""
        last = self._sink.last_dialect if self._sink.call_count else None
        if last is None or literal not in last.closing_tags or self.is_turn_over:
            return False
        late, again = literal in self._late, self._writer.only_space_since_call
        if again and not late:
            self._writer.add_note("repaired-extra-closer", f"{literal} stands there again", literal)
        elif not late and not self._said_stray:
            self._said_stray = True
            message = f"{literal} closes nothing here: the last call may have been cut short by it"
            self._writer.add_note("stray-closer", message, literal)
        if late or again:
            self._late = ()
            self._buffer.position += len(literal)
        return late or again

    def _foreign_closer(self, form: CallForm) -> Found:
        """Some other tag's end, where a tag's own should be."""
        buffer = self._buffer
        if not form.opener.startswith("<") or form.opener.startswith("<|"):
            return False
        while True:
            match = _END_TAG.match(buffer.text, buffer.position)
            if match is None:
                return False
            if match[1]:
                if not self._sink.shows:
                    self._writer.add_note(
                        "wrong-closer", f"{match[0]} closes {form.opener}", match[0]
                    )
                buffer.position = match.end()
                return True
            if buffer.is_final or match.end() < len(buffer.text):
                return False
            yield

    def _begins_closer(self, closers: MarkerSet) -> bool:
        """Whether the text ends with the beginning of a marker, not just with a letter of it."""
        rest = self._buffer.text[self._buffer.position :]
        return len(rest) > 1 and rest[0] in "<[`~]" and closers.may_continue(rest, 0)
