"""Runs work beside its consumer: a task that sends events, or a function in a thread.

channel = EventChannel()
async for event in channel.stream(work(channel)):       work does `await channel.send(event)`
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Returned = TypeVar("Returned")


class EventChannel(Generic[Item]):
    """Passes events from one task to one consumer, in lockstep: the task continues only when the
    consumer asks for the next event."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Item | None] = asyncio.Queue()

    async def send(self, event: Item) -> None:
        """Hand over an event and wait until the consumer asks for the next."""
        await self._queue.put(event)
        await self._queue.join()

    async def stream(self, work: Coroutine[Any, Any, None]) -> AsyncGenerator[Item]:
        """Run `work` and yield the events that it sends. Its exception is raised here; it is
        cancelled when the consumer stops early."""
        task = asyncio.create_task(self._run_to_end(work))
        try:
            while (event := await self._queue.get()) is not None:
                yield event
                self._queue.task_done()
            await task
        finally:
            task.cancel()
            # Unlike `await task`, this does not confuse the caller's cancellation with the task's.
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()

    async def _run_to_end(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self._queue.put_nowait(None)


async def run_in_thread(function: Callable[..., Returned], *arguments: Any) -> Returned:
    """Call a blocking function in a new daemon thread.

    A thread pool would let one call that never ends block others and the program's exit. A
    cancelled caller leaves the thread running."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Returned] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            returned = context.run(function, *arguments)
        except StopIteration as problem:
            # A future cannot hold StopIteration.
            error = RuntimeError(f"StopIteration: {problem}")
            _complete(loop, future, future.set_exception, error)
        except BaseException as problem:
            _complete(loop, future, future.set_exception, problem)
        else:
            _complete(loop, future, future.set_result, returned)

    threading.Thread(target=run, daemon=True, name=f"toolspeak {function!r}"[:60]).start()
    return await future


def _complete(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
    set_outcome: Callable[[Any], None],
    outcome: Any,
) -> None:
    with suppress(RuntimeError):  # The loop may be closed already.
        loop.call_soon_threadsafe(lambda: None if future.done() else set_outcome(outcome))
