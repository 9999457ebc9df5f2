"""Sections of a reply: reasoning, messages with headers, and messages that are nothing but calls.

    <think>The user wants …</think>
    <|channel|>analysis<|message|>The user wants …<|end|>
    <|channel|>commentary to=functions.get_weather<|message|>{"city": "Oslo"}<|call|>
    {"name": "get_weather", "arguments": {"city": "Oslo"}}

The header of a message names its recipient: the user, the model itself, or a tool. Forms without a
marker are accepted only if nothing else is in the message, so its events wait for its end.

A call inside reasoning, or inside a message to the user, is not made. Some models forget to end
these before a call: `FinalCalls` finds the calls that may be meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from ..calls.drafts import CallDraft
from ..calls.schema import get_properties, get_required
from .call_sink import TentativeEvents
from .form_matching import FormMatcher, read_form
from .form_reader import Body, FormReader, Header, ParserState
from .json_bodies import read_json_arguments
from .marker_context import MarkerContext
from .markers import MarkerSet, marker_set
from .template import (
    JSON_SLOTS,
    MESSAGE_ENDS,
    NEXT_REPLY_OPENERS,
    OTHER_TURN_OPENERS,
    CallForm,
    Dialect,
    MessageFrame,
    MessageToUser,
)
from .text_buffer import HeldTooLong, Reading, TextBuffer

_MAX_HEADER_LENGTH = 300
_LINE = re.compile(r"\n[^<]")
"""A line break that does not merely separate two parts of a header."""
_FENCE = "```"
_BEFORE_JSON = frozenset("{[`")
_BEFORE_CODE = frozenset("[`")
_TICKS = re.compile(r"`*")
_FENCE_LABEL = re.compile(r"[\w+\-]*")
_STRAYS = re.compile(r"""[\])}"'\s]*""")
"""Signs that models write after the last call, although nothing before it opened them."""
_MAX_WORD_LENGTH, _MAX_STRAYS = 40, 8
_TAG = re.compile(r"</?+[\w:.\-]*+>?+")
_NEXT_TURN_OPENERS = marker_set((*OTHER_TURN_OPENERS, *NEXT_REPLY_OPENERS))
_PEOPLE = frozenset(("assistant", "user", "all", "self"))

BareMessageResult = Literal["calls", "truncated", "unread", "text"]
"""The rest of a message; "unread" if it was read too often and is text for that reason."""
Section = Literal["", "done", "text", "reasoning"]
"""The text after a header; "" if it is no header, "done" if the message was read to its end."""
HeaderKind = Literal["", "tool", "other"]
"""To whom a header addresses its message; "" if it is no header."""


class FinalCalls:
    """Finds the complete calls that are the very last thing of a reply.

    If the end of a thought or of a message is missing, only these calls end it, and only if the
    reply was not cut off. All other calls in it are only considered, not made.
    """

    def __init__(self, buffer: TextBuffer, find: Callable[[str], int] | None) -> None:
        self._buffer = buffer
        self._find = find
        """Returns where the calls at the end of a text begin, or -1; None if none may be
        accepted."""
        self._offset: int | None = None
        """Offset in the whole reply where they begin; -1 if there are none, None if unknown."""

    def begin_here(self) -> Reading[bool]:
        """Return True if they begin here. That is certain only at the end of the reply."""
        buffer = self._buffer
        if self._find is None:
            return False
        if self._offset is None:
            is_at_end = yield from buffer.look_ahead(buffer.read_to_end())
            self._offset = self._search() if is_at_end else -1
        return self._offset == buffer.offset

    def _search(self) -> int:
        buffer = self._buffer
        if self._find is None or not buffer.is_complete:
            return -1
        start = self._find(buffer.text[buffer.position :])
        return buffer.offset + start if start >= 0 else -1


