"""The known providers: base URL, wire, key variables and quirks of each.

format_tools("anthropic", tools)      parse_tool_calls("ollama", response)
format_tool_result("openai", call_id, name, text)
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from importlib import resources
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ..calls.tools import as_tools
from ..errors import UsageError
from ..extract import extract_structured
from ..types import Message, Quirks, Rejection, Request, ToolCall, ToolResult
from ..wires import get_wire

Shape = dict[str, Any]


class Provider(Struct, frozen=True, forbid_unknown_fields=True):
    """One row of `providers.toml`."""

    title: str
    wire: str
    base_url: str = ""
    keys: tuple[str, ...] = ()
    tools: bool | Literal["model"] = "model"
    """True if all of its models have native tools, False if none has, "model" if some have."""
    schema: bool = False
    """True if replies can be constrained to a JSON schema."""
    headers: dict[str, str] = {}
    quirks: Quirks = Quirks()


def _load_providers() -> dict[str, Provider]:
    table = resources.files("toolspeak").joinpath("config", "providers.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(table), dict[str, Provider])


PROVIDERS = _load_providers()


def find_provider(name: str) -> Provider:
    """Return the provider of that name; raise `UsageError` if there is none."""
    if name not in PROVIDERS:
        raise UsageError(f"{name!r} is not a known provider; known are {', '.join(PROVIDERS)}")
    return PROVIDERS[name]


# Tools, calls and results in a provider's own format.


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
