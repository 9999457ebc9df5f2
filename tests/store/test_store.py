"""The stores: all behave alike, and survive a Redis server that stops at any time."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolspeak.config.settings import StoreLimits
from toolspeak.errors import UsageError
from toolspeak.store.base import (
    ENTRY_BYTES,
    PART_BYTES,
    MemoryStore,
    Store,
    finite_amounts,
    open_store,
)
from toolspeak.store.external import ExternalStore
from toolspeak.store.sqlite import SqliteStore

BINARY = shutil.which("redis-server")
needs_package = pytest.mark.skipif(
    find_spec("redis") is None, reason="the package redis is not installed"
)
REDIS_MARKS = (
    pytest.mark.redis,
    pytest.mark.skipif(
        find_spec("redis") is None or BINARY is None,
        reason="the package redis or the program redis-server is not installed",
    ),
)
Test = TypeVar("Test", bound=Callable[..., None])


def needs_redis(test: Test) -> Test:
    for mark in REDIS_MARKS:
        test = mark(test)
    return test


class Server:
    """A redis-server of these tests, whose URL stays the same when it is restarted."""

    def __init__(self, folder: Path, *options: str, port: int = 0) -> None:
        self._path = folder / "redis.sock"
        self._port = port
        self._options = ["--port", str(port), "--unixsocket", str(self._path), *options]
        self._options += ["--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"redis://127.0.0.1:{port}" if port else f"unix://{self._path}"

    def start(self) -> None:
        assert BINARY is not None
        self._process = subprocess.Popen([BINARY, *self._options], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not self._answers():
            assert time.monotonic() < deadline, "redis-server does not start"
            time.sleep(0.01)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _answers(self) -> bool:
        family = socket.AF_INET if self._port else socket.AF_UNIX
        address = ("127.0.0.1", self._port) if self._port else str(self._path)
        with socket.socket(family) as client:
            return client.connect_ex(address) == 0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture
def start_server() -> Iterator[Callable[..., Server]]:
    """Start servers, each in a temporary folder whose path is short enough for a socket."""
    folders: list[Path] = []
    servers: list[Server] = []

    def start(*options: str, port: int = 0) -> Server:
        folders.append(Path(tempfile.mkdtemp(prefix="ts")))
        servers.append(Server(folders[-1], *options, port=port))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.kill()
    for folder in folders:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def shared() -> Iterator[Server]:
    """One server for all tests that do not stop it."""
    with tempfile.TemporaryDirectory(prefix="ts") as folder:
        server = Server(Path(folder))
        server.start()
        yield server
        server.kill()


def redis_store(url: str, now: Callable[[], float] = time.monotonic) -> Store:
    from toolspeak.store.redis import RedisStore

    return RedisStore(url, now=now)


def open_plain_client(url: str) -> Any:
    """Return a client that sees all keys."""
    from redis.asyncio import Redis

    return Redis.from_url(url)


def run(test: Callable[[Any], Awaitable[None]], store: Store) -> None:
    async def whole() -> None:
        try:
            await test(store)
        finally:
            await store.close()

    asyncio.run(whole())


async def flush(url: str) -> None:
    async with open_plain_client(url) as client:
        await client.flushall()


LIMITS = StoreLimits(value_bytes=16 * 2**20)


@pytest.fixture(params=["memory", "sqlite", pytest.param("redis", marks=REDIS_MARKS)])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    extend_timeout(monkeypatch)
    return open_store(make_setting(request, tmp_path), LIMITS)


def make_setting(request: pytest.FixtureRequest, folder: Path) -> str:
    """Return the setting for an empty store of the kind that a fixture is for."""
    if request.param == "redis":
        url = request.getfixturevalue("shared").url
        asyncio.run(flush(url))
        return url
    return "memory" if request.param == "memory" else f"sqlite:{folder / 'store.db'}"


def extend_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let operations succeed on a busy machine, too."""
    monkeypatch.setattr(ExternalStore, "timeout", 60.0)


# Operations in all stores.


async def value_is_returned(store: Store) -> None:
    assert await store.get("a") is None
    await store.put("a", b"\x00\xff\r\n", 60)
    await store.put("empty", b"", 60)
    assert await store.get("a") == b"\x00\xff\r\n"
    assert await store.get("empty") == b""
    await store.put("a", b"new", 60)
    assert await store.get("a") == b"new"


