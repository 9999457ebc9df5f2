"""JSON Schemas of tools: lookups, values written as text, validators, and OpenAPI schemas.

    parse_text_value("3", {"type": "integer"}, …)   ->  3
    parse_text_value("3", {"type": "string"}, …)    ->  "3"

Types come from the schema, never from the look of a value: dialects that write arguments as plain
text (`<parameter=days>3</parameter>`) do not say whether that is a number or a string.

Agents send schemas of every draft, with the type names of other languages, invalid patterns and
dangling references. One invalid keyword does not disable the rest of a schema.

Gemini's schemas follow OpenAPI and become JSON Schema:

{"type": "STRING", "nullable": true}  ->  {"type": ["string", "null"]}
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from .._util import format_json
from ..errors import WireError
from .json_values import nesting_depth, parse_json
from .lenient_json import JSON_NUMBER, MAX_DEPTH, LenientJsonError, unescape
from .schema_expansion import CHOICE_KEYWORDS, StepCounter

_MAX_CHOICE_DEPTH = 8
_MAX_REF_STEPS = 32
_MAX_NUMBER_LENGTH = 1000
_MAX_VIOLATIONS = 1000
_MAX_STEPS = 2**17
"""How often a part of a schema may be applied to a part of a value. Nothing else can run until the
validator returns."""
_MAX_VIOLATION_STEPS = 2**13
"""The same if the violations are wanted, too: their descriptions take much longer."""
_NO_SCHEMA: dict[str, Any] = {}
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array"}

# Lookups.


def get_properties(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the declared parameters of a tool with their schemas."""
    declared = resolve_ref(schema, schema).get("properties")
    if not isinstance(declared, dict):
        return {}
    # `true` allows anything, as an empty schema does.
    return {key: one if isinstance(one, dict) else {} for key, one in declared.items()}


def get_required(schema: Mapping[str, Any]) -> list[str]:
    """Return the names of the declared parameters that are required."""
    required = resolve_ref(schema, schema).get("required")
    declared = get_properties(schema)
    return [key for key in required if key in declared] if isinstance(required, list) else []


def find_only_parameter(schema: Mapping[str, Any]) -> str:
    """Return the only parameter that a tool requires or takes, or ""."""
    for keys in (get_required(schema), list(get_properties(schema))):
        if len(keys) == 1:
            return keys[0]
    return ""


def resolve_ref(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow `$ref` within the same document; a dangling reference gives an empty schema."""
    for _ in range(_MAX_REF_STEPS):
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
    schema: Any, root: Mapping[str, Any], type_name: str, depth: int = _MAX_CHOICE_DEPTH
) -> Mapping[str, Any]:
    """Return the branch of `anyOf`, `oneOf` or `allOf` that allows a type; else the schema."""
    schema = resolve_ref(schema, root)
    for choice in _iter_choices(schema, depth):
        if type_name in allowed_types(choice, root):
            return select_branch(choice, root, type_name, depth - 1)
    return schema


def allowed_types(
    schema: Any, root: Mapping[str, Any], depth: int = _MAX_CHOICE_DEPTH
) -> frozenset[str]:
    """Return the JSON types that a schema allows; empty if it does not restrict them."""
    schema = resolve_ref(schema, root)
    declared = schema.get("type")
    names = declared if isinstance(declared, list) else [declared]
    types = {name.lower() for name in names if isinstance(name, str)}
    if not types and "const" in schema:
        types.add(json_type(schema["const"]))
    if not types and isinstance(schema.get("enum"), list):
        types.update(json_type(value) for value in schema["enum"])
    if not types and depth:
        # The first of the keywords that names types decides.
        for keyword in CHOICE_KEYWORDS:
            for choice in schema.get(keyword) or () if not types else ():
                types |= allowed_types(choice, root, depth - 1)
    if not types and "properties" in schema:
        types.add("object")
    if not types and "items" in schema:
        types.add("array")
    if schema.get("nullable") is True and types:
        types.add("null")
    return frozenset(types)


def lists_value(
    schema: Any, root: Mapping[str, Any], value: Any, depth: int = _MAX_CHOICE_DEPTH
) -> bool:
    """Return True if a schema names this very value in `const` or `enum`."""
    schema = resolve_ref(schema, root)
    enum = schema.get("enum")
    if schema.get("const") == value or (isinstance(enum, list) and value in enum):
        return True
    return any(
        lists_value(choice, root, value, depth - 1) for choice in _iter_choices(schema, depth)
    )


def _iter_choices(schema: Mapping[str, Any], depth: int) -> Iterator[Any]:
    return (choice for word in CHOICE_KEYWORDS for choice in schema.get(word) or () if depth)


def json_type(value: Any) -> str:
    return "null" if value is None else _JSON_TYPES.get(type(value), "object")


# Values written as plain text.

_INTEGER = re.compile(r"[+-]?[0-9]+(?:\.0+)?")
_OCTAL = re.compile(r"[+-]?0[0-7]{2,40}")
"""`0644` is ambiguous: octal, decimal or a string."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": True, "false": False, "True": True, "False": False}
_NULLS = frozenset({"null", "None"})


