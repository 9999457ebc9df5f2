"""Runs a tool. Every failure becomes a result for the model; only `FatalToolError` is raised."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import structs

from .._util import format_json
from ..calls.coercion import coerce_arguments
from ..calls.resolution import describe_violation
from ..calls.tools import Toolset
from ..errors import ToolspeakError
from ..types import Document, Image, Other, Text, ToolCall, ToolResult
from .concurrency import call_function, is_async, is_being_cancelled, run_in_thread
from .tools import AgentTool, FatalToolError, InvalidArguments, ResultContent

log = logging.getLogger("toolspeak.agent")

NO_OUTPUT = "(The tool ran without output.)"
_PARTS = (Text, Image, Document, Other)


async def run_tool(tool: AgentTool, call: ToolCall, timeout: float | None) -> ToolResult:
    """Run a call. The tool's own timeout has precedence over `timeout`."""
    seconds = timeout if tool.options.timeout is None else tool.options.timeout
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            content = _as_content(await _call_handler(tool, call.arguments))
        return ToolResult(call_id=call.id, name=call.name, content=content)
    except InvalidArguments as problem:
        return error_result(call, f"`{call.name}` was not run: {problem}")
    except asyncio.CancelledError:
        # Either this task is being cancelled, or the tool raised the exception itself.
        if is_being_cancelled():
            raise
        return error_result(call, f"`{call.name}` failed: it was cancelled.")
    except (Exception, SystemExit) as problem:
        if fatal := _find_fatal(problem):
            raise fatal from None
        if limit.expired():
            return error_result(call, _describe_timeout(tool, call.name, seconds or 0))
        # The message and the traceback may contain a secret: log neither.
        log.info("%s failed: %s", call.name, type(problem).__name__)
        return error_result(call, f"`{call.name}` failed: {describe_error(problem)}")


def error_result(call: ToolCall, message: str) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=message, is_error=True)


def unknown_tool_result(call: ToolCall, tools: Mapping[str, AgentTool]) -> ToolResult:
    toolset = Toolset([one.tool for one in tools.values()])
    names = ", ".join(toolset.suggest_names(call.name))
    advice = (
        f"Available tools include {names}." if names else "You have no tools: answer without them."
    )
    return error_result(call, f"There is no tool {call.name!r}. {advice}")


def coerce_call(call: ToolCall, tool: AgentTool) -> tuple[ToolCall, str]:
    """Return the call with its arguments coerced to the tool's schema, and their remaining
    problems or "".

    The engine has coerced the calls of its replies; this is for calls of a transcript, a custom
    model or an MCP client."""
    coercion = coerce_arguments(call.arguments, tool.tool.parameters)
    problems = "; ".join(map(describe_violation, coercion.violations))
    advice = "Correct the arguments and call it again."
    message = f"`{call.name}` was not run: {problems}. {advice}" if problems else ""
    return structs.replace(call, arguments=coercion.arguments), message


async def _call_handler(tool: AgentTool, arguments: dict[str, Any]) -> Any:
    """Return the handler's value; a generator's values as a list."""
    returned = await call_function(tool.handler, arguments)
    if inspect.isasyncgen(returned):
        return [one async for one in returned]
    if inspect.isgenerator(returned):
        return await run_in_thread(list, returned)
    return returned


def _find_fatal(problem: BaseException) -> FatalToolError | None:
    """Return the error that ends the run, alone or in an exception group."""
    if isinstance(problem, FatalToolError):
        return problem
    if isinstance(problem, BaseExceptionGroup):
        found = (_find_fatal(one) for one in problem.exceptions)
        return next((one for one in found if one), None)
    return None


def _describe_timeout(tool: AgentTool, name: str, seconds: float) -> str:
    message = f"`{name}` did not finish within {seconds:g} s."
    # A thread cannot be stopped from outside.
    return message if is_async(tool.handler) else f"{message} It may still be running."


def describe_error(problem: BaseException) -> str:
    if isinstance(problem, ToolspeakError) and str(problem):
        # These messages are written for people; the class name adds nothing.
        return str(problem)
    return f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__


def _as_content(returned: Any) -> ResultContent:
    match returned:
        case str():
            return returned or NO_OUTPUT
        case None:
            return NO_OUTPUT
        case Text() | Image() | Document() | Other():
            return (returned,)
        case list() | tuple() if returned and all(isinstance(one, _PARTS) for one in returned):
            return tuple(returned)
        case bytes():
            return returned.decode("utf-8", "replace")
        case _:
            return _encode(returned)


def _encode(value: Any) -> str:
    try:
        return format_json(msgspec.to_builtins(value, enc_hook=_encode_unknown))
    except (TypeError, ValueError, RecursionError, OverflowError):
        return str(value)


def _encode_unknown(value: Any) -> Any:
    """Encode a type that msgspec does not know: a pydantic model, or else its string."""
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)


# Length limits.


def map_text(content: ResultContent, change: Callable[[str], str]) -> ResultContent:
    """Apply `change` to every text of the content."""
    if isinstance(content, str):
        return change(content)
    return tuple(
        structs.replace(part, text=change(part.text))
        if isinstance(part, (Text, Document))
        else part
        for part in content
    )


def limit_content(content: ResultContent, limit: int) -> ResultContent:
    """Shorten the texts of the content to `limit` characters in all."""
    left = limit

    def shorten(text: str) -> str:
        nonlocal left
        shortened = cut_middle(text, left)
        left = max(0, left - len(shortened))
        return shortened

    return map_text(content, shorten)


def cut_middle(text: str, limit: int) -> str:
    """Cut the middle out of a text that is longer than `limit`."""
    if len(text) <= limit:
        return text
    head, tail = limit - limit // 4, limit // 4
    end = text[len(text) - tail :]
    return f"{text[:head]}\n[… {len(text) - head - tail} characters omitted …]\n{end}"