async def deleted_value_is_missing(store: Store) -> None:
    await store.put("a", b"1", 60)
    await store.delete("a")
    await store.delete("never there")
    assert await store.get("a") is None


async def wait_until_expired(read: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(60):
        while await read():
            await asyncio.sleep(0.02)


async def value_expires(store: Store) -> None:
    await store.put("short", b"1", 1)
    await store.put("long", b"1", 60)
    assert await store.get("short") == b"1"
    await wait_until_expired(lambda: store.get("short"))
    assert await store.get("long") == b"1"


async def value_put_again_gets_a_new_lifetime(store: Store) -> None:
    await store.put("a", b"1", 0.1)
    await store.put("a", b"2", 60)
    await asyncio.sleep(0.2)
    assert await store.get("a") == b"2"


async def list_keeps_the_newest_items(store: Store) -> None:
    assert await store.list_items("a") == []
    for value in (b"1", b"2", b"3", b""):
        await store.push("a", value, max_items=3, seconds=60)
    assert await store.list_items("a") == [b"", b"3", b"2"]
    await store.push("a", b"5", max_items=1, seconds=60)
    assert await store.list_items("a") == [b"5"]


async def list_expires_after_its_last_push(store: Store) -> None:
    await store.push("long", b"1", max_items=9, seconds=1)
    await store.push("long", b"2", max_items=9, seconds=60)
    await store.push("short", b"1", max_items=9, seconds=60)
    await store.push("short", b"2", max_items=9, seconds=1)
    await wait_until_expired(lambda: store.list_items("short"))
    await asyncio.sleep(0.1)
    assert await store.list_items("long") == [b"2", b"1"]
    await store.push("short", b"3", max_items=9, seconds=60)
    assert await store.list_items("short") == [b"3"]


async def counters_are_added(store: Store) -> None:
    assert await store.read_counters("a") == {}
    await store.increment("a", {"requests": 1, "seconds": 0.25})
    await store.increment("a", {"requests": 2, "seconds": -0.5, "größe 😀": 1e18})
    await store.increment("a", {})
    assert await store.read_counters("a") == {"requests": 3.0, "seconds": -0.25, "größe 😀": 1e18}
    await store.delete("a")
    assert await store.read_counters("a") == {}


async def infinite_amounts_are_ignored(store: Store) -> None:
    await store.increment("a", {"requests": 1, "seconds": float("inf"), "tokens": float("nan")})
    assert await store.read_counters("a") == {"requests": 1.0}


async def batch_sent_twice_is_added_once(store: Store) -> None:
    for batch in (1, 1, 2, 2):
        await store.increment("a", {"n": 1}, writer="one", batch=batch)
        await store.increment("a", {"n": 10}, writer="other", batch=batch)
    await store.increment("a", {"n": 100})
    await store.increment("a", {"n": 100})
    assert await store.read_counters("a") == {"n": 222.0}


async def thousands_of_counters_are_added(store: Store) -> None:
    await store.increment("a", {f"counter {number}": number for number in range(1, 3001)})
    assert sum((await store.read_counters("a")).values()) == 3000 * 3001 / 2


async def operation_on_another_kind_is_ignored(store: Store) -> None:
    await store.put("value", b"1", 60)
    await store.push("list", b"1", max_items=9, seconds=60)
    await store.increment("counters", {"n": 1})
    assert (await store.list_items("value"), await store.read_counters("value")) == ([], {})
    assert (await store.get("list"), await store.read_counters("list")) == (None, {})
    assert (await store.get("counters"), await store.list_items("counters")) == (None, [])
    await store.push("value", b"2", max_items=9, seconds=60)
    await store.increment("list", {"n": 1})
    await store.push("counters", b"2", max_items=9, seconds=60)
    assert await store.get("value") == b"1"
    assert await store.list_items("list") == [b"1"]
    assert await store.read_counters("counters") == {"n": 1.0}
    await store.put("list", b"2", 60)
    assert await store.get("list") == b"2"


async def any_text_can_be_a_key(store: Store) -> None:
    keys = ["", " ", "a b\r\n", "é", "😀", "\ud800", "a" * 5000, "*", "toolspeak:a"]
    for number, key in enumerate(keys):
        await store.put(key, b"%d" % number, 60)
    assert [await store.get(key) for key in keys] == [b"%d" % n for n in range(len(keys))]


async def large_value_is_returned(store: Store) -> None:
    value = bytes(range(256)) * 40_000
    await store.put("a", value, 60)
    await store.push("b", value, max_items=2, seconds=60)
    assert await store.get("a") == value
    assert await store.list_items("b") == [value]


async def concurrent_operations_all_succeed(store: Store) -> None:
    await asyncio.gather(*(store.put(f"{n}", b"%d" % n, 60) for n in range(60)))
    await asyncio.gather(*(store.increment("a", {"n": 1}) for _ in range(60)))
    found = await asyncio.gather(*(store.get(f"{n}") for n in range(60)))
    assert found == [b"%d" % n for n in range(60)]
    assert await store.read_counters("a") == {"n": 60.0}
    assert store.last_error is None


async def ping_succeeds(store: Store) -> None:
    assert await store.ping() is True
    assert (store.last_error, store.error_count) == (None, 0)


async def value_over_the_limit_is_not_stored(store: Store) -> None:
    problems: list[str] = []
    store.on_problem = problems.append
    large = bytes(LIMITS.value_bytes + 1)
    await store.put("a", b"old", 60)
    await store.put_many({"a": large, "b": b"small"}, 60)
    assert await store.get("a") is None, "the old value would be wrong"
    assert await store.get("b") == b"small"
    await store.push("c", b"1", max_items=9, seconds=60)
    await store.push("c", large, max_items=9, seconds=60)
    assert await store.list_items("c") == [b"1"]
    assert problems == ["too-large"] * 2
    await store.put("d", bytes(LIMITS.value_bytes), 60)
    assert await store.get("d") == bytes(LIMITS.value_bytes)


BEHAVIOURS = [
    value_is_returned,
    deleted_value_is_missing,
    value_expires,
    value_put_again_gets_a_new_lifetime,
    list_keeps_the_newest_items,
    list_expires_after_its_last_push,
    counters_are_added,
    infinite_amounts_are_ignored,
    batch_sent_twice_is_added_once,
    thousands_of_counters_are_added,
    operation_on_another_kind_is_ignored,
    any_text_can_be_a_key,
    large_value_is_returned,
    concurrent_operations_all_succeed,
    ping_succeeds,
    value_over_the_limit_is_not_stored,
]


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda behaviour: behaviour.__name__)
def test_operation_in_any_store_behaves_as_specified(
    store: Store, behaviour: Callable[[Store], Awaitable[None]]
) -> None:
    run(behaviour, store)


