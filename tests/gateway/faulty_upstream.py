"""An upstream that misbehaves on purpose: a socket, and whatever a test wants to be sent.

with Faulty() as upstream:
    upstream.acts = [closes, hangs]     one for each request; the last one for all that follow
    …
    upstream.busy                       connections on which a request has not ended
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from time import monotonic
from typing import Any

from toolspeak.events import Event, Finish, TextDelta, fold
from toolspeak.types import Request
from toolspeak.wires import Envelope, Wire, get_wire
from toolspeak.wires.framing import decode_json, encode_json
from toolspeak.wires.routes import match_route

HELLO: tuple[Event, ...] = (TextDelta("Hello there."), Finish("stop"))


class Asked:
    """One request, and the connection that it came by."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str, body: bytes
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.head = head
        self.body = body
        self.at = monotonic()
        self.sent = 0
        self.closed_at: float | None = None
        """When the other side closed the connection while a request was being answered."""
        where = match_route(head.split(" ")[1])
        assert where
        self.wire: Wire = get_wire(where.wire)
        self.request: Request = self.wire.decode_request(
            decode_json(body), model=where.model, stream=where.stream
        )

    # What to say.

    def written(self, events: Iterable[Event]) -> list[bytes]:
        """The reply: what each event makes of a stream, or all of it in one piece."""
        envelope = Envelope(self.request, "id_1", 1_700_000_000)
        if not self.request.stream:
            return [encode_json(self.wire.encode_reply(fold(events), envelope))]
        return [*map(self.wire.stream_encoder(envelope).feed, events)]

    @property
    def content_type(self) -> str:
        return self.wire.content_type if self.request.stream else "application/json"

    # Saying it.

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()
        self.sent += len(data)

    async def answer(self, status: int = 200, body: bytes = b"", **headers: str) -> None:
        """A whole answer, which is as long as it says."""
        await self.head_of(status, content_length=str(len(body)), **headers)
        await self.send(body)

    async def head_of(self, status: int = 200, **headers: str) -> None:
        """The head of an answer; without a length it ends with the connection."""
        given = {"content_type": self.content_type, **headers}
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in given.items())
        await self.send(f"HTTP/1.1 {status} Whatever\r\n{lines}\r\n".encode("latin-1"))

    async def begin(self, **headers: str) -> None:
        """The head of an answer in chunks."""
        await self.head_of(200, transfer_encoding="chunked", **headers)

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def closed(self) -> None:
        """Wait until the other side closes the connection."""
        while await self._reader.read(65536):
            pass
        self.closed_at = monotonic()


Act = Callable[[Asked], Awaitable[Any]]


async def answers(asked: Asked) -> bool:
    """As it should be; and the connection can be used again."""
    await asked.begin()
    for data in asked.written(HELLO):
        if data:
            await asked.chunk(data)
    await asked.end()
    return True


class Faulty:
    """Does to each request what the test says."""

    def __init__(self) -> None:
        self.acts: Sequence[Act] = [answers]
        self.asked: list[Asked] = []
        self.busy = 0
        self.connections = 0
        """How many are open, be they used or not."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    def __enter__(self) -> Faulty:
        self._thread.start()
        assert self._started.wait(5)
        return self

    def __exit__(self, *problem: object) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def does(self, *acts: Act) -> None:
        """What happens to the requests from now on."""
        self.asked = []
        self.acts = acts

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._connected, "127.0.0.1", 0, limit=2**20)
        )
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._started.set()
        try:
            self._loop.run_forever()
        finally:
            server.close()
            self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
            self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        self.connections += 1
        try:
            while await self._serve(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.connections -= 1
            self._tasks.discard(task)
            writer.transport.abort() if writer.is_closing() else writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lengths = [line for line in head.splitlines() if line.lower().startswith("content-length")]
        body = await reader.readexactly(int(lengths[0].partition(":")[2]))
        asked = Asked(reader, writer, head, body)
        act = self.acts[min(len(self.asked), len(self.acts) - 1)]
        self.asked.append(asked)
        self.busy += 1
        try:
            return bool(await act(asked))
        except ConnectionError:
            asked.closed_at = monotonic()
            raise
        finally:
            self.busy -= 1
