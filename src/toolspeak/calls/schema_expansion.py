"""Counts the schemas that a validator applies: too many, and it could never finish.

    "a": {"anyOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/b"}]},   "b": {"anyOf": …

Each level doubles the schemas that apply to one value: forty levels make a million millions. If
each level of the schema is one of the arguments, too, only the arguments show how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from .._util import format_json
from .json_values import iter_objects

_MAX_SCHEMAS = 10_000
"""The schemas that may apply to one value; unions of unions have a few hundred."""
CHOICE_KEYWORDS = ("anyOf", "oneOf", "allOf")
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_NAMES = ("$id", "id", "$anchor", "$dynamicAnchor")
_SUBSCHEMAS = ("not", "if", "then", "else")
_SCHEMA_MAPS = ("dependentSchemas", "dependencies")
_MEMBER_SCHEMAS = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ITEM_SCHEMAS = ("items", "additionalItems", "unevaluatedItems", "contains")
_ITEM_LISTS = ("prefixItems", "items")


def is_endless(schema: Any) -> bool:
    """Return True if too many schemas apply to one value, in any part of a schema."""
    try:
        counter = _SchemaCounter(schema)
        return any(counter.count(part) > _MAX_SCHEMAS for part in counter.parts)
    except RecursionError:
        return True


class TooManySteps(ValueError):
    """A value is too large for its schema to be validated."""


class StepCounter:
    """Counts how often a validator would apply a part of a schema to a part of a value."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        text = format_json(schema)
        has_references = any(f'"{name}"' in text for name in REFERENCES)
        self._size = 0 if has_references else sum(map(text.count, "{[,:"))
        """More than the parts of a schema without references; 0 for others."""

    def check(self, value: Any, limit: int) -> None:
        """Raise `TooManySteps` if validation may take more steps than `limit`."""
        if self._size and self._size * _count_values(value, limit) <= limit:
            return
        self._limit = limit
        self._counts: dict[tuple[int, int], int] = {}
        try:
            self._count(self._schema, value)
        except RecursionError:
            raise TooManySteps from None

    @cached_property
    def _graph(self) -> _SchemaGraph:
        # Few schemas need one.
        return _SchemaGraph(self._schema)

    def _count(self, schema: Any, value: Any) -> int:
        if not isinstance(schema, dict):
            return 1
        # The count is the same for all values without members.
        key = id(schema), id(value) if value and isinstance(value, (dict, list)) else 0
        if (known := self._counts.get(key)) is not None:
            return known
        self._counts[key] = 1  # For a schema that refers to itself.
        enum = schema.get("enum")
        total = 1 + (len(enum) if isinstance(enum, list) else 0)
        for part in self._graph.iter_applied(schema):
            total += self._count(part, value)
        for part, member in _iter_member_schemas(schema, value) if key[1] else ():
            total += self._count(part, member)
            if total > self._limit:
                raise TooManySteps
        self._counts[key] = total
        if total > self._limit:
            raise TooManySteps
        return total


def _count_values(value: Any, limit: int) -> int:
    """Return the number of values in a value, up to just above the limit."""
    count, pending = 1, [value] if isinstance(value, (dict, list)) else []
    while pending and count <= limit:
        members = pending.pop()
        count += len(members)
        inner = members.values() if isinstance(members, dict) else members
        pending += [member for member in inner if isinstance(member, (dict, list))]
    return count


def _iter_member_schemas(
    schema: dict[str, Any], value: dict[str, Any] | list[Any]
) -> Iterator[tuple[Any, Any]]:
    """Yield the schemas that apply to the members of a value, each with its member."""
    if isinstance(value, dict):
        if isinstance(properties := schema.get("properties"), dict):
            yield from ((part, value[name]) for name, part in properties.items() if name in value)
        patterns = schema.get("patternProperties")
        parts = list(patterns.values()) if isinstance(patterns, dict) else []
        parts += [part for key in _MEMBER_SCHEMAS if isinstance(part := schema.get(key), dict)]
        yield from ((part, member) for part in parts for member in value.values())
        return
    for key in _ITEM_LISTS:
        if isinstance(items := schema.get(key), list):
            yield from zip(items, value, strict=False)
    parts = [part for key in _ITEM_SCHEMAS if isinstance(part := schema.get(key), dict)]
    yield from ((part, item) for part in parts for item in value)


class _SchemaGraph:
    """The parts of a schema, and which of them apply to the same value."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.parts = list(iter_objects(root))
        self._named: dict[str, Any] = {}
        for part in self.parts:
            for name in _NAMES:
                if isinstance(part.get(name), str):
                    self._named[part[name].strip("#")] = part

    def iter_applied(self, schema: dict[str, Any]) -> Iterator[Any]:
        """Yield the schemas that apply to the same value."""
        for keyword in REFERENCES:
            if isinstance(reference := schema.get(keyword), str):
                yield self._resolve(reference)
        for keyword in CHOICE_KEYWORDS:
            if isinstance(choices := schema.get(keyword), list):
                yield from choices
        for keyword in _SUBSCHEMAS:
            if keyword in schema:
                yield schema[keyword]
        for keyword in _SCHEMA_MAPS:
            if isinstance(schemas := schema.get(keyword), dict):
                yield from schemas.values()

    def _resolve(self, reference: str) -> Any:
        address, _, fragment = reference.partition("#")
        for name in (reference, fragment, address, address.rpartition("/")[2]):
            if name and name in self._named:
                return self._named[name]
        found = self.root
        for step in fragment.strip("/").split("/") if fragment.strip("/") else ():
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and step.isdigit() and int(step) < len(found):
                found = found[int(step)]
            else:
                found = found.get(step) if isinstance(found, dict) else None
        return found


class _SchemaCounter:
    """Counts the schemas that apply to the same value as a schema does."""

    def __init__(self, root: Any) -> None:
        self._graph = _SchemaGraph(root)
        self.parts = self._graph.parts
        if not any(name in part for part in self.parts for name in REFERENCES):
            # Without references, a schema is no larger than its text.
            self.parts = []
        self._counts: dict[int, tuple[int, int]] = {}
        """By the identity of a schema: the count, and how many of these refer back to it."""
        self._open: set[int] = set()

    def count(self, schema: Any) -> int:
        return self._count(schema)[0]

    def _count(self, schema: Any) -> tuple[int, int]:
        if not isinstance(schema, dict):
            return 0, 0
        identity = id(schema)
        if identity in self._open:
            return 1, 1
        if identity in self._counts:
            return self._counts[identity]
        self._open.add(identity)
        total, cycles = 1, 0
        for part in self._graph.iter_applied(schema):
            found, found_cycles = self._count(part)
            total, cycles = total + found, cycles + found_cycles
            if cycles > 1 or total > _MAX_SCHEMAS:
                # Two ways back double the schemas with each turn.
                total = _MAX_SCHEMAS + 1
                break
        self._open.discard(identity)
        self._counts[identity] = total, cycles
        return total, cycles
