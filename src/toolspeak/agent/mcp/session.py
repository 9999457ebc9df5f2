"""One connection to an MCP server, and the list of its tools.

A session lives in a task of its own. The SDK's contexts must be left in the task that entered them,
but an agent may be opened in one task and closed in another. Requests may come from any task.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import anyio
import mcp_types as sdk
from mcp import Client, MCPError
from mcp.client.session import IncomingMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ... import __version__
from ..tools import ToolError
from . import transports
from .endpoints import (
    HttpEndpoint,
    McpEndpoint,
    McpServerError,
    RequestNotSent,
    ServerNotStarted,
    StdioEndpoint,
    describe_error,
    find_root_error,
)
from .tools import make_sendable
from .transports import RequestState

# Without a handler, Python would print the SDK's warnings.
logging.getLogger("mcp").addHandler(logging.NullHandler())

Response = TypeVar("Response")
_RETRY_ADVICE = "Try again, or continue without it."
_UNKNOWN_SESSION = (sdk.INVALID_REQUEST, sdk.CONNECTION_CLOSED)
"""Error codes that, with HTTP 400, mean that the server does not know the session."""
_CLOSE_TIMEOUT = 5.0
_CHECK_TIMEOUT = 5.0
"""Seconds within which a healthy server lists its tools."""
_MAX_PAGES = 200
"""Pages of tools to read at most: a server might list without end."""


class McpSession:
    """A connection, opened once."""

    def __init__(self, name: str, endpoint: McpEndpoint, startup_timeout: float) -> None:
        self._name = name
        self._endpoint = endpoint
        self._startup_timeout = startup_timeout
        self._tool_list = ToolList()
        self._stderr = transports.StderrReader()
        self._startup_request = RequestState()
        self._client: Client | None = None
        self._problem: BaseException | None = None
        self._ready = asyncio.Event()
        self._ended = asyncio.Event()
        self._scope = anyio.CancelScope()
        self._task: asyncio.Task[None] | None = None
        self._open_calls = 0
        self._is_suspect = False
        """A call timed out or was cancelled: either it is slow, or the server hangs."""

    @property
    def is_alive(self) -> bool:
        return self._client is not None and not self._ended.is_set()

    async def open(self) -> None:
        """Connect and read the list of tools; raise `ServerNotStarted` if that fails."""
        self._task = asyncio.create_task(self._run(), name=f"MCP server {self._name}")
        try:
            await self._ready.wait()
        except BaseException:
            await self.close()
            raise
        if self._client is None:
            await self.close()
            await asyncio.to_thread(self._stderr.wait)
            raise self._startup_error()

    async def close(self) -> None:
        """Close the connection; cancel its task if the server does not cooperate in time."""
        if self._task is None:
            return
        if not self._ready.is_set():
            self._scope.cancel()
        self._ended.set()
        done, _ = await asyncio.wait({self._task}, timeout=_CLOSE_TIMEOUT)
        if not done:
            self._scope.cancel()
            await asyncio.wait({self._task})

    async def list_tools(self) -> tuple[sdk.Tool, ...]:
        """Return the server's tools. The server is asked only if they may have changed and it can
        be expected to answer."""
        is_stale = self.is_alive and not self._tool_list.is_current and not self._is_suspect
        if self._client and is_stale:
            await self._await_response(self._tool_list.read(self._client), self._startup_timeout)
        return self._tool_list.tools

    async def call_tool(
        self, tool: str, arguments: dict[str, Any], timeout: float | None
    ) -> sdk.CallToolResult:
        if self._client is None or not self.is_alive:
            raise RequestNotSent(f"{self._label} has ended")
        self._open_calls += 1
        try:
            response = self._client.call_tool(tool, make_sendable(arguments))
            return await self._await_response(response, timeout)
        except asyncio.CancelledError:
            self._is_suspect = True
            raise
        finally:
            self._open_calls -= 1

    async def is_usable(self) -> bool:
        """Whether calls can be made. A suspect server is checked first, unless other calls are
        still waiting for it."""
        if not self._is_suspect or self._open_calls or not self.is_alive or not self._client:
            return self.is_alive
        try:
            await self._await_response(self._tool_list.read(self._client), _CHECK_TIMEOUT)
        except ToolError:
            return False
        self._is_suspect = False
        return True

    # The session's task.

    async def _run(self) -> None:
        try:
            with self._scope, self._startup_request.track():
                self._scope.deadline = anyio.current_time() + self._startup_timeout
                async with self._create_client() as client, anyio.create_task_group() as group:
                    await self._tool_list.read(client)
                    self._scope.deadline = math.inf
                    self._client = client
                    group.start_soon(self._tool_list.watch, client)
                    await self._wait_for_end()
                    group.cancel_scope.cancel()
        except Exception as problem:
            self._problem = find_root_error(problem)
        finally:
            self._ended.set()
            self._ready.set()

    async def _wait_for_end(self) -> None:
        self._ready.set()
        try:
            await self._ended.wait()
        finally:
            # Calls that fail because of the end must see it.
            self._ended.set()

    def _create_client(self) -> Client:
        return Client(
            transports.notify_at_end(self._connect(), self._ended.set),
            client_info=sdk.Implementation(name="toolspeak", version=__version__),
            message_handler=self._tool_list.on_message,
        )

    def _connect(self) -> AbstractAsyncContextManager[transports.TransportStreams]:
        if isinstance(self._endpoint, StdioEndpoint):
            return transports.connect_stdio(self._endpoint, self._name, self._stderr)
        return transports.connect_http(self._endpoint)

    # Responses and errors.

    async def _await_response(
        self, response: Awaitable[Response], timeout: float | None
    ) -> Response:
        """Return the server's response, or raise a `ToolError` that says what went wrong."""
        state = RequestState()
        try:
            with state.track():
                async with asyncio.timeout(timeout):
                    return await response
        except TimeoutError:
            self._is_suspect = True
            raise self._server_error(f"did not answer within {timeout or 0:g} s") from None
        except MCPError as problem:
            raise await self._interpret_error(problem, state) from None
        except (ValidationError, RuntimeError) as problem:
            # The SDK validates results against the schema that the server declared.
            message = f"sent an invalid response: {describe_error(problem)}"
            raise self._server_error(message) from None

    async def _interpret_error(self, problem: MCPError, state: RequestState) -> ToolError:
        """Classify an error by its code and HTTP status. Servers also use codes of the SDK."""
        code, status = problem.code, state.status
        is_cut_off = problem.message.startswith("SSE stream")
        if code == sdk.CONNECTION_CLOSED and (is_cut_off or self._ended.is_set()):
            await self.close()
            return self._connection_lost(state)
        if status == 404 or (status == 400 and code in _UNKNOWN_SESSION):
            # The server was restarted and does not know this session.
            await self.close()
            return RequestNotSent(f"{self._label} forgot this session: {problem.message}")
        if status is not None and code == sdk.INTERNAL_ERROR:
            return self._server_error(f"failed with HTTP {status} ({problem.message})")
        return ToolError(problem.message)

    def _connection_lost(self, state: RequestState) -> McpServerError:
        if isinstance(self._endpoint, HttpEndpoint) and not state.was_sent:
            reason = describe_error(self._problem) if self._problem else "it has ended"
            return RequestNotSent(f"{self._label} cannot be reached: {reason}")
        return self._server_error(
            "was lost during the call",
            "The call may or may not have been executed. Check before you call it again.",
        )

    def _server_error(self, problem: str, advice: str = _RETRY_ADVICE) -> McpServerError:
        return McpServerError(f"{self._label} {problem}. {advice}")

    @property
    def _label(self) -> str:
        return f"MCP server {self._name!r}"

    def _startup_error(self) -> ServerNotStarted:
        verb = "started" if isinstance(self._endpoint, StdioEndpoint) else "reached"
        lines = "".join(f"\n    {line}" for line in self._stderr.lines)
        output = f"\n  Its last output:{lines}" if lines else ""
        problem, reason = f"{self._label} cannot be {verb}", self._startup_problem()
        return ServerNotStarted(
            f"{problem}: {self._endpoint}: {reason}{output}", f"{problem}: {reason}"
        )

    def _startup_problem(self) -> str:
        problem, status = self._problem, self._startup_request.status
        if problem is None:
            return f"it did not answer within {self._startup_timeout:g} s"
        if isinstance(problem, MCPError) and problem.code == sdk.CONNECTION_CLOSED:
            return "it ended before it answered"
        if status is None:
            return describe_error(problem)
        advice = "; check its headers" if status in (401, 403) else ""
        return f"HTTP {status} ({describe_error(problem)}){advice}"


