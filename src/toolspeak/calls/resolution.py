"""Accept or reject the calls that a model wrote.

    resolver = CallResolver(Toolset(tools), trust="standard")
    draft = CallDraft("functions.get-weather", '{"city": "Oslo", "days": "3"}')
    resolver.make_call(resolver.check(draft), draft.id)
    -> Resolution(ToolCall(id="call_5Nq…", name="get_weather",
                           arguments={"city": "Oslo", "days": 3}), notes=(name-corrected, coerced))

A draft passes these checks in order; the first that fails rejects it:

    body       malformed              the parser could not read it
    name       unknown-tool           it is not a declared tool, nor a variant of a declared name
    arguments  undecodable-arguments  they are not an object, nor JSON text of one
    schema     invalid-arguments      they do not match the schema, even when coerced
    purpose    placeholder, echoed    the call is an example, or a copy from a tool result

An accepted call then gets an id that no other call of the reply has; a repetition is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from msgspec import Struct, structs

from .._util import random_id
from ..notes import NOTES
from ..types import Note, Rejection, ToolCall, Trust
from .coercion import SchemaViolation
from .drafts import (
    CallDraft,
    decode_arguments,
    find_freeform_input,
    unwrap_call,
)
from .json_values import canonical_json, json_equal, nesting_depth
from .lenient_json import MAX_DEPTH
from .placeholders import find_placeholder
from .tools import Toolset, clean_name

EchoCheck = Callable[[str, Mapping[str, Any], str], bool]
"""Tells whether a call (name, arguments, its text) only repeats a tool result or a document."""
CallKey = tuple[str, str]
"""A call without its id: the name, and the arguments as canonical JSON."""
MAX_QUOTE = 400
"""How many characters of the reply a note or a rejection quotes."""
_MAX_VIOLATIONS = 3
_MAX_COMPARED_NAMES = 16
"""How many unknown names of a reply are compared with the declared ones, which is slow."""


class CheckedDraft(Struct, frozen=True):
    """A draft after all checks: the tool and its arguments, or the `rejection`."""

    name: str
    arguments: dict[str, Any] = {}
    notes: tuple[Note, ...] = ()
    rejection: Rejection | None = None


class Resolution(Struct, frozen=True):
    """The accepted call or the rejection; neither, if the call repeats an earlier one."""

    call: ToolCall | None = None
    rejection: Rejection | None = None
    notes: tuple[Note, ...] = ()


def new_call_id() -> str:
    """Return an id for a call that came without one."""
    return f"call_{random_id()}"


class CallResolver:
    """Accepts or rejects the drafts of one reply, and gives the calls their ids."""

    def __init__(
        self,
        tools: Toolset,
        trust: Trust = "lenient",
        is_echo: EchoCheck | None = None,
        *,
        types_only: bool = False,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        self.tools = tools
        self.types_only = types_only
        """Tools only give the types of arguments; calls to other tools are accepted too."""
        self.ids = CallIds(new_id)
        self.trust: Trust = trust
        self._is_echo = is_echo
        self._similar_names: dict[str, list[str]] = {}
        """The declared names that are similar to unknown ones."""

    def accepts_any(self, *, declared_only: bool = False) -> bool:
        """Return True if undeclared tools may be called."""
        return self.tools.declared is None or (self.types_only and not declared_only)

    def resolve_structured(self, call: ToolCall, source: str = "") -> list[Resolution]:
        """Check a call that an API has decoded, or the calls inside `tool_call`. `source` is the
        JSON text of its arguments."""
        if nesting_depth(call.arguments) > MAX_DEPTH:
            problem = "the call is nested too deeply"
            rejection = Rejection(source[:MAX_QUOTE], "malformed", problem, name=call.name)
            return [self.reject(rejection)]
        drafts = unwrap_call(CallDraft(call.name, call.arguments, call.id), self.tools)
        return [self._resolve_structured(call, draft, source) for draft in drafts]

    def _resolve_structured(self, call: ToolCall, draft: CallDraft, source: str) -> Resolution:
        checked = self.check(draft, source)
        if checked.rejection is not None:
            return self.reject(checked.rejection)
        resolution = self.make_call(checked, draft.id, source)
        if (made := resolution.call) is None:
            return resolution
        resolved = structs.replace(
            call,
            id=made.id,
            name=made.name,
            arguments=made.arguments,
            namespace=made.namespace or call.namespace,
            freeform=made.freeform or call.freeform,
            raw=call.raw or source,
        )
        return structs.replace(resolution, call=resolved)

    def check(
        self, draft: CallDraft, source: str = "", raw: str = "", *, declared_only: bool = False
    ) -> CheckedDraft:
        """Check a draft without giving it an id. `source` is the text that it was read from, `raw`
        the same with its markers. With `declared_only`, undeclared tools and invalid arguments are
        rejected even if `types_only` is set."""
        if draft.problem:
            return reject_draft("malformed", draft.problem, draft.name, raw=source)
        types_only = self.types_only and not declared_only
        arguments, problem, repairs = decode_arguments(draft)
        name, notes = self._find_tool(draft.name, arguments)
        if name is None:
            unknown = self._describe_unknown(draft.name)
            name = clean_name(draft.name)
            if not types_only or not name:
                return reject_draft("unknown-tool", unknown, draft.name, raw=source)
            correction = _note_correction(draft.name, name)
            notes = (*correction, Note("unknown-tool", unknown, source[:MAX_QUOTE]))
        if arguments is None:
            return reject_draft("undecodable-arguments", problem, name, "$.arguments", source)
        if draft.repairs or repairs:
            notes += _note_repairs((*draft.repairs, *repairs), source)
        checked = CheckedDraft(name, arguments, notes)
        if tool := self.tools.tools.get(name):
            if tool.freeform:
                checked = _match_freeform(checked)
            checked = self._match_schema(checked, source, types_only)
            if checked.rejection is not None:
                return checked
        return self._reject_quotation(checked, source, raw) or checked

    def make_call(
        self,
        checked: CheckedDraft,
        wanted_id: str,
        raw: str = "",
        *,
        claimed_id: str = "",
        dialect: str | None = None,
    ) -> Resolution:
        """Give a checked call its id, unless it repeats an earlier call with the same id.
        `claimed_id` is the id that was claimed when the call started to stream, `dialect` that of
        a call in text."""
        if self.ids.is_repeated(wanted_id, checked.name, checked.arguments):
            return drop_repetition(raw)
        call_id, notes = claimed_id, checked.notes
        if not call_id:
            call_id, replaced = self.claim_id(wanted_id)
            notes += replaced
        arguments = dict(checked.arguments)  # The draft's dict may belong to the caller.
        self.ids.record(call_id, checked.name, arguments)
        tool = self.tools.tools.get(checked.name)
        call = ToolCall(
            id=call_id,
            name=checked.name,
            arguments=arguments,
            namespace=tool.namespace if tool else None,
            freeform=tool is not None and tool.freeform,
            raw=raw,
            dialect=dialect,
        )
        return Resolution(call, None, notes)

    def claim_id(self, wanted_id: str) -> tuple[str, tuple[Note, ...]]:
        """Claim an id for a call: the wanted one if it is free. Notes say if it is not."""
        call_id = self.ids.claim(wanted_id)
        if not wanted_id or call_id == wanted_id:
            return call_id, ()
        message = f"the call got a new id: {wanted_id!r} is already used by another call"
        return call_id, (Note("id-replaced", message, wanted_id[:MAX_QUOTE]),)

    def reject(self, rejection: Rejection) -> Resolution:
        """Return the resolution of a rejected draft, with the note that explains it."""
        note = Note(rejection.code, rejection.problem, rejection.raw[:MAX_QUOTE])
        return Resolution(None, rejection, (note,))

    def _find_tool(
        self, name: str, arguments: dict[str, Any] | None
    ) -> tuple[str | None, tuple[Note, ...]]:
        if not name:
            return self._infer_name(arguments)
        found = self.tools.resolve_name(name)
        if found is None or self.tools.has_name(name):
            return found, ()
        return found, _note_correction(name, found)

    def _infer_name(self, arguments: dict[str, Any] | None) -> tuple[str | None, tuple[Note, ...]]:
        """Return the only tool that declares all arguments, for a call without a name."""
        matching = self.tools.find_by_arguments(arguments) if arguments else []
        if len(matching) != 1:
            return None, ()
        message = f"the call names no tool; its arguments match only {matching[0]!r}"
        return matching[0], (Note("name-inferred", message),)

    def _describe_unknown(self, name: str) -> str:
        if not self.tools.names:
            return f"there is no tool named {name!r}"
        similar = self._similar_names.get(name)
        if similar is None and len(self._similar_names) < _MAX_COMPARED_NAMES:
            similar = self._similar_names[name] = self.tools.suggest_names(name)
        shown = ", ".join(similar or self.tools.names[:3])
        return f"there is no tool named {name!r}; available tools include {shown}"

    def _match_schema(self, checked: CheckedDraft, source: str, types_only: bool) -> CheckedDraft:
        """Coerce the arguments to the tool's schema, or reject the call."""
        name, notes = checked.name, checked.notes
        coercion = self.tools.coerce_arguments(name, checked.arguments, source)
        if coercion.violations:
            path = coercion.violations[0].path
            problem = "; ".join(map(describe_violation, coercion.violations[:_MAX_VIOLATIONS]))
            if not types_only:
                return reject_draft("invalid-arguments", problem, name, path, source)
            notes += (Note("invalid-arguments", problem, path[:MAX_QUOTE]),)
        if not coercion.is_schema_valid:
            message = f"the schema of {name!r} is invalid; only its valid keywords were checked"
            notes += (Note("schema-unusable", message, name),)
        if coercion.changes:
            notes += tuple(
                Note("coerced", one.message, one.path[:MAX_QUOTE]) for one in coercion.changes
            )
        elif notes is checked.notes and coercion.arguments is checked.arguments:
            return checked
        return CheckedDraft(name, coercion.arguments, notes)

    def _reject_quotation(
        self, checked: CheckedDraft, source: str, raw: str
    ) -> CheckedDraft | None:
        """Reject a valid call that is only an example or an echo; None if it is neither."""
        name, arguments = checked.name, checked.arguments
        may_be_example = self.trust != "lenient"
        if may_be_example and (path := find_placeholder(arguments, self.tools.get_schema(name))):
            problem = f"the value of {path!r} is a placeholder: the call is an example"
            return reject_draft("placeholder", problem, name, f"$.{path}", source)
        if self._is_echo and self._is_echo(name, arguments, raw):
            problem = "the call is copied from a tool result or a document"
            return reject_draft("echoed", problem, name, raw=source)
        return None