# Random operations: on a simple model of the bounds, and on both stores.

Operation = tuple[str, tuple[Any, ...], dict[str, Any]]
KEYS = st.sampled_from(["a", "é", "e" * 40])
VALUES = st.sampled_from([0, 1, 100, 300, 700]).map(bytes)
NUMBERS = st.integers(-8, 8).map(lambda eighths: eighths / 8)


def operations(seconds: st.SearchStrategy[float]) -> st.SearchStrategy[list[Operation]]:
    def operation(
        name: str, *arguments: st.SearchStrategy[Any], **named: st.SearchStrategy[Any]
    ) -> st.SearchStrategy[Operation]:
        return st.tuples(st.just(name), st.tuples(*arguments), st.fixed_dictionaries(named))

    sums = st.dictionaries(st.sampled_from(["n", "m", "größe"]), NUMBERS)
    reads = [operation(name, KEYS) for name in ("get", "list_items", "read_counters", "delete")]
    put = operation("put", KEYS, VALUES, seconds)
    push = operation("push", KEYS, VALUES, max_items=st.integers(1, 3), seconds=seconds)
    return st.lists(st.one_of(put, push, operation("increment", KEYS, sums), *reads), max_size=40)


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class ReferenceStore:
    """A simple and slow `MemoryStore`."""

    def __init__(self, max_bytes: int, now: Clock) -> None:
        self.max_bytes = max_bytes
        self.now = now
        self.entries: list[tuple[str, Any, float]] = []

    def size(self) -> int:
        return sum(self.size_of(key, content) for key, content, _ in self.entries)

    def size_of(self, key: str, content: Any) -> int:
        base = len(key.encode()) + ENTRY_BYTES
        if isinstance(content, bytes):
            return base + len(content)
        parts = [part.encode() if isinstance(part, str) else part for part in content]
        return base + sum(len(part) + PART_BYTES for part in parts)

    def find(self, key: str) -> Any:
        for entry in [entry for entry in self.entries if entry[0] == key]:
            self.entries.remove(entry)
            if entry[2] > self.now():
                self.entries.append(entry)
                return entry[1]
        return None

    def keep(self, key: str, content: Any, deadline: float) -> None:
        self.delete(key)
        if self.size_of(key, content) <= self.max_bytes:
            self.entries.append((key, content, deadline))
        while self.size() > self.max_bytes:
            del self.entries[0]

    def get(self, key: str) -> bytes | None:
        found = self.find(key)
        return found if isinstance(found, bytes) else None

    def put(self, key: str, value: bytes, seconds: float) -> None:
        self.keep(key, value, self.now() + seconds)

    def delete(self, key: str) -> None:
        self.entries = [entry for entry in self.entries if entry[0] != key]

    def push(self, key: str, value: bytes, *, max_items: int, seconds: float) -> None:
        found = self.find(key)
        if found is None or isinstance(found, list):
            self.keep(key, [value, *(found or [])][:max_items], self.now() + seconds)

    def list_items(self, key: str) -> list[bytes]:
        found = self.find(key)
        return found if isinstance(found, list) else []

    def increment(self, key: str, amounts: dict[str, float]) -> None:
        found = self.find(key)
        if isinstance(found, dict) or (found is None and amounts):
            sums = Counter(found or {})
            sums.update(amounts)
            self.keep(key, dict(sums), float("inf"))

    def read_counters(self, key: str) -> dict[str, float]:
        found = self.find(key)
        return found if isinstance(found, dict) else {}


