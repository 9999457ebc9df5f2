"""Messages with headers, as harmony has them: whom a message is for says what follows."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Literal

from ..calls.drafts import CallDraft
from ..calls.schema import get_properties, get_required
from .call_sink import CallSink
from .form_matching import FormMatcher
from .json_bodies import read_json_arguments
from .marker_table import marker_set
from .template import CallForm, Dialect, MessageFrame
from .text_buffer import Found

_LONGEST_HEADER = 300
_LINE = re.compile(r"\n[^<]")
"""A line break that does not just stand between two parts of a header."""
_PEOPLE = frozenset(("assistant", "user", "all", "self"))

Follows = Literal["", "done", "text", "thought"]
"""What a header is followed by: nothing if it is none, "done" if all of the message is read."""


class FramedMessageReader:
    """Reads the headers of messages, and the calls that such messages are."""

    def __init__(self, sink: CallSink, matcher: FormMatcher) -> None:
        self._sink = sink
        self._matcher = matcher
        self.boundary = -1
        """Where in the whole text the last token stood that may have ended a message."""

    def read(
        self, dialect: Dialect, opener: str, *, only_calls: bool = False
    ) -> Generator[None, None, Follows]:
        """A message's header, and the message itself if it is a call. If only calls count, the
        header of anything else is text."""
        buffer, frame = self._sink.buffer, dialect.message_frame
        assert frame is not None
        at_boundary = self._is_boundary()
        buffer.hold()
        header = yield from self._header(frame, opener)
        if header is None:
            buffer.restore()
            return ""
        recipient = re.search(frame.recipient_pattern, header)
        tool = (
            re.match(frame.tool_pattern, recipient[1]) if recipient and frame.tool_pattern else None
        )
        complete = re.search(frame.header_pattern, header) is not None
        if recipient and tool:
            name, is_ours = recipient[1][tool.end() :], bool(tool[0])
            if not complete and not self._is_tool(name, is_ours=is_ours):
                return self._give_back()
            if self._comes_too_late():
                return self._give_back()
            if (yield from self._call(dialect, frame, name)):
                return "done"
            if self._sink.cut_off or (complete and (yield from self._is_empty())):
                buffer.restore()
                return "done" if self._matcher.write_truncated_call() else ""
            says_code = not is_ours and (name == "python" or header.split()[-1:] == ["code"])
            if complete and (yield from self._other(dialect, frame, name, code=says_code)):
                return "done"
            return self._give_back()
        stranger = recipient is not None and self._is_stranger(recipient[1])
        unasked = stranger and not opener and dialect not in self._sink.expected_dialects
        if not complete or only_calls or unasked:
            return self._give_back()
        buffer.release()
        self._matcher.charge_rescan()
        if not at_boundary or (recipient and recipient[1] not in _PEOPLE):
            self._sink.writer.add_note(
                "control-token", "a message's header belongs to no text", header
            )
        return "thought" if re.search(frame.reasoning_pattern, header) else "text"

    def _comes_too_late(self) -> bool:
        buffer = self._sink.buffer
        body = buffer.held_length()
        buffer.seek(0)
        late = self._matcher.is_too_late()
        buffer.seek(body)
        return late

    def _give_back(self) -> Follows:
        """What was read is no message."""
        self._sink.buffer.restore()
        return "done" if self._matcher.charge_rescan() else ""

    def _is_tool(self, name: str, *, is_ours: bool) -> bool:
        """Whether a header that lacks its channel says all the same that it is a call's."""
        return is_ours if self._sink.accepts_any_tool else self._sink.find_tool(name) is not None

    def _is_boundary(self) -> bool:
        """Whether a message may begin here: with a line, or where another one has ended."""
        buffer = self._sink.buffer
        return (
            self._sink.writer.last_character in ("", "\n")
            or self.boundary == buffer.text_offset + buffer.position
        )

    def _is_stranger(self, recipient: str) -> bool:
        """Whether nobody is known who could be meant."""
        return recipient not in _PEOPLE and not (
            self._sink.tools and self._sink.find_tool(recipient)
        )

    def _header(self, frame: MessageFrame, opener: str) -> Generator[None, None, str | None]:
        buffer = self._sink.buffer
        if not opener:
            yield from buffer.read_space()
        if not (yield from buffer.read_literal(opener or frame.first_opener)):
            return None
        while True:
            text, at = buffer.text, buffer.position
            limit = at + _LONGEST_HEADER
            end = text.find(frame.header_end, at, limit)
            if end >= 0 and not _LINE.search(text, at, end):
                buffer.position = end + len(frame.header_end)
                return (opener or frame.first_opener) + text[at:end]
            if len(text) >= limit or buffer.is_final or _LINE.search(text, at, limit):
                return None
            yield

    def _call(self, dialect: Dialect, frame: MessageFrame, name: str) -> Found:
        form = _form_of(dialect, frame)
        body = self._sink.buffer.held_length()
        self._sink.cut_off = False
        if (
            yield from self._matcher.read(
                form, read_json_arguments(self._sink, form, {"name": name})
            )
        ):
            return True
        self._sink.buffer.seek(body)
        return False

    def _is_empty(self) -> Found:
        """Whether the text ends with the header."""
        buffer = self._sink.buffer
        body = buffer.held_length()
        yield from buffer.read_space()
        empty = (yield from buffer.peek()) == ""
        buffer.seek(body)
        return empty

    def _other(self, dialect: Dialect, frame: MessageFrame, name: str, *, code: bool) -> Found:
        """A message to a tool that is no JSON object."""
        form = _form_of(dialect, frame)
        found = yield from self._matcher.read(form, self._words(form, frame, name, code=code))
        return found

    def _words(self, form: CallForm, frame: MessageFrame, name: str, *, code: bool) -> Found:
        """Code, where the header says so and the tool takes nothing else; or what is no call."""
        sink, buffer = self._sink, self._sink.buffer
        start = buffer.held_length()
        end = yield from buffer.read_through_marker(
            marker_set((*frame.message_ends, *frame.openers))
        )
        buffer.seek(buffer.held_length() - len(end))
        schema = sink.schema_of(name)
        keys = get_required(schema) or list(get_properties(schema))
        if code and end in frame.message_ends and len(keys) == 1:
            arguments = {keys[0]: buffer.held_text()[start:]}
            sink.add_draft(form, CallDraft(name, arguments, repairs=("bare-input",)), 0)
        else:
            problem = f"a message to {name!r} is no JSON object"
            sink.add_draft(form, CallDraft(sink.find_tool(name) or name, problem=problem), 0)
        return True


def _form_of(dialect: Dialect, frame: MessageFrame) -> CallForm:
    return CallForm(
        dialect, frame.header_end, (), "arguments", frame.message_ends[0], frame.message_ends
    )
