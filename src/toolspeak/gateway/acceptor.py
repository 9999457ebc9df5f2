"""Accepts connections, one in each turn of the event loop.

Event loops accept all waiting connections at once. So one of several workers would get a whole
burst, and connections for which there is no file handle would be closed. Here, other workers and
requests in progress have their turns in between, and connections without a handle wait in the queue
of the listening socket.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from time import monotonic
from typing import Any

log = logging.getLogger("toolspeak.gateway")
_RETRY_SECONDS = 0.1
"""The time until the next attempt if the system has no resources for a connection."""
_LOG_SECONDS = 60.0
"""The time between two log lines about that."""


class ConnectionAcceptor:
    """Accepts the connections of a listening socket."""

    def __init__(
        self, listener: socket.socket, make_protocol: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._listener = listener
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[Any]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._logged_at = -_LOG_SECONDS

    def start(self) -> None:
        """Accept connections until `stop` is called."""
        self._listener.setblocking(False)
        self._listen()

    def stop(self) -> None:
        """Accept no more connections."""
        self._loop.remove_reader(self._listener)
        if self._pause:
            self._pause.cancel()

    def _listen(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            # Another worker was faster, or the client has gone.
            return
        except OSError as problem:
            if (now := monotonic()) - self._logged_at > _LOG_SECONDS:
                self._logged_at = now
                log.error("new connections cannot be accepted yet: %s", problem)
            self._loop.remove_reader(self._listener)
            self._pause = self._loop.call_later(_RETRY_SECONDS, self._listen)
            return
        connection.setblocking(False)
        task = self._loop.create_task(
            self._loop.connect_accepted_socket(self._make_protocol, connection)
        )
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
