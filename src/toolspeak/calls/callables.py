"""A tool out of a Python function: its name, its docstring, and a schema from its type hints.

tool_of(get_weather)      tool_of(partial(get_weather, unit="c"))      tool_of(station.get_weather)
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

_SECTION = re.compile(r"^\s*(?:Args|Arguments|Parameters|Params)\s*:?\s*$")
_NEXT_SECTION = re.compile(r"^\s*(?:Returns?|Raises|Yields?|Examples?|Notes?)\s*:?\s*$")
_CONTINUED = " " * 6
"""What is further in than the name of a parameter goes on about it."""
_GOOGLE = re.compile(r"^\s+(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(.+)$")
_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_PLAIN = (str, int, float)
"""Defaults that a model is told; None says no more than that there need not be a value."""
_SPHINX = re.compile(r"^\s*:param\s+(?:[\w\[\], |]+\s+)?(\w+)\s*:\s*(.+)$")


def tool_from_function(function: Callable[..., Any], path: str = "$", name: str = "") -> Tool:
    """The tool that a function makes. A parameter without a default is required; what a `partial`
    has filled in is no parameter."""
    inner = _inner(function)
    name = name or getattr(function, "__name__", "") or getattr(inner, "__name__", "")
    if not name or name == "<lambda>":
        raise UsageError(f"Expected a function with a `__name__` - at `{path}`")
    summary, described = _documented(inspect.getdoc(inner) or "")
    properties: dict[str, Any] = {}
    required: list[str] = []
    definitions: dict[str, Any] = {}
    parameters = _parameters(function, path)
    for key, parameter in parameters.items():
        if parameter.kind in _STARRED:
            continue
        hint = _hint(parameter, inner, f"{path}.{key}")
        schema, shared = _apart(*_schema_of(hint, f"{path}.{key}"), definitions)
        definitions |= shared
        if key in described and "description" not in schema:
            schema["description"] = described[key]
        if parameter.default is parameter.empty:
            required.append(key)
        elif isinstance(parameter.default, _PLAIN) and "$ref" not in schema:
            schema["default"] = parameter.default
        properties[key] = schema
    whole: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    if not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        # An argument with a misspelt name would be lost without a word.
        whole["additionalProperties"] = False
    if definitions:
        whole["$defs"] = definitions
    return Tool(name=name, description=summary, parameters=whole)


def _apart(
    schema: dict[str, Any], shared: dict[str, Any], taken: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A schema whose definitions have names of their own: two modules may have a class `Item`."""
    for name in [name for name in shared if name in taken and taken[name] != shared[name]]:
        other = next(f"{name}{n}" for n in count(2) if f"{name}{n}" not in {*taken, *shared})
        renamed = json.dumps([schema, shared]).replace(f'"#/$defs/{name}"', f'"#/$defs/{other}"')
        schema, shared = json.loads(renamed)
        shared[other] = shared.pop(name)
    return schema, shared


