"""A thread for work that takes too long for the event loop.

    request = await worker.run_if(len(data) > LARGE, decode, data)

The thread and the event loop take turns, so other requests are served in the meantime. There is one
thread only: several would not be faster, and the event loop would get fewer turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
LARGE = 2**18
"""The size of a request or of an event, in bytes, from which its work runs in the thread: the work
on fewer bytes takes no longer than a turn of the event loop."""


class WorkerThread:
    """Runs one function after the other. The thread starts with the first one."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    async def run(
        self,
        function: Callable[Parameters, Result],
        *arguments: Parameters.args,
        **options: Parameters.kwargs,
    ) -> Result:
        """Return the result of a function. It runs to its end even if the caller is cancelled."""
        job = partial(copy_context().run, function, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(self._start(), job)

    async def run_if(
        self,
        is_large: bool,
        function: Callable[Parameters, Result],
        *arguments: Parameters.args,
        **options: Parameters.kwargs,
    ) -> Result:
        """Run a function: in the thread if its work is large, otherwise at once."""
        if is_large:
            return await self.run(function, *arguments, **options)
        return function(*arguments, **options)

    def submit(self, function: Callable[[], None]) -> None:
        """Run a function whose end nobody waits for."""
        self._start().submit(function)

    def _start(self) -> ThreadPoolExecutor:
        self._executor = self._executor or ThreadPoolExecutor(1, "toolspeak-worker")
        return self._executor

    def close(self) -> None:
        """Drop the work that has not begun."""
        if self._executor:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None
