"""One parser for every dialect: text goes in chunk by chunk, events come out.

    parser = Parser(dialect="hermes")
    parser.feed('Sure. <tool_call>{"name": "now", "argu')   # [TextDelta("Sure. ")]
    parser.feed('ments": {}}</tool_call>')                  # [CallStart, ArgumentsDelta, CallEnd]
    parser.finish()                                         # [Finish()]

The steps, and the files in which they happen:

1. `markers`: which dialects are recognized, and which literals to search for.
2. `text_buffer`: the text that has arrived. Text is held back here and nowhere else: the beginning
   of a marker until it is certain, and a call until it is read.
3. `ReplyMachine` below: text before the next marker is passed on; at a marker, `_read_marker`
   decides.
4. `marker_context`: is the marker meant, or is it inside code (`code_spans`), a URL, an example?
5. `form_matching`: try the forms that begin at the marker: header, body and closers. One try is a
   `form_reader`; the bodies are read by `json_bodies`, `python_calls`, `tagged_parameters`,
   `elements` and `argument_bodies`.
6. `reply_sections`: reasoning, messages with headers, and messages that are nothing but calls.
7. `call_sink`: text, reasoning, notes and calls become events.

The machine is a generator that yields when it needs more text. What no form can read becomes text
again, so the result does not depend on the chunks, and time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

from msgspec import Struct, structs

from ..calls.json_values import iter_strings
from ..calls.resolution import CallResolver, call_key, new_call_id
from ..calls.tools import Toolset, as_tools
from ..errors import UsageError
from ..events import ArgumentsDelta, CallEnd, CallStart, Event, Finish
from ..security.echo_guard import EchoGuard, FoundCall
from ..types import Note, Rejection, Tool, ToolCall, Trust
from .call_sink import CallSink, EventWriter
from .form_matching import FormMatcher
from .form_reader import ParserState
from .marker_context import MarkerContext
from .markers import (
    AUTO,
    EVERY_DIALECT,
    Marker,
    build_scope,
    marker_set,
    marker_table_for,
    without_position_rules,
)
from .near_calls import (
    ReplyTail,
    begins_block,
    find_broken_json,
    find_named_arguments,
    find_unread_block,
    list_made_calls,
    may_hold_near_call,
    select_near_call,
)
from .reply_sections import (
    BareMessageReader,
    FinalCalls,
    FramedMessageReader,
    ReasoningReader,
    find_header_opener,
)
from .template import NEXT_REPLY_OPENERS, Dialect
from .text_buffer import NEED_MORE, HeldTooLong, Reading, TextBuffer, read_now

MAX_CALL_LENGTH = 8_000_000
"""The longest call, in characters; a longer one becomes text."""
_MAX_NESTING = 4
"""The depth to which calls are searched for in the arguments of other calls."""
_SPACE = re.compile(r"\s*+")
_OPENER = re.compile(r"<[^<>]{2,}>|\[[A-Z_]{4,}\]")
_NEXT_REPLY = marker_set(NEXT_REPLY_OPENERS)
_CITED_PLACE, _MAX_CITED_PLACE = re.compile(r"(?::[\s\d:,\[\]]*)?"), 200
"""The place in a document after the beginning of a citation tag: `: 0:[1,2]`."""
_SENTENCE_ENDS = frozenset(".!?:")
"""Signs after which some models forget the line break before a call."""
_CONTROL_TOKEN_STARTS = ("<|", "<｜")
"""Only a model's own tokens begin with these: explanations do not hold them."""


class ParserOptions(Struct, frozen=True, eq=False):
    """The options of one parser, checked."""

    dialect: str | Dialect | Sequence[Dialect] = AUTO
    tools: tuple[Tool, ...] | None = None
    types_only: bool = False
    trust: Trust = "standard"
    context: Any = ()
    reasoning_open: bool | None = None
    reads_reasoning: bool = True
    is_incremental: bool = False
    max_call: int = MAX_CALL_LENGTH
    new_id: Callable[[], str] = new_call_id

    def for_other_text(self, **changes: Any) -> ParserOptions:
        """Return the options to read another text by itself, with the same tools."""
        other = ParserOptions(dialect=self.dialect, tools=self.tools, types_only=self.types_only)
        return structs.replace(other, **changes)


