"""What a model is told about its tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.engine.support import build_request, prepare, user
from toolspeak import (
    DIALECTS,
    Message,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    augment_system_prompt,
    extract,
    render_results,
    render_tools,
)
from toolspeak.calls.tools import get_first_sentence, shorten_text
from toolspeak.dialects.render import sample_call
from toolspeak.engine.prompt import tool_list_budget

TOOLS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "agent_tools.json").read_text()
)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_prompt_in_every_dialect_has_tools_and_rules(dialect: str) -> None:
    text = augment_system_prompt("Be helpful.", TOOLS, dialect, examples=True)
    assert text.startswith("Be helpful.\n\n")
    for tool in TOOLS:
        assert tool["name"] in text
        assert json.dumps(tool["description"])[1:-1] in text
    for words in ("To call a tool", "wait for it", "answer in plain text", "Do not say that tools"):
        assert words in text
    assert text == augment_system_prompt("Be helpful.", TOOLS, dialect, examples=True)


@pytest.mark.parametrize("base", [None, "", "  \n"])
def test_prompt_without_a_base_is_only_instructions(base: str | None) -> None:
    assert augment_system_prompt(base, TOOLS) == render_tools("tagged", TOOLS)


def test_prompt_without_tools_is_only_the_base() -> None:
    assert augment_system_prompt("Be helpful.", []) == "Be helpful."


def test_compact_list_has_one_line_per_tool() -> None:
    lines = render_tools("tagged", TOOLS, compact=True).splitlines()
    assert (
        "- read_file(file_path: string, offset?: integer, limit?: integer) — Reads a file from the "
        "local disk and returns it with line numbers." in lines
    )
    assert sum(line.startswith("- ") for line in lines) == len(TOOLS)


def test_compact_list_describes_nested_parameters() -> None:
    edit = {"type": "object", "properties": {"old": {"type": "string"}, "all": {"const": True}}}
    schema = {
        "type": "object",
        "$defs": {"edit": {**edit, "required": ["old"]}},
        "properties": {
            "edits": {"type": "array", "items": {"$ref": "#/$defs/edit"}},
            "mode": {"enum": list("abcdefgh")},
            "near": {"anyOf": [{"type": "object", "properties": {"km": {"type": "number"}}}]},
            "tags": {"type": "array", "items": {"type": ["string", "null"]}},
        },
        "required": ["edits"],
    }
    listed = render_tools("tagged", [Tool(name="edit", parameters=schema)], compact=True)
    assert (
        '- edit(edits: {old: string, all?: true}[], mode?: "a"|"b"|"c"|"d"|"e"|"f"|…, '
        "near?: {km?: number}, tags?: (null|string)[])" in listed.splitlines()
    )


def test_compact_list_takes_a_quarter_of_the_full_one() -> None:
    full, compact = (
        len(augment_system_prompt(None, TOOLS, compact=compact)) for compact in (False, True)
    )
    assert compact * 4 <= full


def test_compact_auto_with_a_long_list_is_compact() -> None:
    assert augment_system_prompt(None, TOOLS, compact="auto") == augment_system_prompt(
        None, TOOLS, compact=True
    )
    assert augment_system_prompt(None, TOOLS[:1], compact="auto") == augment_system_prompt(
        None, TOOLS[:1]
    )


@pytest.mark.parametrize(
    ("context", "is_compact"),
    [(None, True), (8_192, True), (32_768, True), (131_072, False), (1_000_000, False)],
)
def test_compact_auto_depends_on_the_context(context: int | None, is_compact: bool) -> None:
    tools = TOOLS * 2
    chosen = augment_system_prompt(None, tools, compact="auto", budget=tool_list_budget(context))
    assert chosen == augment_system_prompt(None, tools, compact=is_compact)


GRAMMAR = 'start: "*** Begin" LF\n\nLF: /x/'
PATCH: dict[str, Any] = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files. This is a FREEFORM tool, so do not wrap the patch in JSON.",
    "format": {
        "type": "grammar",
        "syntax": "lark",
        "definition": 'start: "*** Begin" LF\n\nLF: /x/',
    },
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("compact", [True, False])
def test_freeform_tool_is_described_in_full(dialect: str, compact: bool) -> None:
    told = render_tools(dialect, [PATCH, *TOOLS[:1]], compact=compact)
    for words in (PATCH["description"], "Lark grammar", "*** Begin", "LF: /x/"):
        assert words in told
    assert told.count("apply_patch") == 1, "an example would have to make up a text"


def test_compact_list_shows_the_grammar_below_its_tool() -> None:
    lines = render_tools("tagged", [PATCH], compact=True).splitlines()
    at = lines.index(f"- apply_patch(input: string) — {PATCH['description']}")
    assert lines[at + 1 : at + 6] == [
        "  The complete input, as plain text. Write the call itself like any other call.",
        "  The input must follow this Lark grammar:",
        '  start: "*** Begin" LF',
        "",
        "  LF: /x/",
    ]


def test_very_long_grammar_is_shortened() -> None:
    endless = {**PATCH, "format": {"syntax": "regex", "definition": "(a|b) " * 9_999}}
    told = render_tools("tagged", [endless], compact=True)
    assert "The input must match this regular expression:\n  (a|b) (a|b)" in told
    assert len(told) < 5_000
    assert "(a|b)…\n" in told


@pytest.mark.parametrize(
    ("text", "longest", "shown"),
    [
        ("one two", 7, "one two"),
        ("one two three", 11, "one two…"),
        ("one, two, three", 10, "one, two…"),
        ("one two three-four", 16, "one two…"),
        ("averylongword", 6, "avery…"),
        ("a verylongword", 9, "a verylo…"),
        ("天气预报天气预报", 5, "天气预报…"),
    ],
)
def test_shorten_text_ends_at_a_word(text: str, longest: int, shown: str) -> None:
    assert shorten_text(text, longest) == shown
    assert len(shown) <= longest


def test_compact_list_shortens_a_description_at_a_word() -> None:
    tool = Tool(name="f", description="Finds " + "something " * 30)
    [line] = [
        line for line in render_tools("xml", [tool], compact=True).splitlines() if "- f" in line
    ]
    assert line.endswith(" something…")


@pytest.mark.parametrize(
    ("description", "sentence"),
    [
        ("Reads a file. Then more.", "Reads a file."),
        ("Reads a file, e.g. a log. Then more.", "Reads a file, e.g. a log."),
        ("Reads a city (e.g. Oslo). Then more.", "Reads a city (e.g. Oslo)."),
        ("Finds it, i.e. The Thing! Then more.", "Finds it, i.e. The Thing!"),
        ("Lists files, links, etc. in a folder. More.", "Lists files, links, etc. in a folder."),
        ("Lists files, links, etc. Then more.", "Lists files, links, etc."),
        ("Lists files, links, etc.", "Lists files, links, etc."),
        ("Compares a vs. B. Then more.", "Compares a vs. B."),
        ("Finds a U.S. state. Then more.", "Finds a U.S. state."),
        ("Reads version 1.10 of a.txt", "Reads version 1.10 of a.txt"),
        ("Reads a\n  file. Then more.", "Reads a file."),
        ("Reads a file\n\nThen more.", "Reads a file"),
        ("Does it? Yes.", "Does it?"),
        ("# SendMessage\n\nSends a message. More.", "Sends a message."),
        ("# SendMessage\nSends a message. More.", "Sends a message."),
        ("## About\n\n### More\n\n---\n\n- Sends it. More.", "Sends it."),
        ("SendMessage\n===========\n\nSends a message.", "Sends a message."),
        ("SendMessage\n---\nSends a message.", "Sends a message."),
        ("# SendMessage", "SendMessage"),
        ("#hashtags are found. More.", "#hashtags are found."),
        ("1. Reads it. 2. Writes it.", "Reads it."),
        ("读取文件。然后写入。", "读取文件。"),
        ("", ""),
    ],
)
def test_get_first_sentence_of_a_description(description: str, sentence: str) -> None:
    assert get_first_sentence(description) == sentence


@pytest.mark.parametrize("dialect", DIALECTS)
def test_example_call_parses_as_a_call(dialect: str) -> None:
    text = render_tools(dialect, TOOLS[1:2])
    shown = text.split("arguments:\n\n")[1].split("\n\nAfter a call")[0].split("\n\nMake one")[0]
    assert [call.name for call in extract(shown, tools=TOOLS, dialect=dialect).calls] == [
        "read_file"
    ]


def test_examples_request_names_the_arguments_of_its_calls() -> None:
    text = augment_system_prompt(None, TOOLS[1:3], examples=True)
    requests = [line for line in text.splitlines() if line.startswith("User: ")]
    first, second = (tool["name"] for tool in TOOLS[1:3])
    assert requests[0] == f'User: Please use {first} with file_path "notes.txt".'
    assert requests[1].startswith(f'User: Please use {first} with file_path "notes.txt", then use ')
    assert second in requests[1]


def test_examples_with_one_tool_never_repeat_a_call() -> None:
    text = augment_system_prompt(None, TOOLS[1:2], examples=True)
    assert text.count("User: ") == 1
    assert "Example with two calls" not in text


@pytest.mark.parametrize("examples", [True, False])
def test_recited_prompt_before_a_call_makes_only_that_call(examples: bool) -> None:
    recited = augment_system_prompt(None, TOOLS, examples=examples)
    call = '~~~tool_call\n{"name": "read_file", "arguments": {"file_path": "a.txt"}}\n~~~'
    reply = extract(f"{recited}\n\n{call}", tools=TOOLS)
    assert [one.arguments for one in reply.calls] == [{"file_path": "a.txt"}]


@pytest.mark.parametrize(
    ("name", "schema", "value"),
    [
        ("to", {"type": "string"}, "ada@example.com"),
        ("startDate", {"type": "string"}, "2026-01-31"),
        ("when", {"type": "string", "format": "date-time"}, "2026-01-31T09:00:00Z"),
        ("capacity", {"type": "string"}, "example"),
        ("size", {"type": "integer", "minimum": 10}, 10),
        ("unit", {"enum": ["km", "m"]}, "km"),
        ("ratio", {"type": "number", "maximum": 0.5}, 0.5),
        ("labels", {"type": "array", "items": {"type": "string"}}, ["example"]),
        ("paths", {"type": ["null", "array"], "items": {"type": "string"}}, ["notes.txt"]),
    ],
)
def test_sample_call_with_a_known_parameter_shows_a_sensible_value(
    name: str, schema: dict[str, Any], value: Any
) -> None:
    parameters = {"type": "object", "properties": {name: schema}, "required": [name]}
    call = sample_call(Tool(name="f", parameters=parameters), "call_1")
    assert call.arguments == {name: value}


@pytest.mark.parametrize(
    ("first", "second", "schema", "values"),
    [
        (
            "old_text",
            "new_text",
            {"type": "string"},
            "The meeting is at nine|The meeting is at ten",
        ),
        ("opens", "closes", {"format": "time"}, "09:00:00Z|10:00:00Z"),
        ("from", "to", {"enum": ["EUR", "NOK"]}, "EUR|NOK"),
    ],
)
def test_sample_call_with_two_similar_parameters_shows_different_values(
    first: str, second: str, schema: dict[str, Any], values: str
) -> None:
    parameters = {"type": "object", "properties": {first: schema, second: schema}}
    call = sample_call(Tool(name="f", parameters=parameters | {"required": [first, second]}), "")
    assert "|".join(call.arguments.values()) == values


def test_sample_call_of_a_schema_that_contains_itself_ends() -> None:
    node = {"type": "object", "properties": {"inner": {"$ref": "#/$defs/n"}}, "required": ["inner"]}
    call = sample_call(Tool(name="f", parameters={**node, "$defs": {"n": node}}), "call_1")
    assert call.arguments["inner"]


# Results.

RAIN = ToolResult(call_id="c1", name="get_weather", content="rain")
SNOW = ToolResult(call_id="c2", name="get_snow", content="")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_render_results_have_names_ids_and_a_continuation(dialect: str) -> None:
    rendered = render_results(dialect, [RAIN, SNOW])
    # Kimi's ids are made of the name and the number of the call.
    ids = ("get_weather:0", "get_snow:1") if dialect == "kimi_k2" else ("c1", "c2")
    for wanted in ("get_weather", "get_snow", *ids, "rain", "(no output)"):
        assert wanted in rendered
    assert rendered.startswith("Results of ")
    assert rendered.endswith("Otherwise answer the user.")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_render_results_and_the_gateways_prompt_are_the_same(dialect: str) -> None:
    asked = Message("assistant", (ToolCall(id="c1", name="get_weather", arguments={}),))
    sent = prepare(
        build_request(user("Oslo?"), asked, Message("tool", (RAIN,))),
        mode="prompt",
        dialect=dialect,
    )
    text = sent.model_request.messages[-1].parts[-1]
    assert isinstance(text, Text)
    assert text.text == render_results(dialect, [RAIN], with_ids=False)


@pytest.mark.parametrize(
    ("results", "heading"),
    [
        ([RAIN], "Result of get_weather (c1):"),
        ([RAIN, SNOW], "Results of get_weather (c1), get_snow (c2):"),
        ([structs.replace(RAIN, name="")], "Result of c1:"),
        ([structs.replace(RAIN, call_id="")], "Result of get_weather:"),
        ([structs.replace(RAIN, name="", call_id="")], "Result:"),
    ],
)
def test_render_results_heading_names_the_calls(results: list[ToolResult], heading: str) -> None:
    assert render_results("hermes", results).partition("\n")[0] == heading


def test_render_results_without_continuation_or_results() -> None:
    assert "answer the user" not in render_results("hermes", [RAIN], with_continuation=False)
    assert render_results("hermes", []) == ""


CODEX_TOOLS = (
    Tool(name="read", namespace="mcp__files"),
    Tool(name="read", namespace="mcp__mail"),
)
NAMESPACED = ToolCall(id="c1", name="read", namespace="mcp__files", arguments={})


def write_user_turn(*messages: Message) -> str:
    """Return the last message of a conversation in prompt mode."""
    sent = prepare(build_request(*messages, tools=CODEX_TOOLS), mode="prompt")
    return sent.outgoing.body["messages"][-1]["content"]


@pytest.mark.parametrize("name", ["read", "", "other"])
def test_result_is_headed_by_the_name_that_the_tool_was_offered_under(name: str) -> None:
    result = ToolResult(call_id="c1", name=name, content="text of the file")
    conversation = (user("Go."), Message("assistant", (NAMESPACED,)), Message("tool", (result,)))
    assert write_user_turn(*conversation).startswith("Result of mcp__files__read:\n")


def test_result_without_a_call_keeps_its_place() -> None:
    lost = ToolResult(call_id="lost", name="read", content="old text")
    result = ToolResult(call_id="c1", name="read", content="new text")
    rest = (user("First."), Message("tool", (lost,)), user("Second."))
    written = write_user_turn(*rest)
    assert [written.index(text) for text in ("First.", "old text", "Second.")] == sorted(
        written.index(text) for text in ("First.", "old text", "Second.")
    )
    after_call = write_user_turn(
        user("Go."), Message("assistant", (NAMESPACED,)), *rest, Message("tool", (result,))
    )
    places = [after_call.index(text) for text in ("new text", "First.", "old text", "Second.")]
    assert places == sorted(places)


def test_orphan_result_at_the_end_asks_for_the_next_action() -> None:
    lost = ToolResult(call_id="lost", name="read", content="old text")
    assert "Make the next call" in write_user_turn(user("Go."), Message("tool", (lost,)))
    assert "Make the next call" not in write_user_turn(Message("tool", (lost,)), user("Go."))
