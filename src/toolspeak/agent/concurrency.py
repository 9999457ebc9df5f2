"""What happens in a task, for somebody who iterates over it.

    relay = Relay()
    async for event in relay.events(work(relay)):       work does `await relay.tell(event)`

Nothing more happens until an event was taken and the next is asked for. Whoever stops to iterate
ends the task.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


class EventChannel(Generic[Item]):
    """Between a task and whoever hears of it."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Item | None] = asyncio.Queue()

    async def send(self, event: Item) -> None:
        """Hand over an event, and wait until the next is asked for."""
        await self._queue.put(event)
        await self._queue.join()

    async def stream(self, work: Coroutine[Any, Any, None]) -> AsyncGenerator[Item]:
        """All that is told. What the work raises is raised here."""
        task = asyncio.create_task(self._run_to_end(work))
        try:
            while (event := await self._queue.get()) is not None:
                yield event
                self._queue.task_done()
            await task
        finally:
            task.cancel()
            # Unlike `await task`, this does not take our own cancelling for that of the task.
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()

    async def _run_to_end(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self._queue.put_nowait(None)


Returned = TypeVar("Returned")


async def run_in_thread(function: Callable[..., Returned], *arguments: Any) -> Returned:
    """What a function returns. Whoever gives up waiting leaves it running."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Returned] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            given = context.run(function, *arguments)
        except StopIteration as problem:
            # No future can hold that one.
            _tell(loop, future.set_exception, future, RuntimeError(f"StopIteration: {problem}"))
        except BaseException as problem:
            _tell(loop, future.set_exception, future, problem)
        else:
            _tell(loop, future.set_result, future, given)

    threading.Thread(target=run, daemon=True, name=f"toolspeak {function!r}"[:60]).start()
    return await future


def _tell(
    loop: asyncio.AbstractEventLoop,
    tell: Callable[[Any], None],
    future: asyncio.Future[Any],
    value: Any,
) -> None:
    with suppress(RuntimeError):  # The loop may be closed by then.
        loop.call_soon_threadsafe(lambda: None if future.done() else tell(value))
