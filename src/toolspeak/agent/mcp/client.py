"""An MCP server as a source of tools for an agent.

One that dies is connected to again when it is next needed. Until then its tools stay in the list,
and a call of one says what is the matter: an agent goes on without a server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...types import Tool
from ..tools import AgentTool, ResultContent, ToolError, ToolHandler, ToolOptions
from .endpoints import (
    HttpEndpoint,
    McpEndpoint,
    McpServerError,
    RequestNotSent,
    ServerNotStarted,
    StdioEndpoint,
    check_headers,
)
from .tools import assign_names

if TYPE_CHECKING:
    from mcp_types import Tool as SdkTool

    from .session import McpSession

log = logging.getLogger("toolspeak.agent")

_MAX_WAIT = 5.0
"""Seconds that a call waits for a server to be tried again; it fails if there are more to go."""
_TIMEOUT_MARGIN = 5.0


class McpServer:
    """A server's tools, named `server__tool`. It belongs to one agent at a time.

    A server says of its tools which only read. That is believed only with `trust_hints`: anybody
    may write a server. Otherwise all of them count as tools that write, which are asked about, or
    refused where an agent may only read.
    """

    def __init__(
        self,
        name: str,
        place: McpEndpoint,
        *,
        required: bool = True,
        trust_hints: bool = False,
        startup_timeout: float = 30.0,
        timeout: float | None = None,
    ) -> None:
        self.name = name
        self.endpoint = place
        self.required = required
        """Whether an agent cannot do without it. If not, it is left out when it does not start."""
        self.trust_hints = trust_hints
        self._startup_timeout = startup_timeout
        self._timeout = timeout
        self._lock = asyncio.Lock()
        self._backoff = Backoff()
        self._session: McpSession | None = None
        self._is_open = False
        self._declared: tuple[SdkTool, ...] = ()
        self._tools: tuple[AgentTool, ...] = ()

    @classmethod
    def stdio(
        cls,
        name: str,
        command: str,
        args: Iterable[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        **options: Any,
    ) -> McpServer:
        """One that is started by a command. It does not get the environment of this program, only
        what every program needs (PATH, HOME …) and what `env` says."""
        place = StdioEndpoint(
            command=command,
            args=tuple(args),
            env=dict(env or {}),
            cwd=str(cwd) if cwd is not None else None,
        )
        return cls(name, place, **options)

    @classmethod
    def http(
        cls, name: str, url: str, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> McpServer:
        """One that is running, and speaks streamable HTTP."""
        return cls(name, HttpEndpoint(url=url, headers=check_headers(headers or {})), **options)

    def __repr__(self) -> str:
        return f"McpServer({self.name!r}, {self.endpoint})"

    # As a source of tools.

    async def open(self) -> None:
        async with self._lock:
            if self._is_open:
                return
            try:
                self._session = await self._connect()
            except ServerNotStarted as problem:
                if self.required:
                    raise
                log.warning("%s\n  The agent goes on without it.", problem)
                return
            self._is_open = True

    async def list_tools(self) -> tuple[AgentTool, ...]:
        session = self._session
        if session:
            try:
                self._update_tools(await session.list_tools())
            except ToolError as problem:
                log.warning("The list of tools may be out of date: %s", problem)
        return self._tools

    async def close(self) -> None:
        session, self._session = self._session, None
        self._is_open = False
        self._tools = self._declared = ()
        self._backoff.reset()
        # The next time it may be opened in another loop.
        self._lock = asyncio.Lock()
        if session:
            await session.close()

    # Its tools.

    def _update_tools(self, listed: tuple[SdkTool, ...]) -> None:
        if listed is not self._declared or not self._tools:
            names = assign_names(self.name, (tool.name for tool in listed))
            self._tools = tuple(self._build_tool(tool, names[tool.name]) for tool in listed)
            self._declared = listed

    def _build_tool(self, told: SdkTool, name: str) -> AgentTool:
        return AgentTool(
            tool=Tool(
                name=name,
                description=told.description or told.title or "",
                parameters=dict(told.input_schema),
            ),
            handler=self._build_handler(told.name),
            options=self._read_options(told),
            source=self.name,
        )

    def _read_options(self, told: SdkTool) -> ToolOptions:
        """What may be believed of a tool. Its time ends after the server's own, which says more."""
        hints = told.annotations if self.trust_hints else None
        return ToolOptions(
            writes=not (hints and hints.read_only_hint),
            idempotent=bool(hints and hints.idempotent_hint),
            timeout=self._timeout + _TIMEOUT_MARGIN if self._timeout else None,
        )

    def _build_handler(self, tool: str) -> ToolHandler:
        async def call(arguments: dict[str, Any]) -> ResultContent:
            try:
                return await self._call(tool, arguments)
            except RequestNotSent:
                # The server has gone since it was last asked, and never heard of this.
                return await self._call(tool, arguments)

        return call

    async def _call(self, tool: str, arguments: dict[str, Any]) -> ResultContent:
        from .tools import read_content

        session = await self._get_session()
        result = await session.call_tool(tool, arguments, self._timeout)
        self._backoff.reset()
        return read_content(result)

    # Its connection.

    async def _get_session(self) -> McpSession:
        """The connection that there is, or a new one."""
        async with self._lock:
            if self._session and await self._session.is_usable():
                return self._session
            if self._session:
                self._backoff.record_failure()
                await self._session.close()
                self._session = None
            session = await self._reconnect()
            if not self._is_open:
                await session.close()
                raise McpServerError(f"the MCP server {self.name!r} was closed")
            self._session = session
            return session

    async def _reconnect(self) -> McpSession:
        if not self._is_open:
            raise McpServerError(f"the MCP server {self.name!r} is not open")
        left = self._backoff.seconds_left
        if left > _MAX_WAIT:
            raise McpServerError(
                f"the MCP server {self.name!r} has failed several times, and is left alone for "
                f"{left:.0f} s. Go on without it, or tell the user."
            )
        await asyncio.sleep(left)
        try:
            return await self._connect()
        except ServerNotStarted as problem:
            self._backoff.record_failure()
            log.warning("%s", problem)
            raise McpServerError(f"{problem.short}. Go on without it, or tell the user.") from None

    async def _connect(self) -> McpSession:
        try:
            from .session import McpSession
        except ModuleNotFoundError as missing:
            raise UsageError(
                f"MCP servers need {missing.name}: pip install 'toolspeak[agent]'"
            ) from None
        session = McpSession(self.name, self.endpoint, self._startup_timeout)
        await session.open()
        return session


MAX_BACKOFF = 30.0


class Backoff:
    """Counts failures in a row: 0, 1, 2, 4 … seconds have to pass after them."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._until = 0.0

    @property
    def seconds_left(self) -> float:
        """The seconds until it may be tried again."""
        return max(0.0, self._until - self._clock())

    def record_failure(self) -> None:
        """It has failed once more."""
        self._failures += 1
        wait = min(MAX_BACKOFF, 2.0 ** (self._failures - 2)) if self._failures > 1 else 0.0
        self._until = self._clock() + wait

    def reset(self) -> None:
        """It works: the next failure is the first again."""
        self._failures = 0
        self._until = 0.0
