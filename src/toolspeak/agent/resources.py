"""What an agent holds open while it is used: its model, and the sources of its tools."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Protocol, runtime_checkable

from .models import Model
from .tools import AgentTool

log = logging.getLogger("toolspeak.agent")


@runtime_checkable
class ToolSource(Protocol):
    """Where tools come from that may change: an MCP server."""

    async def open(self) -> None:
        """Get ready. What fails here is not closed."""
        ...

    async def tools(self) -> tuple[AgentTool, ...]:
        """The tools that there are now."""
        ...

    async def close(self) -> None:
        """Let go of it."""
        ...


class Opened:
    """Open from the first who uses it until the last leaves."""

    def __init__(self, new_model: Callable[[], Model], sources: Sequence[ToolSource]) -> None:
        self._new_model = new_model
        self._sources = sources
        self._changing = asyncio.Lock()
        self._stack = AsyncExitStack()
        self.users = 0

    async def enter(self) -> None:
        """One more uses it."""
        async with self._changing:
            if not self.users:
                await self._open()
            self.users += 1

    async def leave(self) -> None:
        """One of them uses it no more."""
        async with self._changing:
            self.users -= 1
            if not self.users:
                await self._stack.aclose()

    async def _open(self) -> None:
        async with AsyncExitStack() as stack:
            self.model = self._new_model()
            stack.push_async_callback(_close, self.model)
            for source in self._sources:
                await source.open()
                stack.push_async_callback(_close, source)
            self._stack = stack.pop_all()


async def _close(opened: Model | ToolSource) -> None:
    """Close something. If that fails, what was done is done all the same."""
    try:
        await opened.close()
    except Exception:
        log.warning("%r could not be closed", opened, exc_info=True)
