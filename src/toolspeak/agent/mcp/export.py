"""The other way round: tools of this program for whoever speaks MCP, over stdio or HTTP.

A call is checked and run as an agent's is, so that nothing that is wrong with it ends the server.
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
from ..._util import encode_json
from ...calls.toolset import Toolset
from ...config.settings import Config
from ...gateway.auth import AccessControl
from ...gateway.http import Head, Refused
from ...types import ToolCall, ToolResult
from ..execution import failed, fitted, result_of, unknown
from ..tools import AgentTool

PATH = "/mcp"
_HOUR = 3600.0
_GRACE = 3
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Offer:
    """Tools that are offered, each with what is true of it."""

    def __init__(self, tools: Iterable[tuple[AgentTool, Mapping[str, bool]]]) -> None:
        given = list(tools)
        self._tools = {tool.name: tool for tool, _ in given}
        self._listed = [_told(tool, hints) for tool, hints in given]

    def server(self, name: str, instructions: str) -> Server[Any]:
        return Server(
            name,
            version=__version__,
            instructions=instructions,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    async def _list(self, context: Any, wanted: Any) -> sdk.ListToolsResult:
        return sdk.ListToolsResult(tools=self._listed)

    async def _call(self, context: Any, wanted: sdk.CallToolRequestParams) -> sdk.CallToolResult:
        call = ToolCall(id="", name=wanted.name, arguments=wanted.arguments or {})
        result = await self._result(call)
        # Half of a surrogate pair has no form in which it could be sent.
        text = result.text.encode("utf-8", "replace").decode("utf-8")
        return sdk.CallToolResult(content=[sdk.TextContent(text=text)], is_error=result.is_error)

    async def _result(self, call: ToolCall) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            return unknown(call, Toolset([one.tool for one in self._tools.values()]))
        # Models write lists as texts, and numbers, too: what can be made to fit is.
        call, problem = fitted(call, tool)
        return failed(call, problem) if problem else await result_of(tool, call, _HOUR)


def _told(tool: AgentTool, hints: Mapping[str, bool]) -> sdk.Tool:
    return sdk.Tool(
        name=tool.name,
        description=tool.tool.description,
        input_schema=tool.tool.parameters,
        annotations=sdk.ToolAnnotations.model_validate(hints),
    )


async def serve_stdio(server: Server[Any]) -> None:
    """Serve whoever has started this program, until they are gone or a signal comes. The signal
    ends it at once: a thread that reads standard input cannot be told to stop."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def serve_http(server: Server[Any], config: Config, announce: Callable[[str], None]) -> None:
    """Serve on a port, to those whom the gateway would let in."""
    host, port = config.server.host, config.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host.strip("[]"), port), family=family) as listener:
        app = server.streamable_http_app(
            streamable_http_path=PATH,
            host=host,
            # The guard looks at hosts and origins, and knows more of them.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        shown = f"[{host.strip('[]')}]" if ":" in host else host
        announce(f"http://{shown}:{listener.getsockname()[1]}{PATH}")
        settings = uvicorn.Config(
            guarded(app, AccessControl(config)),
            log_level="error",
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=_GRACE,
        )
        _Uvicorn(settings).run(sockets=[listener])


def guarded(app: App, guard: AccessControl) -> App:
    """The same, for those who may come in."""

    async def admit(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path, query = scope["path"], scope["query_string"].decode("latin-1")
            try:
                guard.authorize(Head(scope["method"], f"{path}?{query}", scope["headers"]))
            except Refused as refused:
                told = encode_json({"error": {"message": refused.failure.message}}).encode()
                headers = {"content-type": "application/json", "content-length": str(len(told))}
                headers |= refused.headers
                raw = [(name.encode(), value.encode()) for name, value in headers.items()]
                status = refused.failure.status
                await send({"type": "http.response.start", "status": status, "headers": raw})
                await send({"type": "http.response.body", "body": told})
                return
        await app(scope, receive, send)

    return admit


class _Uvicorn(uvicorn.Server):
    """Ends in peace at a signal, where uvicorn would raise it once more."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        ends = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in ends}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
