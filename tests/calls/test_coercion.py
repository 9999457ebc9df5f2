"""Coercion: valid arguments stay unchanged; values that fail are converted or reported."""

from __future__ import annotations

import time
from typing import Any

import pytest

from toolspeak.calls.coercion import coerce_arguments, get_validator

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "id": {"type": "string"},
        "live": {"type": "boolean"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["integer", "boolean"]},
        "mode": {"enum": ["On", "Off"]},
        "version": {"const": 3},
        "days": {"type": "array", "items": {"type": "integer"}},
        "points": {"type": "array", "items": {"$ref": "#/$defs/point"}},
        "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
        "small": {"type": "integer", "format": "uint32"},
        "shape": {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}},
                    "required": ["kind", "r"],
                },
                {"type": "string"},
            ]
        },
        "tags": {"type": "object", "propertyNames": {"maxLength": 3}},
        "names": {"type": "array", "items": {"type": "string"}},
    },
    "$defs": {
        "point": {
            "type": "object",
            "properties": {"x": {"type": "number"}},
            "additionalProperties": False,
        }
    },
}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"count": "3"}, {"count": 3}),
        ({"count": "-3"}, {"count": -3}),
        ({"count": str(10**30)}, {"count": 10**30}),
        ({"ratio": "1.5"}, {"ratio": 1.5}),
        ({"live": "true"}, {"live": True}),
        ({"live": "False"}, {"live": False}),
        ({"id": 7}, {"id": "7"}),
        ({"maybe": "7"}, {"maybe": 7}),
        ({"maybe": "null"}, {"maybe": None}),
        ({"either": "7"}, {"either": 7}),
        ({"either": "true"}, {"either": True}),
        ({"mode": "on"}, {"mode": "On"}),
        ({"version": "3"}, {"version": 3}),
        ({"days": "[1, 2]"}, {"days": [1, 2]}),
        ({"days": 1}, {"days": [1]}),
        ({"days": "1"}, {"days": [1]}),
        ({"days": ["1", 2]}, {"days": [1, 2]}),
        ({"points": [{"x": "1.5"}]}, {"points": [{"x": 1.5}]}),
        ({"points": '[{"x": "1.5"}]'}, {"points": [{"x": 1.5}]}),
        ({"limits": {"a": "1"}}, {"limits": {"a": 1}}),
        ({"small": "7"}, {"small": 7}),
        ({"shape": {"kind": "circle", "r": "2"}}, {"shape": {"kind": "circle", "r": 2}}),
        ({"id": None}, {}),
        ({"names": "a"}, {"names": ["a"]}),
        ({"names": "a, b"}, {"names": ["a, b"]}),
        ({"names": "[x] done"}, {"names": ["[x] done"]}),
        ({"names": "['a', 'b']"}, {"names": ["a", "b"]}),
        ({"names": "[1.10]"}, {"names": ["1.10"]}),
        ({"names": "[]"}, {"names": []}),
    ],
)
def test_coerce_value_of_wrong_type_is_converted(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = coerce_arguments(given, SCHEMA)
    assert found.arguments == expected
    assert found.changes
    assert not found.violations


@pytest.mark.parametrize(
    "given",
    [
        {"id": "7"},
        {"id": "007"},
        {"id": "true"},
        {"id": "[1]"},
        {"count": 10**30},
        {"maybe": None},
        {"shape": "circle"},
        {"undeclared": {"any": "thing"}},
    ],
)
def test_coerce_valid_arguments_are_unchanged(given: dict[str, Any]) -> None:
    found = coerce_arguments(given, SCHEMA)
    assert found.arguments is given
    assert not found.changes


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"count": "three"}, "$.count"),
        ({"count": 1.5}, "$.count"),
        ({"count": True}, "$.count"),
        ({"mode": "maybe"}, "$.mode"),
        ({"days": ["x"]}, "$.days[0]"),
        ({"points": [{"y": 1}]}, "$.points[0]"),
        ({"tags": {"long name": 1}}, "$.tags"),
        ({"shape": {"kind": "square"}}, "$.shape"),
        ({"names": "[a, b]"}, "$.names"),
        ({"names": '["a", "b'}, "$.names"),
        ({"names": ""}, "$.names"),
        ({"names": " "}, "$.names"),
    ],
)
def test_coerce_impossible_value_is_violation_with_path(given: dict[str, Any], path: str) -> None:
    found = coerce_arguments(given, SCHEMA)
    assert [fault.path for fault in found.violations] == [path]
    assert found.arguments == given


