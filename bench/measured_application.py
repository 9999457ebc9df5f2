"""The application that `bench.servers` measures servers with; it imports little, to start quickly.

python -m bench.measured_application PORT     uvicorn as `toolspeak serve` runs it
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from toolspeak.upstream.timers import Ticker

LIMIT = 3
"""Seconds for slow clients, where a server has such a limit."""
CHUNKS = 5000
"""Chunks of the path /stream."""


class MeasuredApplication:
    """Responds as its path says, and tells what it has noticed."""

    def __init__(self) -> None:
        self.ticker = Ticker()
        self.facts: dict[str, Any] = {"sent": 0, "body": 0, "disconnected": [], "paths": []}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        if path not in ("/whole", "/facts"):
            self.facts["paths"].append(path)
        if path == "/facts":
            await _send_whole(send, json.dumps(self.facts).encode())
        elif path == "/stream":
            await _begin(send)
            for _ in range(CHUNKS):
                await _send_chunk(send, b"x" * 100)
                await asyncio.sleep(0)
            await _end(send)
        elif path == "/slow":
            await _begin(send)
            for _ in range(10):
                await _send_chunk(send, b"x")
                await asyncio.sleep(0.2)
            await _end(send)
        elif path == "/flood":
            await _begin(send)
            while True:
                await _send_chunk(send, b"x" * 65536)
                self.facts["sent"] += 65536
                await asyncio.sleep(0)
        elif path in ("/hang", "/hang-stream"):
            await self._hang(path, receive, send)
        else:
            size = 0
            while True:
                message = await receive()
                size += len(message.get("body", b""))
                if not message.get("more_body"):
                    break
            self.facts["body"] = size
            if message["type"] == "http.request":
                await _send_whole(send, b"x" * 1000)

    async def _hang(self, path: str, receive: Any, send: Any) -> None:
        if path == "/hang-stream":
            await _begin(send)
            await _send_chunk(send, b"first")
        while (await receive())["type"] != "http.disconnect":
            pass
        self.facts["disconnected"].append(time.time())


async def _begin(send: Any, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": list(headers)})


async def _send_chunk(send: Any, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _end(send: Any, data: bytes = b"") -> None:
    await send({"type": "http.response.body", "body": data})


async def _send_whole(send: Any, data: bytes) -> None:
    await _begin(send, (b"content-length", str(len(data)).encode()))
    await _end(send, data)


app = MeasuredApplication()


def _serve_own(port: int) -> None:
    """Run uvicorn as `toolspeak serve` does."""
    import uvicorn

    from toolspeak.gateway import server_protocol

    server_protocol.REQUEST_TIMEOUT = LIMIT
    application: Any = app
    uvicorn.run(
        application,
        port=port,
        http=server_protocol.GatewayProtocol,
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
    )


if __name__ == "__main__":
    _serve_own(int(sys.argv[1]))
