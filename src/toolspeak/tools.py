"""Tools as people have them: any provider's shape, or Python functions.

{"type": "function", "function": {"name", "description", "parameters"}}      OpenAI, Ollama
{"type": "function", "name", "description", "parameters"}                    OpenAI Responses
{"type": "custom", "name", "description"}                                    … that takes text
{"type": "namespace", "name", "tools": [{"type": "function", …}]}            … a group of them
{"name", "description", "input_schema"}                                      Anthropic, MCP
{"functionDeclarations": [{"name", "description", "parameters"}]}            Gemini
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import structs

from .callables import tool_of
from .errors import UsageError
from .openapi import is_openapi, plain_schema
from .types import Tool

_SCHEMAS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema")
_CALLABLE = ("function", "custom", None)
_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(
    r"(?<!\b[A-Z]\.[A-Z])(?<!\b[Ee]\.g)(?<!\b[Ii]\.e)(?<!\bvs)(?<!\bcf)(?<!\betc)[.!?](?=\s|$)"
    r"|(?<=\betc)\.(?=\s+[A-Z]|$)"
)
"""Where a sentence ends: not at `e.g.` or `U.S.`, and at `etc.` only if another begins."""
_BY_CLIENT = re.compile(r"(?:bash|text_editor|computer|memory)_\d{8}")
"""Anthropic's tools that the client runs; the model knows their schemas by heart."""
_HOSTED = frozenset(
    {
        *("googleSearch", "google_search", "googleSearchRetrieval", "google_search_retrieval"),
        *("googleMaps", "google_maps", "codeExecution", "code_execution", "urlContext"),
        *("url_context", "computerUse", "computer_use", "fileSearch", "file_search"),
    }
)
"""What Gemini runs itself: there, the name is the key."""
_GROUPS = ("functionDeclarations", "function_declarations")


def as_tools(tools: Iterable[Any] | None) -> tuple[Tool, ...] | None:
    """Tools in Toolspeak's own shape; None stays None: nothing is known of them."""
    if tools is None:
        return None
    if isinstance(tools, tuple) and all(type(tool) is Tool for tool in tools):
        return tools
    if isinstance(tools, Mapping):
        tools = tools.get("tools", [tools])
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise UsageError(f"Expected a list of tools, got `{type(tools).__name__}` - at `$`")
    return tuple(
        tool for index, given in enumerate(tools or ()) for tool in _each(given, f"$[{index}]")
    )


def _each(given: Any, path: str) -> Iterator[Tool]:
    if isinstance(given, Tool):
        yield given
        return
    if callable(given):
        yield tool_of(given, path)
        return
    if not isinstance(given, Mapping):
        raise UsageError(f"Expected a tool, got `{type(given).__name__}` - at `{path}`")
    for group in _GROUPS:
        if isinstance(given.get(group), list):
            for index, declaration in enumerate(given[group]):
                yield _tool(declaration, f"{path}.{group}[{index}]")
            return
    kind = given.get("type", "function")
    if kind == "namespace" and isinstance(given.get("tools"), list):
        for index, member in enumerate(given["tools"]):
            for tool in _each(member, f"{path}.tools[{index}]"):
                yield structs.replace(tool, namespace=given.get("name"))
        return
    if _BY_CLIENT.match(str(kind)):
        yield _tool(given, path)
        return
    if kind not in _CALLABLE or (given and _HOSTED.issuperset(given)):
        return  # One that the provider runs itself.
    inner = given.get(kind or "function")
    inner = inner if isinstance(inner, Mapping) else given
    tool = _tool(inner, path)
    if kind == "custom" and not any(key in inner for key in _SCHEMAS):
        tool = structs.replace(tool, parameters=_text_only(), freeform=True)
    yield tool


def _tool(given: Any, path: str) -> Tool:
    name = given.get("name") if isinstance(given, Mapping) else None
    if not isinstance(name, str) or not name:
        raise UsageError(f"Expected a tool with a name - at `{path}.name`")
    description = str(given.get("description") or "")
    return Tool(name=name, description=description, parameters=_parameters(given))


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's schema. `true` is one too, and allows anything; `false` allows no arguments."""
    for key in _SCHEMAS:
        schema = given.get(key)
        if is_openapi(schema):
            return plain_schema(schema, key)
        if isinstance(schema, Mapping):
            return dict(schema)
        if schema is False:
            return {"type": "object", "additionalProperties": False}
    return {}


def _text_only() -> dict[str, Any]:
    """The schema of a tool that takes text instead of an object."""
    return {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
        "additionalProperties": False,
    }


def first_sentence(description: str) -> str:
    """The first sentence of a tool's description, on one line."""
    paragraph = " ".join(_PARAGRAPH.split(description.strip(), maxsplit=1)[0].split())
    end = _SENTENCE.search(paragraph)
    return paragraph[: end.end()] if end else paragraph
