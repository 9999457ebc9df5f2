"""The HTTP client for upstreams, with servers that send exactly the bytes of a test."""

from __future__ import annotations

import asyncio
import gzip
import logging
import ssl
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
import trustme
from msgspec import structs

from toolspeak.config.settings import UpstreamSettings
from toolspeak.errors import UpstreamError
from toolspeak.gateway.server import event_loop_factory
from toolspeak.types import Failure
from toolspeak.upstream import http_pool as pool_module
from toolspeak.upstream.catalog import Endpoint
from toolspeak.upstream.client import UpstreamClient, UpstreamResponse, mask_failure
from toolspeak.upstream.http_pool import address_of
from toolspeak.upstream.timers import Ticker

Behavior = Callable[["Connection"], Awaitable[None]]
SETTINGS = UpstreamSettings(connect_timeout=30, first_byte_timeout=30, idle_timeout=30, retries=0)


class Connection:
    """One connection of a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.head = ""
        self.body = b""

    async def read_request(self) -> bool:
        """Read a request; return False if the client has closed the connection."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        self.head = head.decode()
        lengths = [line for line in self.head.lower().splitlines() if "content-length" in line]
        self.body = await self.reader.readexactly(int(lengths[0].split(":")[1]) if lengths else 0)
        return True

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


class Server:
    """Handles each connection with the function of a test."""

    def __init__(self, behave: Behavior) -> None:
        self._behave = behave
        self.connections: list[Connection] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.open_count = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        self.connections.append(connection)
        if task := asyncio.current_task():
            self.tasks.append(task)
        self.open_count += 1
        try:
            await self._behave(connection)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open_count -= 1
            writer.close()


