"""What an agent can do: functions, tools with handlers, and what they may be trusted with.

    @tool(writes=False, timeout=5)
    async def get_weather(city: str) -> str:
        "The weather in a city."

A plain function is a tool too. Nothing is known of it then, so that it counts as one that writes.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar, overload

from msgspec import Struct, structs

from ..calls.callables import bind_arguments, tool_from_function
from ..calls.tools import as_tools
from ..errors import ToolspeakError, UsageError
from ..types import Document, Image, Other, Text, Tool

ToolHandler = Callable[[dict[str, Any]], Any]
"""Gets the arguments of a call; what it returns, or its coroutine gives, is the result."""
ResultContent = str | tuple[Text | Image | Document | Other, ...]
Function = TypeVar("Function", bound=Callable[..., Any])
_OPTIONS = "__toolspeak__"


class FatalToolError(ToolspeakError):
    """Raised by a tool: the agent ends, and its model is not asked any more."""


class ToolError(ToolspeakError):
    """Raised by a tool: the model is told why in just these words, and goes on."""


class InvalidArguments(UsageError):
    """Arguments that are not what a function's parameters are: it was not run."""


class ToolOptions(Struct, frozen=True, kw_only=True):
    """What there is to know of a tool beside what its model is told."""

    writes: bool = True
    """Whether it changes anything: such a tool is refused where an agent may only read."""
    idempotent: bool = False
    """Whether it is the same to run it once or twice: of equal calls in a turn, one is run."""
    parallel: bool | None = None
    """Whether it may run beside others; None: if it only reads."""
    polling: bool = False
    """Whether it may be called again and again, though its result does not change."""
    always_ask: bool = False
    """Whether somebody is asked before each call, even where all are allowed."""
    timeout: float | None = None
    """Seconds; None: the agent's own."""


class AgentTool(Struct, frozen=True, kw_only=True):
    """A tool, and what runs it."""

    tool: Tool
    handler: ToolHandler
    options: ToolOptions = ToolOptions()
    source: str = ""
    """Where it comes from, if not from this program: an MCP server's name."""

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def can_run_parallel(self) -> bool:
        """Whether it may run beside others."""
        overlaps = self.options.parallel
        return not self.options.writes if overlaps is None else overlaps


@overload
def tool(function: Function, /) -> Function: ...
@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    writes: bool = True,
    idempotent: bool = False,
    parallel: bool | None = None,
    polling: bool = False,
    always_ask: bool = False,
    timeout: float | None = None,
) -> Callable[[Function], Function]: ...
def tool(function: Any = None, /, *, name: str = "", description: str = "", **known: Any) -> Any:
    """Say what an agent may know of a function. It stays a function like any other."""

    def decorate(decorated: Function) -> Function:
        # A bound method has its attributes from its function, and takes none itself.
        target = getattr(decorated, "__func__", decorated)
        setattr(target, _OPTIONS, (name, description, ToolOptions(**known)))
        return decorated

    return decorate(function) if function else decorate


def build_agent_tools(given: Iterable[Any]) -> tuple[AgentTool, ...]:
    """Tools of an agent: each a function, an `AgentTool`, or a pair of a tool and its handler."""
    tools = tuple(_build_agent_tool(one, f"$.tools[{index}]") for index, one in enumerate(given))
    seen: set[str] = set()
    for one in tools:
        if one.name in seen:
            raise UsageError(f"There are two tools of the name {one.name!r} - at `$.tools`")
        seen.add(one.name)
    return tools


def _build_agent_tool(given: Any, path: str) -> AgentTool:
    match given:
        case AgentTool():
            return given
        case (declared, handler) if callable(handler):
            made = as_tools([declared]) or ()
            if len(made) != 1:
                raise UsageError(f"Expected one tool beside its handler - at `{path}`")
            return AgentTool(tool=made[0], handler=handler)
        case _ if callable(given):
            return _tool_from_function(given, path)
        case _:
            kind = type(given).__name__
            wanted = "a function, an AgentTool, or a pair of a tool and its handler"
            raise UsageError(f"Expected {wanted}, got `{kind}` - at `{path}`")


def _tool_from_function(function: Callable[..., Any], path: str) -> AgentTool:
    name, description, options = _get_declared(function)
    made = tool_from_function(function, path, name)
    made = structs.replace(made, description=description or made.description)
    return AgentTool(tool=made, handler=_FunctionHandler(function), options=options)


def _get_declared(function: Any) -> tuple[str, str, ToolOptions]:
    """What was said of a function, or of the one that a `partial` fills in."""
    known = getattr(function, _OPTIONS, None)
    if known is None and isinstance(function, partial):
        return _get_declared(function.func)
    return known or ("", "", ToolOptions())


class _FunctionHandler:
    """Calls a function with the arguments of a call, made into what its parameters are."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.is_async = inspect.iscoroutinefunction(function)

    def __call__(self, arguments: Mapping[str, Any]) -> Any | Awaitable[Any]:
        try:
            positional, named = bind_arguments(self._function, arguments)
        except UsageError as problem:
            raise InvalidArguments(str(problem)) from None
        return self._function(*positional, **named)


def is_async_handler(handler: ToolHandler) -> bool:
    """Whether a handler waits on its own, and needs no thread to be run in."""
    if isinstance(handler, _FunctionHandler):
        return handler.is_async
    if inspect.iscoroutinefunction(handler):
        return True
    return inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004 - not whether, but how
