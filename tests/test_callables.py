"""Tools out of Python functions."""

from __future__ import annotations

from functools import partial, update_wrapper
from typing import Any, Literal

import pytest

from toolspeak import UsageError, as_tools
from toolspeak.callables import tool_of


class Station:
    """Where the weather is measured."""

    def measure(self, what: Literal["wind", "rain"], times: int = 1) -> str:
        """Measure something."""
        return what * times


MEASURE: Any = Station().measure


def test_a_bound_method_is_a_tool() -> None:
    tool = tool_of(MEASURE)
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
def test_what_a_partial_fills_in_is_no_parameter(
    function: Any, left: list[str], required: list[str]
) -> None:
    tool = tool_of(function)
    assert (tool.name, tool.description) == ("measure", "Measure something.")
    assert list(tool.parameters["properties"]) == left
    assert tool.parameters["required"] == required


def test_a_type_that_cannot_be_resolved_is_named() -> None:
    def look_up(city: City, days: int) -> Weather:  # noqa: F821 # pyright: ignore
        raise NotImplementedError

    with pytest.raises(UsageError, match=r"'city' of 'look_up'.*'City'.*\$\[0\].city"):
        as_tools([look_up])
    tool = tool_of(partial(look_up, "Oslo"))
    assert tool.parameters["properties"] == {"days": {"type": "integer"}}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: None, "__name__"),
        (partial(lambda: None), "__name__"),
        (partial(MEASURE, 1, 2, 3), "too many positional arguments"),
        (partial(MEASURE, place=1), "unexpected keyword argument 'place'"),
    ],
)
def test_functions_that_are_no_tools(function: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        as_tools([function])
