"""Build a tool from a Python function: its name, its docstring, and a schema from its type hints.

tool_from_function(get_weather)
tool_from_function(partial(get_weather, unit="c"))
tool_from_function(station.get_weather)
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from pathlib import PurePath
from types import SimpleNamespace
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from ..errors import UsageError
from ..types import Tool

_PARAMETERS_HEADING = re.compile(r"^\s*(?:Args|Arguments|Parameters|Params)\s*:?\s*$")
_OTHER_HEADING = re.compile(r"^\s*(?:Returns?|Raises|Yields?|Examples?|Notes?)\s*:?\s*$")
_CONTINUATION = " " * 6
"""Lines indented deeper than a parameter's name continue its description."""
_GOOGLE_PARAMETER = re.compile(r"^\s+(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(.+)$")
_SPHINX_PARAMETER = re.compile(r"^\s*:param\s+(?:[\w\[\], |]+\s+)?(\w+)\s*:\s*(.+)$")
_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_SHOWN_DEFAULTS = (str, int, float)
"""Types of defaults that the schema shows. A default of None is not shown: it only means that the
parameter is optional."""


def tool_from_function(function: Callable[..., Any], path: str = "$", name: str = "") -> Tool:
    """Build the tool that calls a function. Parameters without a default are required; those that a
    `partial` fills in are left out. Errors name the `path`."""
    inner = _unwrap_partial(function)
    name = name or getattr(function, "__name__", "") or getattr(inner, "__name__", "")
    if not name or name == "<lambda>":
        raise UsageError(f"Expected a function with a name, not a lambda - at `{path}`")
    summary, descriptions = _read_docstring(inspect.getdoc(inner) or "")
    parameters = _get_parameters(function, path)
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for key, parameter in parameters.items():
        if parameter.kind in _STARRED:
            continue
        hint = _get_hint(parameter, inner, f"{path}.{key}")
        schema, shared = _rename_clashes(*_build_schema(hint, f"{path}.{key}"), definitions)
        definitions |= shared
        if key in descriptions and "description" not in schema:
            schema["description"] = descriptions[key]
        if isinstance(parameter.default, _SHOWN_DEFAULTS) and "$ref" not in schema:
            schema["default"] = parameter.default
        properties[key] = schema
    required = [key for key in properties if parameters[key].default is inspect.Parameter.empty]
    whole: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    if not _takes_any_keyword(parameters):
        # Otherwise an argument with a misspelt name would be dropped silently.
        whole["additionalProperties"] = False
    if definitions:
        whole["$defs"] = definitions
    return Tool(name=name, description=summary, parameters=whole)


