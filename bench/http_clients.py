"""Replays hostile upstreams, and measures the cost of a request and of a chunk, for HTTP clients.

python -m bench.http_clients [own] [aiohttp] [pyreqwest]

Each client runs in its own process. The upstreams are those of tests/upstream/hostile_upstreams.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from time import perf_counter, process_time, thread_time
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table
from tests.upstream.hostile_upstreams import (
    CASES,
    CHUNKED,
    ERROR,
    HELLO,
    OK,
    SHORT,
    TIMEOUT,
    Case,
    HostileConnection,
    HostileServer,
    answer,
    answer_endlessly,
    run_hostile_server,
)

Result = Any
_MAX_BODY = 64 * 2**20
_LONG = 20.0
_BIG = 30 * 2**20


class Response(Protocol):
    status: int

    def chunks(self) -> AsyncIterator[bytes]: ...


class Client(Protocol):
    """An HTTP client behind one common, thin interface."""

    def open(
        self, url: str, body: bytes, timeout: float
    ) -> AbstractAsyncContextManager[tuple[int, Callable[[], Any]]]:
        """Send a POST request; yield the status, and a function that reads the next chunk."""
        ...

    async def close(self) -> None: ...


class Own:
    def __init__(self) -> None:
        from toolspeak.upstream.client import UpstreamClient
        from toolspeak.upstream.timers import Ticker

        self._client = UpstreamClient(Ticker())

    @asynccontextmanager
    async def open(
        self, url: str, body: bytes, timeout: float
    ) -> AsyncGenerator[tuple[int, Callable[[], Any]]]:
        from toolspeak.config.settings import UpstreamSettings
        from toolspeak.errors import UpstreamError
        from toolspeak.upstream.catalog import Endpoint

        settings = UpstreamSettings(
            connect_timeout=30, first_byte_timeout=timeout, idle_timeout=timeout, retries=0
        )
        endpoint = Endpoint("up", "openai_chat", url, "", {}, settings)
        try:
            with await self._client.request(endpoint, "/x", body) as response:
                yield response.status, response.read_chunk
        except UpstreamError as problem:
            raise (TimeoutError if problem.failure.status == 504 else OSError)(
                str(problem)
            ) from None

    async def close(self) -> None:
        self._client.close()


class Aiohttp:
    def __init__(self) -> None:
        import aiohttp  # pyright: ignore[reportMissingImports]

        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            headers={"accept-encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    @asynccontextmanager
    async def open(
        self, url: str, body: bytes, timeout: float
    ) -> AsyncGenerator[tuple[int, Callable[[], Any]]]:
        import aiohttp  # pyright: ignore[reportMissingImports]

        try:
            async with asyncio.timeout(timeout):
                response = await self._client.post(url + "/x", data=body, allow_redirects=False)
            async with response:
                if response.headers.get("content-encoding", "gzip") != "gzip":
                    raise OSError("encoded")
                yield response.status, response.content.readany
        except aiohttp.ClientError as problem:
            raise OSError(f"{type(problem).__name__}: {problem}") from None

    async def close(self) -> None:
        await self._client.close()


class Pyreqwest:
    def __init__(self) -> None:
        from pyreqwest.client import ClientBuilder  # pyright: ignore[reportMissingImports]

        builder = ClientBuilder().follow_redirects(False).referer(False).no_proxy()
        builder = builder.gzip(False).brotli(False).zstd(False).deflate(False)
        builder = builder.default_headers({"accept-encoding": "identity"})
        self._client = builder.connect_timeout(timedelta(seconds=30)).build()

    @asynccontextmanager
    async def open(
        self, url: str, body: bytes, timeout: float
    ) -> AsyncGenerator[tuple[int, Callable[[], Any]]]:
        from pyreqwest.exceptions import PyreqwestError  # pyright: ignore[reportMissingImports]

        request = self._client.post(url + "/x").body_bytes(body)
        request = request.streamed_read_buffer_limit(0).build_streamed()
        try:
            async with asyncio.timeout(timeout):
                response = await request.__aenter__()
            try:
                if (response.get_header("content-encoding") or "identity") != "identity":
                    raise OSError("encoded")
                yield response.status, response.body_reader.read_chunk
            finally:
                await request.__aexit__(None, None, None)
        except PyreqwestError as problem:
            raise OSError(f"{type(problem).__name__}: {problem}") from None

    async def close(self) -> None:
        await self._client.close()


CLIENTS: dict[str, Callable[[], Client]] = {
    "own": Own,
    "aiohttp": Aiohttp,
    "pyreqwest": Pyreqwest,
}


async def fetch(client: Client, url: str, body: bytes, timeout: float) -> Result:
    """Return the status and the body, ERROR, or TIMEOUT, under the gateway's limits."""
    try:
        async with client.open(url, body, timeout) as (status, read_chunk):
            parts, size = [], 0
            async with asyncio.timeout(timeout):
                while data := await read_chunk():
                    parts.append(bytes(data))
                    size += len(data)
                    if size > _MAX_BODY:
                        raise OSError("too large")
        return status, b"".join(parts)
    except TimeoutError:
        return TIMEOUT
    except OSError as problem:
        return f"{ERROR}: {problem}"


