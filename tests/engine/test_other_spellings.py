"""Calls that a model writes in a form, or under a name, that it was not asked to use."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.engine.support import build_request, prepare, read_reply
from toolspeak import (
    DIALECTS,
    CallEnd,
    CallStart,
    Event,
    Finish,
    Started,
    TextDelta,
    Tool,
    ToolCall,
    Unrepresentable,
    extract,
    render_calls,
)
from toolspeak.testing import parse

SCHEMA = {
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
}
SHELL = Tool(name="shell", parameters=SCHEMA, aliases=("bash", "run"))
BASH = Tool(name="bash", parameters=SCHEMA)
LS = {"command": "ls -la"}
WIRES = ["openai_chat", "openai_responses", "anthropic", "ollama", "gemini"]


def text_events(text: str, stop: Literal["stop", "length"] = "stop") -> list[Event]:
    return [Started("id", "m"), TextDelta(text), Finish(stop)]


def call_events(name: str) -> list[Event]:
    call = ToolCall(id="c1", name=name, arguments=LS)
    return [Started("id", "m"), CallStart(0, "c1", name), CallEnd(0, call), Finish("calls")]


@pytest.mark.parametrize("piece", [0, 7])
@pytest.mark.parametrize("mode", ["prompt", "native"])
@pytest.mark.parametrize("model", ["glm-4", "zai-org/GLM-4.6", "GLM-4.7-Flash", "chatglm3-6b"])
@pytest.mark.parametrize("line", ["shell/command>ls -la", 'I look.\nshell/{"command": "ls -la"}\n'])
def test_line_call_of_a_glm_model_is_made(model: str, mode: str, line: str, piece: int) -> None:
    attempt = prepare(build_request(tools=(SHELL,)), model=model, mode=mode)
    reply = read_reply(attempt, text_events(line), piece=piece)
    assert [(call.name, call.arguments) for call in reply.calls] == [("shell", LS)]


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        ("See https://example.com/shell/command>ls", {"model": "glm-4.5"}),
        ("nothing/command>ls", {"model": "glm-4.5"}),
        ("shell/command>ls -la", {"model": "glm-4.5", "trust": "strict"}),
        ("shell/command>ls -la", {"model": "qwen3-8b"}),
    ],
)
def test_line_call_elsewhere_stays_text(text: str, profile: dict[str, str]) -> None:
    attempt = prepare(build_request(tools=(SHELL,)), mode="prompt", **profile)
    reply = read_reply(attempt, text_events(text))
    assert (reply.calls, reply.text) == ((), text)


def test_line_call_that_the_token_limit_cut_off_is_not_made() -> None:
    attempt = prepare(build_request(tools=(SHELL,)), model="glm-4.5", mode="prompt")
    reply = read_reply(attempt, text_events("shell/command>rm -rf b", "length"))
    assert (reply.calls, [one.code for one in reply.rejected]) == ((), ["truncated"])


def test_line_dialect_is_read_and_not_taught() -> None:
    plans = [
        prepare(build_request(), model=model, mode="prompt").plan
        for model in ("glm-4", "glm-4.5", "plain-7b")
    ]
    assert [plan.dialect for plan in plans] == ["tagged", "glm45", "tagged"]
    assert [plan.other_dialects for plan in plans] == [("glm-line",), ("glm-line",), ()]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_alias_in_text_is_the_tool_in_every_dialect(dialect: str) -> None:
    try:
        text = render_calls(dialect, [ToolCall(id="i", name="bash", arguments=LS)], [BASH])
    except Unrepresentable:
        pytest.skip("this dialect cannot write the call")
    found = parse([text], tools=[SHELL], dialect=dialect).calls
    assert [(call.name, call.arguments) for call in found] == [("shell", LS)]
    assert parse([text], tools=[SHELL, BASH], dialect=dialect).calls[0].name == "bash"


@pytest.mark.parametrize("piece", [0, 7])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", ["bash", "Bash"])
def test_configured_alias_is_the_tool_on_every_wire(name: str, wire: str, piece: int) -> None:
    tool = Tool(name="mcp.shell", parameters=SCHEMA)
    request = build_request(tools=(tool,))
    attempt = prepare(request, wire=wire, mode="native", tool_aliases={"bash": "mcp.shell"})
    reply = read_reply(attempt, call_events(name), piece=piece)
    assert [(call.name, call.arguments) for call in reply.calls] == [("mcp.shell", LS)]


def test_alias_is_unknown_by_default() -> None:
    declared = {"name": "shell", "parameters": SCHEMA}
    text = '<tool_call>{"name": "bash", "arguments": {"command": "ls -la"}}</tool_call>'
    assert [one.code for one in extract(text, tools=[declared]).rejected] == ["unknown-tool"]
    named = {**declared, "aliases": ["bash"]}
    assert [call.name for call in extract(text, tools=[named]).calls] == ["shell"]


def test_alias_that_several_tools_have_is_the_first_ones() -> None:
    other = Tool(name="terminal", parameters=SCHEMA, aliases=("run",))
    text = '<tool_call>{"name": "run", "arguments": {"command": "ls -la"}}</tool_call>'
    assert [call.name for call in parse([text], tools=[SHELL, other]).calls] == ["shell"]
