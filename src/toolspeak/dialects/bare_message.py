"""Messages that are nothing but calls: what has no marker of its own counts only there.

Everything is read on trial. Only if the end of the message is reached that way were they calls.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Literal

from ..events import CallEnd
from . import bodies
from .call_sink import Desk, TooLong
from .grammar import Grammar, markers_of
from .reader import Found
from .template import JSON_SLOTS, Form

Outcome = Literal["calls", "cut off", "text"]

_FENCE = "```"
_BEFORE_JSON = frozenset("{[`")
_BEFORE_CALLS = frozenset("[`")
_TICKS = re.compile(r"`*")
_WORD = re.compile(r"[\w+\-]*")
_LONGEST_WORD = 40
_END_TAG = re.compile(r"</?+[\w:.\-]*+>?+")


class WholeMessage:
    """Reads what is left of a message, if it is nothing but calls."""

    def __init__(self, desk: Desk, grammar: Grammar) -> None:
        self._desk = desk
        self._grammar = grammar

    def read(self) -> Generator[None, None, Outcome]:
        """Try every form that may be all of the message, and a fence around any other."""
        first = yield from self._desk.reader.peek()
        may_be_name = self._desk.may_be_tool(first)
        for form in self._grammar.whole:
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
        if not self._grammar.scope.strict and (yield from self._sees(_FENCE)):
            return (yield from self._trial(self._fenced()))
        return "text"

    def _trial(self, steps: Found) -> Generator[None, None, Outcome]:
        desk, reader = self._desk, self._desk.reader
        desk.begin_trial()
        try:
            found = yield from steps
        except TooLong:
            reader.scanner = None
            found = desk.cut_off = False
        tentative = desk.deferred()
        if found and any(isinstance(event, CallEnd) for event in tentative):
            reader.release()
            desk.output.edge()
            desk.output.emit(*tentative)
            return "calls"
        cut_off = desk.cut_off and reader.extent() <= desk.max_call
        reader.restore()
        desk.forget_calls()
        return "cut off" if cut_off else "text"

    def _sees(self, opener: str) -> Found:
        reader = self._desk.reader
        while len(reader.text) - reader.at < len(opener) and not reader.ended:
            if not opener.startswith(reader.text[reader.at :]):
                return False
            yield
        return reader.text.startswith(opener, reader.at)

    def _form(self, form: Form) -> Found:
        """One form, and nothing behind it but what closes it."""
        desk = self._desk
        if not (yield from desk.bounded(bodies.read(desk, form))) or desk.rejections:
            return False
        wanted = "" if desk.closed else form.closer or "".join(desk.fence)
        return (yield from self._only((*desk.fence, *form.closers), wanted))

    def _fenced(self) -> Found:
        """A code fence of any language around calls that have markers."""
        desk, reader = self._desk, self._desk.reader
        ticks = (yield from reader.run(_TICKS, _LONGEST_WORD)) or _FENCE
        yield from reader.run(_WORD, _LONGEST_WORD)
        markers = self._grammar.markers
        closers: tuple[str, ...] = ()
        while True:
            yield from desk.bounded(reader.space())
            while not reader.ended and markers.may_grow(reader.text, reader.at):
                yield
            match = markers.pattern.match(reader.text, reader.at)
            forms = self._grammar.meaning[match[0]].forms if match else ()
            if not forms or reader.text.startswith(ticks, reader.at):
                return (yield from self._only((*closers, ticks), ticks))
            for form in forms:
                mark = reader.offset()
                if (yield from desk.bounded(bodies.read(desk, form))) and not desk.rejections:
                    closers = form.closers
                    if not (yield from self._swallow(closers, form.closer)) and not desk.closed:
                        self._remark_on_end(form.closer)
                    break
                reader.seek(mark)
                desk.rejections = 0
            else:
                return False

    def _swallow(self, closers: tuple[str, ...], wanted: str) -> Found:
        """Read any of these; returns whether the one that is wanted was among them."""
        reader, markers = self._desk.reader, markers_of(closers)
        found = not wanted
        while True:
            yield from self._desk.bounded(reader.space())
            match = markers.pattern.match(reader.text, reader.at)
            if not reader.ended and markers.may_grow(reader.text, reader.at):
                yield
            elif match:
                reader.at = match.end()
                found = found or match[0] == wanted
                self._remark_on_token(match[0])
            else:
                return found

    def _remark_on_end(self, closer: str) -> None:
        self._desk.remark("unclosed", "the call is not closed where it ends", closer or "]")

    def _remark_on_token(self, token: str) -> None:
        expected = any(token in dialect.silent for dialect in self._grammar.scope.named)
        if token in self._grammar.silent and not expected:
            self._desk.remark("control-token", f"{token} belongs to no text", token)

    def _stray_end(self) -> Found:
        """A sign that ends a statement, or a tag that nothing has opened."""
        desk, reader = self._desk, self._desk.reader
        follows = yield from reader.peek()
        if follows and reader.held().rstrip()[-1:] + follows in ("],", "];", ");"):
            reader.at += 1
            if follows == ",":
                desk.remark("repaired-trailing-comma", "a comma after the last call")
            return True
        mark = reader.offset()
        if follows != "<" or desk.fence:
            return False
        tag = yield from reader.run(_END_TAG, _LONGEST_WORD)
        if tag and _END_TAG.fullmatch(tag) and tag.endswith(">"):
            desk.remark("wrong-closer", f"{tag} closes what nothing has opened", tag)
            return True
        reader.seek(mark)
        return False

    def _only(self, closers: tuple[str, ...], wanted: str) -> Found:
        """Whether nothing is left but these, the last of them cut off perhaps, and tokens that are
        no text. That the one is missing which is wanted is remarked on."""
        reader, closers = self._desk.reader, (*closers, *self._grammar.silent)
        closed = yield from self._swallow(closers, wanted)
        if (yield from self._stray_end()):
            closed = (yield from self._swallow(closers, wanted)) or closed
        if not reader.ended:
            return False
        if (self._desk.unclosed or not closed) and not self._desk.cut_off:
            self._remark_on_end(wanted)
        rest = reader.at < len(reader.text)
        return not rest or markers_of(closers).may_grow(reader.text, reader.at)
