"""The ways to a server. Each gives the SDK its streams, and keeps what explains a failure: the last
lines of a program's standard error, the steps of requests over HTTP."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from threading import Thread
from types import TracebackType
from typing import Any, BinaryIO, Self

import httpx2
from mcp import StdioServerParameters, stdio_client
from mcp.client._transport import ReadStream, TransportStreams  # pyright: ignore[reportPrivateUsage]
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from .endpoints import HttpEndpoint, StdioEndpoint

# The protocol of these streams is named in no public module.


log = logging.getLogger("toolspeak.agent")

Message = SessionMessage | Exception
_MAX_LINES = 10
"""Lines of standard error that are shown if a program fails."""
_MAX_LINE_LENGTH = 2000
_CONNECT_TIMEOUT = 30.0
_MAX_EVENT_SIZE = 64 * 1024 * 1024
"""Bytes of one result: pictures are larger than what the SDK allows by itself."""


class StderrReader:
    """What a program says on its standard error, in case that it fails."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._reader: Thread | None = None

    def start(self, file: BinaryIO, name: str) -> None:
        """Read what a program complains of, until it ends. A thread does that: files of this kind
        cannot be waited for on every system."""
        self._reader = Thread(target=self._read, args=(file, name), daemon=True)
        self._reader.start()

    def wait(self) -> None:
        """Wait until all is read that a program has said in the end."""
        if self._reader:
            self._reader.join(1.0)

    def _read(self, file: BinaryIO, name: str) -> None:
        with file:
            while line := file.readline(_MAX_LINE_LENGTH):
                text = line.decode("utf-8", "replace").rstrip()
                log.debug("%s: %s", name, text)
                self.lines.append(text)


@asynccontextmanager
async def connect_stdio(
    command: StdioEndpoint, name: str, complaints: StderrReader
) -> AsyncGenerator[TransportStreams]:
    """A program of its own, which ends with this. Of the environment it gets what is safe (PATH,
    HOME and the like) and what it was given, not the user's keys."""
    parameters = StdioServerParameters(
        command=command.command, args=list(command.args), env=command.env, cwd=command.cwd
    )
    ours, its = os.pipe()
    complaints.start(os.fdopen(ours, "rb"), name)
    with os.fdopen(its, "w") as errors:
        async with stdio_client(parameters, errlog=errors) as streams:
            # The program has its own by now, and the reader shall hear of its end.
            errors.close()
            yield streams


@asynccontextmanager
async def connect_http(address: HttpEndpoint) -> AsyncGenerator[TransportStreams]:
    """A server that is there already. How long a reply may take is the caller's to say."""
    from ...config.addresses import is_loopback

    async with (
        httpx2.AsyncClient(
            headers=address.headers,
            # What is on this machine is not asked through a proxy.
            trust_env=not is_loopback(httpx2.URL(address.url).host),
            timeout=httpx2.Timeout(_CONNECT_TIMEOUT, read=None),
            event_hooks={"request": [on_request], "response": [on_response]},
        ) as client,
        streamable_http_client(
            address.url, http_client=client, max_sse_event_size=_MAX_EVENT_SIZE
        ) as streams,
    ):
        yield streams


@asynccontextmanager
async def notify_at_end(
    way: AbstractAsyncContextManager[TransportStreams], on_end: Callable[[], None]
) -> AsyncGenerator[TransportStreams]:
    """The same streams, and somebody hears of it when the server has said its last."""
    async with way as (reading, writing):
        yield _NotifyingStream(reading, on_end), writing


class _NotifyingStream:
    """A stream whose end is told."""

    def __init__(self, stream: ReadStream[Message], on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    @property
    def last_context(self) -> object:
        """The SDK asks for the context in which a message was sent."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Message:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)


_SENDING = "send_request_headers.started"


class RequestState:
    """One request. The SDK sends it in the context of whoever has made it."""

    def __init__(self) -> None:
        self.was_sent = False
        self.status: int | None = None
        """The last status that was none of success."""

    @contextmanager
    def track(self) -> Generator[None]:
        """What is sent within this is this request."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    async def trace(self, event: str, about: dict[str, Any]) -> None:
        """The HTTP client tells each step."""
        self.was_sent = self.was_sent or event.endswith(_SENDING)


_current: ContextVar[RequestState | None] = ContextVar("journey", default=None)


async def on_request(request: httpx2.Request) -> None:
    """Have the steps of a request told."""
    if journey := _current.get():
        request.extensions = {**request.extensions, "trace": journey.trace}


async def on_response(response: httpx2.Response) -> None:
    """Take down what came of a message; other requests only listen."""
    journey = _current.get()
    if journey and response.request.method == "POST":
        journey.status = response.status_code if response.is_error else None
