"""Limits on JSON that are checked before it is decoded.

Decoding is one call of C code, and nothing else can run until it returns. Its time depends on the
number of values, and for long integers on the square of their digits, so both are limited. A text
with no more bytes than the limit has no more values either, and is not read at all.

    find_json_excess(b"[[],[],[],[]]", 3)   ->   "has more than 3 values"
"""

from __future__ import annotations

import re

MAX_VALUES = 1_500_000
"""The most values in JSON that does not come from a client."""
_MAX_DIGITS = 1000
_SLICE = 2**20
_STRUCTURE = b'"[]{},0123456789'
_OTHERS = bytes(byte for byte in range(256) if byte not in _STRUCTURE)
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % (_MAX_DIGITS + 1))
_BACKSLASHES = re.compile(rb"\\+\Z")


def find_json_excess(data: bytes | str, max_values: int) -> str:
    """Return why a JSON text is too expensive to decode, as a predicate; "" if it is not."""
    if len(data) <= max_values:
        return ""
    meter = _JsonMeter()
    for at in range(0, len(data), _SLICE):
        part = data[at : at + _SLICE]
        meter.feed(part if isinstance(part, bytes) else part.encode("utf-8", "replace"))
        if meter.values > max_values:
            return f"has more than {max_values} values"
        if meter.has_long_number:
            return f"has a number of more than {_MAX_DIGITS} digits"
    return ""


class _JsonMeter:
    """Counts values outside of strings. C code does all work on bytes, slice by slice."""

    def __init__(self) -> None:
        self.values = 1
        self.has_long_number = False
        """A number that crosses two slices is measured in two parts: that is long enough."""
        self._in_string = False
        self._escape = b""
        """A backslash at the end of the last slice, whose character follows."""

    def feed(self, part: bytes) -> None:
        """Read the next slice."""
        part, self._escape = self._escape + part, b""
        if b"\\" in part:
            trailing = _BACKSLASHES.search(part)
            if trailing and len(trailing[0]) % 2:
                self._escape, part = b"\\", part[:-1]
            part = part.replace(b"\\\\", b"").replace(b'\\"', b"")
        texts = part.translate(None, _OTHERS).split(b'"')
        outside = b" ".join(texts[self._in_string :: 2])
        self._in_string ^= len(texts) % 2 == 0
        self.values += sum(map(outside.count, (b",", b"[", b"{")))
        self.has_long_number |= _LONG_NUMBER.search(outside) is not None
