"""Spreads connections over the workers that share a listening socket.

Each new connection wakes all workers, and mostly the same one is the first to accept it. So the
workers know how many connections each of them has, and one that has several more than another
waits for a moment before it accepts the next. A worker that does not respond gets none.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import socket
from collections.abc import Callable
from tempfile import TemporaryFile
from typing import Any

log = logging.getLogger("toolspeak.gateway")
_LEAD = 3
"""How many connections more than another worker one may have without waiting."""
_PATIENCE = 0.003
"""Seconds for which a connection is left to a worker with fewer connections."""
_RETRY_SECONDS = 1.0
"""The time until the next attempt if the system has no resources for a connection."""
_NOT_RUNNING = 2**62


class ConnectionCounts:
    """The number of connections of each worker, in memory that their processes share."""

    def __init__(self, descriptor: int) -> None:
        self._counts = memoryview(mmap.mmap(descriptor, 0)).cast("q")

    @classmethod
    def create(cls, workers: int) -> tuple[ConnectionCounts, int]:
        """Return the counts of so many workers, and a descriptor for their processes."""
        with TemporaryFile() as file:
            file.write(bytes(8 * workers))
            file.flush()
            descriptor = os.dup(file.fileno())
        counts = cls(descriptor)
        for worker in range(workers):
            counts.clear(worker)
        return counts, descriptor

    def set(self, worker: int, count: int) -> None:
        self._counts[worker] = count

    def clear(self, worker: int) -> None:
        """Leave no connections to a worker that does not run."""
        self._counts[worker] = _NOT_RUNNING

    def get_lead(self, worker: int) -> int:
        """Return how many connections more it has than the worker with the fewest."""
        return self._counts[worker] - min(self._counts)


class SharedListener:
    """Accepts a worker's part of the connections."""

    def __init__(self, listener: socket.socket, counts: ConnectionCounts, worker: int) -> None:
        self.socket = listener
        self.connections: set[Any] = CountedSet(self._publish)
        """The worker's open connections: protocols add and remove themselves."""
        self._counts = counts
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._accepted: set[asyncio.Task[Any]] = set()
        self._is_listening = False
        self._pause: asyncio.TimerHandle | None = None

    def start(self, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        """Accept connections, and let such a protocol handle each."""
        self._make_protocol = make_protocol
        self.socket.setblocking(False)
        self._is_listening = True
        self._publish()
        self._listen()

    def stop(self) -> None:
        """Accept no more connections."""
        self._is_listening = False
        self._counts.clear(self._worker)
        self._loop.remove_reader(self.socket)
        if self._pause:
            self._pause.cancel()

    def _publish(self) -> None:
        if self._is_listening:
            self._counts.set(self._worker, len(self.connections) + len(self._accepted))

    def _listen(self) -> None:
        self._loop.add_reader(self.socket, self._handle_connection)

    def _handle_connection(self) -> None:
        if self._counts.get_lead(self._worker) < _LEAD:
            self._accept()
        else:
            self._wait(_PATIENCE)

    def _wait(self, seconds: float) -> None:
        self._loop.remove_reader(self.socket)
        self._pause = self._loop.call_later(seconds, self._continue)

    def _continue(self) -> None:
        self._listen()
        self._accept()

    def _accept(self) -> None:
        """Accept a connection, unless another worker was faster."""
        try:
            connection, _ = self.socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError as problem:
            log.error("no connection can be accepted: %s", problem)
            self._wait(_RETRY_SECONDS)
            return
        connection.setblocking(False)
        task = self._loop.create_task(
            self._loop.connect_accepted_socket(self._make_protocol, connection)
        )
        self._accepted.add(task)
        task.add_done_callback(self._accepted.discard)
        self._publish()


class CountedSet(set[Any]):
    """A set that reports changes."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        super().__init__()
        self._on_change = on_change

    def add(self, element: Any) -> None:
        super().add(element)
        self._on_change()

    def discard(self, element: Any) -> None:
        super().discard(element)
        self._on_change()