def parse_text_value(text: str, schema: Any, root: Mapping[str, Any], repairs: list[str]) -> Any:
    """Return the value that plain text stands for; text that fits no allowed type stays text.
    Names of repairs are appended to `repairs`."""
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
    number = _parse_number(word, types)
    if number is not None:
        if not JSON_NUMBER.fullmatch(word):
            repairs.append("python-literal")
        return number
    if types & {"array", "object"} and word[:1] in ("[", "{", "("):
        return _parse_structure(text, types, repairs)
    return text


def format_text_value(value: Any) -> str:
    """Write a value as plain text that `parse_text_value` reads back."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _parse_number(word: str, types: frozenset[str]) -> int | float | None:
    if not _NUMBER.fullmatch(word) or len(word) > _MAX_NUMBER_LENGTH:
        return None
    is_integer = _INTEGER.fullmatch(word)
    if is_integer and ("integer" in types or ("number" in types and "." not in word)):
        return int(word.partition(".")[0])
    number = float(word) if "number" in types else math.inf
    return None if math.isinf(number) else number


def _parse_structure(text: str, types: frozenset[str], repairs: list[str]) -> Any:
    for spelling in dict.fromkeys((text, unescape(text))):
        try:
            value, needed = parse_json(spelling)
        except LenientJsonError:
            continue
        if json_type(value) not in types:
            return text
        repairs += needed if spelling == text else ("double-encoding", *needed)
        return value
    return text


# Validators.


class SchemaValidator:
    """A compiled schema. `schema` is the part of it that could be compiled."""

    def __init__(self, schema: Mapping[str, Any], compiled: Any, is_schema_valid: bool) -> None:
        self.schema = schema
        self._compiled = compiled
        self.is_schema_valid = is_schema_valid
        """False: invalid keywords were dropped before the schema was compiled."""
        self._steps = StepCounter(schema)

    def is_valid(self, value: Any) -> bool:
        """Raises `TooManySteps` if this would take too long."""
        if self._compiled is None:
            return True
        self._steps.check(value, _MAX_STEPS)
        return self._compiled.is_valid(value)

    def find_violations(self, value: Any) -> list[jsonschema_rs.ValidationError]:
        """Raises `TooManySteps` if this would take too long."""
        if self._compiled is None:
            return []
        self._steps.check(value, _MAX_VIOLATION_STEPS)
        return list(islice(self._compiled.iter_errors(value), _MAX_VIOLATIONS))


def get_validator(schema: Mapping[str, Any]) -> SchemaValidator:
    """Return the validator of a schema; equal schemas are compiled once."""
    return _compile_cached(format_json(schema))


@lru_cache(maxsize=1024)
def _compile_cached(schema: str) -> SchemaValidator:
    return _compile(_expand_nullable(json.loads(schema)))


def _compile(schema: Mapping[str, Any]) -> SchemaValidator:
    compilers: tuple[Callable[..., Any], ...] = (
        jsonschema_rs.validator_for,
        jsonschema_rs.Draft7Validator,
        jsonschema_rs.Draft4Validator,
    )
    for is_schema_valid, candidate in ((True, dict(schema)), (False, _drop_invalid(schema))):
        for compiler in compilers:
            try:
                compiled = compiler(candidate, validate_formats=False, retriever=_reject_remote)
            except (jsonschema_rs.ValidationError, ValueError, TypeError, RecursionError):
                continue
            return SchemaValidator(candidate, compiled, is_schema_valid)
    return SchemaValidator(schema, None, False)


def _reject_remote(uri: str) -> Any:
    raise ValueError(f"{uri} is not part of the schema")


def _expand_nullable(schema: Any) -> Any:
    """Rewrite OpenAPI's `nullable` as JSON Schema."""
    if isinstance(schema, list):
        return [_expand_nullable(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    expanded = {key: _expand_nullable(part) for key, part in schema.items()}
    return _allow_null(expanded) if expanded.get("nullable") is True else expanded


_FOREIGN_TYPES = {
    "str": "string",
    "text": "string",
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "dict": "object",
    "none": "null",
}
"""Type names of other languages."""
_TYPES = frozenset({"string", "integer", "number", "boolean", "array", "object", "null"})
_COUNTS = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
)
_LIMITS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_SCHEMA_MAPS = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
_SUBSCHEMAS = frozenset(
    {"items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else"}
)
_INVALID: Any = object()


def _drop_invalid(schema: Any, root: Any = None, depth: int = 0) -> Any:
    """Copy a schema without the keywords that no validator accepts."""
    if depth > MAX_DEPTH or not isinstance(schema, dict):
        return schema if isinstance(schema, bool) else {}
    root = schema if root is None else root
    valid: dict[str, Any] = {}
    for key, value in schema.items():
        converted = _convert_keyword(key, value, root, depth + 1)
        if converted is not _INVALID:
            valid[key] = converted
    return valid


def _convert_keyword(key: str, value: Any, root: Any, depth: int) -> Any:
    """Return a keyword's value in the form that validators accept, or `_INVALID`."""
    if key == "type":
        names = value if isinstance(value, list) else [value]
        known = [_FOREIGN_TYPES.get(str(name).lower(), str(name).lower()) for name in names]
        return list(dict.fromkeys(name for name in known if name in _TYPES)) or _INVALID
    if key in _SCHEMA_MAPS:
        if not isinstance(value, dict):
            return _INVALID
        return {name: _drop_invalid(part, root, depth) for name, part in value.items()}
    if key in CHOICE_KEYWORDS:
        parts = value if isinstance(value, list) else []
        return [_drop_invalid(part, root, depth) for part in parts] or _INVALID
    if key in _SUBSCHEMAS:
        return _drop_invalid(value, root, depth) if isinstance(value, (dict, bool)) else _INVALID
    if key == "$ref":
        return value if _is_local_ref(value, root) else _INVALID
    if key == "required":
        names = [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
        return list(dict.fromkeys(names)) or _INVALID
    return value if _is_valid_keyword(key, value) else _INVALID


def _is_valid_keyword(key: str, value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return (
        (key not in _LIMITS or is_number)
        and (key not in _COUNTS or (is_number and value >= 0 and value == int(value)))
        and (key != "multipleOf" or (is_number and value > 0))
        and (key != "enum" or (isinstance(value, list) and bool(value)))
        and key not in ("pattern", "patternProperties", "dependencies", "$schema", "$id")
    )


def _is_local_ref(reference: Any, root: Any) -> bool:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return False
    part = root
    for step in filter(None, unquote(reference).removeprefix("#").split("/")):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(part, list) and name.isdigit():
            part = part[int(name)] if int(name) < len(part) else None
        else:
            part = part.get(name) if isinstance(part, dict) else None
    return isinstance(part, (dict, bool))


# Schemas that are rejected.

_LOOSE_TYPES = _TYPES | _FOREIGN_TYPES.keys() | {"any"}
_LOOSE_KEYWORDS = frozenset({"patternProperties", "dependencies", "$schema", "$id"})
_OLD_BOOLEANS = frozenset({"required", "exclusiveMinimum", "exclusiveMaximum"})
"""Keywords that are booleans in old drafts."""
_BROKEN_PATTERN = re.compile(
    r"missing \)|unbalanced|unterminated character set|nothing to repeat|multiple repeat"
)
"""Errors of `re` on patterns that are invalid in every language."""


def find_schema_problem(schema: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the path and the description of a mistake in the schema of a tool's parameters.

    None if there is none, or if its meaning is clear: the type names of other languages, keywords
    of old drafts, and nulls are accepted.
    """
    if nesting_depth(schema) > MAX_DEPTH:
        return "", f"is nested deeper than {MAX_DEPTH} levels"
    if not get_validator(schema).is_schema_valid:
        found = next(_iter_problems(schema, schema, "", 0), None)
        if found:
            return found
    types = {_FOREIGN_TYPES.get(name, name) for name in allowed_types(schema, schema)}
    if types and not types & {"object", "any"}:
        return ".type", "must be `object`, because a call's arguments are an object"
    return None


def _iter_problems(schema: Any, root: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(schema, bool) or schema is None or depth > MAX_DEPTH:
        return
    if not isinstance(schema, dict):
        yield path, f"must be a schema, not {format_json(schema)[:80]}"
        return
    for key, value in schema.items():
        at = f"{path}.{key}"
        if key in _SCHEMA_MAPS and isinstance(value, dict):
            for name, part in value.items():
                yield from _iter_problems(part, root, f"{at}.{name}", depth + 1)
        elif key in (*CHOICE_KEYWORDS, "items") and isinstance(value, list):
            for index, part in enumerate(value):
                yield from _iter_problems(part, root, f"{at}[{index}]", depth + 1)
        elif key in _SUBSCHEMAS and isinstance(value, dict):
            yield from _iter_problems(value, root, at, depth + 1)
        elif value is not None and (problem := _find_problem(key, value, root)):
            yield at, problem


def _find_problem(key: str, value: Any, root: Any) -> str:
    """Return what is wrong with the value of a keyword; "" if nothing is."""
    is_old = key in _OLD_BOOLEANS and isinstance(value, bool)
    # PHP writes an empty object as a list.
    is_empty_map = key in _SCHEMA_MAPS and value == []
    if key in _LOOSE_KEYWORDS or is_old or is_empty_map:
        return ""
    if key == "type":
        names = value if isinstance(value, list) else [value]
        is_known = all(str(name).lower() in _LOOSE_TYPES for name in names)
        return "" if is_known else f"must be a JSON type, not {format_json(value)[:80]}"
    if key == "pattern":
        return _find_pattern_problem(value)
    if _convert_keyword(key, value, root, 0) is not _INVALID:
        return ""
    shown = format_json(value)[:80]
    return f"{shown} is not in the schema" if key == "$ref" else f"cannot be {shown}"


def _find_pattern_problem(pattern: Any) -> str:
    if not isinstance(pattern, str):
        return "must be a string"
    if "[]" in pattern or "[^]" in pattern:
        # JavaScript's empty set, which Python does not have.
        return ""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return "must be a regular expression" if _BROKEN_PATTERN.search(str(error)) else ""
    return ""


# OpenAPI schemas.

_OPENAPI_TYPES = {"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"}
_OPENAPI_SUBSCHEMAS = {"items", "additionalProperties", "not", "propertyNames", "contains"}
_OPENAPI_SCHEMA_LISTS = {"anyOf", "oneOf", "allOf", "prefixItems"}
_OPENAPI_SCHEMA_MAPS = {"properties", "patternProperties", "$defs", "definitions", "defs"}


@lru_cache(1024)
def to_camel_case(key: str) -> str:
    return re.sub(r"(?<=[a-z0-9])_([a-z0-9])", lambda match: match[1].upper(), key)


def is_openapi_schema(schema: Any) -> bool:
    """Return True if a schema is in Gemini's OpenAPI form, which writes types in capitals."""
    return isinstance(schema, dict) and schema.get("type") in _OPENAPI_TYPES


def to_json_schema(schema: Any, path: str) -> dict[str, Any]:
    """Convert an OpenAPI schema to JSON Schema."""
    if not isinstance(schema, dict):
        raise WireError(f"Expected a schema as an `object`, got `{type(schema).__name__}`", path)
    if nesting_depth(schema) > MAX_DEPTH:
        raise WireError(f"The schema is nested deeper than {MAX_DEPTH} levels", path)
    return _convert_openapi(schema)


def _convert_openapi(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    converted: dict[str, Any] = {}
    for name, value in schema.items():
        key = name if name.startswith("$") else to_camel_case(name)
        if value is not None or key in ("default", "const"):
            converted[key] = _convert_openapi_keyword(key, value)
    if converted.get("type") == "TYPE_UNSPECIFIED":
        del converted["type"]
    return _allow_null(converted) if converted.pop("nullable", None) is True else converted


def _convert_openapi_keyword(key: str, value: Any) -> Any:
    if key == "type":
        return _convert_openapi_type(value)
    if key in _OPENAPI_SUBSCHEMAS or (key in _OPENAPI_SCHEMA_LISTS and isinstance(value, dict)):
        return _convert_openapi(value)
    if key in _OPENAPI_SCHEMA_LISTS and isinstance(value, list):
        return [_convert_openapi(item) for item in value]
    if key in _OPENAPI_SCHEMA_MAPS and isinstance(value, dict):
        return {name: _convert_openapi(item) for name, item in value.items()}
    if key in _COUNTS and isinstance(value, str) and value.isascii() and value.isdigit():
        # Google's JSON writes 64-bit integers as strings.
        return int(value[:20])
    return value


def _convert_openapi_type(value: Any) -> Any:
    if isinstance(value, list):
        return [_convert_openapi_type(item) for item in value]
    return value.lower() if isinstance(value, str) and value in _OPENAPI_TYPES else value


def _allow_null(schema: dict[str, Any]) -> dict[str, Any]:
    types, choices, values = schema.get("type"), schema.get("anyOf"), schema.get("enum")
    if isinstance(types, str) and types != "null":
        schema["type"] = [types, "null"]
    elif isinstance(types, list) and "null" not in types:
        schema["type"] = [*types, "null"]
    if isinstance(choices, list) and {"type": "null"} not in choices:
        schema["anyOf"] = [*choices, {"type": "null"}]
    if isinstance(values, list) and None not in values:
        schema["enum"] = [*values, None]
    return schema
