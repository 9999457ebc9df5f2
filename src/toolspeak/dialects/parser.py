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
from ..calls.resolution import CallResolver
from ..calls.schema import iter_strings
from ..calls.tools import as_tools
from ..calls.toolset import Toolset
from ..errors import UsageError
from ..events import ArgumentsDelta, CallEnd, CallStart, Event, Finish, Reclassify
from ..security.echo_guard import EchoGuard
from ..types import Note, Trust
from .bare_message import BareMessageReader
from .call_sink import CallSink, CallTooLong
from .form_matching import FormMatcher
from .framed_messages import FramedMessageReader
from .marker_context import MarkerContext
from .marker_table import (
    Marker,
    MarkerSetPair,
    marker_set,
    marker_table_for,
    without_position_rules,
)
from .reasoning import ReasoningReader
from .registry import AUTO, EVERY_DIALECT, build_scope
from .template import Dialect
from .text_buffer import Found, Steps
from .value_scanners import NEED_MORE

_MAX_NESTED_CALLS = 4
"""How deeply calls may be hidden in other calls' arguments."""
_OPENER = re.compile(r"<[^<>]{2,}>|\[[A-Z_]{4,}\]")
_TOKENS = ("<|", "<｜")
"""What only a model's own tokens begin with: nobody writes them in an explanation."""
MAX_CALL_LENGTH = 8_000_000
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
        max_call: int = MAX_CALL_LENGTH,
        new_id: Callable[[], str] = calls.new_call_id,
    ) -> None:
        _check_choice("arguments", arguments, ("validated", "incremental"))
        _check_choice("trust", trust, ("strict", "standard", "lenient"))
        incremental = arguments == "incremental"
        self._declared = as_tools(tools)
        toolset = None if self._declared is None else Toolset(self._declared)
        context = tuple(context) if isinstance(context, Iterator) else context
        guard = EchoGuard(context, self._calls_in, self._makes_calls) if context else None
        resolver = CallResolver(toolset, trust, guard, types_only=types_only, new_id=new_id)
        self._sink = CallSink(resolver, incremental=incremental, max_call=max_call)
        self._buffer = self._sink.buffer
        self._writer = self._sink.writer
        names = toolset.names if toolset else None
        if self._exhaustive:
            self._table = without_position_rules(marker_table_for(EVERY_DIALECT, names))
        else:
            scope = build_scope(dialect, trust, has_tools=toolset is not None)
            self._table = marker_table_for(scope, names)
        self._matcher = FormMatcher(self._sink, self._table, exhaustive=self._exhaustive)
        self._framed_messages = FramedMessageReader(self._sink, self._matcher)
        self._bare_message = BareMessageReader(self._sink, self._table)
        self._marker_context = MarkerContext(self._sink, trust)
        keeps = trust == "lenient"
        self._reasoning = ReasoningReader(self._sink, self._matcher, self._table, keeps=keeps)
        self._markers = self._table.literals
        if self._table.name_literals:
            self._markers = MarkerSetPair(self._table.literals, self._table.name_literals)
        scope = self._table.scope
        self._sink.expected_dialects = scope.named
        self._sink.only_expected = scope.is_strict and bool(scope.named)
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
        buffer = self._buffer
        if buffer.is_final:
            raise UsageError("the parser is finished: make a new one for the next reply")
        buffer.append(text)
        scanner = buffer.active_scanner
        if scanner is not None and buffer.held_length() <= self._sink.max_call_length:
            # Inside a long value nothing can happen but its end: do not wake the machine for less.
            buffer.position = scanner.step(buffer.text, buffer.position)
            if scanner.state == NEED_MORE:
                return []
        if not buffer.forward_chunk(text):
            next(self._machine)
        return self._writer.take_events()

    @property
    def in_call(self) -> bool:
        """Whether the arguments of a call are being read."""
        return self._buffer.active_scanner is not None

    def finish(self) -> list[Event]:
        """The text is over; returns everything that was held back, and the finish."""
        if self._buffer.is_final:
            return []
        self._buffer.is_final = True
        self._buffer.append("")
        next(self._machine, None)
        self._writer.emit(Finish())
        return self._writer.take_events()

    def events(self, chunks: Iterable[str]) -> Iterator[Event]:
        """Everything that happens in a stream, to its end."""
        for chunk in chunks:
            yield from self.feed(chunk)
        yield from self.finish()

    def _calls_in(self, text: str) -> Iterator[calls.CallKey]:
        """Every call that any text holds, for the guard against echoes."""
        for _ in range(_MAX_NESTED_CALLS):
            inside: list[str] = []
            parser = ExhaustiveParser(
                tools=self._declared, types_only=self._types_only, trust="lenient"
            )
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
        while marker := (
            yield from self._buffer.find_marker(self._markers, self._writer.write_text)
        ):
            if not (yield from self._marker(marker)):
                self._writer.write_text(marker)
                self._buffer.position += len(marker)
        if self._reasoning.thoughts_with_calls and not self._sink.call_count:
            self._act_on_thoughts()
        self._writer.finish_text(calls=self._sink.call_count > 0)

    def _beginning(self) -> Steps:
        """What only the start of a message can hold."""
        if self._reasoning_open and self._table.reasoning_closers:
            yield from self._reasoning.read(self._table.reasoning_closers)
        for literal in self._table.initial_tokens:
            if (yield from self._buffer.read_literal(literal)):
                break
        for dialect in self._table.headless_dialects:
            if (yield from self._message(dialect, "")):
                break
        yield from self._whole()

    def _marker(self, literal: str) -> Found:
        """Deal with a marker that the text has come to; False if it is only text."""
        marker = self._table.markers[literal]
        if not self._counts_here(literal, marker):
            return False
        self._matcher.reached_end = False
        invents = marker.opens_other_turn or (marker.opens_result and self._sink.call_count > 0)
        if invents and not (yield from self._marker_context.is_code(marker)):
            self._matcher.end_turn()
        if marker.forms or marker.framed_dialects:
            if (yield from self._marker_context.is_shown(literal, marker)):
                return False
            if marker.forms and self._marker_context.is_announced_example():
                return (yield from self._example(literal, marker))
            if marker.forms and self._matcher.is_too_late():
                return False
            if (yield from self._call_or_message(literal, marker)):
                return True
        if marker.reasoning_closer or marker.closes_reasoning:
            return (yield from self._edge_of_thought(literal, marker))
        if marker.result_closer and not (yield from self._marker_context.is_shown(literal, marker)):
            left_out = yield from self._leave_out(literal, marker.result_closer)
            if left_out or not marker.is_control_token:
                return left_out
        return (yield from self._token(literal, marker))

    def _counts_here(self, literal: str, marker: Marker) -> bool:
        """Whether what stands right before a marker lets it be one."""
        last = self._writer.last_character
        if marker.line_start_only and last not in ("", "\n"):
            return False
        if marker.word_start_only and last and (last.isalnum() or last in "_.\\-/"):
            return False
        may_be_words = marker.word_start_only or marker.is_bracket
        return not may_be_words or not self._marker_context.is_mention(literal)

    def _example(self, literal: str, marker: Marker) -> Found:
        """Read what is announced as an example: all of it is text. If it cannot be read, it may
        still be what encloses one."""
        self._sink.shows = True
        found = yield from self._matcher.match_forms(marker.forms)
        self._sink.shows = False
        self._marker_context.end_example(0 if found else len(literal))
        if not found:
            told = f"{literal} stands behind words that announce an example"
            self._writer.add_note("example", told, literal)
        return found

    def _call_or_message(self, literal: str, marker: Marker) -> Found:
        """A call, or a message with a header, if one begins here."""
        if marker.forms and (yield from self._matcher.match_forms(marker.forms)):
            return True
        if marker.forms and self._matcher.reached_end and self._only_opens(literal):
            return True
        if marker.framed_dialects:
            in_code = yield from self._marker_context.is_code(marker)
            for dialect in marker.framed_dialects:
                opener = _opener_of(dialect, literal)
                if (yield from self._message(dialect, opener, only_calls=in_code)):
                    return True
        return False

    def _edge_of_thought(self, literal: str, marker: Marker) -> Found:
        """Reasoning begins here, or is over; then all that follows may be calls."""
        if not marker.reasoning_closer:
            if not (yield from self._reclassify(literal, marker)):
                return False
        else:
            if (yield from self._marker_context.is_shown(literal, marker)):
                return False
            if (yield from self._marker_context.is_code(marker)):
                return False
            self._buffer.position += len(literal)
            yield from self._reasoning.read((marker.reasoning_closer,))
        yield from self._whole()
        return True

    def _token(self, literal: str, marker: Marker) -> Found:
        """A marker that begins nothing: it is left out, says how to take what follows, or is
        text."""
        if marker.is_control_token:
            return (yield from self._leave_out_token(literal, marker))
        if marker.is_trailing_token:
            return (yield from self._is_last(literal))
        if marker.opens_answer:
            self._matcher.end_turn()
            return False
        if marker.opens_other_turn or marker.opens_result:
            return False
        if marker.closes_call:
            in_code = yield from self._marker_context.is_code(marker)
            return not in_code and self._matcher.read_late_closer(literal)
        if marker.inert_closer:
            self._writer.write_text(literal)
            self._buffer.position += len(literal)
            ends = marker_set((marker.inert_closer,))
            yield from self._buffer.find_marker(ends, self._writer.write_text)
            return True
        self._remark_on(literal)
        return False

    def _only_opens(self, literal: str) -> bool:
        """Whether the reply ends with what opens a call, and not a word of one came: that is no
        text. Explanations end so too, in the midst of a line."""
        if self._writer.last_character not in ("", "\n") and not literal.startswith(_TOKENS):
            return False
        buffer = self._buffer
        opened = rest = buffer.text[buffer.position :]
        while rest and (match := self._table.literals.pattern.match(rest)):
            if not self._table.markers[match[0]].forms or not _OPENER.fullmatch(match[0]):
                return False
            rest = rest[match.end() :].lstrip()
        if rest:
            return False
        buffer.position = len(buffer.text)
        self._writer.add_note("truncated", "a call is opened, and not a word of it came", opened)
        return True

    def _leave_out(self, opener: str, closer: str) -> Found:
        """A result that the model repeats or invents; one that does not end is text."""
        buffer = self._buffer
        buffer.hold()
        buffer.position += len(opener)
        try:
            found = yield from self._sink.limit_length(
                buffer.read_through_marker(marker_set((closer,)))
            )
        except CallTooLong:
            found = ""
        if not found or buffer.held_length() > self._sink.max_call_length:
            buffer.restore()
            return self._matcher.charge_rescan()
        raw = buffer.release()
        self._writer.add_note(
            "fabricated-result", "the reply holds a result that no tool has given", raw
        )
        self._writer.mark_call_boundary()
        return True

    def _leave_out_token(self, literal: str, marker: Marker) -> Found:
        """A control token; one that is expected is remarked on in the midst of a line."""
        if (yield from self._marker_context.is_code(marker)):
            return False
        self._buffer.position += len(literal)
        self._framed_messages.boundary = self._buffer.text_offset + self._buffer.position
        expected = any(literal in dialect.control_tokens for dialect in self._table.scope.named)
        if expected and self._writer.last_character not in ("", "\n"):
            expected = (yield from self._buffer.peek()) in ("", "\n", "<", "[")
        if not expected:
            self._writer.add_note("control-token", f"{literal} belongs to no text", literal)
        return True

    def _is_last(self, literal: str) -> Found:
        """Whether nothing follows but other tokens that are no text."""
        buffer = self._buffer
        silent = (*self._table.control_tokens, *self._table.trailing_tokens)
        ends = marker_set(silent)
        buffer.hold()
        while True:
            match = ends.pattern.match(buffer.text, buffer.position)
            if not buffer.is_final and ends.may_continue(buffer.text, buffer.position):
                yield
            elif match:
                buffer.position = match.end()
                yield from buffer.read_space()
            else:
                break
        if not buffer.is_final or buffer.position < len(buffer.text):
            buffer.restore()
            return False
        self._writer.add_note("control-token", f"{literal} belongs to no text", buffer.release())
        return True

    def _message(self, dialect: Dialect, opener: str, *, only_calls: bool = False) -> Found:
        """A message with a header, if one begins here."""
        follows = yield from self._framed_messages.read(dialect, opener, only_calls=only_calls)
        if follows == "thought":
            assert dialect.message_frame is not None
            yield from self._reasoning.read(
                dialect.message_frame.message_ends, dialect.message_frame.openers
            )
        return bool(follows)

    def _remark_on(self, literal: str) -> None:
        """A marker that stays text: a call that is cut off, or none at all."""
        if self._matcher.are_prose_forms(self._table.markers[literal].forms):
            return
        rest = self._buffer.text[self._buffer.position : self._buffer.position + 1000]
        if self._matcher.reached_end and not self._said_cut_off:
            self._said_cut_off = True
            self._writer.add_note("truncated", "a call is cut off, and is not made", rest)
        elif len(literal) > 3 and not self._matcher.reached_end:
            self._writer.add_note(
                "not-a-call", f"{literal} begins no call that can be read", literal
            )

    # Reasoning.

    def _act_on_thoughts(self) -> None:
        """The reply makes no call, but its reasoning does: that is what the model meant to do."""
        inner = Parser(
            tools=self._declared,
            types_only=self._types_only,
            context=self._context,
            new_id=self._new_id,
        )
        found = list(inner.events(["\n".join(self._reasoning.thoughts_with_calls)]))
        if any(isinstance(event, CallEnd) for event in found):
            self._writer.add_note("call-from-reasoning", "the only calls stood inside reasoning")
            kinds = (CallStart, ArgumentsDelta, CallEnd, Note)
            self._writer.emit(*(event for event in found if isinstance(event, kinds)))
            self._sink.call_count += sum(isinstance(event, CallEnd) for event in found)

    def _reclassify(self, literal: str, marker: Marker) -> Found:
        """A close tag that nothing opened: the prompt had opened it."""
        if self._writer.has_reasoning or self._reasoning_open is not None:
            return False
        if (yield from self._marker_context.is_code(marker)):
            return False
        self._buffer.position += len(literal)
        if self._sink.call_count:
            self._writer.add_note(
                "calls-in-reasoning", "calls so far stood inside reasoning", literal
            )
        self._writer.emit(Reclassify())
        self._writer.end_reasoning()
        self._writer.has_text = False
        self._sink.forget_calls()
        return True

    # Messages that are nothing but calls.

    def _whole(self) -> Steps:
        """Try the forms that count only if the message is nothing but calls."""
        if self._sink.call_count or self._writer.has_text or self._matcher.is_turn_over:
            return
        self._writer.write_text((yield from self._buffer.read_space()))
        if (yield from self._bare_message.read()) == "cut off":
            self._matcher.write_truncated_call()


class ExhaustiveParser(Parser):
    """Reads all calls that a text holds, in whatever dialect and wherever they stand."""

    _exhaustive = True


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def _opener_of(dialect: Dialect, literal: str) -> str:
    """The part of a marker that begins a header in this dialect."""
    assert dialect.message_frame is not None
    return max((o for o in dialect.message_frame.openers if literal.startswith(o)), key=len)
