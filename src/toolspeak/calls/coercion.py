"""Coerce arguments to a tool's schema: validate them, and convert the values that fail.

    coerce_arguments({"days": "3"}, schema)
    -> Coercion({"days": 3}, changes=(CoercedValue("$.days", '"3" became 3'),))

Types come from the schema, never from the look of a value. A value that cannot be coerced is a
`SchemaViolation` with its path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import jsonschema_rs
from msgspec import Struct, structs

from .json_values import parse_json
from .lenient_json import LenientJsonError
from .schema import (
    SchemaValidator,
    allowed_types,
    get_properties,
    get_validator,
    json_type,
    parse_text_value,
    resolve_ref,
)

ARGUMENT_KEYS = (
    "arguments",
    "parameters",
    "args",
    "input",
    "params",
    "kwargs",
    "action_input",
    "tool_input",
)
"""The keys under which models write the arguments of a call."""
_MAX_ROUNDS = 6
"""How many times arguments are validated: coercing one value can reveal the next violation."""
_MAX_REPORTED = 50
_MAX_CANDIDATES = 64
_MAX_NESTED_ATTEMPTS = 200
"""If schemas refer to each other, there are endlessly many ways to coerce nested values."""
_PUNCTUATION = re.compile(r"[\W_]+")
_PLAIN_KEY = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LIST = re.compile(r"\[(?:.*\]\Z|\s*[\"'{\[])", re.DOTALL)
_MAX_KEY_DISTANCE = 300
"""The number of characters before a number that may hold its key."""
_MAX_DROPPED_ALONE = 20
"""The number of members that are tried one by one, if they cannot be dropped together."""
_TEXT_TYPES = ("integer", "number", "boolean", "null", "array", "object")
"""The types that a text can be converted to, in the order in which they are tried."""
_FAILED: Any = object()

Path = Sequence[str | int]


class CoercedValue(Struct, frozen=True):
    """A value that was converted to match the schema."""

    path: str
    message: str


class SchemaViolation(Struct, frozen=True):
    """A value that does not match the schema."""

    path: str
    problem: str


class Coercion(Struct, frozen=True):
    """The coerced arguments, what was changed, and what still does not match."""

    arguments: dict[str, Any]
    changes: tuple[CoercedValue, ...] = ()
    violations: tuple[SchemaViolation, ...] = ()
    is_schema_valid: bool = True
    """False: only the valid part of the schema was checked."""


def coerce_arguments(
    arguments: dict[str, Any], schema: Mapping[str, Any], source: str = ""
) -> Coercion:
    """Coerce arguments to a schema. `source` is the text that they were read from: a number that
    becomes a string keeps its digits."""
    try:
        return _coerce_arguments(arguments, get_validator(schema), source)
    except (RecursionError, ValueError):
        # Too many steps, or beyond the validator's own limit of depth.
        problem = (
            "the arguments, or the tool's schema, are too large or nested too deeply to be checked"
        )
        return Coercion(arguments, violations=(SchemaViolation("$", problem),))


def _coerce_arguments(
    arguments: dict[str, Any], validator: SchemaValidator, source: str
) -> Coercion:
    try:
        if validator.is_valid(arguments):
            return Coercion(arguments, is_schema_valid=validator.is_schema_valid)
        arguments, renamed = _correct_keys(arguments, validator.schema)
        budget = iter(range(_MAX_NESTED_ATTEMPTS))
        value, changes = _coerce_members(arguments, validator, _Source(source), budget)
        violations = _find_violations(validator, value)
    except UnicodeEncodeError:
        value, changes, renamed = arguments, (), ()
        violations = _find_violations(validator, _replace_surrogates(arguments))
    return Coercion(value, (*renamed, *changes), violations, validator.is_schema_valid)


def _correct_keys(
    arguments: dict[str, Any], schema: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[CoercedValue, ...]]:
    """Return the arguments by the declared names of the parameters, and what was changed.

    A key may differ from the declared one in case and punctuation, or hold all arguments.
    """
    declared = get_properties(schema)
    match list(arguments.items()):
        case [(key, dict(inner))] if (
            inner and key not in declared and inner.keys() <= declared.keys()
        ):
            message = f"the arguments were inside {key!r}, which is not a parameter"
            return inner, (CoercedValue(format_path([key]), message),)
        case _:
            pass
    corrected: dict[str, Any] = {}
    changes: list[CoercedValue] = []
    for key, value in arguments.items():
        name = key if key in declared else _find_parameter(key, declared, arguments)
        if name != key:
            changes.append(CoercedValue(format_path([name]), f"{key!r} was read as {name!r}"))
        corrected[name] = value
    return (corrected, tuple(changes)) if changes else (arguments, ())


def _find_parameter(key: str, declared: Iterable[str], taken: Iterable[str]) -> str:
    """Return the only free parameter that differs in case and punctuation, or the key itself."""
    plain = _fold_name(key)
    names = [name for name in declared if name not in taken and _fold_name(name) == plain]
    return names[0] if len(names) == 1 and plain else key


def _fold_name(name: str) -> str:
    return _PUNCTUATION.sub("", name).casefold()


def _replace_surrogates(value: Any) -> Any:
    """Replace lone surrogates, which the validator does not accept."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_replace_surrogates(key): _replace_surrogates(one) for key, one in value.items()}
    return [_replace_surrogates(one) for one in value] if isinstance(value, list) else value


