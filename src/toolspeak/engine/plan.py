"""Plans: how a request gives the model its tools.

    native         the tools go into the `tools` field of the upstream's API
    prompt         the tools are described in the prompt; calls are read from the reply's text
    constrained    a JSON schema admits only valid calls or an answer

A `Plan` (types.py) is a printable value with the reasons for it. `recovery` changes it after a
fault, `attempt` if the dialect cannot represent the tools or the history.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from msgspec import Struct, structs

from ..dialects.markers import dialects_for_model, find_taught_dialect
from ..types import Capabilities, Plan, Quirks, Request, ToolCall, ToolResult, ToolsMode, Trust

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


def plan_request(request: Request, profile: ModelProfile) -> Plan:
    """Return the plan for a request to a model."""
    if not involves_tools(request):
        return Plan("native", reasons=("the request involves no tools",))
    return plan_with_mode(profile, *_choose_mode(profile))


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
            return "constrained", "the model has no native tools and can be constrained"
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
