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

from .lenient_json import MAX_DEPTH, QUOTE, NotAValue, Unfinished, ValueReader, unescape

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


decoder, _with_raw_newlines = (
    json.JSONDecoder(
        strict=strict,
        parse_constant=_no_constant,
        parse_float=_finite,
        object_pairs_hook=_object,
    )
    for strict in (True, False)
)
"""Strict JSON: no NaN, no infinity, no raw line breaks in strings, no key twice."""


def loads(
    text: str,
    *,
    close: bool = False,
    loose: bool = False,
    trim: bool = False,
    escaped: bool = False,
) -> tuple[Any, tuple[str, ...]]:
    """The value that `text` holds, and the names of the repairs it took.

    `close` allows brackets that are missing at the end, for text that is known not to be cut off;
    `loose` allows strings that hold their own quotes unescaped; `trim`, brackets too many;
    `escaped`, that all quotes are, for text that is known not to stand in another's string.
    """
    value = _flat_object(text)
    if value is not None:
        return value, ()
    for reads, repairs in ((decoder, ()), (_with_raw_newlines, ("raw-newline",))):
        try:
            return reads.decode(text), repairs
        except (ValueError, RecursionError):
            pass
    if escaped and _ESCAPED_OBJECT.match(text) and not QUOTE['"'].search(text):
        value, repairs = loads(unescape(text), close=close)
        return value, ("double-encoding", *repairs)
    inside = without_fence(text)
    reader = ValueReader(inside, close=close, loose=loose)
    if inside is not text:
        reader.repaired("code-fence")
    value = reader.value()
    reader.skip()
    rest = reader.text[reader.at :]
    if rest and trim and not rest.strip("}] \t\r\n"):
        reader.repaired("extra-closer")
    elif rest:
        raise NotAValue("unexpected text after the value", reader.at)
    return value, reader.repairs()


def _flat_object(text: str) -> dict[str, Any] | None:
    """The object that a text holds, if it is as plain as the arguments of most calls: it has no
    more colons than keys, so none of them can stand there twice."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return value if type(value) is dict and text.count(":") == len(value) else None


def is_unfinished(text: str) -> bool:
    """Whether the text is the beginning of a value, as far as it goes."""
    try:
        ValueReader(text).value()
    except Unfinished:
        return True
    except NotAValue:
        pass
    return False


_sorted = msgspec.json.Encoder(order="deterministic")


def canonical(value: Any) -> str:
    """The same text for the same value, in whatever order its keys stand."""
    try:
        return _sorted.encode(value).decode()
    except (UnicodeEncodeError, TypeError):
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


def same(text: str, value: Any) -> bool:
    """Whether a JSON text stands for exactly this value."""
    try:
        return json.loads(text) == value
    except (ValueError, RecursionError):
        return False


def is_deeper(value: Any, source: str | bytes, most: int) -> bool:
    """Whether a value is nested more than so deep. What it was read from opens too little for that,
    as a rule, which is seen much faster."""
    if isinstance(source, str):
        opened = source.count("{") + source.count("[")
    else:
        opened = source.count(b"{") + source.count(b"[")
    return opened > most and depth_of(value) > most


def depth_of(value: Any) -> int:
    """How deeply objects and lists are nested in each other; counts to just over the limit."""
    depth, level = 0, [value]
    while level and depth <= MAX_DEPTH:
        depth += 1
        nested = (item.values() if isinstance(item, dict) else item for item in level)
        level = [item for items in nested for item in items if isinstance(item, (dict, list))]
    return depth


def without_fence(text: str) -> str:
    """What stands in a code fence, if the text is nothing but one."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped:
        return stripped[stripped.index("\n") + 1 :].rstrip("`")
    return text