class ReasoningReader:
    def __init__(
        self,
        state: ParserState,
        matcher: FormMatcher,
        headers: FramedMessageReader,
        final_calls: FinalCalls,
        *,
        keeps_calls: bool,
    ) -> None:
        self._buffer = state.buffer
        self._writer = state.writer
        self._matcher = matcher
        self._headers = headers
        self._final_calls = final_calls
        self._call_openers = state.table.call_openers
        self._keeps_calls = keeps_calls
        self.thoughts: list[str] = []
        """The parts of the reasoning that may hold calls, if such calls may be accepted."""
        self._unclosed: set[MarkerSet] = set()
        """Closers that do not come in the rest of the text."""

    def read(self, closers: tuple[str, ...], dialect: Dialect | None = None) -> Reading[None]:
        """Read reasoning through the first of `closers`, or up to a header of the dialect."""
        if self._matcher.is_exhaustive:
            # All text is searched for calls, reasoning too.
            return
        buffer, write = self._buffer, self._writer.write_reasoning
        frame = dialect.message_frame if dialect else None
        openers = _message_openers(frame) if frame else ()
        self._writer.begin_reasoning()
        ends = marker_set(closers)
        markers = marker_set((*closers, *openers, *self._call_openers))
        while marker := (yield from buffer.find_marker(markers, write)):
            if marker in closers:
                buffer.position += len(marker)
                break
            if dialect and marker.startswith(openers):
                goes_on = yield from self._read_header(dialect, marker)
            else:
                goes_on = yield from self._read_call(marker, ends, is_framed=bool(dialect))
            if not goes_on:
                break
        else:
            if self._writer.has_text and buffer.is_complete and not dialect:
                message = "the reasoning after the text is not closed; it goes on to the end"
                self._writer.add_note("unclosed-reasoning", message)
        self._writer.end_reasoning()

    def _read_header(self, dialect: Dialect, marker: str) -> Reading[bool]:
        """Read what may be the header of the next message; return whether the reasoning goes on."""
        if marker in OTHER_TURN_OPENERS:
            return False
        opener = find_header_opener(dialect, marker)
        kind = yield from self._headers.peek_kind(dialect, opener)
        if kind == "other":
            return False
        if kind == "tool" and (yield from self._final_calls.begin_here()):
            return self._end_at_call()
        self._write(opener)
        return True

    def _read_call(self, opener: str, ends: MarkerSet, *, is_framed: bool) -> Reading[bool]:
        """Read a call inside reasoning; return whether the reasoning goes on.

        It is part of the reasoning, unless that is not closed and the reply ends with the call.
        """
        buffer = self._buffer
        buffer.hold()
        closer = ""
        try:
            if ends not in self._unclosed:
                closer = yield from buffer.limit(buffer.read_through_marker(ends))
        except HeldTooLong:
            # Too much to hold: it counts as reasoning.
            buffer.seek(buffer.max_held_length)
            self._writer.write_reasoning(buffer.release())
            return True
        if closer:
            thought = buffer.release().removesuffix(closer)
            self._writer.write_reasoning(thought)
            # Where messages have recipients, only a message to a tool can be a call.
            if self._keeps_calls and not is_framed and not self._matcher.is_turn_over:
                self.thoughts.append(thought)
            return False
        self._unclosed.add(ends)
        buffer.restore()
        if (yield from self._final_calls.begin_here()):
            return self._end_at_call()
        self._write(opener)
        return True

    def _end_at_call(self) -> bool:
        message = "the reasoning is not closed; it ends at the call"
        self._writer.add_note("unclosed-reasoning", message)
        return False

    def _write(self, text: str) -> None:
        self._writer.write_reasoning(text)
        self._buffer.position += len(text)


def find_header_opener(dialect: Dialect, literal: str) -> str:
    """Return the part of a marker that begins a header in this dialect."""
    assert dialect.message_frame is not None
    openers = dialect.message_frame.openers
    return max((opener for opener in openers if literal.startswith(opener)), key=len)


@lru_cache(maxsize=64)
def _message_openers(frame: MessageFrame) -> tuple[str, ...]:
    """Return the literals that may begin another message, also one of another role."""
    return (*frame.openers, *(one for one in OTHER_TURN_OPENERS if one.startswith(frame.openers)))


