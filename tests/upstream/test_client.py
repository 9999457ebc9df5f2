"""The client that asks upstreams, against sockets that say exactly what a test wants."""

from __future__ import annotations

import asyncio
import gzip
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
from toolspeak.upstream import http_pool as pool_module
from toolspeak.upstream.catalog import Endpoint
from toolspeak.upstream.client import UpstreamClient, UpstreamResponse
from toolspeak.upstream.http_pool import address_of
from toolspeak.upstream.timers import Ticker

Acts = Callable[["Peer"], Awaitable[None]]
SETTINGS = UpstreamSettings(connect_timeout=2, first_byte_timeout=2, idle_timeout=2, retries=0)


class Peer:
    """One connection as a server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.head = ""
        self.body = b""

    async def hear(self) -> bool:
        """Wait for a request; False if none comes any more."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        self.head = head.decode()
        lengths = [line for line in self.head.lower().splitlines() if "content-length" in line]
        self.body = await self.reader.readexactly(int(lengths[0].split(":")[1]) if lengths else 0)
        return True

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


class Server:
    """Listens, and does with each connection what the test says."""

    def __init__(self, acts: Acts) -> None:
        self._acts = acts
        self.peers: list[Peer] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        self.peers.append(peer)
        if task := asyncio.current_task():
            self.tasks.append(task)
        self.open += 1
        try:
            await self._acts(peer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def serving(
    acts: Acts, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[tuple[Server, int], None]:
    server = Server(acts)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    async with listener:
        yield server, listener.sockets[0].getsockname()[1]
    for task in server.tasks:
        task.cancel()
    await asyncio.gather(*server.tasks, return_exceptions=True)
    await asyncio.sleep(0.02)  # For the sockets to be closed.


@asynccontextmanager
async def asking() -> AsyncGenerator[UpstreamClient, None]:
    ticker = Ticker()
    upstreams = UpstreamClient(ticker)
    try:
        yield upstreams
    finally:
        upstreams.close()
        ticker.stop()
        await asyncio.sleep(0.02)  # For the sockets to be closed.


Made = TypeVar("Made")


def run_on_each_loop(run: Callable[[], Coroutine[Any, Any, Made]]) -> Made:
    """On asyncio's own event loop, and on the one that the gateway prefers."""
    with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
        runner.run(run())
    return asyncio.run(run())


def at(url: str, **settings: Any) -> Endpoint:
    return Endpoint("up", "openai_chat", url, "", {}, structs.replace(SETTINGS, **settings))


async def heard(response: UpstreamResponse) -> tuple[int, bytes]:
    with response:
        return response.status, await response.read_body()


def says(*pieces: bytes, then_close: bool = False) -> Acts:
    async def acts(peer: Peer) -> None:
        while await peer.hear():
            for piece in pieces:
                await peer.say(piece)
                await asyncio.sleep(0.01)
            if then_close:
                return

    return acts


def asked_of(acts: Acts, path: str = "/x", data: bytes | None = b"{}") -> tuple[int, bytes]:
    """What one request to such a server gives."""

    async def run() -> tuple[int, bytes]:
        async with serving(acts) as (_, port), asking() as upstreams:
            return await heard(await upstreams.request(at(f"http://127.0.0.1:{port}"), path, data))

    return run_on_each_loop(run)


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
HELLO = OK + b"Content-Length: 5\r\n\r\nhello"


@pytest.mark.parametrize(
    "acts",
    [
        says(HELLO),
        says(*(HELLO[at : at + 1] for at in range(len(HELLO)))),
        says(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n", b"3\r\nllo\r\n0\r\n\r\n"),
        says(OK + b"Transfer-Encoding: chunked\r\n\r\n5;x=1\r\nhello\r\n0\r\nTrailer: 1\r\n\r\n"),
        says(OK + b"\r\nhel", b"lo", then_close=True),
        says(b"HTTP/1.0 200 OK\r\n\r\nhello", then_close=True),
        says(b"HTTP/1.1 100 Continue\r\n\r\n", HELLO),
        says(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + HELLO),
        says(b"HTTP/1.1 200\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello"),
        says(
            OK + b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n" + gzip.compress(b"hello"),
            then_close=True,
        ),
        says(
            OK + b"Content-Encoding: deflate\r\nConnection: close\r\n\r\n",
            zlib.compress(b"hello"),
            then_close=True,
        ),
    ],
    ids=[
        "with a length",
        "byte by byte",
        "in chunks",
        "with extensions and trailers",
        "up to the end of the connection",
        "HTTP/1.0",
        "100 first",
        "103 first",
        "the last on its connection",
        "gzip",
        "deflate",
    ],
)
def test_replies(acts: Acts) -> None:
    assert asked_of(acts) == (200, b"hello")


@pytest.mark.parametrize(
    ("acts", "problem"),
    [
        (says(b"", then_close=True), "closed the connection before it answered"),
        (says(b"SSH-2.0-OpenSSH\r\n\r\n"), "sent an invalid HTTP response"),
        (says(b"HTTP/1.1 200 OK\r\nContent-", then_close=True), "in the middle of its response"),
        (
            says(OK + b"Content-Length: 9\r\n\r\nhello", then_close=True),
            "in the middle of its response",
        ),
        (
            says(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", then_close=True),
            "in the middle of its response",
        ),
        (says(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"), "sent an invalid HTTP response"),
        (
            says(OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n"),
            "sent an invalid HTTP response",
        ),
        (says(b"HTTP/1.1 101 Sure\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), "protocol"),
        (says(OK + b"Content-Encoding: br\r\n\r\nx"), "the unsupported encoding 'br'"),
        (says(OK + b"Content-Encoding: gzip\r\n\r\nhello"), "cannot be decompressed"),
        (says(OK + b"X: " + b"y" * 70_000 + b"\r\n\r\n"), "bytes of headers"),
        (says(OK + b"Content-Length: 5\r\n\r\nhe"), "sent nothing for"),
        (says(), "did not start to respond within"),
    ],
)
def test_what_is_no_reply(acts: Acts, problem: str) -> None:
    async def run() -> None:
        quick = {"first_byte_timeout": 0.3, "idle_timeout": 0.3}
        async with serving(acts) as (server, port), asking() as upstreams:
            with pytest.raises(UpstreamError, match=problem):
                await heard(
                    await upstreams.request(at(f"http://127.0.0.1:{port}", **quick), "/x", b"{}")
                )
            await _until(lambda: server.open == 0)

    run_on_each_loop(run)


async def _until(holds: Callable[[], bool]) -> None:
    for _ in range(200):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that")


def run_with(
    acts: Acts, test: Callable[[Server, str, UpstreamClient], Coroutine[Any, Any, None]]
) -> None:
    async def run() -> None:
        async with serving(acts) as (server, port), asking() as upstreams:
            await test(server, f"http://127.0.0.1:{port}", upstreams)

    run_on_each_loop(run)


def test_what_is_sent() -> None:
    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        target = structs.replace(at(url.replace("//", "//me:s%C3%A9cret@") + "/a b/v1"))
        await heard(await upstreams.request(target, "/models/ä?x=%20 y", b'{"a":1}'))
        peer = server.peers[0]
        lines = peer.head.splitlines()
        assert lines[0] == "POST /a%20b/v1/models/%C3%A4?x=%20%20y HTTP/1.1"
        assert f"Host: {url.removeprefix('http://')}" in lines
        assert "Authorization: Basic bWU6c8OpY3JldA==" in lines
        assert peer.body == b'{"a":1}'

    run_with(says(HELLO), test)


def test_a_line_break_in_a_header_is_no_second_header() -> None:
    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        sly = structs.replace(at(url), headers={"x-a": "1\r\nx-b: 2"})
        with pytest.raises(UpstreamError, match="line break"):
            await upstreams.request(sly, "/x")
        assert not server.peers

    run_with(says(HELLO), test)


def test_connections_are_used_again() -> None:
    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        for _ in range(3):
            assert await heard(await upstreams.request(at(url), "/x")) == (200, b"hello")
        assert len(server.peers) == 1
        both = await asyncio.gather(*(upstreams.request(at(url), "/x") for _ in range(2)))
        assert [await heard(one) for one in both] == [(200, b"hello")] * 2
        assert len(server.peers) == 2

    run_with(says(HELLO), test)


@pytest.mark.parametrize(
    "reply",
    [
        HELLO.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"),
        HELLO + b"HTTP/1.1 200 OK\r\n\r\n",
        HELLO.replace(b"1.1", b"1.0"),
    ],
    ids=["asks for that", "says more than it was asked", "HTTP/1.0"],
)
def test_connections_that_are_not_used_again(reply: bytes) -> None:
    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        for count in (1, 2):
            assert await heard(await upstreams.request(at(url), "/x")) == (200, b"hello")
            assert len(server.peers) == count

    run_with(says(reply), test)


def test_a_reply_that_is_not_read_to_its_end_closes_the_connection() -> None:
    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        with await upstreams.request(at(url), "/x"):
            pass
        await _until(lambda: server.open == 0)

    run_with(says(OK + b"Content-Length: 99\r\n\r\nhello"), test)


def test_a_kept_connection_that_was_given_up_is_no_failure() -> None:
    """Some servers close what they said they would keep, just when the next request comes."""

    async def acts(peer: Peer) -> None:
        await peer.hear()
        await peer.say(HELLO)
        await peer.hear()

    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        for _ in range(3):
            assert await heard(await upstreams.request(at(url), "/x")) == (200, b"hello")
        assert len(server.peers) == 3

    run_with(acts, test)


def test_connections_that_nobody_uses_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_KEPT_SECONDS", 0.2)

    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        await heard(await upstreams.request(at(url), "/x"))
        assert server.open == 1
        await _until(lambda: server.open == 0)

    run_with(says(HELLO), test)


def test_what_has_come_is_read_even_if_the_connection_is_lost() -> None:
    async def acts(peer: Peer) -> None:
        await peer.hear()
        await peer.say(OK + b"Transfer-Encoding: chunked\r\n\r\n")
        await peer.say(b"50000\r\n" + b"x" * 0x50000 + b"\r\nzz\r\n")
        await asyncio.sleep(0.2)

    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        with await upstreams.request(at(url), "/x") as response:
            await asyncio.sleep(0.2)
            assert len(await response.read_chunk()) == 0x50000
            with pytest.raises(UpstreamError, match="invalid HTTP response"):
                await response.read_chunk()

    run_with(acts, test)


def test_a_connection_is_not_used_again_while_it_is_being_written_to() -> None:
    """A server may answer before it has read all, and reads the rest at its leisure."""

    async def acts(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.say(HELLO)
        await asyncio.sleep(0.5)

    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        big = b"x" * 20_000_000
        assert await heard(await upstreams.request(at(url), "/x", big)) == (200, b"hello")
        assert await heard(await upstreams.request(at(url), "/x")) == (200, b"hello")
        assert len(server.peers) == 2

    run_with(acts, test)


def test_a_header_of_the_configuration_stands_in_place_of_ours() -> None:
    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        given = {"Authorization": "Bearer other", "USER-AGENT": "me"}
        target = structs.replace(at(url), key="sk-own", headers=given)
        await heard(await upstreams.request(target, "/x"))
        head = server.peers[0].head.lower()
        assert head.count("authorization:") == head.count("user-agent:") == 1
        assert "sk-own" not in head

    run_with(says(HELLO), test)


def test_a_slow_reader_makes_the_server_wait() -> None:
    sent = 0

    async def acts(peer: Peer) -> None:
        nonlocal sent
        sent = 0
        await peer.hear()
        await peer.say(OK + b"Content-Length: 50000000\r\n\r\n")
        while sent < 50_000_000:
            await peer.say(b"x" * 100_000)
            sent += 100_000

    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        with await upstreams.request(at(url), "/x") as response:
            await asyncio.sleep(0.3)
            assert sent < 30_000_000
            assert len(await response.read_body()) == 50_000_000

    run_with(acts, test)


def test_nobody_is_there() -> None:
    async def run() -> None:
        async with asking() as upstreams:
            with pytest.raises(UpstreamError, match="cannot be reached: Connection refused"):
                await upstreams.request(at("http://127.0.0.1:9"), "/x")
            with pytest.raises(UpstreamError, match="cannot be reached: "):
                await upstreams.request(at("http://no-such-host.invalid"), "/x")

    run_on_each_loop(run)


# TLS and proxies.


@pytest.fixture
def authority(monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """One that the client trusts."""
    authority = trustme.CA()
    context = ssl.create_default_context()
    authority.configure_trust(context)
    monkeypatch.setattr(pool_module, "_tls", lambda: context)
    return authority


def certified(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says which proxy the environment names. This machine is reached without, so it is called by
    another name."""

    def is_loopback(host: str) -> bool:
        return False

    monkeypatch.setattr(pool_module, "is_loopback", is_loopback)

    def by(proxy: str) -> None:
        address_of.cache_clear()
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, proxy)
        monkeypatch.setenv("no_proxy", "")

    return by


def test_tls(authority: trustme.CA) -> None:
    async def run() -> None:
        right, wrong = certified(authority, "127.0.0.1"), certified(authority, "other.example")
        async with serving(says(HELLO), right) as (_, port), asking() as upstreams:
            there = at(f"https://127.0.0.1:{port}")
            for _ in range(2):
                assert await heard(await upstreams.request(there, "/x")) == (200, b"hello")
        async with serving(says(HELLO), wrong) as (_, port), asking() as upstreams:
            with pytest.raises(UpstreamError, match=r"cannot be reached: .*certificate"):
                await upstreams.request(at(f"https://127.0.0.1:{port}"), "/x")
        async with serving(says(HELLO)) as (_, port), asking() as upstreams:
            with pytest.raises(UpstreamError, match="cannot be reached"):
                await upstreams.request(at(f"https://127.0.0.1:{port}"), "/x")

    run_on_each_loop(run)


def test_a_proxy_is_asked_for_the_whole_address(proxied: Callable[[str], None]) -> None:
    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        proxied(url.replace("//", "//me:pass@"))
        for _ in range(2):
            there = at("http://far.example/v1")
            assert await heard(await upstreams.request(there, "/x")) == (200, b"hello")
        lines = server.peers[0].head.splitlines()
        assert lines[0] == "GET http://far.example/v1/x HTTP/1.1"
        assert "Host: far.example" in lines
        assert "Proxy-Authorization: Basic bWU6cGFzcw==" in lines
        assert len(server.peers) == 1

    run_with(says(HELLO), test)


def tunnel(port: int, said: list[str]) -> Acts:
    """A proxy that connects to that port whatever it is asked for."""

    async def acts(peer: Peer) -> None:
        await peer.hear()
        said.append(peer.head)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await peer.say(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            await asyncio.gather(_pass_on(peer.reader, writer), _pass_on(reader, peer.writer))
        finally:
            writer.close()

    return acts


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


def test_tls_goes_through_a_tunnel(authority: trustme.CA, proxied: Callable[[str], None]) -> None:
    async def run() -> None:
        said: list[str] = []
        tls = certified(authority, "far.example")
        async with (
            serving(says(HELLO), tls) as (server, port),
            serving(tunnel(port, said)) as (_, proxy),
            asking() as upstreams,
        ):
            proxied(f"http://me:pass@127.0.0.1:{proxy}")
            for _ in range(2):
                there = at("https://far.example/v1")
                assert await heard(await upstreams.request(there, "/x")) == (200, b"hello")
            assert len(said) == 1
            assert said[0].splitlines()[0] == "CONNECT far.example:443 HTTP/1.1"
            assert "Proxy-Authorization: Basic bWU6cGFzcw==" in said[0].splitlines()
            assert server.peers[0].head.splitlines()[0] == "GET /v1/x HTTP/1.1"
            assert "Proxy-Authorization" not in server.peers[0].head

    run_on_each_loop(run)


@pytest.mark.parametrize(
    ("acts", "problem"),
    [
        (says(b"HTTP/1.1 407 Who are you?\r\nContent-Length: 0\r\n\r\n"), "the proxy answered 407"),
        (says(b"", then_close=True), "the proxy closed the connection"),
    ],
)
def test_a_proxy_that_refuses(acts: Acts, problem: str, proxied: Callable[[str], None]) -> None:
    async def test(server: Server, url: str, upstreams: UpstreamClient) -> None:
        proxied(url)
        with pytest.raises(UpstreamError, match=problem):
            await upstreams.request(at("https://far.example/v1"), "/x")
        await _until(lambda: server.open == 0)

    run_with(acts, test)


def test_a_proxy_of_another_kind(proxied: Callable[[str], None]) -> None:
    async def run() -> None:
        proxied("socks5://me:pass@127.0.0.1:1080")
        async with asking() as upstreams:
            with pytest.raises(UpstreamError, match="use an http:// or https:// proxy") as problem:
                await upstreams.request(at("https://far.example/v1"), "/x")
            assert "pass" not in str(problem.value)

    run_on_each_loop(run)
