"""Plans: how a request gives the model its tools.

    native         the tools go into the `tools` field of the upstream's API
    prompt         the tools are described in the prompt; calls are read from the reply's text
    constrained    a JSON schema admits only valid calls or an answer

A `Plan` (types.py) is a printable value with the reasons for it. `recovery` changes it after a
fault, `attempt` if the dialect cannot represent the tools or the history. `OfferedTools` are the
tools of a request as the model sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache, partial
from typing import Literal

from msgspec import Struct, structs

from .._util import memoize_by_identity
from ..calls.tools import Toolset
from ..dialects.markers import dialects_for_model, find_taught_dialect
from ..types import (
    Capabilities,
    Note,
    Plan,
    Quirks,
    Request,
    Tool,
    ToolCall,
    ToolResult,
    ToolsMode,
    Trust,
)
from ..wires.encoding import (
    LossLog,
    NameRule,
    ToolNames,
    convert_freeform_tool,
    join_namespace,
)
from ..wires.fields import HOSTED_TOOLS

DEFAULT_DIALECT = "tagged"
"""The dialect for models that are not known to write another."""
CONSTRAINED = "constrained"


class ModelProfile(Struct, frozen=True, kw_only=True):
    """A model behind an upstream: what is known about it, and how it is configured."""

    upstream: str = ""
    model: str
    """The upstream's name for the model."""
    wire: str = "openai_chat"
    capabilities: Capabilities = Capabilities()
    mode: ToolsMode | Literal["auto"] = "auto"
    """The configured mode. "auto" chooses by capabilities and by what was learned."""
    learned_mode: ToolsMode | None = None
    """The mode that an earlier request or probe has shown to work."""
    dialect: str | None = None
    trust: Trust = "standard"
    compact: bool | Literal["auto"] = "auto"
    retries: int = 2
    max_repeats: int = 3
    """How many times in a row the model may make the same call with the same result."""
    tool_aliases: dict[str, str] = {}
    """Other names by which the model may call a tool, with the tool's name."""
    polling_tools: tuple[str, ...] = ()
    """Names, or patterns of names, of tools that may repeat a call without limit."""
    select_tools_above: int | None = None
    """Above this many tokens of tools, the model first selects the tools it needs."""
    is_small: bool = False
    """The model is too small to write calls and is asked for one decision at a time."""
    quirks: Quirks = Quirks()

    @property
    def has_cache_control(self) -> bool:
        """True if the upstream caches prompts up to the parts that have `cache_control`."""
        return self.quirks.cache_control or self.wire == "anthropic"


def plan_request(request: Request, profile: ModelProfile) -> Plan:
    """Return the plan for a request to a model."""
    if involves_tools(request):
        return plan_with_mode(profile, *_choose_mode(profile))
    if depends_on_mode(request) and _choose_mode(profile)[0] != "native":
        reason = "the request has a format and no tools: the format is described in the prompt"
        return plan_with_mode(profile, "prompt", reason)
    return Plan("native", reasons=("the request involves no tools",))


def depends_on_mode(request: Request) -> bool:
    """Return True if the mode matters for a request: it involves tools, or asks for a format."""
    return request.response_format is not None or involves_tools(request)


def explain_learned_mode(request: Request, profile: ModelProfile) -> str:
    """Return the reason for a learned mode that has changed the plan of the request, or ""."""
    if profile.learned_mode is None or not involves_tools(request):
        return ""
    unlearned = structs.replace(profile, learned_mode=None)
    mode, reason = _choose_mode(profile)
    return "" if mode == _choose_mode(unlearned)[0] else reason


def is_format_checked(request: Request, plan: Plan) -> bool:
    """Return True if an answer's format is checked here. It is left to the upstream only in native
    mode and without tools: upstreams may not enforce a format if the request also has tools."""
    has_format = request.response_format is not None
    return has_format and (bool(request.tools) or plan.mode != "native")


def plan_with_mode(profile: ModelProfile, mode: ToolsMode, reason: str) -> Plan:
    """Return the plan for `mode`."""
    is_open = profile.capabilities.reasoning_open is True
    return _plan(mode, reason, profile.dialect, profile.model, is_open)


def plan_with_default_dialect(plan: Plan, reason: str) -> Plan:
    """Return `plan` with the default dialect, which can represent every call."""
    return structs.replace(plan, dialect=DEFAULT_DIALECT, reasons=(*plan.reasons, reason))


@lru_cache(maxsize=256)
def _plan(
    mode: ToolsMode, reason: str, dialect: str | None, model: str, reasoning_open: bool
) -> Plan:
    chosen, why = _choose_dialect(mode, dialect, model)
    reasons = (reason, why) if why else (reason,)
    known = () if mode == "constrained" else dialects_for_model(model)
    others = dict.fromkeys(one.name for one in known if one.name != chosen)
    return Plan(mode, chosen, reasoning_open, reasons, tuple(others))


def involves_tools(request: Request) -> bool:
    """Return True if the request declares tools, or its history has calls or results."""
    if request.tools:
        return True
    parts = (part for message in request.messages for part in message.parts)
    return any(isinstance(part, (ToolCall, ToolResult)) for part in parts)


def _choose_mode(profile: ModelProfile) -> tuple[ToolsMode, str]:
    """Return the mode and the reason for it."""
    if profile.mode != "auto":
        return profile.mode, f"`tools` is set to {profile.mode} for this model"
    if profile.learned_mode:
        return (
            profile.learned_mode,
            f"an earlier request or probe has shown that {profile.learned_mode} works",
        )
    match profile.capabilities.native_tools:
        case False if profile.capabilities.constrained:
            return "constrained", "the model has no native tools and supports constrained decoding"
        case False:
            return "prompt", "the model has no native tools"
        case True:
            return "native", "the model has native tools"
        case None:
            return (
                "native",
                "native tools are tried first: it is not known yet whether the model has them",
            )


