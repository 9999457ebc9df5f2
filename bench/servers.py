"""Measures HTTP servers for the gateway side by side, with one small ASGI application.

python -m bench.servers [own] [uvicorn] [granian]

`own` is uvicorn with the gateway's protocol, with a time limit of 3 seconds for slow clients. Each
server runs in its own process, one after the other.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tests.gateway.gateway_process import (
    find_free_port,
    format_settings,
    is_open,
    list_descendants,
    make_environment,
    read_cpu_seconds,
    read_resident_megabytes,
    wait_until,
)
from tests.gateway.test_server_protocol import SMUGGLING_FORMS

from bench.measured_application import CHUNKS, LIMIT

_WATCH = 10.0
"""Seconds after which something that has not happened counts as never."""
_CLIENTS, _REQUESTS = 16, 2000
_MANY = 200
_SERVERS = {
    "own": ("-m", "bench.measured_application"),
    "uvicorn": (
        *(
            "-m",
            "uvicorn",
            "bench.measured_application:app",
            "--log-level",
            "critical",
            "--no-access-log",
        ),
        *("--http", "httptools", "--loop", "uvloop", "--ws", "none"),
        *("--timeout-keep-alive", "75", "--timeout-graceful-shutdown", "10", "--port"),
    ),
    "granian": (
        *(
            "-m",
            "granian",
            "bench.measured_application:app",
            "--interface",
            "asgi",
            "--no-log",
            "--no-ws",
        ),
        *("--loop", "uvloop", "--http", "1", "--http1-header-read-timeout", str(LIMIT * 1000)),
        *("--workers-kill-timeout", "10", "--port"),
    ),
}


# A server.


class MeasuredServer:
    """A process of a server, with its workers."""

    def __init__(self, name: str, *options: str) -> None:
        self.port = find_free_port()
        started_at = time.perf_counter()
        arguments = (*_SERVERS[name], str(self.port), *options)
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_until(lambda: is_open(f"http://127.0.0.1:{self.port}"))
        self.ask("/whole")
        self.start_seconds = time.perf_counter() - started_at

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.settimeout(_WATCH)
        return connection

    def ask(self, path: str) -> bytes:
        """Return the response of a connection that is closed after it."""
        with self.connect() as connection:
            connection.sendall(_encode(path, "Connection: close"))
            return _read_rest(connection)

    @property
    def facts(self) -> Any:
        return json.loads(self.ask("/facts").partition(b"\r\n\r\n")[2])

    @property
    def family(self) -> list[int]:
        return [self.process.pid, *list_descendants(self.process.pid)]

    @property
    def cpu_seconds(self) -> float:
        return sum(map(read_cpu_seconds, self.family))

    @property
    def megabytes(self) -> float:
        return sum(map(read_resident_megabytes, self.family))

    def stop(self) -> None:
        for pid in reversed(self.family):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def run_server(name: str, *options: str) -> Generator[MeasuredServer]:
    server = MeasuredServer(name, *options)
    try:
        yield server
    finally:
        server.stop()


def _encode(path: str, *headers: str) -> bytes:
    return "\r\n".join((f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", "")).encode()


def _read_rest(connection: socket.socket) -> bytes:
    parts: list[bytes] = []
    with suppress(OSError):
        while data := connection.recv(2**16):
            parts.append(data)
    return b"".join(parts)


def _seconds_until_closed(connection: socket.socket) -> float | None:
    """Return how long the server keeps the connection open; None if it does so for ever."""
    start = time.perf_counter()
    try:
        while connection.recv(2**16):
            pass
    except TimeoutError:
        return None
    except OSError:
        pass
    return time.perf_counter() - start


def _format_seconds(seconds: float | None) -> str:
    if seconds is None:
        return f"more than {_WATCH:g} s"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


# Measurements: each returns what is printed.


def measure_start(server: MeasuredServer) -> str:
    return f"{server.start_seconds:.2f} s, {server.megabytes:.0f} MB"


def measure_requests(server: MeasuredServer) -> str:
    def send_requests(_: int) -> None:
        with server.connect() as connection:
            connection.settimeout(60)
            for _ in range(_REQUESTS):
                connection.sendall(_encode("/whole"))
                data = b""
                while not data.endswith(b"x" * 1000):
                    data += connection.recv(2**16)

    return _measure_cpu(server, send_requests, _REQUESTS)


def measure_chunks(server: MeasuredServer) -> str:
    return _measure_cpu(server, lambda _: server.ask("/stream"), CHUNKS)


def _measure_cpu(server: MeasuredServer, use: Callable[[int], object], times: int) -> str:
    before = server.cpu_seconds
    with ThreadPoolExecutor(_CLIENTS) as pool:
        list(pool.map(use, range(_CLIENTS)))
    return f"{(server.cpu_seconds - before) / (_CLIENTS * times) * 1e6:.0f} µs"


def measure_many_connections(server: MeasuredServer) -> str:
    before = server.megabytes
    connections = [server.connect() for _ in range(_MANY)]
    for connection in connections:
        connection.sendall(_encode("/hang-stream"))
        connection.recv(1000)
    used = server.megabytes - before
    for connection in connections:
        connection.close()
    return f"{used / _MANY * 1000:.0f} kB"


def measure_slow_head(server: MeasuredServer) -> str:
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        seconds = _seconds_until_closed(connection)
        return f"open after {_WATCH:g} s" if seconds is None else f"closed after {seconds:.1f} s"


def measure_slow_body(server: MeasuredServer) -> str:
    """The gateway itself limits the time for a body, on any server."""
    with server.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nab")
        seconds = _seconds_until_closed(connection)
        return f"open after {_WATCH:g} s" if seconds is None else f"closed after {seconds:.1f} s"


def measure_endless_header(server: MeasuredServer) -> str:
    return _send_endlessly(server, b"x" * 65536)


def measure_endless_headers(server: MeasuredServer) -> str:
    return _send_endlessly(server, b"x-header: value\r\n" * 4096)


def _send_endlessly(server: MeasuredServer, data: bytes) -> str:
    before, sent = server.megabytes, 0
    with server.connect() as connection:
        connection.setblocking(True)
        connection.settimeout(5)
        try:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nx-long: 1")
            while sent < 64 * 2**20 and not select.select([connection], [], [], 0)[0]:
                connection.sendall(data)
                sent += len(data)
        except OSError:
            pass
        if sent >= 64 * 2**20:
            return f"64 MB accepted, {max(0, server.megabytes - before):.0f} MB used"
        connection.settimeout(5)
        status = ""
        with suppress(OSError):
            status = connection.recv(100)[9:12].decode()
        return f"refused ({status or 'reset'})"


def measure_ambiguous_requests(server: MeasuredServer) -> str:
    hidden = 0
    for headers, rest in SMUGGLING_FORMS.values():
        before = server.facts["paths"].count("/inner")
        with server.connect() as connection:
            connection.settimeout(1)
            data = f"POST /outer HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n{rest}"
            connection.sendall(data.encode())
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            _read_rest(connection)
        hidden += server.facts["paths"].count("/inner") > before
    return f"{hidden} of {len(SMUGGLING_FORMS)}"


def measure_back_pressure(server: MeasuredServer) -> str:
    before = server.facts["sent"]
    with server.connect() as connection:
        connection.sendall(_encode("/flood"))
        time.sleep(2)
        return f"{(server.facts['sent'] - before) / 2**20:.1f} MB"


def measure_unread_response(server: MeasuredServer) -> str:
    with server.connect() as connection:
        connection.sendall(_encode("/flood"))
        time.sleep(LIMIT * 2 + 1)
        # If the server still sends, there is more than the kernel's buffers.
        connection.settimeout(2)
        size = 0
        try:
            while size < 32 * 2**20 and (data := connection.recv(2**20)):
                size += len(data)
        except OSError:
            return "closed"
        return "closed" if size < 32 * 2**20 else "kept open"


def measure_disconnect(server: MeasuredServer) -> str:
    return _measure_disconnect(server, "/hang")


def measure_stream_disconnect(server: MeasuredServer) -> str:
    return _measure_disconnect(server, "/hang-stream")


def _measure_disconnect(server: MeasuredServer, path: str) -> str:
    with server.connect() as connection:
        connection.sendall(_encode(path))
        data = b""
        while path == "/hang-stream" and b"first" not in data:
            # Closing a connection with unread data would reset it.
            data += connection.recv(2**16)
        time.sleep(0.3)
        known = len(server.facts["disconnected"])
    closed_at = time.time()
    while time.time() - closed_at < _WATCH:
        times = server.facts["disconnected"]
        if len(times) > known:
            return _format_seconds(max(0.0, times[-1] - closed_at))
        time.sleep(0.02)
    return _format_seconds(None)


def measure_half_close(server: MeasuredServer) -> str:
    """A client that has sent everything may close its half of the connection."""
    results: list[str] = []
    for path, end in (("/whole", b"x" * 1000), ("/slow", b"0\r\n\r\n")):
        with server.connect() as connection:
            connection.sendall(_encode(path))
            time.sleep(0 if path == "/whole" else 0.3)
            connection.shutdown(socket.SHUT_WR)
            results.append("yes" if _read_rest(connection).endswith(end) else "no")
    return ", ".join(results)


def measure_upgrade(server: MeasuredServer) -> str:
    """Return the statuses for a POST that offers HTTP/2, and for a request for a WebSocket."""
    results: list[str] = []
    socket_headers = ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
    for data in (
        b"POST /whole HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        b"Upgrade: h2c\r\nHTTP2-Settings: AAMA\r\nContent-Length: 2\r\n\r\n{}",
        _encode("/whole", "Connection: Upgrade", "Upgrade: websocket", *socket_headers),
    ):
        with server.connect() as connection:
            connection.settimeout(3)
            connection.sendall(data)
            status = "no response"
            with suppress(OSError):
                status = connection.recv(100)[9:12].decode() or "closed"
        is_lost = data.startswith(b"POST") and not server.facts["body"]
        results.append(f"{status} without its body" if is_lost else status)
    return ", ".join(results)


def measure_stop(server: MeasuredServer) -> str:
    """Stop the server while a stream is sent and an idle connection is open."""
    with server.connect() as busy, server.connect() as idle:
        idle.sendall(_encode("/whole"))
        idle.recv(2**16)
        busy.sendall(_encode("/slow"))
        busy.recv(100)
        server.process.send_signal(signal.SIGTERM)
        start = time.perf_counter()
        is_whole = _read_rest(busy).endswith(b"0\r\n\r\n")
        with suppress(subprocess.TimeoutExpired):
            server.process.wait(20)
            seconds = _format_seconds(time.perf_counter() - start)
            return f"{'whole' if is_whole else 'cut off'}, exit after {seconds}"
        return f"{'whole' if is_whole else 'cut off'}, no exit within 20 s"


MEASUREMENTS = {
    "start and memory": measure_start,
    "CPU per request": measure_requests,
    "CPU per chunk of 100 bytes": measure_chunks,
    f"memory per stream, of {_MANY}": measure_many_connections,
    "head that does not end": measure_slow_head,
    "body that does not end (server alone)": measure_slow_body,
    "endless header": measure_endless_header,
    "endless headers": measure_endless_headers,
    "ambiguous requests that hide another": measure_ambiguous_requests,
    "sent to a client that reads nothing": measure_back_pressure,
    "its connection after twice the limit": measure_unread_response,
    "disconnect noticed, before a response": measure_disconnect,
    "disconnect noticed, in a silent stream": measure_stream_disconnect,
    "half-closed client gets its response: whole, streamed": measure_half_close,
    "POST that offers HTTP/2; WebSocket that is not supported": measure_upgrade,
    "SIGTERM during a stream of 2 s": measure_stop,
}


def measure_workers(name: str) -> str:
    """Return how 200 connections are spread over two workers."""
    if name != "own":
        with run_server(name, "--workers", "2") as server:
            time.sleep(3)
            return _spread_connections(server.port, server.family)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "toolspeak.toml").write_text(format_settings("http://127.0.0.1:1"))
        port = find_free_port()
        command = ("-m", "toolspeak", "serve", "--port", str(port), "--workers", "2")
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env=make_environment(),
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            wait_until(lambda: is_open(f"http://127.0.0.1:{port}"))
            time.sleep(3)
            return _spread_connections(port, [process.pid, *list_descendants(process.pid)])
        finally:
            process.terminate()
            process.wait()


def _spread_connections(port: int, family: list[int]) -> str:
    before = [*map(_count_sockets, family)]
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
    time.sleep(2)
    new = [_count_sockets(pid) - was for pid, was in zip(family, before, strict=True)]
    for connection in connections:
        connection.close()
    return " : ".join(str(count) for count in sorted(new)[-2:])


def _count_sockets(pid: int) -> int:
    return sum(
        link.readlink().name.startswith("socket:") for link in Path(f"/proc/{pid}/fd").iterdir()
    )


def main(names: list[str]) -> None:
    names = names or [*_SERVERS]
    results: dict[str, list[str]] = {title: [] for title in MEASUREMENTS}
    for name in names:
        for title, measure in MEASUREMENTS.items():
            with run_server(name) as server:
                result = measure(server)
            print(f"{name}, {title}: {result}", file=sys.stderr, flush=True)
            results[title].append(result)
    results["200 connections to 2 workers"] = [*map(measure_workers, names)]
    table = Table("", *names)
    for title, row in results.items():
        table.add_row(title, *row)
    Console(width=140).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
