"""One connection to an MCP server: its tools, its calls and their results.

Each session runs in a separate task: the SDK's contexts must be left in the task that entered them,
but an agent may be opened in one task and closed in another. Requests may come from any task.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

import anyio
import mcp_types as sdk
from mcp import Client, MCPError
from mcp.client.session import IncomingMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ... import __version__
from ..._util import format_json
from ...types import Document, Image, Text
from ..tools import ResultContent, ToolError
from .transports import (
    HttpEndpoint,
    McpEndpoint,
    McpServerError,
    RequestNotSent,
    RequestState,
    ServerNotStarted,
    StderrReader,
    StdioEndpoint,
    connect_http,
    connect_stdio,
    notify_at_end,
)

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
        self._tools: tuple[sdk.Tool, ...] = ()
        self._has_current_tools = False
        self._stderr = StderrReader()
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
    def _live_client(self) -> Client | None:
        return None if self._ended.is_set() else self._client

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
        client = self._live_client
        if client and not self._has_current_tools and not self._is_suspect:
            await self._await_response(self._read_tools(client), self._startup_timeout)
        return self._tools

    async def call_tool(
        self, tool: str, arguments: dict[str, Any], timeout: float | None
    ) -> sdk.CallToolResult:
        client = self._live_client
        if client is None:
            raise RequestNotSent(f"{self._label} has ended. {_RETRY_ADVICE}")
        self._open_calls += 1
        try:
            response = client.call_tool(tool, _make_sendable(arguments))
            return await self._await_response(response, timeout)
        except asyncio.CancelledError:
            self._is_suspect = True
            raise
        finally:
            self._open_calls -= 1

    @staticmethod
    def read_content(result: sdk.CallToolResult) -> ResultContent:
        """Return the content of a result, as plain text where it is only text.

        An error reported by the server is raised as `ToolError` with the server's own text."""
        parts = tuple(_read_block(block) for block in result.content)
        if result.is_error:
            structured = _read_structured(result.structured_content)
            raise ToolError(_join_text(parts) or structured or "The server gave no reason.")
        if not parts:
            return _read_structured(result.structured_content)
        return parts if any(not isinstance(part, Text) for part in parts) else _join_text(parts)

    async def is_usable(self) -> bool:
        """Return True if calls can be made. A suspect server is checked first, unless other calls
        are still waiting for it."""
        client = self._live_client
        if client is None or not self._is_suspect or self._open_calls:
            return client is not None
        try:
            await self._await_response(self._read_tools(client), _CHECK_TIMEOUT)
        except ToolError:
            return False
        self._is_suspect = False
        return True

    # The session's task.

    async def _run(self) -> None:
        try:
            with self._scope, self._startup_request.track():
                self._scope.deadline = anyio.current_time() + self._startup_timeout
                async with self._create_client() as client:
                    await self._read_tools(client)
                    self._scope.deadline = math.inf
                    self._client = client
                    self._ready.set()
                    try:
                        await self._ended.wait()
                    finally:
                        # Set before calls are cancelled, so that they can tell why they fail.
                        self._ended.set()
        except Exception as problem:
            self._problem = _find_root_error(problem)
        finally:
            self._ended.set()
            self._ready.set()

    def _create_client(self) -> Client:
        if isinstance(self._endpoint, StdioEndpoint):
            transport = connect_stdio(self._endpoint, self._name, self._stderr)
        else:
            transport = connect_http(self._endpoint)
        return Client(
            notify_at_end(transport, self._ended.set),
            client_info=sdk.Implementation(name="toolspeak", version=__version__),
            message_handler=self._on_message,
        )

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, sdk.ToolListChangedNotification):
            self._has_current_tools = False

    async def _read_tools(self, client: Client) -> None:
        """Read the server's list of tools. It is read again after the server announces a change;
        if the server announces changes only to subscribers, it is read every time."""
        capability = client.server_capabilities.tools
        is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        # First, because the list may change again while it is read.
        self._has_current_tools = not (is_modern and capability and capability.list_changed)
        try:
            self._tools = await _read_pages(client) if capability else ()
        except BaseException:
            self._has_current_tools = False
            raise

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
            message = f"sent an invalid response: {_describe_error(problem)}"
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
            lost = f"{self._label} lost this session ({problem.message})"
            return RequestNotSent(f"{lost}. {_RETRY_ADVICE}")
        if status is not None and code == sdk.INTERNAL_ERROR:
            return self._server_error(f"failed with HTTP {status} ({problem.message})")
        return ToolError(problem.message)

    def _connection_lost(self, state: RequestState) -> McpServerError:
        if isinstance(self._endpoint, HttpEndpoint) and not state.was_sent:
            reason = _describe_error(self._problem) if self._problem else "it closed the connection"
            problem = f"{self._label} cannot be reached: {reason}"
            return RequestNotSent(f"{problem}. {_RETRY_ADVICE}")
        return self._server_error(
            "disconnected during the call",
            "The call may or may not have run. Check before you call it again.",
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
            return _describe_error(problem)
        advice = "; check its headers" if status in (401, 403) else ""
        return f"HTTP {status} ({_describe_error(problem)}){advice}"


async def _read_pages(client: Client) -> tuple[sdk.Tool, ...]:
    """Read all pages of tools. Of two tools with the same name the first counts."""
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


# Arguments and results.


def _make_sendable(arguments: dict[str, Any]) -> dict[str, Any]:
    """Replace lone surrogates in the arguments: the SDK would drop the whole connection on them."""
    try:
        text = json.dumps(arguments, ensure_ascii=False)
        return json.loads(text.encode("utf-8", "replace"))
    except RecursionError:
        raise ToolError("The arguments are nested too deeply to be sent.") from None


def _read_structured(value: Any) -> str:
    return "" if value is None else format_json(value)


def _join_text(parts: Sequence[Text | Image | Document]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, (Text, Document)))


def _read_block(block: sdk.ContentBlock) -> Text | Image | Document:
    match block:
        case sdk.TextContent():
            return Text(block.text)
        case sdk.ImageContent():
            return Image(data=block.data, media_type=block.mime_type)
        case sdk.AudioContent():
            return Document(data=block.data, media_type=block.mime_type)
        case sdk.ResourceLink():
            description = f": {block.description}" if block.description else ""
            return Text(f"{block.title or block.name} ({block.uri}){description}")
        case sdk.EmbeddedResource():
            return _read_resource(block.resource)


def _read_resource(
    resource: sdk.TextResourceContents | sdk.BlobResourceContents,
) -> Image | Document:
    title, media_type = resource.uri, resource.mime_type
    if isinstance(resource, sdk.TextResourceContents):
        return Document(text=resource.text, title=title, media_type=media_type or "text/plain")
    if media_type and media_type.startswith("image/"):
        return Image(data=resource.blob, media_type=media_type)
    media_type = media_type or "application/octet-stream"
    return Document(data=resource.blob, title=title, media_type=media_type)


def _find_root_error(problem: BaseException) -> BaseException:
    """Return the first error inside nested exception groups."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem


def _describe_error(problem: BaseException) -> str:
    return str(problem).strip() or type(problem).__name__
