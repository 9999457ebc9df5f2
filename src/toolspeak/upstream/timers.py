"""Timers that are set far more often than they expire, such as timeouts.

A timer of the event loop is expensive compared with the rest of a request. Setting an `Alarm` costs
next to nothing: a few times per second, the ticker checks which are due, so they ring a bit late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

EVERY = 0.1
"""The interval of the checks, in seconds: an alarm rings at most this late."""


class Alarm:
    """A callback, and the time for it by the clock of `time.perf_counter`."""

    __slots__ = ("at", "ring")

    def __init__(self, ring: Callable[[], None], at: float = 0.0) -> None:
        self.ring = ring
        self.at = at


class Ticker:
    """Rings each alarm once. Without alarms, it does nothing."""

    def __init__(self) -> None:
        self._alarms: set[Alarm] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next: asyncio.TimerHandle | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running event loop, cached because looking it up costs a system call."""
        self._loop = self._loop or asyncio.get_running_loop()
        return self._loop

    def set(self, alarm: Alarm) -> None:
        """Ring at the alarm's time, which may still be changed."""
        self._alarms.add(alarm)
        if self._next is None:
            self._next = self.loop.call_later(EVERY, self._tick)

    def unset(self, alarm: Alarm) -> None:
        """Do not ring this alarm."""
        self._alarms.discard(alarm)

    def stop(self) -> None:
        """Ring no alarm any more."""
        self._alarms.clear()
        if self._next:
            self._next.cancel()
            self._next = None

    def _tick(self) -> None:
        now = perf_counter()
        due = [alarm for alarm in self._alarms if alarm.at <= now]
        self._alarms.difference_update(due)
        # Before the callbacks, which may set further alarms.
        self._next = self.loop.call_later(EVERY, self._tick) if self._alarms else None
        for alarm in due:
            alarm.ring()
