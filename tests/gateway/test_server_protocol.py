"""What clients may do with a connection, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from socket import SHUT_WR, socket
from time import monotonic, sleep
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from msgspec import structs

from tests.gateway.raw_clients import STREAMED, WHOLE, connected
from tests.gateway.running_gateway import RunningGateway, make_config, run_gateway
from toolspeak.config.settings import Limits
from toolspeak.events import Finish, TextDelta
from toolspeak.gateway import http
from toolspeak.gateway import server_protocol as callers
from toolspeak.testing import ScriptedServer
from toolspeak.upstream.timers import Ticker

SAID = "Hello."
PATH = "/v1/chat/completions"


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer([TextDelta(SAID), Finish("stop")]) as server:
        yield server


@pytest.fixture(scope="module")
def gateway(model: ScriptedServer) -> Iterator[RunningGateway]:
    config = structs.replace(make_config(model.url), limits=Limits(body_bytes=200_000))
    with run_gateway(config) as served:
        yield served


def body(*, stream: bool = False, size: int = 0) -> bytes:
    (client,) = [one for one in (STREAMED if stream else WHOLE) if one.wire == "openai_chat"]
    value = client.body()
    if size:
        value["messages"] = [{"role": "user", "content": "x" * size}]
    return json.dumps(value).encode()


def request(
    data: bytes | None = None, *headers: str, target: str = PATH, version: str = "1.1"
) -> bytes:
    """The bytes of a request; a GET, if there is nothing to send."""
    method = "GET" if data is None else "POST"
    lines = [f"{method} {target} HTTP/{version}", "Host: 127.0.0.1", *headers]
    if data is not None:
        lines += ["Content-Type: application/json"]
        if not any(line.lower().startswith("transfer-encoding") for line in headers):
            lines += [f"Content-Length: {len(data)}"]
    return "\r\n".join((*lines, "", "")).encode() + (data or b"")


def rest(connection: socket) -> bytes:
    """All that comes until the other side closes the connection."""
    parts: list[bytes] = []
    with suppress(ConnectionError):
        while data := connection.recv(2**16):
            parts.append(data)
    return b"".join(parts)


class Answers:
    """What comes by a connection: `HTTPResponse` reads more than its own answer, and closes it."""

    def __init__(self, connection: socket) -> None:
        self._file = connection.makefile("rb")

    def makefile(self, mode: str) -> Answers:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def close(self) -> None:
        pass

    def next(self, method: str = "POST") -> tuple[HTTPResponse, bytes]:
        """The next answer, and its body."""
        response = HTTPResponse(self, method=method)  # pyright: ignore[reportArgumentType]
        response.begin()
        return response, response.read()


def answer(connection: socket, method: str = "POST") -> tuple[HTTPResponse, bytes]:
    """The only answer that is on its way."""
    return Answers(connection).next(method)


def text_in(data: bytes) -> str:
    return json.loads(data)["choices"][0]["message"]["content"]


def test_many_requests_on_one_connection(gateway: RunningGateway) -> None:
    connection = HTTPConnection(urlsplit(gateway.url).netloc)
    own: set[object] = set()
    for _ in range(5):
        connection.request("POST", PATH, body(), {"content-type": "application/json"})
        response = connection.getresponse()
        assert (response.status, text_in(response.read())) == (200, SAID)
        assert response.headers["date"].endswith("GMT")
        assert connection.sock
        own.add(connection.sock.getsockname())
    assert len(own) == 1
    connection.close()


@pytest.mark.parametrize("cut", [1, 7, 100, 10_000])
def test_a_request_in_pieces(gateway: RunningGateway, cut: int) -> None:
    data = request(body())
    with connected(gateway.url) as connection:
        for at in range(0, len(data), cut):
            connection.sendall(data[at : at + cut])
            if cut < 100 and at < 300:
                sleep(0.001)
        response, said = answer(connection)
        assert (response.status, text_in(said)) == (200, SAID)


def test_requests_before_there_is_an_answer(gateway: RunningGateway) -> None:
    """They are answered one by one, in their order."""
    with connected(gateway.url) as connection:
        asked = [request(body()), request(target="/health"), request(body(stream=True))]
        connection.sendall(b"".join((*asked, request(target="/nowhere"))))
        answers = Answers(connection)
        first, said = answers.next()
        assert (first.status, text_in(said)) == (200, SAID)
        second, said = answers.next("GET")
        assert (second.status, json.loads(said)) == (200, {"status": "ok"})
        third, said = answers.next()
        assert third.headers["transfer-encoding"] == "chunked"
        assert b"Hello" in said
        assert answers.next("GET")[0].status == 404


def test_a_body_in_chunks(gateway: RunningGateway) -> None:
    data = body()
    chunks = (b"%x\r\n%b\r\n" % (len(part), part) for part in (data[:10], data[10:]))
    with connected(gateway.url) as connection:
        connection.sendall(request(b"", "Transfer-Encoding: chunked") + b"".join(chunks))
        connection.sendall(b"0\r\n\r\n")
        response, said = answer(connection)
        assert (response.status, text_in(said)) == (200, SAID)


def test_a_body_in_chunks_that_are_none(gateway: RunningGateway) -> None:
    with connected(gateway.url) as connection:
        connection.sendall(request(b"", "Transfer-Encoding: chunked") + b"zz\r\nnot a size")
        response, said = answer(connection)
        assert response.status == 400
        assert "not valid HTTP" in json.loads(said)["error"]["message"]
        assert rest(connection) == b""


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01 hello", b"GET / HTTP/9.9\r\n\r\n", b"hello\r\n\r\n"]
)
def test_what_is_no_http(gateway: RunningGateway, data: bytes) -> None:
    with connected(gateway.url) as connection:
        connection.sendall(data)
        response, said = answer(connection)
        assert (response.status, response.headers["connection"]) == (400, "close")
        assert "not valid HTTP" in json.loads(said)["error"]["message"]
        assert rest(connection) == b""


def test_a_head_without_an_end(gateway: RunningGateway) -> None:
    with connected(gateway.url) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nx-long: ")
        with suppress(ConnectionError):
            for _ in range(40):
                connection.sendall(b"x" * 2**16)
        assert b" 431 " in rest(connection)[:20]


@pytest.mark.parametrize("stream", [False, True])
def test_http_1_0(gateway: RunningGateway, stream: bool) -> None:
    """It knows no chunks, and hears the end by the end of the connection."""
    with connected(gateway.url) as connection:
        connection.sendall(request(body(stream=stream), version="1.0"))
        head, _, said = rest(connection).partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head
        assert b"connection: close" in head
        assert said.startswith(b"data: " if stream else b"{")
        assert b"Hello" in said


def test_the_last_request_says_so(gateway: RunningGateway) -> None:
    with connected(gateway.url) as connection:
        connection.sendall(request(body(), "Connection: close"))
        head, _, said = rest(connection).partition(b"\r\n\r\n")
        assert b"connection: close" in head
        assert text_in(said) == SAID


def test_a_client_that_would_rather_speak_http_2(gateway: RunningGateway) -> None:
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMA")
    last = ("Connection: Upgrade, close", "Upgrade: h2c")
    with connected(gateway.url) as connection:
        connection.sendall(request(body(), *last))
        assert b"connection: close" in rest(connection)
    for cut in (0, 5, 10_000):
        data = request(body(), *upgrade)
        with connected(gateway.url) as connection:
            connection.sendall(data[: cut - 20] if cut < 10_000 else data)
            sleep(0.02)
            connection.sendall(data[cut - 20 :] if cut < 10_000 else b"")
            response, said = answer(connection)
            assert (response.status, text_in(said)) == (200, SAID)
            connection.sendall(request(target="/health"))
            assert answer(connection, "GET")[0].status == 200


def test_a_client_that_asks_first(gateway: RunningGateway) -> None:
    data = body()
    whole = request(data, "Expect: 100-continue")
    head, sent = whole[: -len(data)], whole[-len(data) :]
    with connected(gateway.url) as connection:
        connection.sendall(head)
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(sent)
        response, said = answer(connection)
        assert (response.status, text_in(said)) == (200, SAID)


def test_a_client_that_asks_first_and_is_refused(gateway: RunningGateway) -> None:
    with connected(gateway.url) as connection:
        length = "Content-Length: 900000"
        connection.sendall(request(None, "Expect: 100-continue", length).replace(b"GET", b"POST"))
        assert rest(connection).startswith(b"HTTP/1.1 415")


def test_a_whole_address_as_the_target(gateway: RunningGateway) -> None:
    with connected(gateway.url) as connection:
        connection.sendall(request(target=f"{gateway.url}/health?x=1"))
        assert json.loads(answer(connection, "GET")[1]) == {"status": "ok"}


def test_only_the_head(gateway: RunningGateway) -> None:
    with connected(gateway.url) as connection:
        connection.sendall(request(target="/health").replace(b"GET", b"HEAD"))
        connection.sendall(request(target="/health"))
        answers = Answers(connection)
        first, said = answers.next("HEAD")
        assert (first.headers["content-length"], said) == ("15", b"")
        assert json.loads(answers.next("GET")[1]) == {"status": "ok"}


def test_what_says_nothing_has_no_length(gateway: RunningGateway) -> None:
    with connected(gateway.url) as connection:
        connection.sendall(request(target="/health").replace(b"GET", b"OPTIONS"))
        response, _ = answer(connection)
        assert response.status == 204
        assert "content-length" not in response.headers


@pytest.mark.parametrize("keeps", [True, False])
def test_a_body_that_nobody_wants(gateway: RunningGateway, keeps: bool) -> None:
    """Who still sends it hears why; and may ask something else, by the same connection."""
    data = body(size=150_000)
    lines = () if keeps else ("Connection: close",)
    whole = request(data, *lines).replace(b"application/json", b"text/plain")
    with connected(gateway.url) as connection:
        connection.sendall(whole[:100_000])
        sleep(0.05)
        connection.sendall(whole[100_000:])
        assert answer(connection)[0].status == 415
        if keeps:
            connection.sendall(request(target="/health"))
            assert answer(connection, "GET")[0].status == 200
        else:
            assert rest(connection) == b""


def test_a_body_that_is_too_long_without_saying_so(gateway: RunningGateway) -> None:
    with connected(gateway.url) as connection:
        connection.sendall(request(b"", "Transfer-Encoding: chunked"))
        chunk = b"%x\r\n%b\r\n" % (50_000, b" " * 50_000)
        with suppress(ConnectionError):
            for _ in range(10):
                connection.sendall(chunk)
        assert answer(connection)[0].status == 413


def test_a_large_body(gateway: RunningGateway) -> None:
    with connected(gateway.url) as connection:
        connection.sendall(request(body(size=190_000)))
        response, said = answer(connection)
        assert (response.status, text_in(said)) == (200, SAID)


def test_one_that_says_no_more(gateway: RunningGateway) -> None:
    """Whoever closes its side before all was sent is gone."""
    with connected(gateway.url) as connection:
        connection.sendall(request(body())[:-10])
        connection.shutdown(SHUT_WR)
        assert rest(connection) == b""


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (request(None, target="/health"), 200),
        (request(None, target="/v1/models"), 200),
        (request(None, target="/nowhere"), 404),
        (request(b"no JSON"), 400),
    ],
    ids=["health", "models", "nowhere", "no JSON"],
)
def test_one_that_says_no_more_is_told_what_it_asked(
    gateway: RunningGateway, asked: bytes, status: int
) -> None:
    for _ in range(20):
        with connected(gateway.url) as connection:
            connection.sendall(asked)
            connection.shutdown(SHUT_WR)
            assert rest(connection).startswith(b"HTTP/1.1 %d " % status)


def test_connections_that_nobody_uses(
    model: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "_IDLE", 0.3)
    monkeypatch.setattr(http, "PATIENCE", 0.3)
    with run_gateway(make_config(model.url)) as gateway:
        for begun in (b"", b"POST /v1", request(body())):
            with connected(gateway.url) as connection:
                connection.sendall(begun)
                began = monotonic()
                rest(connection)
                assert 0.2 < monotonic() - began < 3


def test_the_end_of_the_gateway(model: ScriptedServer) -> None:
    """Connections that are not used are closed, and what has begun is answered."""
    with (
        run_gateway(make_config(model.url)) as gateway,
        connected(gateway.url) as idle,
        connected(gateway.url) as busy,
    ):
        idle.sendall(request(target="/health"))
        answer(idle, "GET")
        data = request(body())
        busy.sendall(data[:-5])
        sleep(0.1)
        stopping = threading.Thread(target=gateway.stop)
        stopping.start()
        assert rest(idle) == b""
        busy.sendall(data[-5:])
        head, _, said = rest(busy).partition(b"\r\n\r\n")
        assert b"connection: close" in head
        assert text_in(said) == SAID
        stopping.join(10)


# What a reviewer found.


@contextmanager
def serving(serve: callers.Serve) -> Generator[tuple[str, callers.Callers], None, None]:
    """Nothing but the connections, and something that serves them."""
    loop = asyncio.new_event_loop()
    served = callers.Callers(serve, Ticker())

    async def listen() -> asyncio.Server:
        return await loop.create_server(served.new, "127.0.0.1", 0)

    listening = loop.run_until_complete(listen())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def end() -> None:
        listening.close()
        served.close()
        served.abort()
        while served.connected or served.tasks:
            await asyncio.sleep(0.01)
        served.ticker.stop()

    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", served
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


def within(seconds: float, is_so: Callable[[], object]) -> None:
    until = monotonic() + seconds
    while not is_so() and monotonic() < until:
        sleep(0.01)
    assert is_so()


def test_one_that_takes_nothing_is_not_served_any_further(gateway: RunningGateway) -> None:
    """However much it asks, others are served meanwhile."""
    with connected(gateway.url) as connection:
        connection.setblocking(False)
        asked = request(None, "Accept: text/html", target="/") * 3000
        with suppress(BlockingIOError):
            while asked:
                asked = asked[connection.send(asked) :]
        sleep(0.3)
        assert gateway.gateway.metrics.active_requests < 5
        assert httpx.get(f"{gateway.url}/v1/models").status_code == 200


def test_what_comes_after_the_body_has_an_end(gateway: RunningGateway) -> None:
    with connected(gateway.url) as connection:
        connection.sendall(request(b"", "Transfer-Encoding: chunked") + b"0\r\n")
        with suppress(ConnectionError):
            for number in range(2000):
                connection.sendall(b"x-%d: %b\r\n" % (number, b"y" * 2000))
        with suppress(ConnectionError):
            assert b" 400 " in rest(connection)[:20]


def test_long_names_of_headers_are_not_remembered() -> None:
    names = http._NAMES  # pyright: ignore[reportPrivateUsage]
    before = len(names)
    head = http.Head("GET", "/", [(b"X" * 1000, b"1"), (b"Accept", b"2")])
    assert head.headers == {"x" * 1000: "1", "accept": "2"}
    assert len(names) <= before + 1


def test_not_all_names_of_headers_are_remembered() -> None:
    names = http._NAMES  # pyright: ignore[reportPrivateUsage]
    for number in range(2000):
        assert names[b"X-%d" % number] == f"x-{number}"
    assert len(names) <= 512


def test_a_header_that_decides_may_not_stand_there_twice() -> None:
    twice = [(b"Host", b"a"), (b"X-One", b"1"), (b"x-one", b"2"), (b"HOST", b"b")]
    assert http.Head("GET", "/", twice).doubled == "host"
    assert http.Head("GET", "/", twice[:3]).doubled == ""
    assert http.Head("GET", "/ab", twice[:2]).size == len("/abHostaX-One1")


def test_who_comes_while_all_ends_is_not_waited_for() -> None:
    async def nothing(incoming: http.Incoming, sender: http.Sender) -> None:
        await sender.whole(200, b"")

    with serving(nothing) as (url, served):
        with connected(url) as early:
            early.sendall(request(target="/"))
            assert answer(early, "GET")[0].headers["connection"] is None
            served.is_closing = True
            early.sendall(request(target="/"))
            assert answer(early, "GET")[0].headers["connection"] == "close"
            assert rest(early) == b""
        with connected(url) as late:
            assert rest(late) == b""
        within(2, lambda: not served.connected)


@pytest.mark.parametrize("begins", [True, False])
def test_an_answer_without_an_end_ends_the_connection(begins: bool) -> None:
    async def stops(incoming: http.Incoming, sender: http.Sender) -> None:
        if begins:
            await sender.begin(200, "text/plain")
            await sender.more(b"Well", 0.0)

    with serving(stops) as (url, served), connected(url) as connection:
        connection.sendall(request(target="/"))
        assert rest(connection).endswith(b"Well\r\n" if begins else b"")
        within(2, lambda: not served.connected)


def test_one_that_reads_slowly_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "PATIENCE", 0.4)
    said = b"x" * 12_000_000

    async def says(incoming: http.Incoming, sender: http.Sender) -> None:
        await sender.whole(200, said)

    with serving(says) as (url, served), connected(url) as connection:
        connection.sendall(request(None, "Connection: close", target="/"))
        heard = 0
        began = monotonic()
        while data := connection.recv(2**17):
            heard += len(data)
            sleep(0.015)
        assert monotonic() - began > 0.8
        assert heard > len(said)
        assert not served.tasks


def test_nothing_is_done_after_the_last_request(
    model: ScriptedServer, gateway: RunningGateway
) -> None:
    before = len(model.requests)
    with connected(gateway.url) as connection:
        data = request(body(), "Connection: close").replace(b"application/json", b"text/plain")
        connection.sendall(data[:-20])
        sleep(0.1)
        connection.sendall(data[-20:] + request(body()))
        said = rest(connection)
    assert said.count(b"HTTP/1.1 ") == 1
    assert len(model.requests) == before


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_body_that_does_not_wait_for_the_word(gateway: RunningGateway, version: str) -> None:
    with connected(gateway.url) as connection:
        connection.sendall(request(body(), "Expect: 100-continue", version=version))
        answers = Answers(connection)
        response, said = answers.next()
        assert (response.status, text_in(said)) == (200, SAID)
        if version == "1.1":
            connection.sendall(request(target="/health"))
            assert answers.next("GET")[0].status == 200


def test_one_that_asked_twice_and_goes() -> None:
    """Is noticed while the first is still being answered."""
    ended: list[str] = []

    async def hangs(incoming: http.Incoming, sender: http.Sender) -> None:
        try:
            await incoming.body(1000)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(incoming.path)

    with serving(hangs) as (url, served):
        with connected(url) as connection:
            connection.sendall(request(target="/a") + request(target="/b"))
            within(2, lambda: served.tasks)
            connection.sendall(request(target="/c"))
            sleep(0.05)
        within(1, lambda: not served.tasks and not served.connected)
        assert ended == ["/a"]


def test_much_that_is_asked_before_there_is_an_answer() -> None:
    """In whichever pieces it comes, and whatever has to wait."""

    async def counts(incoming: http.Incoming, sender: http.Sender) -> None:
        data = await incoming.body(10**6)
        await asyncio.sleep(0.001)
        await sender.whole(200, str(len(data)).encode())

    sizes = [0, 10, 100_000, 1, 200_000, 70_000, 3]
    asked = b"".join(request(b"x" * size, target=f"/{size}") for size in sizes)
    for cut in (999, 50_000, len(asked)):
        with serving(counts) as (url, _), connected(url) as connection:

            def send(connection: socket = connection, cut: int = cut) -> None:
                for at in range(0, len(asked), cut):
                    connection.sendall(asked[at : at + cut])

            sending = threading.Thread(target=send)
            sending.start()
            answers = Answers(connection)
            assert [int(answers.next()[1]) for _ in sizes] == sizes
            sending.join(5)


def test_the_head_of_what_has_no_end(model: ScriptedServer) -> None:
    with (
        run_gateway(make_config(model.url), token="t") as served,
        connected(served.url) as connection,
    ):
        live = request(None, "Authorization: Bearer t", target="/inspector/api/live")
        connection.sendall(live.replace(b"GET", b"HEAD") + request(target="/health"))
        answers = Answers(connection)
        assert answers.next("HEAD")[0].status == 200
        assert answers.next("GET")[0].status == 200


def test_no_header_breaks_the_line() -> None:
    class Nobody:
        written = b""

    sender = http.Sender(Nobody())  # pyright: ignore[reportArgumentType]
    sender.headers["x-odd"] = "one\r\nset-cookie: two"
    with pytest.raises(ValueError, match="line break"):
        sender.put(200, b"")