def _match_freeform(checked: CheckedDraft) -> CheckedDraft:
    """Return the draft of a freeform call with its text under the key `input`."""
    text = None if "input" in checked.arguments else find_freeform_input(checked.arguments)
    if text is None:
        return checked
    notes = (*checked.notes, *_note_repairs(("wrong-input-key",), text))
    return CheckedDraft(checked.name, {"input": text}, notes)


def reject_draft(
    code: str, problem: str, name: str, path: str = "$", raw: str = ""
) -> CheckedDraft:
    """Return a draft that failed a check."""
    return CheckedDraft(
        name, rejection=Rejection(raw[:MAX_QUOTE], code, problem, path, name or None)
    )


def drop_repetition(raw: str) -> Resolution:
    """Return the resolution of a call that repeats an earlier one: a note, and no call."""
    return Resolution(notes=(Note("duplicate-call", NOTES["duplicate-call"], raw[:MAX_QUOTE]),))


def describe_violation(violation: SchemaViolation) -> str:
    """Describe a violation by the argument's name, without `$.`, because models read it too."""
    path = violation.path.removeprefix("$").removeprefix(".")
    return f"{path}: {violation.problem}" if path else violation.problem


def _note_correction(name: str, found: str) -> tuple[Note, ...]:
    if found == name:
        return ()
    message = f"{name!r} was read as the tool {found!r}"
    return (Note("name-corrected", message, name[:MAX_QUOTE]),)