def bind_arguments(
    function: Callable[..., Any], arguments: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Convert a call's arguments to the types of a function's parameters: an object becomes a
    dataclass, a string a `datetime`. Return the positional and the keyword arguments. Those that
    the function does not declare are dropped, unless it has a `**` parameter."""
    inner = _unwrap_partial(function)
    positional: list[Any] = []
    named: dict[str, Any] = {}
    parameters = _get_parameters(function, "$")
    for key, parameter in parameters.items():
        if key not in arguments or parameter.kind in _STARRED:
            continue
        hint = _get_hint(parameter, inner, f"$.{key}")
        value = _convert_value(arguments[key], hint, f"$.{key}")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(value)
        else:
            named[key] = value
    if _takes_any_keyword(parameters):
        named = {key: arguments[key] for key in arguments if key not in parameters} | named
    return positional, named


# Parameters.


def _unwrap_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    return _unwrap_partial(function.func) if isinstance(function, partial) else function


def _get_parameters(function: Callable[..., Any], path: str) -> dict[str, inspect.Parameter]:
    """Return the parameters that no `partial` has filled in."""
    try:
        if not isinstance(function, partial):
            return dict(inspect.signature(function).parameters)
        free = _get_parameters(function.func, path)
        signature = inspect.Signature(list(free.values()))
        filled = signature.bind_partial(*function.args, **function.keywords).arguments
    except (TypeError, ValueError) as error:
        raise UsageError(f"{error} - at `{path}`") from None
    return {key: parameter for key, parameter in free.items() if key not in filled}


def _takes_any_keyword(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def _get_hint(parameter: inspect.Parameter, function: Callable[..., Any], path: str) -> Any:
    """Return the type of a parameter, whose annotation may be the name of the type."""
    if parameter.annotation is parameter.empty:
        return Any
    unwrapped = inspect.unwrap(function)
    names = getattr(unwrapped, "__globals__", None) or vars(sys.modules[unwrapped.__module__])
    annotated = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return get_type_hints(annotated, names, include_extras=True)[parameter.name]
    except Exception as error:  # An annotation may be any expression.
        problem = f"the type of {parameter.name!r} of {function.__name__!r} cannot be resolved"
        raise UsageError(f"{problem}: {error} - at `{path}`") from None


# Types: those that msgspec does not support are left to pydantic, if it is imported.


def _build_schema(hint: Any, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of a type, and the definitions that it refers to."""
    description = ""
    if get_origin(hint) is Annotated:
        base, *extras = get_args(hint)
        description = next((extra for extra in extras if isinstance(extra, str)), "")
        others = [extra for extra in extras if not isinstance(extra, str)]
        hint = Annotated[base, *others] if others else base
    schema, shared = _build_bare_schema(hint, path)
    return {**schema, "description": description} if description else schema, shared


def _build_bare_schema(hint: Any, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        [schema], shared = msgspec.json.schema_components(
            [hint], ref_template="#/$defs/{name}", schema_hook=_build_path_schema
        )
        return dict(schema), shared
    except TypeError as error:
        pydantic = sys.modules.get("pydantic")
        if pydantic is None:
            raise UsageError(f"{error} - at `{path}`") from None
    try:
        schema = pydantic.TypeAdapter(hint).json_schema()
    except Exception as error:  # pydantic's errors have no common base.
        raise UsageError(f"{error} - at `{path}`") from None
    return schema, schema.pop("$defs", {})


def _rename_clashes(
    schema: dict[str, Any], shared: dict[str, Any], definitions: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Rename definitions whose name is taken: two modules may have a class `Item`."""
    clashes = [key for key in shared if key in definitions and definitions[key] != shared[key]]
    for name in clashes:
        taken = {*definitions, *shared}
        other = next(f"{name}{n}" for n in count(2) if f"{name}{n}" not in taken)
        renamed = json.dumps([schema, shared]).replace(f'"#/$defs/{name}"', f'"#/$defs/{other}"')
        schema, shared = json.loads(renamed)
        shared[other] = shared.pop(name)
    return schema, shared


def _convert_value(value: Any, hint: Any, path: str) -> Any:
    pydantic = sys.modules.get("pydantic")
    try:
        msgspec.json.schema_components([hint], schema_hook=_build_path_schema)
    except TypeError:
        if pydantic is None:
            return value
        try:
            return pydantic.TypeAdapter(hint).validate_python(value)
        except pydantic.ValidationError as error:
            raise UsageError(f"{error} - at `{path}`") from None
    try:
        return msgspec.convert(value, hint, strict=True, dec_hook=_convert_path)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        raise UsageError(f"{message} - at `{path}{place.rstrip('`')}`") from None


def _build_path_schema(hint: type) -> dict[str, Any]:
    if issubclass(hint, PurePath):
        return {"type": "string", "format": "path"}
    raise NotImplementedError


def _convert_path(hint: type, value: Any) -> Any:
    if issubclass(hint, PurePath) and isinstance(value, str):
        return hint(value)
    raise NotImplementedError


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the descriptions of a function and of its parameters."""
    summary: list[str] = []
    descriptions: dict[str, str] = {}
    section = last = ""
    for line in text.splitlines():
        if _PARAMETERS_HEADING.match(line):
            section = "parameters"
        elif _OTHER_HEADING.match(line):
            section = "other"
        elif match := _SPHINX_PARAMETER.match(line):
            descriptions[match[1]] = match[2].strip()
        elif section == "parameters" and (match := _GOOGLE_PARAMETER.match(line)):
            last = match[1].lstrip("*")
            descriptions[last] = match[2].strip()
        elif section == "parameters" and last and line.startswith(_CONTINUATION):
            descriptions[last] += f" {line.strip()}"
        elif not section:
            summary.append(line)
    return "\n".join(summary).strip(), descriptions
