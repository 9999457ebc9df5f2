"""Serves tools of this program over MCP, on stdio.

A call is validated and run as an agent's call is, so a bad call never ends the server.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from typing import Any

import mcp_types as sdk
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from ... import __version__
from ...types import ToolCall, ToolResult
from ..execution import coerce_call, error_result, run_tool, unknown_tool_result
from ..tools import AgentTool

_CALL_TIMEOUT = 3600.0


def create_server(name: str, instructions: str, exported: Iterable[AgentTool]) -> Server[Any]:
    tools = {tool.name: tool for tool in exported}
    declared = list(map(_declare_tool, tools.values()))

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


def _declare_tool(tool: AgentTool) -> sdk.Tool:
    """Declare a tool. One that writes is declared to destroy nothing and to reach other systems, as
    `probe` does: it asks a model."""
    writes, idempotent = tool.options.writes, tool.options.idempotent
    return sdk.Tool(
        name=tool.name,
        description=tool.tool.description,
        input_schema=tool.tool.parameters,
        annotations=sdk.ToolAnnotations(
            read_only_hint=not writes,
            destructive_hint=False if writes else None,
            idempotent_hint=idempotent if writes else None,
            open_world_hint=writes,
        ),
    )


async def serve_stdio(server: Server[Any]) -> None:
    """Serve the parent process until it closes stdin or a signal arrives.

    The signal ends the process at once: the thread that reads stdin cannot be stopped."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())
