"""Helpers of the tests of single wires."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ReceivedRequests = list[tuple[str, Any]]
"""The path and the body of each request."""


def mutate(value: Any, chance: random.Random) -> Any:
    """Return the value with some values within it replaced, renamed or removed."""
    if chance.random() < 0.04:
        return chance.choice([None, 3, 1.5, True, "x", [], {}, ["x"], {"a": 1}, [{}]])
    if isinstance(value, dict):
        return {
            (key if chance.random() > 0.02 else "name"): mutate(item, chance)
            for key, item in value.items()
            if chance.random() > 0.02
        }
    if isinstance(value, list):
        return [mutate(item, chance) for item in value]
    return value


@contextmanager
def serve_response(
    status: int, body: bytes, content_type: str
) -> Generator[tuple[str, ReceivedRequests]]:
    """Run a server that sends this response; yield its address and the requests it receives."""
    received: ReceivedRequests = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            received.append((self.path, json.loads(self.rfile.read(length))))
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
