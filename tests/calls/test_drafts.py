"""Calls in decoded JSON: keys, envelopes and forms of arguments; ids of calls."""

from __future__ import annotations

from typing import Any

import pytest

from toolspeak.calls.drafts import CallDraft, decode_arguments, read_drafts
from toolspeak.calls.resolution import new_call_id
from toolspeak.calls.tools import Toolset
from toolspeak.testing import parse, split_into_chunks
from toolspeak.types import Tool

ROWS: list[tuple[Any, list[tuple[str, Any]]]] = [
    ({"name": "f", "arguments": {"a": 1}}, [("f", {"a": 1})]),
    ({"name": "f", "parameters": {"a": 1}}, [("f", {"a": 1})]),
    ({"tool": "f", "parameters": {"a": 1}}, [("f", {"a": 1})]),
    ({"tool_name": "f", "tool_input": {"a": 1}}, [("f", {"a": 1})]),
    ({"action": "f", "action_input": {"a": 1}}, [("f", {"a": 1})]),
    ({"function": "f", "args": {"a": 1}}, [("f", {"a": 1})]),
    ({"function": {"name": "f", "arguments": '{"a": 1}'}}, [("f", {"a": 1})]),
    ({"type": "function", "name": "f", "input": {"a": 1}}, [("f", {"a": 1})]),
    ({"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}, [("f", {})]),
    ({"tool_call": {"name": "f", "arguments": {}}}, [("f", {})]),
    ({"function_call": {"name": "f", "arguments": "{}"}}, [("f", {})]),
    ([{"name": "f"}, {"name": "g"}], [("f", {}), ("g", {})]),
    ({"name": "f", "arguments": '"{\\"a\\": 1}"'}, [("f", {"a": 1})]),
    ({"name": "f", "arguments": ""}, [("f", {})]),
    ({"name": "f", "arguments": None}, [("f", {})]),
    ({"name": "f", "arguments": None, "parameters": {"a": 1}}, [("f", {"a": 1})]),
]
BAD = [
    {"name": "f", "arguments": "[1]"},
    {"name": "f", "arguments": "{broken"},
    {"name": "f", "arguments": 3},
    {"name": "", "arguments": {}},
    {"name": "f", "city": "Oslo"},
    {"arguments": {}},
    {"parameters": {}},
    {"a": 1},
    {"result": {"a": 1}},
    {"name": "f", "parameters": {"type": "object", "properties": {}}},
    "f",
    7,
]


@pytest.mark.parametrize(("value", "calls"), ROWS)
def test_read_drafts_row_gives_expected_drafts(value: Any, calls: list[tuple[str, Any]]) -> None:
    assert [(draft.name, decode_arguments(draft)[0]) for draft in read_drafts(value)] == calls


@pytest.mark.parametrize("value", BAD)
def test_read_drafts_invalid_value_has_problem(value: Any) -> None:
    (draft,) = read_drafts(value)
    arguments, problem, _ = decode_arguments(draft)
    assert draft.problem or (arguments is None and problem)


def test_read_drafts_single_key_is_name_only_if_declared() -> None:
    (draft,) = read_drafts({"f": {"a": 1}}, Toolset([Tool(name="g")]))
    assert draft.problem
    (draft,) = read_drafts({"f": {"a": 1}}, Toolset([Tool(name="f")]))
    assert draft == CallDraft("f", {"a": 1})
    (draft,) = read_drafts({"f": {"a": 1}}, name_is_key=True)
    assert draft == CallDraft("f", {"a": 1})


SHELL = Tool(
    name="shell",
    parameters={"properties": {"command": {"type": "string"}, "type": {"type": "string"}}},
)


@pytest.mark.parametrize(
    ("value", "arguments"),
    [
        ({"name": "shell", "arguments": {}, "command": "ls"}, {"command": "ls"}),
        ({"name": "shell", "arguments": None, "command": "ls"}, {"command": "ls"}),
        ({"command": "ls", "name": "shell", "arguments": ""}, {"command": "ls"}),
        (
            {"name": "shell", "arguments": {"type": "x"}, "command": "y"},
            {"type": "x", "command": "y"},
        ),
    ],
)
def test_extract_arguments_beside_object_are_added(value: Any, arguments: Any) -> None:
    (draft,) = read_drafts(value, Toolset([SHELL]))
    assert draft == CallDraft("shell", arguments, repairs=("arguments-beside-name",))


def test_extract_keys_beside_object_count_only_if_declared() -> None:
    for beside in ({"cmd": "ls"}, {"type": "function"}, {"id": "c1", "index": 0}):
        (draft,) = read_drafts({"name": "shell", "arguments": {}, **beside}, Toolset([SHELL]))
        assert (draft.arguments, draft.repairs) == (None, ())


@pytest.mark.parametrize("arguments", ["validated", "incremental"])
def test_stream_arguments_beside_object_are_added(arguments: str) -> None:
    text = '<tool_call>{"name": "shell", "arguments": {}, "command": "ls"}</tool_call>'
    for size in (1, 3, len(text)):
        reply = parse(split_into_chunks(text, size), tools=[SHELL], arguments=arguments)
        assert [call.arguments for call in reply.calls] == [{"command": "ls"}]
        assert [note.code for note in reply.notes] == ["repaired-arguments-beside-name"]


def test_new_call_id_is_unique() -> None:
    ids = {new_call_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(identity.startswith("call_") and len(identity) >= 17 for identity in ids)


def test_call_draft_is_frozen() -> None:
    with pytest.raises(AttributeError):
        CallDraft("f").name = "g"  # pyright: ignore[reportAttributeAccessIssue]


def test_call_ids_release_frees_the_id() -> None:
    tools = [{"name": "t", "parameters": {"properties": {"a": {"type": "integer"}}}}]
    text = '<tool_call>{"id": "x", "name": "t", "arguments": {"a": "3"}}</tool_call>'
    for arguments in ("validated", "incremental"):
        reply = parse(split_into_chunks(text, 3), tools=tools, arguments=arguments)
        assert [(call.id, call.arguments) for call in reply.calls] == [("x", {"a": 3})]
        assert [note.code for note in reply.notes] == ["coerced"]
