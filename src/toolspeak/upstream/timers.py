"""Alarms that are set far more often than they ring.

A timer of the event loop costs as much as a good part of a request. Here setting one is next to
nothing: a few times a second it is looked which are due, so they ring a little late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

from .write_batching import Outbox

EVERY = 0.1
"""How late an alarm may ring, in seconds."""


class Alarm:
    """What is to be called at some time, by the clock of `time.perf_counter`."""

    __slots__ = ("at", "ring")

    def __init__(self, ring: Callable[[], None], at: float = 0.0) -> None:
        self.ring = ring
        self.at = at


class Ticker:
    """Rings the alarms that are set, each once. While there are none it does nothing."""

    def __init__(self) -> None:
        self._alarms: set[Alarm] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next: asyncio.TimerHandle | None = None
        self.outbox = Outbox(self)
        """What leaves when a turn of the loop is over."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop. To ask for it costs a system call each time."""
        self._loop = self._loop or asyncio.get_running_loop()
        return self._loop

    def set(self, alarm: Alarm) -> None:
        """Let it ring at its time, which may still be changed."""
        self._alarms.add(alarm)
        if self._next is None:
            self._next = self.loop.call_later(EVERY, self._tick)

    def unset(self, alarm: Alarm) -> None:
        """It does not ring."""
        self._alarms.discard(alarm)

    def stop(self) -> None:
        """None of them rings."""
        self._alarms.clear()
        if self._next:
            self._next.cancel()
            self._next = None

    def _tick(self) -> None:
        now = perf_counter()
        due = [alarm for alarm in self._alarms if alarm.at <= now]
        self._alarms.difference_update(due)
        # Before they ring: they may set others.
        self._next = self.loop.call_later(EVERY, self._tick) if self._alarms else None
        for alarm in due:
            alarm.ring()
