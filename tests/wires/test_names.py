"""Tool names that an API does not allow are mapped, and mapped back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wires.scenarios import call_events, make_call, reply_events, user_message
from toolspeak import Request, Tool, fold
from toolspeak.wires import WIRES, Envelope, Wire
from toolspeak.wires.encoding import OPENAI_NAMES, ToolNames

ODD = [
    "mcp.files/read",
    "mcp_files_read",
    "crm find",
    "日本",
    "x" * 80,
    "x" * 79 + "y",
    "ok-name_1",
]


def test_tool_names_that_become_equal_stay_different() -> None:
    names = ToolNames([Tool(name=name) for name in ODD], OPENAI_NAMES)
    written = [names.to_wire(name) for name in ODD]
    assert len(set(written)) == len(ODD)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in written)
    assert written[1] == "mcp_files_read"
    assert written[-1] == "ok-name_1"
    found = [names.find_tool(name) for name in written]
    assert [tool.name for tool in found if tool] == ODD
    assert len(names.notes) == 5


@given(st.lists(st.text(min_size=1, max_size=90), unique=True))
def test_tool_name_of_any_text_is_mapped_back(given_names: list[str]) -> None:
    names = ToolNames([Tool(name=name) for name in given_names], OPENAI_NAMES)
    for name in given_names:
        tool = names.find_tool(names.to_wire(name))
        assert tool is not None
        assert tool.name == name


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_reply_names_tools_as_the_request_did(wire: Wire) -> None:
    tools = (
        *(Tool(name=name) for name in ODD),
        Tool(name="find", namespace="crm"),
        Tool(name="find"),
    )
    request = Request(model="m", messages=(user_message("Hi"),), tools=tools)
    sent = wire.encode_request(request)
    events = [
        event
        for index, tool in enumerate(tools)
        for event in call_events(
            index, make_call(f"c{index}", sent.names.to_wire(tool.name, tool.namespace))
        )
    ]
    spaces = {index: tool.namespace for index, tool in enumerate(tools)}
    body = wire.encode_reply(fold(reply_events(*events)), Envelope(request))
    if wire.name == "openai_responses":
        for index, item in enumerate(body["output"]):
            item |= {"namespace": spaces[index]} if spaces[index] else {}
    reply = fold(wire.decode_reply(body, sent.names))
    assert [(made.namespace, made.name) for made in reply.calls] == [
        (tool.namespace, tool.name) for tool in tools
    ]