def is_right(case: Case, result: Result) -> bool:
    return (ERROR if str(result).startswith(ERROR) else result) in case.results


async def watch(watched: dict[str, float]) -> None:
    """Record the longest pause of the event loop, and the largest memory."""
    last = perf_counter()
    while True:
        await asyncio.sleep(0.01)
        now = perf_counter()
        watched["stall"] = max(watched["stall"], now - last - 0.01)
        watched["memory"] = max(watched["memory"], resident())
        last = now


def resident() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


async def replay(client: Client, case: Case) -> tuple[str, ...]:
    """Return a row: whether the result is right, the result, seconds, pause, MB sent, MB grown."""
    timeout = SHORT if TIMEOUT in case.results else _LONG
    watched = {"stall": 0.0, "memory": 0.0}
    watcher = asyncio.create_task(watch(watched))
    before = resident()
    with run_hostile_server(case.behave) as server:
        started = perf_counter()
        result = await fetch(client, server.url, b"x" * case.body_size, timeout)
        seconds = perf_counter() - started
        await asyncio.sleep(0.05)
        is_open = await still_open(server)
        sent = server.sent / 2**20
    watcher.cancel()
    right = "" if is_right(case, result) else "WRONG"
    is_left = "LEFT OPEN" if is_open and str(result).startswith((ERROR, TIMEOUT)) else ""
    return (
        case.name,
        f"{right}{is_left}",
        str(result)[:70],
        f"{seconds:.2f}",
        f"{watched['stall']:.2f}",
        f"{sent:.1f}",
        f"{watched['memory'] - before:.0f}",
    )


async def still_open(server: HostileServer) -> bool:
    for _ in range(40):
        if not server.open_count:
            return False
        await asyncio.sleep(0.05)
    return True


# More than one request.


async def stale_connection(client: Client) -> str:
    """The server closes the idle connection just when the next request arrives."""

    async def behave(connection: HostileConnection) -> None:
        await connection.read_request()
        await connection.send(HELLO)
        await connection.read_request()

    failed = 0
    with run_hostile_server(behave) as server:
        for _ in range(20):
            failed += await fetch(client, server.url, b"{}", _LONG) != (200, b"hello")
    return f"{failed} of 20 requests failed"


async def data_before_a_break(client: Client) -> str:
    """The server sends a whole stream, but closes the connection without the last chunk."""
    received, size = 0, 0
    for _ in range(20):
        with run_hostile_server(answer(CHUNKED + b"5\r\nhello\r\n", then="close")) as server:
            size += 5
            with contextlib.suppress(OSError):
                async with client.open(server.url, b"{}", _LONG) as (_, read_chunk):
                    await asyncio.sleep(0.02)  # The reader is busy.
                    while data := await read_chunk():
                        received += len(data)
    return f"{received} of {size} bytes were read"


