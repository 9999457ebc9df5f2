"""Find calls in decoded JSON: which keys hold the name, the arguments and the id.

{"name": "f", "arguments": "{\\"a\\": 1}"}      {"tool": "f", "parameters": {"a": 1}}
{"function": {"name": "f", "arguments": {}}}   {"tool_calls": [...]}   {"f": {"a": 1}}

A `CallDraft` is unchecked: `CallResolver` accepts or rejects it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct, structs

from ..types import Tool, ToolCall
from .json_values import parse_json
from .lenient_json import LenientJsonError
from .schema import get_properties, json_type

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
_ENVELOPES = ("tool_calls", "tool_call", "function_call", "toolcalls", "toolCalls")
_WRAPPER_NAME = re.compile(r"(?:tool|function)[._]?call\b|tool_call[<>]")
_HEADER_KEYS = frozenset((*NAME_KEYS, *ID_KEYS, "type", "index"))
_CALL_KEYS = frozenset((*_HEADER_KEYS, *ARGUMENT_KEYS, "role"))
"""Keys that belong to a call; any other is reported as ignored."""
RESERVED_KEYS = (*NAME_KEYS, *ARGUMENT_KEYS, *ID_KEYS, *_ENVELOPES)
"""Keys that cannot be the name of a tool in `{"f": {…}}`."""
_NEVER_ARGUMENTS = _HEADER_KEYS.union(RESERVED_KEYS)
"""Keys that belong to the call even if the tool has a parameter of that name."""


class CallDraft(Struct, frozen=True):
    """A call as the model wrote it, before any check."""

    name: str = ""
    arguments: Any = None
    id: str = ""
    problem: str = ""
    """The reason why this cannot be a call, or empty."""
    repairs: tuple[str, ...] = ()
    is_bare: bool = False
    """The object has a name, but nothing that could be arguments."""
    ignored_keys: tuple[str, ...] = ()
    """Keys of the object that are not part of the call."""


def read_drafts(
    value: Any, declared: Collection[str] | None = None, *, name_is_key: bool = False
) -> Iterator[CallDraft]:
    """Yield every call in a decoded value, in order; a draft with a `problem` for anything else.

    `{"f": {…}}` is a call if `f` is declared, or if `name_is_key`.
    """
    match value:
        case [str(name), dict(arguments)] if declared is None or name in declared:
            yield CallDraft(name, arguments)
            return
        case {"name": str(name), "arguments": dict(arguments)} if len(value) == 2:
            if name.strip() and not _WRAPPER_NAME.match(name) and not _is_schema(arguments):
                # The form that nearly all models write needs no further checks.
                yield CallDraft(name, arguments or None)
                return
        case _:
            pass
    if isinstance(value, list):
        for item in value:
            yield from read_drafts(item, declared, name_is_key=name_is_key)
        return
    if not isinstance(value, dict):
        yield CallDraft(problem=f"expected an object with a name, got {json_type(value)}")
        return
    for envelope in _ENVELOPES:
        if isinstance(value.get(envelope), (list, dict)):
            if any(isinstance(value.get(key), str) for key in NAME_KEYS):
                yield CallDraft(
                    problem=f"the object is a call and also contains calls in {envelope!r}"
                )
                return
            has_text = envelope == "tool_calls" and isinstance(value.get("content"), str)
            ignored = _find_ignored_keys(value, (envelope, "content") if has_text else (envelope,))
            for draft in read_drafts(value[envelope], declared, name_is_key=name_is_key):
                yield (
                    structs.replace(draft, ignored_keys=ignored + draft.ignored_keys)
                    if ignored
                    else draft
                )
                ignored = ()
            return
    if len(value) > 1 and declared and all(map(declared.__contains__, value)):
        # An object with only tool names as keys is several calls.
        for name, arguments in value.items():
            yield _read_object({name: arguments}, declared, name_is_key)
        return
    yield _read_object(value, declared, name_is_key)


def draft_structured_call(call: ToolCall, declared: Collection[str] | None) -> CallDraft:
    """Return the draft of a decoded call; a call inside `tool_call` is unwrapped."""
    if _WRAPPER_NAME.match(call.name) and not (declared and call.name in declared):
        value = {"name": call.name, "arguments": call.arguments, "id": call.id}
        return _read_object(value, declared, name_is_key=False)
    return CallDraft(call.name, call.arguments, call.id)


def _read_object(
    value: dict[str, Any], declared: Collection[str] | None, name_is_key: bool
) -> CallDraft:
    inner = value.get("function")
    if isinstance(inner, dict):
        clashes = [key for key in inner if key in value and value[key] != inner[key]]
        if clashes:
            return CallDraft(problem=f"the object has two different values for {clashes[0]!r}")
        return _read_object({**value, **inner, "function": None}, declared, name_is_key)
    name, clash = _read_name(value, declared)
    if clash:
        return CallDraft(name, problem=clash)
    inner, repairs = _unwrap_call(name, value, declared)
    if inner is not None:
        draft = _read_object(inner, declared, name_is_key)
        return structs.replace(draft, repairs=("wrapped-call", *repairs, *draft.repairs))
    given = [value[key] for key in ARGUMENT_KEYS if value.get(key) not in (None, {}, "")]
    if any(arguments != given[0] for arguments in given):
        return CallDraft(name, problem="the object has several different sets of arguments")
    arguments = given[0] if given else None
    identity = next((str(value[key]) for key in ID_KEYS if _is_id(value.get(key))), "")
    if name and (_is_description_or_result(value, name, declared) or _is_schema(arguments)):
        return CallDraft(
            name, problem="the object describes a tool or its result; it is not a call"
        )
    if name and any(key in value for key in ARGUMENT_KEYS):
        own = _get_parameters(name, declared)
        ignored = (*_find_ignored_names(value, name), *_find_ignored_keys(value, own))
        draft = CallDraft(name, arguments, identity, ignored_keys=ignored)
        return _collect_stray_arguments(draft, value, declared)
    if name:
        return _read_name_only(name, identity, value, declared)
    if len(value) == 1:
        [(key, arguments)] = value.items()
        known = name_is_key and key not in RESERVED_KEYS if declared is None else key in declared
        if isinstance(arguments, dict) and known:
            return CallDraft(key, arguments)
    return CallDraft(problem="the object does not name a tool")


def _get_parameters(name: str, declared: Collection[str] | None) -> dict[str, Any]:
    tool = declared.get(name) if isinstance(declared, Mapping) else None
    return get_properties(tool.parameters) if isinstance(tool, Tool) else {}


def _read_name(value: dict[str, Any], declared: Collection[str] | None) -> tuple[str, str]:
    """Return the tool's name, and the problem if the object names two."""
    given = [value[key] for key in NAME_KEYS if isinstance(value.get(key), str)]
    names = [name for name in given if name.strip()]
    known = [name for name in names if declared is not None and name.strip() in declared]
    found = list(dict.fromkeys(known or names))
    if len(found) > 1:
        return found[0], f"the object names two tools: {found[0]!r} and {found[1]!r}"
    return (found[0] if found else ""), ""


