"""From a decoded value to the call it means: which keys hold the name, the arguments and the id.

{"name": "f", "arguments": "{\\"a\\": 1}"}      {"tool": "f", "parameters": {"a": 1}}
{"function": {"name": "f", "arguments": {}}}   {"tool_calls": [...]}   {"f": {"a": 1}}
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct

from . import jsonish

NAME_KEYS = ("name", "tool", "tool_name", "function", "action")
ARGUMENT_KEYS = (
    "arguments",
    "parameters",
    "args",
    "input",
    "params",
    "kwargs",
    "action_input",
    "tool_input",
)
ID_KEYS = ("id", "tool_call_id", "call_id")
_ENVELOPES = ("tool_calls", "tool_call", "function_call")
RESERVED_KEYS = (*NAME_KEYS, *ARGUMENT_KEYS, *ID_KEYS, *_ENVELOPES)
"""Keys that cannot be the name of a tool in `{"f": {…}}`."""


class Draft(Struct, frozen=True):
    """A call as a model wrote it, before anything was checked."""

    name: str = ""
    arguments: Any = None
    id: str = ""
    problem: str = ""
    """Why this cannot be a call, if it cannot."""
    repairs: tuple[str, ...] = ()
    bare: bool = False
    """An object with a name but nothing that could be its arguments."""


def new_id() -> str:
    """An id for a call that came without one."""
    return "call_" + secrets.token_urlsafe(12)


def drafts(value: Any, declared: Collection[str] | None = None) -> Iterator[Draft]:
    """Every call that a decoded value holds, in order; a `problem` draft for what is none."""
    if isinstance(value, list):
        for item in value:
            yield from drafts(item, declared)
        return
    if not isinstance(value, dict):
        yield Draft(problem=f"expected an object with a name, got {type(value).__name__}")
        return
    for envelope in _ENVELOPES:
        if isinstance(value.get(envelope), (list, dict)):
            yield from drafts(value[envelope], declared)
            return
    yield _draft(value, declared)


def _draft(value: dict[str, Any], declared: Collection[str] | None) -> Draft:
    inner = value.get("function")
    if isinstance(inner, dict):
        return _draft({**value, **inner, "function": None}, declared)
    name = next((value[key] for key in NAME_KEYS if isinstance(value.get(key), str)), "").strip()
    arguments = next((value[key] for key in ARGUMENT_KEYS if key in value), None)
    identity = next((value[key] for key in ID_KEYS if isinstance(value.get(key), str)), "")
    if name:
        bare = not any(key in value for key in ARGUMENT_KEYS)
        return Draft(name, arguments, identity, bare=bare)
    if len(value) == 1:
        [(key, arguments)] = value.items()
        known = key in RESERVED_KEYS if declared is None else key not in declared
        if isinstance(arguments, dict) and not known:
            return Draft(key, arguments)
    return Draft(problem="the object has no name of a tool")


def arguments_of(draft: Draft) -> tuple[dict[str, Any] | None, str]:
    """The decoded arguments, or None and what is wrong with them. Bad ones never become `{}`."""
    value = draft.arguments
    for _ in range(2):
        if not isinstance(value, str):
            break
        if not value.strip():
            value = None
            break
        try:
            value, _repairs = jsonish.loads(value)
        except jsonish.NotAValue as error:
            return None, f"the arguments are not valid JSON: {error}"
    if value is None:
        return {}, ""
    if isinstance(value, dict):
        return value, ""
    return None, f"the arguments must be an object, got {type(value).__name__}"


def equal(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same, telling 1 from true."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def key_of(arguments: Mapping[str, Any]) -> str:
    """The arguments in one canonical spelling, to compare calls by."""
    return json.dumps(arguments, sort_keys=True)
