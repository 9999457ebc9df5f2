"""Messages with headers, as harmony has them: whom a message is for says what follows."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Literal

from ..calls.drafts import CallDraft
from ..calls.schema import get_properties, get_required
from .call_sink import Desk
from .form_matching import Attempts
from .grammar import markers_of
from .json_bodies import read_arguments
from .reader import Found
from .template import Dialect, Form, Frame

_LONGEST_HEADER = 300
_LINE = re.compile(r"\n[^<]")
"""A line break that does not just stand between two parts of a header."""
_PEOPLE = frozenset(("assistant", "user", "all", "self"))

Follows = Literal["", "done", "text", "thought"]
"""What a header is followed by: nothing if it is none, "done" if all of the message is read."""


class Messages:
    """Reads the headers of messages, and the calls that such messages are."""

    def __init__(self, desk: Desk, attempts: Attempts) -> None:
        self._desk = desk
        self._attempts = attempts
        self.boundary = -1
        """Where in the whole text the last token stood that may have ended a message."""

    def read(
        self, dialect: Dialect, opener: str, *, only_calls: bool = False
    ) -> Generator[None, None, Follows]:
        """A message's header, and the message itself if it is a call. If only calls count, the
        header of anything else is text."""
        reader, frame = self._desk.reader, dialect.frame
        assert frame is not None
        at_boundary = self._is_boundary()
        reader.hold()
        header = yield from self._header(frame, opener)
        if header is None:
            reader.restore()
            return ""
        recipient = re.search(frame.recipient, header)
        tool = re.match(frame.tools, recipient[1]) if recipient and frame.tools else None
        complete = re.search(frame.header, header) is not None
        if recipient and tool:
            name, is_ours = recipient[1][tool.end() :], bool(tool[0])
            if not complete and not self._is_tool(name, is_ours=is_ours):
                return self._give_back()
            if self._comes_too_late():
                return self._give_back()
            if (yield from self._call(dialect, frame, name)):
                return "done"
            if self._desk.cut_off or (complete and (yield from self._is_empty())):
                reader.restore()
                return "done" if self._attempts.cut_short() else ""
            says_code = not is_ours and (name == "python" or header.split()[-1:] == ["code"])
            if complete and (yield from self._other(dialect, frame, name, code=says_code)):
                return "done"
            return self._give_back()
        stranger = recipient is not None and self._is_stranger(recipient[1])
        unasked = stranger and not opener and dialect not in self._desk.expected
        if not complete or only_calls or unasked:
            return self._give_back()
        reader.release()
        self._attempts.give_up()
        if not at_boundary or (recipient and recipient[1] not in _PEOPLE):
            self._desk.output.note("control-token", "a message's header belongs to no text", header)
        return "thought" if re.search(frame.thought, header) else "text"

    def _comes_too_late(self) -> bool:
        reader = self._desk.reader
        body = reader.offset()
        reader.seek(0)
        late = self._attempts.come_too_late()
        reader.seek(body)
        return late

    def _give_back(self) -> Follows:
        """What was read is no message."""
        self._desk.reader.restore()
        return "done" if self._attempts.give_up() else ""

    def _is_tool(self, name: str, *, is_ours: bool) -> bool:
        """Whether a header that lacks its channel says all the same that it is a call's."""
        return is_ours if self._desk.takes_any else self._desk.declared(name) is not None

    def _is_boundary(self) -> bool:
        """Whether a message may begin here: with a line, or where another one has ended."""
        reader = self._desk.reader
        return self._desk.output.last in ("", "\n") or self.boundary == reader.base + reader.at

    def _is_stranger(self, recipient: str) -> bool:
        """Whether nobody is known who could be meant."""
        return recipient not in _PEOPLE and not (
            self._desk.tools and self._desk.declared(recipient)
        )

    def _header(self, frame: Frame, opener: str) -> Generator[None, None, str | None]:
        reader = self._desk.reader
        if not opener:
            yield from reader.space()
        if not (yield from reader.literal(opener or frame.first)):
            return None
        while True:
            text, at = reader.text, reader.at
            limit = at + _LONGEST_HEADER
            end = text.find(frame.message, at, limit)
            if end >= 0 and not _LINE.search(text, at, end):
                reader.at = end + len(frame.message)
                return (opener or frame.first) + text[at:end]
            if len(text) >= limit or reader.ended or _LINE.search(text, at, limit):
                return None
            yield

    def _call(self, dialect: Dialect, frame: Frame, name: str) -> Found:
        form = _form_of(dialect, frame)
        body = self._desk.reader.offset()
        self._desk.cut_off = False
        if (yield from self._attempts.read(form, read_arguments(self._desk, form, {"name": name}))):
            return True
        self._desk.reader.seek(body)
        return False

    def _is_empty(self) -> Found:
        """Whether the text ends with the header."""
        reader = self._desk.reader
        body = reader.offset()
        yield from reader.space()
        empty = (yield from reader.peek()) == ""
        reader.seek(body)
        return empty

    def _other(self, dialect: Dialect, frame: Frame, name: str, *, code: bool) -> Found:
        """A message to a tool that is no JSON object."""
        form = _form_of(dialect, frame)
        found = yield from self._attempts.read(form, self._words(form, frame, name, code=code))
        return found

    def _words(self, form: Form, frame: Frame, name: str, *, code: bool) -> Found:
        """Code, where the header says so and the tool takes nothing else; or what is no call."""
        desk, reader = self._desk, self._desk.reader
        start = reader.offset()
        end = yield from reader.until_marker(markers_of((*frame.ends, *frame.openers)))
        reader.seek(reader.offset() - len(end))
        schema = desk.schema(name)
        keys = get_required(schema) or list(get_properties(schema))
        if code and end in frame.ends and len(keys) == 1:
            arguments = {keys[0]: reader.held()[start:]}
            desk.draft(form, CallDraft(name, arguments, repairs=("bare-input",)), 0)
        else:
            problem = f"a message to {name!r} is no JSON object"
            desk.draft(form, CallDraft(desk.declared(name) or name, problem=problem), 0)
        return True


def _form_of(dialect: Dialect, frame: Frame) -> Form:
    return Form(dialect, frame.message, (), "arguments", frame.ends[0], frame.ends)
