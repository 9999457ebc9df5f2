"""From a decoded value to the call it means: which keys hold the name, the arguments and the id.

{"name": "f", "arguments": "{\\"a\\": 1}"}      {"tool": "f", "parameters": {"a": 1}}
{"function": {"name": "f", "arguments": {}}}   {"tool_calls": [...]}   {"f": {"a": 1}}
"""

from __future__ import annotations

import os
import random
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import Any

from msgspec import Struct, structs

from ..types import Tool
from . import json_values as jsonish
from .schema import get_properties

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
_BESIDE_NAME = frozenset((*NAME_KEYS, *ID_KEYS, "type", "index"))
_NO_LOSS = frozenset((*_BESIDE_NAME, *ARGUMENT_KEYS, "role"))
"""What may stand in a call's object without saying more than the call does."""
RESERVED_KEYS = (*NAME_KEYS, *ARGUMENT_KEYS, *ID_KEYS, *_ENVELOPES)
"""Keys that cannot be the name of a tool in `{"f": {…}}`."""
_NO_STRAYS = _BESIDE_NAME.union(RESERVED_KEYS)
"""Keys that are part of the call even where the tool has a parameter of that name."""


class CallDraft(Struct, frozen=True):
    """A call as a model wrote it, before anything was checked."""

    name: str = ""
    arguments: Any = None
    id: str = ""
    problem: str = ""
    """Why this cannot be a call, if it cannot."""
    repairs: tuple[str, ...] = ()
    is_bare: bool = False
    """An object with a name but nothing that could be its arguments."""
    ignored_keys: tuple[str, ...] = ()
    """Keys beside the call that it has no use for."""


class CallIds:
    """The calls of one reply so far, and the ids that they have."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._taken: set[str] = set()
        self._made: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._keys: set[CallKey] = set()
        """What was made, for the calls up to `_keyed`: most replies never ask."""
        self._keyed = 0

    def claim(self, wanted: str) -> str:
        """The id that a call shall have: its own, unless another call has it already."""
        identity = wanted if wanted and wanted not in self._taken else self._new_id()
        self._taken.add(identity)
        return identity

    def release(self, identity: str) -> None:
        """The call that claimed this id was not made."""
        self._taken.discard(identity)

    def record(self, identity: str, name: str, arguments: Mapping[str, Any]) -> None:
        """The call with this id is made."""
        self._made[identity] = (name, arguments)

    def is_repeated(self, identity: str, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether the same call with the same id was made before."""
        known = self._made.get(identity) if identity else None
        return known is not None and known[0] == name and json_equal(known[1], arguments)

    def has_call(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether the same call was made before, whatever its id."""
        for other, given in islice(self._made.values(), self._keyed, None):
            self._keys.add(call_key(other, given))
        self._keyed = len(self._made)
        return call_key(name, arguments) in self._keys

    def keep_first(self, count: int) -> None:
        """Only the first `count` calls were calls."""
        while len(self._made) > count:
            identity, _ = self._made.popitem()
            self._taken.discard(identity)
        if self._keyed > count:
            self._keys, self._keyed = set(), 0


_MAY_BE_WHOLE = re.compile(r"\.0|\de")
"""A number that has a point or an exponent, and may have no fraction."""
CallKey = tuple[str, str]
"""A call without its id: the name, and the arguments in a form of which there is only one."""


def call_key(name: str, arguments: Mapping[str, Any]) -> CallKey:
    """What two calls have in common if they do the same."""
    try:
        written = jsonish.canonical_json(arguments)
    except TypeError:
        # A mapping that is no dict.
        return name, jsonish.canonical_json(_without_fractions(arguments))
    if _MAY_BE_WHOLE.search(written):
        try:
            written = jsonish.canonical_json(_without_fractions(arguments))
        except RecursionError:
            pass
    return name, written


def _without_fractions(value: Any) -> Any:
    """The same value with 3.0 written as 3."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_without_fractions(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _without_fractions(item) for key, item in value.items()}
    return value


def new_call_id() -> str:
    """An id for a call that came without one. It has to differ from others, and is no secret."""
    return f"call_{_RANDOM.getrandbits(96):024x}"


def _seed() -> None:
    _RANDOM.seed(secrets.randbits(256))


_RANDOM = random.Random()  # noqa: S311 - ids have to differ, and are no secret
_seed()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_seed)


