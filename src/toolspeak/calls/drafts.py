"""Find calls in decoded JSON: which keys hold the name, the arguments and the id.

{"name": "f", "arguments": "{\\"a\\": 1}"}      {"tool": "f", "parameters": {"a": 1}}
{"function": {"name": "f", "arguments": {}}}   {"tool_calls": [...]}   {"f": {"a": 1}}

A `CallDraft` is unchecked: `CallResolver` accepts or rejects it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from msgspec import Struct, structs

from .._util import format_json
from .coercion import ARGUMENT_KEYS
from .json_values import parse_json
from .lenient_json import LenientJsonError
from .schema import get_properties, json_type
from .tools import ANY_TOOLS, Toolset

NAME_KEYS = ("name", "tool", "tool_name", "function", "action")
ID_KEYS = ("id", "tool_call_id", "call_id")
_ENVELOPES = ("tool_calls", "tool_call", "function_call", "toolcalls", "toolCalls")
_WRAPPER_NAME = re.compile(
    r"(?:functions?\.)?(?:tool|function)[._-]?calls?\b|(?:multi_tool_use\.)?parallel\Z", re.I
)
"""Names that models give to a call whose arguments are the calls they mean."""
_LOOSE_WRAPPERS = frozenset({"invoke", "function", "tool", "parallel"})
"""Also names of wrappers, but only if what they contain cannot be arguments."""
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

    def describe(self) -> str:
        """Return the call as JSON text, for one of several that have their text in common."""
        return format_json({"name": self.name, "arguments": self.arguments})


def read_drafts(
    value: Any, tools: Toolset = ANY_TOOLS, *, name_is_key: bool = False
) -> Iterator[CallDraft]:
    """Yield every call in a decoded value, in order; a draft with a `problem` for anything else.

    `{"f": {…}}` is a call if `f` is declared, or if `name_is_key`.
    """
    match value:
        case [str(name), dict(arguments)] if tools.declared is None or tools.is_declared(name):
            yield CallDraft(name, arguments)
            return
        case {"name": str(name), "arguments": dict(arguments)} if len(value) == 2:
            if name.strip() and not _is_wrapper(name) and not _is_schema(arguments):
                # The form that nearly all models write needs no further checks.
                yield CallDraft(name, arguments or None)
                return
        case _:
            pass
    if isinstance(value, list):
        for item in value:
            yield from read_drafts(item, tools, name_is_key=name_is_key)
        return
    if not isinstance(value, dict):
        yield CallDraft(problem=f"expected an object with a name, got {json_type(value)}")
        return
    for envelope in _ENVELOPES:
        if isinstance(value.get(envelope), (list, dict)):
            yield from _read_envelope(value, envelope, tools, name_is_key)
            return
    if len(value) > 1 and tools.declared and all(map(tools.is_declared, value)):
        # An object with only tool names as keys is several calls.
        for name, arguments in value.items():
            yield _read_object({name: arguments}, tools, name_is_key)
        return
    yield from _read_wrapped(value, tools) or (_read_object(value, tools, name_is_key),)


def unwrap_call(draft: CallDraft, tools: Toolset) -> list[CallDraft]:
    """Return the calls inside a call of `tool_call`, or else the call itself."""
    if not draft.problem and _is_wrapper(draft.name):
        value = {"name": draft.name, "arguments": draft.arguments, "id": draft.id}
        if wrapped := _read_wrapped(value, tools):
            return [structs.replace(one, repairs=draft.repairs + one.repairs) for one in wrapped]
    return [draft]


def _read_envelope(
    value: dict[str, Any], envelope: str, tools: Toolset, name_is_key: bool
) -> Iterator[CallDraft]:
    """Yield the calls of an object that contains calls under the key `envelope`."""
    if any(isinstance(value.get(key), str) for key in NAME_KEYS):
        yield CallDraft(problem=f"the object is a call and also contains calls in {envelope!r}")
        return
    has_text = envelope == "tool_calls" and isinstance(value.get("content"), str)
    ignored = _find_ignored_keys(value, (envelope, "content") if has_text else (envelope,))
    for draft in read_drafts(value[envelope], tools, name_is_key=name_is_key):
        if ignored:
            draft = structs.replace(draft, ignored_keys=ignored + draft.ignored_keys)
            ignored = ()
        yield draft


# Calls inside a call.


def _is_wrapper(name: str) -> bool:
    return name in _LOOSE_WRAPPERS or _WRAPPER_NAME.match(name) is not None


def _read_wrapped(value: dict[str, Any], tools: Toolset) -> list[CallDraft]:
    """Return the calls inside `{"name": "tool_call", "arguments": {"name": …}}`; [] if there are
    none, or if a tool has the name of the wrapper."""
    function = value.get("function")
    value = {**value, **function} if isinstance(function, dict) else value
    name = next((name for key in NAME_KEYS if isinstance(name := value.get(key), str)), "")
    if not _is_wrapper(name) or tools.is_declared(name):
        return []
    given = next((value[key] for key in ARGUMENT_KEYS if value.get(key)), None)
    try:
        content, repairs = _decode_text(given)
    except LenientJsonError:
        return []
    drafts = list(read_drafts(_rename_recipients(content), tools))
    is_loose = name in _LOOSE_WRAPPERS
    if all(draft.problem or (is_loose and draft.is_bare) for draft in drafts):
        return []
    first = drafts[0]
    identity = next((str(value[key]) for key in ID_KEYS if _is_id(value.get(key))), "")
    if not first.id and identity:
        drafts[0] = structs.replace(first, id=identity)
    unwrapped = ("wrapped-call", *repairs)
    return [structs.replace(one, repairs=(*unwrapped, *one.repairs)) for one in drafts]


def _rename_recipients(content: Any) -> Any:
    """Return the calls in `{"tool_uses": [{"recipient_name": …}]}` with the usual key for names."""
    uses = content.get("tool_uses") if isinstance(content, dict) else None
    if not isinstance(uses, list):
        return content
    renamed = {"recipient_name": "name"}
    return [
        {renamed.get(key, key): item for key, item in use.items()}
        for use in uses
        if isinstance(use, dict)
    ]


# One object.


def _read_object(value: dict[str, Any], tools: Toolset, name_is_key: bool) -> CallDraft:
    inner = value.get("function")
    if isinstance(inner, dict):
        clashes = [key for key in inner if key in value and value[key] != inner[key]]
        if clashes:
            return CallDraft(problem=f"the object has two different values for {clashes[0]!r}")
        return _read_object({**value, **inner, "function": None}, tools, name_is_key)
    name, clash = _read_name(value, tools)
    if clash:
        return CallDraft(name, problem=clash)
    given = [value[key] for key in ARGUMENT_KEYS if value.get(key) not in (None, {}, "")]
    if any(arguments != given[0] for arguments in given):
        return CallDraft(name, problem="the object has several different sets of arguments")
    arguments = given[0] if given else None
    identity = next((str(value[key]) for key in ID_KEYS if _is_id(value.get(key))), "")
    if name and (_is_description_or_result(value, name, tools) or _is_schema(arguments)):
        return CallDraft(
            name, problem="the object describes a tool or its result; it is not a call"
        )
    if name and any(key in value for key in ARGUMENT_KEYS):
        own = _get_parameters(name, tools)
        ignored = (*_find_ignored_names(value, name), *_find_ignored_keys(value, own))
        draft = CallDraft(name, arguments, identity, ignored_keys=ignored)
        return _collect_stray_arguments(draft, value, tools)
    if name:
        return _read_name_only(name, identity, value, tools)
    if len(value) == 1:
        [(key, arguments)] = value.items()
        is_any = tools.declared is None
        known = name_is_key and key not in RESERVED_KEYS if is_any else tools.is_declared(key)
        if isinstance(arguments, dict) and known:
            return CallDraft(key, arguments)
    return CallDraft(problem="the object does not name a tool")


def _get_parameters(name: str, tools: Toolset) -> dict[str, Any]:
    return get_properties(tools.get_schema(name))


def _read_name(value: dict[str, Any], tools: Toolset) -> tuple[str, str]:
    """Return the tool's name, and the problem if the object names two."""
    given = [value[key] for key in NAME_KEYS if isinstance(value.get(key), str)]
    names = [name for name in given if name.strip()]
    known = [name for name in names if len(names) > 1 and tools.is_declared(name)]
    found = list(dict.fromkeys(known or names))
    if len(found) > 1:
        return found[0], f"the object names two tools: {found[0]!r} and {found[1]!r}"
    return (found[0] if found else ""), ""


