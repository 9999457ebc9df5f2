"""Schemas as people write them, compiled once: what no validator could use is left out.

Agents send schemas of every draft, with other languages' type names, and with patterns and
references that lead nowhere. One bad keyword does not switch off the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

import jsonschema_rs

from .._util import encode_json
from .lenient_json import MAX_DEPTH

_TYPES = {
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
"""What other languages call JSON's types."""
_KNOWN = frozenset({"string", "integer", "number", "boolean", "array", "object", "null"})
_MOST_FAULTS = 1000
_UNUSABLE: Any = object()


class SchemaValidator:
    """A tool's schema, compiled once."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema, self._compiled, self.is_schema_valid = _compile(_with_null(schema))

    def is_valid(self, value: Any) -> bool:
        """Whether a value is what the schema asks for."""
        return self._compiled is None or self._compiled.is_valid(value)

    def find_violations(self, value: Any) -> list[jsonschema_rs.ValidationError]:
        """What is wrong with a value."""
        if self._compiled is None:
            return []
        return list(islice(self._compiled.iter_errors(value), _MOST_FAULTS))


def get_validator(schema: Mapping[str, Any]) -> SchemaValidator:
    """The same schema is compiled only once."""
    return _cached(encode_json(schema))


@lru_cache(maxsize=1024)
def _cached(schema: str) -> SchemaValidator:
    return SchemaValidator(json.loads(schema))


def _with_null(schema: Any) -> Any:
    """OpenAPI's `nullable`, as JSON Schema says it."""
    if isinstance(schema, list):
        return [_with_null(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {key: _with_null(part) for key, part in schema.items()}
    if whole.get("nullable") is True and isinstance(whole.get("type"), str):
        whole["type"] = [whole["type"], "null"]
        if isinstance(whole.get("enum"), list) and None not in whole["enum"]:
            whole["enum"] = [*whole["enum"], None]
    return whole


def _no_network(uri: str) -> Any:
    raise ValueError(f"{uri} is not part of the schema")


def _compile(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any, bool]:
    """The schema as it could be used, what validates against it, and whether it was fine as it is.

    Agents send schemas of every draft, with Python's type names, and with patterns and references
    that lead nowhere: what cannot be checked is not checked.
    """
    compilers: tuple[Callable[..., Any], ...] = (
        jsonschema_rs.validator_for,
        jsonschema_rs.Draft7Validator,
        jsonschema_rs.Draft4Validator,
    )
    for usable, candidate in ((True, dict(schema)), (False, _cleaned(schema))):
        for compiler in compilers:
            try:
                compiled = compiler(candidate, validate_formats=False, retriever=_no_network)
            except (jsonschema_rs.ValidationError, ValueError, TypeError, RecursionError):
                continue
            return candidate, compiled, usable
    return schema, None, False


_COUNTS = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
)
_LIMITS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_CHOICES = frozenset({"anyOf", "oneOf", "allOf"})
_NAMED = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
_PARTS = frozenset(
    {"items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else"}
)


def _cleaned(schema: Any, root: Any = None, depth: int = 0) -> Any:
    """A schema without what no validator could use; the rest is kept."""
    if depth > MAX_DEPTH or not isinstance(schema, dict):
        return schema if isinstance(schema, bool) else {}
    root = schema if root is None else root
    cleaned: dict[str, Any] = {}
    for key, value in schema.items():
        usable = _usable(key, value, root, depth + 1)
        if usable is not _UNUSABLE:
            cleaned[key] = usable
    return cleaned


def _usable(key: str, value: Any, root: Any, depth: int) -> Any:
    """A keyword's value as a validator takes it; `_UNUSABLE` if there is no such."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if key == "type":
        names = value if isinstance(value, list) else [value]
        known = [_TYPES.get(str(name).lower(), str(name).lower()) for name in names]
        known = list(dict.fromkeys(name for name in known if name in _KNOWN))
        return known or _UNUSABLE
    if key in _NAMED:
        if not isinstance(value, dict):
            return _UNUSABLE
        return {name: _cleaned(part, root, depth) for name, part in value.items()}
    if key in _CHOICES:
        parts = [_cleaned(part, root, depth) for part in value] if isinstance(value, list) else []
        return parts or _UNUSABLE
    if key in _PARTS:
        return _cleaned(value, root, depth) if isinstance(value, (dict, bool)) else _UNUSABLE
    if key == "$ref":
        return value if _leads_somewhere(value, root) else _UNUSABLE
    if key == "required":
        names = [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
        return list(dict.fromkeys(names)) or _UNUSABLE
    fits = (
        (key not in _LIMITS or number)
        and (key not in _COUNTS or (number and value >= 0 and value == int(value)))
        and (key != "multipleOf" or (number and value > 0))
        and (key != "enum" or (isinstance(value, list) and bool(value)))
        and key not in ("pattern", "patternProperties", "dependencies", "$schema", "$id")
    )
    return value if fits else _UNUSABLE


def _leads_somewhere(reference: Any, root: Any) -> bool:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return False
    part = root
    for step in filter(None, reference.removeprefix("#").split("/")):
        part = part.get(step) if isinstance(part, dict) else None
    return isinstance(part, (dict, bool))
