"""Values written as text: their types come from the schema, never from their look."""

from __future__ import annotations

from typing import Any

import pytest

from toolspeak.calls.schema import allowed_types, parse_text_value

DEFS = {"$defs": {"count": {"type": "integer"}, "tree": {"properties": {"n": {}}}}}
ROWS: list[tuple[str, Any, Any]] = [
    ("3", {"type": "integer"}, 3),
    ("3", {"type": "string"}, "3"),
    ("3", {}, "3"),
    ("3", None, "3"),
    ("3.0", {"type": "integer"}, 3),
    ("3.5", {"type": "integer"}, "3.5"),
    (" 420 ", {"type": "integer"}, 420),
    ("0042", {"type": "string"}, "0042"),
    ("1.10", {"type": "number"}, 1.1),
    ("5", {"type": "number"}, 5),
    ("true", {"type": "boolean"}, True),
    ("True", {"type": "boolean"}, True),
    ("true", {"type": "string"}, "true"),
    ("null", {"type": ["string", "null"]}, None),
    ("null", {"type": "string"}, "null"),
    ("x", {"type": ["string", "null"]}, "x"),
    ("5", {"type": ["integer", "string"]}, "5"),
    ("5", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 5),
    ("None", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
    ("[1, 2]", {"type": "array"}, [1, 2]),
    ('{"a": 1}', {"type": "object"}, {"a": 1}),
    ("{'a': 1}", {"type": "object"}, {"a": 1}),
    ('{"a": 1}', {"type": "array"}, '{"a": 1}'),
    ("not json", {"type": "object"}, "not json"),
    (r"[{\"a\": 1}]", {"type": "array"}, [{"a": 1}]),
    ("7", {"$ref": "#/$defs/count"}, 7),
    ('{"n": 1}', {"$ref": "#/$defs/tree"}, {"n": 1}),
    ("2", {"enum": [1, 2, 3]}, 2),
    ("on", {"enum": ["on", "off"]}, "on"),
    ("5", {"type": "INTEGER"}, 5),
    ("12345678901234567890123", {"type": "integer"}, 12345678901234567890123),
]


@pytest.mark.parametrize(("text", "schema", "value"), ROWS)
def test_parse_text_value_row_gives_typed_value(text: str, schema: Any, value: Any) -> None:
    found = parse_text_value(text, schema, DEFS, [])
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "kind", "repairs"),
    [
        ("3", "integer", []),
        ("3.5", "number", []),
        ("+3", "integer", ["python-literal"]),
        (".5", "number", ["python-literal"]),
        ("5.", "number", ["python-literal"]),
        ("True", "boolean", ["python-literal"]),
        ("[1,]", "array", ["trailing-comma"]),
    ],
)
def test_parse_text_value_repair_is_named(text: str, kind: str, repairs: list[str]) -> None:
    taken: list[str] = []
    parse_text_value(text, {"type": kind}, {}, taken)
    assert taken == repairs


def test_resolve_ref_circular_or_dangling_gives_empty_schema() -> None:
    circle = {"$defs": {"a": {"$ref": "#/$defs/a"}, "b": {"anyOf": [{"$ref": "#/$defs/b"}]}}}
    assert allowed_types({"$ref": "#/$defs/a"}, circle) == frozenset()
    assert allowed_types({"$ref": "#/$defs/b"}, circle) == frozenset()
    assert allowed_types({"$ref": "elsewhere.json"}, circle) == frozenset()
