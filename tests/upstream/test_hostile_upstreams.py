"""The HTTP client for upstreams, with upstreams that send what they should not."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
import tracemalloc
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme
from msgspec import structs

from tests.support import TOOLBOX
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
from tests.upstream.test_client import (
    find_error,
    make_endpoint,
    open_client,
    read_response,
    run_on_each_loop,
)
from toolspeak import Message, Request, Text
from toolspeak.config.settings import Config, ModelSettings, UpstreamSettings
from toolspeak.errors import UpstreamError
from toolspeak.store.base import MemoryStore
from toolspeak.upstream.catalog import Catalog, Endpoint, ResolvedModel
from toolspeak.upstream.client import UpstreamClient
from toolspeak.upstream.learned_modes import LearnedModes
from toolspeak.upstream.model_call import ModelCall, ModelServices

_LONG = 60
_BIG = 30 * 2**20
_FAILURES = 6


async def fetch(upstreams: UpstreamClient, endpoint: Endpoint, body: bytes = b"{}") -> Any:
    """Return the status and the body of the response, or else ERROR or TIMEOUT."""
    try:
        return await read_response(await upstreams.request(endpoint, "/x", body))
    except UpstreamError as problem:
        return TIMEOUT if problem.failure.status == 504 else ERROR


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_LONG):
        while not condition():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def measure_pauses() -> AsyncGenerator[list[float]]:
    """Measure the pauses of the event loop, in which no other request is served."""
    pauses: list[float] = []
    task = asyncio.create_task(_measure_pauses(pauses))
    yield pauses
    task.cancel()


async def _measure_pauses(pauses: list[float]) -> None:
    clock = asyncio.get_running_loop().time
    while True:
        started = clock()
        await asyncio.sleep(0.01)
        pauses.append(clock() - started)


def run_test(
    behave: Any, test: Callable[[HostileServer, UpstreamClient], Coroutine[Any, Any, None]]
) -> None:
    async def run() -> None:
        with run_hostile_server(behave) as server:
            async with open_client() as upstreams:
                await test(server, upstreams)

    run_on_each_loop(run)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_hostile_upstream_gives_a_right_result(case: Case) -> None:
    """The result is right, the connection is closed after an error, and nothing is frozen."""
    seconds = SHORT if TIMEOUT in case.results else _LONG

    async def test(server: HostileServer, upstreams: UpstreamClient) -> None:
        timeouts = {"first_byte_timeout": seconds, "idle_timeout": seconds}
        endpoint = make_endpoint(server.url, **timeouts)
        async with measure_pauses() as pauses:
            result = await fetch(upstreams, endpoint, b"x" * case.body_size)
        assert result in case.results
        assert max(pauses, default=0) < 10
        if result in (ERROR, TIMEOUT):
            await wait_until(lambda: server.open_count == 0)

    run_test(case.behave, test)


@pytest.mark.parametrize(
    ("start", "repeated"),
    [
        (b"HTTP/1.1 200 OK\r\nx: ", b"a"),
        (b"HTTP/1.1 200 OK\r\n", b"a"),
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
        (b"HTTP/1.1 200 ", b"a"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (CHUNKED + b"5\r\nhello\r\n0\r\n", b"x: y\r\n"),
    ],
    ids=["line", "name", "headers", "status line", "100 Continue", "trailers"],
)
def test_endless_head_is_limited_as_it_arrives(start: bytes, repeated: bytes) -> None:
    async def test(server: HostileServer, upstreams: UpstreamClient) -> None:
        assert await fetch(upstreams, make_endpoint(server.url)) == ERROR
        await wait_until(lambda: server.open_count == 0)
        # The rest is in the buffers of the operating system.
        assert server.sent < 2**25

    run_test(answer_endlessly(start, repeated), test)


def test_gzip_bomb_needs_little_memory() -> None:
    bomb = next(case for case in CASES if case.name == "gzip bomb")

    async def test(server: HostileServer, upstreams: UpstreamClient) -> None:
        tracemalloc.start()
        try:
            assert await fetch(upstreams, make_endpoint(server.url)) == ERROR
            assert tracemalloc.get_traced_memory()[1] < 300 * 2**20
        finally:
            tracemalloc.stop()

    run_test(bomb.behave, test)


def test_connection_with_bytes_after_the_end_is_not_reused() -> None:
    async def test(server: HostileServer, upstreams: UpstreamClient) -> None:
        for count in (1, 2, 3):
            assert await fetch(upstreams, make_endpoint(server.url)) == (200, b"hello")
            assert len(server.connections) == count

    run_test(answer(HELLO + HELLO), test)


def test_connection_closed_when_reused_is_replaced() -> None:
    async def behave(connection: HostileConnection) -> None:
        await connection.read_request()
        await connection.send(HELLO)
        await connection.read_request()

    async def test(server: HostileServer, upstreams: UpstreamClient) -> None:
        for _ in range(4):
            assert await fetch(upstreams, make_endpoint(server.url)) == (200, b"hello")
        assert len(server.connections) == 4

    run_test(behave, test)


def test_data_before_a_break_is_read() -> None:
    """A stream may be complete although the connection is not ended properly."""

    async def test(server: HostileServer, upstreams: UpstreamClient) -> None:
        with await upstreams.request(make_endpoint(server.url), "/x", b"{}") as response:
            await wait_until(lambda: server.open_count == 0)
            await asyncio.sleep(0.05)
            assert await response.read_chunk() == b"hello"
            with pytest.raises(UpstreamError, match="in the middle of its response"):
                await response.read_chunk()

    run_test(answer(CHUNKED + b"5\r\nhello\r\n", then="close"), test)


@pytest.mark.parametrize(
    "start", [b"", OK, CHUNKED], ids=["before the head", "in the head", "in the body"]
)
def test_cancelled_request_closes_its_connection(start: bytes) -> None:
    async def test(server: HostileServer, upstreams: UpstreamClient) -> None:
        task = asyncio.create_task(fetch(upstreams, make_endpoint(server.url)))
        await wait_until(lambda: server.sent == len(start) and server.open_count == 1)
        await asyncio.sleep(0.05)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await wait_until(lambda: server.open_count == 0)

    run_test(answer(start), test)


@pytest.mark.slow
def test_thousand_streams_at_once_are_read() -> None:
    async def test(server: HostileServer, upstreams: UpstreamClient) -> None:
        requests = (fetch(upstreams, make_endpoint(server.url)) for _ in range(1000))
        assert await asyncio.gather(*requests) == [(200, b"hello" * 4)] * 1000
        assert len(server.connections) == 1000

    parts = [b"5\r\nhello\r\n"] * 4
    run_test(answer(CHUNKED, *parts, b"0\r\n\r\n", pause=0.5), test)


def test_paused_reader_pauses_the_server() -> None:
    async def test(server: HostileServer, upstreams: UpstreamClient) -> None:
        tracemalloc.start()
        try:
            with await upstreams.request(make_endpoint(server.url), "/x", b"{}") as response:
                await response.read_chunk()
                await asyncio.sleep(0.5)
                sent, memory = server.sent, tracemalloc.get_traced_memory()[0]
                await asyncio.sleep(0.5)
                assert server.sent == sent
                assert memory < 2**24
        finally:
            tracemalloc.stop()

    run_test(answer_endlessly(OK + b"\r\n", b"x" * 1000), test)


@pytest.mark.slow
@pytest.mark.parametrize(
    "behave",
    [
        answer(then="close"),
        answer(b"HTTP/1.1 500 Sorry\r\nContent-Length: 0\r\n\r\n"),
        answer(OK + b"Content-Length: 9\r\n\r\nhello", then="close"),
    ],
    ids=["no response", "error", "break"],
)
def test_failures_with_large_bodies_keep_no_memory(behave: Any) -> None:
    async def fail(server: HostileServer, upstreams: UpstreamClient) -> None:
        await find_error(upstreams, make_endpoint(server.url, retries=0), b"x" * _BIG)

    async def test(server: HostileServer, upstreams: UpstreamClient) -> None:
        await fail(server, upstreams)
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(_FAILURES):
                await fail(server, upstreams)
            # Each failure may keep half a megabyte at most.
            limit = _FAILURES * 2**19
            await wait_until(lambda: tracemalloc.get_traced_memory()[0] < limit)
        finally:
            tracemalloc.stop()
            gc.enable()

    run_test(behave, test)


@pytest.mark.parametrize(
    "behave",
    [
        answer(then="close"),
        answer(b"HTTP/1.1 500 Sorry\r\nContent-Length: 0\r\n\r\n"),
        answer(b"HTTP/1.1 400 No tools\r\nContent-Length: 20\r\n\r\ntools: not supported"),
        answer(OK + b"Content-Length: 9\r\n\r\nhello", then="close"),
    ],
    ids=["no response", "error", "no tools", "break"],
)
def test_failed_model_calls_keep_no_memory(behave: Any) -> None:
    size = 2**20
    parts = (Text("x" * size),)

    async def fail(model: ResolvedModel, services: ModelServices) -> None:
        request = Request(model="m", messages=(Message("user", parts),), tools=tuple(TOOLBOX))
        with pytest.raises(UpstreamError):
            await ModelCall(services, request, model).run()

    async def test(server: HostileServer, upstreams: UpstreamClient) -> None:
        upstream = UpstreamSettings(
            provider="custom", wire="openai_chat", base_url=server.url, retries=0
        )
        config = Config(upstreams={"u": upstream}, models={"m": ModelSettings("u")})
        model = Catalog(config, {}).resolve("m")
        services = ModelServices(upstreams, LearnedModes(MemoryStore()))
        await fail(model, services)
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(20):
                await fail(model, services)
            await wait_until(lambda: tracemalloc.get_traced_memory()[0] < size)
        finally:
            tracemalloc.stop()
            gc.enable()

    run_test(behave, test)


# Addresses and TLS.


def test_ipv6_address_is_reached() -> None:
    async def run() -> None:
        with run_hostile_server(answer(HELLO), host="::1") as server:
            async with open_client() as upstreams:
                assert await fetch(upstreams, make_endpoint(server.url)) == (200, b"hello")
        assert b"\r\nHost: [::1]:" in server.connections[0].head

    run_on_each_loop(run)


def make_context(name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert(name).configure_cert(context)
    return context


@pytest.mark.parametrize(
    ("tls", "scheme", "results"),
    [
        (make_context("127.0.0.1"), "https", (ERROR,)),
        (make_context("other.example"), "https", (ERROR,)),
        (None, "https", (ERROR, TIMEOUT)),
        (make_context("127.0.0.1"), "http", (ERROR, TIMEOUT)),
    ],
    ids=["untrusted certificate", "wrong name", "plain HTTP on TLS", "TLS on plain HTTP"],
)
def test_wrong_tls_is_an_error(
    tls: ssl.SSLContext | None, scheme: str, results: tuple[str, ...]
) -> None:
    async def run() -> None:
        with run_hostile_server(answer(HELLO), tls) as server:
            url = f"{scheme}://127.0.0.1:{server.port}"
            seconds = SHORT if TIMEOUT in results else _LONG
            settings = {"connect_timeout": seconds, "first_byte_timeout": seconds}
            async with open_client() as upstreams:
                assert await fetch(upstreams, make_endpoint(url, **settings)) in results
        assert not any(connection.head for connection in server.connections)

    run_on_each_loop(run)


def test_redirect_is_not_followed() -> None:
    async def test(server: HostileServer, upstreams: UpstreamClient) -> None:
        endpoint = structs.replace(make_endpoint(server.url), key="sk-own-key")
        response = await upstreams.send(endpoint, "/x", b"{}")
        with response, pytest.raises(UpstreamError, match="redirects to"):
            raise await response.read_error()
        assert len(server.connections) == 1

    redirect = b"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
    run_test(answer(redirect), test)
