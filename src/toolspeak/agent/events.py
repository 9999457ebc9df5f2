"""Events of an agent's run, beside the model's own (`TextDelta`, `ReasoningDelta`, `Note`).

ToolCallRequested -> ApprovalRequested (unless the policy decides) -> ToolCallFinished
RunFinished        always the last
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ..events import ReasoningDelta, TextDelta
from ..types import Message, Note, StopReason, ToolCall, ToolResult, Usage
from .approvals import ApprovalRequest

RunStop = Literal["answer", "limit", "repeated", "fatal"]
STOP_MESSAGES: dict[RunStop, str] = {
    "answer": "the model answered",
    "limit": "the turn limit was reached; the model answered without tools",
    "repeated": "the model kept repeating the same calls; it answered without tools",
    "fatal": "a tool ended the run",
}


class ToolCallRequested(Struct, frozen=True):
    """The model called a tool."""

    call: ToolCall


class ApprovalRequested(Struct, frozen=True):
    """The approver is being asked about a call."""

    request: ApprovalRequest


class ToolCallFinished(Struct, frozen=True):
    """A call has its result: the tool ran, failed, or was not run."""

    call: ToolCall
    result: ToolResult
    """As the model receives it."""
    display_text: str
    """As it may be displayed."""
    seconds: float


class RunResult(Struct, frozen=True, kw_only=True):
    """The outcome of a run."""

    text: str
    """The model's answer."""
    stop: RunStop
    messages: tuple[Message, ...]
    """The whole conversation: `agent.run(…, messages=result.messages)` continues it."""
    turns: int
    """The number of model calls."""
    usage: Usage | None = None
    notes: tuple[Note, ...] = ()
    error: str = ""
    """The message of the tool that ended the run."""
    model_stop_reason: StopReason | None = None
    """The last reply's stop reason: `length` if it was truncated."""

    @property
    def stop_message(self) -> str:
        """The reason for the end of the run, as a sentence for people."""
        message = STOP_MESSAGES[self.stop]
        if self.error:
            return f"{message}: {self.error}"
        if self.stop in ("limit", "repeated") and not self.text:
            return message.partition(";")[0] + "; the model gave no answer"
        is_truncated = self.model_stop_reason in ("length", "filter")
        return f"{message}; its reply was truncated" if is_truncated else message

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls of the conversation."""
        parts = (part for message in self.messages for part in message.parts)
        return tuple(part for part in parts if isinstance(part, ToolCall))


class RunFinished(Struct, frozen=True):
    """The run is over; nothing follows."""

    result: RunResult


ToolEvent = ToolCallRequested | ApprovalRequested | ToolCallFinished
AgentEvent = TextDelta | ReasoningDelta | Note | ToolEvent | RunFinished