def _choose_dialect(mode: ToolsMode, configured: str | None, model: str) -> tuple[str | None, str]:
    """Return the dialect to ask for, or to expect in a native model's text, and the reason."""
    if mode == "constrained":
        return CONSTRAINED, ""
    if configured:
        return configured, f"`dialect` is set to {configured} for this model"
    known = find_taught_dialect(model)
    if known:
        return known.name, f"models with this name write {known.name}"
    return (DEFAULT_DIALECT, "") if mode == "prompt" else (None, "")


PROMPT_NAME = "Prompt mode"
"""Used in notes in place of an API's name."""
_NAME_RULE = NameRule(r"\w\-", 64, "A-Za-z_")


class OfferedTools:
    """The tools that the model may call, under names that every dialect can write.

        mcp.files/read    ->  mcp_files_read          as the model sees it
        mcp_files_read    ->  mcp.files/read          as the client declared it

    A freeform tool is offered as one that takes an object with one string. `aliases` maps other
    names by which the model may call a tool to the tool's name.
    """

    def __init__(self, request: Request, aliases: Mapping[str, str] | None = None) -> None:
        choice = request.tool_choice
        declared = self._declared = request.tools or ()
        self._names, self.all = _rename_tools(declared)
        if aliases:
            self.all = tuple(self._add_aliases(aliases))
        self.allowed: tuple[Tool, ...] = self.all
        """The tools that `tool_choice` allows; `all` are those of the request."""
        if choice.mode == "none":
            self.allowed = ()
        elif choice.names:
            chosen = [tool for tool in declared if tool.name in choice.names]
            names = {self._names.to_wire(tool.name, tool.namespace) for tool in chosen}
            self.allowed = tuple(tool for tool in self.all if tool.name in names)
        self.has_hosted_tools = bool(request.extra.get(HOSTED_TOOLS))
        """The upstream's API also runs tools of its own."""

    def _add_aliases(self, aliases: Mapping[str, str]) -> Iterator[Tool]:
        for declared, tool in zip(self._declared, self.all, strict=True):
            own = (alias for alias, name in aliases.items() if name == declared.name)
            yield structs.replace(tool, aliases=(*tool.aliases, *own))

    def to_model_call(self, call: ToolCall) -> ToolCall:
        """Return a call from the history under the name that the model knows."""
        name = self._names.to_wire(call.name, call.namespace)
        if name == call.name and call.namespace is None and not call.freeform:
            return call
        return structs.replace(call, name=name, namespace=None, freeform=False)

    def read_reply_call(self, call: ToolCall) -> ToolCall:
        """Return a structured call of a reply under the model's name for its tool. A name that is
        none of the request's stays as the model wrote it."""
        name = self._names.find_wire_name(call.name, call.namespace)
        if name is None:
            name = join_namespace(call.namespace, call.name)
        if name == call.name and call.namespace is None and not call.freeform:
            return call
        return structs.replace(call, name=name, namespace=None, freeform=False)

    def to_client_call(self, call: ToolCall) -> ToolCall:
        """Return a model's call under the name that the client declared."""
        tool = self._names.find_tool(call.name)
        if tool is None or (tool.name, tool.namespace, tool.freeform) == _identity_of(call):
            return call
        return structs.replace(
            call, name=tool.name, namespace=tool.namespace, freeform=tool.freeform
        )

    @property
    def toolset(self) -> Toolset:
        """The tools that may be called."""
        return _toolset(self.allowed)

    def notes(self, *, has_cache_control: bool = False) -> tuple[Note, ...]:
        """Return a note for every property of the tools that a prompt cannot carry."""
        losses = _loss_finder(has_cache_control)(self._declared)
        return (*losses, *self._names.notes)


def _identity_of(call: ToolCall) -> tuple[str, str | None, bool]:
    return call.name, call.namespace, call.freeform


_toolset = memoize_by_identity(Toolset)


@memoize_by_identity
def _rename_tools(declared: tuple[Tool, ...]) -> tuple[ToolNames, tuple[Tool, ...]]:
    names = ToolNames(declared, _NAME_RULE)
    losses = LossLog("", "")
    written = (
        _rename_tool(
            convert_freeform_tool(tool, losses, "$.tools"),
            tool,
            names.to_wire(tool.name, tool.namespace),
        )
        for tool in declared
    )
    return names, tuple(written)


def _rename_tool(tool: Tool, declared: Tool, name: str) -> Tool:
    """Return a tool under the name that the model knows. Its own name is an alias of that."""
    own = join_namespace(declared.namespace, declared.name)
    aliases = declared.aliases if own == name else (own, *declared.aliases)
    return structs.replace(
        tool, name=name, namespace=None, freeform=declared.freeform, aliases=aliases
    )


@cache
def _loss_finder(has_cache_control: bool) -> Callable[[tuple[Tool, ...]], tuple[Note, ...]]:
    """Return a cached function that finds the losses of tools in a prompt."""
    return memoize_by_identity(partial(_find_losses, has_cache_control))


def _find_losses(has_cache_control: bool, declared: tuple[Tool, ...]) -> tuple[Note, ...]:
    losses = LossLog(PROMPT_NAME, "", has_cache_control=has_cache_control)
    for tool in declared:
        path = f"$.tools[{tool.name!r}]"
        losses.carry(convert_freeform_tool(tool, losses, path).extra, path)
    return losses.notes()
