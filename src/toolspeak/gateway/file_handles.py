"""The file handles of this process: their limit, and how many of them are left.

Every connection takes one. Without any, connections are reset and files cannot be read, so a few
are kept in reserve, and requests are refused before those are used.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import resource
from collections.abc import Callable
from time import monotonic

from ..upstream.http_pool import NO_HANDLES

log = logging.getLogger("toolspeak.gateway")
RESERVE = 64
"""Handles for connections whose requests are refused, for files, and for the store."""
_EPISODE = 60.0
_MAX_SKIPPED = 8


def raise_handle_limit() -> None:
    """Allow this process as many file handles as the system lets it have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Some systems allow fewer than they say.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class FileHandles:
    """Knows whether a request can have the handles that it needs."""

    def __init__(self, count_missing: Callable[[], int]) -> None:
        self._count_missing = count_missing
        """Returns how many handles the requests being served still need."""
        self._logged_at = -_EPISODE
        self._skipped = 0
        """Requests that are not checked, because there were plenty of handles."""

    def are_scarce(self) -> bool:
        """Return True if there are not enough handles for another request; log it once a minute.

        The system gives out the lowest free number, which is about the number of those in use.
        """
        if self._skipped:
            self._skipped -= 1
            return False
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            lowest = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 0)
            os.close(lowest)
        except OSError as problem:
            lowest = limit if problem.errno in NO_HANDLES else 0
        free = limit - lowest - self._count_missing()
        is_scarce = free < RESERVE
        self._skipped = _MAX_SKIPPED if free > 8 * RESERVE else 0
        if is_scarce and (now := monotonic()) - self._logged_at > _EPISODE:
            self._logged_at = now
            message = "%d of %d file handles are in use, so requests are refused; "
            message += "start the gateway with a higher `ulimit -n`"
            log.error(message, lowest, limit)
        return is_scarce
