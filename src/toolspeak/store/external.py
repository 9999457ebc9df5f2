"""A store outside this process, which may become unavailable at any time."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from ..config.settings import StoreLimits
from .base import DEFAULT_LIMITS, Store

log = logging.getLogger("toolspeak.store")
TIMEOUT = 1.0
"""Seconds that an operation may take, including the time to connect."""
RETRY_SECONDS = 1.0
"""Seconds between an operation that could not reach the store and the next attempt."""
_READS = frozenset({"get", "list_items", "read_counters", "ping"})


class ExternalStore(Store):
    """Runs operations with a timeout, and handles outages.

    While the store cannot be reached, one operation per second tries to; all others fail at once.
    An outage is logged when it starts and when it ends. It ends when an operation of the kind that
    failed (reads, writes) succeeds, since a full store can still be read.
    """

    errors: tuple[type[Exception], ...] = (OSError,)
    """Exceptions of operations that fail."""
    timeout = TIMEOUT

    def __init__(
        self, limits: StoreLimits = DEFAULT_LIMITS, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(limits)
        self._now = now
        self._retry_at: float | None = None
        """When the next attempt is due; None if the last one reached the store."""
        self._failing: set[str] = set()
        """The kinds of operations that fail during an outage."""
        self._outage_start = 0.0

    @property
    def is_available(self) -> bool:
        return not self._failing

    @abstractmethod
    async def _execute(self, name: str, *arguments: Any) -> Any:
        """Run an operation, or raise one of `errors`."""

    @abstractmethod
    def _is_reachable(self, error: Exception) -> bool:
        """Return True for the error of a store that can be reached but rejects an operation."""

    @abstractmethod
    def _describe_error(self, error: Exception) -> str:
        """Describe an error for people, without credentials."""

    async def ping(self) -> bool:
        """Return True if the store can be reached now, even if the next attempt is not due."""
        return bool(await self._attempt("ping"))

    async def _run(self, name: str, *arguments: Any) -> Any:
        return await self._attempt(name, *arguments) if self._is_due() else None

    async def _attempt(self, name: str, *arguments: Any) -> Any:
        kind = "reads" if name in _READS else "writes"
        try:
            async with asyncio.timeout(self.timeout):
                result = await self._execute(name, *arguments)
        except self.errors as error:
            self._note_failure(kind, error)
            return None
        self._note_success(kind)
        return result

    def _is_due(self) -> bool:
        if self._retry_at is None:
            return True
        now = self._now()
        if now < self._retry_at:
            return False
        # Other operations do not wait for this attempt.
        self._retry_at = now + self.timeout
        return True

    def _note_failure(self, kind: str, error: Exception) -> None:
        self.error_count += 1
        self.last_error = self._describe_error(error)
        self._retry_at = None if self._is_reachable(error) else self._now() + RETRY_SECONDS
        self.on_problem("failed")
        if not self._failing:
            self._outage_start = self._now()
            self.on_problem("outage")
            message = "the store is unavailable: %s; requests are served without stored data, and "
            message += "those that continue a stored response fail"
            log.warning(message, self.last_error)
        self._failing.add(kind)

    def _note_success(self, kind: str) -> None:
        self._retry_at = self.last_error = None
        if not self._failing:
            return
        self._failing -= {kind} if kind == "reads" else {"reads", "writes"}
        if not self._failing:
            seconds = self._now() - self._outage_start
            log.warning("the store is available again after %.0f s", seconds)
