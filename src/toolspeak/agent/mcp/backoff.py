"""How long to leave a server alone that has failed: at first not at all, then longer each time."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

LONGEST = 30.0


class Backoff:
    """Counts failures in a row: 0, 1, 2, 4 … seconds have to pass after them."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._until = 0.0

    @property
    def left(self) -> float:
        """The seconds until it may be tried again."""
        return max(0.0, self._until - self._clock())

    def failed(self) -> None:
        """It has failed once more."""
        self._failures += 1
        wait = min(LONGEST, 2.0 ** (self._failures - 2)) if self._failures > 1 else 0.0
        self._until = self._clock() + wait

    def succeeded(self) -> None:
        """It works: the next failure is the first again."""
        self._failures = 0
        self._until = 0.0
