"""Scripted models, and tools that record their calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolspeak import Request, ToolCall
from toolspeak.agent import AgentEvent, RunFinished, ToolCallFinished, ToolCallRequested

Said = Any


class Script:
    """A model that returns the given replies in order and records its requests."""

    def __init__(self, *said: Said) -> None:
        self._said = list(said)
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Said:
        self.requests.append(request)
        if not self._said:
            raise AssertionError("the model was asked more often than scripted")
        said = self._said.pop(0)
        return said(request) if callable(said) else said


def call(name: str, identity: str = "", /, **arguments: Any) -> ToolCall:
    return ToolCall(id=identity or f"call_{name}", name=name, arguments=arguments)


def results(request: Request) -> list[str]:
    """Return the texts of the tool results in a request, in order."""
    parts = (part for message in request.messages for part in message.parts)
    return [part.text for part in parts if type(part).__name__ == "ToolResult"]  # pyright: ignore


def names(events: list[AgentEvent]) -> list[str]:
    """Summarize events, one word or two for each."""
    told: list[str] = []
    for event in events:
        match event:
            case ToolCallRequested():
                told.append(f"call {event.call.name}")
            case ToolCallFinished():
                told.append(f"{'error' if event.result.is_error else 'result'} {event.call.name}")
            case RunFinished():
                told.append(event.result.stop)
            case _:
                told.append(type(event).__name__)
    return told


class Counted:
    """A tool handler that records its calls."""

    def __init__(self, gives: Callable[[dict[str, Any]], Any] = lambda _: "done") -> None:
        self._gives = gives
        self.calls: list[dict[str, Any]] = []

    def __call__(self, arguments: dict[str, Any]) -> Any:
        self.calls.append(arguments)
        return self._gives(arguments)
