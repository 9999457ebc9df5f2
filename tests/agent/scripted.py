"""Scripted models, tools that record their calls, and short ways to build agents."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

from toolspeak import Reply, Request, Text, Tool, ToolCall
from toolspeak.agent import (
    Agent,
    AgentEvent,
    AgentTool,
    RunFinished,
    ToolCallFinished,
    ToolCallRequested,
    ToolOptions,
)
from toolspeak.agent.models import SendEvents
from toolspeak.agent.tools import ToolHandler
from toolspeak.events import unfold


class Script:
    """A model that returns the given replies in order and records its requests."""

    def __init__(self, *turns: Any) -> None:
        self._turns = list(turns)
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Any:
        self.requests.append(request)
        if not self._turns:
            raise AssertionError("the model was asked more often than scripted")
        turn = self._turns.pop(0)
        return turn(request) if callable(turn) else turn


def make_call(name: str, identity: str = "", /, **arguments: Any) -> ToolCall:
    return ToolCall(id=identity or f"call_{name}", name=name, arguments=arguments)


def get_results(request: Request) -> list[str]:
    """Return the texts of the tool results in a request, in order."""
    parts = (part for message in request.messages for part in message.parts)
    return [part.text for part in parts if type(part).__name__ == "ToolResult"]  # pyright: ignore


def summarize_events(events: list[AgentEvent]) -> list[str]:
    """Summarize events, one word or two for each."""
    summary: list[str] = []
    for event in events:
        match event:
            case ToolCallRequested():
                summary.append(f"call {event.call.name}")
            case ToolCallFinished():
                summary.append(
                    f"{'error' if event.result.is_error else 'result'} {event.call.name}"
                )
            case RunFinished():
                summary.append(event.result.stop)
            case _:
                summary.append(type(event).__name__)
    return summary


class RecordingTool:
    """A tool handler that records its calls."""

    def __init__(self, respond: Callable[[dict[str, Any]], Any] = lambda _: "done") -> None:
        self._respond = respond
        self.calls: list[dict[str, Any]] = []

    def __call__(self, arguments: dict[str, Any]) -> Any:
        self.calls.append(arguments)
        return self._respond(arguments)


class DirectModel:
    """A custom model without the engine between it and the loop."""

    def __init__(self, *turns: Any) -> None:
        self._turns = list(turns)
        self.requests: list[Request] = []
        self.is_closed = 0

    async def ask(self, request: Request, send: SendEvents) -> None:
        self.requests.append(request)
        turn = self._turns.pop(0)
        parts = (Text(turn),) if isinstance(turn, str) else tuple(turn)
        for event in unfold(Reply(parts=parts)):
            await send([event])

    async def close(self) -> None:
        self.is_closed += 1


def make_tool(name: str, handler: ToolHandler, *required: str, **options: Any) -> AgentTool:
    """Return a tool with text parameters."""
    declared = Tool(name=name, description=f"The tool {name}.")
    if required:
        properties = {key: {"type": "string"} for key in required}
        schema = {"type": "object", "properties": properties, "required": list(required)}
        declared = Tool(name=name, description=declared.description, parameters=schema)
    return AgentTool(tool=declared, handler=handler, options=ToolOptions(**options))


def make_agent(model: Any, *tools: Any, **options: Any) -> Agent:
    return Agent(model, tools, approval=options.pop("approval", "full"), **options)


def run_tool_call(handler: ToolHandler, **options: Any) -> str:
    """Return the result that the model receives for one call."""
    script = Script([make_call("f")], "Done.")
    make_agent(script, make_tool("f", handler), **options).run_sync("Go.")
    return get_results(script.requests[1])[0]


def raise_in_tool(problem: BaseException) -> ToolHandler:
    def handler(arguments: dict[str, Any]) -> Any:
        raise problem

    return handler


def run_in_fork(function: Callable[[], Any]) -> int:
    """Run a function in a copy of this process, which may die; return the exit code."""
    with warnings.catch_warnings():
        # The copy uses no lock that another thread of this process may hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        try:
            function()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
