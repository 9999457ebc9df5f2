"""The list of a server's tools, which is read again when it may have changed."""

from __future__ import annotations

import mcp_types as sdk
from mcp import Client, MCPError
from mcp.client.session import IncomingMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

_PAGES = 200
"""A server that never comes to the end of its list is not read any further."""


class Listing:
    """What a server has told of its tools."""

    def __init__(self) -> None:
        self.tools: tuple[sdk.Tool, ...] = ()
        self._is_stale = True
        self._is_told = True
        """Whether the server says so if the list changes."""

    @property
    def is_current(self) -> bool:
        return self._is_told and not self._is_stale

    async def read(self, client: Client) -> None:
        """Read all pages. Of two tools with one name there is the first."""
        # It may change again while it is read.
        self._is_stale = False
        try:
            self.tools = await _tools(client) if client.server_capabilities.tools else ()
        except BaseException:
            self._is_stale = True
            raise

    async def heard(self, message: IncomingMessage) -> None:
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
        self._is_told = False
        try:
            async with client.listen(tools_list_changed=True) as changes:
                # It may have changed before anybody listened.
                self._is_stale = True
                self._is_told = bool(changes.honored.tools_list_changed)
                async for _ in changes:
                    self._is_stale = True
        except (MCPError, RuntimeError, TimeoutError):
            pass
        self._is_told = False


async def _tools(client: Client) -> tuple[sdk.Tool, ...]:
    found: dict[str, sdk.Tool] = {}
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        for tool in page.tools:
            found.setdefault(tool.name, tool)
        cursor = page.next_cursor
        if not cursor:
            break
    return tuple(found.values())
