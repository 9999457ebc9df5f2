"""Endpoints of MCP servers, the streams to them, and the errors on the way.

Each transport yields the SDK's streams and keeps what explains a failure: the last lines of a
program's stderr, the state of an HTTP request. The SDK is imported when a transport is opened.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from itertools import starmap
from threading import Thread
from typing import TYPE_CHECKING, Any, BinaryIO, Self, cast

from msgspec import Struct

from ...config.addresses import find_header_problem, is_loopback
from ...errors import UsageError
from ...security.scrubbing import scrub
from ..tools import ToolError

if TYPE_CHECKING:
    import httpx2

    # The protocol of these streams is named in no public module.
    from mcp.client._transport import (  # pyright: ignore[reportPrivateUsage]
        ReadStream,
        TransportStreams,
    )
    from mcp.shared.message import SessionMessage

log = logging.getLogger("toolspeak.agent")

_MAX_LINES = 10
"""Lines of stderr that are shown if a program fails."""
_MAX_LINE_LENGTH = 2000
_CONNECT_TIMEOUT = 30.0
_MAX_EVENT_SIZE = 64 * 1024 * 1024
"""Bytes of one result: images exceed the SDK's default."""
_SENDING = "send_request_headers.started"


class McpServerError(ToolError):
    """An MCP server cannot be started, does not answer, or is gone."""


class ServerNotStarted(McpServerError):
    """The server could not be started or reached. The message is for the user and shows the
    command and its last output; `short` is for the model."""

    def __init__(self, message: str, short: str) -> None:
        super().__init__(message)
        self.short = short


class RequestNotSent(McpServerError):
    """The server certainly has not received the call, so it may be sent again."""


class StdioEndpoint(Struct, frozen=True, kw_only=True):
    """A program to start, which speaks MCP over stdin and stdout. Its `repr` masks secrets."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """Variables in addition to the few that every program needs."""
    cwd: str | None = None

    def __repr__(self) -> str:
        directory = f" in {self.cwd}" if self.cwd else ""
        return f"`{scrub(shlex.join([self.command, *self.args])).text}`{directory}"


class HttpEndpoint(Struct, frozen=True, kw_only=True):
    """A running server, which speaks MCP over streamable HTTP. Its `repr` masks secrets."""

    url: str
    headers: dict[str, str] = {}

    def __repr__(self) -> str:
        from ...config.settings import mask_url

        return mask_url(self.url)


McpEndpoint = StdioEndpoint | HttpEndpoint


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers stripped, or raise if one cannot be sent."""
    stripped = {name: value.strip() for name, value in headers.items()}
    for problem in filter(None, starmap(find_header_problem, stripped.items())):
        raise UsageError(problem)
    return stripped


# Programs.


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
    """Start a program, and stop it at the end. It receives only the safe part of the environment
    (PATH, HOME and the like) and its own `env`, not the user's keys."""
    from mcp import StdioServerParameters, stdio_client

    parameters = StdioServerParameters(
        command=endpoint.command, args=list(endpoint.args), env=endpoint.env, cwd=endpoint.cwd
    )
    read_end, write_end = os.pipe()
    stderr.start(os.fdopen(read_end, "rb"), name)
    with os.fdopen(write_end, "w") as errors:
        async with stdio_client(parameters, errlog=errors) as streams:
            # The program has a copy; with this one open, the reader would not see the end.
            errors.close()
            yield streams


# HTTP.


@asynccontextmanager
async def connect_http(endpoint: HttpEndpoint) -> AsyncGenerator[TransportStreams]:
    """Connect to a running server. Callers set the timeout of each request."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

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
    """The progress of one HTTP request.

    Several requests share a connection, and its end ends them all. Only a request that was not
    sent may be repeated: any other might be run twice."""

    def __init__(self) -> None:
        self.was_sent = False
        self.status: int | None = None
        """The last error status."""

    @contextmanager
    def track(self) -> Generator[None]:
        """Record the request that is sent in this context. The SDK sends it in the context of its
        caller."""
        token = _current_request.set(self)
        try:
            yield
        finally:
            _current_request.reset(token)

    async def trace(self, event: str, details: dict[str, Any]) -> None:
        """Receive the HTTP client's trace events."""
        self.was_sent = self.was_sent or event.endswith(_SENDING)


_current_request: ContextVar[RequestState | None] = ContextVar("current_request", default=None)


async def _trace_request(request: httpx2.Request) -> None:
    if state := _current_request.get():
        request.extensions = {**request.extensions, "trace": state.trace}


async def _record_status(response: httpx2.Response) -> None:
    state = _current_request.get()
    # Only POST carries a message; other requests listen.
    if state and response.request.method == "POST":
        state.status = response.status_code if response.is_error else None


# The end of a connection.


@asynccontextmanager
async def notify_at_end(
    transport: AbstractAsyncContextManager[TransportStreams], on_end: Callable[[], None]
) -> AsyncGenerator[TransportStreams]:
    """Yield the transport's streams, and call `on_end` when the server closes its side."""
    async with transport as (reader, writer):
        notifying = _NotifyingStream(reader, on_end)
        yield cast("ReadStream[SessionMessage | Exception]", notifying), writer


class _NotifyingStream:
    """A read stream that calls `on_end` when the SDK stops reading it: at the stream's end. The
    calls that still wait for a response fail only after that."""

    def __init__(
        self, stream: ReadStream[SessionMessage | Exception], on_end: Callable[[], None]
    ) -> None:
        self._stream = stream
        self._on_end = on_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> ReadStream[SessionMessage | Exception]:
        return self._stream

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        self._on_end()
        return await self._stream.__aexit__(*error)
