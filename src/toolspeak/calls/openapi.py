"""Gemini's own schemas, which are nearly those of OpenAPI, as JSON Schema.

{"type": "STRING", "nullable": true}  ->  {"type": ["string", "null"]}
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from ..errors import WireError
from .json_values import nesting_depth
from .lenient_json import MAX_DEPTH

_TYPES = {"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"}
_ONE = {"items", "additionalProperties", "not", "propertyNames", "contains"}
_SEVERAL = {"anyOf", "oneOf", "allOf", "prefixItems"}
_NAMED = {"properties", "patternProperties", "$defs", "definitions", "defs"}
_COUNTS = {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}


@lru_cache(1024)
def to_camel_case(key: str) -> str:
    """A key in camelCase, however it is spelled."""
    return re.sub(r"(?<=[a-z0-9])_([a-z0-9])", lambda match: match[1].upper(), key)


def is_openapi_schema(schema: Any) -> bool:
    """Whether a schema is of Gemini's own kind, by how it writes its types."""
    return isinstance(schema, dict) and schema.get("type") in _TYPES


def to_json_schema(schema: Any, path: str) -> dict[str, Any]:
    """A schema as the rest of the world writes it."""
    if not isinstance(schema, dict):
        raise WireError("Expected a schema, which is an `object`", path)
    if nesting_depth(schema) > MAX_DEPTH:
        raise WireError(f"a schema with more than {MAX_DEPTH} levels", path)
    return _plain(schema)


def _plain(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    for given, value in schema.items():
        key = given if given.startswith("$") else to_camel_case(given)
        if value is not None or key in ("default", "const"):
            out[key] = _keyword(key, value)
    if out.get("type") == "TYPE_UNSPECIFIED":
        del out["type"]
    return _with_null(out) if out.pop("nullable", None) is True else out


def _keyword(key: str, value: Any) -> Any:
    if key == "type":
        return _type(value)
    if key in _ONE or (key in _SEVERAL and isinstance(value, dict)):
        return _plain(value)
    if key in _SEVERAL and isinstance(value, list):
        return [_plain(item) for item in value]
    if key in _NAMED and isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if key in _COUNTS and isinstance(value, str) and value.isascii() and value.isdigit():
        # Google's JSON has the integers of 64 bits as strings.
        return int(value[:20])
    return value


def _type(value: Any) -> Any:
    if isinstance(value, list):
        return [_type(item) for item in value]
    return value.lower() if isinstance(value, str) and value in _TYPES else value


def _with_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema, of which null is a value too."""
    kinds, choices, values = schema.get("type"), schema.get("anyOf"), schema.get("enum")
    if isinstance(kinds, str) and kinds != "null":
        schema["type"] = [kinds, "null"]
    elif isinstance(kinds, list) and "null" not in kinds:
        schema["type"] = [*kinds, "null"]
    if isinstance(choices, list) and {"type": "null"} not in choices:
        schema["anyOf"] = [*choices, {"type": "null"}]
    if isinstance(values, list) and None not in values:
        schema["enum"] = [*values, None]
    return schema
