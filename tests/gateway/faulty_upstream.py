"""An upstream that misbehaves on purpose: a socket server that runs a test's actions.

with FaultyUpstream() as upstream:
    upstream.set_actions(close, hang)     one for each request; the last one for all that follow
    …
    upstream.active_requests
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from time import monotonic
from typing import Any

from toolspeak._util import encode_json
from toolspeak.events import Event, Finish, TextDelta, fold
from toolspeak.types import Request
from toolspeak.wires import Envelope, Wire, get_wire
from toolspeak.wires.framing import decode_json
from toolspeak.wires.routes import match_route

HELLO: tuple[Event, ...] = (TextDelta("Hello there."), Finish("stop"))


class ReceivedRequest:
    """A request to the faulty upstream, and the connection it arrived on."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str, body: bytes
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.head = head
        self.body = body
        self.received_at = monotonic()
        self.sent_bytes = 0
        self.closed_at: float | None = None
        """When the gateway closed the connection before the response was complete."""
        route = match_route(head.split(" ")[1])
        assert route
        self.wire: Wire = get_wire(route.wire)
        self.request: Request = self.wire.decode_request(
            decode_json(body), model=route.model, stream=route.stream
        )

    @property
    def content_type(self) -> str:
        return self.wire.content_type if self.request.stream else "application/json"

    def encode(self, events: Iterable[Event]) -> list[bytes]:
        """Return the frames of each event in a stream, or the whole reply as one item."""
        envelope = Envelope(self.request, "id_1", 1_700_000_000)
        if not self.request.stream:
            return [encode_json(self.wire.encode_reply(fold(events), envelope))]
        return [*map(self.wire.stream_encoder(envelope).feed, events)]

    # The response.

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()
        self.sent_bytes += len(data)

    async def respond(self, status: int = 200, body: bytes = b"", **headers: str) -> None:
        """Send a whole response with its length."""
        await self.send_head(status, content_length=str(len(body)), **headers)
        await self.send(body)

    async def send_head(self, status: int = 200, **headers: str) -> None:
        """Send the head of a response; without a length it ends with the connection."""
        await self.send(self._format_head(status, **headers))

    def _format_head(self, status: int, **headers: str) -> bytes:
        all_headers = {"content_type": self.content_type, **headers}
        lines = "".join(
            f"{name.replace('_', '-')}: {value}\r\n" for name, value in all_headers.items()
        )
        return f"HTTP/1.1 {status} Whatever\r\n{lines}\r\n".encode("latin-1")

    async def start_chunks(self, *chunks: bytes) -> None:
        """Send the head of a chunked response and its first chunks at once.

        With one write, no pause of a busy machine can come between them.
        """
        head = self._format_head(200, transfer_encoding="chunked")
        await self.send(head + b"".join(map(_format_chunk, chunks)))

    async def send_chunk(self, data: bytes) -> None:
        await self.send(_format_chunk(data))

    async def end_chunks(self) -> None:
        await self.send(b"0\r\n\r\n")

    def reset(self) -> None:
        """Reset the connection, which discards what the gateway has not read."""
        connection = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def wait_for_close(self) -> None:
        """Wait until the gateway closes the connection."""
        while await self._reader.read(65536):
            pass
        self.closed_at = monotonic()


def _format_chunk(data: bytes) -> bytes:
    # An empty chunk would end the response.
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


Action = Callable[[ReceivedRequest], Awaitable[Any]]
"""Responds to a request. The connection is kept open only if the result is true."""


async def respond_normally(received: ReceivedRequest) -> bool:
    await received.start_chunks()
    for data in received.encode(HELLO):
        await received.send_chunk(data)
    await received.end_chunks()
    return True


class FaultyUpstream:
    """Runs the actions of a test, one for each request."""

    def __init__(self) -> None:
        self.requests: list[ReceivedRequest] = []
        self.active_requests = 0
        self.connections = 0
        """The number of open connections, including idle ones."""
        self.url = ""
        self._actions: Sequence[Action] = [respond_normally]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> FaultyUpstream:
        self._thread.start()
        assert self._started.wait(60)
        return self

    def __exit__(self, *problem: object) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(60)
        assert not self._thread.is_alive()

    def set_actions(self, *actions: Action) -> None:
        """Forget all earlier requests, and use these actions from now on."""
        self.requests = []
        self._actions = actions

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve_connection, "127.0.0.1", 0, limit=2**20, backlog=2048)
        )
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._started.set()
        try:
            self._loop.run_forever()
        finally:
            server.close()
            self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
            self._loop.close()

    async def _serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        self.connections += 1
        try:
            while await self._serve_request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.connections -= 1
            self._tasks.discard(task)
            writer.transport.abort() if writer.is_closing() else writer.close()

    async def _serve_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lengths = [line for line in head.splitlines() if line.lower().startswith("content-length")]
        body = await reader.readexactly(int(lengths[0].partition(":")[2]))
        received = ReceivedRequest(reader, writer, head, body)
        action = self._actions[min(len(self.requests), len(self._actions) - 1)]
        self.requests.append(received)
        self.active_requests += 1
        try:
            return bool(await action(received))
        except ConnectionError:
            received.closed_at = monotonic()
            raise
        finally:
            self.active_requests -= 1
