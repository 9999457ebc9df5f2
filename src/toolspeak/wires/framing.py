"""Splits a stream of bytes into frames, wherever it is cut: server-sent events or JSON lines.

event: message_start
data: {"type": "message_start"}        ->    Frame(b'{"type": …}', "message_start")

: a comment, which is ignored
data: [DONE]                           ->    Frame(b"[DONE]")
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import msgspec

from .._util import encode_json
from ..calls.json_values import MAX_VALUES, find_json_excess
from ..errors import WireError

_LINE_ENDS = {end.encode(): b"\\u%04x" % ord(end) for end in "\x85\u2028\u2029"}
MAX_FRAME = 64_000_000
"""The longest frame, in bytes; a longer one is an error."""


class Frame(msgspec.Struct, frozen=True):
    """The data of one frame, and the type of its event if the framing has types."""

    data: bytes
    event: str = ""


class Framing(Protocol):
    """Buffers bytes and returns whole frames."""

    def feed(self, data: bytes) -> Iterable[Frame]: ...

    def finish(self) -> Iterable[Frame]: ...

    def write(self, frame: Frame) -> bytes:
        """Return a frame as bytes of a stream."""
        ...


class _Lines:
    """Lines that end in LF, CR or both, without their ends."""

    def __init__(self) -> None:
        self.buffer: list[bytes] = []
        """The pieces of an incomplete line."""
        self._size = 0
        self.after_return = False
        """The last byte was CR, so a following LF belongs to the same line end."""

    def feed(self, data: bytes) -> list[bytes]:
        if not data:
            return []
        follows_return, self.after_return = self.after_return, data.endswith(b"\r")
        if follows_return and data[:1] == b"\n":
            data = data[1:]
        lines = data.splitlines()
        is_whole = data.endswith((b"\n", b"\r"))
        last = b"" if is_whole or not lines else lines.pop()
        if lines and self.buffer:
            lines[0] = self.flush() + lines[0]
        if last:
            self.buffer.append(last)
            self._size += len(last)
            if self._size > MAX_FRAME:
                raise WireError(f"the line has more than {MAX_FRAME} bytes")
        return lines

    def flush(self) -> bytes:
        """Return the incomplete line."""
        rest = b"".join(self.buffer)
        self.buffer, self._size = [], 0
        return rest


class ServerSentEvents:
    """`text/event-stream` as the HTML standard defines it, except that an event at the end of the
    stream need not be terminated."""

    def __init__(self) -> None:
        self._lines = _Lines()
        self._data = bytearray()
        """The lines of the event's data so far, each with its end."""
        self._event = b""
        self._is_first = True

    def feed(self, data: bytes) -> Iterable[Frame]:
        lines = self._lines
        is_inside = self._is_first or self._data or self._event or lines.buffer
        if not is_inside and not lines.after_return and _is_one_event(data):
            return (Frame(data[6:-2]),)
        return self._feed_lines(data)

    def finish(self) -> Iterable[Frame]:
        rest = self._lines.flush()
        if rest:
            yield from self._feed_line(rest)
        yield from self._feed_line(b"")

    def write(self, frame: Frame) -> bytes:
        data = frame.data.replace(b"\n", b"\ndata: ")
        event = b"event: %b\n" % frame.event.encode() if frame.event else b""
        return b"%bdata: %b\n\n" % (event, data)

    def _feed_lines(self, data: bytes) -> Iterator[Frame]:
        for line in self._lines.feed(data):
            yield from self._feed_line(line)

    def _feed_line(self, line: bytes) -> Iterator[Frame]:
        if self._is_first:
            line = line.removeprefix(codecs.BOM_UTF8)
            self._is_first = False
        if not line:
            if self._data:
                yield Frame(bytes(self._data[:-1]), self._event.decode("utf-8", "replace"))
                self._data = bytearray()
            self._event = b""
            return
        field, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if field == b"data":
            self._data += value
            self._data += b"\n"
            if len(self._data) > MAX_FRAME:
                raise WireError(f"the event has more than {MAX_FRAME} bytes")
        elif field == b"event":
            self._event = value


def _is_one_event(data: bytes) -> bool:
    """Return True for exactly one whole event without a type: a fast path for most chunks."""
    return (
        data[:6] == b"data: "
        and data.find(b"\n") == len(data) - 2
        and data[-1:] == b"\n"
        and data.find(b"\r") < 0
    )


class JsonLines:
    """One JSON value per line."""

    def __init__(self) -> None:
        self._lines = _Lines()

    def feed(self, data: bytes) -> Iterator[Frame]:
        for line in self._lines.feed(data):
            if line.strip():
                yield Frame(line)

    def finish(self) -> Iterator[Frame]:
        rest = self._lines.flush()
        if rest.strip():
            yield Frame(rest)

    def write(self, frame: Frame) -> bytes:
        return frame.data + b"\n"


def decode_json(data: bytes | str, max_values: int = MAX_VALUES) -> Any:
    """Parse a body or a frame."""
    check_json(data, max_values)
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        # Some upstreams send lone surrogates, which msgspec rejects.
        return json.loads(data)
    except ValueError as error:
        raise WireError(f"not valid JSON: {error}") from None
    except RecursionError:
        raise WireError("the JSON is nested too deeply") from None


def check_json(data: bytes | str, max_values: int = MAX_VALUES) -> None:
    """Raise `WireError` if a body or a frame is too expensive to decode."""
    if excess := find_json_excess(data, max_values):
        raise WireError(f"the JSON {excess}")


def encode_line(value: Any) -> bytes:
    """Return a value as JSON on one line, even for clients that split at Unicode line breaks."""
    data = encode_json(value)
    if not data.isascii():
        for end, escaped in _LINE_ENDS.items():
            data = data.replace(end, escaped)
    return data


def encode_sse(value: Any, event: str = "") -> bytes:
    """Return a value as one server-sent event."""
    data = b"data: " + encode_line(value) + b"\n\n"
    return b"event: " + event.encode() + b"\n" + data if event else data
