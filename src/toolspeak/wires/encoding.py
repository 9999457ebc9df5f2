"""Encoding requests: what several APIs have in common, and a log of what is lost."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Mapping
from functools import cache
from typing import Any

from .._util import memoize_by_identity
from ..calls.tools import build_text_schema
from ..types import Note, Request, Thinking, Tool, ToolChoice
from .fields import HOSTED_TOOLS, PRIVATE, Json
from .names import NameRule, ToolNames

_ELSEWHERE_NOTHING = frozenset({"stream_options"})
"""Fields that are about the connection, and mean nothing elsewhere."""


class LossLog:
    """What cannot be said on a wire, each field once, with the first place where it stood."""

    def __init__(self, wire: str, origin: str) -> None:
        self.wire = wire
        self.is_same_wire = wire == origin
        """The request came by this very API: what it left over rides along."""
        self._notes: dict[tuple[str, str], tuple[str, str, int]] = {}

    def carry(self, extra: Json, path: str) -> Json:
        """The fields that ride along, if they may."""
        if self.is_same_wire or not extra:
            return extra
        for key in extra:
            if key not in _ELSEWHERE_NOTHING and not key.startswith(PRIVATE):
                self.drop(key, f"{path}.{key}")
        for tool in extra.get(HOSTED_TOOLS, ()):
            kind = tool.get("type") or next(iter(tool), None)
            self._note("skipped-tool", f"a tool of the kind {kind!r} cannot be offered", path)
        return {}

    def drop(self, what: str, path: str) -> None:
        """Something is left out."""
        self._note("unsupported", f"{self.wire} has no words for {what}; it is left out", path)

    def change(self, message: str, path: str) -> None:
        """Something is said in another way."""
        self._note("converted", message, path)

    def _note(self, code: str, message: str, path: str) -> None:
        known = self._notes.get((code, message))
        self._notes[code, message] = (
            message,
            known[1] if known else path,
            (known or (0, 0, 0))[2] + 1,
        )

    def notes(self) -> tuple[Note, ...]:
        """Everything that was noted."""
        if not self._notes:
            return ()
        return tuple(
            Note(code, f"{message} ({count} places)" if count > 1 else message, path)
            for (code, _), (message, path, count) in self._notes.items()
        )


def omit_none(**fields: Any) -> Json:
    """An object of the fields that are there."""
    return {key: value for key, value in fields.items() if value is not None}


_LONGEST_USER = 64


OPENAI_NAMES = NameRule(r"a-zA-Z0-9_\-", 64)


def convert_freeform_tool(tool: Tool, unsaid: LossLog, path: str) -> Tool:
    """A tool that takes text, as one that takes an object with the text in it."""
    if not tool.freeform:
        return tool
    unsaid.change(f"{unsaid.wire} has no freeform tools; the text is an object's `input`", path)
    return Tool(
        name=tool.name,
        description=tool.description,
        parameters=build_text_schema(tool.extra.get("format")),
        namespace=tool.namespace,
    )


def shorten_id(identity: str, longest: int) -> str:
    """An id of no more letters than an API takes. A call and its result get the same."""
    return (
        identity
        if len(identity) <= longest
        else f"{identity[: longest - 7]}_{short_hash(identity)}"
    )


def short_hash(text: str) -> str:
    """Six letters that tell a text from others like it."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=3).hexdigest()


def encode_user_id(request: Request, unsaid: LossLog) -> str | None:
    """On whose behalf the request is, in no more letters than most servers take."""
    user = request.metadata.get("user_id")
    if not isinstance(user, str) or not user:
        return None
    if unsaid.is_same_wire or len(user) <= _LONGEST_USER:
        return user
    unsaid.change("a user's id that is too long for some goes out as a hash", "$.metadata.user_id")
    return hashlib.blake2b(user.encode("utf-8", "replace"), digest_size=16).hexdigest()


def as_object_schema(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema as an API wants it that takes nothing but objects."""
    return parameters or {"type": "object", "properties": {}}


def select_allowed_tools(request: Request, unsaid: LossLog) -> tuple[Tool, ...]:
    """The tools that may be called, where an API cannot be told to choose among more."""
    tools = request.tools or ()
    names = request.tool_choice.names
    if not names:
        return tools
    kept = tuple(tool for tool in tools if tool.name in names)
    if len(kept) < len(tools):
        unsaid.change("only the tools that may be chosen are offered", "$.tool_choice")
    return kept


def name_tools(request: Request, rule: NameRule, *, keeps_namespaces: bool = False) -> ToolNames:
    """The names of a request's tools, as the rule allows."""
    return map_tool_names(request.tools or (), rule, keeps_namespaces=keeps_namespaces)


def map_tool_names(
    tools: tuple[Tool, ...], rule: NameRule, *, keeps_namespaces: bool = False
) -> ToolNames:
    """The names of tools, as the rule allows."""
    return _names(rule, keeps_namespaces)(tools)


@cache
def _names(rule: NameRule, keeps_namespaces: bool) -> Callable[[tuple[Tool, ...]], ToolNames]:
    return memoize_by_identity(
        lambda tools: ToolNames(tools, rule, keeps_namespaces=keeps_namespaces)
    )


def mark_private(fields: Json, known: Container[str]) -> Json:
    """Fields to ride along, of which those that are known mean nothing elsewhere."""
    return {f"{PRIVATE}{key}" if key in known else key: value for key, value in fields.items()}


def unmark_private(extra: Json) -> Json:
    """The fields that `set_apart` was given."""
    return {key.removeprefix(PRIVATE): value for key, value in extra.items()}


EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


_BUDGETS = ((0, "none"), (2_048, "low"), (12_288, "medium"))


def choose_effort(
    thinking: Thinking, unsaid: LossLog, known: Iterable[str] = EFFORTS[:6]
) -> str | None:
    """How hard to think, in words; None leaves it to the model."""
    effort = thinking.effort
    if effort is None and thinking.enabled is False:
        # Models that cannot think refuse an effort of none.
        unsaid.drop("thinking that is switched off, an effort of none", "$.thinking")
    elif effort is None and thinking.budget is not None:
        effort = next((word for limit, word in _BUDGETS if thinking.budget <= limit), "high")
        unsaid.change(f"a budget of {thinking.budget} tokens is {effort!r} effort", "$.thinking")
    if effort is None and (thinking.enabled or thinking.shown is not None):
        unsaid.drop("whether to think, and to show it", "$.thinking")
    if effort is None or effort in (known := tuple(known)):
        return effort
    nearest = min(known, key=lambda word: abs(_rank(word) - _rank(effort)))
    unsaid.change(
        f"{unsaid.wire} has no effort {effort!r}; the nearest is {nearest!r}", "$.thinking"
    )
    return nearest


def _rank(effort: str) -> int:
    return EFFORTS.index(effort) if effort in EFFORTS else EFFORTS.index("medium")


def encode_sampling(
    request: Request, written: Mapping[str, str], unsaid: LossLog, *, extensions: Iterable[str] = ()
) -> Json:
    """The settings that a wire has words for; `extensions` only where they came by the same."""
    out: Json = {}
    for key, value in request.sampling.items():
        if key in written:
            out[written[key]] = value
        elif unsaid.is_same_wire and key in extensions:
            out[key] = value
        else:
            unsaid.drop(key, f"$.{key}")
    return out


def encode_choice_names(choice: ToolChoice, names: ToolNames, tools: Iterable[Tool]) -> list[str]:
    """The tools that a choice names, as they are written."""
    spaces = {tool.name: tool.namespace for tool in tools}
    return [names.to_wire(name, spaces.get(name)) for name in choice.names]
