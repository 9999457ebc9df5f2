"""Schemas whose references multiply are found, and found fast; all others are accepted."""

from __future__ import annotations

from typing import Any

import pytest

from toolspeak.gateway.request_limits import is_endless


def chain(levels: int, width: int, keyword: str = "anyOf", last: Any = None) -> dict[str, Any]:
    """Return a schema in which each level refers to the next one several times."""
    parts: dict[str, Any] = {
        f"d{at}": {keyword: [{"$ref": f"#/$defs/d{at + 1}"}] * width} for at in range(levels)
    }
    parts[f"d{levels}"] = last or {"type": "string"}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": parts}


TREE = {
    "type": "object",
    "properties": {"left": {"$ref": "#"}, "right": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
}
ANCHORS = {
    "$ref": "#a0",
    "$defs": {
        f"d{at}": {"$anchor": f"a{at}", "allOf": [{"$ref": f"#a{at + 1}"}] * 2} for at in range(60)
    },
}
CASES: dict[str, tuple[Any, bool]] = {
    "no references": ({"anyOf": [{"type": "string"}] * 20_000}, False),
    "a boolean": (True, False),
    "a chain": (chain(40, 1), False),
    "doubled 40 times": (chain(40, 2), True),
    "doubled 10 times": (chain(10, 2), False),
    "100 choices, 9 levels": (chain(9, 100), True),
    "all of": (chain(40, 2, "allOf"), True),
    "unions of unions": (chain(2, 30), False),
    "a recursive tree": (TREE, False),
    "a reference to itself": ({"properties": {"a": {"$ref": "#/properties/a"}}}, False),
    "two references to itself": ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, True),
    "a reference to nothing": ({"$ref": "#/nowhere"}, False),
    "anchors": (ANCHORS, True),
    "a very long chain": (chain(50_000, 1), True),
    "if, then, else": (
        {
            "$defs": {
                f"d{at}": {key: {"$ref": f"#/$defs/d{at + 1}"} for key in ("if", "then", "else")}
                for at in range(40)
            }
        },
        True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_schema_with_multiplying_references_is_endless(name: str) -> None:
    schema, expected = CASES[name]
    assert is_endless(schema) == expected
