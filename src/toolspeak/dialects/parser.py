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
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Literal

from .. import calls
from ..errors import UsageError
from ..events import ArgumentsDelta, CallEnd, CallStart, Event, Finish, Reclassify
from ..judge import Judge, Trust
from ..tools import as_tools
from ..toolset import Toolset
from ..types import Note
from . import bodies
from .desk import Desk, Faulty, Prose, TooLong
from .echoes import Echoes
from .grammar import Both, Markers, grammar_of, markers_of
from .json_bodies import read_arguments
from .registry import AUTO, scope_of
from .scan import MORE
from .template import Dialect, Form, Frame
from .whole import WholeMessage, bounded

MAX_CALL = 8_000_000
"""The longest call, in characters; a longer one becomes text."""
_LONGEST_HEADER = 300
_END_TAG = re.compile(r"</(?:[\w:.\-]{1,30}(>?)|\Z)|<\Z()")
_LONGEST_LINK = 200
"""How much text may stand between two calls in prose."""
_RESCAN_FACTOR, _RESCAN_FREE = 8, 65_536
"""How often text may be read in vain, on average, before it is given up."""

Steps = Generator[None, None, None]
Found = Generator[None, None, bool]


class Parser:
    """Reads the calls out of a model's text, however it is cut into chunks.

    `tools` in any provider's shape give the types of arguments and the names that count; None
    checks neither. `trust` says what may become a call, and `context`, the conversation so far,
    which calls would only be echoes. `reasoning_open` says whether the text starts inside reasoning
    that the prompt has opened; None leaves it to what follows.
    """

    def __init__(
        self,
        *,
        dialect: str | Dialect | Sequence[Dialect] = AUTO,
        tools: Iterable[Any] | None = None,
        trust: Trust = "standard",
        context: Iterable[Any] = (),
        reasoning_open: bool | None = None,
        arguments: Literal["validated", "incremental"] = "validated",
        max_call: int = MAX_CALL,
        new_id: Callable[[], str] = calls.new_id,
    ) -> None:
        _check_choice("arguments", arguments, ("validated", "incremental"))
        _check_choice("trust", trust, ("strict", "standard", "lenient"))
        incremental = arguments == "incremental"
        self._declared = as_tools(tools)
        toolset = None if self._declared is None else Toolset(self._declared)
        context = tuple(context)
        guard = Echoes(context, self._calls_in) if context else None
        judge = Judge(toolset, trust, guard)
        self._desk = Desk(judge, incremental=incremental, max_call=max_call, new_id=new_id)
        self._reader = self._desk.reader
        self._output = self._desk.output
        names = toolset.names if toolset else None
        self._grammar = grammar_of(scope_of(dialect, trust, has_tools=toolset is not None), names)
        self._whole_message = WholeMessage(self._desk, self._grammar)
        self._markers = self._grammar.markers
        if self._grammar.names:
            self._markers = Both(self._grammar.markers, self._grammar.names)
        self._desk.expected = self._grammar.scope.named
        self._trust: Trust = trust
        self._context = context
        self._new_id = new_id
        self._reasoning_open = reasoning_open
        self._open: dict[str, None] = {}
        """What may still close the calls so far, each once, until text comes."""
        self._thoughts: list[str] = []
        """Reasoning that holds what looks like calls, where trust is lenient."""
        self._unclosed: list[Markers] = []
        """What is known not to close any reasoning in the rest of the text."""
        self._debt = 0
        """How much text was read in vain, to be read again."""
        self._complete = False
        """The calls so far stood in a list, or in a wrapper: there is no reason to expect more."""
        self._cut_off = False
        """The last attempt to read a call came to the end of the text."""
        self._said_cut_off = False
        self._said_chatter = False
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
        next(self._machine)
        return self._output.drain()

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

    def _calls_in(self, text: str) -> Iterator[calls.Key]:
        """Every call that any text holds, for the guard against echoes."""
        for event in Everything(tools=self._declared, trust="lenient").events([text]):
            if isinstance(event, CallEnd):
                yield calls.key_of(event.call.name, event.call.arguments)

    # Text, up to the next marker.

    def _run(self) -> Steps:
        yield
        yield from self._beginning()
        while marker := (yield from self._next(self._markers, self._output.say)):
            if not (yield from self._marker(marker)):
                self._output.say(marker)
                self._reader.at += len(marker)
        if self._thoughts and not self._desk.count:
            self._act_on_thoughts()
        self._output.close(calls=self._desk.count > 0)

    def _next(
        self, markers: Markers | Both, let_go: Callable[[str], None]
    ) -> Generator[None, None, str]:
        """Let go of everything up to the next marker, which is returned; "" if there is none."""
        reader = self._reader
        while True:
            text, at = reader.text, reader.at
            match = markers.search(text, at)
            certain = len(text) if reader.ended else markers.certain(text, at)
            if match and (match.start() < certain or reader.ended):
                let_go(text[at : match.start()])
                reader.at = match.start()
                return match[0]
            let_go(text[at:certain])
            reader.at = certain
            if reader.ended:
                return ""
            yield

    def _beginning(self) -> Steps:
        """What only the start of a message can hold."""
        if self._reasoning_open and self._grammar.ends_thought:
            yield from self._think(self._grammar.ends_thought, ())
        for literal in self._grammar.start:
            if (yield from self._reader.literal(literal)):
                break
        for dialect in self._grammar.frames:
            if (yield from self._frame(dialect, "")):
                break
        yield from self._whole()

    def _marker(self, literal: str) -> Found:
        """Deal with a marker that the text has come to; False if it is only text."""
        marker = self._grammar.meaning[literal]
        last = self._output.last
        if marker.line_start and last not in ("", "\n"):
            return False
        if marker.word_start and last and (last.isalnum() or last in "_.\\-"):
            return False
        self._cut_off = False
        if marker.forms and self._is_example(literal):
            return False
        if marker.forms and (yield from self._forms(marker.forms)):
            return True
        for dialect in marker.frames:
            if (yield from self._frame(dialect, _opener_of(dialect, literal))):
                return True
        if marker.thought and self._is_example(literal):
            return False
        if marker.thought:
            self._reader.at += len(literal)
            yield from self._think((marker.thought,), ())
            yield from self._whole()
            return True
        if marker.ends_thought:
            if not self._reclassify(literal):
                return False
            yield from self._whole()
            return True
        if marker.silent:
            self._reader.at += len(literal)
            if not self._grammar.scope.named:
                self._output.note("control-token", f"{literal} belongs to no text", literal)
            return True
        if marker.inert:
            self._output.say(literal)
            self._reader.at += len(literal)
            yield from self._next(markers_of((marker.inert,)), self._output.say)
            return True
        self._remark_on(literal)
        return False

    def _is_example(self, literal: str) -> bool:
        """Whether a call that begins here is only shown: it stands in inline code or in a fence. A
        fence that is all of the reply is dealt with before."""
        code = self._output.code
        if self._trust == "lenient" or not code.inside():
            return False
        if code.fence and literal.startswith(code.fence):
            return False  # It ends this fence, or begins the next.
        self._output.note("example", f"{literal} stands inside of code: it is an example", literal)
        return True

    def _remark_on(self, literal: str) -> None:
        """A marker that stays text: a call that is cut off, or none at all."""
        rest = self._reader.text[self._reader.at : self._reader.at + 1000]
        if self._cut_off and not self._said_cut_off:
            self._said_cut_off = True
            self._output.note("truncated", "a call is cut off, and is not made", rest)
        elif len(literal) > 3 and not self._cut_off:
            self._output.note("not-a-call", f"{literal} begins no call that can be read", literal)

    # Reasoning.

    def _think(self, closers: tuple[str, ...], before: tuple[str, ...]) -> Steps:
        """Reasoning up to and with the first of `closers`, or up to the first of `before`."""
        self._output.begin_thought()
        ends = markers_of(closers)
        markers = markers_of((*closers, *before, *self._grammar.thoughts))
        while marker := (yield from self._next(markers, self._output.think)):
            if marker in before:
                break
            if marker in closers:
                self._reader.at += len(marker)
                break
            if not (yield from self._call_in_thought(ends)):
                break
        self._output.end_thought()

    def _call_in_thought(self, ends: Markers) -> Found:
        """A call opens inside reasoning: it is a thought if the reasoning is closed after it, and
        the end of the reasoning if not. Returns whether the reasoning goes on."""
        reader, limit = self._reader, self._desk.max_call
        reader.hold()
        closer = ""
        try:
            if ends not in self._unclosed:
                closer = yield from bounded(self._desk, reader.until_marker(ends))
        except TooLong:
            pass
        if reader.offset() > limit:
            # Too much to hold: whatever it is, it is part of the reasoning.
            reader.seek(limit)
            self._output.think(reader.release())
            return True
        if closer:
            thought = reader.release().removesuffix(closer)
            self._output.think(thought)
            if self._trust == "lenient":
                self._thoughts.append(thought)
            return False
        self._unclosed.append(ends)
        reader.restore()
        self._output.note("reasoning-unclosed", "a call ends reasoning that was never closed")
        return False

    def _act_on_thoughts(self) -> None:
        """The reply makes no call, but its reasoning does: that is what the model meant to do."""
        inner = Parser(tools=self._declared, context=self._context, new_id=self._new_id)
        found = list(inner.events(["\n".join(self._thoughts)]))
        if any(isinstance(event, CallEnd) for event in found):
            self._output.note("from-reasoning", "the only calls stood inside reasoning")
            kinds = (CallStart, ArgumentsDelta, CallEnd, Note)
            self._output.emit(*(event for event in found if isinstance(event, kinds)))
            self._desk.count += sum(isinstance(event, CallEnd) for event in found)

    def _reclassify(self, literal: str) -> bool:
        """A close tag that nothing opened: the prompt had opened it."""
        if self._output.thought or self._reasoning_open is not None:
            return False
        self._reader.at += len(literal)
        if self._desk.count:
            self._output.note("calls-were-thoughts", "calls so far stood inside reasoning", literal)
        self._output.emit(Reclassify())
        self._output.end_thought()
        self._output.said = False
        self._desk.forget_calls()
        return True

    # Messages with headers.

    def _frame(self, dialect: Dialect, opener: str) -> Found:
        """A message's header: reasoning, text or a call follows, by whom it is for."""
        reader, frame = self._reader, dialect.frame
        assert frame is not None
        reader.hold()
        header = yield from self._header(frame, opener)
        if header is None or not re.search(frame.header, header):
            reader.restore()
            return False
        recipient = re.search(frame.recipient, header)
        tool = re.match(frame.tools, recipient[1]) if recipient and frame.tools else None
        if recipient and tool:
            name = recipient[1][tool.end() :]
            if (yield from self._framed_call(dialect, frame, name)):
                return True
            if self._desk.cut_off:
                reader.restore()
                return self._cut_short()
            self._output.note("malformed", f"a message to {name!r} is no JSON object", header)
        reader.release()
        self._give_up()
        if re.search(frame.thought, header):
            yield from self._think(frame.ends, frame.openers)
        return True

    def _header(self, frame: Frame, opener: str) -> Generator[None, None, str | None]:
        reader = self._reader
        if not opener:
            yield from reader.space()
        if not (yield from reader.literal(opener or frame.first)):
            return None
        while True:
            text, at = reader.text, reader.at
            limit = at + _LONGEST_HEADER
            end = text.find(frame.message, at, limit)
            if end >= 0 and "\n" not in text[at:end]:
                reader.at = end + len(frame.message)
                return (opener or frame.first) + text[at:end]
            if len(text) >= limit or reader.ended or "\n" in text[at:limit]:
                return None
            yield

    def _framed_call(self, dialect: Dialect, frame: Frame, name: str) -> Found:
        form = Form(dialect, frame.message, (), "arguments", frame.ends[0], frame.ends)
        body = self._reader.offset()
        self._desk.cut_off = False
        if (yield from self._read(form, read_arguments(self._desk, form, {"name": name}))):
            return True
        self._reader.seek(body)
        return False

    # Calls.

    def _forms(self, forms: tuple[Form, ...]) -> Found:
        """Try the forms that may begin here. One that finds a fault steps back for the others."""
        last = self._desk.dialect
        if last and len(forms) > 1:
            forms = tuple(sorted(forms, key=lambda form: form.dialect is not last))
        faulty: list[Form] = []
        self._desk.cut_off = False
        for index, form in enumerate(forms):
            self._desk.steps_back = index + 1 < len(forms)
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
            except Prose:
                self._reader.restore()
        self._desk.steps_back = self._desk.embedded = False
        if faulty:
            return (yield from self._attempt(faulty[0]))
        return self._desk.cut_off and self._cut_short()

    def _is_embedded(self, form: Form) -> bool:
        """Whether a form counts only because trust is lenient; control tokens always count."""
        bare = not form.opener or form.opener.startswith("`")
        return bare and form.dialect in self._grammar.scope.embedded

    def _answered(self) -> bool:
        """Whether the calls so far are all: models go on with explanations and examples."""
        if not self._desk.count:
            return False
        return self._complete or self._output.since > _LONGEST_LINK

    def _remark_on_chatter(self) -> None:
        """Say once that a tool is named again after the answer."""
        if not self._said_chatter and self._reader.text[self._reader.at] not in "{[`":
            self._said_chatter = True
            self._output.note("after-answer", "calls after a complete answer are prose")

    def _cut_short(self) -> bool:
        """The text ends inside a call: what is there of it is text, and holds no calls itself."""
        rest = self._reader.text[self._reader.at :]
        self._reader.at = len(self._reader.text)
        self._output.note("truncated", "a call is cut off, and is not made", rest)
        self._output.say(rest)
        return True

    def _attempt(self, form: Form) -> Found:
        """Try to read a form here; what cannot be read is given back."""
        self._reader.hold()
        if (yield from self._read(form, bodies.read(self._desk, form))):
            return True
        self._reader.restore()
        return self._give_up()

    def _read(self, form: Form, body: Found) -> Found:
        """Read calls with what closes them, or as much of them as a call may have as text."""
        desk = self._desk
        desk.rejections = 0
        desk.fence = ()
        inert = any(form.opener == opener for opener, _ in form.dialect.inert)
        strict = (self._grammar.scope.strict and bool(form.closer)) or inert
        made = desk.count
        if strict:
            desk.tentative = []
        try:
            found = yield from bounded(self._desk, body)
            if found and strict:
                found = yield from self._is_closed(form, or_ends=inert)
            if self._reader.extent() > desk.max_call:
                raise TooLong
        except TooLong:
            self._overflow()
            return True
        finally:
            tentative, desk.tentative = desk.tentative or [], None
        if found:
            if any(isinstance(event, CallEnd) for event in tentative):
                self._output.edge()
            self._output.emit(*tentative)
            yield from self._closers(form)
            return True
        desk.retract()
        desk.forget_calls(made)
        return False

    def _is_closed(self, form: Form, *, or_ends: bool) -> Found:
        """Whether one of a form's closing markers comes next, or the end of the text."""
        reader = self._reader
        mark = reader.offset()
        closers = markers_of((*self._desk.fence, *form.closers))
        yield from reader.space()
        while not reader.ended and closers.may_grow(reader.text, reader.at):
            yield
        found = closers.pattern.match(reader.text, reader.at) is not None
        found = found or (or_ends and reader.at == len(reader.text))
        reader.seek(mark)
        return found

    def _give_up(self) -> bool:
        """Whether so much was read in vain that what was read last is text without another look."""
        reader = self._reader
        size = reader.reach - reader.base - reader.at
        self._cut_off = self._cut_off or (reader.ended and reader.at + size >= len(reader.text))
        self._debt += size
        if self._debt <= _RESCAN_FREE + _RESCAN_FACTOR * reader.reach:
            return False
        self._output.say(reader.text[reader.at : reader.at + size])
        reader.at += size
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
                del self._open[match[0]]
            elif not closed and (yield from self._foreign_closer(form)):
                closed = True
                space = ""
            else:
                break
        if reader.ended and self._begins_closer(closers):
            output.note("unclosed", "a call's closing marker is cut off", reader.text[reader.at :])
            reader.at = len(reader.text)
        text = reader.release()
        if desk.rejections:
            output.say(text)
            desk.rejections = 0
        else:
            output.edge()
            output.say(space)

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

    # Messages that are nothing but calls.

    def _whole(self) -> Steps:
        """Try the forms that count only if the message is nothing but calls."""
        if self._desk.count or self._output.said:
            return
        self._output.say((yield from self._reader.space()))
        if (yield from self._whole_message.read()) == "cut off":
            self._cut_short()


class Everything(Parser):
    """Reads all calls that a text holds, in reasoning and after answers too."""

    def _answered(self) -> bool:
        return False

    def _think(self, closers: tuple[str, ...], before: tuple[str, ...]) -> Steps:
        yield from ()


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def _opener_of(dialect: Dialect, literal: str) -> str:
    """The part of a marker that begins a header in this dialect."""
    assert dialect.frame is not None
    return max((o for o in dialect.frame.openers if literal.startswith(o)), key=len)
