"""What happens while an agent works, beside what its model says (`TextDelta`, `ReasoningDelta`)."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ..events import ReasoningDelta, TextDelta
from ..types import Message, Note, StopReason, ToolCall, ToolResult, Usage
from .approvals import Question

Stop = Literal["answer", "limit", "repeated", "fatal"]
STOPS: dict[Stop, str] = {
    "answer": "the model has answered",
    "limit": "it had no turns left, and was asked for an answer without tools",
    "repeated": "it made the same calls again and again, and was asked for an answer without tools",
    "fatal": "a tool has ended it",
}
"""Why an agent stops."""


class CallMade(Struct, frozen=True):
    """The model wants a tool to be run."""

    call: ToolCall


class ApprovalAsked(Struct, frozen=True):
    """Somebody is being asked whether a call may be made."""

    question: Question


class ResultGiven(Struct, frozen=True):
    """A tool has run, or was not allowed to."""

    call: ToolCall
    result: ToolResult
    """As the model gets it."""
    shown: str
    """As it may be shown."""
    seconds: float


class Run(Struct, frozen=True, kw_only=True):
    """What an agent has done."""

    text: str
    """The answer."""
    stop: Stop
    messages: tuple[Message, ...]
    """The whole conversation: `agent.run(…, messages=run.messages)` goes on with it."""
    turns: int
    """How often the model was asked."""
    usage: Usage | None = None
    notes: tuple[Note, ...] = ()
    error: str = ""
    """What the tool said that has ended it."""
    finish: StopReason | None = None
    """Why the model has stopped to speak: `length` if it was cut off."""

    @property
    def why(self) -> str:
        """Why it has stopped, in words."""
        cut = "; what it said was cut off" if self.finish in ("length", "filter") else ""
        return f"{STOPS[self.stop]}: {self.error}" if self.error else f"{STOPS[self.stop]}{cut}"

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls of the conversation."""
        parts = (part for message in self.messages for part in message.parts)
        return tuple(part for part in parts if isinstance(part, ToolCall))


class Done(Struct, frozen=True):
    """That was all."""

    run: Run


AgentEvent = TextDelta | ReasoningDelta | Note | CallMade | ApprovalAsked | ResultGiven | Done
