"""Schemas whose references multiply are found, and found fast, by themselves or with arguments; all
others are accepted."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from toolspeak.calls.coercion import coerce_arguments
from toolspeak.calls.schema_expansion import is_endless


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


# Schemas that multiply with the depth of the arguments.


def nest(depth: int, leaf: Any = "x", *, in_lists: bool = False) -> Any:
    """Return a value that is nested so deeply."""
    for _ in range(depth):
        leaf = [leaf] if in_lists else {"a": leaf}
    return {"a": leaf} if in_lists else leaf


ITSELF = {"$ref": "#"}
MULTIPLYING: dict[str, tuple[dict[str, Any], bool]] = {
    "any of": ({"properties": {"a": {"anyOf": [ITSELF, ITSELF]}}}, False),
    "all of": ({"properties": {"a": {"allOf": [ITSELF, ITSELF]}}}, False),
    "a property and its pattern": (
        {"properties": {"a": ITSELF}, "patternProperties": {"a": ITSELF}},
        False,
    ),
    "a property and all others": (
        {"patternProperties": {"a": ITSELF, "^a": ITSELF}, "additionalProperties": ITSELF},
        False,
    ),
    "levels that refer to the next one": (
        {
            "$ref": "#/$defs/d0",
            "$defs": {
                f"d{at}": {"properties": {"a": {"oneOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2}}}
                for at in range(60)
            },
        },
        False,
    ),
    "items": (
        {
            "properties": {"a": {"$ref": "#/$defs/list"}},
            "$defs": {
                "list": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/list"}] * 2}}
            },
        },
        True,
    ),
    "first items": (
        {
            "properties": {"a": {"$ref": "#/$defs/list"}},
            "$defs": {
                "list": {
                    "type": "array",
                    "prefixItems": [{"$ref": "#/$defs/list"}],
                    "contains": {"$ref": "#/$defs/list"},
                }
            },
        },
        True,
    ),
}


@pytest.mark.parametrize("leaf", ["x", 5, {}, "as JSON"])
@pytest.mark.parametrize("name", MULTIPLYING)
def test_arguments_that_multiply_their_schema_are_rejected_fast(name: str, leaf: Any) -> None:
    schema, in_lists = MULTIPLYING[name]
    assert not is_endless(schema)
    arguments = nest(60, leaf, in_lists=in_lists)
    if leaf == "as JSON":
        # Text that is read as a value takes as many steps.
        schema = {"properties": {"a": {"type": "object", **schema}}, **schema}
        arguments = {"a": json.dumps(arguments)}
    began = time.process_time()
    coercion = coerce_arguments(arguments, {"type": "object", **schema})
    assert time.process_time() - began < 2
    assert leaf == "as JSON" or "too large" in coercion.violations[0].problem


def test_arguments_that_multiply_a_long_schema_are_rejected() -> None:
    choices = {"anyOf": [{"type": "string", "maxLength": at} for at in range(5000)]}
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": choices}}}
    assert not coerce_arguments({"a": ["x"] * 20}, schema).violations
    (violation,) = coerce_arguments({"a": ["x"] * 50_000}, schema).violations
    assert "too large" in violation.problem


@pytest.mark.parametrize(
    "arguments",
    [
        nest(60, {}),
        {"left": {"left": {}, "right": None}, "right": {"left": {}}},
        {"left": nest(50, {}), "right": {"right": {"left": nest(50, {})}}},
    ],
)
def test_arguments_of_a_recursive_schema_are_valid(arguments: Any) -> None:
    assert not coerce_arguments(arguments, TREE).violations


def test_wrong_values_in_a_long_list_are_coerced() -> None:
    edit = {"type": "object", "properties": {"at": {"type": "integer"}, "all": {"type": "boolean"}}}
    schema = {"type": "object", "properties": {"edits": {"type": "array", "items": edit}}}
    coercion = coerce_arguments({"edits": [{"at": "3", "all": "true"}] * 1000}, schema)
    assert coercion.arguments["edits"] == [{"at": 3, "all": True}] * 1000
