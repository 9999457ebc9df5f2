"""Starts servers for tests, and stops them."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.agent.servers.raw import RawServer

HERE = Path(__file__).parent
SDK = str(HERE / "sdk.py")
RAW = str(HERE / "raw.py")


@cache
def start_forking_process() -> subprocess.Popen[str]:
    """Start the process that forks the SDK's servers; it ends with the tests."""
    process = subprocess.Popen(
        [sys.executable, SDK, "fork"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.wait)
    atexit.register(process.kill)
    return process


class HttpServer:
    """Run the SDK's server in a process that can be killed and restarted."""

    def __init__(self) -> None:
        self.port = 0
        self._process = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def start(self) -> None:
        forking = start_forking_process()
        assert forking.stdin
        assert forking.stdout
        forking.stdin.write(f"{self.port}\n")
        forking.stdin.flush()
        self._process, self.port = map(int, forking.stdout.readline().split())

    def kill(self) -> None:
        """Kill the process and wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            while self._process:
                os.kill(self._process, signal.SIGKILL)
                time.sleep(0.01)
        self._process = 0


@contextmanager
def http_server() -> Generator[HttpServer]:
    server = HttpServer()
    server.start()
    try:
        yield server
    finally:
        server.kill()


class RawHttp:
    """A server of the older protocol that can forget sessions and fail on demand."""

    def __init__(self) -> None:
        self.raw = RawServer()
        self.sessions: set[str] = set()
        self.opened = 0
        self.status = 0
        """The answer to calls, in place of the correct one."""
        self.unknown: tuple[int, int] = (404, -32600)
        """The answer for an unknown session."""
        self.url = ""
        self.headers: list[dict[str, str]] = []
        """The headers of each request."""
        self.gate: threading.Event | None = None
        """The event that started calls wait for."""
        self.refuse: Callable[[], None] = lambda: None
        """Refuse new connections; existing ones stay."""

    def answer(self, message: dict[str, Any], session: str) -> tuple[int, Any, str]:
        """Return the status, the value and the session of an answer."""
        method = message.get("method")
        if self.status and method in ("initialize", "tools/call", "server/discover"):
            return self.status, {"detail": "not now"}, ""
        if method == "initialize":
            session = uuid4().hex
            self.sessions.add(session)
            self.opened += 1
        elif method != "server/discover" and session not in self.sessions:
            status, code = self.unknown
            problem = {"code": code, "message": "Session not found"}
            return status, {"jsonrpc": "2.0", "id": message.get("id"), "error": problem}, ""
        answers = self.raw.answer(message)
        if self.gate and method == "tools/call":
            self.gate.wait(60)
        return (200, answers[-1], session) if answers else (202, None, session)


@contextmanager
def raw_http() -> Generator[RawHttp]:
    state = RawHttp()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            state.headers.append({key.lower(): value for key, value in self.headers.items()})
            body = self.rfile.read(int(self.headers["content-length"]))
            session = self.headers.get("mcp-session-id", "")
            self._respond(*state.answer(json.loads(body), session))

        def do_GET(self) -> None:
            self._respond(405, None, "")

        do_DELETE = do_GET

        def _respond(self, status: int, value: Any, session: str) -> None:
            data = b"" if value is None else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            # A retried request must be accepted again.
            self.send_header("connection", "close")
            if session:
                self.send_header("mcp-session-id", session)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            """Suppress the request log."""

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *arguments: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            """Ignore clients that disconnected."""

    server = Quiet(("127.0.0.1", 0), Handler)

    def refuse() -> None:
        server.socket.close()
        # The serving thread may hold it for a moment.
        with contextlib.suppress(ConnectionRefusedError):
            while True:
                socket.create_connection(("127.0.0.1", server.server_port)).close()

    state.refuse = refuse
    state.url = f"http://127.0.0.1:{server.server_port}/mcp"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
