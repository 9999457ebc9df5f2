"""Runs work beside its consumer: a task that sends events, or a blocking function in a thread.

channel = EventChannel()
async for event in channel.stream(work(channel)):       work does `await channel.send(event)`
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future
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
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._queue.put_nowait(None))
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


async def run_in_thread(function: Callable[..., Returned], *arguments: Any) -> Returned:
    """Call a blocking function in a new daemon thread.

    A thread pool would let one call that never ends block others and the program's exit. A
    cancelled caller leaves the thread running."""
    future: Future[Returned] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(context.run(function, *arguments))
        except StopIteration as problem:
            # A coroutine cannot raise StopIteration.
            future.set_exception(RuntimeError(f"StopIteration: {problem}"))
        except BaseException as problem:
            future.set_exception(problem)

    threading.Thread(target=run, daemon=True, name=f"toolspeak {function!r}"[:60]).start()
    return await asyncio.wrap_future(future)


def is_async(function: Callable[..., Any]) -> bool:
    """Return True if calling `function` returns a coroutine at once, and so needs no thread."""
    call = getattr(function, "__call__", None)  # noqa: B004 - not whether, but how
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


async def call_function(function: Callable[..., Any], *arguments: Any) -> Any:
    """Await an async function; call any other in a thread, because it may block."""
    if is_async(function):
        return await function(*arguments)
    returned = await run_in_thread(function, *arguments)
    return await returned if inspect.isawaitable(returned) else returned


def is_being_cancelled() -> bool:
    """Return True if the current task itself is being cancelled, and not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
