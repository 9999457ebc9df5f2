"""Tool names as models write them: the same rows for calls in structures and in text, read by the
library, by the engine behind every API (which the gateway and the agent run), and by an agent."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.agent.scripted import Script, make_agent
from tests.engine.support import build_request, prepare, read_reply, user
from tests.wires.scenarios import call_events, reply_events
from toolspeak import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    Message,
    Reply,
    TextDelta,
    Tool,
    ToolCall,
    ToolResult,
    extract,
    fold,
)
from toolspeak.calls.tools import NAME_PREFIXES
from toolspeak.wires import WIRES, Envelope

LS = {"command": "ls"}
_SCHEMA = {
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
}


class Row(NamedTuple):
    """A call as the model writes it, and the calls that it means."""

    name: str
    arguments: Any = LS
    declared: tuple[str, ...] = ("shell", "get_weather")
    calls: tuple[tuple[str, Any], ...] = (("shell", LS),)

    def tools(self) -> tuple[Tool, ...]:
        return tuple(Tool(name=name, parameters=_schema_for(name)) for name in self.declared)


def _schema_for(name: str) -> dict[str, Any]:
    # A tool with the name of a wrapper takes what the wrapper would contain.
    is_wrapper = name in ("tool_call", "Tool_Call", "tool.call", "invoke", "function")
    return {"type": "object"} if is_wrapper else _SCHEMA


INNER = {"name": "shell", "arguments": LS}
BOTH = (("shell", LS), ("get_weather", LS))
TWO = [INNER, {"name": "get_weather", "arguments": LS}]
ROWS = [
    *(
        Row(name)
        for name in (
            *("shell", "Shell", "SHELL", " shell "),
            *("functions.shell", "function.shell", "tool.shell", "tools.shell", "Functions.Shell"),
            *("default_api.shell", "api.shell", "multi_tool_use.shell", "functions.tools.shell"),
            *("functions.shell:0", "shell:12", "shell<|channel|>commentary", "shell <|constrain|>"),
            *("functions.shell:3<|im_end|>", "tool_call<shell", "tool_call>shell", "shell.shell"),
        )
    ),
    *(
        Row(name, calls=(("get_weather", LS),))
        for name in ("get-weather", "get.weather", "get\\_weather", "functions.Get-Weather:1")
    ),
    # A tool's own name comes before everything that it could also mean.
    *(
        Row(name, declared=declared, calls=((name, LS),))
        for declared in (
            *(("a.b", "a_b"), ("a_b", "a.b"), ("a.b", "A.b"), ("tool.shell", "shell")),
            *(("functions.shell", "shell"), ("shell:0", "shell"), ("Shell", "shell")),
            ("tool_call<shell", "shell"),
        )
        for name in declared
    ),
    *(
        Row(name, INNER, (name, "shell"), ((name, INNER),))
        for name in ("tool_call", "tool.call", "invoke", "function")
    ),
    Row("functions.tool_call", INNER, ("tool_call", "shell"), (("tool_call", INNER),)),
    Row("tool_call", INNER, ("Tool_Call", "shell"), (("Tool_Call", INNER),)),
    # Calls inside a call.
    *(
        Row(name, INNER)
        for name in (
            *("tool_call", "tool.call", "toolcall", "function_call", "function.call", "tool_calls"),
            *("functions.tool_call", "tool_call<", "tool_call>x", "invoke", "function"),
        )
    ),
    *(
        Row("tool_call", inner)
        for inner in (
            {"name": "functions.shell", "arguments": LS},
            {"tool": "Shell", "parameters": LS},
            {"name": "shell", "arguments": json.dumps(LS)},
            {"function": INNER},
            {"type": "function", "function": INNER},
            {"tool_calls": [INNER]},
            {"tool_calls": [{"id": "c", "function": INNER}]},
            {"tool_call": INNER},
            {"shell": LS},
            {"tool.shell": LS},
            {"name": "tool_call", "arguments": INNER},
        )
    ),
    Row("tool_call", {"tool_calls": TWO}, calls=BOTH),
    Row("tool_calls", {"tool_calls": TWO}, calls=BOTH),
    *(
        Row(
            name,
            {
                "tool_uses": [
                    {"recipient_name": "functions.shell", "parameters": LS},
                    {"recipient_name": "functions.get_weather", "parameters": LS},
                ]
            },
            calls=BOTH,
        )
        for name in ("multi_tool_use.parallel", "parallel")
    ),
    # Nothing that is declared.
    *(
        Row(name, calls=())
        for name in ("shells", "cache.shell", "functions.cache.shell", "tool.", "shell<b", "")
    ),
    Row("SHELL", declared=("Shell", "shell"), calls=()),
    Row("tool_call", {"name": "cache.shell", "arguments": LS}, calls=()),
    Row("tool_call", LS, calls=()),
]
rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.name}-{row.arguments}"[:70])
wires = pytest.mark.parametrize("wire", WIRES)


def read_structured(row: Row) -> list[Event]:
    call = ToolCall(id="c1", name=row.name, arguments=row.arguments)
    return list(reply_events(*call_events(0, call)))


def write_text(row: Row) -> str:
    return f"<tool_call>{json.dumps({'name': row.name, 'arguments': row.arguments})}</tool_call>"


def list_calls(reply: Reply) -> tuple[tuple[str, Any], ...]:
    return tuple((call.name, call.arguments) for call in reply.calls)


def _name_codes(reply: Reply) -> set[str]:
    return {note.code for note in reply.notes} & {"name-corrected", "repaired-wrapped-call"}


def check(row: Row, reply: Reply) -> None:
    assert list_calls(reply) == row.calls
    is_as_written = [(row.name, row.arguments)] == list(row.calls)
    assert bool(_name_codes(reply)) == bool(row.calls and not is_as_written)


@rows
@wires
def test_extract_structured_name_resolves_as_declared(row: Row, wire: str) -> None:
    reply = fold(read_structured(row))
    body = WIRES[wire].encode_reply(reply, Envelope(build_request()))
    check(row, extract(body, tools=row.tools()))


@rows
def test_extract_name_in_text_resolves_as_declared(row: Row) -> None:
    check(row, extract(write_text(row), tools=row.tools()))


@rows
@wires
@pytest.mark.parametrize("piece", [0, 7])
def test_engine_structured_name_resolves_as_declared(row: Row, wire: str, piece: int) -> None:
    sent = prepare(build_request(tools=row.tools()), wire=wire, mode="native")
    check(row, read_reply(sent, read_structured(row), piece=piece))


@rows
@wires
@pytest.mark.parametrize("piece", [0, 7])
def test_engine_name_in_text_resolves_as_declared(row: Row, wire: str, piece: int) -> None:
    sent = prepare(build_request(tools=row.tools()), wire=wire, mode="prompt", dialect="hermes")
    events = reply_events(TextDelta(write_text(row)))
    check(row, read_reply(sent, events, piece=piece))


@rows
def test_agent_runs_the_tool_that_a_name_resolves_to(row: Row) -> None:
    ran: list[tuple[str, Any]] = []

    def handle_as(name: str) -> Callable[[Any], str]:
        def run(arguments: Any) -> str:
            ran.append((name, arguments))
            return "done"

        return run

    tools = [(tool, handle_as(tool.name)) for tool in row.tools()]
    call = ToolCall(id="c1", name=row.name, arguments=row.arguments)
    model = Script(*[call] * (1 if row.calls else 3), "done")
    make_agent(model, *tools).run_sync("Go.")
    assert tuple(ran) == row.calls


# Forms in which the name is apart from the arguments.

_WRAPPED = json.dumps(INNER)
_PARALLEL = json.dumps({"tool_uses": [{"recipient_name": "functions.shell", "parameters": LS}]})


@pytest.mark.parametrize(
    "text",
    [
        '[TOOL_CALLS]functions.shell:0[ARGS]{"command": "ls"}',
        f"[TOOL_CALLS]tool_call[ARGS]{_WRAPPED}",
        f"<function=tool_call>{_WRAPPED}</function>",
        "<function=functions.shell>\n<parameter=command>\nls\n</parameter>\n</function>",
        '<invoke name="tool.shell"><parameter name="command">ls</parameter></invoke>',
        '<|channel|>commentary to=tool.shell <|message|>{"command":"ls"}<|call|>',
        f"<|channel|>commentary to=multi_tool_use.parallel <|message|>{_PARALLEL}<|call|>",
        '~~~tool_call\n{"name": "functions.shell:0", "arguments": {"command": "ls"}}\n~~~',
        '```json action\n{"tool": "tool.shell", "parameters": {"command": "ls"}}\n```',
        '[functions.shell(command="ls")]',
        '["tool.shell", {"command": "ls"}]',
        '{"tool.shell": {"command": "ls"}}',
    ],
)
def test_extract_name_in_any_form_resolves_as_declared(text: str) -> None:
    reply = extract(text, tools=Row("").tools())
    assert list_calls(reply) == (("shell", LS),)
    assert _name_codes(reply)


@pytest.mark.parametrize("prefix", NAME_PREFIXES)
def test_extract_undeclared_name_loses_its_prefix(prefix: str) -> None:
    row = Row(f"{prefix}shell")
    assert [call.name for call in extract(write_text(row)).calls] == ["shell"]
    assert [call.name for call in extract(_openai_body(row)).calls] == ["shell"]


def _openai_body(row: Row) -> dict[str, Any]:
    return WIRES["openai_chat"].encode_reply(fold(read_structured(row)), Envelope(build_request()))


# Freeform tools.

PATCH = Tool(
    name="apply_patch",
    parameters={
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
    },
    freeform=True,
)


@wires
@pytest.mark.parametrize("piece", [0, 7])
@pytest.mark.parametrize("name", ["apply_patch", "functions.apply_patch", "Apply-Patch:0"])
@pytest.mark.parametrize("key", ["input", "patch"])
def test_engine_freeform_call_by_any_name_is_freeform(
    wire: str, piece: int, name: str, key: str
) -> None:
    sent = prepare(build_request(tools=(PATCH,)), wire=wire, mode="native")
    (call,) = read_reply(sent, read_structured(Row(name, {key: "*** x"})), piece=piece).calls
    assert (call.name, call.freeform, call.arguments) == ("apply_patch", True, {"input": "*** x"})


@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses"])
@pytest.mark.parametrize("piece", [0, 7])
def test_engine_custom_tool_call_with_prefix_is_freeform(wire: str, piece: int) -> None:
    sent = prepare(build_request(tools=(PATCH,)), wire=wire, mode="native")
    call = ToolCall(
        id="c1", name="functions.apply_patch", arguments={"input": "*** x"}, freeform=True
    )
    start = CallStart(0, "c1", call.name, "native", None, freeform=True)
    events = reply_events(start, ArgumentsDelta(0, "*** x"), CallEnd(0, call))
    (made,) = read_reply(sent, events, piece=piece).calls
    assert (made.name, made.freeform, made.input) == ("apply_patch", True, "*** x")


# Namespaces, and results without a name.

FIND = (Tool(name="find", namespace="crm"), Tool(name="find"), Tool(name="crm__find"))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("find", (None, "find")),
        ("functions.find", (None, "find")),
        ("crm.find", ("crm", "find")),
        ("functions.crm.find", ("crm", "find")),
        ("crm__find", (None, "crm__find")),
    ],
)
@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_engine_namespaced_tool_is_called_by_its_full_name(
    name: str, meant: tuple[str | None, str], mode: str
) -> None:
    sent = prepare(build_request(tools=FIND), mode=mode, dialect="hermes")
    row = Row(name, {})
    in_text = reply_events(TextDelta(write_text(row)))
    events = in_text if mode == "prompt" else read_structured(row)
    (call,) = read_reply(sent, events).calls
    assert (call.namespace, call.name) == meant


@pytest.mark.parametrize("dialect", ["tagged", "hermes", "action"])
def test_prompt_result_without_name_has_no_invented_name(dialect: str) -> None:
    result = Message("tool", (ToolResult(call_id="c1", name="", content="7 °C"),))
    sent = prepare(build_request(user("Hi"), result), mode="prompt", dialect=dialect)
    (*_, last) = sent.model_request.messages
    assert "Result:" in str(last.parts)
    assert "_" not in str(last.parts).replace("tool_result", "").replace("tool_response", "")