class _MessageToTool(Struct, frozen=True, eq=False):
    """A message whose header addresses a tool."""

    dialect: Dialect
    frame: MessageFrame
    header: str
    name: str
    has_prefix: bool
    """The recipient has the prefix of the tools that were declared."""
    is_complete: bool
    """The header holds everything that a header must."""

    def form(self) -> CallForm:
        ends = self.frame.message_ends
        return CallForm(self.dialect, self.frame.header_end, (), "arguments", ends[0], ends)

    def is_code(self) -> bool:
        """Return True if the header says that the message is code."""
        is_code = self.name == "python" or self.header.split()[-1:] == ["code"]
        return is_code and not self.has_prefix


class FramedMessageReader:
    """Reads the headers of messages, and messages that are calls."""

    def __init__(
        self,
        state: ParserState,
        matcher: FormMatcher,
        context: MarkerContext,
        final_calls: FinalCalls,
    ) -> None:
        self._state = state
        self._buffer = state.buffer
        self._matcher = matcher
        self._context = context
        self._final_calls = final_calls
        self.boundary = -1
        """Offset in the whole reply of the last token that may have ended a message."""

    def read(self, dialect: Dialect, opener: str, *, only_calls: bool = False) -> Reading[Section]:
        """Read a header, and the message itself if it is a call.

        With `only_calls`, the header of any other message is text.
        """
        if self._context.message_to_user and (yield from self._is_quoted(dialect, opener)):
            return ""
        buffer, frame = self._buffer, dialect.message_frame
        assert frame is not None
        at_boundary = self.is_at_boundary()
        buffer.hold()
        header = yield from self._read_header(frame, opener)
        if header is None:
            buffer.restore()
            return ""
        recipient = re.search(frame.recipient_pattern, header)
        is_complete = re.search(frame.header_pattern, header) is not None
        if recipient and frame.tool_pattern:
            tool = re.match(frame.tool_pattern, recipient[1])
            if tool:
                name, has_prefix = recipient[1][tool.end() :], bool(tool[0])
                call = _MessageToTool(dialect, frame, header, name, has_prefix, is_complete)
                return (yield from self._read_message_to_tool(call))
        is_unknown = recipient is not None and self._is_unknown(recipient[1])
        is_unexpected = dialect not in self._state.table.scope.named
        if not is_complete or only_calls or (is_unknown and not opener and is_unexpected):
            return self._give_back()
        is_to_tool = recipient is not None and recipient[1] not in _PEOPLE
        is_reasoning = re.search(frame.reasoning_pattern, header) is not None
        if is_reasoning and not at_boundary:
            # A sentence mentions the header.
            self._state.writer.write_text(buffer.release())
            return "done"
        self._context.begin_message(None if is_to_tool else MessageToUser(frame.message_ends))
        buffer.release()
        self._matcher.write_if_read_too_often()
        if not at_boundary or (recipient and recipient[1] not in _PEOPLE):
            message = "the header of a message was removed from the text"
            self._state.writer.add_note("control-token", message, header)
        return "reasoning" if is_reasoning else "text"

    def peek_kind(self, dialect: Dialect, opener: str) -> Reading[HeaderKind]:
        """Return to whom the header that begins here addresses its message."""
        buffer, frame = self._buffer, dialect.message_frame
        assert frame is not None
        buffer.hold()
        header = yield from self._read_header(frame, opener)
        buffer.restore()
        if header is None:
            return ""
        recipient = re.search(frame.recipient_pattern, header)
        if recipient and recipient[1] not in _PEOPLE:
            return "tool"
        return "other" if re.search(frame.header_pattern, header) else ""

    def _is_quoted(self, dialect: Dialect, opener: str) -> Reading[bool]:
        """Return True if a header within a message to the user does not begin another message."""
        if (yield from self.peek_kind(dialect, opener)) != "tool":
            return False
        if (yield from self._final_calls.begin_here()):
            return False
        message = f"{opener} is in a message to the user; it is an example"
        self._state.writer.add_note("example", message, opener)
        return True

    def _read_message_to_tool(self, call: _MessageToTool) -> Reading[Section]:
        buffer, matcher = self._buffer, self._matcher
        if not call.is_complete and not self._is_tool(call):
            return self._give_back()
        if matcher.is_too_late(call.header):
            return self._give_back()
        start = buffer.held_length()
        attempt = FormReader(self._state, call.form())
        body = read_json_arguments(attempt, Header(call.name))
        if (yield from matcher.read_calls(attempt, body)):
            return "done"
        buffer.seek(start)
        # A header that nothing follows is a call that is cut off, too.
        is_empty = call.is_complete and not (yield from buffer.peek_past_separator())
        if attempt.is_truncated or is_empty:
            buffer.restore()
            return "done" if matcher.write_truncated_call() else ""
        if call.is_complete:
            attempt = FormReader(self._state, call.form())
            body = self._read_other_body(attempt, call)
            if (yield from matcher.read_calls(attempt, body)):
                return "done"
        return self._give_back()

    def _give_back(self) -> Section:
        """Give back what was read: it is not a message."""
        self._buffer.restore()
        return "done" if self._matcher.write_if_read_too_often() else ""

    def _is_tool(self, call: _MessageToTool) -> bool:
        """Return True if a header that lacks its channel addresses a tool all the same."""
        if self._state.resolver.accepts_undeclared():
            return call.has_prefix
        return self._state.resolver.tools.resolve_name(call.name) is not None

    def is_at_boundary(self) -> bool:
        """Return True if a message or reasoning may begin here: on a line that holds nothing else
        before it, or where another one ended."""
        is_alone = self._state.writer.begins_section or self._context.is_line_blank()
        return is_alone or self.boundary == self._buffer.offset

    def _is_unknown(self, recipient: str) -> bool:
        return recipient not in _PEOPLE and not self._state.resolver.tools.is_declared(recipient)

    def _read_header(self, frame: MessageFrame, opener: str) -> Reading[str | None]:
        buffer = self._buffer
        if not opener:
            yield from buffer.read_space()
        if not (yield from buffer.read_literal(opener or frame.first_opener)):
            return None
        while True:
            text, start = buffer.text, buffer.position
            limit = start + _MAX_HEADER_LENGTH
            end = text.find(frame.header_end, start, limit)
            if end >= 0 and not _LINE.search(text, start, end):
                buffer.position = end + len(frame.header_end)
                return (opener or frame.first_opener) + text[start:end]
            if len(text) >= limit or buffer.is_final or _LINE.search(text, start, limit):
                return None
            yield

    def _read_other_body(self, attempt: FormReader, call: _MessageToTool) -> Reading[Body]:
        """Read code, if the header says so and the tool takes nothing else; reject other text."""
        frame, name, tools = call.frame, call.name, attempt.tools
        ends = marker_set((*frame.message_ends, *frame.openers))
        text, end = yield from self._buffer.read_until_marker(ends)
        schema = tools.get_schema(name)
        keys = get_required(schema) or list(get_properties(schema))
        if call.is_code() and end in frame.message_ends and len(keys) == 1:
            arguments = {keys[0]: text}
            attempt.add_call(CallDraft(name, arguments, repairs=("bare-input",)))
        else:
            problem = f"the message to {name!r} is not a JSON object"
            attempt.add_call(CallDraft(tools.resolve_name(name) or name, problem=problem))
        return Body()


