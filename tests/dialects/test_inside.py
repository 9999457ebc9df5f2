"""What stands inside a call's arguments never runs, wherever the call is cut off."""

from __future__ import annotations

import pytest

from tests.support import said
from toolspeak import DIALECTS, Tool, ToolCall, Unrepresentable, render_calls
from toolspeak.testing import chunks, parse

TOOLS = [
    Tool(
        name="write",
        parameters={
            "type": "object",
            "properties": {"text": {"type": "string"}, "path": {"type": "string"}},
        },
    ),
    Tool(name="delete", parameters={"type": "object", "properties": {"path": {"type": "string"}}}),
]
DELETE = ToolCall(id="i", name="delete", arguments={"path": "/"})
INNER = ["hermes", "qwen3_coder", "mistral_args", "glm45", "pythonic", "deepseek_v31", "harmony"]


@pytest.mark.parametrize("mode", ["named", "auto"])
@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_call_in_a_value_is_part_of_the_value(dialect: str, inner: str, mode: str) -> None:
    text = f"See {render_calls(inner, [DELETE], TOOLS)} for that."
    call = ToolCall(id="o", name="write", arguments={"text": text, "path": "/tmp/x"})
    try:
        written = render_calls(dialect, [call], TOOLS)
    except Unrepresentable:
        return
    if mode == "auto" and DIALECTS[dialect].evidence == "prose":
        return  # It does not count there, so what stands in it is all there is.
    options = {"dialect": dialect if mode == "named" else "auto", "tools": TOOLS}
    complete = [("write", call.arguments)]
    for end in range(0, len(written) + 1, 2):
        reply = parse([written[:end]], **options)
        assert said(reply) in ([], complete), written[:end]
    reply = parse(chunks(written, 5), **options)
    assert said(reply) == complete
