"""Types come from the tool's schema, never from the look of a value.

Formats that write arguments as bare text (`<parameter=days>3</parameter>`) leave it to the schema
whether that is the number three or the text "3".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from . import json_values as jsonish
from .lenient_json import JSON_NUMBER, unescape

_INTEGER = re.compile(r"[+-]?[0-9]+(?:\.0+)?")
_OCTAL = re.compile(r"[+-]?0[0-7]{2,40}")
"""Nobody knows whether 0644 is a number, and which."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": True, "false": False, "True": True, "False": False}
_NULLS = frozenset({"null", "None"})
_TYPE_OF = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array"}
_NO_SCHEMA: dict[str, Any] = {}
_LONGEST_NUMBER = 1000


def get_properties(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The declared parameters of a tool and their schemas."""
    declared = resolve_ref(schema, schema).get("properties")
    if not isinstance(declared, dict):
        return {}
    # `true` allows anything, as an empty schema does.
    return {key: one if isinstance(one, dict) else {} for key, one in declared.items()}


def get_required(schema: Mapping[str, Any]) -> list[str]:
    """The declared parameters that have to be given."""
    required = resolve_ref(schema, schema).get("required")
    declared = get_properties(schema)
    return [key for key in required if key in declared] if isinstance(required, list) else []


def resolve_ref(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow `$ref` within the same document; what cannot be followed allows anything."""
    for _ in range(32):
        if not isinstance(schema, dict):
            return _NO_SCHEMA
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        schema = root
        for step in reference.removeprefix("#").strip("/").split("/"):
            schema = schema.get(step) if isinstance(schema, dict) else None
    return _NO_SCHEMA


def select_branch(
    schema: Any, root: Mapping[str, Any], kind: str, depth: int = 8
) -> Mapping[str, Any]:
    """The part of a schema that speaks of values of one type, out of several that it admits."""
    schema = resolve_ref(schema, root)
    for word in ("anyOf", "oneOf", "allOf"):
        for choice in schema.get(word) or () if depth else ():
            if kind in allowed_types(choice, root):
                return select_branch(choice, root, kind, depth - 1)
    return schema


def allowed_types(schema: Any, root: Mapping[str, Any], depth: int = 8) -> frozenset[str]:
    """The JSON types a schema admits; empty when it does not say."""
    schema = resolve_ref(schema, root)
    declared = schema.get("type")
    types = set(_names(declared))
    if not types and "const" in schema:
        types.add(json_type(schema["const"]))
    if not types and isinstance(schema.get("enum"), list):
        types.update(json_type(value) for value in schema["enum"])
    for word in ("anyOf", "oneOf", "allOf"):
        for choice in schema.get(word) or () if depth and not types else ():
            types |= allowed_types(choice, root, depth - 1)
    if not types and "properties" in schema:
        types.add("object")
    if not types and "items" in schema:
        types.add("array")
    if schema.get("nullable") is True and types:
        types.add("null")
    return frozenset(types)


def _names(declared: Any) -> list[str]:
    names = declared if isinstance(declared, list) else [declared]
    return [name.lower() for name in names if isinstance(name, str)]


def iter_strings(value: Any) -> Iterator[str]:
    """Every text in a decoded value, keys aside."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            pending.extend(reversed(list(item.values())))
        elif isinstance(item, (list, tuple)):
            pending.extend(reversed(item))


def json_type(value: Any) -> str:
    """The JSON type of a decoded value."""
    return "null" if value is None else _TYPE_OF.get(type(value), "object")


def parse_text_value(text: str, schema: Any, root: Mapping[str, Any], repairs: list[str]) -> Any:
    """The value that bare text stands for. Text that fits no declared type stays text. `repairs`
    takes the liberties that were taken."""
    types = allowed_types(schema, root)
    if not types or types == frozenset({"string"}):
        return text
    word = text.strip()
    if "null" in types and word in _NULLS:
        return None
    if "string" in types and not types & {"array", "object"}:
        return text
    if "boolean" in types and word in _BOOLEANS:
        if word in ("True", "False"):
            repairs.append("python-literal")
        return _BOOLEANS[word]
    if _OCTAL.fullmatch(word) and int(word, 8) != int(word):
        return text
    number = _number(word, types)
    if number is not None:
        if not JSON_NUMBER.fullmatch(word):
            repairs.append("python-literal")
        return number
    if types & {"array", "object"} and word[:1] in ("[", "{", "("):
        return _structure(text, types, repairs)
    return text


def format_text_value(value: Any) -> str:
    """Text for a value such that `parse_text_value` gives it back where the schema says enough."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _number(word: str, types: frozenset[str]) -> int | float | None:
    """The number that a word is, if one may stand here."""
    if not _NUMBER.fullmatch(word) or len(word) > _LONGEST_NUMBER:
        return None
    whole = _INTEGER.fullmatch(word)
    if whole and ("integer" in types or ("number" in types and "." not in word)):
        return int(word.partition(".")[0])
    number = float(word) if "number" in types else math.inf
    return None if math.isinf(number) else number


def _structure(text: str, types: frozenset[str], repairs: list[str]) -> Any:
    for spelling in dict.fromkeys((text, unescape(text))):
        try:
            value, mended = jsonish.parse_json(spelling)
        except jsonish.LenientJsonError:
            continue
        if json_type(value) not in types:
            return text
        repairs += mended if spelling == text else ("double-encoding", *mended)
        return value
    return text
