"""An MCP server as a source of tools for an agent.

One that dies is connected to again when it is next needed. Until then its tools stay in the list,
and a call of one says what is the matter: an agent goes on without a server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...types import Tool
from ..tools import AgentTool, Content, Handler, Options, ToolFailed
from .backoff import Backoff
from .endpoints import Address, Command, Place, checked_headers
from .failures import NotSent, NotStarted, ServerFailed
from .naming import names_for

if TYPE_CHECKING:
    from mcp_types import Tool as SdkTool

    from .session import Session

log = logging.getLogger("toolspeak.agent")

_PATIENCE = 5.0
"""Seconds that a call waits for a server to be tried again; it fails if there are more to go."""
_MARGIN = 5.0


class McpServer:
    """A server's tools, named `server__tool`. It belongs to one agent at a time.

    A server says of its tools which only read. That is believed only with `trust_hints`: anybody
    may write a server. Otherwise all of them count as tools that write, which are asked about, or
    refused where an agent may only read.
    """

    def __init__(
        self,
        name: str,
        place: Place,
        *,
        required: bool = True,
        trust_hints: bool = False,
        startup_timeout: float = 30.0,
        timeout: float | None = None,
    ) -> None:
        self.name = name
        self.place = place
        self.required = required
        """Whether an agent cannot do without it. If not, it is left out when it does not start."""
        self.trust_hints = trust_hints
        self._startup = startup_timeout
        self._timeout = timeout
        self._lock = asyncio.Lock()
        self._backoff = Backoff()
        self._session: Session | None = None
        self._is_open = False
        self._listed: tuple[SdkTool, ...] = ()
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
        place = Command(
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
        return cls(name, Address(url=url, headers=checked_headers(headers or {})), **options)

    def __repr__(self) -> str:
        return f"McpServer({self.name!r}, {self.place})"

    # As a source of tools.

    async def open(self) -> None:
        async with self._lock:
            if self._is_open:
                return
            try:
                self._session = await self._connected()
            except NotStarted as problem:
                if self.required:
                    raise
                log.warning("%s\n  The agent goes on without it.", problem)
                return
            self._is_open = True

    async def tools(self) -> tuple[AgentTool, ...]:
        session = self._session
        if session:
            try:
                self._offer(await session.tools())
            except ToolFailed as problem:
                log.warning("The list of tools may be out of date: %s", problem)
        return self._tools

    async def close(self) -> None:
        session, self._session = self._session, None
        self._is_open = False
        self._tools = self._listed = ()
        self._backoff.succeeded()
        # The next time it may be opened in another loop.
        self._lock = asyncio.Lock()
        if session:
            await session.close()

    # Its tools.

    def _offer(self, listed: tuple[SdkTool, ...]) -> None:
        if listed is not self._listed or not self._tools:
            names = names_for(self.name, (tool.name for tool in listed))
            self._tools = tuple(self._tool(tool, names[tool.name]) for tool in listed)
            self._listed = listed

    def _tool(self, told: SdkTool, name: str) -> AgentTool:
        return AgentTool(
            tool=Tool(
                name=name,
                description=told.description or told.title or "",
                parameters=dict(told.input_schema),
            ),
            handler=self._handler(told.name),
            options=self._options(told),
            source=self.name,
        )

    def _options(self, told: SdkTool) -> Options:
        """What may be believed of a tool. Its time ends after the server's own, which says more."""
        hints = told.annotations if self.trust_hints else None
        return Options(
            writes=not (hints and hints.read_only_hint),
            idempotent=bool(hints and hints.idempotent_hint),
            timeout=self._timeout + _MARGIN if self._timeout else None,
        )

    def _handler(self, tool: str) -> Handler:
        async def call(arguments: dict[str, Any]) -> Content:
            try:
                return await self._call(tool, arguments)
            except NotSent:
                # The server has gone since it was last asked, and never heard of this.
                return await self._call(tool, arguments)

        return call

    async def _call(self, tool: str, arguments: dict[str, Any]) -> Content:
        from .results import content_of

        session = await self._alive()
        result = await session.call(tool, arguments, self._timeout)
        self._backoff.succeeded()
        return content_of(result)

    # Its connection.

    async def _alive(self) -> Session:
        """The connection that there is, or a new one."""
        async with self._lock:
            if self._session and await self._session.is_good():
                return self._session
            if self._session:
                self._backoff.failed()
                await self._session.close()
                self._session = None
            session = await self._again()
            if not self._is_open:
                await session.close()
                raise ServerFailed(f"the MCP server {self.name!r} was closed")
            self._session = session
            return session

    async def _again(self) -> Session:
        if not self._is_open:
            raise ServerFailed(f"the MCP server {self.name!r} is not open")
        left = self._backoff.left
        if left > _PATIENCE:
            raise ServerFailed(
                f"the MCP server {self.name!r} has failed several times, and is left alone for "
                f"{left:.0f} s. Go on without it, or tell the user."
            )
        await asyncio.sleep(left)
        try:
            return await self._connected()
        except NotStarted as problem:
            self._backoff.failed()
            log.warning("%s", problem)
            raise ServerFailed(f"{problem.short}. Go on without it, or tell the user.") from None

    async def _connected(self) -> Session:
        try:
            from .session import Session
        except ModuleNotFoundError as missing:
            raise UsageError(
                f"MCP servers need {missing.name}: pip install 'toolspeak[agent]'"
            ) from None
        session = Session(self.name, self.place, self._startup)
        await session.open()
        return session
