"""Tries to read a call where one may begin, and what closes it.

A form that cannot read what stands there gives it back, and the next one tries. What no form can
read is text, and so is a call that is too long, or that the text ends in.
"""

from __future__ import annotations

import re

from ..events import CallEnd, CallRejected
from . import bodies
from .call_sink import Desk, Faulty, Prose, TooLong
from .grammar import Grammar, Markers, markers_of
from .reader import Found, Steps
from .template import CALL_SLOTS, JSON_SLOTS, OTHER_TURNS, UNSPOKEN, Form

_END_TAG = re.compile(r"</(?:[\w:.\-]{1,30}(>?)|\Z)|<\Z()")
_LONGEST_LINK = 200
"""How much text may stand between two calls in prose."""
_RESCAN_FACTOR, _RESCAN_FREE = 8, 65_536
"""How often text may be read in vain, on average, before it is given up."""


class Attempts:
    """Every attempt at a call, in one reply.

    `exhaustive` is for texts that nobody acts on: calls inside of others, after a complete answer
    and after one that is cut off are read too.
    """

    def __init__(self, desk: Desk, grammar: Grammar, *, exhaustive: bool = False) -> None:
        self._desk = desk
        self._reader = desk.reader
        self._output = desk.output
        self._grammar = grammar
        self.exhaustive = exhaustive
        self._open: dict[str, None] = {}
        """What may still close the calls so far, each once, until text comes."""
        self._debt = 0
        """How much text was read in vain, to be read again."""
        self._complete = False
        """The calls so far stood in a list, or in a wrapper: there is no reason to expect more."""
        self._said_chatter = False
        self.turn_is_over = False
        """What follows is not the model's to say, or only the answer."""
        self._late: tuple[str, ...] = ()
        """What the last call should have been closed by."""
        self._said_stray = False
        self.ran_out = False
        """The last attempt to read a call came to the end of the text."""

    def forms(self, forms: tuple[Form, ...]) -> Found:
        """Try the forms that may begin here. One that finds a fault steps back for the others."""
        last = self._desk.dialect
        if last and len(forms) > 1:
            forms = tuple(sorted(forms, key=lambda form: form.dialect is not last))
        faulty: list[Form] = []
        foreign = 0
        self._desk.cut_off = False
        for index, form in enumerate(forms):
            self._desk.steps_back = index + 1 < len(forms) or bool(faulty)
            self._desk.embedded = self._is_embedded(form)
            if self._desk.embedded and self._answered():
                self._remark_on_chatter()
                continue
            try:
                if (yield from self._attempt(form)):
                    self._complete = not self._desk.embedded or self._desk.listed
                    self._desk.steps_back = self._desk.embedded = False
                    return True
            except Faulty:
                self._reader.restore()
                faulty.append(form)
            except Prose as prose:
                self._reader.restore()
                foreign = max(foreign, prose.size)
        self._desk.steps_back = self._desk.embedded = False
        if faulty:
            return (yield from self._attempt(faulty[0]))
        if foreign and not self.exhaustive:
            self._say_unread(foreign)
            return True
        return self._desk.cut_off and self.cut_short()

    def _say_unread(self, size: int) -> None:
        """Let go of text that was read already, and is none of our calls."""
        reader = self._reader
        self._output.say(reader.text[reader.at : reader.at + size])
        reader.at += size

    def is_prose(self, forms: tuple[Form, ...]) -> bool:
        """Whether what none of these forms can read is nothing to speak of."""
        return bool(forms) and all(map(self._is_embedded, forms))

    def _is_embedded(self, form: Form) -> bool:
        """Whether a form counts only because trust is lenient; control tokens always count."""
        bare = not form.opener or form.opener.startswith("`")
        return bare and form.dialect in self._grammar.scope.embedded

    def _answered(self) -> bool:
        """Whether the calls so far are all: models go on with explanations and examples."""
        if self.exhaustive or not self._desk.count:
            return False
        return self._complete or self._output.since > _LONGEST_LINK

    def come_too_late(self) -> bool:
        """Whether calls rest on what only others could say: on results that the model invents."""
        if self.turn_is_over and not self.exhaustive:
            self._remark_on_chatter()
            return True
        return False

    def answer(self) -> None:
        """The final answer begins: all that follows is prose."""
        self.turn_is_over = True

    def _remark_on_chatter(self) -> None:
        """Say once that a tool is named again after the answer."""
        if not self._said_chatter and self._reader.text[self._reader.at] not in "{[`":
            self._said_chatter = True
            self._output.note("after-answer", "calls after a complete answer are prose")

    def cut_short(self) -> bool:
        """The text ends inside a call: what is there of it is text, and holds no calls itself."""
        if self.exhaustive:
            return False
        rest = self._reader.text[self._reader.at :]
        self._reader.at = len(self._reader.text)
        self._output.note("truncated", "a call is cut off, and is not made", rest)
        self._output.say(rest)
        return True

    def _attempt(self, form: Form) -> Found:
        """Try to read a form here; what cannot be read is given back."""
        self._reader.hold()
        if (yield from self.read(form, bodies.read(self._desk, form))):
            return True
        self._reader.restore()
        return self.give_up()

    def read(self, form: Form, body: Found) -> Found:
        """Read calls with what closes them, or as much of them as a call may have as text."""
        desk = self._desk
        desk.rejections = 0
        desk.closed = desk.unclosed = False
        desk.liberties.clear()
        desk.fence = ()
        inert = any(form.opener == opener for opener, _ in form.dialect.inert)
        ends = bool(form.closer) or form.body in JSON_SLOTS | CALL_SLOTS
        strict = (self._grammar.scope.strict and ends) or inert
        made = desk.count
        if strict or self.exhaustive:
            desk.defer()
        try:
            found = yield from desk.bounded(body)
            if found and strict:
                found = yield from self._is_closed(form, or_ends=inert)
            if self._reader.extent() > desk.max_call:
                raise TooLong
        except TooLong:
            self._overflow()
            return True
        finally:
            tentative = desk.deferred()
        if found:
            if any(isinstance(event, CallEnd) for event in tentative):
                self._output.edge()
            self._output.emit(*tentative)
            if self.exhaustive and any(isinstance(event, CallRejected) for event in tentative):
                return False
            yield from self._closers(form)
            return True
        desk.retract()
        desk.forget_calls(made)
        return False

    def _is_closed(self, form: Form, *, or_ends: bool) -> Found:
        """Whether one of a form's closing markers comes next, or the end of the text."""
        reader = self._reader
        if self._desk.unclosed:
            return False
        if self._desk.closed or not form.closer:
            return True
        mark = reader.offset()
        closers = markers_of((*self._desk.fence, *form.closers))
        yield from reader.space()
        while not reader.ended and closers.may_grow(reader.text, reader.at):
            yield
        found = closers.pattern.match(reader.text, reader.at) is not None
        found = found or (or_ends and reader.at == len(reader.text))
        reader.seek(mark)
        return found

    def give_up(self) -> bool:
        """Whether so much was read in vain that what was read last is text without another look."""
        reader = self._reader
        size = reader.reach - reader.base - reader.at
        self.ran_out = self.ran_out or (reader.ended and reader.at + size >= len(reader.text))
        self._debt += size
        if self._debt <= _RESCAN_FREE + _RESCAN_FACTOR * reader.reach:
            return False
        self._say_unread(size)
        return True

    def _overflow(self) -> None:
        """The call is too long: as much of it as a call may have becomes text."""
        limit = self._desk.max_call
        self._desk.retract()
        self._reader.scanner = None
        self._reader.seek(limit)
        text = self._reader.release()
        self._output.note("too-long", f"a call of more than {limit} characters is text", text)
        self._output.say(text)

    def _closers(self, form: Form) -> Steps:
        """Swallow what closes a call, and say what was rejected."""
        reader, output, desk = self._reader, self._output, self._desk
        earlier = self._open if output.quiet else {}
        self._open = dict.fromkeys((*desk.fence, *form.closers, *earlier))
        self._late, self._said_stray = (), False
        space = ""
        closed = not form.closer
        while True:
            closers = markers_of(tuple(self._open))
            space += yield from reader.space()
            match = closers.pattern.match(reader.text, reader.at)
            if not reader.ended and closers.may_grow(reader.text, reader.at):
                yield
            elif match:
                space = ""
                reader.at = match.end()
                closed = True
                if match[0] == form.dialect.ends_turn or match[0] in OTHER_TURNS:
                    self.turn_is_over = True
                del self._open[match[0]]
            elif not closed and (yield from self._foreign_closer(form)):
                closed = True
                space = ""
            else:
                break
        if reader.ended and self._begins_closer(closers):
            output.note("unclosed", "a call's closing marker is cut off", reader.text[reader.at :])
            reader.at = len(reader.text)
        elif desk.unclosed or not (closed or desk.closed or form.closer in UNSPOKEN):
            self._remark_on_end(form)
        text = reader.release()
        if desk.rejections:
            output.say(text)
            desk.rejections = 0
        else:
            output.edge()
            output.say(space)

    def _remark_on_end(self, form: Form) -> None:
        """A call is made all the same, unless trust is strict. Its closer may still come."""
        if not self._desk.cut_off and not self._desk.rejections:
            message = "the call is not closed where it ends"
            self._output.note("unclosed", message, form.closer or "]")
            self._late = form.closers

    def closes_late(self, literal: str) -> bool:
        """Deal with a closer behind a call: the call has lacked it, or has it twice. In the midst
        of text, it may be that one of the call's values held the same, and was cut short by it."""
        last = self._desk.dialect if self._desk.count else None
        if last is None or literal not in last.closers or self.turn_is_over:
            return False
        late, again = literal in self._late, self._output.quiet
        if again and not late:
            self._output.note("repaired-extra-closer", f"{literal} stands there again", literal)
        elif not late and not self._said_stray:
            self._said_stray = True
            message = f"{literal} closes nothing here: the last call may have been cut short by it"
            self._output.note("stray-closer", message, literal)
        if late or again:
            self._late = ()
            self._reader.at += len(literal)
        return late or again

    def _foreign_closer(self, form: Form) -> Found:
        """Some other tag's end, where a tag's own should be."""
        reader = self._reader
        if not form.opener.startswith("<") or form.opener.startswith("<|"):
            return False
        while True:
            match = _END_TAG.match(reader.text, reader.at)
            if match is None:
                return False
            if match[1]:
                if not self._desk.shows:
                    self._output.note("wrong-closer", f"{match[0]} closes {form.opener}", match[0])
                reader.at = match.end()
                return True
            if reader.ended or match.end() < len(reader.text):
                return False
            yield

    def _begins_closer(self, closers: Markers) -> bool:
        """Whether the text ends with the beginning of a marker, not just with a letter of it."""
        rest = self._reader.text[self._reader.at :]
        return len(rest) > 1 and rest[0] in "<[`~]" and closers.may_grow(rest, 0)
