"""Runs a tool, and makes a result of whatever comes of it. Nothing but `Fatal` gets through."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import structs

from .._util import encode_json
from ..calls.coercion import coerce_arguments
from ..calls.toolset import Toolset
from ..errors import ToolspeakError
from ..types import Document, Image, Other, Text, ToolCall, ToolResult
from .concurrency import run_in_thread
from .tools import AgentTool, FatalToolError, InvalidArguments, ResultContent, is_async_handler

log = logging.getLogger("toolspeak.agent")

NO_OUTPUT = "(The tool has run, and gave no output.)"
_PARTS = (Text, Image, Document, Other)
_TEXTS = (Text, Document)


async def run_tool(tool: AgentTool, call: ToolCall, timeout: float | None) -> ToolResult:
    """What a tool gives for a call, within so many seconds."""
    seconds = timeout if tool.options.timeout is None else tool.options.timeout
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            content = _as_content(await _call_handler(tool, call.arguments))
        return ToolResult(call_id=call.id, name=call.name, content=content)
    except InvalidArguments as problem:
        return error_result(call, f"{call.name} was not run: {problem}")
    except asyncio.CancelledError:
        # Somebody may have cancelled us; a tool may also have raised that itself.
        if _is_cancelled():
            raise
        return error_result(call, f"{call.name} has failed: it was cancelled")
    except (Exception, SystemExit) as problem:
        if fatal := _find_fatal(problem):
            raise fatal from None
        if limit.expired():
            return error_result(
                call, f"{call.name} has not ended in {seconds:g} s{_describe_leftover(tool)}."
            )
        # What it says may hold a secret, and so may its traceback.
        log.info("%s has failed: %s", call.name, type(problem).__name__)
        return error_result(call, f"{call.name} has failed: {_describe_error(problem)}")


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _find_fatal(problem: BaseException) -> FatalToolError | None:
    """What ends the agent, be it alone or in a group."""
    if isinstance(problem, FatalToolError):
        return problem
    if isinstance(problem, BaseExceptionGroup):
        found = (_find_fatal(one) for one in problem.exceptions)
        return next((one for one in found if one), None)
    return None


def error_result(call: ToolCall, why: str) -> ToolResult:
    """The result of a call that was not made, or came to nothing."""
    return ToolResult(call_id=call.id, name=call.name, content=why, is_error=True)


def unknown_tool_result(call: ToolCall, tools: Toolset) -> ToolResult:
    """The result of a call of a tool that does not exist."""
    names = ", ".join(tools.suggest_names(call.name))
    there = f"The nearest are: {names}." if names else "There are no tools."
    return error_result(call, f"There is no tool {call.name!r}. {there}")


def coerce_call(call: ToolCall, tool: AgentTool) -> tuple[ToolCall, str]:
    """A call as its tool wants it, and what is wrong with it, and where; "" if nothing is."""
    found = coerce_arguments(call.arguments, tool.tool.parameters)
    told = "; ".join(f"{fault.problem} - at `{fault.path}`" for fault in found.violations)
    problem = f"{call.name} was not run: {told}." if found.violations else ""
    return structs.replace(call, arguments=found.arguments), problem


async def _call_handler(tool: AgentTool, arguments: dict[str, Any]) -> Any:
    """What the handler returns. One that does not wait on its own is run in a thread, so that
    others need not wait for it."""
    if is_async_handler(tool.handler):
        given = await tool.handler(arguments)
    else:
        given = await run_in_thread(tool.handler, arguments)
        given = await given if inspect.isawaitable(given) else given
    if inspect.isasyncgen(given):
        return [one async for one in given]
    return await run_in_thread(list, given) if inspect.isgenerator(given) else given


def _describe_leftover(tool: AgentTool) -> str:
    """A thread cannot be ended from outside."""
    return "" if is_async_handler(tool.handler) else ", and may still be running"


def _as_content(given: Any) -> ResultContent:
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
        case _:
            return _encode_json(given)


def _encode_json(given: Any) -> str:
    try:
        return encode_json(msgspec.to_builtins(given, enc_hook=_encode_unknown))
    except (TypeError, ValueError, RecursionError, OverflowError):
        return str(given)


def _encode_unknown(value: Any) -> Any:
    """What msgspec does not know: pydantic's models say themselves what they are."""
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)


def _describe_error(problem: BaseException) -> str:
    if isinstance(problem, ToolspeakError) and str(problem):
        # It was worded to be read, and the name of its class would only be in the way.
        return str(problem)
    return f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__


# What a model gets of a result.


def map_text(content: ResultContent, change: Callable[[str], str]) -> ResultContent:
    """The content with all of its texts changed."""
    if isinstance(content, str):
        return change(content)
    return tuple(
        structs.replace(part, text=change(part.text))
        if isinstance(part, (Text, Document))
        else part
        for part in content
    )


def limit_content(content: ResultContent, limit: int) -> ResultContent:
    """The content, with no more than so many characters of text in all its parts."""
    left = limit

    def cut(text: str) -> str:
        nonlocal left
        kept = shorten_text(text, left)
        left = max(0, left - len(kept))
        return kept

    return map_text(content, cut)


def shorten_text(text: str, limit: int) -> str:
    """The beginning and the end of a text that is too long."""
    if len(text) <= limit:
        return text
    head, tail = limit - limit // 4, limit // 4
    end = text[len(text) - tail :]
    return f"{text[:head]}\n[… {len(text) - head - tail} characters are left out …]\n{end}"
