"""What a model is told about its tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolspeak import DIALECTS, Tool, augment_system_prompt, extract, render_tools
from toolspeak.tools import first_sentence

TOOLS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "agent_tools.json").read_text()
)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_tells_all_it_has_to(dialect: str) -> None:
    text = augment_system_prompt("Be helpful.", TOOLS, dialect, examples=True)
    assert text.startswith("Be helpful.\n\n")
    for tool in TOOLS:
        assert tool["name"] in text
        assert json.dumps(tool["description"])[1:-1] in text
    for words in ("To call a tool", "wait for it", "answer in plain text", "Do not say that tools"):
        assert words in text
    assert text == augment_system_prompt("Be helpful.", TOOLS, dialect, examples=True)


@pytest.mark.parametrize("base", [None, "", "  \n"])
def test_without_a_base_there_are_only_the_instructions(base: str | None) -> None:
    assert augment_system_prompt(base, TOOLS) == render_tools("tagged", TOOLS)


def test_without_tools_there_is_only_the_base() -> None:
    assert augment_system_prompt("Be helpful.", []) == "Be helpful."


def test_a_compact_list_has_one_line_for_each_tool() -> None:
    lines = render_tools("tagged", TOOLS, compact=True).splitlines()
    assert (
        "- read_file(file_path: string, offset?: integer, limit?: integer) — Reads a file from the "
        "local disk and returns it with line numbers." in lines
    )
    assert sum(line.startswith("- ") for line in lines) == len(TOOLS)


def test_a_compact_list_tells_what_objects_hold() -> None:
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


def test_a_compact_list_is_a_quarter_of_the_full_one() -> None:
    full, compact = (
        len(augment_system_prompt(None, TOOLS, compact=compact)) for compact in (False, True)
    )
    assert compact * 4 <= full


def test_auto_is_compact_where_the_list_is_long() -> None:
    assert augment_system_prompt(None, TOOLS, compact="auto") == augment_system_prompt(
        None, TOOLS, compact=True
    )
    assert augment_system_prompt(None, TOOLS[:1], compact="auto") == augment_system_prompt(
        None, TOOLS[:1]
    )


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
        ("", ""),
    ],
)
def test_the_first_sentence(description: str, sentence: str) -> None:
    assert first_sentence(description) == sentence
    tools = [{"name": "f", "description": description}]
    about = sentence.rstrip(".!?")
    wish = f"use f ({about})." if about else "use f."
    assert f"User: Please {wish}\n" in augment_system_prompt(None, tools, examples=True)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_shown_call_is_a_call(dialect: str) -> None:
    text = render_tools(dialect, TOOLS[1:2])
    shown = text.split("arguments:\n\n")[1].split("\n\nYou will")[0].split("\n\nMake one")[0]
    assert [call.name for call in extract(shown, tools=TOOLS, dialect=dialect).calls] == [
        "read_file"
    ]