def _find_violations(validator: SchemaValidator, value: Any) -> tuple[SchemaViolation, ...]:
    errors = validator.find_violations(value)[:_MAX_REPORTED]
    return tuple(SchemaViolation(format_path(one.instance_path), one.message) for one in errors)


def format_path(path: Path) -> str:
    written = "$"
    for step in path:
        if isinstance(step, str):
            written += f".{step}" if _PLAIN_KEY.fullmatch(step) else f"[{json.dumps(step)}]"
        else:
            written += f"[{step}]"
    return written


# Objects and lists: every member that fails is coerced.


def _coerce_members(
    value: Any, validator: SchemaValidator, source: _Source, budget: Iterator[int]
) -> tuple[Any, tuple[CoercedValue, ...]]:
    """Return a copy of a value with its failing members coerced where possible, and the changes."""
    value = json.loads(json.dumps(value))
    changes: dict[str, CoercedValue] = {}
    for _ in range(_MAX_ROUNDS):
        has_progress = False
        nulls: list[Path] = []
        for error in validator.find_violations(value):
            path, expected = error.instance_path, _find_schema(error, validator.schema)
            if not path and not expected.keys() & {"anyOf", "oneOf"}:
                continue
            before, where = _get(value, path), format_path(path)
            is_item = not path or format_path(path[:-1]) in changes
            context = _Context(validator.schema, path, source, budget, is_item)
            after = _coerce_value(before, expected, context)
            if after is not _FAILED:
                value = _set(value, path, after)
                message = f"{_abbreviate(before)} became {_abbreviate(after)}"
                changes[where] = CoercedValue(where, message)
                has_progress = True
            elif before is None and path and isinstance(path[-1], str):
                nulls.append(path)
        for path in _select_optional(value, nulls, validator):
            where = format_path(path)
            del _get(value, path[:-1])[path[-1]]
            changes[where] = CoercedValue(where, "null was dropped: the parameter is optional")
            has_progress = True
        if not has_progress:
            break
    return value, tuple(changes.values())


def _find_schema(error: jsonschema_rs.ValidationError, schema: Any) -> Any:
    """Return the schema that a value violates."""
    for step in error.schema_path[:-1]:
        try:
            schema = schema[step]
        except (KeyError, IndexError, TypeError):
            return {}
    return schema if isinstance(schema, dict) else {}