def read_drafts(
    value: Any, declared: Collection[str] | None = None, *, name_is_key: bool = False
) -> Iterator[CallDraft]:
    """Every call that a decoded value holds, in order; a `problem` draft for what is none.

    `{"f": {…}}` is a call of a declared tool, or of any if `name_is_key`.
    """
    match value:
        case [str(name), dict(arguments)] if declared is None or name in declared:
            yield CallDraft(name, arguments)
            return
        case {"name": str(name), "arguments": dict(arguments)} if len(value) == 2:
            if name.strip() and not _WRAPPER_NAME.match(name) and not _is_schema(arguments):
                # There is nothing more to see in what nearly all models write.
                yield CallDraft(name, arguments or None)
                return
        case _:
            pass
    if isinstance(value, list):
        for item in value:
            yield from read_drafts(item, declared, name_is_key=name_is_key)
        return
    if not isinstance(value, dict):
        yield CallDraft(problem=f"expected an object with a name, got {type(value).__name__}")
        return
    for envelope in _ENVELOPES:
        if isinstance(value.get(envelope), (list, dict)):
            if any(isinstance(value.get(key), str) for key in NAME_KEYS):
                yield CallDraft(problem=f"the object is a call, and holds others as {envelope!r}")
                return
            has_text = envelope == "tool_calls" and isinstance(value.get("content"), str)
            others = _others(value, (envelope, "content") if has_text else (envelope,))
            for draft in read_drafts(value[envelope], declared, name_is_key=name_is_key):
                yield (
                    structs.replace(draft, ignored_keys=others + draft.ignored_keys)
                    if others
                    else draft
                )
                others = ()
            return
    if len(value) > 1 and declared and all(map(declared.__contains__, value)):
        # Several names as keys are several calls, if that is all there is.
        for name, arguments in value.items():
            yield _draft({name: arguments}, declared, name_is_key)
        return
    yield _draft(value, declared, name_is_key)


def _draft(value: dict[str, Any], declared: Collection[str] | None, name_is_key: bool) -> CallDraft:
    inner = value.get("function")
    if isinstance(inner, dict):
        clashes = [key for key in inner if key in value and value[key] != inner[key]]
        if clashes:
            return CallDraft(problem=f"the object says two things about {clashes[0]!r}")
        return _draft({**value, **inner, "function": None}, declared, name_is_key)
    name, clash = _name_in(value, declared)
    if clash:
        return CallDraft(name, problem=clash)
    inner, mended = _wrapped(name, value, declared)
    if inner is not None:
        draft = _draft(inner, declared, name_is_key)
        return structs.replace(draft, repairs=("wrapped-call", *mended, *draft.repairs))
    given = [value[key] for key in ARGUMENT_KEYS if value.get(key) not in (None, {}, "")]
    if any(arguments != given[0] for arguments in given):
        return CallDraft(name, problem="the object holds several sets of arguments")
    arguments = given[0] if given else None
    identity = next((str(value[key]) for key in ID_KEYS if _is_id(value.get(key))), "")
    if name and (_is_record(value, name, declared) or _is_schema(arguments)):
        return CallDraft(
            name, problem="this describes a tool, or what it did, and does not call it"
        )
    if name and any(key in value for key in ARGUMENT_KEYS):
        tool = declared.get(name) if isinstance(declared, Mapping) else None
        own = get_properties(tool.parameters) if isinstance(tool, Tool) else ()
        others = (*_other_names(value, name), *_others(value, own))
        draft = CallDraft(name, arguments, identity, ignored_keys=others)
        return _with_strays(draft, value, declared)
    if name:
        return _without_arguments(name, identity, value, declared)
    if len(value) == 1:
        [(key, arguments)] = value.items()
        known = name_is_key and key not in RESERVED_KEYS if declared is None else key in declared
        if isinstance(arguments, dict) and known:
            return CallDraft(key, arguments)
    return CallDraft(problem="the object has no name of a tool")


def _name_in(value: dict[str, Any], declared: Collection[str] | None) -> tuple[str, str]:
    """The name of the tool, and what is wrong if there are several."""
    given = [value[key] for key in NAME_KEYS if isinstance(value.get(key), str)]
    names = [name for name in given if name.strip()]
    known = [name for name in names if declared is not None and name.strip() in declared]
    found = list(dict.fromkeys(known or names))
    if len(found) > 1:
        return found[0], f"the object names two tools: {found[0]!r} and {found[1]!r}"
    return (found[0] if found else ""), ""


