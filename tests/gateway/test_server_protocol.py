"""What clients may do with a connection, and how the server responds."""

from __future__ import annotations

import asyncio
import json
import resource
import socket as sockets
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from socket import SHUT_WR, socket
from time import monotonic, sleep
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
from msgspec import structs

from tests.gateway.gateway_process import wait_until
from tests.gateway.raw_clients import STREAMED, WHOLE, connect
from tests.gateway.running_gateway import RunningGateway, make_config, run_gateway
from tests.gateway.upstream_faults import FaultySetup, hang, start_setup
from toolspeak.config.settings import Limits
from toolspeak.events import Finish, TextDelta
from toolspeak.gateway import http, server_protocol
from toolspeak.gateway.http import (
    ClientDisconnected,
    HttpRequest,
    Receive,
    RequestHead,
    Scope,
    Send,
)
from toolspeak.gateway.http import HttpResponse as Response
from toolspeak.gateway.server_protocol import GatewayProtocol
from toolspeak.testing import ScriptedServer
from toolspeak.upstream.timers import Ticker

TEXT = "Hello."
PATH = "/v1/chat/completions"


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer([TextDelta(TEXT), Finish("stop")]) as server:
        yield server


@pytest.fixture
def short_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Close refused connections soon, in tests whose clients have sent everything by then."""
    monkeypatch.setattr(server_protocol, "_LINGER", 0.2)


@pytest.fixture(scope="module")
def gateway(model: ScriptedServer) -> Iterator[RunningGateway]:
    config = structs.replace(make_config(model.url), limits=Limits(body_bytes=200_000))
    with run_gateway(config) as running:
        yield running


def make_body(*, stream: bool = False, size: int = 0) -> bytes:
    (client,) = [each for each in (STREAMED if stream else WHOLE) if each.wire == "openai_chat"]
    value = client.body()
    if size:
        value["messages"] = [{"role": "user", "content": "x" * size}]
    return json.dumps(value).encode()


def encode_request(
    body: bytes | None = None,
    *headers: str,
    target: str = PATH,
    version: str = "1.1",
    method: str = "",
) -> bytes:
    """Return the bytes of a request: a GET if there is no body."""
    method = method or ("GET" if body is None else "POST")
    lines = [f"{method} {target} HTTP/{version}", "Host: 127.0.0.1", *headers]
    if body is not None:
        lines.append("Content-Type: application/json")
        if not any(line.lower().startswith("transfer-encoding") for line in headers):
            lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join((*lines, "", "")).encode() + (body or b"")


def encode_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def read_rest(connection: socket) -> bytes:
    """Return all data until the server closes the connection."""
    parts: list[bytes] = []
    with suppress(ConnectionError):
        while data := connection.recv(2**16):
            parts.append(data)
    return b"".join(parts)


class ResponseReader:
    """Reads the responses of a connection: `HTTPResponse` alone reads ahead, and closes it."""

    def __init__(self, connection: socket) -> None:
        self._file = connection.makefile("rb")

    def makefile(self, mode: str) -> ResponseReader:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def close(self) -> None:
        pass

    def read_next(self, method: str = "POST") -> tuple[HTTPResponse, bytes]:
        """Return the next response and its body."""
        response = HTTPResponse(self, method=method)  # pyright: ignore[reportArgumentType]
        response.begin()
        return response, response.read()


def read_response(connection: socket, method: str = "POST") -> tuple[HTTPResponse, bytes]:
    """Return the only response that is expected now."""
    return ResponseReader(connection).read_next(method)


def get_text(body: bytes) -> str:
    return json.loads(body)["choices"][0]["message"]["content"]


Serve = Callable[[HttpRequest, Response], Awaitable[None]]


class Application:
    """An ASGI application that serves every request with a function."""

    def __init__(self, serve: Serve) -> None:
        self.ticker = Ticker()
        self.targets: list[str] = []
        """The targets of all requests."""
        self.active_requests = 0
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = HttpRequest(scope, receive, self.ticker)
        self.targets.append(request.target)
        self.active_requests += 1
        try:
            await self._serve(request, Response(send, request.stop_watching))
        except ClientDisconnected:
            pass
        finally:
            request.stop_watching()
            self.active_requests -= 1


class RunningApplication:
    """An application that uvicorn serves in a thread with the gateway's protocol."""

    def __init__(self, serve: Serve) -> None:
        self.application = Application(serve)
        config = uvicorn.Config(
            self.application,  # pyright: ignore[reportArgumentType]
            http=GatewayProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        self.server = uvicorn.Server(config)
        self._listener = sockets.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def targets(self) -> list[str]:
        return self.application.targets

    @property
    def is_idle(self) -> bool:
        """Return True if no request is served and no connection is open."""
        return not self.application.active_requests and not self.server.server_state.connections

    def start(self) -> None:
        self._thread.start()
        wait_until(lambda: self.server.started)

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        async def serve() -> None:
            await self.server.serve(sockets=[self._listener])
            self.application.ticker.stop()

        asyncio.run(serve())


@contextmanager
def run_application(serve: Serve) -> Generator[RunningApplication]:
    running = RunningApplication(serve)
    running.start()
    try:
        yield running
    finally:
        running.stop()


async def respond_with_size(request: HttpRequest, response: Response) -> None:
    """Send the size of the request's body."""
    data = await request.read_body(10**6)
    await asyncio.sleep(0.001)
    await response.send_whole(200, str(len(data)).encode())


@pytest.fixture(scope="module")
def sizes() -> Iterator[RunningApplication]:
    with run_application(respond_with_size) as running:
        yield running


# Requests and connections.


def test_connection_with_many_requests_serves_all(gateway: RunningGateway) -> None:
    connection = HTTPConnection(urlsplit(gateway.url).netloc)
    names: set[object] = set()
    for _ in range(5):
        connection.request("POST", PATH, make_body(), {"content-type": "application/json"})
        response = connection.getresponse()
        assert (response.status, get_text(response.read())) == (200, TEXT)
        assert response.headers["date"].endswith("GMT")
        assert connection.sock
        names.add(connection.sock.getsockname())
    assert len(names) == 1
    connection.close()


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_request_in_pieces_is_served(gateway: RunningGateway, size: int) -> None:
    data = encode_request(make_body())
    with connect(gateway.url) as connection:
        for at in range(0, len(data), size):
            connection.sendall(data[at : at + size])
            if size < 100 and at < 300:
                sleep(0.001)
        response, body = read_response(connection)
        assert (response.status, get_text(body)) == (200, TEXT)


def test_pipelined_requests_are_answered_in_order(gateway: RunningGateway) -> None:
    with connect(gateway.url) as connection:
        requests = [
            encode_request(make_body()),
            encode_request(target="/health"),
            encode_request(make_body(stream=True)),
            encode_request(target="/nowhere"),
        ]
        connection.sendall(b"".join(requests))
        reader = ResponseReader(connection)
        first, body = reader.read_next()
        assert (first.status, get_text(body)) == (200, TEXT)
        second, body = reader.read_next("GET")
        assert (second.status, json.loads(body)) == (200, {"status": "ok"})
        third, body = reader.read_next()
        assert third.headers["transfer-encoding"] == "chunked"
        assert b"Hello" in body
        assert reader.read_next("GET")[0].status == 404


@pytest.mark.parametrize("size", [999, 50_000, 10**6])
def test_pipelined_bodies_in_pieces_keep_their_order(sizes: RunningApplication, size: int) -> None:
    lengths = [0, 10, 100_000, 1, 200_000, 70_000, 3]
    data = b"".join(encode_request(b"x" * length, target=f"/{length}") for length in lengths)
    with connect(sizes.url) as connection:

        def send() -> None:
            for at in range(0, len(data), size):
                connection.sendall(data[at : at + size])

        thread = threading.Thread(target=send)
        thread.start()
        reader = ResponseReader(connection)
        assert [int(reader.read_next()[1]) for _ in lengths] == lengths
        thread.join(60)


def test_pipelined_request_with_an_invalid_body_leaves_the_first_response_whole() -> None:
    has_two = threading.Event()

    async def respond(request: HttpRequest, response: Response) -> None:
        await response.begin(200, "text/plain")
        await response.send_chunk(b"first", 0.0)
        while not has_two.is_set():
            await asyncio.sleep(0.01)
        await response.end(b"last")

    with run_application(respond) as running, connect(running.url) as connection:
        connection.sendall(encode_request(target="/a"))
        wait_until(lambda: running.targets)
        second = encode_request(b"", "Transfer-Encoding: chunked", target="/b")
        connection.sendall(second + b"zz\r\n")
        sleep(0.2)
        has_two.set()
        data = read_rest(connection)
        assert data.count(b"HTTP/1.1 ") == 1
        assert data.endswith(b"5\r\nfirst\r\n4\r\nlast\r\n0\r\n\r\n")
        assert running.targets == ["/a"]


def test_request_with_absolute_target_is_served(gateway: RunningGateway) -> None:
    with connect(gateway.url) as connection:
        connection.sendall(encode_request(target=f"{gateway.url}/health?x=1"))
        assert json.loads(read_response(connection, "GET")[1]) == {"status": "ok"}


def test_connect_request_is_refused(gateway: RunningGateway) -> None:
    with connect(gateway.url) as connection:
        connection.sendall(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
        response, body = read_response(connection)
        assert (response.status, response.headers["connection"]) == (400, "close")
        assert "not a proxy" in json.loads(body)["error"]["message"]


def test_head_request_gets_no_body(gateway: RunningGateway) -> None:
    with connect(gateway.url) as connection:
        connection.sendall(encode_request(target="/health", method="HEAD"))
        connection.sendall(encode_request(target="/health"))
        reader = ResponseReader(connection)
        first, body = reader.read_next("HEAD")
        assert (first.headers["content-length"], body) == ("15", b"")
        assert json.loads(reader.read_next("GET")[1]) == {"status": "ok"}


def test_head_request_of_an_endless_stream_ends(model: ScriptedServer) -> None:
    with (
        run_gateway(make_config(model.url), token="t") as running,
        connect(running.url) as connection,
    ):
        key = "Authorization: Bearer t"
        live = encode_request(None, key, target="/inspector/api/live", method="HEAD")
        connection.sendall(live + encode_request(target="/health"))
        reader = ResponseReader(connection)
        assert reader.read_next("HEAD")[0].status == 200
        assert reader.read_next("GET")[0].status == 200


def test_response_without_content_has_no_length(gateway: RunningGateway) -> None:
    with connect(gateway.url) as connection:
        connection.sendall(encode_request(target="/health", method="OPTIONS"))
        response, _ = read_response(connection)
        assert response.status == 204
        assert "content-length" not in response.headers


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_http_1_0_client_gets_a_response_without_chunks(
    gateway: RunningGateway, stream: bool
) -> None:
    with connect(gateway.url) as connection:
        connection.sendall(encode_request(make_body(stream=stream), version="1.0"))
        head, _, body = read_rest(connection).partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head
        assert b"connection: close" in head
        assert body.startswith(b"data: " if stream else b"{")
        assert body.endswith(b"data: [DONE]\n\n" if stream else b"}")
        assert b"Hello" in body


def test_last_request_closes_the_connection(gateway: RunningGateway) -> None:
    with connect(gateway.url) as connection:
        connection.sendall(encode_request(make_body(), "Connection: close"))
        head, _, body = read_rest(connection).partition(b"\r\n\r\n")
        assert b"connection: close" in head
        assert get_text(body) == TEXT


def test_request_after_the_last_one_is_not_served(
    model: ScriptedServer, gateway: RunningGateway
) -> None:
    before = len(model.requests)
    with connect(gateway.url) as connection:
        data = encode_request(make_body(), "Connection: close")
        data = data.replace(b"application/json", b"text/plain")
        connection.sendall(data[:-20])
        sleep(0.1)
        with suppress(ConnectionError):
            connection.sendall(data[-20:] + encode_request(make_body()))
        rest = read_rest(connection)
    assert rest.count(b"HTTP/1.1 ") == 1
    assert len(model.requests) == before


@pytest.mark.parametrize("size", [1, 5, 100, 10_000])
def test_upgrade_request_is_served_without_upgrade(gateway: RunningGateway, size: int) -> None:
    headers = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMA")
    data = encode_request(make_body(), *headers)
    with connect(gateway.url) as connection:
        for at in range(0, len(data), size):
            connection.sendall(data[at : at + size])
        response, body = read_response(connection)
        assert (response.status, get_text(body)) == (200, TEXT)
        connection.sendall(encode_request(target="/health"))
        assert read_response(connection, "GET")[0].status == 200


def test_last_upgrade_request_closes_the_connection(gateway: RunningGateway) -> None:
    with connect(gateway.url) as connection:
        headers = ("Connection: Upgrade, close", "Upgrade: h2c")
        connection.sendall(encode_request(make_body(), *headers))
        head, _, body = read_rest(connection).partition(b"\r\n\r\n")
        assert b"connection: close" in head
        assert get_text(body) == TEXT


def test_upgrade_request_after_others_leaves_them_whole(sizes: RunningApplication) -> None:
    upgrade = ("Connection: Upgrade", "Upgrade: h2c")
    first = encode_request(b"x" * 10, target="/first")
    with connect(sizes.url) as connection:
        connection.sendall(first + encode_request(b"xyz", *upgrade) * 400)
        reader = ResponseReader(connection)
        assert [int(reader.read_next()[1]) for _ in range(401)] == [10] + [3] * 400


# Bodies.


def test_body_in_chunks_is_served(gateway: RunningGateway) -> None:
    data = make_body()
    with connect(gateway.url) as connection:
        connection.sendall(encode_request(b"", "Transfer-Encoding: chunked"))
        connection.sendall(encode_chunk(data[:10]) + encode_chunk(data[10:]) + b"0\r\n\r\n")
        response, body = read_response(connection)
        assert (response.status, get_text(body)) == (200, TEXT)


@pytest.mark.usefixtures("short_linger")
def test_body_of_invalid_chunks_is_refused(gateway: RunningGateway) -> None:
    with connect(gateway.url) as connection:
        connection.sendall(encode_request(b"", "Transfer-Encoding: chunked") + b"zz\r\nno size")
        response, body = read_response(connection)
        assert response.status == 400
        assert "not valid HTTP" in json.loads(body)["error"]["message"]
        assert read_rest(connection) == b""


def test_large_body_is_served(gateway: RunningGateway) -> None:
    with connect(gateway.url) as connection:
        connection.sendall(encode_request(make_body(size=190_000)))
        response, body = read_response(connection)
        assert (response.status, get_text(body)) == (200, TEXT)


def test_endless_chunked_body_is_refused(gateway: RunningGateway) -> None:
    with connect(gateway.url) as connection:
        connection.sendall(encode_request(b"", "Transfer-Encoding: chunked"))
        with suppress(ConnectionError):
            for _ in range(10):
                connection.sendall(encode_chunk(b" " * 50_000))
        assert read_response(connection)[0].status == 413


@pytest.mark.parametrize("is_last", [False, True], ids=["kept", "last"])
def test_body_of_a_refused_request_does_not_cut_off_the_response(
    gateway: RunningGateway, is_last: bool
) -> None:
    headers = ("Connection: close",) if is_last else ()
    data = encode_request(make_body(size=150_000), *headers)
    data = data.replace(b"application/json", b"text/plain")
    with connect(gateway.url) as connection:
        connection.sendall(data[:100_000])
        sleep(0.05)
        connection.sendall(data[100_000:])
        assert read_response(connection)[0].status == 415
        if is_last:
            assert read_rest(connection) == b""
        else:
            connection.sendall(encode_request(target="/health"))
            assert read_response(connection, "GET")[0].status == 200


def test_endless_trailers_are_refused(gateway: RunningGateway) -> None:
    with connect(gateway.url) as connection:
        connection.sendall(encode_request(b"", "Transfer-Encoding: chunked") + b"0\r\n")
        with suppress(ConnectionError):
            for number in range(2000):
                connection.sendall(b"x-%d: %b\r\n" % (number, b"y" * 2000))
        assert b" 431 " in read_rest(connection)[:20]


def test_trailers_are_not_headers() -> None:
    names: list[str] = []

    async def respond(request: HttpRequest, response: Response) -> None:
        await request.read_body(1000)
        names.extend(request.headers)
        await response.send_whole(200, b"")

    with run_application(respond) as running, connect(running.url) as connection:
        head = encode_request(b"", "Transfer-Encoding: chunked", target="/")
        connection.sendall(head + b"0\r\nAuthorization: Bearer t\r\n\r\n")
        assert read_response(connection)[0].status == 200
    assert "transfer-encoding" in names
    assert "authorization" not in names


# Permission to send the body.


def test_client_that_expects_continue_gets_it(gateway: RunningGateway) -> None:
    body = make_body()
    data = encode_request(body, "Expect: 100-continue")
    with connect(gateway.url) as connection:
        connection.sendall(data[: -len(body)])
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        response, body = read_response(connection)
        assert (response.status, get_text(body)) == (200, TEXT)
        connection.sendall(encode_request(target="/health"))
        assert read_response(connection, "GET")[0].status == 200


@pytest.mark.usefixtures("short_linger")
@pytest.mark.parametrize("content_type", ["text/plain", "application/json"])
def test_client_that_is_refused_continue_is_disconnected(
    gateway: RunningGateway, content_type: str
) -> None:
    headers = ("Expect: 100-continue", "Content-Length: 900000", f"Content-Type: {content_type}")
    with connect(gateway.url) as connection:
        connection.sendall(encode_request(None, *headers, method="POST"))
        rest = read_rest(connection)
        status = 415 if content_type == "text/plain" else 413
        assert rest.startswith(b"HTTP/1.1 %d " % status)
        assert b"connection: close" in rest


def test_request_in_a_body_without_continue_is_not_served() -> None:
    async def refuse(request: HttpRequest, response: Response) -> None:
        await response.send_whole(403, b"")

    with run_application(refuse) as running, connect(running.url) as connection:
        inner = encode_request(target="/inner")
        connection.sendall(encode_request(None, "Expect: 100-continue", "Content-Length: 9999"))
        wait_until(lambda: running.targets)
        with suppress(ConnectionError):
            connection.sendall(inner * 400)
        assert read_rest(connection).count(b"HTTP/1.1 ") == 1
        assert running.targets == [PATH]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_body_that_does_not_wait_for_continue_is_served(
    gateway: RunningGateway, version: str
) -> None:
    with connect(gateway.url) as connection:
        connection.sendall(encode_request(make_body(), "Expect: 100-continue", version=version))
        if version == "1.0":
            data = read_rest(connection)
            assert data.startswith(b"HTTP/1.1 200 ")
            assert get_text(data.partition(b"\r\n\r\n")[2]) == TEXT
            return
        reader = ResponseReader(connection)
        response, body = reader.read_next()
        assert (response.status, get_text(body)) == (200, TEXT)
        connection.sendall(encode_request(target="/health"))
        assert reader.read_next("GET")[0].status == 200


# Invalid requests.


@pytest.mark.usefixtures("short_linger")
@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01 hello",
        b"GET / HTTP/9.9\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_garbage_gets_an_error(gateway: RunningGateway, data: bytes) -> None:
    with connect(gateway.url) as connection:
        connection.sendall(data)
        response, body = read_response(connection)
        assert (response.status, response.headers["connection"]) == (400, "close")
        assert response.headers["content-type"] == "application/json"
        assert "not valid HTTP" in json.loads(body)["error"]["message"]
        assert read_rest(connection) == b""


def read_memory() -> int:
    """Return the bytes of memory that this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize(
    "data",
    [b"x" * 2**16, b"x-header: value\r\n" * 2**12],
    ids=["one long header", "many headers"],
)
def test_endless_head_is_refused(gateway: RunningGateway, data: bytes) -> None:
    httpx.get(f"{gateway.url}/health")
    before = read_memory()
    with connect(gateway.url) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nx-long: 1")
        with suppress(ConnectionError):
            for _ in range(500):
                connection.sendall(data)
        response, body = read_response(connection, "GET")
        assert (response.status, response.headers["connection"]) == (431, "close")
        assert "bytes of headers or trailers" in json.loads(body)["error"]["message"]
    assert read_memory() - before < 16 * 2**20


def test_head_that_is_longer_than_allowed_is_refused(
    sizes: RunningApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_protocol, "MAX_HEAD", 1000)
    with connect(sizes.url) as connection:
        connection.sendall(b"GET /long HTTP/1.1\r\nx-long: ")
        sleep(0.1)
        connection.sendall(b"x" * 1001)
        assert read_response(connection, "GET")[0].status == 431
    assert "/long" not in sizes.targets


INNER = "GET /inner HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED_INNER = f"0\r\n\r\n{INNER}"
INNER_SIZE = len(CHUNKED_INNER)
SMUGGLING_FORMS = {
    "CL.TE": (f"Content-Length: {INNER_SIZE}\r\nTransfer-Encoding: chunked", CHUNKED_INNER),
    "TE.CL": (f"Transfer-Encoding: chunked\r\nContent-Length: {INNER_SIZE}", CHUNKED_INNER),
    "TE.TE": ("Transfer-Encoding: chunked\r\nTransfer-Encoding: x", CHUNKED_INNER),
    "TE.TE reversed": ("Transfer-Encoding: x\r\nTransfer-Encoding: identity", CHUNKED_INNER),
    "TE not chunked": ("Transfer-Encoding: chunked, identity", CHUNKED_INNER),
    "TE unknown": ("Transfer-Encoding: xchunked", CHUNKED_INNER),
    "TE with vertical tab": ("Transfer-Encoding: \x0bchunked", CHUNKED_INNER),
    "CL repeated": ("Content-Length: 0\r\nContent-Length: 0", INNER),
    "CL differing": (f"Content-Length: {len(INNER)}\r\nContent-Length: 0", INNER),
    "CL list": (f"Content-Length: {len(INNER)}, 0", INNER),
    "CL with plus": ("Content-Length: +0", INNER),
    "CL with minus": ("Content-Length: -0", INNER),
    "CL in hexadecimal": ("Content-Length: 0x0", INNER),
    "CL too large": ("Content-Length: 18446744073709551616", INNER),
    "space before colon": ("Content-Length : 0", INNER),
    "TE space before colon": (
        f"Transfer-Encoding : chunked\r\nContent-Length: {INNER_SIZE}",
        CHUNKED_INNER,
    ),
    "folded TE": (
        f"Content-Length: {INNER_SIZE}\r\nTransfer-Encoding:\r\n chunked",
        CHUNKED_INNER,
    ),
    "folded header": (
        f"x: y\r\n Transfer-Encoding: chunked\r\nContent-Length: {len(INNER)}",
        INNER,
    ),
    "folded length": (f"Content-Length:\r\n {len(INNER)}", INNER),
    "bare LF": (f"x: y\nTransfer-Encoding: chunked\r\nContent-Length: {INNER_SIZE}", CHUNKED_INNER),
    "bare CR": (f"x: y\rTransfer-Encoding: chunked\r\nContent-Length: {INNER_SIZE}", CHUNKED_INNER),
    "bare LF at the end": (f"Content-Length: {len(INNER)}\n", INNER),
    "chunk size with sign": ("Transfer-Encoding: chunked", f"+0\r\n\r\n{INNER}"),
    "chunk size with prefix": ("Transfer-Encoding: chunked", f"0x0\r\n\r\n{INNER}"),
    "chunk with bare LF": ("Transfer-Encoding: chunked", f"0\n\n{INNER}"),
    "chunk extension with bare LF": ("Transfer-Encoding: chunked", f"0;x\n\n{INNER}"),
    "chunk longer than its size": ("Transfer-Encoding: chunked", f"1\r\nab\r\n{CHUNKED_INNER}"),
}
"""Headers of a POST, and what follows: a request that a proxy would see in another place."""


@pytest.mark.parametrize("size", [10_000, 1], ids=["at once", "in bytes"])
@pytest.mark.parametrize("name", SMUGGLING_FORMS)
def test_request_of_ambiguous_length_hides_no_other(
    sizes: RunningApplication, name: str, size: int
) -> None:
    headers, rest = SMUGGLING_FORMS[name]
    data = f"POST /outer HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n{rest}".encode()
    with connect(sizes.url) as connection:
        with suppress(ConnectionError):
            for at in range(0, len(data), size):
                connection.sendall(data[at : at + size])
            connection.shutdown(SHUT_WR)
        received = read_rest(connection)
    assert received.count(b"HTTP/1.1 ") == 1
    assert "/inner" not in sizes.targets


def test_repeated_header_that_decides_is_found() -> None:
    def make_head(*headers: tuple[bytes, bytes]) -> RequestHead:
        scope = {"method": "GET", "path": "/ab", "query_string": b"", "headers": list(headers)}
        return RequestHead(scope)

    repeated = [(b"Host", b"a"), (b"X-One", b"1"), (b"x-one", b"2"), (b"HOST", b"b")]
    assert make_head(*repeated).repeated_header == "host"
    assert make_head(*repeated[:3]).repeated_header == ""
    assert make_head(*repeated[:2]).size == len("/abHostaX-One1")


# Responses.


@pytest.mark.parametrize("has_begun", [True, False])
def test_response_without_an_end_closes_the_connection(has_begun: bool) -> None:
    async def stop(request: HttpRequest, response: Response) -> None:
        if has_begun:
            await response.begin(200, "text/plain")
            await response.send_chunk(b"Well", 0.0)

    with run_application(stop) as running, connect(running.url) as connection:
        connection.sendall(encode_request(target="/"))
        rest = read_rest(connection)
        if has_begun:
            assert rest.endswith(b"Well\r\n")
        else:
            assert rest.startswith(b"HTTP/1.1 500 ")
        wait_until(lambda: running.is_idle)


@pytest.mark.parametrize("value", ["one\r\nset-cookie: two", "one\ntwo", "one\rtwo"])
def test_response_header_with_line_break_is_rejected(value: str) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    response = Response(send)
    response.headers["x-odd"] = value
    with pytest.raises(ValueError, match="line break"):
        asyncio.run(response.send_whole(200, b""))
    assert sent == []


# Clients that disconnect, or send no more.


def test_half_closed_request_without_its_whole_body_is_dropped(gateway: RunningGateway) -> None:
    with connect(gateway.url) as connection:
        connection.sendall(encode_request(make_body())[:-10])
        connection.shutdown(SHUT_WR)
        assert read_rest(connection) == b""


@pytest.mark.parametrize(
    ("request_data", "status"),
    [
        (encode_request(None, target="/health"), 200),
        (encode_request(None, target="/v1/models"), 200),
        (encode_request(None, target="/nowhere"), 404),
        (encode_request(b"no JSON"), 400),
    ],
    ids=["health", "models", "nowhere", "no JSON"],
)
def test_half_closed_client_gets_its_response(
    gateway: RunningGateway, request_data: bytes, status: int
) -> None:
    for _ in range(20):
        with connect(gateway.url) as connection:
            connection.sendall(request_data)
            connection.shutdown(SHUT_WR)
            data = read_rest(connection)
            # Interim responses tell whether the client is still there.
            assert b"HTTP/1.1 %d " % status in data


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_half_closed_client_gets_its_whole_reply(
    gateway: RunningGateway, stream: bool, version: str
) -> None:
    with connect(gateway.url) as connection:
        connection.sendall(encode_request(make_body(stream=stream), version=version))
        connection.shutdown(SHUT_WR)
        if version == "1.0":
            body = read_rest(connection).partition(b"\r\n\r\n")[2]
        else:
            body = read_response(connection)[1]
        if stream:
            assert body.endswith(b"data: [DONE]\n\n")
        else:
            assert get_text(body) == TEXT


def read_by_http_client(url: str, close_half: Callable[[socket], None]) -> bytes:
    connection = HTTPConnection(urlsplit(url).netloc)
    connection.request("GET", "/")
    assert connection.sock
    close_half(connection.sock)
    data = connection.getresponse().read()
    connection.close()
    return data


def read_by_httpx(url: str, close_half: Callable[[socket], None]) -> bytes:
    with httpx.Client(trust_env=False) as client, client.stream("GET", url) as response:
        close_half(response.extensions["network_stream"].get_extra_info("socket"))
        return response.read()


@pytest.mark.parametrize("read", [read_by_http_client, read_by_httpx])
def test_half_closed_client_of_a_silent_stream_gets_all_of_it(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[str, Callable[[socket], None]], bytes]
) -> None:
    """Zeros in front of the size of the next chunk tell whether the client is still there."""
    monkeypatch.setattr(server_protocol, "_PROBE_INTERVALS", (0.01, 0.01, 0.01))
    is_half_closed = threading.Event()

    async def respond(request: HttpRequest, response: Response) -> None:
        await response.begin(200, "text/plain")
        await response.send_chunk(b"first", 0.0)
        while not is_half_closed.is_set():
            await asyncio.sleep(0.01)
        for data in (b"x" * 70_000, b"y", b""):
            # All probes are sent in the first pause.
            await asyncio.sleep(1.0 if data[:1] == b"x" else 0.01)
            await response.send_chunk(data, 0.0)
        await response.end(b"last")

    def close_half(connection: socket) -> None:
        connection.shutdown(SHUT_WR)
        is_half_closed.set()

    with run_application(respond) as running:
        assert read(running.url, close_half) == b"first" + b"x" * 70_000 + b"ylast"


def test_half_closed_client_of_a_stream_that_ends_gets_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_protocol, "_PROBE_INTERVALS", (0.01, 0.01, 0.01))

    async def respond(request: HttpRequest, response: Response) -> None:
        await response.begin(200, "text/plain")
        await response.send_chunk(b"first", 0.0)
        await asyncio.sleep(1.0)
        await response.end()

    with run_application(respond) as running, connect(running.url) as connection:
        connection.sendall(encode_request(target="/"))
        reader = ResponseReader(connection)
        connection.shutdown(SHUT_WR)
        assert reader.read_next("GET")[1] == b"first"


def test_client_that_closes_during_a_silent_stream_ends_the_request() -> None:
    async def respond(request: HttpRequest, response: Response) -> None:
        await request.read_body(1000)
        await response.begin(200, "text/plain")
        await response.send_chunk(b"first", 0.0)
        await asyncio.sleep(600)

    with run_application(respond) as running:
        with connect(running.url) as connection:
            connection.sendall(encode_request(target="/"))
            data = b""
            while b"first" not in data:
                data += connection.recv(1000)
        wait_until(lambda: running.is_idle)


def test_half_closed_client_with_pipelined_requests_gets_all_responses() -> None:
    async def respond(request: HttpRequest, response: Response) -> None:
        await request.read_body(1000)
        await response.begin(200, "text/plain")
        for _ in range(8):
            await response.send_chunk(b"x", server_protocol.perf_counter())
            await asyncio.sleep(0.1)
        await response.end()

    with run_application(respond) as running, connect(running.url) as connection:
        connection.sendall(encode_request(target="/a") + encode_request(target="/b"))
        connection.shutdown(SHUT_WR)
        reader = ResponseReader(connection)
        assert reader.read_next("GET")[1] == b"x" * 8
        assert reader.read_next("GET")[1] == b"x" * 8


@pytest.fixture(scope="module")
def setup() -> Iterator[FaultySetup]:
    with start_setup() as setup:
        yield setup


def test_client_that_closes_while_a_whole_reply_is_awaited_ends_the_request(
    setup: FaultySetup,
) -> None:
    setup.upstream.set_actions(hang())
    with connect(setup.url) as connection:
        connection.sendall(encode_request(make_body()))
        wait_until(lambda: setup.upstream.active_requests)
    wait_until(lambda: not setup.upstream.active_requests)
    setup.wait_until_idle()


def test_client_that_closes_with_pipelined_requests_ends_the_first() -> None:
    cancelled: list[str] = []

    async def hang_up(request: HttpRequest, response: Response) -> None:
        try:
            await request.read_body(1000)
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancelled.append(request.path)

    with run_application(hang_up) as running:
        with connect(running.url) as connection:
            connection.sendall(encode_request(target="/a") + encode_request(target="/b"))
            wait_until(lambda: running.application.active_requests)
            connection.sendall(encode_request(target="/c"))
            sleep(0.05)
        wait_until(lambda: running.is_idle)
        assert cancelled == ["/a"]


# Clients that are slow.


@pytest.mark.parametrize(
    "data",
    [b"", b"POST /v1", encode_request(target="/x")[:-2], encode_request(make_body())[:-1]],
    ids=["nothing", "half a line", "half a head", "half a body"],
)
def test_slow_request_is_closed(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(server_protocol, "REQUEST_TIMEOUT", 0.3)
    monkeypatch.setattr(http, "BODY_TIMEOUT", 0.3)
    with connect(gateway.url) as connection:
        connection.sendall(data)
        start = monotonic()
        rest = read_rest(connection)
        assert monotonic() - start > 0.2
    assert rest.startswith(b"HTTP/1.1 408 ") == (b"{" in data)


def test_head_that_comes_in_single_bytes_is_closed(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_protocol, "REQUEST_TIMEOUT", 0.3)
    with connect(gateway.url) as connection, suppress(ConnectionError):
        connection.sendall(b"GET /health HTTP/1.1\r\nx: ")
        end = monotonic() + 60
        while monotonic() < end:
            connection.sendall(b"x")
            sleep(0.02)
        pytest.fail("the connection is still open")


def test_idle_connection_is_closed_even_if_it_sends_empty_lines() -> None:
    with run_application(respond_with_size) as running:
        running.server.config.timeout_keep_alive = 1
        with connect(running.url) as connection:
            connection.sendall(encode_request(target="/"))
            read_response(connection, "GET")
            connection.sendall(b"\r\n")
            assert read_rest(connection) == b""


def test_client_that_reads_slowly_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_protocol, "REQUEST_TIMEOUT", 0.6)
    body = b"x" * 12_000_000

    async def respond(request: HttpRequest, response: Response) -> None:
        await response.send_whole(200, body)

    with run_application(respond) as running, connect(running.url) as connection:
        connection.sendall(encode_request(None, "Connection: close", target="/"))
        size = 0
        start = monotonic()
        while data := connection.recv(2**17):
            size += len(data)
            sleep(0.015)
        assert monotonic() - start > 0.8
        assert size > len(body)
        wait_until(lambda: running.is_idle)


def test_client_that_reads_nothing_is_not_served_further(gateway: RunningGateway) -> None:
    with connect(gateway.url) as connection:
        connection.setblocking(False)
        data = encode_request(None, "Accept: text/html", target="/") * 3000
        with suppress(BlockingIOError):
            while data:
                data = data[connection.send(data) :]
        sleep(0.3)
        assert gateway.gateway.metrics.active_requests < 5
        assert httpx.get(f"{gateway.url}/v1/models").status_code == 200


# The end of the server.


def test_stopping_closes_idle_connections_and_completes_requests(model: ScriptedServer) -> None:
    with (
        run_gateway(make_config(model.url)) as gateway,
        connect(gateway.url) as idle,
        connect(gateway.url) as busy,
    ):
        idle.sendall(encode_request(target="/health"))
        read_response(idle, "GET")
        data = encode_request(make_body())
        busy.sendall(data[:-5])
        wait_until(lambda: gateway.gateway.metrics.active_requests)
        thread = threading.Thread(target=gateway.stop)
        thread.start()
        assert read_rest(idle) == b""
        busy.sendall(data[-5:])
        head, _, body = read_rest(busy).partition(b"\r\n\r\n")
        assert b"connection: close" in head
        assert get_text(body) == TEXT
        thread.join(60)


def test_connection_that_arrives_while_the_server_stops_is_closed() -> None:
    is_over = threading.Event()

    async def respond(request: HttpRequest, response: Response) -> None:
        while not is_over.is_set():
            await asyncio.sleep(0.01)
        await response.send_whole(200, b"")

    with run_application(respond) as running, connect(running.url) as early:
        early.sendall(encode_request(target="/"))
        wait_until(lambda: running.targets)
        running.server.should_exit = True
        sleep(0.3)
        with suppress(ConnectionError), connect(running.url) as late:
            assert read_rest(late) == b""
        is_over.set()
        assert read_response(early, "GET")[0].headers["connection"] == "close"
        assert read_rest(early) == b""


def test_limits_are_those_of_the_security_page() -> None:
    assert (server_protocol.REQUEST_TIMEOUT, http.BODY_TIMEOUT) == (120, 120)
    # A head in two parts of the largest size that is read at once.
    assert server_protocol.MAX_HEAD == 2**18