@given(
    st.integers(300, 2500),
    operations(st.sampled_from([0.0, 5.0, 60.0])),
    st.lists(st.sampled_from([0.0, 0.0, 3.0]), min_size=40, max_size=40),
)
@settings(max_examples=400)
def test_memory_store_of_any_size_behaves_like_its_model(
    max_bytes: int, operations: list[Operation], pauses: list[float]
) -> None:
    clock = Clock()
    model = ReferenceStore(max_bytes, clock)

    async def compare(store: MemoryStore) -> None:
        for (name, arguments, named), seconds in zip(operations, pauses, strict=False):
            clock.time += seconds
            expected = getattr(model, name)(*arguments, **named)
            assert await getattr(store, name)(*arguments, **named) == expected
            assert store.size == model.size() <= max_bytes

    run(compare, MemoryStore(StoreLimits(bytes=max_bytes), clock))


async def compare_with_memory(store: Store, operations: list[Operation]) -> None:
    memory = MemoryStore()
    for name, arguments, named in operations:
        expected = await getattr(memory, name)(*arguments, **named)
        assert await getattr(store, name)(*arguments, **named) == expected, name


@needs_redis
@given(operations(st.just(60.0)))
@settings(max_examples=60)
def test_redis_store_behaves_like_the_memory_store(
    shared: Server, operations: list[Operation]
) -> None:
    asyncio.run(flush(shared.url))
    run(lambda store: compare_with_memory(store, operations), open_store(shared.url))


@given(operations(st.just(60.0)))
@settings(max_examples=60)
def test_sqlite_store_behaves_like_the_memory_store(operations: list[Operation]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "store.db")
        run(lambda store: compare_with_memory(store, operations), store)


# The bounds of the memory.


def make_value(size: int) -> bytes:
    """Return a value that makes an entry of this size, under a key of one letter."""
    return bytes(size - ENTRY_BYTES - 1)


def test_full_memory_evicts_the_least_recently_used_entry() -> None:
    async def test(store: Store) -> None:
        for key in "abc":
            await store.put(key, make_value(1000), 60)
        await store.get("a")
        await store.put("d", make_value(1000), 60)
        assert [await store.get(key) is not None for key in "abcd"] == [True, False, True, True]

    run(test, MemoryStore(StoreLimits(bytes=3000)))


def test_entry_larger_than_the_limit_is_dropped_and_evicts_nothing() -> None:
    async def test(store: Store) -> None:
        await store.put("a", b"1", 60)
        await store.put("b", b"1", 60)
        await store.put("b", make_value(3001), 60)
        await store.push("c", make_value(3001), max_items=9, seconds=60)
        await store.increment("d", {"n" * 3001: 1})
        assert await store.get("a") == b"1"
        assert await store.get("b") is None, "the old value would be wrong"
        assert (await store.list_items("c"), await store.read_counters("d")) == ([], {})
        await store.put("e", make_value(3000), 60)
        assert await store.get("e") is not None

    run(test, MemoryStore(StoreLimits(bytes=3000)))


