"""Read tool declarations in any provider's shape, or from Python functions.

{"type": "function", "function": {"name", "description", "parameters"}}      OpenAI, Ollama
{"type": "function", "name", "description", "parameters"}                    OpenAI Responses
{"type": "custom", "name", "description"}                                    … freeform: takes text
{"type": "namespace", "name", "tools": [{"type": "function", …}]}            … a group
{"name", "description", "input_schema"}                                      Anthropic, MCP
{"functionDeclarations": [{"name", "description", "parameters"}]}            Gemini

Gemini's own schemas follow OpenAPI and become JSON Schema:

{"type": "STRING", "nullable": true}  ->  {"type": ["string", "null"]}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from msgspec import structs

from ..errors import UsageError, WireError
from ..types import Tool
from .callables import tool_from_function
from .json_values import nesting_depth
from .lenient_json import MAX_DEPTH

_SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema")
_CALLABLE_TYPES = ("function", "custom", None)
_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(
    r"(?<!\b[A-Z]\.[A-Z])(?<!\b[Ee]\.g)(?<!\b[Ii]\.e)(?<!\bvs)(?<!\bcf)(?<!\betc)[.!?](?=\s|$)"
    r"|(?<=\betc)\.(?=\s+[A-Z]|$)|[。！？]"
)
"""Not at `e.g.` or `U.S.`, and at `etc.` only if another sentence begins."""
_HEADINGS = re.compile(r"^[ \t]*(?:#{1,6}[ \t].*|.+\n[ \t]*(?:=+|-{3,})|[-=*_]{3,})[ \t]*$", re.M)
"""Markdown headings and rules, which only repeat the tool's name."""
_LIST_MARKER = re.compile(r"(?:#+|[-*+>]|\d+[.)])\s+")
_CLIENT_TOOL = re.compile(r"(?:bash|text_editor|computer|memory)_\d{8}")
"""Anthropic's tools that the client runs; the model was trained on their schemas."""
_GEMINI_HOSTED = frozenset(
    {
        *("googleSearch", "google_search", "googleSearchRetrieval", "google_search_retrieval"),
        *("googleMaps", "google_maps", "codeExecution", "code_execution", "urlContext"),
        *("url_context", "computerUse", "computer_use", "fileSearch", "file_search"),
    }
)
"""Tools that Gemini runs itself; the key is the name."""
_GEMINI_GROUPS = ("functionDeclarations", "function_declarations")
_GRAMMAR_RULES = {"lark": "follow this Lark grammar", "regex": "match this regular expression"}


def as_tools(tools: Iterable[Any] | None) -> tuple[Tool, ...] | None:
    """Convert tool declarations to `Tool`; None (no tools are known) stays None."""
    if tools is None:
        return None
    if isinstance(tools, tuple) and all(type(tool) is Tool for tool in tools):
        return tools
    if isinstance(tools, Mapping):
        tools = tools.get("tools", [tools])
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise UsageError(f"Expected a list of tools, got `{type(tools).__name__}` - at `$`")
    return tuple(
        tool
        for index, declared in enumerate(tools or ())
        for tool in _read_declaration(declared, f"$[{index}]")
    )


def _read_declaration(declared: Any, path: str) -> Iterator[Tool]:
    if isinstance(declared, Tool):
        yield declared
        return
    if callable(declared):
        yield tool_from_function(declared, path)
        return
    if not isinstance(declared, Mapping):
        raise UsageError(f"Expected a tool, got `{type(declared).__name__}` - at `{path}`")
    for group in _GEMINI_GROUPS:
        if isinstance(declared.get(group), list):
            for index, declaration in enumerate(declared[group]):
                yield _read_tool(declaration, f"{path}.{group}[{index}]")
            return
    kind = declared.get("type", "function")
    if kind == "namespace" and isinstance(declared.get("tools"), list):
        for index, member in enumerate(declared["tools"]):
            for tool in _read_declaration(member, f"{path}.tools[{index}]"):
                yield structs.replace(tool, namespace=declared.get("name"))
        return
    if _CLIENT_TOOL.match(str(kind)):
        yield _read_tool(declared, path)
        return
    if kind not in _CALLABLE_TYPES or (declared and _GEMINI_HOSTED.issuperset(declared)):
        return  # The provider runs it.
    inner = declared.get(kind or "function")
    inner = inner if isinstance(inner, Mapping) else declared
    tool = _read_tool(inner, path)
    if kind == "custom" and not any(key in inner for key in _SCHEMA_KEYS):
        form = inner.get("format")
        schema = build_text_schema(form) | {"additionalProperties": False}
        extra = {"format": form} if form else {}
        tool = structs.replace(tool, parameters=schema, freeform=True, extra=extra)
    yield tool


def _read_tool(declared: Any, path: str) -> Tool:
    name = declared.get("name") if isinstance(declared, Mapping) else None
    if not isinstance(name, str) or not name:
        raise UsageError(f"Expected a tool with a name - at `{path}.name`")
    description = str(declared.get("description") or "")
    return Tool(name=name, description=description, parameters=_read_schema(declared))