async def cancellation(client: Client) -> str:
    with run_hostile_server(answer()) as server:
        task = asyncio.create_task(fetch(client, server.url, b"{}", _LONG))
        while not server.open_count:
            await asyncio.sleep(0.01)
        task.cancel()
        started = perf_counter()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        while server.open_count and perf_counter() < started + 10:
            await asyncio.sleep(0.001)
        return f"closed after {perf_counter() - started:.3f} s"


async def many_streams(client: Client) -> str:
    behave = answer(CHUNKED, *[b"5\r\nhello\r\n"] * 10, b"0\r\n\r\n", pause=0.05)
    before = resident()
    with run_hostile_server(behave) as server:
        started = perf_counter()
        results = await asyncio.gather(*(fetch(client, server.url, b"{}", 60) for _ in range(1000)))
        right = results.count((200, b"hello" * 10))
        seconds, grown = perf_counter() - started, resident() - before
        return f"{right} of 1000 right in {seconds:.1f} s, {grown:.0f} MB"


async def paused_reader(client: Client) -> str:
    before = resident()
    with run_hostile_server(answer_endlessly(OK + b"\r\n", b"x" * 1000)) as server:
        async with client.open(server.url, b"{}", 60) as (_, read_chunk):
            await read_chunk()
            await asyncio.sleep(1.5)
            sent, grown = server.sent / 2**20, resident() - before
    return f"the server had sent {sent:.0f} MB, memory grew by {grown:.0f} MB"


async def failures_with_large_bodies(client: Client) -> str:
    gc.collect()
    gc.disable()
    peak = before = resident()
    with run_hostile_server(answer(then="close")) as server:
        for _ in range(60):
            result = await fetch(client, server.url, b"x" * _BIG, _LONG)
            assert str(result).startswith(ERROR), result
            peak = max(peak, resident())
        await asyncio.sleep(0.3)
    gc.enable()
    return f"{resident() - before:.0f} MB more than before, at most {peak - before:.0f} MB"


async def cost(client: Client) -> str:
    """CPU time of this process, without the server's thread."""
    count, chunks = 2000, 20_000
    with run_hostile_server(answer(HELLO)) as server:
        await fetch(client, server.url, b"{}" * 500, 60)
        started, own = process_time(), thread_time()
        for _ in range(count):
            await fetch(client, server.url, b"{}" * 500, 60)
        request = (thread_time() - own) / count * 1e6
        total = (process_time() - started) / count * 1e6
    event = b"64\r\n" + b"x" * 100 + b"\r\n"
    with run_hostile_server(answer(CHUNKED, *[event] * chunks, b"0\r\n\r\n")) as server:
        own, received = thread_time(), 0
        async with client.open(server.url, b"{}", 60) as (_, read_chunk):
            while await read_chunk():
                received += 1
        chunk = (thread_time() - own) / max(1, received) * 1e6
    return (
        f"{request:.0f} µs/request in the loop's thread, {total:.0f} with the server; "
        f"{chunk:.1f} µs/chunk"
    )


MORE = (
    stale_connection,
    data_before_a_break,
    cancellation,
    many_streams,
    paused_reader,
    failures_with_large_bodies,
    cost,
)


async def measure(name: str) -> None:
    client = CLIENTS[name]()
    table = Table("case", "", "result", "s", "pause s", "MB sent", "MB grown", title=name)
    wanted = os.environ.get("CASES", "")
    for case in CASES:
        if wanted in case.name:
            table.add_row(*await replay(client, case))
    Console(width=150).print(table)
    for scenario in MORE:
        if wanted in scenario.__name__:
            print(f"{scenario.__name__}: {await scenario(client)}", flush=True)
    await client.close()


def run(name: str) -> None:
    from toolspeak.gateway.server import event_loop_factory

    with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
        runner.run(measure(name))


def main() -> None:
    for name in sys.argv[1:] or CLIENTS:
        process = multiprocessing.get_context("spawn").Process(target=run, args=(name,))
        process.start()
        process.join()


if __name__ == "__main__":
    main()
