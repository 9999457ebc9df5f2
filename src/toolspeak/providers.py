"""Tools, calls and results in each provider's own shape.

format_tools("anthropic", tools)      parse_tool_calls("ollama", response)
format_tool_result("openai", call_id, name, text)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .errors import UsageError
from .extract import extract
from .native import native
from .tools import as_tools
from .types import Rejection, Tool, ToolCall

Shape = dict[str, Any]


def format_tools(provider: str, tools: Iterable[Any]) -> list[Shape]:
    """The tools as the provider's API takes them."""
    declared = as_tools(tools) or ()
    if _known(provider) == "gemini":
        return [{"functionDeclarations": [_gemini_tool(tool) for tool in declared]}]
    write = _anthropic_tool if provider == "anthropic" else _openai_tool
    return [write(tool) for tool in declared]


def parse_tool_calls(
    provider: str, response: Any, *, rejected: list[Rejection] | None = None
) -> tuple[ToolCall, ...]:
    """The structured calls in a provider's response. One that cannot be read does not spoil the
    others: it is left out, and `rejected`, if given, takes it with the reason."""
    _known(provider)
    if not native(response).drafts:
        return ()
    reply = extract(response)
    if rejected is not None:
        rejected += reply.rejected
    return reply.calls


def format_tool_result(provider: str, call_id: str, name: str, text: str) -> Shape:
    """The message that gives a tool's result back."""
    return _RESULTS[_known(provider)](call_id, name, text)


def _openai_tool(tool: Tool) -> Shape:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _anthropic_tool(tool: Tool) -> Shape:
    schema = tool.parameters or {"type": "object", "properties": {}}
    return {"name": tool.name, "description": tool.description, "input_schema": schema}


def _gemini_tool(tool: Tool) -> Shape:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _openai_result(call_id: str, name: str, text: str) -> Shape:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _anthropic_result(call_id: str, name: str, text: str) -> Shape:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    return {"role": "user", "content": [block]}


def _ollama_result(call_id: str, name: str, text: str) -> Shape:
    return {"role": "tool", "tool_name": name, "content": text}


def _gemini_result(call_id: str, name: str, text: str) -> Shape:
    response = {"name": name, "response": {"result": text}}
    return {"role": "user", "parts": [{"functionResponse": response}]}


_RESULTS: dict[str, Callable[[str, str, str], Shape]] = {
    "openai": _openai_result,
    "openrouter": _openai_result,
    "anthropic": _anthropic_result,
    "ollama": _ollama_result,
    "gemini": _gemini_result,
}


def _known(provider: str) -> str:
    if provider not in _RESULTS:
        raise UsageError(f"there is no provider {provider!r}; known are {', '.join(_RESULTS)}")
    return provider
