"""Finds schemas whose references and choices multiply, so that no validator could ever finish.

    "a": {"anyOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/b"}]},   "b": {"anyOf": …

Each level doubles the schemas that apply to one value: forty levels make a million millions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .json_values import iter_objects
from .schema import CHOICE_KEYWORDS

_MAX_SCHEMAS = 10_000
"""The schemas that may apply to one value; unions of unions have a few hundred."""
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_NAMES = ("$id", "id", "$anchor", "$dynamicAnchor")
_SUBSCHEMAS = ("not", "if", "then", "else")
_SCHEMA_MAPS = ("dependentSchemas", "dependencies")


def is_endless(schema: Any) -> bool:
    """Return True if too many schemas apply to one value, in any part of a schema."""
    try:
        counter = _SchemaCounter(schema)
        return any(counter.count(part) > _MAX_SCHEMAS for part in counter.parts)
    except RecursionError:
        return True


class _SchemaCounter:
    """Counts the schemas that apply to the same value as a schema does."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self.parts = list(iter_objects(root))
        self._counts: dict[int, tuple[int, int]] = {}
        """By the identity of a schema: the count, and how many of these refer back to it."""
        self._open: set[int] = set()
        self._named: dict[str, Any] = {}
        if not any(name in part for part in self.parts for name in _REFERENCES):
            # Without references, a schema is no larger than its text.
            self.parts = []
        for part in self.parts:
            for name in _NAMES:
                if isinstance(part.get(name), str):
                    self._named[part[name].strip("#")] = part

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
        for part in self._iter_applied(schema):
            found, found_cycles = self._count(part)
            total, cycles = total + found, cycles + found_cycles
            if cycles > 1 or total > _MAX_SCHEMAS:
                # Two ways back double the schemas with each turn.
                total = _MAX_SCHEMAS + 1
                break
        self._open.discard(identity)
        self._counts[identity] = total, cycles
        return total, cycles

    def _iter_applied(self, schema: dict[str, Any]) -> Iterator[Any]:
        """Yield the schemas that apply to the same value."""
        for keyword in _REFERENCES:
            if isinstance(reference := schema.get(keyword), str):
                yield self._resolve(reference)
        for keyword in CHOICE_KEYWORDS:
            if isinstance(choices := schema.get(keyword), list):
                yield from choices
        for keyword in _SUBSCHEMAS:
            yield schema.get(keyword)
        for keyword in _SCHEMA_MAPS:
            if isinstance(schemas := schema.get(keyword), dict):
                yield from schemas.values()

    def _resolve(self, reference: str) -> Any:
        address, _, fragment = reference.partition("#")
        for name in (reference, fragment, address, address.rpartition("/")[2]):
            if name and name in self._named:
                return self._named[name]
        found = self._root
        for step in fragment.strip("/").split("/") if fragment.strip("/") else ():
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and step.isdigit() and int(step) < len(found):
                found = found[int(step)]
            else:
                found = found.get(step) if isinstance(found, dict) else None
        return found
