"""Frames in a stream of bytes, however it is cut: server-sent events, lines, and JSON in a row.

event: message_start
data: {"type": "message_start"}        ->    Frame("message_start", '{"type": …}')

: a comment, which is no frame
data: [DONE]
"""

from __future__ import annotations

import builtins
import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import msgspec

from ..errors import WireError

_STRUCTURE = re.compile(r'["\\{}]')
_LINE_ENDS = {end.encode(): b"\\u%04x" % ord(end) for end in "\x85\u2028\u2029"}
MAX_FRAME = 64_000_000
"""The longest frame, in bytes or characters; a longer one is an error."""


class Frame(msgspec.Struct, frozen=True):
    """What one frame says, and what kind of event it is where the framing tells."""

    data: str | bytes
    event: str = ""

    @property
    def bytes(self) -> builtins.bytes:
        return self.data.encode() if isinstance(self.data, str) else self.data


class Framing(Protocol):
    """Takes bytes as they come; gives whole frames."""

    def feed(self, data: bytes) -> Iterable[Frame]: ...

    def finish(self) -> Iterable[Frame]: ...

    def write(self, frame: Frame) -> bytes:
        """A frame as it would come."""
        ...


class _Lines:
    """Lines that end in LF, CR or both, without their ends."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        """The pieces of a line whose end has not come."""
        self._size = 0
        self.after_return = False
        """What comes next may be the rest of a line's end."""

    def feed(self, data: bytes) -> list[bytes]:
        if not data:
            return []
        follows_return, self.after_return = self.after_return, data.endswith(b"\r")
        if follows_return and data[:1] == b"\n":
            data = data[1:]
        lines = data.splitlines()
        is_whole = data.endswith((b"\n", b"\r"))
        last = b"" if is_whole or not lines else lines.pop()
        if lines and self.begun:
            lines[0] = self.rest() + lines[0]
        if last:
            self.begun.append(last)
            self._size += len(last)
            if self._size > MAX_FRAME:
                raise WireError(f"a line of more than {MAX_FRAME} bytes")
        return lines

    def rest(self) -> bytes:
        rest = b"".join(self.begun)
        self.begun, self._size = [], 0
        return rest


class ServerSentEvents:
    """`text/event-stream`, as the HTML standard has it; an event that the stream ends in counts."""

    def __init__(self) -> None:
        self._lines = _Lines()
        self._data: list[bytes] = []
        self._size = 0
        self._event = b""
        self._first = True

    def feed(self, data: bytes) -> Iterable[Frame]:
        lines = self._lines
        begun = self._first or self._data or self._event or lines.begun or lines.after_return
        if not begun and _is_one_event(data):
            return (Frame(data[6:-2]),)
        return self._all(data)

    def finish(self) -> Iterable[Frame]:
        rest = self._lines.rest()
        if rest:
            yield from self._line(rest)
        yield from self._line(b"")

    def write(self, frame: Frame) -> bytes:
        data = frame.bytes.replace(b"\n", b"\ndata: ")
        event = b"event: %b\n" % frame.event.encode() if frame.event else b""
        return b"%bdata: %b\n\n" % (event, data)

    def _all(self, data: bytes) -> Iterator[Frame]:
        for line in self._lines.feed(data):
            yield from self._line(line)

    def _line(self, line: bytes) -> Iterator[Frame]:
        if self._first:
            line = line.removeprefix(codecs.BOM_UTF8)
            self._first = False
        if not line:
            if self._data:
                yield Frame(b"\n".join(self._data), self._event.decode("utf-8", "replace"))
                self._data, self._size = [], 0
            self._event = b""
            return
        field, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if field == b"data":
            self._data.append(value)
            self._size += len(value)
            if self._size > MAX_FRAME:
                raise WireError(f"an event of more than {MAX_FRAME} bytes")
        elif field == b"event":
            self._event = value


