"""Small models, which are asked for one decision at a time."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.engine.gateway_support import (
    CHAT,
    OSLO,
    WEATHER_TOOL,
    read_call_arguments,
    text_reply,
    weather_body,
)
from tests.gateway.raw_clients import CLIENTS, Client, ask
from tests.gateway.running_gateway import make_config, run_gateway
from toolspeak import (
    Failure,
    Tool,
)
from toolspeak.engine.guided import Guide
from toolspeak.engine.guided.choosing import tasks
from toolspeak.engine.guided.pieces import Question, enumerated, iso, numbers
from toolspeak.testing import ScriptedServer
from toolspeak.upstream.catalog import is_tiny_model


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


def guide_calls(question: str, *tools: Tool, said: Any = None, must: bool = False) -> list[Any]:
    """Return the calls for a question; the model answers `said`, or the first choice."""
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
def test_guided_question_gives_its_calls(
    question: str, tools: tuple[Tool, ...], calls: list[Any]
) -> None:
    assert guide_calls(question, *tools) == calls


def test_guide_offers_words_of_the_question() -> None:
    guide = Guide("Is the weather nicer in Oslo than it was on our trip to Rome?", [WEATHER])
    assert guide.step
    assert {"Oslo", "Rome"} <= set(guide.step.schema["properties"]["city"]["enum"])
    assert "Question: Is the weather" in guide.step.user
    guide.hear({"city": "Rome"})
    assert guide.calls == [(WEATHER, {"city": "Rome"})]


def test_guide_with_required_call_always_makes_one() -> None:
    assert guide_calls("Hello!", WEATHER, must=True) == [("get_weather", {"city": "?"})]
    assert guide_calls("Hello!", AREA, must=True) == [
        ("triangle_area", {"base": 0.0, "height": 0.0})
    ]


def test_guide_chooses_enum_values() -> None:
    unit = {"type": "string", "enum": ["celsius", "fahrenheit"]}
    weather = tool("get_weather", "The weather in a city.", city="string", unit=unit)
    assert guide_calls("The weather in Oslo in Fahrenheit?", weather) == [
        ("get_weather", {"city": "Oslo", "unit": "fahrenheit"})
    ]


@pytest.mark.parametrize("parameters", [{}, {"type": "object"}, {"properties": {}}])
def test_guide_calls_a_tool_without_parameters(parameters: dict[str, Any]) -> None:
    clock = Tool(name="current_time", description="The current time.", parameters=parameters)
    assert guide_calls("What is the current time?", clock) == [("current_time", {})]


def test_guide_accepts_unusual_schemas() -> None:
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
    assert [name for name, _ in guide_calls("Search for places in Oslo", search)] == [
        "search_places"
    ]


def test_guide_splits_a_question_among_tools() -> None:
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
def test_guide_finds_numbers(text: str, kind: str, found: list[float]) -> None:
    assert [piece.value for piece in numbers(text, kind)] == found


def test_guide_finds_names_dates_and_quotes() -> None:
    question = Question("Book 'Hotel Sun' in New York City, NY for Ann on March 5th, 2024.")
    assert [piece.value for piece in question.quotes] == ["Hotel Sun"]
    assert [piece.value for piece in question.dates] == ["March 5th, 2024"]
    assert [piece.value for piece in question.names] == ["New York City, NY", "Ann"]
    assert iso("March 5th, 2024") == "2024-03-05"
    assert iso("in March") is None


def test_guide_place_with_a_comma_is_no_list() -> None:
    question = Question("the weather in Austin, Texas. Then in Oslo and Rome")
    runs = enumerated(question.names, question.text, "name")
    assert [[piece.value for piece in run] for run in runs] == [["Oslo", "Rome"]]


class TestSmallModel:
    """A small model behind a server that constrains it to schemas."""

    @pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
    def test_small_model_chooses_the_arguments(self, client: Client) -> None:
        body = client.body(
            "Is the weather nicer in Oslo than on our trip to Rome?", tools=WEATHER_TOOL
        )
        with ScriptedServer(text_reply(json.dumps({"city": "Rome"}))) as server:
            with run_gateway(make_config(server.url, tools="constrained", weak=True)) as gateway:
                response = ask(gateway.url, client, body)
            assert read_call_arguments(client, response.raw) == [{"city": "Rome"}]
            [request] = server.requests
        assert request.response_format
        assert request.tools is None
        if not client.stream:
            assert response.headers["x-toolspeak-mode"] == "constrained"
            assert response.headers["x-toolspeak-retries"] == "0"
            assert response.headers["x-toolspeak-notes"] == ""

    @pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
    def test_small_model_is_not_asked_when_nothing_is_left_to_choose(self, client: Client) -> None:
        with ScriptedServer(text_reply("nothing")) as server:
            with run_gateway(make_config(server.url, tools="constrained", weak=True)) as gateway:
                response = ask(gateway.url, client, weather_body(client))
            # A request may be counted only after its response has arrived.
            text = gateway.gateway.metrics.render()
            assert read_call_arguments(client, response.raw) == [OSLO]
            assert server.requests == []
        assert 'toolspeak_notes_total{code="no-model-call"} 1' in text
        if not client.stream:
            assert response.headers["x-toolspeak-notes"] == "no-model-call"

    @pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
    def test_small_model_answers_a_question_without_a_tool(self, client: Client) -> None:
        with ScriptedServer(text_reply("Hello ", "you.")) as server:
            with run_gateway(make_config(server.url, tools="constrained", weak=True)) as gateway:
                response = ask(gateway.url, client, client.body("Hi there", tools=WEATHER_TOOL))
            assert response.text == "Hello you."
            [request] = server.requests
        assert (request.tools, request.response_format) == (None, None)

    @pytest.mark.parametrize(
        "words", ["Mind the gap. ", "当心间隙。", "7 "], ids=["en", "zh", "digits"]
    )
    @pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
    def test_small_model_gets_a_too_long_request_unchanged(
        self, client: Client, words: str
    ) -> None:
        """The server reports the lengths in its error."""
        question = f"{words * 260}How is the weather in Oslo?"
        with ScriptedServer([Failure("context_length", "too long", 400)]) as server:
            config = make_config(server.url, tools="constrained", weak=True, context_window=512)
            with run_gateway(config) as gateway:
                response = ask(gateway.url, client, client.body(question, tools=WEATHER_TOOL))
            assert "too long" in response.raw.decode()
            assert "Oslo" not in response.raw.decode()
            assert all(question in str(request.messages) for request in server.requests)
            assert server.requests

    def test_small_model_gets_the_result_in_words(self) -> None:
        body = weather_body(CHAT)
        function = {"name": "get_weather", "arguments": json.dumps(OSLO)}
        call = {"id": "c1", "type": "function", "function": function}
        body["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "12 degrees"},
        ]
        with ScriptedServer(text_reply("It is 12 degrees.")) as server:
            with run_gateway(make_config(server.url, tools="constrained", weak=True)) as gateway:
                response = ask(gateway.url, CHAT, body)
            assert response.text == "It is 12 degrees."
            assert "12 degrees" in str(server.requests[0].messages[-1])

    @pytest.mark.parametrize("said", ["", "no JSON", "[]", '{"other": 1}'])
    def test_small_model_with_an_unconstrained_reply_falls_back(self, said: str) -> None:
        body = CHAT.body(
            "Is the weather nicer in Oslo than on our trip to Rome?", tools=WEATHER_TOOL
        )
        good = text_reply(json.dumps({"tool": "get_weather", "arguments": OSLO}))
        with ScriptedServer(text_reply(said), good) as server:
            with run_gateway(make_config(server.url, tools="constrained", weak=True)) as gateway:
                response = ask(gateway.url, CHAT, body)
            assert read_call_arguments(CHAT, response.raw) == [OSLO]
            assert len(server.requests) == 2

    def test_larger_model_is_constrained_to_all_tools(self) -> None:
        good = text_reply(json.dumps({"tool": "get_weather", "arguments": OSLO}))
        with ScriptedServer(good) as server:
            with run_gateway(make_config(server.url, tools="constrained")) as gateway:
                response = ask(gateway.url, CHAT, weather_body(CHAT))
            assert read_call_arguments(CHAT, response.raw) == [OSLO]
            assert "get_weather" in str(server.requests[0].response_format)

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("SmolLM2-135M-Instruct.Q4_1", True),
            ("qwen2.5:0.5b", True),
            ("Qwen2.5-0.5B-Instruct", True),
            ("llama3.2:1b", False),
            ("Llama-3.1-8B-Instruct", False),
            ("mixtral-8x7b", False),
            ("gpt-oss:20b", False),
            ("some-model", False),
            ("phi-4-mini", False),
            ("text-2m-context-70b", False),
        ],
    )
    def test_is_tiny_model_goes_by_the_size_in_the_name(self, name: str, expected: bool) -> None:
        assert is_tiny_model(name) == expected


def convert() -> Tool:
    fields: dict[str, Any] = {"amount": {"type": "integer"}, "unit": {"type": "string"}}
    schema = {"type": "object", "properties": fields, "required": ["amount", "unit"]}
    return Tool(name="convert_amounts", description="Convert amounts to units.", parameters=schema)


@pytest.mark.parametrize(
    "question",
    [
        f"Convert amounts {', '.join(map(str, range(200)))} and 3 to the units "
        + ", ".join(f"'u{n}'" for n in range(200)),
        "Convert amounts of Oslo and Rome, 5 and 6. " * 5000,
        "A" * 10**6,
        "Convert " + "the amounts in Oslo " * 50_000,
    ],
    ids=["lists of lists", "long", "one word", "words"],
)
def test_guide_with_a_huge_question_stays_fast(question: str) -> None:
    began = time.perf_counter()
    guide = Guide(question, [convert()])
    steps = 0
    while guide.step and steps < 40:
        fields = guide.step.schema["properties"]
        assert len(json.dumps(guide.step.schema)) < 100_000
        guide.hear({key: one["enum"][0] if "enum" in one else 0 for key, one in fields.items()})
        steps += 1
    assert len(guide.calls) <= 64
    assert time.perf_counter() - began < 20