def _collect_stray_arguments(
    draft: CallDraft, value: dict[str, Any], declared: Collection[str] | None
) -> CallDraft:
    """Add arguments that the model wrote beside the object that should contain them."""
    given = {} if draft.arguments is None else draft.arguments
    if not isinstance(given, dict):
        return draft
    known = _get_parameters(draft.name, declared).keys() - _NEVER_ARGUMENTS
    strays = {key: value[key] for key in value if key in known}
    clashes = [key for key in strays if given.get(key, strays[key]) != strays[key]]
    if clashes:
        return CallDraft(
            draft.name, problem=f"the object has two different values for {clashes[0]!r}"
        )
    if strays.keys() <= given.keys():
        return draft
    repairs = (*draft.repairs, "arguments-beside-name")
    return structs.replace(draft, arguments={**given, **strays}, repairs=repairs)


def _find_ignored_names(value: dict[str, Any], name: str) -> tuple[str, ...]:
    """Return the name keys whose value is not the tool's name."""
    given = ((key, value.get(key)) for key in NAME_KEYS)
    return tuple(key for key, word in given if isinstance(word, str) and word not in ("", name))


def _find_ignored_keys(value: dict[str, Any], known: Collection[str]) -> tuple[str, ...]:
    """Return the keys of an object that are not part of the call, unless they are empty."""
    return tuple(
        key
        for key, item in value.items()
        if key not in _CALL_KEYS and key not in known and item not in (None, "", [], {})
    )


def _unwrap_call(
    name: str, value: dict[str, Any], declared: Collection[str] | None
) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """Return the call inside `{"name": "tool_call", "arguments": {"name": …}}`, and its repairs."""
    if not _WRAPPER_NAME.match(name) or (declared is not None and name in declared):
        return None, ()
    given = next((value[key] for key in ARGUMENT_KEYS if value.get(key)), None)
    inner, _, repairs = decode_arguments(CallDraft(name, given))
    if not inner or not any(isinstance(inner.get(key), str) for key in NAME_KEYS):
        return None, ()
    return {**{key: value[key] for key in ID_KEYS if key in value}, **inner}, repairs


def _is_id(value: Any) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _is_schema(arguments: Any) -> bool:
    return (
        isinstance(arguments, dict)
        and arguments.get("type") == "object"
        and isinstance(arguments.get("properties"), dict)
    )


def _is_description_or_result(
    value: dict[str, Any], name: str, declared: Collection[str] | None
) -> bool:
    """Return True if an object declares a tool or reports its result. Keys that are the tool's own
    parameters do not count."""
    own = _get_parameters(name, declared)
    is_declaration = "parameters" in value and isinstance(value.get("description"), str)
    return (
        (is_declaration and "description" not in own)
        or any(key in value and key not in own for key in ("output", "result", "observation"))
        or value.get("role") in ("tool", "function")
    )


def _read_name_only(
    name: str, identity: str, value: dict[str, Any], declared: Collection[str] | None
) -> CallDraft:
    """Read an object without a key for arguments: it has none, or they are beside the name."""
    beside = {key: item for key, item in value.items() if key not in _HEADER_KEYS}
    if not beside:
        return CallDraft(name, None, identity, is_bare=True)
    if beside.keys() <= _get_parameters(name, declared).keys():
        return CallDraft(name, beside, identity, repairs=("arguments-beside-name",))
    problem = "the object has a name, but no key for its arguments, such as `arguments`"
    return CallDraft(name, problem=problem)


def decode_arguments(draft: CallDraft) -> tuple[dict[str, Any] | None, str, tuple[str, ...]]:
    """Return the arguments as an object, or None and the problem; and the repairs. Arguments that
    cannot be decoded never become `{}`."""
    value = draft.arguments
    repairs: tuple[str, ...] = ()
    for encoding in ("", "double-encoding"):
        if not isinstance(value, str):
            break
        if not value.strip():
            value = None
            break
        try:
            value, needed = parse_json(value, allow_extra_closers=True, allow_escaped_quotes=True)
        except LenientJsonError as error:
            return None, f"the arguments are not valid JSON: {error}", ()
        repairs += (*needed, *filter(None, (encoding,)))
    if value is None:
        return {}, "", repairs
    if isinstance(value, dict):
        return value, "", repairs
    return None, f"the arguments must be an object, got {json_type(value)}", ()
