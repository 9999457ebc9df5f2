"""Tool declarations in any provider's form, and the names that models call them by."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bench.injection import TRUSTS

from toolspeak import Tool, UsageError, as_tools, augment_system_prompt, extract
from toolspeak.calls.drafts import CallDraft
from toolspeak.calls.resolution import CallResolver
from toolspeak.calls.tools import Toolset
from toolspeak.types import Trust

WAIT = {"type": "function", "name": "wait_agent", "parameters": {"type": "object"}}
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits.",
    "format": {"type": "text"},
}


def test_as_tools_namespace_sets_namespace_of_members() -> None:
    given = [{"type": "namespace", "name": "agents", "tools": [WAIT]}, {"type": "web_search"}]
    expected = Tool(name="wait_agent", parameters={"type": "object"}, namespace="agents")
    assert as_tools(given) == (expected,)


@pytest.mark.parametrize("given", [PATCH, {"type": "custom", "custom": PATCH}])
def test_as_tools_custom_tool_is_freeform(given: Any) -> None:
    (tool,) = as_tools([given]) or (None,)
    assert tool
    assert (tool.name, tool.description, tool.freeform) == ("apply_patch", "Edits.", True)
    assert tool.parameters["required"] == ["input"]


def test_as_tools_custom_tool_with_schema_is_not_freeform() -> None:
    given = {"type": "custom", "name": "add", "input_schema": {"type": "object"}}
    assert as_tools([given]) == (Tool(name="add", parameters={"type": "object"}),)


@pytest.mark.parametrize("text", ["*** Begin Patch", '{"a": 1}', ""])
def test_extract_freeform_call_keeps_its_text(text: str) -> None:
    item = {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": text}
    (call,) = extract({"output": [item]}, tools=[PATCH]).calls
    assert (call.id, call.arguments) == ("c", {"input": text})


def test_as_tools_boolean_schema_allows_any_or_no_arguments() -> None:
    text = '<tool_call>{{"name": "f", "arguments": {}}}</tool_call>'
    with_one, without = text.format('{"a": 1}'), text.format("{}")
    for schema, allowed in ((True, True), (False, False)):
        tools = [{"name": "f", "parameters": schema}]
        assert extract(without, tools=tools).calls
        reply = extract(with_one, tools=tools)
        assert bool(reply.calls) == allowed
        assert [one.code for one in reply.rejected] == ["invalid-arguments"] * (not allowed)


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class _Model:
    """What a pydantic model looks like to a reader of schemas."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return CITY


@pytest.mark.parametrize(
    "key",
    [
        *("parameters", "input_schema", "inputSchema", "parametersJsonSchema"),
        *("parameters_json_schema", "parameters_schema", "schema", "json_schema", "args_schema"),
    ],
)
@pytest.mark.parametrize("schema", [CITY, _Model], ids=["dict", "model"])
def test_as_tools_any_schema_key_is_read(key: str, schema: Any) -> None:
    for declared in ({"name": "f", key: schema}, {"function": {"name": "f", key: schema}}):
        assert as_tools([declared]) == (Tool(name="f", parameters=CITY),)
    assert '"city"' in augment_system_prompt("", [{"name": "f", key: schema}])


@pytest.mark.parametrize(
    "schema", [CITY, {"type": "OBJECT"}, {"properties": {}}, {"$ref": "#/$defs/x", "$defs": {}}]
)
@pytest.mark.parametrize("key", ["shape", "params", "arguments"])
def test_as_tools_schema_under_unknown_key_is_refused(key: str, schema: Any) -> None:
    with pytest.raises(UsageError, match=rf"`{key}` holds a JSON Schema.* at `\$\[0\].{key}`"):
        augment_system_prompt("", [{"name": "f", key: schema}])


