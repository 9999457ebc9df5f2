"""One machine for every dialect: text goes in as it arrives, events come out.

    parser = Parser(dialect="hermes")
    parser.feed('Sure. <tool_call>{"name": "now", "argu')   # [TextDelta("Sure. ")]
    parser.feed('ments": {}}</tool_call>')                  # [CallStart, ArgumentsDelta, CallEnd]
    parser.finish()                                         # [Finish()]

The machine is a generator that yields when it needs more text. Outside of calls it searches for the
next marker and lets everything before it go; at a marker it tries the forms that begin there, and
what no form can read becomes text again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from ..calls import drafts as calls
from ..calls.schema import iter_strings
from ..calls.tools import as_tools
from ..calls.toolset import Toolset
from ..calls.validation import Judge, Trust
from ..errors import UsageError
from ..events import ArgumentsDelta, CallEnd, CallStart, Event, Finish, Reclassify
from ..security.echo_guard import EchoGuard
from ..types import Note
from .bare_message import WholeMessage
from .call_sink import Desk, TooLong
from .form_matching import Attempts
from .grammar import Both, Marker, grammar_of, markers_of, unconditional
from .marker_context import Surroundings
from .messages import Messages
from .reader import Found, Steps
from .reasoning import Thinking
from .registry import AUTO, EVERYTHING, scope_of
from .scan import MORE
from .template import Dialect

_NESTED = 4
"""How deeply calls may be hidden in other calls' arguments."""
_OPENER = re.compile(r"<[^<>]{2,}>|\[[A-Z_]{4,}\]")
_TOKENS = ("<|", "<｜")
"""What only a model's own tokens begin with: nobody writes them in an explanation."""
MAX_CALL = 8_000_000
"""The longest call, in characters; a longer one becomes text."""


