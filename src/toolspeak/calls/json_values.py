"""JSON as models write it, and comparisons of decoded JSON values.

    parse_json('''{'city': "Oslo", days: 3, live: True,}''')
    -> ({"city": "Oslo", "days": 3, "live": True}, ("single-quotes", "unquoted-key", …))

Strict JSON is read by msgspec and the standard library; `lenient_json` reads the rest. Before that,
`find_json_excess` checks limits: decoding is one call of C code, and nothing else can run until it
returns. Its time depends on the number of values, and for long integers on the square of their
digits.

    find_json_excess(b"[[],[],[],[]]", 3)   ->   "has more than 3 values"
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from .lenient_json import (
    MAX_DEPTH,
    QUOTE,
    IncompleteJson,
    LenientJsonError,
    LenientJsonReader,
    unescape,
)

_ESCAPED_OBJECT = re.compile(r'\s*+[\[{][\s\[{]*+\\"')


def _reject_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _parse_finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is too large")
    return number


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs) and any(value[key] != item for key, item in pairs):
        raise ValueError("a key appears twice with different values")
    return value


STRICT_DECODER, _RAW_NEWLINE_DECODER = (
    json.JSONDecoder(
        strict=strict,
        parse_constant=_reject_constant,
        parse_float=_parse_finite,
        object_pairs_hook=_build_object,
    )
    for strict in (True, False)
)
"""Strict JSON: no NaN, no infinity, no raw line breaks in strings, no conflicting keys."""


def parse_json(
    text: str,
    *,
    allow_missing_closers: bool = False,
    allow_inner_quotes: bool = False,
    allow_extra_closers: bool = False,
    allow_escaped_quotes: bool = False,
) -> tuple[Any, tuple[str, ...]]:
    """Return the value that `text` holds, and the names of the repairs that it needed.

    `allow_missing_closers` is for text that is known to be complete; `allow_inner_quotes` reads
    strings with unescaped quotes inside; `allow_escaped_quotes` reads text in which every quote is
    escaped, and is for text that is not itself inside a string. Raises `LenientJsonError`.
    """
    if excess := find_json_excess(text, MAX_VALUES):
        raise LenientJsonError(f"the JSON {excess}", 0)
    value = _parse_flat_object(text)
    if value is not None:
        return value, ()
    for decoder, repairs in ((STRICT_DECODER, ()), (_RAW_NEWLINE_DECODER, ("raw-newline",))):
        try:
            return decoder.decode(text), repairs
        except (ValueError, RecursionError):
            pass
    if allow_escaped_quotes and _ESCAPED_OBJECT.match(text) and not QUOTE['"'].search(text):
        value, repairs = parse_json(unescape(text), allow_missing_closers=allow_missing_closers)
        return value, ("double-encoding", *repairs)
    inside = strip_code_fence(text)
    reader = LenientJsonReader(
        inside, allow_missing_closers=allow_missing_closers, allow_inner_quotes=allow_inner_quotes
    )
    if inside is not text:
        reader.add_repair("code-fence")
    value = reader.read_value()
    reader.skip_space()
    rest = reader.text[reader.position :]
    if rest and allow_extra_closers and not rest.strip("}] \t\r\n"):
        reader.add_repair("extra-closer")
    elif rest:
        raise LenientJsonError("unexpected text after the value", reader.position)
    return value, reader.repairs()


def _parse_flat_object(text: str) -> dict[str, Any] | None:
    """Parse an object of the plain kind that most calls have. With no more colons than keys, it
    cannot have a duplicate key, which msgspec would not report."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return value if type(value) is dict and text.count(":") == len(value) else None


def is_incomplete_json(text: str) -> bool:
    """Return True if the text is the beginning of a value and ends inside it."""
    try:
        LenientJsonReader(text).read_value()
    except IncompleteJson:
        return True
    except LenientJsonError:
        pass
    return False


def strip_code_fence(text: str) -> str:
    """Return the inside of a code fence if the text is nothing else; otherwise the text itself."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped:
        return stripped[stripped.index("\n") + 1 :].rstrip("`")
    return text


_SORTED_ENCODER = msgspec.json.Encoder(order="deterministic")


def canonical_json(value: Any) -> str:
    """Encode a value so that equal values give the same text, whatever the order of their keys."""
    try:
        return _SORTED_ENCODER.encode(value).decode()
    except (UnicodeEncodeError, TypeError):
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


def json_equal(one: Any, other: Any) -> bool:
    """Compare two JSON values; unlike `==`, this tells 1 from true."""
    return canonical_json(one) == canonical_json(other)


def json_text_equals(text: str, value: Any) -> bool:
    """Return True if a JSON text decodes to exactly this value."""
    try:
        return json.loads(text) == value
    except (ValueError, RecursionError):
        return False


def is_nested_deeper(value: Any, source: str | bytes, limit: int) -> bool:
    """Return True if a value is nested deeper than `limit`. Counting the opening brackets of its
    `source` is much faster than walking the value, and settles nearly all cases."""
    if isinstance(source, str):
        opened = source.count("{") + source.count("[")
    else:
        opened = source.count(b"{") + source.count(b"[")
    return opened > limit and nesting_depth(value) > limit


def nesting_depth(value: Any) -> int:
    """Return how deeply objects and lists are nested, counting to just over `MAX_DEPTH`."""
    depth, level = 0, [value]
    while level and depth <= MAX_DEPTH:
        depth += 1
        nested = (item.values() if isinstance(item, dict) else item for item in level)
        level = [item for items in nested for item in items if isinstance(item, (dict, list))]
    return depth


def iter_strings(value: Any) -> Iterator[str]:
    """Yield every string in a decoded value, except keys."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            pending.extend(reversed(list(item.values())))
        elif isinstance(item, (list, tuple)):
            pending.extend(reversed(item))


def iter_objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a decoded value."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            yield item
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """Return a decoded value with all its strings changed, including the keys."""
    match value:
        case str():
            return change(value)
        case Mapping():
            return {change(key): map_strings(item, change) for key, item in value.items()}
        case list() | tuple():
            return [map_strings(item, change) for item in value]
        case _:
            return value


MAX_VALUES = 1_500_000
"""The maximum number of values in JSON. For requests of clients, the limit is configurable."""
_MAX_DIGITS = 1000
_SLICE = 2**20
_STRUCTURE = b'"[]{},0123456789'
_OTHERS = bytes(byte for byte in range(256) if byte not in _STRUCTURE)
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % (_MAX_DIGITS + 1))
_BACKSLASHES = re.compile(rb"\\+\Z")


def find_json_excess(data: bytes | str, max_values: int) -> str:
    """Return the problem of a JSON text that is too expensive to decode, to follow a subject such
    as "the request"; "" for any other text."""
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
        """A slice contained a number with too many digits. A number that crosses two slices is
        measured in two parts, so it may be up to twice as long."""
        self._in_string = False
        self._escape = b""
        """A backslash at the end of the last slice; the character that it escapes is in the next
        one."""

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
