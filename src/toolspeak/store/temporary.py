"""A temporary SQLite file, which the workers of one gateway share."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

from ..errors import UsageError

_FOLDER_PREFIX = "toolspeak-store-"
_STALE_SECONDS = 60.0
"""The age at which a folder without a lock counts as abandoned: a younger one may still get its
lock."""


class TemporaryDatabase:
    """A SQLite file in a private folder, for the workers of one gateway.

    A lock marks the folder as in use. Folders of gateways that were killed are removed when the
    next one starts.
    """

    def __init__(self) -> None:
        _remove_stale_folders()
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX))
            self._lock = _lock_folder(self._folder)
        except OSError as error:
            message = f"the workers' shared temporary file cannot be created: {error}; set TMPDIR "
            message += "to a writable folder, set `store`, or set `server.workers` to 1"
            raise UsageError(message) from None
        self.path = self._folder / "store.sqlite"

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)


def _lock_folder(folder: Path) -> int:
    """Lock a folder until the process ends; raise `BlockingIOError` if another one has."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_stale_folders() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
            if is_own and time.time() - status.st_mtime > _STALE_SECONDS:
                lock = _lock_folder(folder)
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)
