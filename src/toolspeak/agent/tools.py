"""Tools of an agent: functions, or tool declarations with handlers, and their options.

    @tool(writes=False, timeout=5)
    async def get_weather(city: str) -> str:
        "The weather in a city."

A plain function is a tool too, with the default options: it is assumed to write.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar, overload

from msgspec import Struct, structs

from ..calls.callables import bind_arguments, tool_from_function
from ..calls.tools import as_tools
from ..errors import ToolspeakError, UsageError
from ..types import Document, Image, Other, Text, Tool

ToolHandler = Callable[[dict[str, Any]], Any]
"""Takes the arguments of a call and returns its result, or a coroutine that does."""
ResultContent = str | tuple[Text | Image | Document | Other, ...]
Function = TypeVar("Function", bound=Callable[..., Any])
_OPTIONS = "__toolspeak__"


class FatalToolError(ToolspeakError):
    """Raised by a tool to end the run; the model is not asked again."""


class ToolError(ToolspeakError):
    """Raised by a tool to send the model exactly this message."""


class InvalidArguments(UsageError):
    """The arguments do not match the function's parameters; it was not called."""


class ToolOptions(Struct, frozen=True, kw_only=True):
    """The options of a tool. The model does not see them."""

    writes: bool = True
    """It may change something. The policy `read_only` denies calls to it."""
    idempotent: bool = False
    """Running it twice does no more than running it once: equal calls in one turn run once."""
    parallel: bool | None = None
    """It may run at the same time as other calls. None: yes, unless it writes."""
    polling: bool = False
    """Repeated equal calls are expected, so they do not end the run."""
    always_ask: bool = False
    """Each call needs approval, even under `full`."""
    timeout: float | None = None
    """Seconds. None: the agent's timeout."""


class AgentTool(Struct, frozen=True, kw_only=True):
    """A tool and the handler that runs it."""

    tool: Tool
    handler: ToolHandler
    options: ToolOptions = ToolOptions()
    source: str = ""
    """The name of the MCP server that it comes from; "" for a tool of this program."""

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def can_run_parallel(self) -> bool:
        parallel = self.options.parallel
        return not self.options.writes if parallel is None else parallel


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
def tool(function: Any = None, /, *, name: str = "", description: str = "", **options: Any) -> Any:
    """Attach tool options to a function. The function itself is unchanged."""

    def decorate(decorated: Function) -> Function:
        # A bound method takes no attributes, but reads them from its function.
        target = getattr(decorated, "__func__", decorated)
        setattr(target, _OPTIONS, (name, description, ToolOptions(**options)))
        return decorated

    return decorate(function) if function else decorate


def build_agent_tools(declared: Iterable[Any]) -> tuple[AgentTool, ...]:
    """Build tools from functions, `AgentTool`s, and pairs of a tool and its handler."""
    tools = tuple(_build_agent_tool(one, f"$.tools[{index}]") for index, one in enumerate(declared))
    seen: set[str] = set()
    for one in tools:
        if one.name in seen:
            raise UsageError(f"`tools` has two tools named {one.name!r}")
        seen.add(one.name)
    return tools


def _build_agent_tool(declared: Any, path: str) -> AgentTool:
    match declared:
        case AgentTool():
            return declared
        case (declaration, handler) if callable(handler):
            tools = as_tools([declaration]) or ()
            if len(tools) != 1:
                raise UsageError(f"Expected one tool with its handler - at `{path}`")
            return AgentTool(tool=tools[0], handler=handler)
        case _ if callable(declared):
            return _tool_from_function(declared, path)
        case _:
            kind = type(declared).__name__
            expected = "a function, an AgentTool, or a pair of a tool and its handler"
            raise UsageError(f"Expected {expected}, got `{kind}` - at `{path}`")


def _tool_from_function(function: Callable[..., Any], path: str) -> AgentTool:
    name, description, options = _read_options(function)
    declaration = tool_from_function(function, path, name)
    if description:
        declaration = structs.replace(declaration, description=description)
    return AgentTool(tool=declaration, handler=_build_handler(function), options=options)


def _read_options(function: Any) -> tuple[str, str, ToolOptions]:
    """Return what `@tool` attached to a function, or to the function inside a `partial`."""
    attached = getattr(function, _OPTIONS, None)
    if attached is None and isinstance(function, partial):
        return _read_options(function.func)
    return attached or ("", "", ToolOptions())


def _build_handler(function: Callable[..., Any]) -> ToolHandler:
    """Return a handler that converts a call's arguments to the types of the parameters."""

    def call(arguments: dict[str, Any]) -> Any:
        try:
            positional, named = bind_arguments(function, arguments)
        except UsageError as problem:
            raise InvalidArguments(str(problem)) from None
        return function(*positional, **named)

    async def call_async(arguments: dict[str, Any]) -> Any:
        return await call(arguments)

    return call_async if inspect.iscoroutinefunction(function) else call
