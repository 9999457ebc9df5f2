"""Runs a function that does not wait on its own, beside the event loop.

Each has a thread of its own: one that never ends takes nothing from the others, and does not keep
the program from ending.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

Given = TypeVar("Given")


async def in_thread(function: Callable[..., Given], *arguments: Any) -> Given:
    """What a function returns. Whoever gives up waiting leaves it running."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Given] = loop.create_future()
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
