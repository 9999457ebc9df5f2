"""Serves tools of this program over MCP, on stdio or HTTP.

A call is validated and run as an agent's call is, so a bad call never ends the server.
"""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, MutableMapping
from typing import Any

import mcp_types as sdk
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings

from ... import __version__
from ...types import ToolCall, ToolResult
from ..execution import coerce_call, error_result, run_tool, unknown_tool_result
from ..tools import AgentTool

PATH = "/mcp"
_CALL_TIMEOUT = 3600.0
_SHUTDOWN_TIMEOUT = 3
AsgiScope = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[MutableMapping[str, Any]]]
AsgiSend = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[AsgiScope, AsgiReceive, AsgiSend], Awaitable[None]]


def create_server(
    name: str, instructions: str, exported: Iterable[tuple[AgentTool, Mapping[str, bool]]]
) -> Server[Any]:
    """Return a server of tools, each with its annotations (`read_only_hint` and so on)."""
    pairs = list(exported)
    tools = {tool.name: tool for tool, _ in pairs}
    declared = [_declare_tool(tool, hints) for tool, hints in pairs]

    async def handle_list(context: Any, params: Any) -> sdk.ListToolsResult:
        return sdk.ListToolsResult(tools=declared)

    async def handle_call(context: Any, params: sdk.CallToolRequestParams) -> sdk.CallToolResult:
        call = ToolCall(id="", name=params.name, arguments=params.arguments or {})
        result = await _run_call(tools, call)
        # A lone surrogate cannot be encoded.
        text = result.text.encode("utf-8", "replace").decode("utf-8")
        return sdk.CallToolResult(content=[sdk.TextContent(text=text)], is_error=result.is_error)

    return Server(
        name,
        version=__version__,
        instructions=instructions,
        on_list_tools=handle_list,
        on_call_tool=handle_call,
    )


async def _run_call(tools: Mapping[str, AgentTool], call: ToolCall) -> ToolResult:
    tool = tools.get(call.name)
    if tool is None:
        return unknown_tool_result(call, tools)
    # Models often write lists and numbers as strings.
    call, problem = coerce_call(call, tool)
    return error_result(call, problem) if problem else await run_tool(tool, call, _CALL_TIMEOUT)


def _declare_tool(tool: AgentTool, hints: Mapping[str, bool]) -> sdk.Tool:
    return sdk.Tool(
        name=tool.name,
        description=tool.tool.description,
        input_schema=tool.tool.parameters,
        annotations=sdk.ToolAnnotations.model_validate(hints),
    )


async def serve_stdio(server: Server[Any]) -> None:
    """Serve the parent process until it closes stdin or a signal arrives.

    The signal ends the process at once: the thread that reads stdin cannot be stopped."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def serve_http(
    server: Server[Any],
    host: str,
    port: int,
    *,
    protect: Callable[[AsgiApp], AsgiApp],
    announce: Callable[[str], None],
) -> None:
    """Serve on a port until a signal arrives. `protect` wraps the ASGI app with access checks and
    must check hosts and origins; `announce` receives the server's URL."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host.strip("[]"), port), family=family) as listener:
        app = server.streamable_http_app(
            streamable_http_path=PATH,
            host=host,
            # `protect` checks hosts and origins, including configured ones.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        url_host = f"[{host.strip('[]')}]" if ":" in host else host
        announce(f"http://{url_host}:{listener.getsockname()[1]}{PATH}")
        settings = uvicorn.Config(
            protect(app),
            log_level="error",
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT,
        )
        _Uvicorn(settings).run(sockets=[listener])


class _Uvicorn(uvicorn.Server):
    """Exits normally after a signal; uvicorn itself would raise the signal again."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        signals = (signal.SIGINT, signal.SIGTERM)
        previous = {number: signal.signal(number, self.handle_exit) for number in signals}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