@pytest.mark.parametrize(
    "declared",
    [
        {"name": "f"},
        {"name": "f", "parameters": None},
        {"name": "f", "annotations": {"title": "F", "readOnlyHint": True}},
        {"name": "f", "outputSchema": CITY},
        {"name": "f", "response": CITY, "responseJsonSchema": CITY, "returns": CITY},
    ],
)
def test_as_tools_without_schema_allows_any_arguments(declared: Any) -> None:
    assert as_tools([declared]) == (Tool(name="f"),)


# Names.

DECLARED = ("github.create_issue", "files.delete", "files.soft_delete", "get_weather", "a.b.c")


def build_toolset(*names: str) -> Toolset:
    return Toolset(as_tools([{"name": name} for name in names]) or ())


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("github.create_issue", "github.create_issue"),
        ("github_create_issue", "github.create_issue"),
        ("GitHub-Create-Issue", "github.create_issue"),
        ("functions.github.create_issue", "github.create_issue"),
        ("functions.create_issue", "github.create_issue"),
        ("default_api.delete", "files.delete"),
        ("tools.soft_delete", "files.soft_delete"),
        ("multi_tool_use.get_weather", "get_weather"),
        ("functions.get-weather", "get_weather"),
        ("get_weather.get_weather", "get_weather"),
        ("functions.get_weather.get_weather", "get_weather"),
        ("b.c", "a.b.c"),
        ("delete", "files.delete"),
        ("Create-Issue", "github.create_issue"),
        ("tools.B.c", "a.b.c"),
    ],
)
def test_resolve_name_changed_name_gives_declared_name(given: str, meant: str) -> None:
    assert build_toolset(*DECLARED).resolve_name(given) == meant


@pytest.mark.parametrize(
    "given",
    [
        "jira.create_issue",
        "functions.jira.create_issue",
        "trash.delete",
        "x.files.delete",
        "cache.get_weather",
        "soft.delete",
        "weather.get_weather",
        "functions.",
        "x.b.c",
        "get_weather.create_issue",
        "delete.delete",
        "c",
    ],
)
def test_resolve_name_of_other_namespace_gives_none(given: str) -> None:
    assert build_toolset(*DECLARED).resolve_name(given) is None


def test_resolve_name_ambiguous_name_gives_none() -> None:
    toolset = build_toolset("files.delete", "mails.delete")
    assert toolset.resolve_name("functions.delete") is None
    assert toolset.resolve_name("delete") is None


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("name", ["jira.create_issue", "trash.delete", "cache.get_weather"])
def test_extract_call_of_other_namespace_is_rejected(name: str, trust: Trust) -> None:
    text = f"<tool_call>{json.dumps({'name': name, 'arguments': {}})}</tool_call>"
    tools = [{"name": declared} for declared in DECLARED]
    reply = extract(text, tools=tools, dialect="hermes", trust=trust)
    assert not reply.calls
    assert [one.code for one in reply.notes if "tool" in one.code] == ["unknown-tool"]


def test_similar_names_are_searched_for_a_limited_number_of_names_per_reply() -> None:
    toolset = Toolset([Tool(name=f"read_{word}") for word in ("alpha", "beta", "gamma", "delta")])

    def describe(resolver: CallResolver, name: str) -> str:
        rejection = resolver.check(CallDraft(name, {})).rejection
        assert rejection
        return rejection.problem

    resolver = CallResolver(toolset)
    assert "include read_delta" in describe(resolver, "read_deltas")
    for number in range(100):
        describe(resolver, f"read_gamma_{number}")
    assert "include read_delta" in describe(resolver, "read_deltas")
    assert "include read_alpha, read_beta, read_gamma" in describe(resolver, "read_delt")
    assert "include read_delta" in describe(CallResolver(toolset), "read_delt")


@pytest.mark.parametrize("part", [" ", ":1", "<|", "functions.", "tool_call<", "a.", "\\_", ":"])
def test_resolve_name_of_long_name_takes_linear_time(part: str) -> None:
    tools = build_toolset(*DECLARED)
    assert tools.resolve_name(f"a{part * 300_000}b") is None
    assert tools.resolve_name(part * 300_000) is None
