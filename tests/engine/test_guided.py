"""What a small model is asked, and what is known without asking it."""

from __future__ import annotations

from typing import Any

import pytest

from toolspeak import Tool
from toolspeak.engine.guided import Guide
from toolspeak.engine.guided.choosing import tasks
from toolspeak.engine.guided.pieces import Question, enumerated, iso, numbers


def tool(name: str, about: str, **parameters: Any) -> Tool:
    """A tool; parameters are given by their types, those with a `?` are optional."""
    fields: dict[str, Any] = {}
    for key, kind in parameters.items():
        schema = {"type": kind.rstrip("?")} if isinstance(kind, str) else kind
        fields[key] = schema
    required = [key for key, kind in parameters.items() if not str(kind).endswith("?")]
    schema = {"type": "object", "properties": fields, "required": required}
    return Tool(name=name, description=about, parameters=schema)


WEATHER = tool("get_weather", "The current weather in a city.", city="string", days="integer?")
AREA = tool("triangle_area", "The area of a triangle.", base="number", height="number")
TIDES = tool("get_tides", "The tides at a harbour.", harbour="string")


def led(question: str, *tools: Tool, said: Any = None, must: bool = False) -> list[Any]:
    """The calls that a question comes to, where the model says that, or else the first of each."""
    guide = Guide(question, tools, must=must)
    steps = 0
    while guide.step:
        fields = guide.step.schema["properties"]
        answer = {key: _first(schema) for key, schema in fields.items()}
        guide.hear({key: (said or {}).get(key, value) for key, value in answer.items()})
        steps += 1
        assert steps < 50
    return [(tool.name, arguments) for tool, arguments in guide.calls]


def _first(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema["type"]
    if kind == "object":
        return {key: _first(item) for key, item in schema["properties"].items()}
    return {"string": "?", "integer": 0, "number": 0.0, "boolean": True, "array": []}[kind]


CALLS: list[tuple[str, tuple[Tool, ...], list[Any]]] = [
    ("How is the weather in Oslo?", (WEATHER,), [("get_weather", {"city": "Oslo"})]),
    (
        "The weather in Oslo, please, for 3 days",
        (WEATHER,),
        [("get_weather", {"city": "Oslo", "days": 3})],
    ),
    (
        "Find the area of a triangle with a base of 10 and a height of 5.",
        (AREA,),
        [("triangle_area", {"base": 10, "height": 5})],
    ),
    (
        "Find the area of a triangle with height 5 and base 10.",
        (AREA,),
        [("triangle_area", {"base": 10, "height": 5})],
    ),
    (
        "What is the weather in Oslo, Rome and New York?",
        (WEATHER,),
        [("get_weather", {"city": city}) for city in ("Oslo", "Rome", "New York")],
    ),
    (
        "What is the weather in Oslo, and what are the tides at the harbour of Bergen?",
        (WEATHER, TIDES),
        [("get_weather", {"city": "Oslo"}), ("get_tides", {"harbour": "Bergen"})],
    ),
    ("Who wrote Hamlet?", (WEATHER, AREA), []),
    ("Hello!", (WEATHER,), []),
    ("What is a triangle?", (AREA,), []),
]


@pytest.mark.parametrize(("question", "tools", "calls"), CALLS, ids=[one[0] for one in CALLS])
def test_calls(question: str, tools: tuple[Tool, ...], calls: list[Any]) -> None:
    assert led(question, *tools) == calls


def test_the_model_chooses_among_the_words_of_the_question() -> None:
    guide = Guide("Is the weather nicer in Oslo than it was on our trip to Rome?", [WEATHER])
    assert guide.step
    assert {"Oslo", "Rome"} <= set(guide.step.schema["properties"]["city"]["enum"])
    assert "Question: Is the weather" in guide.step.user
    guide.hear({"city": "Rome"})
    assert guide.calls == [(WEATHER, {"city": "Rome"})]


def test_a_call_that_is_required_is_made_whatever_is_asked() -> None:
    assert led("Hello!", WEATHER, must=True) == [("get_weather", {"city": "?"})]
    assert led("Hello!", AREA, must=True) == [("triangle_area", {"base": 0.0, "height": 0.0})]


def test_what_is_listed_by_a_schema_is_chosen_from_it() -> None:
    unit = {"type": "string", "enum": ["celsius", "fahrenheit"]}
    weather = tool("get_weather", "The weather in a city.", city="string", unit=unit)
    assert led("The weather in Oslo in Fahrenheit?", weather) == [
        ("get_weather", {"city": "Oslo", "unit": "fahrenheit"})
    ]


@pytest.mark.parametrize("parameters", [{}, {"type": "object"}, {"properties": {}}])
def test_a_tool_without_parameters_is_called_without(parameters: dict[str, Any]) -> None:
    clock = Tool(name="current_time", description="The current time.", parameters=parameters)
    assert led("What is the current time?", clock) == [("current_time", {})]


def test_odd_schemas_are_no_obstacle() -> None:
    odd = {
        "type": "object",
        "properties": {
            "place": {"$ref": "#/$defs/place"},
            "when": {"type": ["string", "null"]},
            "what": {},
            "how": {"anyOf": [{"type": "string"}]},
            "which": {"type": "array"},
            "options": {"type": "object", "properties": {"a": {"type": "object"}, "b": {}}},
        },
        "required": ["place", "when", "what", "how", "which", "options"],
        "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
    }
    search = Tool(name="search_places", description="Search for places.", parameters=odd)
    assert [name for name, _ in led("Search for places in Oslo", search)] == ["search_places"]


def test_tools_share_out_a_question() -> None:
    found = tasks("The weather in Oslo. And the tides at the harbour of Bergen.", [WEATHER, TIDES])
    assert [(task.tool.name, task.text) for task in found] == [
        ("get_weather", "The weather in Oslo. And"),
        ("get_tides", "the tides at the harbour of Bergen."),
    ]


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        ("5 apples", "integer", [5]),
        ("at 5.5 percent", "number", [0.055]),
        ("20%", "integer", [20]),
        ("1,500 dollars", "integer", [1500]),
        ("2.5 million", "integer", [2500000]),
        ("-3 degrees", "integer", [-3]),
        ("three people", "integer", [3]),
        ("no number", "integer", []),
        ("1.5 litres", "integer", []),
    ],
)
def test_numbers(text: str, kind: str, found: list[float]) -> None:
    assert [piece.value for piece in numbers(text, kind)] == found


def test_names_dates_and_quotes() -> None:
    question = Question("Book 'Hotel Sun' in New York City, NY for Ann on March 5th, 2024.")
    assert [piece.value for piece in question.quotes] == ["Hotel Sun"]
    assert [piece.value for piece in question.dates] == ["March 5th, 2024"]
    assert [piece.value for piece in question.names] == ["New York City, NY", "Ann"]
    assert iso("March 5th, 2024") == "2024-03-05"
    assert iso("in March") is None


def test_a_place_is_no_list() -> None:
    question = Question("the weather in Austin, Texas. Then in Oslo and Rome")
    runs = enumerated(question.names, question.text, "name")
    assert [[piece.value for piece in run] for run in runs] == [["Oslo", "Rome"]]
