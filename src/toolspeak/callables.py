"""A tool out of a Python function: its name, its docstring, and a schema from its type hints."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from .errors import UsageError
from .types import Tool

_SECTION = re.compile(r"^\s*(?:Args|Arguments|Parameters|Params)\s*:?\s*$")
_NEXT_SECTION = re.compile(r"^\s*(?:Returns?|Raises|Yields?|Examples?|Notes?)\s*:?\s*$")
_GOOGLE = re.compile(r"^\s+(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(.+)$")
_SPHINX = re.compile(r"^\s*:param\s+(?:[\w\[\], |]+\s+)?(\w+)\s*:\s*(.+)$")


def tool_of(function: Callable[..., Any], path: str = "$") -> Tool:
    """The tool that a function makes. A parameter without a default is required."""
    name = getattr(function, "__name__", "")
    if not name or name == "<lambda>":
        raise UsageError(f"Expected a function with a name - at `{path}`")
    summary, described = _documented(inspect.getdoc(function) or "")
    hints = get_type_hints(function, include_extras=True)
    properties: dict[str, Any] = {}
    required: list[str] = []
    definitions: dict[str, Any] = {}
    for key, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        schema, shared = _schema_of(hints.get(key, Any), f"{path}.{key}")
        definitions |= shared
        if key in described and "description" not in schema:
            schema["description"] = described[key]
        if parameter.default is parameter.empty:
            required.append(key)
        properties[key] = schema
    parameters: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    if definitions:
        parameters["$defs"] = definitions
    return Tool(name=name, description=summary, parameters=parameters)


def _schema_of(hint: Any, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    description = ""
    if get_origin(hint) is Annotated:
        texts = [extra for extra in get_args(hint)[1:] if isinstance(extra, str)]
        description = texts[0] if texts else ""
        hint = get_args(hint)[0] if texts else hint
    try:
        [schema], shared = msgspec.json.schema_components([hint], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise UsageError(f"{error} - at `{path}`") from None
    return {**schema, "description": description} if description else dict(schema), shared


def _documented(text: str) -> tuple[str, dict[str, str]]:
    """What a docstring says of the function, and of each of its parameters."""
    summary: list[str] = []
    described: dict[str, str] = {}
    section = "summary"
    for line in text.splitlines():
        if _SECTION.match(line):
            section = "parameters"
        elif _NEXT_SECTION.match(line):
            section = "other"
        elif match := _SPHINX.match(line):
            described[match[1]] = match[2].strip()
        elif section == "parameters" and (match := _GOOGLE.match(line)):
            described[match[1].lstrip("*")] = match[2].strip()
        elif section == "summary":
            summary.append(line)
    return "\n".join(summary).strip(), described
