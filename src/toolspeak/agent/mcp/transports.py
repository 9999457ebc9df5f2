"""Transports to an MCP server. Each yields the SDK's streams, and keeps what explains a failure:
the last lines of a program's stderr, the state of an HTTP request.
"""

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

# The protocol of these streams is named in no public module.
from mcp.client._transport import ReadStream, TransportStreams  # pyright: ignore[reportPrivateUsage]
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from ...config.addresses import is_loopback
from .endpoints import HttpEndpoint, StdioEndpoint

log = logging.getLogger("toolspeak.agent")

Message = SessionMessage | Exception
_MAX_LINES = 10
"""Lines of stderr that are shown if a program fails."""
_MAX_LINE_LENGTH = 2000
_CONNECT_TIMEOUT = 30.0
_MAX_EVENT_SIZE = 64 * 1024 * 1024
"""Bytes of one result: images exceed the SDK's default."""
_SENDING = "send_request_headers.started"


class StderrReader:
    """Keeps the last lines of a program's stderr."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._thread: Thread | None = None

    def start(self, file: BinaryIO, name: str) -> None:
        """Read until the program ends; in a thread, since not every system can poll a pipe."""
        self._thread = Thread(target=self._read, args=(file, name), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the last output has been read."""
        if self._thread:
            self._thread.join(1.0)

    def _read(self, file: BinaryIO, name: str) -> None:
        with file:
            while line := file.readline(_MAX_LINE_LENGTH):
                text = line.decode("utf-8", "replace").rstrip()
                log.debug("%s: %s", name, text)
                self.lines.append(text)


@asynccontextmanager
async def connect_stdio(
    endpoint: StdioEndpoint, name: str, stderr: StderrReader
) -> AsyncGenerator[TransportStreams]:
    """Start a program, and stop it at the end. Of the environment it receives what is safe (PATH,
    HOME and the like) and its own `env`, not the user's keys."""
    parameters = StdioServerParameters(
        command=endpoint.command, args=list(endpoint.args), env=endpoint.env, cwd=endpoint.cwd
    )
    read_end, write_end = os.pipe()
    stderr.start(os.fdopen(read_end, "rb"), name)
    with os.fdopen(write_end, "w") as errors:
        async with stdio_client(parameters, errlog=errors) as streams:
            # The program has its own copy; ours would keep the reader from seeing the end.
            errors.close()
            yield streams


@asynccontextmanager
async def connect_http(endpoint: HttpEndpoint) -> AsyncGenerator[TransportStreams]:
    """Connect to a running server. Callers set the timeout of each request."""
    async with (
        httpx2.AsyncClient(
            headers=endpoint.headers,
            # Do not reach this machine through a proxy.
            trust_env=not is_loopback(httpx2.URL(endpoint.url).host),
            timeout=httpx2.Timeout(_CONNECT_TIMEOUT, read=None),
            event_hooks={"request": [_trace_request], "response": [_record_status]},
        ) as client,
        streamable_http_client(
            endpoint.url, http_client=client, max_sse_event_size=_MAX_EVENT_SIZE
        ) as streams,
    ):
        yield streams


class RequestState:
    """How far one HTTP request has come.

    Several requests share a connection, and its end ends them all. Only a request that was not
    sent may be repeated: any other might be executed twice."""

    def __init__(self) -> None:
        self.was_sent = False
        self.status: int | None = None
        """The last error status."""

    @contextmanager
    def track(self) -> Generator[None]:
        """Record the request that is sent in this context. The SDK sends it in the context of its
        caller."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    async def trace(self, event: str, details: dict[str, Any]) -> None:
        """Receive the HTTP client's trace events."""
        self.was_sent = self.was_sent or event.endswith(_SENDING)


_current: ContextVar[RequestState | None] = ContextVar("request_state", default=None)


async def _trace_request(request: httpx2.Request) -> None:
    if state := _current.get():
        request.extensions = {**request.extensions, "trace": state.trace}


async def _record_status(response: httpx2.Response) -> None:
    state = _current.get()
    # Only POST carries a message; other requests listen.
    if state and response.request.method == "POST":
        state.status = response.status_code if response.is_error else None


@asynccontextmanager
async def notify_at_end(
    transport: AbstractAsyncContextManager[TransportStreams], on_end: Callable[[], None]
) -> AsyncGenerator[TransportStreams]:
    """Yield the transport's streams, and call `on_end` when the server closes its side."""
    async with transport as (reader, writer):
        yield _NotifyingStream(reader, on_end), writer


class _NotifyingStream:
    """A read stream that calls `on_end` at its end."""

    def __init__(self, stream: ReadStream[Message], on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    @property
    def last_context(self) -> object:
        """The context in which the last message was sent; the SDK reads it."""
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