@asynccontextmanager
async def run_server(
    behave: Behavior, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[tuple[Server, int], None]:
    server = Server(behave)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    async with listener:
        yield server, listener.sockets[0].getsockname()[1]
    for task in server.tasks:
        task.cancel()
    await asyncio.gather(*server.tasks, return_exceptions=True)
    await asyncio.sleep(0.02)  # For the sockets to be closed.


@asynccontextmanager
async def open_client() -> AsyncGenerator[UpstreamClient, None]:
    ticker = Ticker()
    upstreams = UpstreamClient(ticker)
    try:
        yield upstreams
    finally:
        upstreams.close()
        ticker.stop()
        await asyncio.sleep(0.02)  # For the sockets to be closed.


Result = TypeVar("Result")


def run_on_each_loop(run: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run on asyncio's own event loop and on the one that the gateway prefers."""
    with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
        runner.run(run())
    return asyncio.run(run())


def make_endpoint(url: str, **settings: Any) -> Endpoint:
    return Endpoint("up", "openai_chat", url, "", {}, structs.replace(SETTINGS, **settings))


async def read_response(response: UpstreamResponse) -> tuple[int, bytes]:
    with response:
        return response.status, await response.read_body()


def send_always(*chunks: bytes, then_close: bool = False) -> Behavior:
    async def behave(connection: Connection) -> None:
        while await connection.read_request():
            for chunk in chunks:
                await connection.send(chunk)
                await asyncio.sleep(0.01)
            if then_close:
                return

    return behave


async def fetch(
    upstreams: UpstreamClient, endpoint: Endpoint, body: bytes | None = None
) -> tuple[int, bytes]:
    """Send a request and return the status and the body of its response."""
    return await read_response(await upstreams.request(endpoint, "/x", body))


async def find_error(
    upstreams: UpstreamClient, endpoint: Endpoint, body: bytes = b"{}"
) -> UpstreamError:
    """Send a request that fails, and return its error."""
    try:
        with await upstreams.send(endpoint, "/x", body) as response:
            if response.status != 200:
                return await response.read_error()
            await response.read_body()
    except UpstreamError as problem:
        return problem.with_traceback(None)
    raise AssertionError("the request did not fail")


def request_once(behave: Behavior) -> tuple[int, bytes]:
    """Run a server for one request; return the status and the body of the response."""

    async def run() -> tuple[int, bytes]:
        async with run_server(behave) as (_, port), open_client() as upstreams:
            return await fetch(upstreams, make_endpoint(f"http://127.0.0.1:{port}"), b"{}")

    return run_on_each_loop(run)


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
HELLO = OK + b"Content-Length: 5\r\n\r\nhello"


@pytest.mark.parametrize(
    "behave",
    [
        send_always(HELLO),
        send_always(*(HELLO[start : start + 1] for start in range(len(HELLO)))),
        send_always(
            OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n", b"3\r\nllo\r\n0\r\n\r\n"
        ),
        send_always(
            OK + b"Transfer-Encoding: chunked\r\n\r\n5;x=1\r\nhello\r\n0\r\nTrailer: 1\r\n\r\n"
        ),
        send_always(OK + b"\r\nhel", b"lo", then_close=True),
        send_always(b"HTTP/1.0 200 OK\r\n\r\nhello", then_close=True),
        send_always(b"HTTP/1.1 100 Continue\r\n\r\n", HELLO),
        send_always(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + HELLO),
        send_always(b"HTTP/1.1 200\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello"),
        send_always(
            OK + b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n" + gzip.compress(b"hello"),
            then_close=True,
        ),
        send_always(
            OK + b"Content-Encoding: deflate\r\nConnection: close\r\n\r\n",
            zlib.compress(b"hello"),
            then_close=True,
        ),
    ],
    ids=[
        "content length",
        "byte by byte",
        "chunked",
        "chunk extensions and trailers",
        "until the end of the connection",
        "HTTP/1.0",
        "100 first",
        "103 first",
        "connection: close",
        "gzip",
        "deflate",
    ],
)
def test_valid_response_of_each_form_is_read(behave: Behavior) -> None:
    assert request_once(behave) == (200, b"hello")


@pytest.mark.parametrize(
    ("behave", "problem"),
    [
        (send_always(b"", then_close=True), "closed the connection before it answered"),
        (send_always(b"SSH-2.0-OpenSSH\r\n\r\n"), "sent an invalid HTTP response"),
        (
            send_always(b"HTTP/1.1 200 OK\r\nContent-", then_close=True),
            "in the middle of its response",
        ),
        (
            send_always(OK + b"Content-Length: 9\r\n\r\nhello", then_close=True),
            "in the middle of its response",
        ),
        (
            send_always(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", then_close=True),
            "in the middle of its response",
        ),
        (
            send_always(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
            "sent an invalid HTTP response",
        ),
        (
            send_always(OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n"),
            "sent an invalid HTTP response",
        ),
        (
            send_always(b"HTTP/1.1 101 Sure\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
            "protocol",
        ),
        (send_always(OK + b"Content-Encoding: br\r\n\r\nx"), "the unsupported encoding 'br'"),
        (send_always(OK + b"Content-Encoding: gzip\r\n\r\nhello"), "cannot be decompressed"),
        (send_always(OK + b"X: " + b"y" * 70_000 + b"\r\n\r\n"), "bytes of headers"),
        (send_always(OK + b"Content-Length: 5\r\n\r\nhe"), "sent nothing for"),
        (send_always(), "did not start to respond within"),
    ],
)
def test_invalid_response_is_an_error(behave: Behavior, problem: str) -> None:
    async def run() -> None:
        seconds = 0.3 if "sent nothing" in problem or "did not start" in problem else 30
        timeouts = {"first_byte_timeout": seconds, "idle_timeout": seconds}
        async with run_server(behave) as (server, port), open_client() as upstreams:
            with pytest.raises(UpstreamError, match=problem):
                await fetch(upstreams, make_endpoint(f"http://127.0.0.1:{port}", **timeouts), b"{}")
            await wait_until(lambda: server.open_count == 0)

    run_on_each_loop(run)


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def wait_until_paused(read_count: Callable[[], int]) -> None:
    """Wait until a count has grown and then not changed for 0.2 seconds."""
    earlier, count = -1, 0
    while count == 0 or count != earlier:
        await asyncio.sleep(0.2)
        earlier, count = count, read_count()


def run_test(
    behave: Behavior, test: Callable[[Server, str, UpstreamClient], Coroutine[Any, Any, None]]
) -> None:
    async def run() -> None:
        async with run_server(behave) as (server, port), open_client() as upstreams:
            await test(server, f"http://127.0.0.1:{port}", upstreams)

    run_on_each_loop(run)


def test_request_has_an_encoded_target_and_credentials() -> None:
    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        target = structs.replace(make_endpoint(url.replace("//", "//me:s%C3%A9cret@") + "/a b/v1"))
        await read_response(await upstreams.request(target, "/models/ä?x=%20 y", b'{"a":1}'))
        connection = server.connections[0]
        lines = connection.head.splitlines()
        assert lines[0] == "POST /a%20b/v1/models/%C3%A4?x=%20%20y HTTP/1.1"
        assert f"Host: {url.removeprefix('http://')}" in lines
        assert "Authorization: Basic bWU6c8OpY3JldA==" in lines
        assert connection.body == b'{"a":1}'

    run_test(send_always(HELLO), test)


def test_header_with_a_line_break_is_rejected() -> None:
    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        endpoint = structs.replace(make_endpoint(url), headers={"x-a": "1\r\nx-b: 2"})
        with pytest.raises(UpstreamError, match="control character"):
            await upstreams.request(endpoint, "/x")
        assert not server.connections

    run_test(send_always(HELLO), test)


def test_connection_is_reused() -> None:
    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        for _ in range(3):
            assert await fetch(upstreams, make_endpoint(url)) == (200, b"hello")
        assert len(server.connections) == 1
        responses = await asyncio.gather(
            *(upstreams.request(make_endpoint(url), "/x") for _ in range(2))
        )
        assert [await read_response(response) for response in responses] == [(200, b"hello")] * 2
        assert len(server.connections) == 2

    run_test(send_always(HELLO), test)


@pytest.mark.parametrize(
    "reply",
    [
        HELLO.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"),
        HELLO + b"HTTP/1.1 200 OK\r\n\r\n",
        HELLO.replace(b"1.1", b"1.0"),
    ],
    ids=["connection: close", "more than one response", "HTTP/1.0"],
)
def test_connection_with_unusable_end_is_not_reused(reply: bytes) -> None:
    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        for count in (1, 2):
            assert await fetch(upstreams, make_endpoint(url)) == (200, b"hello")
            assert len(server.connections) == count

    run_test(send_always(reply), test)


def test_response_not_read_to_its_end_closes_the_connection() -> None:
    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        with await upstreams.request(make_endpoint(url), "/x"):
            pass
        await wait_until(lambda: server.open_count == 0)

    run_test(send_always(OK + b"Content-Length: 99\r\n\r\nhello"), test)


def test_connection_closed_while_idle_is_replaced() -> None:
    """Some servers close a persistent connection just when the next request is sent."""

    async def behave(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(HELLO)
        await connection.read_request()

    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        for _ in range(3):
            assert await fetch(upstreams, make_endpoint(url)) == (200, b"hello")
        assert len(server.connections) == 3

    run_test(behave, test)


def test_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_MAX_IDLE", 0.5)

    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        await fetch(upstreams, make_endpoint(url))
        assert server.open_count == 1
        await wait_until(lambda: server.open_count == 0)

    run_test(send_always(HELLO), test)


def test_data_received_before_an_error_is_read() -> None:
    async def behave(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(OK + b"Transfer-Encoding: chunked\r\n\r\n")
        await connection.send(b"50000\r\n" + b"x" * 0x50000 + b"\r\nzz\r\n")
        await asyncio.sleep(0.2)

    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        with await upstreams.request(make_endpoint(url), "/x") as response:
            await asyncio.sleep(0.2)
            size = 0
            while size < 0x50000:
                size += len(await response.read_chunk())
            assert size == 0x50000
            with pytest.raises(UpstreamError, match="invalid HTTP response"):
                await response.read_chunk()

    run_test(behave, test)


def test_connection_with_unsent_data_is_not_reused() -> None:
    """A server may respond before it has read the whole request."""

    async def behave(connection: Connection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.send(HELLO)
        await asyncio.sleep(0.5)

    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        big = b"x" * 20_000_000
        assert await fetch(upstreams, make_endpoint(url), big) == (200, b"hello")
        assert await fetch(upstreams, make_endpoint(url)) == (200, b"hello")
        assert len(server.connections) == 2

    run_test(behave, test)


def test_configured_header_replaces_the_default() -> None:
    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        headers = {"Authorization": "Bearer other", "USER-AGENT": "me"}
        target = structs.replace(make_endpoint(url), key="sk-own", headers=headers)
        await fetch(upstreams, target)
        head = server.connections[0].head.lower()
        assert head.count("authorization:") == head.count("user-agent:") == 1
        assert "sk-own" not in head

    run_test(send_always(HELLO), test)


def test_slow_reader_pauses_the_server() -> None:
    sent = 0

    async def behave(connection: Connection) -> None:
        nonlocal sent
        sent = 0
        await connection.read_request()
        await connection.send(OK + b"Content-Length: 50000000\r\n\r\n")
        while sent < 50_000_000:
            await connection.send(b"x" * 100_000)
            sent += 100_000

    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        with await upstreams.request(make_endpoint(url), "/x") as response:
            await wait_until_paused(lambda: sent)
            assert sent < 30_000_000
            assert len(await response.read_body()) == 50_000_000

    run_test(behave, test)


def test_unreachable_server_is_an_error() -> None:
    async def run() -> None:
        async with open_client() as upstreams:
            with pytest.raises(UpstreamError, match="cannot be reached: Connection refused"):
                await upstreams.request(make_endpoint("http://127.0.0.1:9"), "/x")
            with pytest.raises(UpstreamError, match="cannot be reached: "):
                await upstreams.request(make_endpoint("http://no-such-host.invalid"), "/x")

    run_on_each_loop(run)


# What clients see of an upstream.

_KEY = "sk-proj-Ab12Cd34Ef56Gh78"


@pytest.mark.parametrize(
    ("base_url", "message", "shown"),
    [
        ("http://10.0.0.5:8000/v1", f"bad key {_KEY}", "bad key ••••"),
        ("http://10.0.0.5:8000/v1", "bad key sk-proj-****Gh78.", "bad key ••••."),
        ("http://10.0.0.5:8000/v1", "bad key sk-…", "bad key ••••"),
        ("http://10.0.0.5:8000/v1", "bad key ...78", "bad key ••••"),
        ("http://10.0.0.5:8000/v1", "wait ... or use other-****Gh79", None),
        ("http://10.0.0.5:8000/v1", "no model at http://10.0.0.5:8000/v1/x", "no model at up/x"),
        ("http://10.0.0.5:8000/v1", "no route to 10.0.0.5", "no route to up"),
        ("http://10.0.0.5:8000/v1", "not 10.0.0.55, nor 110.0.0.5", None),
        ("http://me:pass@gpu.lan/v1", "see http://me:pass@GPU.lan/v1", "see up"),
        ("http://ollama:11434", "run ollama at ollama:11434", "run ollama at up"),
        ("http://[fd00::5]:80", "dial [fd00::5]:80 failed", "dial up failed"),
        ("http://localhost:8080", "localhost:8080 is down", "up is down"),
        ("http://localhost:8080", "localhost is down", None),
    ],
)
def test_message_of_upstream_shows_neither_its_address_nor_its_key(
    base_url: str, message: str, shown: str | None
) -> None:
    endpoint = structs.replace(make_endpoint(base_url), key=_KEY)
    failure = mask_failure(Failure("upstream", message, 502, details={"a": [message]}), endpoint)
    shown = message if shown is None else shown
    assert (failure.message, failure.details) == (shown, {"a": [shown]})


@pytest.mark.parametrize(
    "behave",
    [
        None,
        send_always(b"", then_close=True),
        send_always(b"SSH-2.0-OpenSSH\r\n\r\n"),
        send_always(HELLO.replace(b"200 OK", b"307 Go\r\nLocation: http://10.0.0.6/v2")),
    ],
    ids=["unreachable", "closed", "invalid", "redirect"],
)
def test_error_shows_no_address_but_the_log_does(
    behave: Behavior | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolspeak.gateway")

    async def run() -> None:
        async with run_server(behave or send_always()) as (_, port), open_client() as client:
            url = f"http://me:pass@127.0.0.1:{port if behave else 9}/v1"
            endpoint = structs.replace(make_endpoint(url), key=_KEY)
            message = str(await find_error(client, endpoint))
            assert message.startswith("the upstream up ")
            assert not any(one in message for one in ("127.0.0.1", "10.0.0.6", "pass", "sk-"))
            assert f"{message} (http://••••@127.0.0.1:" in caplog.text
            assert "pass@" not in caplog.text

    run_on_each_loop(run)


# TLS and proxies.


@pytest.fixture
def authority(monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """A certificate authority that the client trusts."""
    authority = trustme.CA()
    context = ssl.create_default_context()
    authority.configure_trust(context)
    monkeypatch.setattr(pool_module, "load_certificates", lambda: context)
    return authority


def make_server_context(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


@pytest.fixture
def set_proxy(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Set the proxy of the environment. Loopback addresses need none, so none counts as one."""

    def is_loopback(host: str) -> bool:
        return False

    monkeypatch.setattr(pool_module, "is_loopback", is_loopback)

    def set_variables(proxy: str) -> None:
        address_of.cache_clear()
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, proxy)
        monkeypatch.setenv("no_proxy", "")

    return set_variables


def test_tls_certificate_is_verified(authority: trustme.CA) -> None:
    async def run() -> None:
        right = make_server_context(authority, "127.0.0.1")
        wrong = make_server_context(authority, "other.example")
        async with run_server(send_always(HELLO), right) as (_, port), open_client() as upstreams:
            endpoint = make_endpoint(f"https://127.0.0.1:{port}")
            for _ in range(2):
                assert await fetch(upstreams, endpoint) == (200, b"hello")
        async with run_server(send_always(HELLO), wrong) as (_, port), open_client() as upstreams:
            with pytest.raises(UpstreamError, match=r"cannot be reached: .*certificate"):
                await upstreams.request(make_endpoint(f"https://127.0.0.1:{port}"), "/x")
        async with run_server(send_always(HELLO)) as (_, port), open_client() as upstreams:
            endpoint = make_endpoint(f"https://127.0.0.1:{port}", connect_timeout=0.3)
            with pytest.raises(UpstreamError, match="cannot be reached"):
                await upstreams.request(endpoint, "/x")

    run_on_each_loop(run)


def test_http_proxy_receives_the_whole_url(set_proxy: Callable[[str], None]) -> None:
    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        set_proxy(url.replace("//", "//me:pass@"))
        for _ in range(2):
            endpoint = make_endpoint("http://far.example/v1")
            assert await fetch(upstreams, endpoint) == (200, b"hello")
        lines = server.connections[0].head.splitlines()
        assert lines[0] == "GET http://far.example/v1/x HTTP/1.1"
        assert "Host: far.example" in lines
        assert "Proxy-Authorization: Basic bWU6cGFzcw==" in lines
        assert len(server.connections) == 1

    run_test(send_always(HELLO), test)


def connect_to(port: int, heads: list[str]) -> Behavior:
    """Behave as a proxy that connects to this port, whatever the client requests."""

    async def behave(connection: Connection) -> None:
        await connection.read_request()
        heads.append(connection.head)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await connection.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            await asyncio.gather(
                forward(connection.reader, writer), forward(reader, connection.writer)
            )
        finally:
            writer.close()

    return behave


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


def test_tls_uses_a_tunnel_through_the_proxy(
    authority: trustme.CA, set_proxy: Callable[[str], None]
) -> None:
    async def run() -> None:
        heads: list[str] = []
        tls = make_server_context(authority, "far.example")
        async with (
            run_server(send_always(HELLO), tls) as (server, port),
            run_server(connect_to(port, heads)) as (_, proxy),
            open_client() as upstreams,
        ):
            set_proxy(f"http://me:pass@127.0.0.1:{proxy}")
            for _ in range(2):
                endpoint = make_endpoint("https://far.example/v1")
                assert await fetch(upstreams, endpoint) == (200, b"hello")
            assert len(heads) == 1
            assert heads[0].splitlines()[0] == "CONNECT far.example:443 HTTP/1.1"
            assert "Proxy-Authorization: Basic bWU6cGFzcw==" in heads[0].splitlines()
            assert server.connections[0].head.splitlines()[0] == "GET /v1/x HTTP/1.1"
            assert "Proxy-Authorization" not in server.connections[0].head

    run_on_each_loop(run)


@pytest.mark.parametrize(
    ("behave", "problem"),
    [
        (
            send_always(b"HTTP/1.1 407 Who are you?\r\nContent-Length: 0\r\n\r\n"),
            "the proxy answered 407",
        ),
        (send_always(b"", then_close=True), "the proxy closed the connection"),
    ],
)
def test_refusal_by_the_proxy_is_an_error(
    behave: Behavior, problem: str, set_proxy: Callable[[str], None]
) -> None:
    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        set_proxy(url)
        with pytest.raises(UpstreamError, match=problem):
            await upstreams.request(make_endpoint("https://far.example/v1"), "/x")
        await wait_until(lambda: server.open_count == 0)

    run_test(behave, test)


def test_unsupported_proxy_is_an_error_without_its_password(
    set_proxy: Callable[[str], None],
) -> None:
    async def run() -> None:
        set_proxy("socks5://me:pass@127.0.0.1:1080")
        async with open_client() as upstreams:
            with pytest.raises(UpstreamError, match="not an http:// or https:// URL") as problem:
                await upstreams.request(make_endpoint("https://far.example/v1"), "/x")
            assert "pass" not in str(problem.value)

    run_on_each_loop(run)