def _read_schema(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tool's schema; `true` allows anything, `false` no arguments."""
    for key in _SCHEMA_KEYS:
        schema = declared.get(key)
        if is_openapi_schema(schema):
            return to_json_schema(schema, key)
        if isinstance(schema, Mapping):
            return dict(schema)
        if schema is False:
            return {"type": "object", "additionalProperties": False}
    return {}


def build_text_schema(form: Any = None) -> dict[str, Any]:
    """Return the schema of a freeform tool. `form` is its grammar, `{"syntax": "lark",
    "definition": …}`, which Chat Completions puts under `grammar`."""
    form = form.get("grammar", form) if isinstance(form, Mapping) else None
    # Some descriptions forbid wrapping the text in JSON, but the call itself needs its syntax.
    about = "The complete input, as plain text. Write the call around it like any other call."
    if isinstance(form, Mapping) and isinstance(form.get("definition"), str):
        rule = _GRAMMAR_RULES.get(str(form.get("syntax")), "follow this grammar")
        about += f"\nIt must {rule}:\n{form['definition'].strip()}"
    text = {"type": "string", "description": about}
    return {"type": "object", "properties": {"input": text}, "required": ["input"]}


def get_first_sentence(description: str) -> str:
    """Return the first sentence of a tool's description, on one line, without headings."""
    prose = _HEADINGS.sub("", description).strip() or description.strip()
    paragraph = " ".join(_PARAGRAPH.split(prose, maxsplit=1)[0].split())
    if marker := _LIST_MARKER.match(paragraph):
        paragraph = paragraph[marker.end() :]
    end = _SENTENCE_END.search(paragraph)
    return paragraph[: end.end()] if end else paragraph


def shorten_text(text: str, max_length: int) -> str:
    """Cut a text to `max_length` characters, at the end of a word if it has words."""
    if len(text) <= max_length:
        return text
    words = re.sub(r"\s+\S*$", "", text[:max_length])
    kept = words if 3 * len(words) > max_length else text
    return kept[: max_length - 1].rstrip(" ,;:") + "…"


# OpenAPI schemas.

_OPENAPI_TYPES = {"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"}
_SUBSCHEMAS = {"items", "additionalProperties", "not", "propertyNames", "contains"}
_SCHEMA_LISTS = {"anyOf", "oneOf", "allOf", "prefixItems"}
_SCHEMA_MAPS = {"properties", "patternProperties", "$defs", "definitions", "defs"}
_COUNTS = {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}


@lru_cache(1024)
def to_camel_case(key: str) -> str:
    """Convert a snake_case key to camelCase."""
    return re.sub(r"(?<=[a-z0-9])_([a-z0-9])", lambda match: match[1].upper(), key)


def is_openapi_schema(schema: Any) -> bool:
    """Return whether a schema is in Gemini's OpenAPI form, which writes types in capitals."""
    return isinstance(schema, dict) and schema.get("type") in _OPENAPI_TYPES


def to_json_schema(schema: Any, path: str) -> dict[str, Any]:
    """Convert an OpenAPI schema to JSON Schema."""
    if not isinstance(schema, dict):
        raise WireError("Expected a schema, an `object`", path)
    if nesting_depth(schema) > MAX_DEPTH:
        raise WireError(f"The schema is nested deeper than {MAX_DEPTH} levels", path)
    return _convert_schema(schema)


def _convert_schema(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    converted: dict[str, Any] = {}
    for name, value in schema.items():
        key = name if name.startswith("$") else to_camel_case(name)
        if value is not None or key in ("default", "const"):
            converted[key] = _convert_keyword(key, value)
    if converted.get("type") == "TYPE_UNSPECIFIED":
        del converted["type"]
    return _allow_null(converted) if converted.pop("nullable", None) is True else converted


def _convert_keyword(key: str, value: Any) -> Any:
    if key == "type":
        return _convert_type(value)
    if key in _SUBSCHEMAS or (key in _SCHEMA_LISTS and isinstance(value, dict)):
        return _convert_schema(value)
    if key in _SCHEMA_LISTS and isinstance(value, list):
        return [_convert_schema(item) for item in value]
    if key in _SCHEMA_MAPS and isinstance(value, dict):
        return {name: _convert_schema(item) for name, item in value.items()}
    if key in _COUNTS and isinstance(value, str) and value.isascii() and value.isdigit():
        # Google's JSON writes 64-bit integers as strings.
        return int(value[:20])
    return value


def _convert_type(value: Any) -> Any:
    if isinstance(value, list):
        return [_convert_type(item) for item in value]
    return value.lower() if isinstance(value, str) and value in _OPENAPI_TYPES else value


def _allow_null(schema: dict[str, Any]) -> dict[str, Any]:
    types, choices, values = schema.get("type"), schema.get("anyOf"), schema.get("enum")
    if isinstance(types, str) and types != "null":
        schema["type"] = [types, "null"]
    elif isinstance(types, list) and "null" not in types:
        schema["type"] = [*types, "null"]
    if isinstance(choices, list) and {"type": "null"} not in choices:
        schema["anyOf"] = [*choices, {"type": "null"}]
    if isinstance(values, list) and None not in values:
        schema["enum"] = [*values, None]
    return schema
