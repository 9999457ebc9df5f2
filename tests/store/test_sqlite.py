"""The store in a SQLite file: shared, bounded, and working with a locked, full or damaged file."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.store.test_store import Clock, extend_timeout, run, run_every_operation
from toolspeak.config.settings import StoreLimits
from toolspeak.errors import UsageError
from toolspeak.store.base import Store, open_store
from toolspeak.store.sqlite import Database, SqliteStore
from toolspeak.store.temporary import TemporaryDatabase

EVERYTHING = [b"1", [b"1"], {"n": 1.0}]
NOTHING = [None, [], {}]
WRITER = """
import asyncio, os, sys
from toolspeak.store.base import open_store

async def main():
    store = open_store("sqlite:" + sys.argv[1])
    for number in range(int(sys.argv[2])):
        await store.put(f"{number % 100}", bytes(5000), 60)
        await store.increment("c", {"n": 1}, writer=str(os.getpid()), batch=number)
        while store.last_error is not None:
            # A busy machine may be too slow just once; the same batch is added once.
            await asyncio.sleep(0.1)
            await store.increment("c", {"n": 1}, writer=str(os.getpid()), batch=number)
        if number == 0:
            print("started", flush=True)
    await store.close()

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def start_writer(path: Path, rounds: int) -> subprocess.Popen[str]:
    """Start another process that writes to the file, and wait until it does."""
    command = [sys.executable, "-c", WRITER, str(path), str(rounds)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout
    assert writer.stdout.readline() == "started\n"
    return writer


def count_rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as sql:
        return sql.execute("SELECT COUNT(*) FROM entries").fetchone()[0]


def outage_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "toolspeak.store"]


# Several processes.


def test_two_processes_on_one_file_share_their_entries(path: Path) -> None:
    writers = [start_writer(path, 150) for _ in range(2)]
    for writer in writers:
        with writer:
            assert writer.wait(60) == 0

    async def test(store: Store) -> None:
        assert await store.read_counters("c") == {"n": 300.0}
        assert await store.get("99") == bytes(5000)

    run(test, SqliteStore(path))


def test_file_survives_a_process_that_is_killed_while_it_writes(path: Path) -> None:
    for _ in range(3):
        with start_writer(path, 10**9) as writer:
            writer.send_signal(signal.SIGKILL)

    async def test(store: Store) -> None:
        assert (await store.read_counters("c"))["n"] >= 3
        assert await store.get("0") == bytes(5000)
        await store.put("a", b"1", 60)
        assert store.error_count == 0

    run(test, SqliteStore(path))
    with closing(sqlite3.connect(path)) as sql:
        assert sql.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_files_of_the_store_are_private(path: Path) -> None:
    async def test(store: Store) -> None:
        await run_every_operation(store)
        assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}

    run(test, open_store(f"sqlite:{path}"))