def _get(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def _set(value: Any, path: Path, new: Any) -> Any:
    """Set a member in place and return the value; with an empty path, return the new value."""
    if not path:
        return new
    _get(value, path[:-1])[path[-1]] = new
    return value


def _select_optional(value: Any, paths: list[Path], validator: SchemaValidator) -> list[Path]:
    """Return the members whose absence leaves fewer violations: all of them, or the first one."""
    # Several errors may be about one member, and another change may have replaced it.
    paths = [
        path for path in {tuple(path): path for path in paths}.values() if _is_null(value, path)
    ]
    if not paths:
        return []
    count = len(validator.find_violations(value))
    if len(paths) > 1 and count - _count_violations(value, paths, validator) >= len(paths):
        return paths
    # Other errors may be about the dropped member: only one is dropped in a round.
    alone = paths if len(paths) <= _MAX_DROPPED_ALONE else []
    return list(
        islice((one for one in alone if _count_violations(value, [one], validator) < count), 1)
    )


def _is_null(value: Any, path: Path) -> bool:
    try:
        return _get(value, path) is None
    except (LookupError, TypeError):
        return False


def _count_violations(value: Any, dropped: list[Path], validator: SchemaValidator) -> int:
    """Return the number of violations without some members."""
    shortened = json.loads(json.dumps(value))
    for path in dropped:
        del _get(shortened, path[:-1])[path[-1]]
    return len(validator.find_violations(shortened))


def _abbreviate(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"


# Single values: the first valid candidate is taken.


class _Context(Struct, frozen=True):
    """Where a value is: in which schema, and in which text."""

    root: Mapping[str, Any]
    path: Path
    source: _Source
    budget: Iterator[int]
    is_item: bool = False
    """The value is already the only item of an array that was made for it."""


def _coerce_value(value: Any, schema: Mapping[str, Any], context: _Context) -> Any:
    """Return the value as the schema requires it, or `_FAILED`."""
    is_valid = _get_subvalidator(schema, context.root).is_valid
    for candidate in islice(_iter_candidates(value, schema, context), _MAX_CANDIDATES):
        if is_valid(candidate):
            return candidate
    return _FAILED


def _get_subvalidator(schema: Mapping[str, Any], root: Mapping[str, Any]) -> SchemaValidator:
    """Return the validator of a part of a schema, with the definitions that it may refer to."""
    shared = {key: root[key] for key in ("$defs", "definitions") if key in root}
    return get_validator({**shared, **schema} if schema is not root else root)


def _iter_candidates(value: Any, schema: Mapping[str, Any], context: _Context) -> Iterator[Any]:
    """Yield the values that may be meant, likeliest first."""
    root = context.root
    for keyword in ("anyOf", "oneOf"):
        for choice in schema.get(keyword) or ():
            branch = resolve_ref(choice, root)
            yield from _coerce_nested(value, branch, context)
            yield from _iter_candidates(value, branch, context)
    yield from _match_enum(value, schema)
    types = allowed_types(schema, root)
    if isinstance(value, str):
        yield from _convert_text(value, schema, context, types)
    elif "string" in types and isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _find_digits(value, context.path, context.source)
    if "array" in types and not context.is_item and _is_single_item(value):
        yield from _wrap_in_list(value, schema, structs.replace(context, is_item=True))


def _coerce_nested(value: Any, schema: Mapping[str, Any], context: _Context) -> Iterator[Any]:
    """Yield an object or list with its members coerced, if the schema allows such a value."""
    if not isinstance(value, (dict, list)):
        return
    types = allowed_types(schema, context.root)
    if (not types or json_type(value) in types) and next(context.budget, None) is not None:
        validator = _get_subvalidator(schema, context.root)
        yield _coerce_members(value, validator, context.source, context.budget)[0]


def _is_single_item(value: Any) -> bool:
    """Return True if a value is one item. An empty text, or a list that cannot be parsed, may stand
    for any list."""
    if not isinstance(value, str):
        return not isinstance(value, list)
    text = value.strip()
    return bool(text) and not _LIST.match(text)


def _wrap_in_list(value: Any, schema: Mapping[str, Any], context: _Context) -> Iterator[Any]:
    yield [value]
    items = schema.get("items")
    if isinstance(items, dict):
        item_schema = resolve_ref(items, context.root)
        for item in _coerce_nested(value, item_schema, context):
            yield [item]
        item = _coerce_value(value, item_schema, context)
        if item is not _FAILED:
            yield [item]


def _convert_text(
    text: str, schema: Mapping[str, Any], context: _Context, types: frozenset[str]
) -> Iterator[Any]:
    for name in _TEXT_TYPES:
        if name in types:
            yield parse_text_value(text, {**schema, "type": name, "anyOf": []}, context.root, [])
    if types & {"array", "object"}:
        try:
            value, _ = parse_json(text)
        except LenientJsonError:
            return
        validator = _get_subvalidator(schema, context.root)
        if not validator.is_valid(value):
            value, _ = _coerce_members(value, validator, _Source(text), context.budget)
        yield value


def _match_enum(value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the one allowed value that differs only in case, type or punctuation."""
    allowed = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    folded = _fold(value)
    matching = [one for one in allowed if _fold(one) == folded] if folded else []
    if not matching and isinstance(value, str) and (plain := _fold_name(value)):
        texts = (one for one in allowed if isinstance(one, str))
        matching = [one for one in texts if _fold_name(one) == plain]
    if len(matching) == 1:
        yield matching[0]


def _fold(value: Any) -> str:
    if isinstance(value, str):
        return value.strip().casefold()
    return json.dumps(value) if isinstance(value, (int, float)) else ""


# Numbers that become strings keep their digits: 1.10 must not become "1.1".


def _find_digits(value: float, path: Path, source: _Source) -> Iterator[str]:
    """Yield a number as it is written in the source, unless it is written there in two ways."""
    if digits := source.find_digits_at(path):
        yield digits
        return
    found = source.matches.get(value, ())
    keys = [step for step in path if isinstance(step, str)]
    after_key = re.compile(rf"{re.escape(keys[-1])}\W{{1,4}}\s*\Z") if keys else None
    named = [one for one in found if after_key and after_key.search(source.text_before(one))]
    spellings = {one[0] for one in named or found} or {json.dumps(value)}
    if len(spellings) == 1:
        yield from spellings


class _Digits(str):
    """A number's digits."""


class _Source:
    """The text that arguments were read from, which is searched once for all of its numbers."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def matches(self) -> dict[float, list[re.Match[str]]]:
        """The places where each number is written."""
        found: dict[float, list[re.Match[str]]] = {}
        for match in _NUMBER.finditer(self._text):
            found.setdefault(float(match[0]), []).append(match)
        return found

    def text_before(self, match: re.Match[str]) -> str:
        """Return the text in which the number's key may be."""
        return self._text[max(0, match.start() - _MAX_KEY_DISTANCE) : match.start()]

    def find_digits_at(self, path: Path) -> str:
        """Return the digits at a path of the arguments, or "" if the source is not JSON."""
        try:
            found = _get(self._arguments, path)
        except (LookupError, TypeError):
            return ""
        return str(found) if isinstance(found, _Digits) else ""

    @cached_property
    def _arguments(self) -> Any:
        try:
            value = _DIGITS_DECODER.decode(self._text.strip())
        except (ValueError, RecursionError):
            return None
        for key in (*ARGUMENT_KEYS, "function"):
            if isinstance(value, dict) and isinstance(value.get(key), dict) and "name" in value:
                value = value[key]
        return value


_DIGITS_DECODER = json.JSONDecoder(strict=False, parse_float=_Digits, parse_int=_Digits)
