"""What happens while an agent works, beside what its model says (`TextDelta`, `ReasoningDelta`)."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ..events import ReasoningDelta, TextDelta
from ..types import Message, Note, StopReason, ToolCall, ToolResult, Usage
from .approvals import ApprovalRequest

RunStop = Literal["answer", "limit", "repeated", "fatal"]
STOP_MESSAGES: dict[RunStop, str] = {
    "answer": "the model has answered",
    "limit": "it had no turns left, and was asked for an answer without tools",
    "repeated": "it made the same calls again and again, and was asked for an answer without tools",
    "fatal": "a tool has ended it",
}
"""Why an agent stops."""


class ToolCallRequested(Struct, frozen=True):
    """The model wants a tool to be run."""

    call: ToolCall


class ApprovalRequested(Struct, frozen=True):
    """Somebody is being asked whether a call may be made."""

    request: ApprovalRequest


class ToolCallFinished(Struct, frozen=True):
    """A tool has run, or was not allowed to."""

    call: ToolCall
    result: ToolResult
    """As the model gets it."""
    display_text: str
    """As it may be shown."""
    seconds: float


class RunResult(Struct, frozen=True, kw_only=True):
    """What an agent has done."""

    text: str
    """The answer."""
    stop: RunStop
    messages: tuple[Message, ...]
    """The whole conversation: `agent.run(…, messages=run.messages)` goes on with it."""
    turns: int
    """How often the model was asked."""
    usage: Usage | None = None
    notes: tuple[Note, ...] = ()
    error: str = ""
    """What the tool said that has ended it."""
    model_stop_reason: StopReason | None = None
    """Why the model has stopped to speak: `length` if it was cut off."""

    @property
    def stop_message(self) -> str:
        """Why it has stopped, in words."""
        cut = "; what it said was cut off" if self.model_stop_reason in ("length", "filter") else ""
        return (
            f"{STOP_MESSAGES[self.stop]}: {self.error}"
            if self.error
            else f"{STOP_MESSAGES[self.stop]}{cut}"
        )

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls of the conversation."""
        parts = (part for message in self.messages for part in message.parts)
        return tuple(part for part in parts if isinstance(part, ToolCall))


class RunFinished(Struct, frozen=True):
    """That was all."""

    result: RunResult


AgentEvent = (
    TextDelta
    | ReasoningDelta
    | Note
    | ToolCallRequested
    | ApprovalRequested
    | ToolCallFinished
    | RunFinished
)
