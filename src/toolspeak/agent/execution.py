"""Runs a tool, and makes a result of whatever comes of it. Nothing but `Fatal` gets through."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import Any

import msgspec
from msgspec import structs

from ..errors import ToolspeakError, UsageError
from ..fit import fit
from ..jsonish import dumps
from ..toolset import Toolset
from ..types import Document, Image, Other, Text, ToolCall, ToolResult
from .tools import AgentTool, Content, Fatal, is_async

log = logging.getLogger("toolspeak.agent")

NO_OUTPUT = "(The tool has run, and gave no output.)"
_PARTS = (Text, Image, Document, Other)


async def result_of(tool: AgentTool, call: ToolCall, timeout: float, limit: int) -> ToolResult:
    """What a tool gives for a call, within so many seconds and characters."""
    seconds = tool.options.timeout or timeout
    try:
        async with asyncio.timeout(seconds):
            content = _content(await _run(tool, call.arguments))
    except Fatal:
        raise
    except TimeoutError:
        return failed(call, f"{call.name} has not ended in {seconds:g} s{_left_running(tool)}.")
    except UsageError as problem:
        return failed(call, f"{call.name} was not run: {problem}")
    except Exception as problem:
        log.info("%s has failed", call.name, exc_info=True)
        return failed(call, _cut(f"{call.name} has failed: {_said(problem)}", limit))
    return ToolResult(call_id=call.id, name=call.name, content=_within(content, limit))


def failed(call: ToolCall, why: str) -> ToolResult:
    """The result of a call that was not made, or came to nothing."""
    return ToolResult(call_id=call.id, name=call.name, content=why, is_error=True)


def unknown(call: ToolCall, tools: Toolset) -> ToolResult:
    """The result of a call of a tool that does not exist."""
    names = ", ".join(tools.nearest(call.name))
    there = f"The nearest are: {names}." if names else "There are no tools."
    return failed(call, f"There is no tool {call.name!r}. {there}")


def fault_in(call: ToolCall, tool: AgentTool) -> str:
    """What is wrong with the arguments of a call, and where; "" if nothing is."""
    faults = fit(call.arguments, tool.tool.parameters).faults
    told = "; ".join(f"{fault.problem} - at `{fault.path}`" for fault in faults)
    return f"{call.name} was not run: {told}." if faults else ""


async def _run(tool: AgentTool, arguments: dict[str, Any]) -> Any:
    """What the handler returns. One that does not wait on its own is run in a thread, so that
    others need not wait for it."""
    if is_async(tool.handler):
        return await tool.handler(arguments)
    given = await asyncio.to_thread(tool.handler, arguments)
    return await given if inspect.isawaitable(given) else given


def _left_running(tool: AgentTool) -> str:
    """A thread cannot be ended from outside."""
    return "" if is_async(tool.handler) else ", and may still be running"


def _content(given: Any) -> Content:
    match given:
        case str():
            return given or NO_OUTPUT
        case None:
            return NO_OUTPUT
        case Text() | Image() | Document() | Other():
            return (given,)
        case list() | tuple() if given and all(isinstance(part, _PARTS) for part in given):
            return tuple(given)
        case bytes():
            return given.decode("utf-8", "replace")
        case _ if hasattr(given, "model_dump_json"):
            return str(given.model_dump_json())
        case _:
            return _as_json(given)


def _as_json(given: Any) -> str:
    try:
        return dumps(msgspec.to_builtins(given, enc_hook=str))
    except (TypeError, ValueError, RecursionError, OverflowError):
        return str(given)


def _said(problem: Exception) -> str:
    if isinstance(problem, ToolspeakError) and str(problem):
        # It was worded to be read, and the name of its class would only be in the way.
        return str(problem)
    return f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__


def _within(content: Content, limit: int) -> Content:
    """The content, of whose texts none is longer than that."""
    if isinstance(content, str):
        return _cut(content, limit)
    return tuple(
        structs.replace(part, text=_cut(part.text, limit))
        if isinstance(part, (Text, Document))
        else part
        for part in content
    )


def _cut(text: str, limit: int) -> str:
    """The beginning and the end of a text that is too long."""
    if len(text) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    left = len(text) - head - tail
    return f"{text[:head]}\n[… {left} characters are left out …]\n{text[-tail:]}"