def _is_one_event(data: bytes) -> bool:
    """Whether this is one whole event without a name, and nothing else, as nearly all are."""
    return (
        data[:6] == b"data: "
        and data.find(b"\n") == len(data) - 2
        and data[-1:] == b"\n"
        and data.find(b"\r") < 0
    )


class JsonLines:
    """One JSON value on each line."""

    def __init__(self) -> None:
        self._lines = _Lines()

    def feed(self, data: bytes) -> Iterator[Frame]:
        for line in self._lines.feed(data):
            if line.strip():
                yield Frame(line)

    def finish(self) -> Iterator[Frame]:
        rest = self._lines.rest()
        if rest.strip():
            yield Frame(rest)

    def write(self, frame: Frame) -> bytes:
        return frame.bytes + b"\n"


class BraceCounter:
    """Counts the braces of JSON as it arrives, without those in texts."""

    __slots__ = ("_escaped", "_in_string", "depth", "is_closed")

    def __init__(self) -> None:
        self.depth = 0
        self.is_closed = False
        """An object was opened, and closed again."""
        self._in_string = self._escaped = False

    def read(self, text: str) -> list[tuple[int, int]]:
        """Where in this text each outermost object begins and ends: from 0 if it began before, and
        up to -1 if it goes on."""
        found: list[tuple[int, int]] = []
        start = 0
        skipped = 0 if self._escaped else -1
        self._escaped = False
        for match in _STRUCTURE.finditer(text):
            at, mark = match.start(), match[0]
            if at == skipped:
                continue
            if mark == "\\":
                skipped = at + 1 if self._in_string else -1
            elif mark == '"':
                self._in_string = not self._in_string
            elif self._in_string:
                continue
            elif mark == "{":
                start = start if self.depth else at
                self.depth += 1
                self.is_closed = False
            elif self.depth:
                self.depth -= 1
                if not self.depth:
                    self.is_closed = True
                    found.append((start, at + 1))
        self._escaped = skipped == len(text)
        return [*found, (start, -1)] if self.depth else found


class JsonArray:
    """The objects of one array, each as soon as it is whole: `[{…}, {…}]`."""

    def __init__(self) -> None:
        self._text = codecs.getincrementaldecoder("utf-8")("replace")
        self._braces = BraceCounter()
        self._begun: list[str] = []
        """The pieces of an object whose end has not come."""
        self._size = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        return self._scan(self._text.decode(data))

    def finish(self) -> Iterator[Frame]:
        yield from self._scan(self._text.decode(b"", final=True))
        if self._begun:
            yield Frame("".join(self._begun))

    def write(self, frame: Frame) -> bytes:
        return b"[%b]" % frame.bytes

    def _scan(self, text: str) -> Iterator[Frame]:
        for start, end in self._braces.read(text):
            if end >= 0:
                yield Frame("".join(self._begun) + text[start:end])
                self._begun, self._size = [], 0
                continue
            self._begun.append(text[start:])
            self._size += len(text) - start
            if self._size > MAX_FRAME:
                raise WireError(f"an object of more than {MAX_FRAME} characters")


def decode_json(data: bytes | str) -> Any:
    """The value that a body or a frame holds."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        # Lone surrogates, which are no text but do come.
        return json.loads(data)
    except ValueError as error:
        raise WireError(f"not valid JSON: {error}") from None
    except RecursionError:
        raise WireError("nested too deep to be read") from None


def encode_json(value: Any) -> bytes:
    """A value as compact JSON."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def encode_line(value: Any) -> bytes:
    """A value as JSON that is one line to everybody: some clients end lines where Unicode does."""
    data = encode_json(value)
    if not data.isascii():
        for end, escaped in _LINE_ENDS.items():
            data = data.replace(end, escaped)
    return data


def encode_sse(value: Any, event: str = "") -> bytes:
    """One server-sent event."""
    data = b"data: " + encode_line(value) + b"\n\n"
    return b"event: " + event.encode() + b"\n" + data if event else data
