"""Messages with headers, as harmony has them: whom a message is for says what follows."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Literal

from .attempts import Attempts
from .desk import Desk
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
        if header is None or not re.search(frame.header, header):
            reader.restore()
            return ""
        recipient = re.search(frame.recipient, header)
        tool = re.match(frame.tools, recipient[1]) if recipient and frame.tools else None
        if recipient and tool:
            name = recipient[1][tool.end() :]
            if (yield from self._call(dialect, frame, name)):
                return "done"
            if self._desk.cut_off:
                reader.restore()
                return "done" if self._attempts.cut_short() else ""
            self._desk.output.note("malformed", f"a message to {name!r} is no JSON object", header)
        stranger = recipient is not None and not tool and self._is_stranger(recipient[1])
        if only_calls or (stranger and not opener and dialect not in self._desk.expected):
            reader.restore()
            self._attempts.give_up()
            return ""
        reader.release()
        self._attempts.give_up()
        if stranger or not at_boundary:
            self._desk.output.note("control-token", "a message's header belongs to no text", header)
        return "thought" if re.search(frame.thought, header) else "text"

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
        form = Form(dialect, frame.message, (), "arguments", frame.ends[0], frame.ends)
        body = self._desk.reader.offset()
        self._desk.cut_off = False
        if (yield from self._attempts.read(form, read_arguments(self._desk, form, {"name": name}))):
            return True
        self._desk.reader.seek(body)
        return False
