"""Arguments that fit a tool's schema: validated first, coerced only where they fail.

    fit({"days": "3"}, schema)   ->   Fit({"days": 3}, changes=(Change("$.days", …),))

Types come from the schema, never from the look of a value, and what cannot be coerced is a fault
with a JSON path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import jsonschema_rs
from msgspec import Struct, structs

from .drafts import ARGUMENT_KEYS
from .json_values import parse_json
from .lenient_json import LenientJsonError
from .schema import (
    SchemaValidator,
    allowed_types,
    get_validator,
    json_type,
    parse_text_value,
    resolve_ref,
)

_ROUNDS = 6
"""Coercing one value can bring the next fault to light."""
_TOLD = 50
_MOST_CANDIDATES = 64
"""How many readings of one value are tried."""
_MOST_READINGS = 200
_PLAIN_KEY = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LIST = re.compile(r"\[(?:.*\]\Z|\s*[\"'{\[])", re.DOTALL)
_TRIED = ("integer", "number", "boolean", "null", "array", "object")

Path = Sequence[str | int]


class CoercedValue(Struct, frozen=True):
    """A value that was not what the schema asks for and could be made so."""

    path: str
    message: str


class SchemaViolation(Struct, frozen=True):
    """A value that is not what the schema asks for."""

    path: str
    problem: str


class Coercion(Struct, frozen=True):
    """Arguments as they fit best, what was changed for that, and what is still wrong."""

    arguments: dict[str, Any]
    changes: tuple[CoercedValue, ...] = ()
    violations: tuple[SchemaViolation, ...] = ()
    is_schema_valid: bool = True
    """The schema could be used as it is; if not, what could be checked was."""


def _encodable(value: Any) -> Any:
    """The same value without halves of surrogate pairs, which a validator cannot take."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {_encodable(key): _encodable(item) for key, item in value.items()}
        case list():
            return [_encodable(item) for item in value]
        case _:
            return value


def coerce_arguments(
    arguments: dict[str, Any], schema: Mapping[str, Any] | SchemaValidator, source: str = ""
) -> Coercion:
    """The arguments, coerced where they have to be and can be. `source` is the text they were read
    from: a number that becomes a text keeps the digits it had there."""
    try:
        validator = schema if isinstance(schema, SchemaValidator) else get_validator(schema)
        return _checked(arguments, validator, source)
    except (RecursionError, ValueError):
        # The validator has a limit of its own, which it tells as a wrong value.
        problem = "the arguments or the tool's schema are nested too deeply to be checked"
        return Coercion(arguments, violations=(SchemaViolation("$", problem),))


def _checked(arguments: dict[str, Any], validator: SchemaValidator, source: str) -> Coercion:
    try:
        if validator.is_valid(arguments):
            return Coercion(arguments, is_schema_valid=validator.is_schema_valid)
        value, changes = _mended(arguments, validator, source)
        return Coercion(value, changes, _told(validator, value), validator.is_schema_valid)
    except UnicodeEncodeError:
        return Coercion(
            arguments, (), _told(validator, _encodable(arguments)), validator.is_schema_valid
        )


def _mended(
    given: Any, validator: SchemaValidator, source: str, readings: Iterator[int] | None = None
) -> tuple[Any, tuple[CoercedValue, ...]]:
    """A copy of a value, with what fails coerced where that is possible."""
    value = json.loads(json.dumps(given))
    changes: dict[str, CoercedValue] = {}
    for _ in range(_ROUNDS):
        progress = False
        for error in validator.find_violations(value):
            path, asked = error.instance_path, _asked(error, validator.schema)
            if not path and not asked.keys() & {"anyOf", "oneOf"}:
                continue
            before = _at(value, path)
            made = format_path(path[:-1]) in changes
            left = iter(range(_MOST_READINGS)) if readings is None else readings
            place = _Place(validator.schema, path, source, left, wrapped=made or not path)
            after = _coerced(before, asked, place)
            if after is _NOTHING and before is None and _is_optional(value, path, validator):
                del _at(value, path[:-1])[path[-1]]
                changes[format_path(path)] = CoercedValue(
                    format_path(path), "null, which may as well be left out"
                )
                progress = True
                break
            if after is _NOTHING:
                continue
            if path:
                _at(value, path[:-1])[path[-1]] = after
            else:
                value = after
            message = f"{_shown(before)} became {_shown(after)}"
            changes[format_path(path)] = CoercedValue(format_path(path), message)
            progress = True
        if not progress:
            break
    return value, tuple(changes.values())


def _told(validator: SchemaValidator, value: Any) -> tuple[SchemaViolation, ...]:
    """What is wrong; the message of one fault can be as long as the value, so a few tell enough."""
    left = validator.find_violations(value)[:_TOLD]
    return tuple(SchemaViolation(format_path(error.instance_path), error.message) for error in left)


def format_path(path: Path) -> str:
    """A JSON path."""
    written = "$"
    for step in path:
        if isinstance(step, str):
            written += f".{step}" if _PLAIN_KEY.fullmatch(step) else f"[{json.dumps(step)}]"
        else:
            written += f"[{step}]"
    return written


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def _is_optional(value: Any, path: Path, validator: SchemaValidator) -> bool:
    """Whether a member may be left out, judged by whether the faults get fewer without it."""
    if not path or not isinstance(path[-1], str):
        return False
    parent = _at(value, path[:-1])
    without = {key: item for key, item in parent.items() if key != path[-1]}
    whole = _replaced(value, path[:-1], without)
    return len(validator.find_violations(whole)) < len(validator.find_violations(value))