def test_expired_entries_are_evicted_when_read() -> None:
    clock = Clock()

    async def test(store: Store) -> None:
        await store.put("old", b"1", 5)
        await store.put("a", make_value(1000), 60)
        clock.time += 5
        assert await store.get("old") is None
        await store.put("b", make_value(1000), 60)
        assert await store.get("a") is not None

    run(test, MemoryStore(StoreLimits(bytes=2000), clock))


# The address.


@pytest.mark.parametrize(
    "setting",
    [
        *("", "Memory", "redis", "memory://", "http://s3cret@host", "redis:s3cret@host", "s3cret"),
        *("sqlite", "sqlite:", "sqlite://s3cret.db", "sqlite:///s3cret.db"),
    ],
)
def test_open_store_with_an_unknown_scheme_raises(setting: str) -> None:
    with pytest.raises(
        UsageError, match=r"`memory`, sqlite:PATH, redis://…, rediss://… or unix://…"
    ) as caught:
        open_store(setting)
    assert "s3cret" not in str(caught.value)


@needs_package
@pytest.mark.parametrize(
    "url",
    [
        "redis://user:s3cret@host:port",
        "redis://:s3cret/more@host:6379",
        "redis://:12#s3cret@host",
        "redis://s3cret:12?more@host",
        "redis://:s3cret@[::1",
        "redis://:s3cret@host?unknown=s3cret",
        "redis://:s3cret@host?db=s3cret",
        "redis://:s3cret@host:99999",
    ],
)
def test_error_about_an_invalid_url_does_not_contain_it(url: str) -> None:
    with pytest.raises(UsageError, match="percent-encoded") as caught:
        open_store(url)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_open_store_memory_returns_a_memory_store() -> None:
    assert isinstance(open_store("memory"), MemoryStore)


def test_open_store_without_the_redis_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "toolspeak.store.redis", raising=False)
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(UsageError, match=r"toolspeak\[gateway\]"):
        open_store("redis://localhost")


def test_increment_by_infinite_amounts_is_ignored() -> None:
    assert finite_amounts({"a": 1, "b": float("-inf"), "c": float("nan")}) == {"a": 1}


# Redis servers that stop, hang and restart.


async def measure_seconds(work: Coroutine[Any, Any, Any]) -> float:
    start = time.monotonic()
    await work
    return time.monotonic() - start


async def run_every_operation(store: Store) -> list[Any]:
    """Run each operation and return what the reads return; nothing if the store is unreachable."""
    await store.put("k", b"1", 60)
    await store.push("l", b"1", max_items=3, seconds=60)
    await store.increment("c", {"n": 1})
    await store.delete("d")
    return [await store.get("k"), await store.list_items("l"), await store.read_counters("c")]


@needs_redis
def test_two_stores_at_one_server_share_their_entries(shared: Server) -> None:
    async def test(first: Store) -> None:
        await flush(shared.url)
        second = redis_store(shared.url)
        await first.put("a", b"1", 60)
        await first.push("l", b"1", max_items=3, seconds=60)
        await asyncio.gather(*(store.increment("c", {"n": 1}) for store in (first, second) * 20))
        await second.push("l", b"2", max_items=3, seconds=60)
        assert await second.get("a") == b"1"
        assert await first.list_items("l") == [b"2", b"1"]
        assert await first.read_counters("c") == await second.read_counters("c") == {"n": 40.0}
        await second.delete("a")
        assert await first.get("a") is None
        await second.close()

    run(test, redis_store(shared.url))


@needs_redis
def test_keys_in_redis_have_the_prefix_and_expire(shared: Server) -> None:
    async def test(store: Store) -> None:
        await flush(shared.url)
        await run_every_operation(store)
        async with open_plain_client(shared.url) as client:
            left = {key: await client.ttl(key) for key in await client.keys("*")}
        assert left == {b"toolspeak:k": 60, b"toolspeak:l": 60, b"toolspeak:c": -1}

    run(test, redis_store(shared.url))