def _inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a `partial` fills in."""
    return _inner(function.func) if isinstance(function, partial) else function


def _parameters(function: Callable[..., Any], path: str) -> dict[str, inspect.Parameter]:
    """The parameters that are still to be given."""
    try:
        if not isinstance(function, partial):
            return dict(inspect.signature(function).parameters)
        free = _parameters(function.func, path)
        signature = inspect.Signature(list(free.values()))
        filled = signature.bind_partial(*function.args, **function.keywords).arguments
    except (TypeError, ValueError) as error:
        raise UsageError(f"{error} - at `{path}`") from None
    return {key: parameter for key, parameter in free.items() if key not in filled}


def _hint(parameter: inspect.Parameter, function: Callable[..., Any], path: str) -> Any:
    """The type that a parameter is declared with, be it an object or its name."""
    if parameter.annotation is parameter.empty:
        return Any
    own = inspect.unwrap(function)
    names = getattr(own, "__globals__", None) or vars(sys.modules[own.__module__])
    declared = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return get_type_hints(declared, names, include_extras=True)[parameter.name]
    except Exception as error:  # It may be any expression.
        problem = f"the type of {parameter.name!r} of {function.__name__!r} cannot be resolved"
        raise UsageError(f"{problem}: {error} - at `{path}`") from None


def _schema_of(hint: Any, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    description = ""
    if get_origin(hint) is Annotated:
        base, *extras = get_args(hint)
        description = next((extra for extra in extras if isinstance(extra, str)), "")
        others = [extra for extra in extras if not isinstance(extra, str)]
        hint = Annotated[base, *others] if others else base
    schema, shared = _components(hint, path)
    return {**schema, "description": description} if description else schema, shared


def _components(hint: Any, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of a type, with the definitions that it refers to. What msgspec does not know,
    pydantic may."""
    try:
        [schema], shared = msgspec.json.schema_components(
            [hint], ref_template="#/$defs/{name}", schema_hook=_other_schema
        )
        return dict(schema), shared
    except TypeError as error:
        pydantic = sys.modules.get("pydantic")
        if pydantic is None:
            raise UsageError(f"{error} - at `{path}`") from None
    try:
        schema = pydantic.TypeAdapter(hint).json_schema()
    except Exception as error:  # It has a tree of its own.
        raise UsageError(f"{error} - at `{path}`") from None
    return schema, schema.pop("$defs", {})


def _other_schema(hint: type) -> dict[str, Any]:
    """What msgspec does not know, and everybody uses."""
    if issubclass(hint, PurePath):
        return {"type": "string", "format": "path"}
    raise NotImplementedError


def _other_value(hint: type, given: Any) -> Any:
    if issubclass(hint, PurePath) and isinstance(given, str):
        return hint(given)
    raise NotImplementedError


def bind_arguments(
    function: Callable[..., Any], given: Mapping[str, Any], path: str = "$"
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call as what a function's parameters are: a `datetime` of a string, a
    dataclass of an object. What the function does not take is left out, unless it takes all."""
    inner = _inner(function)
    positional: list[Any] = []
    named: dict[str, Any] = {}
    parameters = _parameters(function, path)
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    for key, parameter in parameters.items():
        if key not in given or parameter.kind in _STARRED:
            continue
        value = _value(given[key], _hint(parameter, inner, f"{path}.{key}"), f"{path}.{key}")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(value)
        else:
            named[key] = value
    others = {key: value for key, value in given.items() if key not in parameters}
    return positional, {**others, **named} if takes_all else named


def _value(given: Any, hint: Any, path: str) -> Any:
    pydantic = sys.modules.get("pydantic")
    try:
        msgspec.json.schema_components([hint], schema_hook=_other_schema)
    except TypeError:
        if pydantic is None:
            return given
        try:
            return pydantic.TypeAdapter(hint).validate_python(given)
        except pydantic.ValidationError as error:
            raise UsageError(f"{error} - at `{path}`") from None
    try:
        return msgspec.convert(given, hint, strict=True, dec_hook=_other_value)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        raise UsageError(f"{message} - at `{path}{place.rstrip('`')}`") from None


def _documented(text: str) -> tuple[str, dict[str, str]]:
    """What a docstring says of the function, and of each of its parameters."""
    summary: list[str] = []
    described: dict[str, str] = {}
    section = last = ""
    for line in text.splitlines():
        if _SECTION.match(line):
            section = "parameters"
        elif _NEXT_SECTION.match(line):
            section = "other"
        elif match := _SPHINX.match(line):
            described[match[1]] = match[2].strip()
        elif section == "parameters" and (match := _GOOGLE.match(line)):
            last = match[1].lstrip("*")
            described[last] = match[2].strip()
        elif section == "parameters" and last and line.startswith(_CONTINUED):
            described[last] += f" {line.strip()}"
        elif not section:
            summary.append(line)
    return "\n".join(summary).strip(), described
