"""What to do when a model does not do as it was told, or an upstream does not understand.

A choice that is required holds the reply back until a call begins: nothing has left yet, and the
model can be asked again in a stronger way.
"""

from __future__ import annotations

import re

from msgspec import structs

from ..errors import ToolspeakError
from ..events import CallStart, Event, Finish
from ..types import Failure, Plan
from .exchange import Exchange
from .plan import DEFAULT_DIALECT, Target, plan_with

_TOOLS = re.compile(
    r"(?:\b|_)(?:tool|function(?!al))|roles must alternate|roles? (?:is|are) (?:not )?supported",
    re.I,
)
"""Words of refusals that are about tools, or about the turns that only calls and results make."""
_THESE = re.compile(
    r"schema|preced|be followed|match|pattern|maximum|too (?:many|long)|duplicate|unique|_id\b",
    re.I,
)
"""Words of those that are about the tools and calls of one request: others may be taken."""
_NOT_UNDERSTOOD = frozenset({400, 404, 405, 415, 422, 500, 501})


class NoCall(ToolspeakError):
    """A call was required, and the model has made none."""

    def __init__(self) -> None:
        super().__init__("a call was required, and the model has made none")
        self.failure = Failure("upstream", str(self), 502, "no_tool_call")


class Held:
    """Lets events through; where a call is required, only once one has begun."""

    def __init__(self, exchange: Exchange) -> None:
        choice = exchange.request.tool_choice
        self._waits = choice.mode == "required" and bool(exchange.offered.tools)
        self._events: list[Event] = []

    def feed(self, events: list[Event]) -> list[Event]:
        """The events that may leave."""
        if not self._waits:
            return events
        for event in events:
            self._events.append(event)
            if isinstance(event, (CallStart, Failure)):
                self._waits = False
            elif self._waits and isinstance(event, Finish):
                raise NoCall
        if self._waits:
            return []
        ready, self._events = self._events, []
        return ready


def is_about_tools(failure: Failure) -> bool:
    """Whether an upstream seems to have refused a request because of its tools. That they take too
    many tokens says nothing of tools as such."""
    if failure.kind == "context_length":
        return False
    said = f"{failure.message} {failure.param or ''} {failure.code or ''}"
    return failure.status in _NOT_UNDERSTOOD and _TOOLS.search(said) is not None


def is_about_all_tools(failure: Failure) -> bool:
    """Whether such a refusal seems to be of any tools, and not of what is wrong with these."""
    return is_about_tools(failure) and _THESE.search(failure.message) is None


def next_plan(target: Target, plan: Plan, attempt: int) -> Plan | None:
    """A stronger way to ask for a call; None if there is none, or it was tried often enough."""
    if attempt >= target.retries:
        return None
    if plan.mode != "constrained" and target.capabilities.constrained:
        return plan_with(target, "constrained", "a call is required, and none was made")
    if plan.mode == "native":
        return plan_with(target, "prompt", "a call is required, and none was made")
    return structs.replace(plan, dialect=plan.dialect or DEFAULT_DIALECT)