def test_open_store_in_a_missing_folder_raises(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist; create it first"):
        open_store(f"sqlite:{tmp_path}/missing/store.db")


def test_data_in_the_file_is_kept_when_the_store_is_closed(path: Path) -> None:
    async def put(store: Store) -> None:
        await store.put("a", b"1", 60)

    async def read(store: Store) -> None:
        assert await store.get("a") == b"1"

    run(put, SqliteStore(path))
    run(read, SqliteStore(path))


# Bounds.


@pytest.mark.parametrize("size", [100, 3000, 200_000])
def test_file_stays_within_its_limit_and_keeps_the_newest_entries(path: Path, size: int) -> None:
    limits = StoreLimits(bytes=2**20)

    async def test(store: Store) -> None:
        count = 4 * 2**20 // max(size, 500)
        for number in range(count):
            await store.put(f"{number}", bytes(size), 60)
        assert store.error_count == 0
        assert await store.get(f"{count - 1}") == bytes(size)
        assert await store.get(f"{count - 2}") == bytes(size)
        assert await store.get("0") is None

    run(test, SqliteStore(path, limits))
    # While a value is written, it is in the file in addition to those that it replaces.
    assert path.stat().st_size <= limits.bytes + size + 64 * 1024


def test_number_of_entries_stays_within_its_limit(path: Path) -> None:
    async def test(store: Store) -> None:
        for number in range(105):
            await store.put(f"{number}", b"1", 60)
        assert await store.get("104") == b"1"
        assert await store.get("0") is None
        # The limit is checked after so many writes.
        assert count_rows(path) <= 20

    run(test, SqliteStore(path, StoreLimits(entries=10)))


def test_expired_entries_are_removed_from_the_file(path: Path) -> None:
    clock = Clock()
    database = Database(path, StoreLimits(), clock)
    database.run([("put_many", ({"old": b"1"}, 5.0)), ("put_many", ({"new": b"2"}, 60.0))])
    clock.time += 5
    assert database.run([("get", ("old",)), ("get", ("new",))]) == [None, b"2"]
    assert count_rows(path) == 2
    database.run([("expire", ())])
    assert count_rows(path) == 1
    database.close()


def test_log_stays_small_when_large_values_are_written_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend_timeout(monkeypatch)

    async def test(store: Store) -> None:
        value = bytes(4 * 2**20)
        await asyncio.gather(*(store.put(f"{number}", value, 60) for number in range(12)))
        assert store.last_error is None
        assert Path(f"{path}-wal").stat().st_size <= 24 * 2**20

    run(test, SqliteStore(path))


# Files that cannot be used.


async def wait_for_value(store: Store, clock: Clock, value: bytes) -> None:
    """Wait until the store returns a value; a busy machine may be too slow at first."""
    async with asyncio.timeout(60):
        while await store.get("a") != value:
            clock.time += 1


def test_locked_file_fails_writes_until_it_is_unlocked(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()

    async def test(store: Store) -> None:
        await store.put("a", b"1", 60)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while True:
                    await asyncio.sleep(0.001)
                    ticks += 1

            ticking = asyncio.create_task(tick())
            await store.put("a", b"2", 60)
            ticking.cancel()
            assert ticks > 3, "the event loop waits for the lock"
            assert store.last_error
            assert not store.is_available
            await wait_for_value(store, clock, b"1")
            assert not store.is_available, "writes still fail"
            await store.put("a", b"2", 60)
            other.execute("ROLLBACK")
        while not store.is_available:
            clock.time += 1
            await store.put("a", b"3", 60)
        await wait_for_value(store, clock, b"3")
        assert store.is_available

    run(test, SqliteStore(path, now=clock))
    start, end = outage_lines(caplog)
    assert start.startswith("the store is unavailable: ")
    assert end.startswith("the store is available again after ")


@contextmanager
def limit_file_size(size: int) -> Generator[None, None, None]:
    """Let writes to files beyond this size fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_full_disk_fails_writes_until_there_is_space(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()

    async def test(store: Store) -> None:
        await store.put("a", b"1", 60)
        with limit_file_size(100_000):
            for _ in range(5):
                await store.put("b", bytes(300_000), 60)
                clock.time += 1
                assert await store.get("a") == b"1"
                assert not store.is_available
        clock.time += 1
        await store.put("b", bytes(300_000), 60)
        assert await store.get("b") == bytes(300_000)
        assert store.is_available

    caplog.set_level(logging.INFO)
    run(test, SqliteStore(path, now=clock))
    assert len(outage_lines(caplog)) == 2


def test_full_database_still_returns_what_it_holds(path: Path) -> None:
    database = Database(path, StoreLimits())
    database.run([("put_many", ({"a": b"1"}, 60.0))])
    connection = database._connection  # pyright: ignore[reportPrivateUsage]
    assert connection
    connection.execute("PRAGMA max_page_count = 10")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        database.run([("put_many", ({"b": bytes(300_000)}, 60.0))])
    assert database.run([("get", ("a",)), ("get", ("b",))]) == [b"1", None]
    database.close()


@pytest.mark.parametrize("offset", [0, 4096], ids=["header", "content"])
def test_damaged_file_is_moved_away_and_replaced(
    path: Path, offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()

    async def fill(store: Store) -> None:
        for number in range(200):
            await store.put(f"{number}", bytes(1000), 60)

    async def test(store: Store) -> None:
        # Two processes notice the damage.
        others = [SqliteStore(path, now=clock) for _ in range(2)]
        for each in (store, *others):
            await each.put("a", b"1", 60)
            await each.increment("c", {"n": 1})
        clock.time += 1
        for each in (store, *others):
            await each.put("a", b"2", 60)
            assert each.is_available
        for each in (store, *others):
            assert await each.get("a") == b"2"
            await each.close()

    run(fill, SqliteStore(path))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xff" * (size - offset))
    run(test, SqliteStore(path, now=clock))
    assert path.with_name("store.db.damaged").stat().st_size == size
    assert count_rows(path) >= 1
    assert "available again" in outage_lines(caplog)[-1]


def test_database_of_another_program_is_not_changed(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE photos (name TEXT)")
        other.commit()
    content = path.read_bytes()

    async def test(store: Store) -> None:
        assert await run_every_operation(store) == NOTHING
        assert "a database of another program" in str(store.last_error)

    run(test, SqliteStore(path))
    assert path.read_bytes() == content
    assert [*path.parent.iterdir()] == [path]


def test_deleted_file_is_created_again(path: Path) -> None:
    async def test(store: Store) -> None:
        assert await run_every_operation(store) == EVERYTHING
        for file in path.parent.iterdir():
            file.unlink()
        assert await run_every_operation(store) == EVERYTHING
        assert path.exists()

    run(test, SqliteStore(path))


def test_file_of_another_version_is_emptied(path: Path) -> None:
    async def test(store: Store) -> None:
        assert await run_every_operation(store) == EVERYTHING

    run(test, SqliteStore(path))
    with closing(sqlite3.connect(path)) as sql:
        sql.execute("PRAGMA user_version = 99")
    run(test, SqliteStore(path))


# The file of a gateway with several workers.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def age(folder: Path) -> None:
    an_hour_ago = time.time() - 3600
    os.utime(folder, (an_hour_ago, an_hour_ago))


def test_temporary_database_is_private_and_removed(folder: Path) -> None:
    database = TemporaryDatabase()
    assert database.path.parent.stat().st_mode & 0o777 == 0o700
    run(lambda store: store.put("a", b"1", 60), SqliteStore(database.path))
    assert database.path.stat().st_mode & 0o777 == 0o600
    database.remove()
    assert [*folder.iterdir()] == []


def test_stale_folders_are_removed_and_others_stay(folder: Path) -> None:
    used = TemporaryDatabase()
    stale, young, linked = (folder / f"toolspeak-store-{name}" for name in "abc")
    for each in (stale, young, folder / "other"):
        each.mkdir()
        (each / "store.sqlite").touch()
    linked.symlink_to(folder / "other")
    for each in (stale, used.path.parent, folder / "other"):
        age(each)
    new = TemporaryDatabase()
    left = {used.path.parent, young, linked, folder / "other", new.path.parent}
    assert {*folder.iterdir()} == left
    assert (folder / "other" / "store.sqlite").exists()
    used.remove()
    new.remove()


def test_lock_of_a_temporary_folder_ends_with_its_process(folder: Path) -> None:
    code = "from toolspeak.store.temporary import TemporaryDatabase; database = TemporaryDatabase()"
    command = [sys.executable, "-c", f"{code}; print(database.path, flush=True); input()"]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout
        used = Path(process.stdout.readline().strip()).parent
        descriptor = os.open(used, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        process.kill()
    age(used)
    new = TemporaryDatabase()
    assert [*folder.iterdir()] == [new.path.parent]
    new.remove()