def _with_strays(
    draft: CallDraft, value: dict[str, Any], declared: Collection[str] | None
) -> CallDraft:
    """A call, with arguments that have slipped out of the object that holds the others, or should
    hold them."""
    tool = declared.get(draft.name) if isinstance(declared, Mapping) else None
    given = {} if draft.arguments is None else draft.arguments
    if not isinstance(tool, Tool) or not isinstance(given, dict):
        return draft
    known = get_properties(tool.parameters).keys() - _NO_STRAYS
    strays = {key: value[key] for key in value if key in known}
    clashes = [key for key in strays if given.get(key, strays[key]) != strays[key]]
    if clashes:
        return CallDraft(draft.name, problem=f"the object says two things about {clashes[0]!r}")
    if strays.keys() <= given.keys():
        return draft
    repairs = (*draft.repairs, "arguments-beside-name")
    return structs.replace(draft, arguments={**given, **strays}, repairs=repairs)


def _other_names(value: dict[str, Any], name: str) -> tuple[str, ...]:
    """The keys under which something else than the tool's name stands."""
    given = ((key, value.get(key)) for key in NAME_KEYS)
    return tuple(key for key, word in given if isinstance(word, str) and word not in ("", name))


def _others(value: dict[str, Any], known: Collection[str]) -> tuple[str, ...]:
    """The keys of an object that hold more than a call."""
    return tuple(
        key
        for key, item in value.items()
        if key not in _NO_LOSS and key not in known and item not in (None, "", [], {})
    )


def _wrapped(
    name: str, value: dict[str, Any], declared: Collection[str] | None
) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """The call inside of `{"name": "tool_call", "arguments": {"name": …}}`, and the repairs that it
    took."""
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


def _is_record(value: dict[str, Any], name: str, declared: Collection[str] | None) -> bool:
    """Whether an object lists a tool, or says what a call gave, unless the tool has parameters of
    those names."""
    tool = declared.get(name) if isinstance(declared, Mapping) else None
    own = get_properties(tool.parameters) if isinstance(tool, Tool) else {}
    lists = "parameters" in value and isinstance(value.get("description"), str)
    return (
        (lists and "description" not in own)
        or any(key in value and key not in own for key in ("output", "result", "observation"))
        or value.get("role") in ("tool", "function")
    )


def _without_arguments(
    name: str, identity: str, value: dict[str, Any], declared: Collection[str] | None
) -> CallDraft:
    """A name and no key for arguments: there are none, or they stand beside the name."""
    beside = {key: item for key, item in value.items() if key not in _BESIDE_NAME}
    if not beside:
        return CallDraft(name, None, identity, is_bare=True)
    tool = declared.get(name) if isinstance(declared, Mapping) else None
    if isinstance(tool, Tool) and beside.keys() <= get_properties(tool.parameters).keys():
        return CallDraft(name, beside, identity, repairs=("arguments-beside-name",))
    return CallDraft(
        name, problem="the object has a name, but its arguments are under no known key"
    )


def decode_arguments(draft: CallDraft) -> tuple[dict[str, Any] | None, str, tuple[str, ...]]:
    """The decoded arguments, or None and what is wrong with them, and the repairs it took. Bad ones
    never become `{}`."""
    value = draft.arguments
    repairs: tuple[str, ...] = ()
    for encoding in ("", "double-encoding"):
        if not isinstance(value, str):
            break
        if not value.strip():
            value = None
            break
        try:
            value, mended = jsonish.parse_json(
                value, allow_extra_closers=True, allow_escaped_quotes=True
            )
        except jsonish.LenientJsonError as error:
            return None, f"the arguments are not valid JSON: {error}", ()
        repairs += (*mended, *filter(None, (encoding,)))
    if value is None:
        return {}, "", repairs
    if isinstance(value, dict):
        return value, "", repairs
    return None, f"the arguments must be an object, got {type(value).__name__}", ()


def json_equal(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same, telling 1 from true."""
    return jsonish.canonical_json(one) == jsonish.canonical_json(other)
