"""Servers that send bytes which no server should send, and a table of them.

The servers run in a thread of their own, so that a client that is busy cannot slow them down. The
table is also replayed against other HTTP clients: `python -m bench.http_clients`.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

Behavior = Callable[["HostileConnection"], Awaitable[None]]

STATUS = b"HTTP/1.1 200 OK\r\n"
OK = STATUS + b"Content-Type: application/json\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
HELLO = OK + b"Content-Length: 5\r\n\r\nhello"
HELLO_TWICE = HELLO + HELLO
_SEVERAL = 2**16


class HostileConnection:
    """One connection to a hostile server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.head = b""
        self.sent = 0

    async def read_request(self) -> bool:
        """Read a request with its body; return False if the client has closed the connection."""
        try:
            self.head = await self.reader.readuntil(b"\r\n\r\n")
            lines = [one for one in self.head.lower().split(b"\r\n") if b"content-length" in one]
            await self.reader.readexactly(int(lines[0].split(b":")[1]) if lines else 0)
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        return True

    async def send(self, data: bytes) -> None:
        """Send data once the client has taken most of the data before it."""
        self.writer.write(data)
        self.sent += len(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Close the connection with an RST packet."""
        raw: socket.socket = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class HostileServer:
    """Serves each connection with a function of a test."""

    def __init__(self, behave: Behavior, tls: ssl.SSLContext | None, host: str) -> None:
        self._behave = behave
        self._tls = tls
        self._host = host
        self._is_listening = threading.Event()
        self._stop: Callable[[], Any] = lambda: None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.connections: list[HostileConnection] = []
        self.open_count = 0
        self.port = 0

    @property
    def url(self) -> str:
        scheme = "https" if self._tls else "http"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self.port}"

    @property
    def sent(self) -> int:
        return sum(connection.sent for connection in self.connections)

    def wait_until_listening(self) -> None:
        self._is_listening.wait(60)

    def run(self) -> None:
        asyncio.run(self._run())

    def stop(self) -> None:
        self._stop()

    async def _run(self) -> None:
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(stopping.set)
        listener = await asyncio.start_server(
            self._serve, self._host, 0, ssl=self._tls, backlog=2000
        )
        self.port = listener.sockets[0].getsockname()[1]
        self._is_listening.set()
        await stopping.wait()
        listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        connection = HostileConnection(reader, writer)
        self.connections.append(connection)
        self.open_count += 1
        try:
            await self._behave(connection)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open_count -= 1
            self._tasks.discard(task)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()


@contextmanager
def run_hostile_server(
    behave: Behavior, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> Generator[HostileServer]:
    server = HostileServer(behave, tls, host)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    server.wait_until_listening()
    try:
        yield server
    finally:
        server.stop()
        thread.join(60)


# Behaviors.


def answer(*parts: bytes, then: str = "wait", pause: float = 0.0) -> Behavior:
    """Read each request and answer it; `then` wait for the next one, close, or reset."""

    async def behave(connection: HostileConnection) -> None:
        while await connection.read_request():
            for part in parts:
                await connection.send(part)
                await asyncio.sleep(pause)
            if then == "reset":
                await asyncio.sleep(0.05)
                connection.reset()
            if then != "wait":
                return

    return behave


def answer_endlessly(start: bytes, repeated: bytes, pause: float = 0.0) -> Behavior:
    """Send `start`, then `repeated` until the client closes the connection."""
    block = repeated if pause else repeated * max(1, _SEVERAL // len(repeated))

    async def behave(connection: HostileConnection) -> None:
        await connection.read_request()
        await connection.send(start)
        while True:
            await connection.send(block)
            await asyncio.sleep(pause)

    return behave


async def answer_before_the_request(connection: HostileConnection) -> None:
    await connection.send(HELLO)
    await connection.read_request()
    await asyncio.sleep(0.2)


async def answer_before_the_body(connection: HostileConnection) -> None:
    await connection.reader.readuntil(b"\r\n\r\n")
    await connection.send(HELLO)
    await asyncio.sleep(0.2)


async def close_at_once(connection: HostileConnection) -> None:
    """Close the connection without reading anything."""


def gzip_bomb(size: int) -> bytes:
    body = gzip.compress(bytes(size), 9)
    return OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def truncated_gzip() -> bytes:
    body = gzip.compress(b"hello")[:-8]
    return OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body


# The table.

ERROR = "error"
TIMEOUT = "timeout"
SHORT = 0.4
"""Seconds that the rows with a timeout allow."""


class Case(Struct, frozen=True):
    """What a server does, and what a client may make of it."""

    name: str
    behave: Behavior
    results: tuple[Any, ...]
    """The results that are right: a status and a body, ERROR, or TIMEOUT."""
    body_size: int = 2
    """Of the request."""


_OK_HELLO = (200, b"hello")
_HUGE = b"f" * 17

CASES = (
    Case("endless header line", answer_endlessly(STATUS + b"x: ", b"a"), (ERROR,)),
    Case("endless header name", answer_endlessly(STATUS, b"a"), (ERROR,)),
    Case("endless headers", answer_endlessly(STATUS, b"x: y\r\n"), (ERROR,)),
    Case("endless status line", answer_endlessly(b"HTTP/1.1 200 ", b"a"), (ERROR,)),
    Case(
        "header of 70 kB",
        answer(OK + b"x: " + b"a" * 70_000 + b"\r\n" + HELLO[len(OK) :]),
        (ERROR,),
    ),
    Case(
        "endless 100 Continue",
        answer_endlessly(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (ERROR, TIMEOUT),
    ),
    Case("slow head", answer_endlessly(STATUS + b"x: ", b"a", 0.05), (TIMEOUT,)),
    Case("no response", answer(), (TIMEOUT,)),
    Case("no body", answer(OK + b"Content-Length: 5\r\n\r\n"), (TIMEOUT,)),
    Case("slow body", answer_endlessly(OK + b"\r\n", b" ", 0.05), (TIMEOUT,)),
    Case("slow chunk size", answer_endlessly(CHUNKED, b"0", 0.05), (ERROR, TIMEOUT)),
    Case("endless body", answer_endlessly(OK + b"\r\n", b" "), (ERROR,)),
    Case("endless empty lines", answer_endlessly(b"", b"\r\n"), (ERROR, TIMEOUT)),
    Case("chunk size of no number", answer(CHUNKED + b"zz\r\nhello\r\n0\r\n\r\n"), (ERROR,)),
    Case("chunk size negative", answer(CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n"), (ERROR,)),
    Case("chunk size empty", answer(CHUNKED + b"\r\nhello\r\n0\r\n\r\n"), (ERROR,)),
    Case("chunk size too large", answer(CHUNKED + _HUGE + b"\r\nhello\r\n"), (ERROR,)),
    Case("chunk longer than its size", answer(CHUNKED + b"3\r\nhello\r\n0\r\n\r\n"), (ERROR,)),
    Case("chunk without end", answer(CHUNKED + b"5\r\nhel", then="close"), (ERROR,)),
    Case("no last chunk", answer(CHUNKED + b"5\r\nhello\r\n", then="close"), (ERROR,)),
    Case("endless chunk extension", answer_endlessly(CHUNKED + b"5;x=", b"a"), (ERROR, TIMEOUT)),
    Case(
        "endless trailers",
        answer_endlessly(CHUNKED + b"5\r\nhello\r\n0\r\n", b"x: y\r\n"),
        (ERROR, TIMEOUT),
    ),
    Case("length too short", answer(HELLO + b"more"), (_OK_HELLO, ERROR)),
    Case("length too long", answer(OK + b"Content-Length: 9\r\n\r\nhello", then="close"), (ERROR,)),
    Case("length negative", answer(OK + b"Content-Length: -5\r\n\r\nhello"), (ERROR,)),
    Case("length of no number", answer(OK + b"Content-Length: 5x\r\n\r\nhello"), (ERROR,)),
    Case(
        "length too large",
        answer(OK + b"Content-Length: 99999999999999999999\r\n\r\nhello", then="close"),
        (ERROR,),
    ),
    Case(
        "two lengths",
        answer(OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
        (ERROR,),
    ),
    Case(
        "length and chunks",
        answer(
            OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        ),
        (_OK_HELLO, ERROR),
    ),
    Case("gzip bomb", answer(gzip_bomb(10**9)), (ERROR,)),
    Case("truncated gzip", answer(truncated_gzip()), (ERROR,)),
    Case(
        "broken gzip",
        answer(OK + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello"),
        (ERROR,),
    ),
    Case(
        "unknown encoding",
        answer(OK + b"Content-Encoding: x\r\nContent-Length: 1\r\n\r\nx"),
        (ERROR,),
    ),
    Case("reset in the head", answer(OK, then="reset"), (ERROR,)),
    Case("reset in the body", answer(HELLO[:-2], then="reset"), (ERROR,)),
    Case("reset in a chunk", answer(CHUNKED + b"9\r\nhello", then="reset"), (ERROR,)),
    Case("reset without a response", answer(then="reset"), (ERROR,)),
    Case("close without a response", answer(then="close"), (ERROR,)),
    Case("close before the request", close_at_once, (ERROR,), 5_000_000),
    Case("close in the head", answer(OK, then="close"), (ERROR,)),
    Case("response before the request", answer_before_the_request, (_OK_HELLO, ERROR)),
    Case("response before the body", answer_before_the_body, (_OK_HELLO, ERROR), 20_000_000),
    Case(
        "redirect",
        answer(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"),
        ((302, b""),),
    ),
    Case("100 Continue first", answer(b"HTTP/1.1 100 Continue\r\n\r\n", HELLO), (_OK_HELLO,)),
    Case(
        "103 Early Hints first",
        answer(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + HELLO),
        (_OK_HELLO,),
    ),
    Case("101 without a request", answer(b"HTTP/1.1 101 Sure\r\nUpgrade: x\r\n\r\n"), (ERROR,)),
    Case("another protocol", answer(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), (ERROR,)),
    Case("HTTP/0.9", answer(b"hello", then="close"), (ERROR,)),
    Case("status of no number", answer(b"HTTP/1.1 abc OK\r\n\r\n"), (ERROR,)),
    Case("status too small", answer(b"HTTP/1.1 42 OK\r\n\r\n"), (ERROR,)),
    Case("status too large", answer(b"HTTP/1.1 2000 OK\r\n\r\n"), (ERROR,)),
    Case("unknown version", answer(b"HTTP/9.9 200 OK\r\n\r\n"), (ERROR,)),
    Case("NUL in the head", answer(STATUS + b"x: a\0b\r\n\r\n"), (ERROR,)),
    Case("header without colon", answer(STATUS + b"hello\r\n\r\n"), (ERROR,)),
    Case("response after the end", answer(HELLO_TWICE), (_OK_HELLO,)),
    Case("wait for the rest", answer(HELLO[:-5], b"hel", b"lo", pause=0.05), (_OK_HELLO,)),
)