def test_coerce_missing_parameter_is_violation() -> None:
    schema = {"type": "object", "properties": {"a": {}}, "required": ["a"]}
    assert coerce_arguments({}, schema).violations[0].problem == '"a" is a required property'


def test_coerce_number_to_string_keeps_its_digits() -> None:
    source = '{"id": 1.10, "ratio": 1.1}'
    assert coerce_arguments({"id": 1.1, "ratio": 1.1}, SCHEMA, source).arguments == {
        "id": "1.10",
        "ratio": 1.1,
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "dict", "properties": {"a": {"type": "float"}}},
        {"type": "object", "properties": {"a": {"type": "number", "pattern": "(?<x"}}},
        {"type": "object", "properties": {"a": {"type": "number"}}, "required": True},
        {"type": "object", "properties": {"a": {"type": "number", "$ref": "http://x.invalid/y"}}},
        {
            "type": "object",
            "properties": {"a": {"type": "number", "minimum": 0, "exclusiveMinimum": True}},
        },
        {"type": "object", "properties": {"a": {"type": ["number", "any"]}}},
    ],
)
def test_coerce_by_sloppy_schema_still_works(schema: dict[str, Any]) -> None:
    found = coerce_arguments({"a": "1.5"}, schema)
    assert found.arguments == {"a": 1.5}
    assert found.is_schema_valid == (
        "exclusiveMinimum" in str(schema)
    )  # That is Draft 4, and fine.


TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"tree": {"$ref": "#/$defs/node"}},
    "$defs": {
        "node": {
            "anyOf": [
                {"type": "integer"},
                {"type": "array", "items": {"$ref": "#/$defs/node"}},
            ]
        }
    },
}


def build_nested(levels: int, value: Any) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def test_coerce_by_recursive_schema_works_at_depth() -> None:
    assert coerce_arguments({"tree": ["1", ["2"]]}, TREE).arguments == {"tree": [1, [2]]}
    assert coerce_arguments({"tree": build_nested(20, "1")}, TREE).arguments == {
        "tree": build_nested(20, 1)
    }
    endless: dict[str, Any] = {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}}
    endless["$defs"] = {"b": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "integer"}]}}
    coerce_arguments({"a": {"x": "y"}}, endless)


@pytest.mark.parametrize("value", ["x", True, {"x": "y"}, ["x"], [["x"]]], ids=repr)
def test_coerce_by_recursive_schema_rejects_unmatched_value(value: Any) -> None:
    [fault] = coerce_arguments({"tree": value}, TREE).violations
    assert fault.path == "$.tree"
    assert "not valid under any" in fault.problem


def test_coerce_to_array_wraps_once() -> None:
    endless = {"type": "array", "items": {"$ref": "#/properties/a"}}
    found = coerce_arguments({"a": 1}, {"type": "object", "properties": {"a": endless}})
    assert [fault.path for fault in found.violations] == ["$.a[0]"]


def test_coerce_by_ambiguous_schema_ends_in_time() -> None:
    lists = [{"type": "array", "minItems": n, "items": {"$ref": "#/$defs/node"}} for n in range(4)]
    schema = {**TREE, "$defs": {"node": {"anyOf": [{"type": "integer"}, *lists]}}}
    started = time.process_time()
    assert coerce_arguments({"tree": build_nested(6, "x")}, schema).violations
    assert time.process_time() - started < 10


def test_coerce_deeply_nested_arguments_is_violation() -> None:
    [fault] = coerce_arguments(
        {"tree": build_nested(5000, 1), "n": "1"}, SCHEMA | {"required": ["x"]}
    ).violations
    assert "nested too deeply" in fault.problem
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(2000):
        deep = {"type": "array", "items": deep}
    [fault] = coerce_arguments({"a": 1}, {"type": "object", "properties": {"a": deep}}).violations
    assert "nested too deeply" in fault.problem


def test_get_validator_of_equal_schemas_compiles_once() -> None:
    assert get_validator(dict(SCHEMA)) is get_validator(dict(SCHEMA))


BROKEN: list[Any] = [
    {"$ref": "#/nowhere"},
    {"anyOf": []},
    {"items": []},
    {"multipleOf": 0},
    {"minLength": "1"},
    {"minimum": "0"},
    {"pattern": "("},
    None,
    "string",
]


@pytest.mark.parametrize("broken", BROKEN, ids=repr)
def test_coerce_by_schema_with_invalid_keyword_applies_the_rest(broken: Any) -> None:
    declared = {"a": broken, "b": {"type": "string"}}
    schema = {"type": "object", "properties": declared, "required": ["b", "b"]}
    found = coerce_arguments({"a": "x", "b": [1]}, schema)
    assert not found.is_schema_valid
    assert [fault.path for fault in found.violations] == ["$.b"]


