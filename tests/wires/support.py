"""What the tests of single wires share."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Asked = list[tuple[str, Any]]
"""The path and the body of each request."""


def mutated(value: Any, chance: random.Random) -> Any:
    """The same value with something in it put out of place."""
    if chance.random() < 0.04:
        return chance.choice([None, 3, 1.5, True, "x", [], {}, ["x"], {"a": 1}, [{}]])
    if isinstance(value, dict):
        return {
            (key if chance.random() > 0.02 else "name"): mutated(item, chance)
            for key, item in value.items()
            if chance.random() > 0.02
        }
    if isinstance(value, list):
        return [mutated(item, chance) for item in value]
    return value


@contextmanager
def answering(status: int, body: bytes, content_type: str) -> Generator[tuple[str, Asked]]:
    """The address of a server that gives this answer, and what it was asked."""
    asked: Asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            asked.append((self.path, json.loads(self.rfile.read(length))))
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
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
