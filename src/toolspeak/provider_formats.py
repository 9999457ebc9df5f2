"""Tools, calls and results in a provider's own format.

format_tools("anthropic", tools)
parse_tool_calls("ollama", response)
format_tool_result("openai", call_id, name, text)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .calls.tools import as_tools
from .config.providers import find_provider
from .extract import extract_structured
from .types import Message, Rejection, Request, ToolCall, ToolResult
from .wires import get_wire

Shape = dict[str, Any]


def format_tools(provider: str, tools: Iterable[Any]) -> list[Shape]:
    """Return tools in the format of the provider's API."""
    request = Request(model="", messages=(), tools=as_tools(tools) or ())
    return get_wire(find_provider(provider).wire).encode_request(request).body.get("tools", [])


def parse_tool_calls(
    provider: str, response: Any, *, rejected: list[Rejection] | None = None
) -> tuple[ToolCall, ...]:
    """Return the structured calls in a provider's response.

    A call that cannot be read is left out and, if `rejected` is given, appended to it.
    """
    find_provider(provider)
    reply = extract_structured(response)
    if rejected is not None:
        rejected += reply.rejected
    return reply.calls


def format_tool_result(provider: str, call_id: str, name: str, text: str) -> Shape:
    """Return the message that sends a tool's result to the model."""
    result = ToolResult(call_id=call_id, name=name, content=text)
    request = Request(model="", messages=(Message("tool", (result,)),))
    body = get_wire(find_provider(provider).wire).encode_request(request).body
    [message] = body.get("messages") or body["contents"]
    return message