def test_coerce_properties_named_like_keywords() -> None:
    declared = {"pattern": {"type": "STRING"}, "required": {"type": "INTEGER"}}
    schema = {"type": "OBJECT", "properties": declared, "required": ["pattern"]}
    assert [fault.path for fault in coerce_arguments({"pattern": ["x"]}, schema).violations] == [
        "$.pattern"
    ]
    assert coerce_arguments({"pattern": "x", "required": "1"}, schema).arguments["required"] == 1


def test_coerce_long_list_converts_every_item() -> None:
    schema = {"type": "object", "properties": {"a": {"items": {"type": "integer"}}}}
    assert coerce_arguments({"a": ["1"] * 900}, schema).arguments == {"a": [1] * 900}


def test_coerce_nullable_accepts_null() -> None:
    declared = {"a": {"type": "integer", "nullable": True}, "b": {"enum": ["x"], "type": "string"}}
    schema = {"type": "object", "properties": declared, "required": ["a"]}
    assert not coerce_arguments({"a": None}, schema).violations
    assert coerce_arguments({"a": "three"}, schema).violations


def test_coerce_number_to_string_takes_digits_at_its_path() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"items": {"type": "string"}}},
    }
    source = '{"name": "f", "arguments": {"b": [1.1, 1.10], "a": 5, "c": "a: 5.00"}}'
    given = {"b": [1.1, 1.10], "a": 5, "c": "a: 5.00"}
    assert coerce_arguments(given, schema, source).arguments == {
        "b": ["1.1", "1.10"],
        "a": "5",
        "c": "a: 5.00",
    }


def test_coerce_lone_surrogates_are_checked() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert coerce_arguments({"\ud83d": 1, "n": "\ud83d"}, schema).violations
    assert not coerce_arguments({"\ud83d": 1, "n": 2}, schema).violations


def test_coerce_by_any_of_objects_matches_one_branch() -> None:
    by_id = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    by_name = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    found = coerce_arguments({"id": "3"}, {"anyOf": [by_id, by_name]})
    assert found.arguments == {"id": 3}


def test_coerce_object_to_array_converts_its_members() -> None:
    edit = {"type": "object", "properties": {"old": {"type": "string"}, "n": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"edits": {"type": "array", "items": edit}}}
    assert coerce_arguments({"edits": {"old": "x", "n": "3"}}, schema).arguments == {
        "edits": [{"old": "x", "n": 3}]
    }


# Time.


def build_array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"type": "array", "items": items}}}


def build_nulls(count: int, *, required: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    names = [f"k{number}" for number in range(count)]
    schema = {"type": "object", "properties": {name: {"type": "integer"} for name in names}}
    return dict.fromkeys(names), schema | ({"required": names} if required else {})


def measure_seconds(kind: str, count: int) -> float:
    arguments: dict[str, Any] = {"a": [number + 0.5 for number in range(count)]}
    schema, source = build_array({"type": "string"}), str(arguments)
    match kind:
        case "digits in JSON":
            source = source.replace("'", '"')
        case "digits in other text":
            pass
        case "texts that are numbers":
            arguments = {"a": [f"{number}" for number in range(count)]}
            schema = build_array({"anyOf": [{"type": "integer"}, {"type": "boolean"}]})
        case _:
            arguments, schema = build_nulls(count, required=kind == "nulls that are required")
    start = time.process_time()
    coerce_arguments(arguments, schema, source)
    return time.process_time() - start


@pytest.mark.parametrize(
    "kind",
    [
        "digits in JSON",
        "digits in other text",
        "texts that are numbers",
        "nulls that are required",
        "nulls that are optional",
    ],
)
def test_time_of_many_failing_values_is_linear(kind: str) -> None:
    """Eight times as many may take twenty times as long; quadratic time is sixty-four times."""
    assert any(
        measure_seconds(kind, 960) < 20 * max(measure_seconds(kind, 120), 0.002) for _ in range(3)
    )


def test_optional_nulls_are_all_dropped() -> None:
    arguments, schema = build_nulls(50, required=False)
    coercion = coerce_arguments({**arguments, "k0": "7"}, schema)
    assert (coercion.arguments, coercion.violations) == ({"k0": 7}, ())
    assert len(coercion.changes) == 50


def test_required_null_is_reported_and_others_are_dropped() -> None:
    arguments, schema = build_nulls(3, required=False)
    coercion = coerce_arguments(arguments, schema | {"required": ["k1"]})
    assert coercion.arguments == {"k1": None}
    assert [violation.path for violation in coercion.violations] == ["$.k1"]
