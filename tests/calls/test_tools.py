"""Tools in any provider's shape."""

from __future__ import annotations

from typing import Any

import pytest

from toolspeak import Tool, as_tools, extract

WAIT = {"type": "function", "name": "wait_agent", "parameters": {"type": "object"}}
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits.",
    "format": {"type": "text"},
}


def test_the_tools_in_a_namespace() -> None:
    given = [{"type": "namespace", "name": "agents", "tools": [WAIT]}, {"type": "web_search"}]
    expected = Tool(name="wait_agent", parameters={"type": "object"}, namespace="agents")
    assert as_tools(given) == (expected,)


@pytest.mark.parametrize("given", [PATCH, {"type": "custom", "custom": PATCH}])
def test_a_tool_that_takes_text(given: Any) -> None:
    (tool,) = as_tools([given]) or (None,)
    assert tool
    assert (tool.name, tool.description, tool.freeform) == ("apply_patch", "Edits.", True)
    assert tool.parameters["required"] == ["input"]


def test_a_custom_tool_with_a_schema_is_like_any_other() -> None:
    given = {"type": "custom", "name": "add", "input_schema": {"type": "object"}}
    assert as_tools([given]) == (Tool(name="add", parameters={"type": "object"}),)


@pytest.mark.parametrize("text", ["*** Begin Patch", '{"a": 1}', ""])
def test_the_text_of_a_call_is_text_whatever_it_looks_like(text: str) -> None:
    item = {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": text}
    (call,) = extract({"output": [item]}, tools=[PATCH]).calls
    assert (call.id, call.arguments) == ("c", {"input": text})


def test_schemas_that_are_only_true_or_false() -> None:
    text = '<tool_call>{{"name": "f", "arguments": {}}}</tool_call>'
    with_one, without = text.format('{"a": 1}'), text.format("{}")
    for schema, allowed in ((True, True), (False, False)):
        tools = [{"name": "f", "parameters": schema}]
        assert extract(without, tools=tools).calls
        reply = extract(with_one, tools=tools)
        assert bool(reply.calls) == allowed
        assert [one.code for one in reply.rejected] == ["invalid-arguments"] * (not allowed)
