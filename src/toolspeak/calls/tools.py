"""Tool declarations in any provider's form, and the tools of one request.

{"type": "function", "function": {"name", "description", "parameters"}}      OpenAI, Ollama
{"type": "function", "name", "description", "parameters"}                    OpenAI Responses
{"type": "custom", "name", "description"}                                    … freeform: takes text
{"type": "namespace", "name", "tools": [{"type": "function", …}]}            … a group
{"name", "description", "input_schema"}                                      Anthropic, MCP
{"functionDeclarations": [{"name", "description", "parameters"}]}            Gemini
{"name", "description", "schema"}                                            frameworks

A `Toolset` resolves the names that models use and checks arguments:

Toolset(tools).resolve_name("functions.get-weather")   ->   "get_weather"
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any

from msgspec import structs

from ..errors import UsageError
from ..types import Tool
from .callables import tool_from_function
from .coercion import Coercion, coerce_arguments
from .schema import get_properties, is_openapi_schema, to_json_schema

_SCHEMA_KEYS = (
    *("parameters", "input_schema", "inputSchema", "parametersJsonSchema"),
    *("parameters_json_schema", "parameters_schema", "parametersSchema"),
    *("schema", "json_schema", "jsonSchema", "args_schema", "argsSchema"),
)
"""The keys under which APIs and frameworks declare the parameters of a tool."""
_OTHER_SCHEMA = re.compile(r"output|response|result|return", re.I)
"""Matches the keys of a tool's other schemas, such as that of its result."""
_SCHEMA_METHOD = "model_json_schema"
"""The method by which a pydantic model writes its schema."""
_CALLABLE_TYPES = ("function", "custom", None)
_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(
    r"(?<!\b[A-Z]\.[A-Z])(?<!\b[Ee]\.g)(?<!\b[Ii]\.e)(?<!\bvs)(?<!\bcf)(?<!\betc)[.!?](?=\s|$)"
    r"|(?<=\betc)\.(?=\s+[A-Z]|$)|[。！？]"
)
"""The end of a sentence: not after `e.g.` or `U.S.`, and after `etc.` only if another begins."""
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
    return Tool(
        name=name,
        description=description,
        parameters=_read_schema(declared, path),
        aliases=tuple(map(str, declared.get("aliases") or ())),
    )