def _replaced(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = _replaced(value[path[0]], path[1:], new)
    return copy


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"


# What the schema asks for at the place of a fault.


def _asked(error: jsonschema_rs.ValidationError, schema: Any) -> Any:
    for step in error.schema_path[:-1]:
        try:
            schema = schema[step]
        except (KeyError, IndexError, TypeError):
            return {}
    return schema if isinstance(schema, dict) else {}


_NOTHING: Any = object()


class _Place(Struct, frozen=True):
    """Where a value stands: in which schema as a whole, and where in the text it was read from."""

    root: Mapping[str, Any]
    path: Path
    source: str
    readings: Iterator[int]
    """One for each object or list inside that may still be tried as one of several schemas: where
    these refer to each other, the ways to read a value are without number."""
    wrapped: bool = False
    """The value is already the only item of an array that was made for it."""


def _coerced(value: Any, schema: Mapping[str, Any], place: _Place) -> Any:
    """The value made into what the schema asks for; `_NOTHING` if that is not possible."""
    valid = _part_of(schema, place.root).is_valid
    for candidate in islice(_candidates(value, schema, place), _MOST_CANDIDATES):
        if valid(candidate):
            return candidate
    return _NOTHING


def _part_of(schema: Mapping[str, Any], root: Mapping[str, Any]) -> SchemaValidator:
    """A part of a schema, with the definitions that it may refer to."""
    shared = {key: root[key] for key in ("$defs", "definitions") if key in root}
    return get_validator({**shared, **schema} if schema is not root else root)


def _candidates(value: Any, schema: Mapping[str, Any], place: _Place) -> Iterator[Any]:
    """What a value may have been meant to be, likeliest first."""
    root = place.root
    for word in ("anyOf", "oneOf"):
        for choice in schema.get(word) or ():
            part = resolve_ref(choice, root)
            if _may_be_mended(value, part, root) and next(place.readings, None) is not None:
                yield _mended(value, _part_of(part, root), place.source, place.readings)[0]
            yield from _candidates(value, part, place)
    yield from _same_but_for_case(value, schema)
    types = allowed_types(schema, root)
    if isinstance(value, str):
        yield from _from_string(value, schema, place, types)
    elif "string" in types and isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _digits(value, place.path, place.source)
    if "array" in types and not place.wrapped and _is_one_value(value):
        yield from _as_only_item(value, schema, structs.replace(place, wrapped=True))


def _may_be_mended(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    """Whether a value is an object or a list, as the schema wants it, but for what is inside."""
    if not isinstance(value, (dict, list)):
        return False
    types = allowed_types(schema, root)
    return not types or json_type(value) in types


def _is_one_value(value: Any) -> bool:
    """Whether a value is plainly one item. A text that is empty, or a list that cannot be read, may
    have been meant as any list."""
    if not isinstance(value, str):
        return not isinstance(value, list)
    word = value.strip()
    return bool(word) and not _LIST.match(word)


def _as_only_item(value: Any, schema: Mapping[str, Any], place: _Place) -> Iterator[Any]:
    yield [value]
    items = schema.get("items")
    if not isinstance(items, dict):
        return
    part = resolve_ref(items, place.root)
    if _may_be_mended(value, part, place.root) and next(place.readings, None) is not None:
        yield [_mended(value, _part_of(part, place.root), place.source, place.readings)[0]]
    one = _coerced(value, part, place)
    if one is not _NOTHING:
        yield [one]


def _from_string(
    value: str, schema: Mapping[str, Any], place: _Place, types: frozenset[str]
) -> Iterator[Any]:
    for kind in (kind for kind in _TRIED if kind in types):
        yield parse_text_value(value, {**schema, "type": kind, "anyOf": []}, place.root, [])
    if types & {"array", "object"}:
        try:
            decoded, _ = parse_json(value)
        except LenientJsonError:
            return
        part = _part_of(schema, place.root)
        valid = part.is_valid(decoded)
        yield decoded if valid else _mended(decoded, part, value, place.readings)[0]


def _same_but_for_case(value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    """The one value of an enum that differs only in case, in white space or in its type."""
    allowed = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    folded = _folded(value)
    found = [item for item in allowed if _folded(item) == folded] if folded else []
    if len(found) == 1:
        yield found[0]


def _folded(value: Any) -> str:
    if isinstance(value, str):
        return value.strip().casefold()
    return json.dumps(value) if isinstance(value, (int, float)) else ""


def _digits(value: float, path: Path, source: str) -> Iterator[str]:
    """A number as it stood in the source: 1.10 is not 1.1 where a text is asked for. If it stands
    there in both ways, nobody can tell which is meant."""
    exact = _written_at(path, source)
    if exact:
        yield exact
        return
    written = [found for found in _NUMBER.finditer(source) if float(found[0]) == value]
    keys = [step for step in path if isinstance(step, str)]
    named = [
        found
        for found in written
        if keys and re.search(rf"{re.escape(keys[-1])}\W{{1,4}}\s*\Z", source[: found.start()])
    ]
    spelled = {found[0] for found in named or written} or {json.dumps(value)}
    if len(spelled) == 1:
        yield from spelled


class _Written(str):
    """A number's digits."""


def _written_at(path: Path, source: str) -> str:
    """The digits at a place of the arguments, if the source is JSON; "" if it is not."""
    try:
        value = _DIGITS.decode(source.strip())
        for key in (*ARGUMENT_KEYS, "function"):
            if isinstance(value, dict) and isinstance(value.get(key), dict) and "name" in value:
                value = value[key]
        found = _at(value, path)
    except (ValueError, RecursionError, LookupError, TypeError):
        return ""
    return str(found) if isinstance(found, _Written) else ""


_DIGITS = json.JSONDecoder(strict=False, parse_float=_Written, parse_int=_Written)