class Parser:
    """Reads the calls out of a model's text, however it is cut into chunks.

    `tools` in any provider's shape give the types of arguments and the names that count; None
    checks neither. With `types_only`, a call of another tool, or one that does not fit, is made all
    the same, with a note: for those who answer such calls themselves. `trust` says what may become
    a call, and `context`, the conversation so far, which calls would only be echoes.
    `reasoning_open` says whether the text starts inside reasoning that the prompt has opened; None
    leaves it to what follows.
    """

    _exhaustive = False

    def __init__(
        self,
        *,
        dialect: str | Dialect | Sequence[Dialect] = AUTO,
        tools: Iterable[Any] | None = None,
        types_only: bool = False,
        trust: Trust = "standard",
        context: Any = (),
        reasoning_open: bool | None = None,
        arguments: Literal["validated", "incremental"] = "validated",
        max_call: int = MAX_CALL,
        new_id: Callable[[], str] = calls.new_call_id,
    ) -> None:
        _check_choice("arguments", arguments, ("validated", "incremental"))
        _check_choice("trust", trust, ("strict", "standard", "lenient"))
        incremental = arguments == "incremental"
        self._declared = as_tools(tools)
        toolset = None if self._declared is None else Toolset(self._declared)
        context = tuple(context) if isinstance(context, Iterator) else context
        guard = EchoGuard(context, self._calls_in, self._makes_calls) if context else None
        judge = Judge(toolset, trust, guard, types_only=types_only)
        self._desk = Desk(judge, incremental=incremental, max_call=max_call, new_id=new_id)
        self._reader = self._desk.reader
        self._output = self._desk.output
        names = toolset.names if toolset else None
        if self._exhaustive:
            self._grammar = unconditional(grammar_of(EVERYTHING, names))
        else:
            scope = scope_of(dialect, trust, has_tools=toolset is not None)
            self._grammar = grammar_of(scope, names)
        self._attempts = Attempts(self._desk, self._grammar, exhaustive=self._exhaustive)
        self._messages = Messages(self._desk, self._attempts)
        self._whole_message = WholeMessage(self._desk, self._grammar)
        self._around = Surroundings(self._desk, trust)
        keeps = trust == "lenient"
        self._thinking = Thinking(self._desk, self._attempts, self._grammar, keeps=keeps)
        self._markers = self._grammar.markers
        if self._grammar.names:
            self._markers = Both(self._grammar.markers, self._grammar.names)
        scope = self._grammar.scope
        self._desk.expected = scope.named
        self._desk.only_expected = scope.strict and bool(scope.named)
        self._dialect = dialect
        self._trust: Trust = trust
        self._types_only = types_only
        self._context = context
        self._new_id = new_id
        self._reasoning_open = reasoning_open
        self._said_cut_off = False
        self._machine = self._run()
        next(self._machine)

    def feed(self, text: str) -> list[Event]:
        """Take in more text; returns what is certain by now."""
        reader = self._reader
        if reader.ended:
            raise UsageError("the parser is finished: make a new one for the next reply")
        reader.add(text)
        scanner = reader.scanner
        if scanner is not None and reader.offset() <= self._desk.max_call:
            # Inside a long value nothing can happen but its end: do not wake the machine for less.
            reader.at = scanner.step(reader.text, reader.at)
            if scanner.state == MORE:
                return []
        if not reader.pass_on(text):
            next(self._machine)
        return self._output.drain()

    @property
    def in_call(self) -> bool:
        """Whether the arguments of a call are being read."""
        return self._reader.scanner is not None

    def finish(self) -> list[Event]:
        """The text is over; returns everything that was held back, and the finish."""
        if self._reader.ended:
            return []
        self._reader.ended = True
        self._reader.add("")
        next(self._machine, None)
        self._output.emit(Finish())
        return self._output.drain()

    def events(self, chunks: Iterable[str]) -> Iterator[Event]:
        """Everything that happens in a stream, to its end."""
        for chunk in chunks:
            yield from self.feed(chunk)
        yield from self.finish()

    def _calls_in(self, text: str) -> Iterator[calls.CallKey]:
        """Every call that any text holds, for the guard against echoes."""
        for _ in range(_NESTED):
            inside: list[str] = []
            parser = Everything(tools=self._declared, types_only=self._types_only, trust="lenient")
            for event in parser.events([text]):
                if isinstance(event, CallEnd):
                    yield calls.call_key(event.call.name, event.call.arguments)
                    inside.extend(iter_strings(event.call.arguments))
            text = "\n\n".join(inside)
            if not text:
                break

    def _makes_calls(self, text: str) -> bool:
        """Whether an earlier reply of the same model made a call, as far as anybody may think."""
        trust: Trust = "standard" if self._trust == "strict" else self._trust
        parser = Parser(
            dialect=self._dialect,
            tools=self._declared,
            types_only=self._types_only,
            trust=trust,
        )
        return any(isinstance(event, CallEnd) for event in parser.events([text]))

    # Text, up to the next marker.

    def _run(self) -> Steps:
        yield
        yield from self._beginning()
        while marker := (yield from self._reader.next_marker(self._markers, self._output.say)):
            if not (yield from self._marker(marker)):
                self._output.say(marker)
                self._reader.at += len(marker)
        if self._thinking.of_calls and not self._desk.count:
            self._act_on_thoughts()
        self._output.close(calls=self._desk.count > 0)

    def _beginning(self) -> Steps:
        """What only the start of a message can hold."""
        if self._reasoning_open and self._grammar.ends_thought:
            yield from self._thinking.read(self._grammar.ends_thought)
        for literal in self._grammar.start:
            if (yield from self._reader.literal(literal)):
                break
        for dialect in self._grammar.frames:
            if (yield from self._message(dialect, "")):
                break
        yield from self._whole()

    def _marker(self, literal: str) -> Found:
        """Deal with a marker that the text has come to; False if it is only text."""
        marker = self._grammar.meaning[literal]
        if not self._counts_here(literal, marker):
            return False
        self._attempts.ran_out = False
        invents = marker.others or (marker.result and self._desk.count > 0)
        if invents and not (yield from self._around.are_code(marker)):
            self._attempts.answer()
        if marker.forms or marker.frames:
            if (yield from self._around.show(literal, marker)):
                return False
            if marker.forms and self._around.announce():
                return (yield from self._example(literal, marker))
            if marker.forms and self._attempts.come_too_late():
                return False
            if (yield from self._call_or_message(literal, marker)):
                return True
        if marker.thought or marker.ends_thought:
            return (yield from self._edge_of_thought(literal, marker))
        if marker.foreign and not (yield from self._around.show(literal, marker)):
            left_out = yield from self._leave_out(literal, marker.foreign)
            if left_out or not marker.silent:
                return left_out
        return (yield from self._token(literal, marker))

    def _counts_here(self, literal: str, marker: Marker) -> bool:
        """Whether what stands right before a marker lets it be one."""
        last = self._output.last
        if marker.line_start and last not in ("", "\n"):
            return False
        if marker.word_start and last and (last.isalnum() or last in "_.\\-/"):
            return False
        may_be_words = marker.word_start or marker.bare
        return not may_be_words or not self._around.mention(literal)

    def _example(self, literal: str, marker: Marker) -> Found:
        """Read what is announced as an example: all of it is text. If it cannot be read, it may
        still be what encloses one."""
        self._desk.shows = True
        found = yield from self._attempts.forms(marker.forms)
        self._desk.shows = False
        self._around.shown(0 if found else len(literal))
        if not found:
            told = f"{literal} stands behind words that announce an example"
            self._output.note("example", told, literal)
        return found

    def _call_or_message(self, literal: str, marker: Marker) -> Found:
        """A call, or a message with a header, if one begins here."""
        if marker.forms and (yield from self._attempts.forms(marker.forms)):
            return True
        if marker.forms and self._attempts.ran_out and self._only_opens(literal):
            return True
        if marker.frames:
            in_code = yield from self._around.are_code(marker)
            for dialect in marker.frames:
                opener = _opener_of(dialect, literal)
                if (yield from self._message(dialect, opener, only_calls=in_code)):
                    return True
        return False

    def _edge_of_thought(self, literal: str, marker: Marker) -> Found:
        """Reasoning begins here, or is over; then all that follows may be calls."""
        if not marker.thought:
            if not (yield from self._reclassify(literal, marker)):
                return False
        else:
            if (yield from self._around.show(literal, marker)):
                return False
            if (yield from self._around.are_code(marker)):
                return False
            self._reader.at += len(literal)
            yield from self._thinking.read((marker.thought,))
        yield from self._whole()
        return True

    def _token(self, literal: str, marker: Marker) -> Found:
        """A marker that begins nothing: it is left out, says how to take what follows, or is
        text."""
        if marker.silent:
            return (yield from self._leave_out_token(literal, marker))
        if marker.last:
            return (yield from self._is_last(literal))
        if marker.answers:
            self._attempts.answer()
            return False
        if marker.others or marker.result:
            return False
        if marker.closes:
            in_code = yield from self._around.are_code(marker)
            return not in_code and self._attempts.closes_late(literal)
        if marker.inert:
            self._output.say(literal)
            self._reader.at += len(literal)
            ends = markers_of((marker.inert,))
            yield from self._reader.next_marker(ends, self._output.say)
            return True
        self._remark_on(literal)
        return False

    def _only_opens(self, literal: str) -> bool:
        """Whether the reply ends with what opens a call, and not a word of one came: that is no
        text. Explanations end so too, in the midst of a line."""
        if self._output.last not in ("", "\n") and not literal.startswith(_TOKENS):
            return False
        reader = self._reader
        opened = rest = reader.text[reader.at :]
        while rest and (match := self._grammar.markers.pattern.match(rest)):
            if not self._grammar.meaning[match[0]].forms or not _OPENER.fullmatch(match[0]):
                return False
            rest = rest[match.end() :].lstrip()
        if rest:
            return False
        reader.at = len(reader.text)
        self._output.note("truncated", "a call is opened, and not a word of it came", opened)
        return True

    def _leave_out(self, opener: str, closer: str) -> Found:
        """A result that the model repeats or invents; one that does not end is text."""
        reader = self._reader
        reader.hold()
        reader.at += len(opener)
        try:
            found = yield from self._desk.bounded(reader.until_marker(markers_of((closer,))))
        except TooLong:
            found = ""
        if not found or reader.offset() > self._desk.max_call:
            reader.restore()
            return self._attempts.give_up()
        raw = reader.release()
        self._output.note(
            "fabricated-result", "the reply holds a result that no tool has given", raw
        )
        self._output.edge()
        return True

    def _leave_out_token(self, literal: str, marker: Marker) -> Found:
        """A control token; one that is expected is remarked on in the midst of a line."""
        if (yield from self._around.are_code(marker)):
            return False
        self._reader.at += len(literal)
        self._messages.boundary = self._reader.base + self._reader.at
        expected = any(literal in dialect.silent for dialect in self._grammar.scope.named)
        if expected and self._output.last not in ("", "\n"):
            expected = (yield from self._reader.peek()) in ("", "\n", "<", "[")
        if not expected:
            self._output.note("control-token", f"{literal} belongs to no text", literal)
        return True

    def _is_last(self, literal: str) -> Found:
        """Whether nothing follows but other tokens that are no text."""
        reader = self._reader
        silent = (*self._grammar.silent, *self._grammar.last)
        ends = markers_of(silent)
        reader.hold()
        while True:
            match = ends.pattern.match(reader.text, reader.at)
            if not reader.ended and ends.may_grow(reader.text, reader.at):
                yield
            elif match:
                reader.at = match.end()
                yield from reader.space()
            else:
                break
        if not reader.ended or reader.at < len(reader.text):
            reader.restore()
            return False
        self._output.note("control-token", f"{literal} belongs to no text", reader.release())
        return True

    def _message(self, dialect: Dialect, opener: str, *, only_calls: bool = False) -> Found:
        """A message with a header, if one begins here."""
        follows = yield from self._messages.read(dialect, opener, only_calls=only_calls)
        if follows == "thought":
            assert dialect.frame is not None
            yield from self._thinking.read(dialect.frame.ends, dialect.frame.openers)
        return bool(follows)

    def _remark_on(self, literal: str) -> None:
        """A marker that stays text: a call that is cut off, or none at all."""
        if self._attempts.is_prose(self._grammar.meaning[literal].forms):
            return
        rest = self._reader.text[self._reader.at : self._reader.at + 1000]
        if self._attempts.ran_out and not self._said_cut_off:
            self._said_cut_off = True
            self._output.note("truncated", "a call is cut off, and is not made", rest)
        elif len(literal) > 3 and not self._attempts.ran_out:
            self._output.note("not-a-call", f"{literal} begins no call that can be read", literal)

    # Reasoning.

    def _act_on_thoughts(self) -> None:
        """The reply makes no call, but its reasoning does: that is what the model meant to do."""
        inner = Parser(
            tools=self._declared,
            types_only=self._types_only,
            context=self._context,
            new_id=self._new_id,
        )
        found = list(inner.events(["\n".join(self._thinking.of_calls)]))
        if any(isinstance(event, CallEnd) for event in found):
            self._output.note("call-from-reasoning", "the only calls stood inside reasoning")
            kinds = (CallStart, ArgumentsDelta, CallEnd, Note)
            self._output.emit(*(event for event in found if isinstance(event, kinds)))
            self._desk.count += sum(isinstance(event, CallEnd) for event in found)

    def _reclassify(self, literal: str, marker: Marker) -> Found:
        """A close tag that nothing opened: the prompt had opened it."""
        if self._output.thought or self._reasoning_open is not None:
            return False
        if (yield from self._around.are_code(marker)):
            return False
        self._reader.at += len(literal)
        if self._desk.count:
            self._output.note("calls-in-reasoning", "calls so far stood inside reasoning", literal)
        self._output.emit(Reclassify())
        self._output.end_thought()
        self._output.said = False
        self._desk.forget_calls()
        return True

    # Messages that are nothing but calls.

    def _whole(self) -> Steps:
        """Try the forms that count only if the message is nothing but calls."""
        if self._desk.count or self._output.said or self._attempts.turn_is_over:
            return
        self._output.say((yield from self._reader.space()))
        if (yield from self._whole_message.read()) == "cut off":
            self._attempts.cut_short()


class Everything(Parser):
    """Reads all calls that a text holds, in whatever dialect and wherever they stand."""

    _exhaustive = True


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def _opener_of(dialect: Dialect, literal: str) -> str:
    """The part of a marker that begins a header in this dialect."""
    assert dialect.frame is not None
    return max((o for o in dialect.frame.openers if literal.startswith(o)), key=len)
