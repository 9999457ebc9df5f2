"""What happens in a task, for somebody who iterates over it.

    relay = Relay()
    async for event in relay.events(work(relay)):       work does `await relay.tell(event)`

Nothing more happens until an event was taken and the next is asked for. Whoever stops to iterate
ends the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Generic, TypeVar

Told = TypeVar("Told")


class Relay(Generic[Told]):
    """Between a task and whoever hears of it."""

    def __init__(self) -> None:
        self._told: asyncio.Queue[Told | None] = asyncio.Queue()

    async def tell(self, event: Told) -> None:
        """Hand over an event, and wait until the next is asked for."""
        await self._told.put(event)
        await self._told.join()

    async def events(self, work: Coroutine[Any, Any, None]) -> AsyncGenerator[Told]:
        """All that is told. What the work raises is raised here."""
        task = asyncio.create_task(self._all_of(work))
        try:
            while (event := await self._told.get()) is not None:
                yield event
                self._told.task_done()
            await task
        finally:
            task.cancel()
            # Unlike `await task`, this does not take our own cancelling for that of the task.
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()

    async def _all_of(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self._told.put_nowait(None)
