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

from ..errors import UsageError
from ..types import Tool
from .callables import tool_from_function
from .openapi import is_openapi_schema, to_json_schema

_SCHEMAS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema")
_CALLABLE = ("function", "custom", None)
_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(
    r"(?<!\b[A-Z]\.[A-Z])(?<!\b[Ee]\.g)(?<!\b[Ii]\.e)(?<!\bvs)(?<!\bcf)(?<!\betc)[.!?](?=\s|$)"
    r"|(?<=\betc)\.(?=\s+[A-Z]|$)|[。！？]"
)
"""Where a sentence ends: not at `e.g.` or `U.S.`, and at `etc.` only if another begins."""
_HEADINGS = re.compile(r"^[ \t]*(?:#{1,6}[ \t].*|.+\n[ \t]*(?:=+|-{3,})|[-=*_]{3,})[ \t]*$", re.M)
"""Markdown's headings and rules, which tell nothing that the name does not."""
_LIST_SIGN = re.compile(r"(?:#+|[-*+>]|\d+[.)])\s+")
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
_SYNTAXES = {"lark": "follow this Lark grammar", "regex": "match this regular expression"}


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
        yield tool_from_function(given, path)
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
        form = inner.get("format")
        schema = build_text_schema(form) | {"additionalProperties": False}
        extra = {"format": form} if form else {}
        tool = structs.replace(tool, parameters=schema, freeform=True, extra=extra)
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
        if is_openapi_schema(schema):
            return to_json_schema(schema, key)
        if isinstance(schema, Mapping):
            return dict(schema)
        if schema is False:
            return {"type": "object", "additionalProperties": False}
    return {}


def build_text_schema(form: Any = None) -> dict[str, Any]:
    """The schema of a tool that takes text instead of an object, with the form that the text has to
    have: `{"syntax": "lark", "definition": …}`, which Chat Completions puts into a `grammar`."""
    form = form.get("grammar", form) if isinstance(form, Mapping) else None
    # Some descriptions say not to wrap the text in JSON, and every call is wrapped in something.
    about = "The whole input, as plain text; the call around it is written as any other is."
    if isinstance(form, Mapping) and isinstance(form.get("definition"), str):
        rule = _SYNTAXES.get(str(form.get("syntax")), "follow this grammar")
        about += f"\nIt has to {rule}:\n{form['definition'].strip()}"
    given = {"type": "string", "description": about}
    return {"type": "object", "properties": {"input": given}, "required": ["input"]}


def get_first_sentence(description: str) -> str:
    """The first sentence of a tool's description, on one line. Headings are none, unless there is
    nothing else."""
    prose = _HEADINGS.sub("", description).strip() or description.strip()
    paragraph = " ".join(_PARAGRAPH.split(prose, maxsplit=1)[0].split())
    if sign := _LIST_SIGN.match(paragraph):
        paragraph = paragraph[sign.end() :]
    end = _SENTENCE.search(paragraph)
    return paragraph[: end.end()] if end else paragraph


def shorten_text(text: str, longest: int) -> str:
    """No more than so many characters of a text, which end with a word where it has words."""
    if len(text) <= longest:
        return text
    words = re.sub(r"\s+\S*$", "", text[:longest])
    kept = words if 3 * len(words) > longest else text
    return kept[: longest - 1].rstrip(" ,;:") + "…"