@needs_redis
@pytest.mark.parametrize("over_tcp", [True, False])
def test_killed_server_is_skipped_until_it_is_back(
    start_server: Callable[..., Server], over_tcp: bool
) -> None:
    server = start_server(port=free_port() if over_tcp else 0)
    clock = Clock()

    async def test(store: Store) -> None:
        assert await run_every_operation(store) == [b"1", [b"1"], {"n": 1.0}]
        server.kill()
        assert await run_every_operation(store) == [None, [], {}]
        assert await run_every_operation(store) == [None, [], {}]
        assert store.error_count == 1, "it tries again at each request"
        assert store.last_error is not None
        assert await store.ping() is False
        assert store.error_count == 2

        server.start()
        clock.time += 1
        assert await run_every_operation(store) == [b"1", [b"1"], {"n": 1.0}]
        assert (store.last_error, store.error_count) == (None, 2)

    run(test, redis_store(server.url, clock))


@needs_redis
def test_outage_is_logged_when_it_starts_and_when_it_ends(
    start_server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    server = start_server()
    clock = Clock()
    problems: list[str] = []

    async def test(store: Store) -> None:
        store.on_problem = problems.append
        await run_every_operation(store)
        server.kill()
        for _ in range(3):
            await run_every_operation(store)
            clock.time += 1
        assert not store.is_available
        server.start()
        await run_every_operation(store)
        assert store.is_available

    run(test, redis_store(server.url, clock))
    start, end = (one.getMessage() for one in caplog.records if one.name == "toolspeak.store")
    assert start.startswith("the store is unavailable: Error")
    assert start.endswith("and those that continue a stored response fail")
    assert end == "the store is available again after 3 s"
    assert Counter(problems) == {"outage": 1, "failed": 3}


@needs_redis
def test_full_redis_fails_writes_and_is_still_read(
    start_server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    server = start_server("--maxmemory", "3mb")

    async def test(store: Store) -> None:
        await store.put("a", b"1", 60)
        for _ in range(3):
            await store.put("b", bytes(3 * 2**20), 60)
            assert "maxmemory" in str(store.last_error)
            assert await store.get("a") == b"1"
        assert not store.is_available
        async with open_plain_client(server.url) as client:
            await client.config_set("maxmemory", "30mb")
        await store.put("b", bytes(3 * 2**20), 60)
        assert store.is_available

    run(test, redis_store(server.url))
    assert len([one for one in caplog.records if one.name == "toolspeak.store"]) == 2


@needs_redis
def test_redis_with_the_documented_settings_stays_within_its_limit(
    start_server: Callable[..., Server],
) -> None:
    server = start_server("--maxmemory", "20mb", "--maxmemory-policy", "volatile-lru")

    async def test(store: Store) -> None:
        await store.increment("metrics", {"n": 1})
        for number in range(40):
            await store.put(f"{number}", bytes(2**20), 60)
            assert store.last_error is None
        assert await store.get("39") == bytes(2**20)
        # Redis only estimates which values were used least recently.
        kept = [await store.get(f"{number}") for number in range(40)]
        assert sum(value is not None for value in kept) < 21
        assert await store.read_counters("metrics") == {"n": 1.0}
        async with open_plain_client(server.url) as client:
            assert (await client.info("memory"))["used_memory"] <= 21 * 2**20

    run(test, redis_store(server.url))


@needs_redis
def test_successful_ping_ends_the_pause(start_server: Callable[..., Server]) -> None:
    server = start_server()

    async def test(store: Store) -> None:
        server.kill()
        assert await store.get("k") is None
        server.start()
        assert await store.ping() is True
        assert await run_every_operation(store) == [b"1", [b"1"], {"n": 1.0}]

    run(test, redis_store(server.url))


@needs_redis
def test_unreachable_server_is_tried_once_in_a_second(start_server: Callable[..., Server]) -> None:
    server = start_server()
    server.kill()
    clock = Clock()

    async def test(store: Store) -> None:
        for seconds in (0, 0.9, 0.2, 0.9, 0.2):
            clock.time += seconds
            await asyncio.gather(*(store.get(f"{n}") for n in range(1 if not seconds else 20)))
        assert store.error_count == 3

    run(test, redis_store(server.url, clock))


@needs_redis
def test_restart_between_two_operations_loses_no_operation(
    start_server: Callable[..., Server],
) -> None:
    server = start_server(port=free_port())

    async def test(store: Store) -> None:
        await asyncio.gather(*(run_every_operation(store) for _ in range(10)))
        server.kill()
        server.start()
        # A moment in which the end of the connections arrives, as between two requests.
        await asyncio.sleep(0.05)
        assert await run_every_operation(store) == [b"1", [b"1"], {"n": 1.0}]
        assert store.error_count == 0

    run(test, redis_store(server.url))


@needs_redis
def test_hanging_server_delays_one_operation_in_a_second(
    start_server: Callable[..., Server],
) -> None:
    server = start_server()
    clock = Clock()

    async def test(store: Store) -> None:
        await store.put("a", b"a", 60)
        await store.put("b", b"b", 60)
        server.send(signal.SIGSTOP)
        reads = asyncio.gather(*(store.get("a") for _ in range(50)))
        assert await measure_seconds(asyncio.wait_for(reads, 20)) > 0.9
        assert reads.result() == [None] * 50
        await run_every_operation(store)
        assert (store.last_error, store.error_count) == ("no response from Redis within 1 s", 50)
        clock.time += 1
        await asyncio.gather(*(store.get("a") for _ in range(50)))
        assert store.error_count == 51
        server.send(signal.SIGCONT)
        clock.time += 1
        assert (await store.get("b"), await store.get("a")) == (b"b", b"a")

    run(test, redis_store(server.url, clock))


@needs_redis
def test_cancelled_read_does_not_answer_the_next_one(start_server: Callable[..., Server]) -> None:
    server = start_server()

    async def test(store: Store) -> None:
        await store.put("a", b"a", 60)
        await store.put("b", b"b", 60)
        for _ in range(40):
            server.send(signal.SIGSTOP)
            read = asyncio.create_task(store.get("a"))
            await asyncio.sleep(0.01)
            read.cancel()
            with pytest.raises(asyncio.CancelledError):
                await read
            server.send(signal.SIGCONT)
            assert await store.get("b") == b"b"
        assert store.error_count == 0

    run(test, redis_store(server.url))


@needs_redis
def test_command_rejected_by_redis_does_not_start_a_pause(
    start_server: Callable[..., Server],
) -> None:
    server = start_server("--maxmemory", "1")
    clock = Clock()

    async def test(store: Store) -> None:
        await store.put("a", b"1", 60)
        assert store.last_error is not None
        assert "maxmemory" in store.last_error
        assert await store.get("a") is None
        assert (store.last_error, store.error_count) == (None, 1)

        server.kill()
        assert await store.get("a") is None
        server.start()
        clock.time += 1
        await store.put("a", b"1", 60)
        assert store.error_count == 3
        assert await store.get("a") is None
        assert store.last_error is None

    run(test, redis_store(server.url, clock))


SECRET = "s3cr@t" * 40
"""Longer than what Redis repeats of a command: a part of it must not appear either."""


def with_secrets(url: str) -> str:
    return url.replace("//", f"//someone:{quote(SECRET)}@", 1)


async def assert_error_has_no_credentials(store: Store) -> None:
    assert await run_every_operation(store) == [None, [], {}]
    assert await store.ping() is False
    assert store.last_error
    assert "s3cr" not in store.last_error
    assert "someone" not in store.last_error


@needs_redis
@pytest.mark.parametrize(
    "options", [[], ["--requirepass", "other"], ["--rename-command", "AUTH", "LOGIN"]]
)
def test_error_never_contains_credentials(
    start_server: Callable[..., Server], options: list[str]
) -> None:
    server = start_server(*options, port=free_port())

    async def test(store: Store) -> None:
        await assert_error_has_no_credentials(store)
        server.kill()
        await assert_error_has_no_credentials(store)

    run(test, redis_store(with_secrets(server.url)))


@needs_package
def test_error_of_a_server_that_repeats_commands_contains_no_credentials() -> None:
    async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.read(10_000)
        writer.write(b"-ERR no idea what this is: " + b" ".join(data.split()) + b"\r\n")
        await writer.drain()
        writer.close()

    async def test() -> None:
        async with await asyncio.start_server(repeat, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            store = redis_store(with_secrets(f"redis://127.0.0.1:{port}"))
            await assert_error_has_no_credentials(store)
            assert "no idea" in str(store.last_error)
            await store.close()

    asyncio.run(test())


@needs_redis
def test_password_in_the_url_opens_the_store(start_server: Callable[..., Server]) -> None:
    server = start_server("--requirepass", "s3cr@t", port=free_port())
    url = server.url.replace("//", "//:s3cr%40t@", 1) + "/3?decode_responses=true"

    async def test(store: Store) -> None:
        assert await run_every_operation(store) == [b"1", [b"1"], {"n": 1.0}]

    run(test, redis_store(url))
