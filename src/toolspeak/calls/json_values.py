"""Values as models write them: JSON, Python literals, and the maps of the Gemma family.

    {'city': "Oslo", days: 3, live: True,}   ->   {"city": "Oslo", "days": 3, "live": True}

Strict JSON is what the standard library reads; `literals` is for the rest.
"""

from __future__ import annotations

import json
import math
import re
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


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is too large")
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs) and any(value[key] != item for key, item in pairs):
        raise ValueError("a key stands there twice, with different values")
    return value


STRICT_DECODER, _with_raw_newlines = (
    json.JSONDecoder(
        strict=strict,
        parse_constant=_no_constant,
        parse_float=_finite,
        object_pairs_hook=_object,
    )
    for strict in (True, False)
)
"""Strict JSON: no NaN, no infinity, no raw line breaks in strings, no key twice."""


def parse_json(
    text: str,
    *,
    allow_missing_closers: bool = False,
    allow_inner_quotes: bool = False,
    allow_extra_closers: bool = False,
    allow_escaped_quotes: bool = False,
) -> tuple[Any, tuple[str, ...]]:
    """The value that `text` holds, and the names of the repairs it took.

    `close` allows brackets that are missing at the end, for text that is known not to be cut off;
    `loose` allows strings that hold their own quotes unescaped; `trim`, brackets too many;
    `escaped`, that all quotes are, for text that is known not to stand in another's string.
    """
    value = _flat_object(text)
    if value is not None:
        return value, ()
    for reads, repairs in ((STRICT_DECODER, ()), (_with_raw_newlines, ("raw-newline",))):
        try:
            return reads.decode(text), repairs
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


def _flat_object(text: str) -> dict[str, Any] | None:
    """The object that a text holds, if it is as plain as the arguments of most calls: it has no
    more colons than keys, so none of them can stand there twice."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return value if type(value) is dict and text.count(":") == len(value) else None


def is_incomplete_json(text: str) -> bool:
    """Whether the text is the beginning of a value, as far as it goes."""
    try:
        LenientJsonReader(text).read_value()
    except IncompleteJson:
        return True
    except LenientJsonError:
        pass
    return False


_sorted = msgspec.json.Encoder(order="deterministic")


def canonical_json(value: Any) -> str:
    """The same text for the same value, in whatever order its keys stand."""
    try:
        return _sorted.encode(value).decode()
    except (UnicodeEncodeError, TypeError):
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


def json_text_equals(text: str, value: Any) -> bool:
    """Whether a JSON text stands for exactly this value."""
    try:
        return json.loads(text) == value
    except (ValueError, RecursionError):
        return False


def is_nested_deeper(value: Any, source: str | bytes, most: int) -> bool:
    """Whether a value is nested more than so deep. What it was read from opens too little for that,
    as a rule, which is seen much faster."""
    if isinstance(source, str):
        opened = source.count("{") + source.count("[")
    else:
        opened = source.count(b"{") + source.count(b"[")
    return opened > most and nesting_depth(value) > most


def nesting_depth(value: Any) -> int:
    """How deeply objects and lists are nested in each other; counts to just over the limit."""
    depth, level = 0, [value]
    while level and depth <= MAX_DEPTH:
        depth += 1
        nested = (item.values() if isinstance(item, dict) else item for item in level)
        level = [item for items in nested for item in items if isinstance(item, (dict, list))]
    return depth


def strip_code_fence(text: str) -> str:
    """What stands in a code fence, if the text is nothing but one."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped:
        return stripped[stripped.index("\n") + 1 :].rstrip("`")
    return text
