"""What a store that may be away does about it.

While it cannot be reached, reads find nothing and writes are dropped, at once: only one operation
in a second still tries. `problem` and `failures` tell of it.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

TIMEOUT = 1.0
"""The seconds that an operation may take, with the connection that it may have to make."""
PAUSE = 1.0
"""The seconds until the next attempt, after one that failed."""


class RemoteStore(ABC):
    """A store in another process."""

    errors: tuple[type[Exception], ...] = (OSError,)
    """What goes wrong if it cannot be reached, or does not do what it is asked."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._retry_at: float | None = None
        """When the next attempt is due; None while it can be reached."""
        self.last_error: str | None = None
        self.error_count = 0

    @abstractmethod
    async def _execute(self, *command: Any) -> Any:
        """What it answers to a command."""

    async def _ask(self, otherwise: Any, *command: Any) -> Any:
        """What it answers to a command, or `otherwise` if it does not."""
        return await self._try(otherwise, *command) if self._is_due() else otherwise

    async def _try(self, otherwise: Any, *command: Any) -> Any:
        try:
            async with asyncio.timeout(TIMEOUT):
                answer = await self._execute(*command)
        except self.errors as error:
            self._fail(error)
            return otherwise
        self._retry_at = self.last_error = None
        return answer

    def _is_due(self) -> bool:
        if self._retry_at is None:
            return True
        now = self._now()
        if now < self._retry_at:
            return False
        # Whoever asks while this attempt lasts does not wait for it.
        self._retry_at = now + TIMEOUT
        return True

    def _fail(self, error: Exception) -> None:
        self.error_count += 1
        self.last_error = self._describe_error(error)
        self._retry_at = None if self._is_answer(error) else self._now() + PAUSE

    def _is_answer(self, error: Exception) -> bool:
        """Whether it has answered, if only that it will not: that says nothing about the others."""
        return False

    def _describe_error(self, error: Exception) -> str:
        """The error in words."""
        if isinstance(error, TimeoutError):
            return f"no answer from the store within {TIMEOUT:g} s"
        return str(error) or type(error).__name__
