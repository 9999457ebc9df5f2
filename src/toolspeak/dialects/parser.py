"""One machine for every dialect: text goes in as it arrives, events come out.

    parser = Parser(dialect="hermes")
    parser.feed('Sure. <tool_call>{"name": "now", "argu')   # [TextDelta("Sure. ")]
    parser.feed('ments": {}}</tool_call>')                  # [CallStart(…), ArgumentsDelta(…), CallEnd(…)]
    parser.finish()                                         # [Finish()]

The machine is a generator that yields when it needs more text. Outside of calls it searches for the
next marker and lets everything before it go; at a marker it tries the forms that begin there, and
what no form can read becomes text again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from typing import Any, Literal

from .. import calls as callshapes
from ..calls import Draft
from ..errors import UsageError
from ..events import (
    ArgumentsDelta,
    CallEnd,
    CallRejected,
    CallStart,
    Event,
    Finish,
    ReasoningDelta,
    Reclassify,
    TextDelta,
)
from ..schema import properties
from ..types import Note, Rejection, Tool, ToolCall
from . import bodies
from .grammar import Grammar, Marker, Markers, grammar_of, markers_of
from .reader import Reader
from .scan import MORE
from .registry import AUTO, dialects_for
from .template import Dialect, Form, Frame
from .template import Literal as LiteralPiece

MAX_CALL = 8_000_000
"""The longest call, in characters; a longer one becomes text."""
MAX_NOTES = 200
_SHOWN = 400
"""How much of a bad block a note shows."""
_LONGEST_HEADER = 300
_RESCAN_FACTOR = 8
_RESCAN_FREE = 65_536

Steps = Generator[None, None, None]


class TooLong(Exception):
    """A call is longer than allowed. Never leaves the parser."""


class Faulty(Exception):
    """A form has found its markers but a body it cannot read; another form may. Stays inside."""


class Parser:
    """Reads the calls out of a model's text, however it is cut into chunks."""

    def __init__(
        self,
        *,
        dialect: str | Dialect = AUTO,
        tools: Iterable[Tool] | None = None,
        reasoning_open: bool | None = None,
        arguments: Literal["validated", "incremental"] = "validated",
        max_call: int = MAX_CALL,
        new_id: Callable[[], str] = callshapes.new_id,
    ) -> None:
        if arguments not in ("validated", "incremental"):
            raise UsageError(f"arguments must be 'validated' or 'incremental', not {arguments!r}")
        self.tools = None if tools is None else {tool.name: tool for tool in tools}
        names = None if self.tools is None else tuple(self.tools)
        self._grammar: Grammar = grammar_of(*dialects_for(dialect), names)
        self._reasoning_open = reasoning_open
        self.incremental = arguments == "incremental"
        self._max_call = max_call
        self._new_id = new_id

        self.reader = Reader()
        self._out: list[Event] = []
        self._text: list[str] = []
        """Text that was said but is not an event yet."""
        self._space: list[str] | None = []
        """White space at an edge: it is text only if more text follows. None: not at an edge."""
        self._drop_space = False
        """The edge follows reasoning: its white space is nobody's."""
        self._last = ""
        """The last character that was read as text: "" at the start, for line starts."""
        self._reasoned = False
        self._unclosed: list[Markers] = []
        """What is known not to close any reasoning in the rest of the text."""
        self._calls = 0
        self._notes = 0
        self._ids: set[str] = set()
        self._rejections = 0
        """Rejections since the last commit: their text is still to be said."""
        self._tentative: list[Event] | None = None
        """Calls that count only if the whole message is nothing else."""
        self._started: tuple[int, str] | None = None
        """Index and id of a call whose arguments are being streamed."""
        self._steps_back = False
        """Other forms are still to be tried at this marker."""
        self._dialect: Dialect | None = None
        """The dialect of the last call: it is asked first for the next."""
        self._open: dict[str, None] = {}
        """What may still close the calls so far, each once, until text comes."""
        self._fence: tuple[str, ...] = ()
        """What closes a code fence that stands around a body without being part of the form."""
        self._debt = 0
        """How much text was read in vain, to be read again."""
        self._machine = self._run()
        next(self._machine)

    def feed(self, text: str) -> list[Event]:
        """Take in more text; returns what is certain by now."""
        reader = self.reader
        reader.add(text)
        scanner = reader.scanner
        if scanner is not None and reader.offset() <= self._max_call:
            # Inside a long value nothing can happen but its end: do not wake the machine for less.
            reader.at = scanner.step(reader.text, reader.at)
            if scanner.state == MORE:
                return []
        next(self._machine)
        return self._drain()

    def finish(self) -> list[Event]:
        """The text is over; returns everything that was held back, and the finish."""
        if self.reader.ended:
            return []
        self.reader.ended = True
        self.reader.add("")
        next(self._machine, None)
        self._flush()
        self._out.append(Finish())
        return self._drain()

    # What comes out.

    def _drain(self) -> list[Event]:
        if self._text:
            self._flush()
        out, self._out = self._out, []
        return out

    def _flush(self) -> None:
        if self._text:
            self._out.append(TextDelta("".join(self._text)))
            self._text = []

    def _emit(self, event: Event) -> None:
        self._flush()
        self._out.append(event)

    def _say(self, text: str) -> None:
        if not text:
            return
        self._last = text[-1]
        if self._space is not None:
            stripped = text.lstrip()
            if not stripped:
                self._space.append(text)
                return
            if self._drop_space:
                text = stripped
            else:
                self._text.extend(self._space)
            self._space = None
            self._drop_space = False
            self._open = {}
        self._text.append(text)

    def _edge(self, *, drop: bool = False) -> None:
        """White space from here on waits for what follows it."""
        self._space = []
        self._drop_space = self._drop_space or drop

    def _reason(self, text: str) -> None:
        """Reasoning, without the white space at its ends."""
        if not text:
            return
        if self._space is not None and not self._reasoned:
            text = text.lstrip()
        stripped = text.rstrip()
        if stripped:
            waiting = "".join(self._waiting)
            self._waiting = [text[len(stripped) :]] if len(stripped) < len(text) else []
            self._reasoned = True
            self._emit(ReasoningDelta(waiting + stripped))
        elif self._reasoned and text:
            self._waiting.append(text)

    _waiting: list[str]

    def note(self, code: str, message: str, where: str = "") -> None:
        """Remark on something; a flood of remarks is cut off."""
        self._notes += 1
        if self._notes == MAX_NOTES:
            code, message, where = "more-notes", "further notes are left out", ""
        if self._notes <= MAX_NOTES:
            self._emit(Note(code, message, where[:_SHOWN]))

    # The machine.

    def _run(self) -> Steps:
        yield
        yield from self._beginning()
        reader, markers = self.reader, self._grammar.markers
        while True:
            text, at = reader.text, reader.at
            match = markers.pattern.search(text, at)
            certain = len(text) if reader.ended else markers.certain(text, at)
            if match and (match.start() < certain or reader.ended):
                self._say(text[at : match.start()])
                reader.at = match.start()
                if not (yield from self._marker(match[0])):
                    self._say(match[0])
                    reader.at += len(match[0])
                continue
            self._say(text[at:certain])
            reader.at = certain
            if reader.ended:
                break
            yield
        if self._space and not self._calls and not self._drop_space:
            self._text.extend(self._space)

    def _beginning(self) -> Steps:
        """What only the start of a message can hold."""
        reader, grammar = self.reader, self._grammar
        self._waiting = []
        if self._reasoning_open:
            yield from self._think(grammar.ends_thought)
        for literal in grammar.start:
            if (yield from reader.literal(literal)):
                break
        for dialect in grammar.frames:
            if (yield from self._frame(dialect, "")):
                break
        yield from self._whole()

    def _marker(self, literal: str) -> Generator[None, None, bool]:
        """Deal with a marker that the text has come to; False if it is only text."""
        marker: Marker = self._grammar.meaning[literal]
        if marker.line_start and self._last not in ("", "\n"):
            return False
        if marker.forms and (yield from self._forms(marker.forms)):
            return True
        for dialect in marker.frames:
            if (yield from self._frame(dialect, literal)):
                return True
        if marker.thought:
            self.reader.at += len(literal)
            yield from self._think((marker.thought,))
            yield from self._whole()
            return True
        if marker.ends_thought:
            return self._reclassify(literal)
        if marker.silent:
            self.reader.at += len(literal)
            return True
        if len(literal) > 3:
            self.note("not-a-call", f"{literal} begins no call that can be read", literal)
        return False

    # Reasoning.

    def _think(self, closers: tuple[str, ...]) -> Steps:
        """Reasoning up to the first of `closers`."""
        reader = self.reader
        self._reasoned = False
        self._waiting = []
        self._edge(drop=True)
        markers = markers_of((*closers, *self._grammar.thoughts))
        ends = markers_of(closers)
        while True:
            text, at = reader.text, reader.at
            match = markers.pattern.search(text, at)
            certain = len(text) if reader.ended else markers.certain(text, at)
            if match and (match.start() < certain or reader.ended):
                self._reason(text[at : match.start()])
                reader.at = match.start()
                if match[0] in closers:
                    reader.at += len(match[0])
                    break
                if (yield from self._call_in_reasoning(ends)):
                    break
                return
            self._reason(text[at:certain])
            reader.at = certain
            if reader.ended:
                return
            yield
        self._closed_reasoning()

    def _call_in_reasoning(self, ends: Markers) -> Generator[None, None, bool]:
        """A call opens inside reasoning: it is a thought if the reasoning is closed after it, and
        the end of the reasoning if not."""
        reader = self.reader
        reader.hold()
        longest = max(map(len, ends.literals))
        closer = ""
        if ends not in self._unclosed:
            try:
                closer = yield from self._bounded(reader.until(ends.pattern, longest))
            except TooLong:
                pass
        if not closer and reader.ended:
            self._unclosed.append(ends)
        if closer:
            self._reason(reader.release().removesuffix(closer))
            return True
        reader.restore()
        self.note("reasoning-unclosed", "a call ends reasoning that was never closed")
        self._closed_reasoning()
        return False

    def _closed_reasoning(self) -> None:
        self._waiting = []
        self._edge(drop=True)
        self._last = ""

    def _reclassify(self, literal: str) -> bool:
        """A close tag that nothing opened: the prompt had opened it."""
        if self._reasoned or self._reasoning_open is False:
            return False
        self.reader.at += len(literal)
        self._reasoned = True
        self._emit(Reclassify())
        self._calls = 0
        self._edge(drop=True)
        return True

    # Messages with headers.

    def _frame(self, dialect: Dialect, opener: str) -> Generator[None, None, bool]:
        """A message's header: reasoning, text or a call follows, by whom it is for."""
        reader, frame = self.reader, dialect.frame
        assert frame is not None
        reader.hold()
        header = yield from self._header(frame, opener)
        if header is None or not re.search(frame.header, header):
            reader.restore()
            return False
        recipient = re.search(frame.recipient, header)
        tool = re.match(frame.tools, recipient[1]) if recipient and frame.tools else None
        if tool and recipient:
            name = recipient[1][tool.end() :]
            if (yield from self._framed_call(dialect, frame, name)):
                return True
        reader.release()
        if re.search(frame.thought, header):
            yield from self._think(frame.ends)
        return True

    def _header(self, frame: Frame, opener: str) -> Generator[None, None, str | None]:
        reader = self.reader
        if not opener:
            yield from reader.space()
            if not (yield from reader.literal(frame.first)):
                return None
            opener = frame.first
        else:
            reader.at += len(opener)
        while True:
            text, at = reader.text, reader.at
            limit = at + _LONGEST_HEADER
            end = text.find(frame.message, at, limit)
            if end >= 0 and "\n" not in text[at:end]:
                reader.at = end + len(frame.message)
                return opener + text[at:end]
            if len(text) >= limit or reader.ended or "\n" in text[at:limit]:
                return None
            yield

    def _framed_call(
        self, dialect: Dialect, frame: Frame, name: str
    ) -> Generator[None, None, bool]:
        form = Form(dialect, frame.message, (), "arguments", frame.ends[0], frame.ends)
        if not (yield from bodies.read_arguments(self, form, {"name": name})):
            return False
        yield from self._closers(form)
        return True

    # Calls.

    def _forms(self, forms: tuple[Form, ...]) -> Generator[None, None, bool]:
        """Try the forms that may begin here. One that finds a fault steps back for the others."""
        if self._dialect and len(forms) > 1:
            forms = tuple(sorted(forms, key=lambda form: form.dialect is not self._dialect))
        faulty: list[Form] = []
        for index, form in enumerate(forms):
            self._steps_back = index + 1 < len(forms)
            try:
                if (yield from self._attempt(form)):
                    return True
            except Faulty:
                self.reader.restore()
                faulty.append(form)
        self._steps_back = False
        return bool(faulty) and (yield from self._attempt(faulty[0]))

    def _attempt(self, form: Form) -> Generator[None, None, bool]:
        """Try to read a form here; what cannot be read is given back."""
        reader = self.reader
        reader.hold()
        reader.reach = 0
        self._rejections = 0
        try:
            found = yield from self._bounded(bodies.read(self, form))
            if reader.offset() > self._max_call:
                raise TooLong
        except TooLong:
            self._overflow()
            return True
        if found:
            yield from self._closers(form)
            return True
        self._abort("the call is not complete")
        reader.restore()
        start = reader.base + reader.at
        self._debt += reader.reach - start
        if self._debt > _RESCAN_FREE + _RESCAN_FACTOR * reader.reach:
            self._give_up(reader.reach - start)
            return True
        return False

    def _give_up(self, size: int) -> None:
        """Too much was read in vain: what was read last is text, and is not looked at again."""
        at = self.reader.at
        self._say(self.reader.text[at : at + size])
        self.reader.at = at + size

    def _bounded(self, steps: Generator[None, None, Any]) -> Generator[None, None, Any]:
        """Run something that holds text, but not for longer than a call may be."""
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return stop.value
            if self.reader.offset() > self._max_call:
                steps.close()
                raise TooLong
            yield

    def _overflow(self) -> None:
        """The call is too long: as much of it as a call may have becomes text."""
        self._abort("the call is too long")
        self.reader.seek(self._max_call)
        text = self.reader.release()
        self.note("too-long", f"a call of more than {self._max_call} characters is text", text)
        self._say(text)

    def _closers(self, form: Form) -> Steps:
        """Swallow what closes a call, and say what was rejected."""
        reader = self.reader
        self._open = dict.fromkeys((*self._fence, *form.closers, *self._open))
        self._fence = ()
        space = ""
        while True:
            closers = markers_of(tuple(self._open))
            space += yield from reader.space()
            match = closers.pattern.match(reader.text, reader.at)
            if match:
                space = ""
                reader.at = match.end()
                del self._open[match[0]]
            elif reader.ended or not closers.may_grow(reader.text, reader.at):
                break
            else:
                yield
        if reader.ended and closers.may_grow(reader.text, reader.at):
            reader.at = len(reader.text)
        text = reader.release()
        if self._rejections:
            self._say(text.removesuffix(space))
            self._rejections = 0
            self._say(space)
        elif self._tentative is None:
            self._edge()
            self._last = "\n"
            self._say(space)

    def _whole(self) -> Steps:
        """Try the forms that count only if the message is nothing but calls."""
        reader = self.reader
        space = ""
        forms = self._grammar.whole
        if not forms:
            return
        space = yield from reader.space()
        self._say(space)
        for form in forms:
            if form.opener and not (yield from self._sees(form.opener)):
                continue
            self._tentative = []
            reader.hold()
            found = yield from self._whole_form(form)
            tentative, self._tentative = self._tentative, None
            self._fence = ()
            if found and any(isinstance(event, CallEnd) for event in tentative):
                reader.release()
                self._space = []
                self._out_of(tentative)
                return
            reader.restore()
            self._calls = 0

    def _sees(self, opener: str) -> Generator[None, None, bool]:
        reader = self.reader
        while len(reader.text) - reader.at < len(opener) and not reader.ended:
            if not opener.startswith(reader.text[reader.at :]):
                return False
            yield
        return reader.text.startswith(opener, reader.at)

    def _whole_form(self, form: Form) -> Generator[None, None, bool]:
        """Whether the rest of the message is this form and nothing else."""
        reader = self.reader
        self._rejections = 0
        try:
            if not (yield from self._bounded(bodies.read(self, form))) or self._rejections:
                return False
            closers = markers_of((*self._fence, *form.closers, *self._grammar.silent))
            self._fence = ()
            while True:
                yield from self._bounded(reader.space())
                match = closers.pattern.match(reader.text, reader.at)
                if match:
                    reader.at = match.end()
                elif reader.ended:
                    return reader.at == len(reader.text)
                elif not closers.may_grow(reader.text, reader.at):
                    return False
                else:
                    yield
        except TooLong:
            return False

    def _out_of(self, tentative: list[Event]) -> None:
        for event in tentative:
            self._emit(event)

    # What the bodies report.

    def schema(self, name: str) -> dict[str, Any]:
        """The parameters that a tool declares; nothing if it is not known."""
        tool = (self.tools or {}).get(self.declared(name) or "")
        return tool.parameters if tool else {}

    def declared(self, name: str) -> str | None:
        """The declared spelling of a tool's name; None if no tool has it."""
        if self.tools is None:
            return name.removeprefix("functions.")
        for spelling in (name, name.removeprefix("functions."), name.rpartition(".")[2]):
            if spelling in self.tools:
                return spelling
        return None

    def _declared_or_guessed(self, name: str, arguments: dict[str, Any] | None) -> str | None:
        """The declared name; where a call has only a number, the one tool that its arguments fit."""
        if name and not name.isdigit():
            return self.declared(name)
        fitting = [
            tool.name
            for tool in (self.tools or {}).values()
            if arguments and arguments.keys() <= properties(tool.parameters).keys()
        ]
        if len(fitting) != 1:
            return None
        self.note("guessed-name", f"the call names no tool; its arguments fit only {fitting[0]!r}")
        return fitting[0]

    def begin(self, form: Form, name: str, identity: str) -> bool:
        """Start to stream a call's arguments; False if that is not wanted or not possible."""
        if not self.incremental or self._tentative is not None or not name:
            return False
        declared = self.declared(name)
        if not declared:
            return False
        self._started = (self._calls, self._identity(identity))
        self._emit(CallStart(*self._started, declared, form.dialect.name))
        return True

    def fenced(self) -> None:
        """The body stands in a code fence, which will have to be closed."""
        self._fence = ("```",)

    def say_before_calls(self, text: str) -> None:
        """Text that stands inside the same value as the calls."""
        if self._tentative is not None:
            self._tentative.append(TextDelta(text))
        else:
            self._say(text)

    def more(self, json: str) -> None:
        """More of the arguments of the call that was begun."""
        if json and self._started:
            self._emit(ArgumentsDelta(self._started[0], json))

    def draft(self, form: Form, draft: Draft, start: int) -> None:
        """A block has been read, from `start` since the hold to here: make it a call, or reject it."""
        if self.reader.offset() > self._max_call:
            raise TooLong
        arguments, problem = callshapes.arguments_of(draft)
        declared = self._declared_or_guessed(draft.name, arguments)
        if draft.problem:
            problem = draft.problem
        elif draft.bare and not form.opener:
            problem = "an object with a name but no arguments, and no marker that says it is a call"
        elif declared is None:
            problem = f"there is no tool named {draft.name!r}"
        if problem or arguments is None or declared is None:
            self._reject(draft, problem, start)
            return
        raw = self._commit(start)
        self._dialect = form.dialect
        self._steps_back = False
        for repair in draft.repairs:
            self.note(f"repaired-{repair}", "the arguments were not quite JSON", raw)
        self._call(form, draft, declared, arguments, raw)

    def _call(
        self, form: Form, draft: Draft, name: str, arguments: dict[str, Any], raw: str
    ) -> None:
        started, self._started = self._started, None
        out = self._out if self._tentative is None else self._tentative
        self._flush()
        index = self._calls
        identity = started[1] if started else self._identity(draft.id)
        call = ToolCall(id=identity, name=name, arguments=arguments, raw=raw)
        if not started:
            out.append(CallStart(index, identity, name, form.dialect.name))
            out.append(ArgumentsDelta(index, call.arguments_json))
        out.append(CallEnd(index, call))
        self._calls += 1

    def _identity(self, given: str) -> str:
        identity = given if given and given not in self._ids else self._new_id()
        self._ids.add(identity)
        return identity

    def _commit(self, start: int) -> str:
        """A call is certain: its text cannot be given back. Returns that text."""
        text = self.reader.held()
        raw = text[start:] if self._rejections else text
        if self._tentative is None:
            if self._rejections:
                self._say(text[:start])
                self._rejections = 0
            self.reader.hold()
            self._edge()
        return raw

    def _reject(self, draft: Draft, problem: str, start: int) -> None:
        if self._steps_back:
            raise Faulty
        raw = self.reader.held()[start:]
        self._rejections += 1
        self._abort(problem)
        if self._tentative is None:
            rejection = Rejection(raw[:_SHOWN], problem, "$", draft.name or None)
            self._emit(CallRejected(rejection))
            self.note("rejected", problem, raw)

    def _abort(self, problem: str) -> None:
        """Take back a call that was begun."""
        if self._started:
            index, _ = self._started
            self._started = None
            self._emit(CallRejected(Rejection("", problem), index))
            self._calls = index + 1
