"""An MCP server as a source of tools for an agent.

    files, read_file            -> files__read_file
    my server, read/file        -> my_server__read_file

A tool's name is one that every model API accepts, and no two tools share one. A server that dies is
reconnected when it is next needed. Until then its tools stay listed, and a call to one reports the
problem: the agent continues without the server.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...types import Tool
from ..tools import AgentTool, ResultContent, ToolError, ToolHandler, ToolOptions
from .transports import (
    HttpEndpoint,
    McpEndpoint,
    McpServerError,
    RequestNotSent,
    ServerNotStarted,
    StdioEndpoint,
    check_headers,
)

if TYPE_CHECKING:
    from mcp_types import Tool as SdkTool

    from .session import McpSession

log = logging.getLogger("toolspeak.agent")

_TIMEOUT_MARGIN = 5.0
_ADVICE = "Continue without it, or tell the user."
MAX_NAME_LENGTH = 64
_INVALID_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")
_HASH_DIGITS = 8


class McpServer:
    """The tools of a server, named `server__tool`. Belongs to one agent at a time.

    A server's hints about which tools only read are untrusted: they count only with `trust_hints`.
    Otherwise all its tools count as tools that write.
    """

    def __init__(
        self,
        name: str,
        endpoint: McpEndpoint,
        *,
        required: bool = True,
        trust_hints: bool = False,
        startup_timeout: float = 30.0,
        timeout: float | None = None,
    ) -> None:
        self.name = name
        self.endpoint = endpoint
        self.required = required
        """The agent fails if the server does not start; otherwise it continues without it."""
        self.trust_hints = trust_hints
        self._startup_timeout = startup_timeout
        self._timeout = timeout
        self._lock = asyncio.Lock()
        self._session: McpSession | None = None
        self._is_open = False
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
        """Describe a server that is started by a command. It does not inherit this program's
        environment, only what every program needs (PATH, HOME …) and `env`."""
        endpoint = StdioEndpoint(
            command=command,
            args=tuple(args),
            env=dict(env or {}),
            cwd=str(cwd) if cwd is not None else None,
        )
        return cls(name, endpoint, **options)

    @classmethod
    def http(
        cls, name: str, url: str, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> McpServer:
        """Describe a running server that speaks streamable HTTP."""
        return cls(name, HttpEndpoint(url=url, headers=check_headers(headers or {})), **options)

    def __repr__(self) -> str:
        return f"McpServer({self.name!r}, {self.endpoint})"

    async def open(self) -> None:
        async with self._lock:
            if self._is_open:
                return
            try:
                self._session = await self._connect()
            except ServerNotStarted as problem:
                if self.required:
                    raise
                log.warning("%s\n  The agent continues without it.", problem)
                return
            self._is_open = True

    async def list_tools(self) -> tuple[AgentTool, ...]:
        if self._session:
            try:
                self._tools = self._build_tools(await self._session.list_tools())
            except ToolError as problem:
                log.warning("The list of tools may be out of date: %s", problem)
        return self._tools

    async def close(self) -> None:
        session, self._session = self._session, None
        self._is_open = False
        self._tools = ()
        # The next `open` may be in another event loop.
        self._lock = asyncio.Lock()
        if session:
            await session.close()

    # Tools.

    def _build_tools(self, declared: tuple[SdkTool, ...]) -> tuple[AgentTool, ...]:
        names = assign_names(self.name, (tool.name for tool in declared))
        return tuple(self._build_tool(tool, names[tool.name]) for tool in declared)

    def _build_tool(self, declared: SdkTool, name: str) -> AgentTool:
        return AgentTool(
            tool=Tool(
                name=name,
                description=declared.description or declared.title or "",
                parameters=dict(declared.input_schema),
            ),
            handler=self._build_handler(declared.name),
            options=self._read_options(declared),
            source=self.name,
        )

    def _read_options(self, declared: SdkTool) -> ToolOptions:
        hints = declared.annotations if self.trust_hints else None
        return ToolOptions(
            writes=not (hints and hints.read_only_hint),
            idempotent=bool(hints and hints.idempotent_hint),
            # The session's own timeout comes first: its message says more.
            timeout=self._timeout + _TIMEOUT_MARGIN if self._timeout else None,
        )

    def _build_handler(self, tool: str) -> ToolHandler:
        async def call(arguments: dict[str, Any]) -> ResultContent:
            try:
                return await self._call_tool(tool, arguments)
            except RequestNotSent:
                # The server ended since it was last used and has not seen this call.
                return await self._call_tool(tool, arguments)

        return call

    async def _call_tool(self, tool: str, arguments: dict[str, Any]) -> ResultContent:
        session = await self._get_session()
        return session.read_content(await session.call_tool(tool, arguments, self._timeout))

    # The connection.

    async def _get_session(self) -> McpSession:
        """Return the current session if it is usable, or a new one."""
        async with self._lock:
            if self._session and await self._session.is_usable():
                return self._session
            if self._session:
                await self._session.close()
                self._session = None
            if not self._is_open:
                raise McpServerError(f"MCP server {self.name!r} is not open: use `async with`.")
            try:
                session = await self._connect()
            except ServerNotStarted as problem:
                log.warning("%s", problem)
                raise McpServerError(f"{problem.short}. {_ADVICE}") from None
            if not self._is_open:
                await session.close()
                raise McpServerError(f"MCP server {self.name!r} was closed.")
            self._session = session
            return session

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


# Names.


def name_prefix(server: str) -> str:
    """Return the server's part of its tools' names.

    It contains no double underscore, so the first one in a tool's name ends the prefix and two
    servers never produce the same name."""
    return re.sub(r"__+", "_", _INVALID_CHARACTER.sub("_", server)).strip("_") or "mcp"


def assign_names(server: str, tools: Iterable[str]) -> dict[str, str]:
    """Map the server's own tool names to names for the model.

    A tool keeps its name where that is valid; names that would clash get a hash."""
    plain = {tool: f"{name_prefix(server)}__{_INVALID_CHARACTER.sub('_', tool)}" for tool in tools}
    counts = Counter(plain.values())
    names = {
        tool: name
        for tool, name in plain.items()
        if len(name) <= MAX_NAME_LENGTH and (counts[name] == 1 or name.endswith(f"__{tool}"))
    }
    taken = {*names.values()}
    for tool in sorted(plain.keys() - names.keys()):
        names[tool] = _add_hash(plain[tool], f"{server}\0{tool}", taken)
        taken.add(names[tool])
    return names


def _add_hash(name: str, key: str, taken: Container[str]) -> str:
    """Shorten `name` and append a hash of `key`; rehash while the result is taken."""
    digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:_HASH_DIGITS]
    hashed = f"{name[: MAX_NAME_LENGTH - _HASH_DIGITS - 1]}_{digest}"
    return hashed if hashed not in taken else _add_hash(name, digest + key, taken)