def _collect_stray_arguments(draft: CallDraft, value: dict[str, Any], tools: Toolset) -> CallDraft:
    """Add arguments that the model wrote beside the object that should contain them."""
    given = {} if draft.arguments is None else draft.arguments
    if not isinstance(given, dict):
        return draft
    known = _get_parameters(draft.name, tools).keys() - _NEVER_ARGUMENTS
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


def _is_id(value: Any) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _is_schema(arguments: Any) -> bool:
    return (
        isinstance(arguments, dict)
        and arguments.get("type") == "object"
        and isinstance(arguments.get("properties"), dict)
    )


def _is_description_or_result(value: dict[str, Any], name: str, tools: Toolset) -> bool:
    """Return True if an object declares a tool or reports its result. Keys that are the tool's own
    parameters do not count."""
    own = _get_parameters(name, tools)
    is_declaration = "parameters" in value and isinstance(value.get("description"), str)
    return (
        (is_declaration and "description" not in own)
        or any(key in value and key not in own for key in ("output", "result", "observation"))
        or value.get("role") in ("tool", "function")
    )


def _read_name_only(name: str, identity: str, value: dict[str, Any], tools: Toolset) -> CallDraft:
    """Read an object without a key for arguments: it has none, or they are beside the name."""
    beside = {key: item for key, item in value.items() if key not in _HEADER_KEYS}
    if not beside:
        return CallDraft(name, None, identity, is_bare=True)
    if beside.keys() <= _get_parameters(name, tools).keys():
        return CallDraft(name, beside, identity, repairs=("arguments-beside-name",))
    problem = "the object has a name, but no key for its arguments, such as `arguments`"
    return CallDraft(name, problem=problem)


