"""A connection to a server, from its start to its end.

It lives in a task of its own. The SDK's contexts have to be left in the task that has entered them,
but an agent may be opened in one task and closed in another. Requests may come from any.
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

# What the SDK has to say is for those who have set up where it goes.
logging.getLogger("mcp").addHandler(logging.NullHandler())

Answer = TypeVar("Answer")
_RETRY_ADVICE = "Try once more, or go on without it."
_UNKNOWN_SESSION = (sdk.INVALID_REQUEST, sdk.CONNECTION_CLOSED)
"""With HTTP 400, what servers say of a session that they do not know."""
_CLOSE_TIMEOUT = 5.0
"""Seconds that a server has to part in peace."""
_CHECK_TIMEOUT = 5.0
"""Seconds in which a server that is alive answers what costs it nothing."""


class McpSession:
    """One connection. It is opened once; after its end there is another."""

    def __init__(self, name: str, place: McpEndpoint, startup: float) -> None:
        self._name = name
        self._endpoint = place
        self._startup_timeout = startup
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
        """A call was given up. Either it takes long, or the server does not answer any more."""

    @property
    def is_alive(self) -> bool:
        return self._client is not None and not self._ended.is_set()

    async def open(self) -> None:
        """Connect, and read the list of tools; `NotStarted` if that does not come to anything."""
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
        """Part from the server: in peace if it lets us, and in time."""
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
        """The tools that the server has now. It is asked only if they may have changed, and if it
        can be expected to answer."""
        is_asked = self.is_alive and not self._tool_list.is_current and not self._is_suspect
        if self._client and is_asked:
            await self._await_reply(self._tool_list.read(self._client), self._startup_timeout)
        return self._tool_list.tools

    async def call_tool(
        self, tool: str, arguments: dict[str, Any], seconds: float | None
    ) -> sdk.CallToolResult:
        """What a tool gives."""
        if self._client is None or not self.is_alive:
            raise RequestNotSent(f"the MCP server {self._name!r} has ended")
        self._open_calls += 1
        try:
            asked = self._client.call_tool(tool, make_sendable(arguments))
            return await self._await_reply(asked, seconds)
        except asyncio.CancelledError:
            self._is_suspect = True
            raise
        finally:
            self._open_calls -= 1

    async def is_usable(self) -> bool:
        """Whether it can be used. After a call that was given up it is tried out, unless others
        still wait for their results."""
        if not self._is_suspect or self._open_calls or not self.is_alive or not self._client:
            return self.is_alive
        try:
            await self._await_reply(self._tool_list.read(self._client), _CHECK_TIMEOUT)
        except ToolError:
            return False
        self._is_suspect = False
        return True

    # The task.

    async def _run(self) -> None:
        try:
            with self._scope, self._startup_request.track():
                self._scope.deadline = anyio.current_time() + self._startup_timeout
                async with self._create_client() as client, anyio.create_task_group() as group:
                    await self._tool_list.read(client)
                    self._scope.deadline = math.inf
                    self._client = client
                    group.start_soon(self._tool_list.listen, client)
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
            # Whoever is told that the connection is closed shall know that this is true.
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

    # What an answer comes to, or that there is none.

    async def _await_reply(self, asked: Awaitable[Answer], seconds: float | None) -> Answer:
        """What the server answers; what it says instead is raised."""
        journey = RequestState()
        try:
            with journey.track():
                async with asyncio.timeout(seconds):
                    return await asked
        except TimeoutError:
            self._is_suspect = True
            raise self._server_error(f"has not answered in {seconds or 0:g} s") from None
        except MCPError as problem:
            raise await self._interpret_error(problem, journey) from None
        except (ValidationError, RuntimeError) as problem:
            # The SDK compares results with what the server itself has declared.
            said = f"has answered with something else than it promises: {describe_error(problem)}"
            raise self._server_error(said) from None

    async def _interpret_error(self, problem: MCPError, journey: RequestState) -> ToolError:
        """What an error is. Servers have codes of their own, and some that the SDK has, too."""
        code, status = problem.code, journey.status
        is_cut_off = problem.message.startswith("SSE stream")
        if code == sdk.CONNECTION_CLOSED and (is_cut_off or self._ended.is_set()):
            await self.close()
            return self._connection_lost(journey)
        if status == 404 or (status == 400 and code in _UNKNOWN_SESSION):
            # The server was started anew, and does not know of this session.
            await self.close()
            return RequestNotSent(f"{self._label} has forgotten this session: {problem.message}")
        if status is not None and code == sdk.INTERNAL_ERROR:
            return self._server_error(f"has failed with HTTP {status} ({problem.message})")
        return ToolError(problem.message)

    def _connection_lost(self, journey: RequestState) -> McpServerError:
        if isinstance(self._endpoint, HttpEndpoint) and not journey.was_sent:
            reason = describe_error(self._problem) if self._problem else "it has ended"
            return RequestNotSent(f"{self._label} cannot be reached: {reason}")
        return self._server_error(
            "was lost in the midst of it",
            "It is not known what it has done: find out before you call it again.",
        )

    def _server_error(self, what: str, advice: str = _RETRY_ADVICE) -> McpServerError:
        return McpServerError(f"{self._label} {what}. {advice}")

    @property
    def _label(self) -> str:
        return f"the MCP server {self._name!r}"

    def _startup_error(self) -> ServerNotStarted:
        """What was tried, what came of it, and what the program said last."""
        verb = "started" if isinstance(self._endpoint, StdioEndpoint) else "reached"
        lines = "".join(f"\n    {line}" for line in self._stderr.lines)
        said = f"\n  It said last:{lines}" if lines else ""
        what, reason = f"{self._label} cannot be {verb}", self._startup_problem()
        return ServerNotStarted(f"{what}: {self._endpoint}: {reason}{said}", f"{what}: {reason}")

    def _startup_problem(self) -> str:
        problem, status = self._problem, self._startup_request.status
        if problem is None:
            return f"it has not answered in {self._startup_timeout:g} s"
        if isinstance(problem, MCPError) and problem.code == sdk.CONNECTION_CLOSED:
            return "it has ended before it answered"
        if status is None:
            return describe_error(problem)
        advice = ": are its headers right?" if status in (401, 403) else ""
        return f"HTTP {status} ({describe_error(problem)}){advice}"


_MAX_PAGES = 200
"""A server that never comes to the end of its list is not read any further."""


class ToolList:
    """What a server has told of its tools."""

    def __init__(self) -> None:
        self.tools: tuple[sdk.Tool, ...] = ()
        self._is_stale = True
        self._is_notified = True
        """Whether the server says so if the list changes."""

    @property
    def is_current(self) -> bool:
        return self._is_notified and not self._is_stale

    async def read(self, client: Client) -> None:
        """Read all pages. Of two tools with one name there is the first."""
        # It may change again while it is read.
        self._is_stale = False
        try:
            self.tools = await _read_all_pages(client) if client.server_capabilities.tools else ()
        except BaseException:
            self._is_stale = True
            raise

    async def on_message(self, message: IncomingMessage) -> None:
        """Something has come that nobody has asked for."""
        if isinstance(message, sdk.ToolListChangedNotification):
            self._is_stale = True

    async def listen(self, client: Client) -> None:
        """Ask to be told of changes, for as long as that goes: servers of the newer protocol only
        speak if asked. Where it fails, the list is read each time."""
        told = client.server_capabilities.tools
        is_new = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        if not (told and told.list_changed and is_new):
            return
        self._is_notified = False
        try:
            async with client.listen(tools_list_changed=True) as changes:
                # It may have changed before anybody listened.
                self._is_stale = True
                self._is_notified = bool(changes.honored.tools_list_changed)
                async for _ in changes:
                    self._is_stale = True
        except (MCPError, RuntimeError, TimeoutError):
            pass
        self._is_notified = False


async def _read_all_pages(client: Client) -> tuple[sdk.Tool, ...]:
    found: dict[str, sdk.Tool] = {}
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        for tool in page.tools:
            found.setdefault(tool.name, tool)
        cursor = page.next_cursor
        if not cursor:
            break
    return tuple(found.values())