def _note_repairs(repairs: tuple[str, ...], source: str) -> tuple[Note, ...]:
    codes = (f"repaired-{repair}" for repair in repairs)
    return tuple(Note(code, NOTES[code], source[:MAX_QUOTE]) for code in codes)


# Ids, and keys that tell whether two calls are the same.


class CallIds:
    """The ids of one reply's calls, and the calls accepted so far."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._taken: set[str] = set()
        self._calls: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._keys: set[CallKey] = set()
        """The keys of the first `_key_count` calls; computed on demand: most replies need none."""
        self._key_count = 0

    def claim(self, wanted: str) -> str:
        """Reserve an id for a call: the wanted one if it is free, else a new one."""
        identity = wanted if wanted and wanted not in self._taken else self._new_id()
        self._taken.add(identity)
        return identity

    def release(self, identity: str) -> None:
        """Free the id of a call that was not accepted."""
        self._taken.discard(identity)

    def record(self, identity: str, name: str, arguments: Mapping[str, Any]) -> None:
        """Remember a call that was accepted."""
        self._calls[identity] = (name, arguments)

    def is_repeated(self, identity: str, name: str, arguments: Mapping[str, Any]) -> bool:
        """Return True if the same call with the same id was accepted before."""
        known = self._calls.get(identity) if identity else None
        return known is not None and known[0] == name and json_equal(known[1], arguments)

    def has_call(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Return True if the same call was accepted before, under any id."""
        for made_name, made_arguments in islice(self._calls.values(), self._key_count, None):
            self._keys.add(call_key(made_name, made_arguments))
        self._key_count = len(self._calls)
        return call_key(name, arguments) in self._keys

    def keep_first(self, count: int) -> None:
        """Forget all calls but the first `count`."""
        while len(self._calls) > count:
            identity, _ = self._calls.popitem()
            self._taken.discard(identity)
        if self._key_count > count:
            self._keys, self._key_count = set(), 0


_MAYBE_INTEGRAL_FLOAT = re.compile(r"\.0|\de")
"""A float that may be integral: `3.0`, `1e3`."""
_MAX_PATTERN_LENGTH = 2**20
"""Nothing else can run while a pattern is searched: in longer texts, it is not."""


def call_key(name: str, arguments: Mapping[str, Any]) -> CallKey:
    """Return a key that is the same for equivalent calls."""
    try:
        written = canonical_json(arguments)
    except TypeError:
        # A mapping that is not a dict.
        return name, canonical_json(_with_integral_floats_as_integers(arguments))
    if len(written) > _MAX_PATTERN_LENGTH or _MAYBE_INTEGRAL_FLOAT.search(written):
        try:
            written = canonical_json(_with_integral_floats_as_integers(arguments))
        except RecursionError:
            pass
    return name, written


def _with_integral_floats_as_integers(value: Any) -> Any:
    """Replace 3.0 by 3, everywhere in a value."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_with_integral_floats_as_integers(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _with_integral_floats_as_integers(item) for key, item in value.items()}
    return value
