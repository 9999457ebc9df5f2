"""Tools from Python functions, and arguments bound to their parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import partial, update_wrapper
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from toolspeak import UsageError, as_tools
from toolspeak.calls.callables import bind_arguments, tool_from_function
from toolspeak.calls.coercion import coerce_arguments


class Station:
    """A class whose method is a tool."""

    def measure(self, what: Literal["wind", "rain"], times: int = 1) -> str:
        """Measure something."""
        return what * times


MEASURE: Any = Station().measure


def test_tool_from_bound_method_has_its_parameters() -> None:
    tool = tool_from_function(MEASURE)
    assert (tool.name, tool.description) == ("measure", "Measure something.")
    assert tool.parameters["required"] == ["what"]


@pytest.mark.parametrize(
    ("function", "left", "required"),
    [
        (partial(MEASURE, "wind"), ["times"], []),
        (partial(MEASURE, times=2), ["what"], ["what"]),
        (partial(partial(MEASURE, "rain"), times=3), [], []),
        (update_wrapper(partial(MEASURE, "wind"), MEASURE), ["times"], []),
    ],
)
def test_tool_from_partial_lacks_filled_parameters(
    function: Any, left: list[str], required: list[str]
) -> None:
    tool = tool_from_function(function)
    assert (tool.name, tool.description) == ("measure", "Measure something.")
    assert list(tool.parameters["properties"]) == left
    assert tool.parameters["required"] == required


def test_tool_from_function_with_unknown_type_raises_with_path() -> None:
    def look_up(city: City, days: int) -> Weather:  # noqa: F821 # pyright: ignore
        raise NotImplementedError

    with pytest.raises(UsageError, match=r"'city' of 'look_up'.*'City'.*\$\[0\].city"):
        as_tools([look_up])
    tool = tool_from_function(partial(look_up, "Oslo"))
    assert tool.parameters["properties"] == {"days": {"type": "integer"}}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: None, "function with a name"),
        (partial(lambda: None), "function with a name"),
        (partial(MEASURE, 1, 2, 3), "too many positional arguments"),
        (partial(MEASURE, place=1), "unexpected keyword argument 'place'"),
    ],
)
def test_tool_from_invalid_function_raises(function: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        as_tools([function])


@dataclass
class Place:
    """A dataclass."""

    latitude: float
    longitude: float = 0.0


class Forecast(msgspec.Struct):
    """A msgspec struct."""

    days: int
    unit: Literal["c", "f"] = "c"


class Person(pydantic.BaseModel):
    """A pydantic model."""

    name: str
    age: Annotated[int, pydantic.Field(ge=0)] = 0


class Colour(Enum):
    RED = "red"


def take_everything(
    place: Place,
    forecast: Forecast,
    person: Person,
    people: list[Person],
    when: date,
    /,
    colour: Colour = Colour.RED,
    tags: set[str] = frozenset(),  # type: ignore[assignment]
    *,
    ratio: float = 0.5,
    note: str | None = None,
) -> None:
    """Take everything."""


GIVEN: dict[str, Any] = {
    "place": {"latitude": 1},
    "forecast": {"days": 3},
    "person": {"name": "Ada"},
    "people": [{"name": "Bob", "age": 4}],
    "when": "2026-01-02",
    "colour": "red",
    "tags": ["a"],
    "ratio": 2,
    "other": "is left out",
}


def test_bind_arguments_converts_to_parameter_types() -> None:
    positional, named = bind_arguments(take_everything, GIVEN)
    assert positional == [
        Place(1.0),
        Forecast(3),
        Person(name="Ada"),
        [Person(name="Bob", age=4)],
        date(2026, 1, 2),
    ]
    assert named == {"colour": Colour.RED, "tags": {"a"}, "ratio": 2.0}


def test_tool_from_function_schema_matches_bound_arguments() -> None:
    schema = tool_from_function(take_everything).parameters
    fitted = {key: value for key, value in GIVEN.items() if key != "other"}
    assert not coerce_arguments(fitted, schema).violations
    faults = coerce_arguments({**fitted, "person": {"age": -1}}, schema).violations
    assert {fault.path for fault in faults} == {"$.person"} | {"$.person.age"}
    assert schema["required"] == ["place", "forecast", "person", "people", "when"]


def test_tool_from_function_schema_shows_plain_defaults() -> None:
    properties = tool_from_function(take_everything).parameters["properties"]
    assert properties["ratio"]["default"] == 0.5
    assert "default" not in properties["note"]


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"place": {"latitude": "north"}}, "$.place.latitude"),
        ({"forecast": {"days": 1, "unit": "k"}}, "$.forecast.unit"),
        ({"person": {}}, "$.person"),
        ({"when": "tomorrow"}, "$.when"),
    ],
)
def test_bind_arguments_of_wrong_type_raises_with_path(given: dict[str, Any], path: str) -> None:
    with pytest.raises(UsageError, match=re.escape(path)):
        bind_arguments(take_everything, given)


def test_bind_arguments_with_var_keyword_keeps_unknown_arguments() -> None:
    def takes(first: int, **rest: Any) -> None: ...

    assert bind_arguments(takes, {"first": 1, "second": 2}) == ([], {"first": 1, "second": 2})


def test_bind_arguments_of_partial_takes_only_free_parameters() -> None:
    filled = partial(MEASURE, "wind")
    assert bind_arguments(filled, {"times": 2, "what": "rain"}) == ([], {"times": 2})


def test_tool_from_function_with_equal_class_names_keeps_both_schemas() -> None:
    def first() -> type:
        @dataclass
        class Item:
            a: int

        return Item

    def second() -> type:
        @dataclass
        class Item:
            b: str

        return Item

    one, other = first(), second()

    def take(x: Any, y: Any) -> None: ...

    take.__annotations__.update(x=one, y=list[other])  # type: ignore[valid-type]
    schema = tool_from_function(take).parameters
    assert not coerce_arguments({"x": {"a": 1}, "y": [{"b": "c"}]}, schema).violations
    assert coerce_arguments({"x": {"b": "c"}, "y": []}, schema).violations


def test_tool_from_function_rejects_unknown_arguments_without_var_keyword() -> None:
    def take(a: int = 1) -> None: ...

    def take_all(a: int = 1, **rest: Any) -> None: ...

    assert coerce_arguments({"aa": 5}, tool_from_function(take).parameters).violations
    assert not coerce_arguments({"aa": 5}, tool_from_function(take_all).parameters).violations


def test_tool_from_function_annotated_type_keeps_description_and_limits() -> None:
    def take(n: Annotated[int, "How many.", msgspec.Meta(le=3)]) -> None: ...

    [schema] = tool_from_function(take).parameters["properties"].values()
    assert schema == {"type": "integer", "maximum": 3, "description": "How many."}


def test_path_parameter_is_a_string_in_schema_and_a_path_when_bound() -> None:
    def take(path: Path, others: list[Path]) -> None: ...

    assert tool_from_function(take).parameters["properties"]["path"]["type"] == "string"
    _, named = bind_arguments(take, {"path": "a/b", "others": ["c"]})
    assert named == {"path": Path("a/b"), "others": [Path("c")]}


def test_tool_from_docstring_joins_continued_descriptions() -> None:
    def take(first: int, second: int) -> None:
        """Take two.

        Args:
            first: The first of them,
                which is long.
            second: The second.

        Returns:
            Nothing.
        """

    properties = tool_from_function(take).parameters["properties"]
    assert properties["first"]["description"] == "The first of them, which is long."
    assert properties["second"]["description"] == "The second."


def test_tool_from_lambda_with_name_is_accepted() -> None:
    assert tool_from_function(eval("lambda x: x"), name="same").name == "same"