class Parser:
    """Reads the calls in a model's text, however it is chunked.

    `tools`, in any provider's shape, give the names that may be called and the types of arguments;
    None checks neither. With `types_only`, a call of another tool, or one that violates its schema,
    is made with a note, for callers that answer such calls themselves. `trust` states what may
    become a call. Calls that merely echo `context`, the conversation so far, are rejected.
    `reasoning_open` states whether the prompt has opened the reasoning; None leaves it to the text.
    Without `reads_reasoning`, tags of reasoning are text: the API has already separated it.
    """

    def __init__(
        self,
        *,
        dialect: str | Dialect | Sequence[Dialect] = AUTO,
        tools: Iterable[Any] | None = None,
        types_only: bool = False,
        trust: Trust = "standard",
        context: Any = (),
        reasoning_open: bool | None = None,
        reads_reasoning: bool = True,
        arguments: Literal["validated", "incremental"] = "validated",
        max_call: int = MAX_CALL_LENGTH,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        _check_choice("arguments", arguments, ("validated", "incremental"))
        _check_choice("trust", trust, ("strict", "standard", "lenient"))
        options = ParserOptions(
            dialect,
            as_tools(tools),
            types_only,
            trust,
            tuple(context) if isinstance(context, Iterator) else context,
            reasoning_open,
            reads_reasoning,
            arguments == "incremental",
            max_call,
            new_id,
        )
        self._options = options
        machine = build_machine(options)
        self._buffer, self._writer = machine.buffer, machine.writer
        self._steps = machine.run()
        next(self._steps)

    def feed(self, text: str) -> list[Event]:
        """Take in a chunk of text; return the events that are certain by now."""
        buffer = self._buffer
        if buffer.is_final:
            raise UsageError("The parser is finished; create a new one for the next reply.")
        buffer.append(text)
        scanner = buffer.active_scanner
        if scanner is not None and buffer.held_length() <= buffer.max_held_length:
            # Inside a long value only its end matters: do not resume the generator for less.
            buffer.position = scanner.step(buffer.text, buffer.position)
            if scanner.state == NEED_MORE:
                return []
        if not buffer.forward_chunk(text):
            next(self._steps)
        return self._writer.take_events()

    @property
    def is_in_call(self) -> bool:
        """The arguments of a call are being read."""
        return self._buffer.active_scanner is not None

    def finish(self, *, is_complete: bool = True) -> list[Event]:
        """End the text; return the remaining events and `Finish`.

        `is_complete` is False if the reply was cut off, as by a limit on its tokens: then no call
        is made that stands in reasoning without an end.
        """
        if self._buffer.is_final:
            return []
        self._buffer.is_complete = is_complete
        self._buffer.is_final = True
        self._buffer.append("")
        next(self._steps, None)
        self._writer.emit(Finish())
        return self._writer.take_events()

    def find_calls_in_reasoning(self, reasoning: str) -> list[Event]:
        """Return the events of the calls in reasoning that the API has separated.

        They are accepted like those in tags: only if trust is lenient. The caller must know that
        the reply is complete and has no other calls.
        """
        if self._options.trust != "lenient":
            return []
        return build_machine(self._options).find_calls_in_reasoning([reasoning])

    def events(self, chunks: Iterable[str], *, is_complete: bool = True) -> Iterator[Event]:
        for chunk in chunks:
            yield from self.feed(chunk)
        yield from self.finish(is_complete=is_complete)


Search = Literal["", "everywhere", "near-calls"]
"""The purpose of reading a text. "": as a reply. "everywhere": to find calls in any dialect, at any
place. "near-calls": the same, except in code in another language."""


def build_machine(options: ParserOptions, search: Search = "") -> ReplyMachine:
    """Build the machine that reads one text."""
    toolset = Toolset(options.tools)
    names = None if toolset.declared is None else tuple(toolset.declared)
    scope = EVERY_DIALECT
    if not search:
        scope = build_scope(options.dialect, options.trust, has_tools=names is not None)
    table = marker_table_for(scope, names)
    is_exhaustive = search == "everywhere"
    if is_exhaustive:
        table = without_position_rules(table)
    is_echo = None
    if options.context:
        is_echo = EchoGuard(
            options.context, partial(find_calls, options), partial(makes_calls, options)
        )
    resolver = CallResolver(
        toolset, options.trust, is_echo, types_only=options.types_only, new_id=options.new_id
    )
    buffer = TextBuffer(options.max_call)
    context = MarkerContext(buffer, options.trust, search)
    tail = None if search or not names else ReplyTail()
    writer = EventWriter(context.append, tail)
    state = ParserState(
        table=table,
        buffer=buffer,
        writer=writer,
        sink=CallSink(writer, resolver, incremental=options.is_incremental),
        resolver=resolver,
    )
    matcher = FormMatcher(state, is_exhaustive=is_exhaustive)
    return ReplyMachine(options, context, state, matcher)


def find_calls(options: ParserOptions, text: str) -> Iterator[FoundCall]:
    """Yield every call that a text holds, in any dialect, also inside other calls."""
    inner = options.for_other_text(dialect=AUTO, trust="lenient")
    for _ in range(_MAX_NESTING):
        inner_texts: list[str] = []
        machine = build_machine(inner, "everywhere")
        for event in machine.read_whole(text):
            if isinstance(event, CallEnd):
                yield event.call.name, event.call.arguments
                inner_texts.extend(iter_strings(event.call.arguments))
        text = "\n\n".join(inner_texts)
        if not text:
            break


def makes_calls(options: ParserOptions, text: str) -> bool:
    """Return True if an earlier reply of the same model made a call."""
    trust: Trust = "standard" if options.trust == "strict" else options.trust
    found = build_machine(options.for_other_text(trust=trust)).read_whole(text)
    return any(isinstance(event, CallEnd) for event in found)


def find_near_call(
    options: ParserOptions, text: str, has_call: Callable[..., bool] | None = None
) -> Rejection | None:
    """Return the first text in the shape of a call to a declared tool, in any dialect, or None.

    A text may mention the calls of the conversation, and those for which `has_call` is true.
    """
    tools = Toolset(options.tools)
    if not may_hold_near_call(text, tools):
        return None
    other = options.for_other_text(dialect=AUTO, context=options.context)
    events = build_machine(other, "near-calls").read_whole(text)

    def is_made(call: ToolCall) -> bool:
        is_new = call_key(call.name, call.arguments) not in list_made_calls(options.context)
        return not is_new or bool(has_call and has_call(call.name, call.arguments))

    found = select_near_call(text, events, is_made)
    found = found or find_broken_json(text, tools)
    return found or find_named_arguments(text, tools, is_made)


def find_final_calls(options: ParserOptions, text: str) -> int:
    """Return where the complete calls at the end of a text begin, in an expected dialect; -1 if the
    text ends otherwise."""
    return build_machine(options.for_other_text(trust="strict")).find_final_calls(text)


class ReplyMachine:
    """Reads one reply, marker by marker."""

    def __init__(
        self,
        options: ParserOptions,
        context: MarkerContext,
        state: ParserState,
        matcher: FormMatcher,
    ) -> None:
        self._options = options
        self._table = state.table
        self._context = context
        self._matcher = matcher
        self._sink = state.sink
        self._resolver = state.resolver
        self.buffer = state.buffer
        self.writer = state.writer
        find = None if options.trust == "strict" else partial(find_final_calls, options)
        self._final_calls = final_calls = FinalCalls(state.buffer, find)
        self._framed_messages = FramedMessageReader(state, matcher, context, final_calls)
        self._bare_message = BareMessageReader(state, matcher)
        self._reasoning = ReasoningReader(
            state,
            matcher,
            self._framed_messages,
            final_calls,
            keeps_calls=options.trust == "lenient",
        )
        self._has_noted_closer = False
        self._unread_markers: dict[str, None] = {}
        """Markers of calls that no call followed."""
        self._end_of_tokens_in_text = 0
        """Offset in the whole reply of the end of the last tokens that are known not to end the
        reply."""

    def read_whole(self, text: str) -> list[Event]:
        """Read a text that has arrived whole."""
        self.buffer.append(text)
        self.buffer.is_final = True
        for _ in self.run():
            pass
        return self.writer.take_events()

    def find_final_calls(self, text: str) -> int:
        """Return where the calls at the end of a text begin, or -1 if it ends otherwise."""
        self.buffer.append(text)
        self.buffer.is_final = True
        start, write = -1, self.writer.write_text
        while literal := read_now(self.buffer.find_marker(self._table.literals, write)):
            at, count = self.buffer.offset, self._sink.call_count
            start = -1 if self.writer.length_since_call else start
            read_now(self._read_at(literal))
            if start < 0 and self._sink.call_count > count:
                start = at
        return -1 if self.writer.length_since_call or self.writer.has_reasoning else start

    def run(self) -> Reading[None]:
        """Read the reply; the first step only starts the machine."""
        yield
        yield from self._read_beginning()
        write = self.writer.write_text
        while literal := (yield from self.buffer.find_marker(self._table.literals, write)):
            yield from self._read_at(literal)
        if self.buffer.is_complete and not self._sink.call_count:
            drafts = self.find_calls_in_reasoning(self._reasoning.thoughts)
            self.writer.emit(*drafts)
            self._sink.call_count += sum(isinstance(event, CallEnd) for event in drafts)
        self._reject_near_call()
        self.writer.finish_text(has_calls=self._sink.call_count > 0)

    def _read_beginning(self) -> Reading[None]:
        """Read what only the beginning of a reply can hold."""
        closers = self._table.reasoning_closers if self._options.reads_reasoning else ()
        if self._options.reasoning_open and closers:
            yield from self._reasoning.read(closers)
        for literal, message in self._table.initial_tokens.items():
            if (yield from self.buffer.read_literal(literal)):
                self._context.begin_message(message)
                break
        for dialect in self._table.headless_dialects:
            if (yield from self._read_framed_message(dialect, "")):
                break
        yield from self._read_bare_message()

    def _read_bare_message(self) -> Reading[None]:
        """Read the rest of the reply, if all of it is nothing but calls."""
        result = "calls"
        while result == "calls" and not (self.writer.has_text or self._matcher.is_turn_over):
            self.writer.write_text((yield from self.buffer.read_space()))
            result = yield from self._bare_message.read()
            if result == "calls":
                begins_again = yield from self.buffer.match_marker(_NEXT_REPLY)
                self._matcher.is_turn_over |= begins_again is not None
        if result == "truncated":
            self._matcher.write_truncated_call()

    def _read_at(self, literal: str) -> Reading[None]:
        """Read what begins at a marker, or the marker itself as text."""
        if not (yield from self._read_marker(literal)):
            self.writer.write_text(literal)
            self.buffer.position += len(literal)

    def _read_marker(self, literal: str) -> Reading[bool]:
        """Read what begins at a marker; return False if the marker is only text."""
        marker, context = self._table.markers[literal], self._context
        if not self._may_stand_here(literal, marker):
            return False
        self._matcher.reached_end = False
        is_made_up = marker.turn == "result" and self._sink.call_count > 0
        if marker.turn == "other" or is_made_up:
            self._matcher.is_turn_over |= not (yield from context.is_code(marker))
        if marker.forms or marker.framed_dialects:
            if (yield from self._is_example(literal, marker)):
                return False
            if marker.forms and self._is_announced_example(marker):
                return (yield from self._read_example(literal, marker))
            if marker.forms and self._matcher.is_too_late(literal):
                return False
            if (yield from self._read_call_or_message(literal, marker)):
                return True
        if marker.reasoning_closer or marker.reasoning_openers:
            return (yield from self._read_reasoning_tag(literal, marker))
        if marker.result_closer and not (yield from self._is_example(literal, marker)):
            is_dropped = yield from self._drop_result(literal, marker.result_closer)
            if is_dropped or not marker.is_control_token:
                return is_dropped
        return (yield from self._read_token(literal, marker))

    def _may_stand_here(self, literal: str, marker: Marker) -> bool:
        """Return True if the text right before a marker lets it be one."""
        last = self.writer.last_character
        if marker.position == "line":
            is_after_sentence = self._options.trust == "lenient" and last in _SENTENCE_ENDS
            return self.writer.begins_line or is_after_sentence
        if marker.position == "word" and last and (last.isalnum() or last in "_.\\-/"):
            return False
        return not marker.position or not self._context.is_mention(literal)

    # Calls and messages.

    def _is_example(self, literal: str, marker: Marker) -> Reading[bool]:
        """Return True if a marker only shows what a call looks like, and note it."""
        context = self._context
        if context.is_end_missing_before(marker) and (yield from self._final_calls.begin_here()):
            context.end_message_before(marker)
        reason = yield from context.find_example_reason(marker)
        if reason:
            self.writer.add_note("example", f"{literal} {reason}; it is an example", literal)
        return bool(reason)

    def _is_announced_example(self, marker: Marker) -> bool:
        """Return True if the text before a marker says that a call here is only an example."""
        context = self._context
        is_marked = any(form.opener and form.dialect.evidence == "marker" for form in marker.forms)
        return context.is_announced_example() or (not is_marked and context.is_after_denial())

    def _read_example(self, literal: str, marker: Marker) -> Reading[bool]:
        """Read an announced example: all of it is text."""
        found = yield from self._matcher.match_forms(marker.forms, is_example=True)
        # What cannot be read may still be a wrapper around the example.
        self._context.end_example(0 if found else len(literal))
        if not found and not self._matcher.are_prose_forms(marker.forms):
            message = f"the text before {literal} announces an example"
            self.writer.add_note("example", message, literal)
        return found

    def _read_call_or_message(self, literal: str, marker: Marker) -> Reading[bool]:
        """Read a call, or a message with a header, if one begins here."""
        if forms := self._context.select_forms(marker):
            ends_message = self._context.message_to_user is not None
            if (yield from self._matcher.match_forms(forms, ends_message=ends_message)):
                self._context.message_to_user = None
                return True
            if self._matcher.reached_end and self._drop_lone_openers(literal):
                return True
        if marker.framed_dialects:
            in_code = yield from self._context.is_code(marker)
            for dialect in marker.framed_dialects:
                opener = find_header_opener(dialect, literal)
                if (yield from self._read_framed_message(dialect, opener, only_calls=in_code)):
                    return True
        return False

    def _is_unmistakable(self, literal: str) -> bool:
        """Return True if a marker that the reply ends with was meant: on its own line, or a
        control token."""
        return self.writer.begins_line or literal.startswith(_CONTROL_TOKEN_STARTS)

    def _drop_lone_openers(self, literal: str) -> bool:
        """Drop openers at the end of the reply after which no call came.

        Within a line they stay text: an explanation may end with such a marker, too.
        """
        if not self._is_unmistakable(literal):
            return False
        buffer = self.buffer
        text, at = buffer.text, buffer.position
        while match := self._table.literals.match(text, at):
            openers = [form.opener for form in self._table.markers[match[0]].forms]
            if match[0] not in openers or not _OPENER.fullmatch(match[0]):
                return False
            match = _SPACE.match(text, match.end())
            at = match.end() if match else at
        if at < len(text):
            return False
        opened = text[buffer.position :]
        buffer.position = len(text)
        problem = "a call was opened, and nothing followed"
        self._sink.reject(Rejection(opened, "truncated", problem))
        return True

    def _read_framed_message(
        self, dialect: Dialect, opener: str, *, only_calls: bool = False
    ) -> Reading[bool]:
        section = yield from self._framed_messages.read(dialect, opener, only_calls=only_calls)
        if section == "reasoning" and self._options.reads_reasoning:
            frame = dialect.message_frame
            assert frame is not None
            self._context.message_to_user = None
            yield from self._reasoning.read(frame.message_ends, dialect)
        return bool(section)

    # Reasoning.

    def _read_reasoning_tag(self, literal: str, marker: Marker) -> Reading[bool]:
        """Read reasoning, or the end of what the prompt opened; then bare calls may follow."""
        if not self._options.reads_reasoning:
            return False
        if not marker.reasoning_closer:
            if not (yield from self._reclassify(literal, marker)):
                return False
        else:
            if not self._framed_messages.is_at_boundary():
                return False
            if (yield from self._is_example(literal, marker)):
                return False
            if (yield from self._context.is_code(marker)):
                return False
            self.buffer.position += len(literal)
            yield from self._reasoning.read((marker.reasoning_closer,))
        yield from self._read_bare_message()
        return True

    def _reclassify(self, literal: str, marker: Marker) -> Reading[bool]:
        """Read a closing tag that nothing opened: everything before it was reasoning, unless the
        prompt is known not to open any."""
        context, begins_section = self._context, self.writer.begins_section
        is_text = self._options.reasoning_open is False
        if self.writer.has_reasoning or (is_text and self._has_noted_closer):
            return False
        if (yield from context.is_code(marker)):
            return False
        if not (yield from context.ends_reasoning(literal, marker, begins_section=begins_section)):
            return False
        result = "it stays text" if is_text else "the text before it became reasoning"
        message = f"{literal} ends reasoning that nothing opened; {result}"
        self.writer.add_note("unopened-reasoning", message, literal)
        self._has_noted_closer = True
        if is_text:
            return False
        self.buffer.position += len(literal)
        if self._sink.call_count:
            message = "the reasoning ended here, so the calls before it were withdrawn"
            self.writer.add_note("calls-in-reasoning", message, literal)
        self.writer.reclassify()
        self._sink.forget_calls()
        self._unread_markers.clear()
        return True

    def find_calls_in_reasoning(self, thoughts: Iterable[str]) -> list[Event]:
        """Return the events of the calls in the reasoning of a reply that has none outside it."""
        options, openers = self._options, marker_set(self._table.call_openers)
        found = ((thought, openers.search(thought, 0)) for thought in thoughts)
        text = "\n".join(thought[match.start() :] for thought, match in found if match)
        if not text:
            return []
        inner = options.for_other_text(
            dialect=AUTO, trust="standard", context=options.context, new_id=options.new_id
        )
        events = build_machine(inner).read_whole(text)
        if not any(isinstance(event, CallEnd) for event in events):
            return []
        message = "the only calls are in the reasoning; they were accepted"
        kinds = (CallStart, ArgumentsDelta, CallEnd, Note)
        kept = (event for event in events if isinstance(event, kinds))
        return [Note("call-from-reasoning", message), *kept]

    def _reject_near_call(self) -> None:
        """Reject what looks like a call to a declared tool, if nothing else in the reply does; or
        a block that does, after the calls of the reply."""
        tail, tools = self.writer.tail, self._resolver.tools
        if self.writer.has_fault or tail is None:
            return
        text = tail.text
        if self._sink.call_count:
            if self._matcher.is_turn_over:
                return  # The model made up what follows its calls.
            text = text[max(len(text) - self.writer.length_since_call, 0) :]
            found = find_near_call(self._options, text, self._resolver.ids.has_call)
            if found and begins_block(found):
                self._sink.reject(found)
            return
        unread = find_unread_block(text, self._unread_markers, tools)
        if found := find_near_call(self._options, text) or unread:
            self._sink.reject(found)

    # Markers that begin neither a call nor reasoning.

    def _read_token(self, literal: str, marker: Marker) -> Reading[bool]:
        """Read a marker that begins neither a call nor reasoning; return False if it is text."""
        if marker.is_control_token:
            return (yield from self._drop_control_token(literal, marker))
        if marker.is_trailing_token:
            return (yield from self._drop_trailing_tokens(literal))
        if marker.begins_citation_tag:
            return (yield from self._drop_citation_tag(literal, marker))
        if marker.turn:
            self._matcher.is_turn_over |= marker.turn == "answer"
            return False
        if marker.closes_call:
            if (yield from self._context.is_code(marker)):
                return False
            is_read = self._matcher.read_late_closer(literal)
            has_calls = self._sink.call_count or self._unread_markers or self.writer.has_fault
            if is_read or has_calls or not self._table.scope.has_closing_tag(literal):
                return is_read
            return (yield from self._drop_trailing_tokens(literal))
        if marker.inert_closer:
            self.writer.write_text(literal)
            self.buffer.position += len(literal)
            ends = marker_set((marker.inert_closer,))
            yield from self.buffer.find_marker(ends, self.writer.write_text)
            return True
        self._note_unread_marker(literal)
        return False

    def _drop_control_token(self, literal: str, marker: Marker) -> Reading[bool]:
        """Drop a control token; note it if it is not expected, or within a line."""
        if (yield from self._context.is_code(marker)):
            return False
        self.buffer.position += len(literal)
        self._framed_messages.boundary = self.buffer.offset
        self._matcher.begin_message()
        self._context.end_message(literal)
        if marker.message_to_user:
            self._context.begin_message(marker.message_to_user)
        is_expected = self._table.scope.has_control_token(literal)
        if is_expected and not self.writer.begins_line:
            is_expected = (yield from self.buffer.peek()) in ("", "\n", "<", "[")
        if not is_expected:
            self.writer.note_control_token(literal, literal)
        # A message that is nothing but calls may begin here.
        yield from self._read_bare_message()
        return True

    def _drop_trailing_tokens(self, literal: str) -> Reading[bool]:
        """Drop tokens that are not text if nothing else follows them."""
        buffer = self.buffer
        if buffer.offset < self._end_of_tokens_in_text:
            return False
        tokens = marker_set((literal, *self._table.control_tokens, *self._table.trailing_tokens))
        buffer.hold()
        while match := (yield from buffer.match_marker(tokens)):
            buffer.position = match.end()
            yield from buffer.read_space()
        if not buffer.is_final or buffer.position < len(buffer.text):
            self._end_of_tokens_in_text = buffer.offset
            buffer.restore()
            return False
        self.writer.note_control_token(literal, buffer.release())
        return True

    def _drop_citation_tag(self, literal: str, marker: Marker) -> Reading[bool]:
        """Drop a tag around text that cites a document; the text stays."""
        if (yield from self._context.is_code(marker)):
            return False
        buffer = self.buffer
        buffer.hold()
        buffer.position += len(literal)
        place = yield from buffer.read_run(_CITED_PLACE, _MAX_CITED_PLACE)
        if place is None or not (yield from buffer.read_literal(">")):
            buffer.restore()
            return False
        tag = buffer.release()
        self.writer.note_control_token(tag, tag)
        return True

    def _drop_result(self, opener: str, closer: str) -> Reading[bool]:
        """Drop a tool result that the model made up; one that is not closed is text."""
        buffer = self.buffer
        buffer.hold()
        buffer.position += len(opener)
        try:
            closers = marker_set((closer,))
            found = yield from buffer.limit(buffer.read_through_marker(closers))
        except HeldTooLong:
            found = ""
        if not found:
            buffer.restore()
            return self._matcher.write_if_read_too_often()
        message = "the reply holds a result that no tool returned; it was removed"
        self.writer.add_note("fabricated-result", message, buffer.release())
        self.writer.mark_call_boundary()
        return True

    def _reject_cut_off(self, literal: str) -> None:
        """Reject a call that the reply ends in; an explanation may also end with a marker."""
        buffer = self.buffer
        rest = buffer.text[buffer.position :]
        after = rest[len(literal) :].strip()
        tools = self._resolver.tools
        names_tool = (
            bool(after) and tools.declared is not None and tools.has_name_starting_with(after)
        )
        is_begun = not buffer.is_complete or self._is_unmistakable(literal)
        is_call = names_tool or (is_begun and len(literal) > 1)
        if is_call:
            self._sink.reject_truncated(rest)

    def _note_unread_marker(self, literal: str) -> None:
        """Note a marker that stays text: a call that is cut off, or none at all."""
        if self._matcher.are_prose_forms(self._table.markers[literal].forms):
            return
        if self._matcher.reached_end:
            self._reject_cut_off(literal)
        elif len(literal) > 3:
            message = f"{literal} is not followed by a call that can be read"
            self.writer.add_note("not-a-call", message, literal)
            self._unread_markers[literal] = None


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"`{name}` must be one of {', '.join(choices)}, not {value!r}.")
