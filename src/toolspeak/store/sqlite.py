"""A store in a SQLite file, which the processes of one machine share.

All SQL runs in one thread per process, which runs the operations that are waiting in one
transaction. The event loop waits for no disk and no lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import msgspec
from msgspec import Struct

from ..config.settings import StoreLimits
from ..errors import UsageError
from .base import DEFAULT_LIMITS, Content, Entries
from .external import TIMEOUT, ExternalStore

_APPLICATION_ID = 0x746F6F6C
_VERSION = 1
_SCHEMA = """
DROP TABLE IF EXISTS entries;
CREATE TABLE entries (
  number INTEGER PRIMARY KEY,
  key BLOB NOT NULL UNIQUE,
  content BLOB NOT NULL,
  deadline REAL NOT NULL
);
CREATE INDEX deadlines ON entries (deadline);
"""
# Each write of an entry gives it the highest number, so the lowest one was written first.
_READ = "SELECT content FROM entries WHERE key = ? AND deadline > ?"
_WRITE = "INSERT OR REPLACE INTO entries (key, content, deadline) VALUES (?, ?, ?)"
_EVICT = "DELETE FROM entries WHERE number IN (SELECT number FROM entries ORDER BY number LIMIT ?)"
_EXPIRE = "DELETE FROM entries WHERE deadline <= ?"

_BUSY_SECONDS = 0.8 * TIMEOUT
"""How long to wait for another process. The operation fails before its timeout."""
_MAX_BATCH = 64
"""Operations in one transaction."""
_TRANSACTION_BYTES = 4 * 2**20
"""A transaction that has written more is committed, so that the write-ahead log stays small."""
_LOG_BYTES = 16 * 2**20
_TIDY_SECONDS = 60.0
_TIDY_WRITES = 256
"""The number of writes after which expired entries, and those above the maximum number, are
removed."""
_WRITES = frozenset({"put_many", "delete", "push", "increment", "expire"})
_REACHABLE = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY})
_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class Database(Entries):
    """The entries of a SQLite file. Used by one thread at a time.

    The entries that were written first are evicted first.
    """

    def __init__(
        self, path: Path, limits: StoreLimits, now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(limits, now)
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)
        """The file that the connection has open."""
        self._page_size = 4096
        self._new_bytes = 0
        """Bytes written in this transaction."""
        self._new_writes = 0
        """Writes since expired entries were removed."""

    def run(self, operations: Sequence[tuple[str, tuple[Any, ...]]]) -> list[Any]:
        """Run operations in a transaction, and return their results."""
        try:
            sql = self._open()
            is_write = any(name in _WRITES for name, _ in operations)
            sql.execute("BEGIN IMMEDIATE" if is_write else "BEGIN")
            results = [getattr(self, name)(*arguments) for name, arguments in operations]
            if self._new_writes >= min(_TIDY_WRITES, self._limits.entries):
                self.expire()
            sql.execute("COMMIT")
        except Exception as error:
            self._recover(error)
            raise
        self._new_bytes = 0
        return results

    def expire(self) -> None:
        """Remove expired entries, and the oldest of too many."""
        self._new_writes = 0
        sql = self._open_connection
        sql.execute(_EXPIRE, (self._now(),))
        (count,) = sql.execute("SELECT COUNT(*) FROM entries").fetchone()
        if count > self._limits.entries:
            sql.execute(_EVICT, (count - self._limits.entries,))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._new_bytes = 0
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    # Entries.

    def _read(self, key: str) -> Content | None:
        row = self._open_connection.execute(_READ, (_encode(key), self._now())).fetchone()
        content: Any = msgspec.msgpack.decode(row[0]) if row else None
        if isinstance(content, dict):
            return {_decode(name): amount for name, amount in content.items()}
        return content

    def _write(self, key: str, content: Content, deadline: float) -> None:
        if isinstance(content, dict):
            data = msgspec.msgpack.encode({_encode(name): by for name, by in content.items()})
        else:
            data = msgspec.msgpack.encode(content)
        sql = self._open_connection
        sql.execute(_WRITE, (_encode(key), data, deadline))
        self._evict(sql)
        self._new_writes += 1
        self._new_bytes += len(data)
        if self._new_bytes > _TRANSACTION_BYTES:
            self._new_bytes = 0
            sql.execute("COMMIT")
            sql.execute("BEGIN IMMEDIATE")

    def delete(self, key: str) -> None:
        self._open_connection.execute("DELETE FROM entries WHERE key = ?", (_encode(key),))

    def _evict(self, sql: sqlite3.Connection) -> None:
        """Remove the oldest entries until the file is small enough, twice as many each time."""
        count = 1
        while self._used_bytes(sql) > self._limits.bytes:
            if not sql.execute(_EVICT, (count,)).rowcount:
                return
            count *= 2

    def _used_bytes(self, sql: sqlite3.Connection) -> int:
        pages, free = (_read_pragma(sql, name) for name in ("page_count", "freelist_count"))
        return (pages - free) * self._page_size

    # The file.

    @property
    def _open_connection(self) -> sqlite3.Connection:
        assert self._connection
        return self._connection

    def _open(self) -> sqlite3.Connection:
        """Return a connection to the file, which another process may have replaced."""
        if self._connection is not None:
            with contextlib.suppress(FileNotFoundError):
                if _identify(self._path) == self._identity:
                    return self._connection
            self.close()
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        self._identity = _identify(self._path)
        sql = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        self._connection = sql
        self._prepare(sql)
        return sql

    def _prepare(self, sql: sqlite3.Connection) -> None:
        self._page_size = _read_pragma(sql, "page_size")
        is_known = _read_pragma(sql, "application_id") == _APPLICATION_ID
        if not is_known and sql.execute("SELECT 1 FROM sqlite_schema").fetchone():
            raise sqlite3.OperationalError(
                f"{self._path} is a database of another program; set `store` to another file"
            )
        _set_log_mode(sql)
        # Data written just before a power failure may be lost.
        sql.execute("PRAGMA synchronous = NORMAL")
        sql.execute("PRAGMA secure_delete = FAST")
        sql.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        if is_known and _read_pragma(sql, "user_version") == _VERSION:
            return
        sql.execute("BEGIN IMMEDIATE")
        # Another process may have been faster.
        if _read_pragma(sql, "user_version") != _VERSION:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                sql.execute(statement)
            sql.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            sql.execute(f"PRAGMA user_version = {_VERSION}")
        sql.execute("COMMIT")

    def _recover(self, error: Exception) -> None:
        """After an error, roll back or reconnect; move a damaged file away."""
        code = _error_code(error)
        # A connection to a read-only file stays read-only, even if the file does not.
        if code == sqlite3.SQLITE_FULL and self._connection is not None:
            self._new_bytes = 0
            with contextlib.suppress(sqlite3.Error):
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                return
        self.close()
        if code in _CORRUPT:
            with contextlib.suppress(OSError):
                self._move_away()

    def _move_away(self) -> None:
        """Rename a damaged file, unless another process has done so."""
        if _identify(self._path) == self._identity:
            os.replace(self._path, f"{self._path}.damaged")
            for suffix in ("-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self._path}{suffix}")


class _Job(Struct, frozen=True, eq=False):
    """An operation, and the future that gets its result."""

    name: str
    arguments: tuple[Any, ...]
    future: asyncio.Future[Any]


class SqliteStore(ExternalStore):
    """A store in a file."""

    errors = (sqlite3.Error, OSError)

    def __init__(
        self,
        path: Path,
        limits: StoreLimits = DEFAULT_LIMITS,
        now: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(limits, now)
        if not path.parent.is_dir():
            raise UsageError(f"`store`: the folder {path.parent} does not exist; create it first")
        self._database = Database(path, limits, wall_clock)
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: Thread | None = None

    async def close(self) -> None:
        if self._thread:
            self._jobs.put(None)
            await asyncio.to_thread(self._thread.join, TIMEOUT)

    async def _execute(self, name: str, *arguments: Any) -> Any:
        if self._thread is None:
            # Not even a disk that hangs can delay the end of the process.
            self._thread = Thread(target=self._work, name="store", daemon=True)
            self._thread.start()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(name, arguments, future))
        return await future

    def _is_reachable(self, error: Exception) -> bool:
        return _error_code(error) in _REACHABLE

    def _describe_error(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"no response from SQLite within {self.timeout:g} s"
        return str(error) or type(error).__name__

    # In the thread.

    def _work(self) -> None:
        """Run jobs until the store is closed."""
        is_closing = False
        while not is_closing:
            jobs: list[_Job | None] = []
            with contextlib.suppress(Empty):
                jobs.append(self._jobs.get(timeout=_TIDY_SECONDS))
                while len(jobs) < _MAX_BATCH:
                    jobs.append(self._jobs.get_nowait())
            is_closing = None in jobs
            if not jobs:
                with contextlib.suppress(*self.errors):
                    self._database.run([("expire", ())])
            elif waiting := [job for job in jobs if job and not job.future.done()]:
                self._run_jobs(waiting)
        self._database.close()

    def _run_jobs(self, jobs: list[_Job]) -> None:
        results: list[Any] = []
        error: Exception | None = None
        try:
            results = self._database.run([(job.name, job.arguments) for job in jobs])
        except Exception as problem:
            error = problem
        with contextlib.suppress(RuntimeError):  # The event loop is closed.
            jobs[0].future.get_loop().call_soon_threadsafe(_resolve, jobs, results, error)


def _resolve(jobs: list[_Job], results: list[Any], error: Exception | None) -> None:
    for index, job in enumerate(jobs):
        if job.future.done():
            continue
        if error is None:
            job.future.set_result(results[index])
        else:
            job.future.set_exception(error)


def _set_log_mode(sql: sqlite3.Connection) -> None:
    """Use a write-ahead log. SQLite does not wait for other processes that do the same."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            sql.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _read_pragma(sql: sqlite3.Connection, name: str) -> int:
    return sql.execute(f"PRAGMA {name}").fetchone()[0]


def _error_code(error: Exception) -> int:
    """Return the primary code of SQLite's error; 0 for other errors."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _identify(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
