"""Checks of a request before any model is asked: its tools and its tool choice.

    check_tools(request, body)             names, duplicates and schemas, as the client sent them
    check_tool_choice(request, path)       once the tools that it omits are restored

Both raise `WireError` with the path of the field in the client's API.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from .._util import memoize_by_identity
from ..calls.schema import find_schema_problem
from ..errors import WireError
from ..types import Request, Tool
from .fields import HOSTED_TOOLS, Json

_TOOL_FIELDS = ("tools", "functions")
_GROUP_FIELDS = ("function", "custom", "functionDeclarations", "function_declarations", "tools")
"""The fields in which an item of `tools` holds a tool, or several."""
_SCHEMA_FIELDS = (
    *("parameters", "input_schema"),
    *("parametersJsonSchema", "parameters_json_schema"),
)
_MAX_SHOWN_NAMES = 5
_MAX_NAME = 100


class _ToolProblem(Struct, frozen=True):
    """A mistake in the declaration of a tool."""

    name: str
    occurrence: int
    """How many tools before it have the same name."""
    message: str
    schema_path: str | None = None
    """The path in the tool's schema; None if its name is wrong."""


def check_tools(request: Request, body: Json) -> None:
    """Raise if the tools of a request have no name, the same name, or an invalid schema."""
    problem = _find_tool_problem(request.tools) if request.tools else None
    if problem is None:
        return
    found = (one for one in _iter_declarations(body) if one[1].get("name") == problem.name)
    path, tool = next((one for at, one in enumerate(found) if at == problem.occurrence), ("", {}))
    if problem.schema_path is None:
        field = "name"
    else:
        field = next((key for key in _SCHEMA_FIELDS if key in tool), "parameters")
    raise WireError(problem.message, f"{path or '$.tools'}.{field}{problem.schema_path or ''}")


def check_tool_choice(request: Request, path: str) -> None:
    """Raise if the tool choice names a tool that is not declared, or requires a call without any
    tools. `path` is that of the tool choice in the client's API."""
    choice = request.tool_choice
    if choice.mode == "none" or (choice.mode == "auto" and not choice.names):
        return
    hosted = request.extra.get(HOSTED_TOOLS) or ()
    declared = [tool.name for tool in request.tools or ()]
    known = {*declared, *(tool.get("name") for tool in hosted)}
    unknown = [name for name in choice.names if name not in known]
    if unknown:
        shown = ", ".join(declared[:_MAX_SHOWN_NAMES])
        advice = f"name one of the declared tools: {shown}" if shown else "the request has no tools"
        message = f"the tool choice names {unknown[0][:_MAX_NAME]!r}, which is not declared; "
        raise WireError(message + advice, path)
    if not known:
        message = "the tool choice requires a call, but the request has no tools; declare tools, "
        raise WireError(message + "or let the model choose", path)


@memoize_by_identity
def _find_tool_problem(tools: tuple[Tool, ...]) -> _ToolProblem | None:
    seen: set[tuple[str | None, str]] = set()
    counts: dict[str, int] = {}
    for tool in tools:
        key, occurrence = (tool.namespace, tool.name), counts.get(tool.name, 0)
        counts[tool.name] = occurrence + 1
        name = tool.name[:_MAX_NAME]
        if not tool.name.strip():
            message = "the name of a tool is empty; give each tool a name"
            return _ToolProblem(tool.name, occurrence, message)
        if key in seen:
            message = f"the tool {name!r} is declared twice; give each tool a name of its own"
            return _ToolProblem(tool.name, occurrence, message)
        seen.add(key)
        if found := find_schema_problem(tool.parameters):
            path, problem = found
            keyword = f"`{path.rpartition('.')[2]}`" if path else "it"
            message = f"the schema of the tool {name!r} is invalid: {keyword} {problem}"
            return _ToolProblem(tool.name, occurrence, message, path)
    return None


def _iter_declarations(body: Json) -> Iterator[tuple[str, Json]]:
    """Yield the objects that declare tools, in order, each with its path."""
    for field in _TOOL_FIELDS:
        yield from _iter_named(body.get(field), f"$.{field}")


def _iter_named(value: Any, path: str) -> Iterator[tuple[str, Json]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _iter_named(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        if "name" in value:
            yield path, value
        for field in _GROUP_FIELDS:
            if field in value:
                yield from _iter_named(value[field], f"{path}.{field}")