def decode_arguments(draft: CallDraft) -> tuple[dict[str, Any] | None, str, tuple[str, ...]]:
    """Return the arguments as an object, or None and the problem; and the repairs. Arguments that
    cannot be decoded never become `{}`."""
    try:
        value, repairs = _decode_text(draft.arguments)
    except LenientJsonError as error:
        return None, f"the arguments are not valid JSON: {error}", ()
    if value is None:
        return {}, "", repairs
    if isinstance(value, dict):
        return value, "", repairs
    return None, f"the arguments must be an object, got {json_type(value)}", ()


def _decode_text(value: Any) -> tuple[Any, tuple[str, ...]]:
    """Return a value, decoded if it is JSON text, even of a string of JSON text; and the repairs.

    Raises `LenientJsonError`.
    """
    repairs: tuple[str, ...] = ()
    for encoding in ("", "double-encoding"):
        if not isinstance(value, str):
            break
        if not value.strip():
            return None, repairs
        value, needed = parse_json(value, allow_extra_closers=True, allow_escaped_quotes=True)
        repairs += (*needed, *filter(None, (encoding,)))
    return value, repairs


def find_freeform_input(arguments: dict[str, Any]) -> str | None:
    """Return the text of a freeform call, under any key; None if there is not exactly one text."""
    texts = [value for value in arguments.values() if isinstance(value, str)]
    return texts[0] if len(texts) == 1 else None