def _read_schema(declared: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the tool's schema; `true` allows anything, `false` no arguments."""
    for key in _SCHEMA_KEYS:
        schema = declared.get(key)
        if isinstance(schema, type) and callable(write := getattr(schema, _SCHEMA_METHOD, None)):
            schema = write()
        if is_openapi_schema(schema):
            return to_json_schema(schema, key)
        if isinstance(schema, Mapping):
            return dict(schema)
        if schema is False:
            return {"type": "object", "additionalProperties": False}
    for key, value in declared.items():
        if _is_object_schema(value) and not _OTHER_SCHEMA.search(str(key)):
            raise UsageError(
                f"`{key}` holds a JSON Schema, but is no known key: write it as `parameters` - "
                f"at `{path}.{key}`"
            )
    return {}


def _is_object_schema(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    is_object = str(value.get("type")).lower() == "object"
    return is_object or isinstance(value.get("properties"), Mapping) or "$ref" in value


def build_text_schema(form: Any = None) -> dict[str, Any]:
    """Return the schema of a freeform tool. `form` is its grammar, `{"syntax": "lark",
    "definition": …}`, which Chat Completions puts under `grammar`."""
    form = form.get("grammar", form) if isinstance(form, Mapping) else None
    # Some descriptions forbid wrapping the text in JSON, but the call itself needs its syntax.
    about = "The complete input, as plain text. Write the call itself like any other call."
    if isinstance(form, Mapping) and isinstance(form.get("definition"), str):
        rule = _GRAMMAR_RULES.get(str(form.get("syntax")), "follow this grammar")
        about += f"\nThe input must {rule}:\n{form['definition'].strip()}"
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


# The tools of one request.

NAME_PREFIXES = (
    "functions.",
    "function.",
    "tools.",
    "tool.",
    "default_api.",
    "api.",
    "multi_tool_use.",
)
"""Prefixes that models copy from their prompts."""
_PREFIX = re.compile(rf"{'|'.join(map(re.escape, NAME_PREFIXES))}|tool_call[<>]", re.I)
_MAX_PREFIXES = 3
_CONTROL_TOKEN = re.compile(r"<[|｜]")
_CALL_NUMBER = re.compile(r":\d+\Z")
"""Servers leave both after names: `shell<|channel|>commentary`, `shell:0`."""
_SEPARATOR = re.compile(r"[.\-/:\s]+")
_NO_SCHEMA: dict[str, Any] = {}
_NAME_KEY_START = r"""["']?\b(?:name|tool|tool_name|function|action)["']?\s*[:=]\s*["']"""
_NAME_KEY = re.compile(rf"""{_NAME_KEY_START}([^"'\n]+)""")
_NAME_AT_END = re.compile(rf"""{_NAME_KEY_START}([^"'\n]*)\Z""")
_WORD = re.compile(r"[\w./:\-]*\w")
_MAX_SEARCHED = 4000
"""The characters of a broken call that are searched for its name."""


class Toolset:
    """The declared tools of one request; with None, any tool may be called."""

    def __init__(self, tools: Iterable[Tool] | None) -> None:
        self.tools = {tool.name: tool for tool in tools or ()}
        self.names = tuple(self.tools)
        self._by_alias = {
            alias: tool
            for tool in reversed(self.tools.values())
            for alias in tool.aliases
            if alias not in self.tools
        }
        self.declared = None if tools is None else {**self._by_alias, **self.tools}
        """The tools by each name under which they may be called."""

    def resolve_name(self, name: str) -> str | None:
        """Return the declared name that `name` refers to, or None.

        A tool's own name comes first, then its aliases. Changes that providers and prompts make to
        names are undone, if only one tool matches. A namespace may be left out, but must be the
        tool's own: `delete` is `files.delete`, and `cache.delete` is neither.
        """
        if name in self.tools:
            return name
        if self.declared is None:
            return clean_name(name) or None
        variant = name
        for variant in _undo_changes(name):
            if variant in self.declared:
                return self.declared[variant].name
            if found := self._names_by_key.get(_normalize(variant)):
                return found[0] if len(found) == 1 else None
        if "." not in name:
            return self._name_by_last_part.get(_normalize(variant))
        parts = _split_name(variant)
        if len(parts) > 1 and len(set(parts)) == 1:
            # Some prompts put each tool into a namespace of the same name.
            found = self._names_by_key.get(parts[0], [])
        else:
            found = [one for one in self.names if _split_name(one)[-len(parts) :] == parts]
        return found[0] if len(found) == 1 else None

    def has_name(self, name: str) -> bool:
        """Return True if a tool has exactly this name or alias."""
        return self.declared is not None and name in self.declared

    def find_named(self, text: str) -> str | None:
        """Return the tool that a broken call names, by a key for the name or else anywhere in it.

        Without declared tools, that is the value of the key.
        """
        keyed = [match[1] for match in _NAME_KEY.finditer(text, 0, _MAX_SEARCHED)]
        if self.declared is None:
            return keyed[0] if keyed else None
        words = map(clean_name, _WORD.findall(text, 0, _MAX_SEARCHED))
        found = (self.resolve_name(name) for name in keyed)
        named = (name for name in words if name in self.tools)
        return next(filter(None, (*found, *named)), None)

    def is_being_named(self, text: str) -> bool:
        """Return True if a text ends inside the value of a key for the name of a tool."""
        end = _NAME_AT_END.search(text, max(len(text) - _MAX_SEARCHED, 0))
        return end is not None and (not end[1] or self.has_name_starting_with(end[1]))

    def is_declared(self, name: str) -> bool:
        """Return True if the name refers to a declared tool."""
        return self.declared is not None and self.resolve_name(name) is not None

    def has_name_starting_with(self, text: str) -> bool:
        names = (*(self.declared or ()), *self._name_by_last_part)
        return f"\n{text}" in _list_spellings(names)

    def get_schema(self, name: str) -> dict[str, Any]:
        """Return the schema of a tool; an empty one for an unknown tool."""
        tool = self.tools.get(self.resolve_name(name) or "")
        return tool.parameters if tool else _NO_SCHEMA

    def coerce_arguments(self, name: str, arguments: dict[str, Any], source: str) -> Coercion:
        return coerce_arguments(arguments, self.tools[name].parameters, source)

    def find_by_arguments(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return the names of the tools that declare all of these arguments."""
        return [
            tool.name
            for tool in self.tools.values()
            if arguments and arguments.keys() <= get_properties(tool.parameters).keys()
        ]

    def suggest_names(self, name: str) -> list[str]:
        """Return the most similar declared names, or the first ones if none is similar."""
        return difflib.get_close_matches(name, self.names, 3, 0.5) or list(self.names[:3])

    @cached_property
    def _name_by_last_part(self) -> dict[str, str]:
        """Names in a namespace by their last part, if only one tool has it."""
        names: dict[str, list[str]] = {}
        for name in self.names:
            names.setdefault(_split_name(name)[-1], []).append(name)
        return {
            last: found[0]
            for last, found in names.items()
            if len(found) == 1 and "." in found[0] and len(last) > 1
        }

    @cached_property
    def _names_by_key(self) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {}
        for name in self.names:
            names.setdefault(_normalize(name), []).append(name)
        for alias, tool in self._by_alias.items():
            names.setdefault(_normalize(alias), [tool.name])
        return names


ANY_TOOLS = Toolset(None)
"""No tools are known: any may be called."""


@lru_cache(maxsize=256)
def _list_spellings(names: tuple[str, ...]) -> str:
    """Return every spelling of the names on its own line, to search all of them at once."""
    spelled = [spelling for name in names for spelling in (name, *spelling_variants(name))]
    prefixed = (f"{prefix}{spelling}" for prefix in NAME_PREFIXES for spelling in spelled)
    return "\n" + "\n".join((*spelled, *prefixed))


def spelling_variants(name: str) -> tuple[str, ...]:
    """Return the other spellings of a name that occur in text."""
    plain = _SEPARATOR.sub("_", name)
    escaped = name.replace("_", "\\_")
    return tuple(dict.fromkeys(one for one in (plain, escaped) if one != name))


def clean_name(name: str) -> str:
    """Undo the changes to a name where there are no declared tools to compare it with."""
    *_, cleaned = _undo_changes(name)
    return cleaned


def _undo_changes(name: str) -> Iterator[str]:
    """Yield the name with ever more of its changes undone."""
    name = name.strip().replace("\\", "")
    yield name
    start = 0
    for _ in range(_MAX_PREFIXES):
        if prefix := _PREFIX.match(name, start):
            start = prefix.end()
            yield name[start:]
    token = _CONTROL_TOKEN.search(name, start)
    plain = name[: token.start()].rstrip() if token else name
    number = _CALL_NUMBER.search(plain, start)
    plain = plain[: number.start()] if number else plain
    if len(plain) < len(name):
        yield plain
        yield plain[start:]


def _split_name(name: str) -> list[str]:
    """Return the namespaces of a name and its last part."""
    return [_normalize(part) for part in name.split(".")]


def _normalize(name: str) -> str:
    return _SEPARATOR.sub("_", name).lower()