class ToolList:
    """The tools that a server declared, and whether they may have changed since."""

    def __init__(self) -> None:
        self.tools: tuple[sdk.Tool, ...] = ()
        self._is_stale = True
        self._is_notified = True
        """Whether the server announces changes."""

    @property
    def is_current(self) -> bool:
        return self._is_notified and not self._is_stale

    async def read(self, client: Client) -> None:
        """Read all pages. Of two tools with the same name the first counts."""
        # First, because the list may change again while it is read.
        self._is_stale = False
        try:
            self.tools = await _read_pages(client) if client.server_capabilities.tools else ()
        except BaseException:
            self._is_stale = True
            raise

    async def on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, sdk.ToolListChangedNotification):
            self._is_stale = True

    async def watch(self, client: Client) -> None:
        """Subscribe to changes: servers of the newer protocol announce them only on request. If
        that fails, the list is read each time."""
        capability = client.server_capabilities.tools
        is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        if not (capability and capability.list_changed and is_modern):
            return
        self._is_notified = False
        try:
            async with client.listen(tools_list_changed=True) as changes:
                # The list may have changed before the subscription.
                self._is_stale = True
                self._is_notified = bool(changes.honored.tools_list_changed)
                async for _ in changes:
                    self._is_stale = True
        except (MCPError, RuntimeError, TimeoutError):
            pass
        self._is_notified = False


async def _read_pages(client: Client) -> tuple[sdk.Tool, ...]:
    tools: dict[str, sdk.Tool] = {}
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        for tool in page.tools:
            tools.setdefault(tool.name, tool)
        cursor = page.next_cursor
        if not cursor:
            break
    return tuple(tools.values())
