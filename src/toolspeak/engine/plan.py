"""How a request will be served: with the model's own tools, by a prompt, or by constraint.

All policy is here, and what comes out is a value that can be printed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from msgspec import Struct

from ..dialects.registry import dialects_for_model
from ..types import Capabilities, Plan, Quirks, Request, ToolCall, ToolResult, ToolsMode, Trust

DEFAULT_DIALECT = "tagged"
"""For models that are not known to speak any other."""
CONSTRAINED = "constrained"


class ModelProfile(Struct, frozen=True, kw_only=True):
    """A model behind an upstream, and what is known and wanted of it."""

    upstream: str = ""
    model: str
    """What the upstream calls it."""
    wire: str = "openai_chat"
    capabilities: Capabilities = Capabilities()
    mode: ToolsMode | Literal["auto"] = "auto"
    """How it shall be given tools; "auto" leaves it to what is known and learned."""
    learned_mode: ToolsMode | None = None
    """What earlier requests have shown."""
    dialect: str | None = None
    trust: Trust = "standard"
    compact: bool | Literal["auto"] = "auto"
    retries: int = 2
    max_repeats: int = 3
    """How often a call may be made in a row with the same result."""
    polling_tools: tuple[str, ...] = ()
    """Tools that may be called as often as they like: names, or patterns of names."""
    select_tools_above: int | None = None
    """From so many tokens of tools on, the model first chooses those that it needs."""
    is_small: bool = False
    """It is so small that it has to be led to its calls, one decision at a time."""
    quirks: Quirks = Quirks()


def plan_request(request: Request, target: ModelProfile) -> Plan:
    """How this request is to be served by this model."""
    if not involves_tools(request):
        return Plan("native", reasons=("no tools are involved",))
    return plan_with_mode(target, *_choose_mode(target))


def plan_with_mode(target: ModelProfile, mode: ToolsMode, reason: str) -> Plan:
    """The plan of that mode."""
    known = target.capabilities
    return _plan(mode, reason, target.dialect, target.model, known.reasoning_open)


@lru_cache(maxsize=256)
def _plan(
    mode: ToolsMode, reason: str, given: str | None, model: str, reasoning_open: bool | None
) -> Plan:
    """Most requests are planned as others before."""
    dialect, which = _choose_dialect(mode, given, model)
    reasons = (reason, which) if which else (reason,)
    return Plan(mode, dialect, reasoning_open, reasons)


def involves_tools(request: Request) -> bool:
    """Whether a request has tools, or tells of calls that were made."""
    if request.tools:
        return True
    parts = (part for message in request.messages for part in message.parts)
    return any(isinstance(part, (ToolCall, ToolResult)) for part in parts)


def _choose_mode(target: ModelProfile) -> tuple[ToolsMode, str]:
    if target.mode != "auto":
        return target.mode, f"the configuration says {target.mode}"
    if target.learned_mode:
        return (
            target.learned_mode,
            f"earlier requests have shown that {target.learned_mode} is better",
        )
    match target.capabilities.native_tools:
        case False if target.capabilities.constrained:
            return "constrained", "the model has no tools of its own, and can be constrained"
        case False:
            return "prompt", "the model has no tools of its own"
        case True:
            return "native", "the model has tools of its own"
        case None:
            return "native", "whether the model has tools of its own will be seen"


def _choose_dialect(mode: ToolsMode, given: str | None, model: str) -> tuple[str | None, str]:
    """The dialect that a model is asked to speak, or expected to fall into; and why that one."""
    if mode == "constrained":
        return CONSTRAINED, ""
    if given:
        return given, f"the configuration says {given}"
    known = next(iter(dialects_for_model(model)), None)
    if known:
        return known.name, f"models of this name speak {known.name}"
    return (DEFAULT_DIALECT, "") if mode == "prompt" else (None, "")
