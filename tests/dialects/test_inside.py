"""A call inside the arguments of another call is never made, wherever the text is cut off."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.support import Rows, list_calls
from toolspeak import DIALECTS, Tool, ToolCall, Unrepresentable, render_calls
from toolspeak.testing import parse, split_into_chunks

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
@pytest.mark.parametrize("dialect", DIALECTS)
def test_call_in_an_argument_is_never_made(dialect: str, mode: str) -> None:
    if mode == "auto" and DIALECTS[dialect].evidence == "prose":
        return  # The outer call does not count there, so the inner one is all there is.
    parser = dialect if mode == "named" else "auto"
    rows = Rows()
    for inner in INNER:
        text = f"See {render_calls(inner, [DELETE], TOOLS)} for that."
        call = ToolCall(id="o", name="write", arguments={"text": text, "path": "/tmp/x"})
        with rows.row(inner):
            try:
                written = render_calls(dialect, [call], TOOLS)
            except Unrepresentable:
                continue
            complete = [("write", call.arguments)]
            for end in range(0, len(written) + 1, 2):
                assert read_calls(written[:end], parser) in ([], complete), written[:end]
            reply = parse(split_into_chunks(written, 5), dialect=parser, tools=TOOLS)
            assert list_calls(reply) == complete
    rows.assert_passed()


@cache
def read_calls(text: str, dialect: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls of a text. Rows share many beginnings: each one is parsed only once."""
    return list_calls(parse([text], dialect=dialect, tools=TOOLS))