class BareMessageReader:
    """Reads the rest of a message, if it is nothing but calls."""

    def __init__(self, state: ParserState, matcher: FormMatcher) -> None:
        self._state = state
        self._buffer = state.buffer
        self._matcher = matcher
        self._table = state.table
        self._is_truncated = False
        """The text ended inside a body of the current trial."""
        self._may_reject = False
        """The message may also hold drafts that are rejected, if it has a call."""
        self._rejected_texts: list[str] = []
        """The text of the drafts that the current trial has rejected."""
        self._has_rejections = False
        self._is_message_over = False
        """The last token that was read ends the message."""

    def read(self) -> Reading[BareMessageResult]:
        """Read the rest of the message: as nothing but accepted calls, or else with rejected
        ones."""
        self._may_reject = self._has_rejections = False
        result = yield from self._read_forms()
        if result == "text" and self._has_rejections:
            self._may_reject = True
            result = yield from self._read_forms()
        return result

    def _read_forms(self) -> Reading[BareMessageResult]:
        """Try every form that may be the whole message, and a code fence around any other."""
        first = yield from self._buffer.peek()
        resolver = self._state.resolver
        may_begin_name = resolver.accepts_undeclared() or resolver.tools.has_name_starting_with(
            first
        )
        for form in self._table.bare_forms:
            if form.opener:
                may_begin = form.opener[0] == first and (
                    yield from self._buffer.is_next(form.opener)
                )
            elif form.body in JSON_SLOTS and not form.header:
                may_begin = first in _BEFORE_JSON
            else:
                may_begin = may_begin_name or first in _BEFORE_CODE
            if may_begin:
                outcome = yield from self._run_trial(self._read_form(form))
                if outcome != "text":
                    return outcome
        if not self._table.scope.is_strict and (yield from self._buffer.is_next(_FENCE)):
            return (yield from self._run_trial(self._read_fenced_forms()))
        return "text"

    def _run_trial(self, steps: Reading[bool]) -> Reading[BareMessageResult]:
        """Run `steps`; write the events if they reach the end, else give the text back."""
        state, buffer = self._state, self._buffer
        calls_before = state.sink.call_count
        trial = state.writer.trial = TentativeEvents()
        self._is_truncated = is_too_long = False
        self._rejected_texts = []
        buffer.hold()
        try:
            found = yield from steps
        except HeldTooLong:
            buffer.active_scanner = None
            found, is_too_long = False, True
        if found and trial.has_calls():
            text = buffer.release()
            if not self._rejected_texts:
                trial.close_last_call(text)
            state.writer.end_trial(emits=True)
            state.writer.write_text("\n".join(self._rejected_texts))
            return "calls"
        state.writer.end_trial(emits=False)
        is_truncated = self._is_truncated and not is_too_long and not buffer.is_held_too_long()
        buffer.restore()
        state.sink.forget_calls(keep=calls_before)
        if is_truncated:
            return "truncated"
        return "unread" if self._matcher.write_if_read_too_often() else "text"

    def _read_calls(self, form: CallForm) -> Reading[Body | None]:
        """Read one form; return its body if it holds nothing but calls."""
        attempt = FormReader(self._state, form, is_truncated=self._is_truncated)
        body = yield from attempt.run(read_form(attempt))
        self._is_truncated = attempt.is_truncated
        self._rejected_texts += attempt.rejected_texts
        self._has_rejections |= bool(attempt.rejected_texts)
        is_usable = self._may_reject or not attempt.rejected_texts
        return body if body.has_calls and is_usable else None

    def _read_form(self, form: CallForm) -> Reading[bool]:
        """Read one form and its closers, again and again; return False if other text follows."""
        while body := (yield from self._read_calls(form)):
            wanted = "" if body.is_closed else form.closer or "".join(body.fence)
            if (yield from self._read_end(body, (*body.fence, *form.all_closers), wanted)):
                return True
            follows = yield from self._buffer.peek_past_separator()
            if body.has_unclosed_list or not follows or follows not in (form.opener[:1] or "[{"):
                return False
            yield from self._buffer.peek_past_separator(follows)
            if form.opener and not (yield from self._buffer.is_next(form.opener)):
                return False
        return False

    def _read_fenced_forms(self) -> Reading[bool]:
        """Read a code fence in any language around calls that have markers."""
        buffer = self._buffer
        ticks = (yield from buffer.read_run(_TICKS, _MAX_WORD_LENGTH)) or _FENCE
        yield from buffer.read_run(_FENCE_LABEL, _MAX_WORD_LENGTH)
        closers: tuple[str, ...] = ()
        body: Body | None = None
        while True:
            yield from buffer.limit(buffer.read_space())
            match = yield from buffer.match_marker(self._table.literals)
            forms = self._table.markers[match[0]].forms if match else ()
            if not forms or buffer.text.startswith(ticks, buffer.position):
                # An empty fence holds no call.
                return body is not None and (
                    yield from self._read_end(body, (*closers, ticks), ticks)
                )
            body, closers = yield from self._read_fenced_form(forms)
            if body is None:
                return False

    def _read_fenced_form(
        self, forms: tuple[CallForm, ...]
    ) -> Reading[tuple[Body | None, tuple[str, ...]]]:
        """Read one of the forms with what closes it; return its body, or None, and its closers."""
        buffer = self._buffer
        for form in forms:
            mark = buffer.held_length()
            body = yield from self._read_calls(form)
            if body:
                is_closed = yield from self._read_closers(form.all_closers, form.closer)
                if not is_closed and not body.is_closed:
                    self._note_unclosed(form.closer)
                return body, form.all_closers
            buffer.seek(mark)
        return None, ()

    def _read_closers(self, closers: tuple[str, ...], wanted: str) -> Reading[bool]:
        """Read any of the closers, up to the end of the message; return whether the wanted one was
        among them."""
        buffer, left = self._buffer, dict.fromkeys(closers)
        found = not wanted
        while True:
            yield from buffer.limit(buffer.read_space())
            match = yield from buffer.match_marker(marker_set((*left, *NEXT_REPLY_OPENERS)))
            if match is None or match[0].startswith(NEXT_REPLY_OPENERS):
                return found
            buffer.position = match.end()
            self._is_message_over = match[0].startswith(MESSAGE_ENDS)
            if match[0].startswith("`"):
                del left[match[0]]  # A second fence marker would open another fence.
            found = found or match[0] == wanted
            is_expected = self._table.scope.has_control_token(match[0])
            if match[0] in self._table.control_tokens and not is_expected:
                self._state.writer.note_control_token(match[0], match[0])

    def _read_stray_end(self, body: Body) -> Reading[bool]:
        """Read a sign that ends a statement, or a tag that closes nothing."""
        buffer, writer = self._buffer, self._state.writer
        follows = yield from buffer.peek()
        if follows and buffer.held_text().rstrip()[-1:] + follows in ("],", "];", ");"):
            buffer.position += 1
            if follows == ",":
                writer.add_note("repaired-trailing-comma", "a comma follows the last call")
            return True
        mark = buffer.held_length()
        strays = yield from buffer.read_run(_STRAYS, _MAX_STRAYS)
        if strays and not (yield from buffer.peek()):
            writer.add_note("repaired-extra-closer", "the last call is closed twice", strays)
            return True
        buffer.seek(mark)
        if follows != "<" or body.fence:
            return False
        tag = yield from buffer.read_run(_TAG, _MAX_WORD_LENGTH)
        if tag and _TAG.fullmatch(tag) and tag.endswith(">"):
            writer.add_note("wrong-closer", f"{tag} closes nothing", tag)
            return True
        buffer.seek(mark)
        return False

    def _read_end(self, body: Body, closers: tuple[str, ...], wanted: str) -> Reading[bool]:
        """Return True if only closers and control tokens are left, the last one perhaps cut off."""
        buffer, closers = self._buffer, (*closers, *self._table.control_tokens)
        is_closed = yield from self._read_closers(closers, wanted)
        if (yield from self._read_stray_end(body)):
            is_closed = (yield from self._read_closers(closers, wanted)) or is_closed
        if (yield from buffer.match_marker(_NEXT_TURN_OPENERS)):
            return is_closed
        if self._is_message_over and is_closed:
            return True
        if not buffer.is_final:
            return False
        if (body.has_unclosed_list or not is_closed) and not self._is_truncated:
            self._note_unclosed(wanted)
        is_at_end = buffer.position == len(buffer.text)
        return is_at_end or marker_set(closers).may_continue(buffer.text, buffer.position)

    def _note_unclosed(self, closer: str) -> None:
        self._state.writer.add_note("unclosed", "the call has no closing marker", closer or "]")
