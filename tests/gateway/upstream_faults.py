"""Ways for an upstream to fail, and a gateway in front of an upstream that does."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import pytest
from msgspec import Struct, structs

from tests.gateway.faulty_upstream import (
    HELLO,
    Action,
    FaultyUpstream,
    ReceivedRequest,
    respond_normally,
)
from tests.gateway.gateway_process import wait_until
from tests.gateway.raw_clients import Client, ask
from tests.gateway.running_gateway import RunningGateway, make_config, run_gateway
from toolspeak._util import encode_json
from toolspeak.config.settings import Config
from toolspeak.events import ArgumentsDelta, CallStart, Event, Finish, Started, TextDelta
from toolspeak.types import Failure
from toolspeak.upstream import client as upstream_client

TEXT = "Hello there."
STARTED, *_ = BEGINNING = (Started("id_1", "m"), TextDelta(TEXT))
WIRES = ("openai_chat", "anthropic", "ollama", "gemini", "openai_responses")
HTML = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
MAX_BODY = 2**20

TIMEOUT = 0.5
NO_TIMEOUTS: dict[str, Any] = {"first_byte_timeout": 600.0, "idle_timeout": 600.0}
"""Longer than the clients wait, so that no test passes because of a timeout of the gateway."""
TimeoutKind = Literal["none", "any", "idle"]
_TIMEOUT_SETTINGS: dict[TimeoutKind, dict[str, Any]] = {
    "none": NO_TIMEOUTS,
    "any": {"first_byte_timeout": TIMEOUT, "idle_timeout": TIMEOUT},
    "idle": {**NO_TIMEOUTS, "idle_timeout": TIMEOUT},
}


# Actions that fail.


async def close(received: ReceivedRequest) -> None:
    """Close the connection without a response."""


async def close_in_headers(received: ReceivedRequest) -> None:
    await received.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/ev")


async def respond_without_http(received: ReceivedRequest) -> None:
    await received.send(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")


def truncate(*events: Event) -> Action:
    """Close the connection after the first events of a stream, or after half of a whole reply."""

    async def respond(received: ReceivedRequest) -> None:
        if received.request.stream:
            await received.start_chunks(*received.encode(events))
        else:
            body = b"".join(received.encode(HELLO))
            await received.send_head(200, content_length=str(len(body)))
            await received.send(body[: len(body) // 2])

    return respond


def truncate_frame(is_chunked: bool) -> Action:
    """End the response, or close the connection, in the middle of a frame."""

    async def respond(received: ReceivedRequest) -> None:
        if received.request.stream:
            data = b"".join(received.encode(BEGINNING))
            data += b"".join(received.encode((*BEGINNING, TextDelta("lost"))))[-20:-9]
        else:
            data = b"".join(received.encode(HELLO))[:-9]
        if is_chunked:
            await received.start_chunks(data)
            await received.end_chunks()
        else:
            await received.send_head()
            await received.send(data)

    return respond


def send_invalid_json(*events: Event) -> Action:
    """Send invalid JSON in a frame after these events, or as the body."""

    async def respond(received: ReceivedRequest) -> bool:
        if received.request.stream:
            is_lines = received.wire.name == "ollama"
            frame = b'{"a": nope}\n' if is_lines else b'data: {"a": nope}\n\n'
            await received.start_chunks(*received.encode(events), frame)
            await received.wait_for_close()
        else:
            await received.start_chunks(b'{"a": nope}')
        await received.end_chunks()
        return True

    return respond


def respond_with_status(status: int, body: bytes = b"", **headers: str) -> Action:
    async def respond(received: ReceivedRequest) -> bool:
        failure = Failure("internal", f"this is a {status}", status)
        data = body or encode_json(received.wire.encode_failure(failure))
        await received.respond(status, data, **{"content_type": "application/json", **headers})
        return True

    return respond


respond_with_page = respond_with_status(200, HTML, content_type="text/html")


def reject_for_rate(retry_after: str = "", **headers: str) -> Action:
    """Respond with status 429."""
    if retry_after:
        headers["retry_after"] = retry_after
    return respond_with_status(429, b"", **headers)


def hang(*events: Event) -> Action:
    """Send nothing more after these events, and keep the connection open."""

    async def respond(received: ReceivedRequest) -> None:
        if events:
            await received.start_chunks(*received.encode(events)[: _count_frames(received)])
        await received.wait_for_close()

    return respond


def send_endlessly(noise: bytes, *events: Event, pause: float = 0.01) -> Action:
    """Send only comments or space after these events."""

    async def respond(received: ReceivedRequest) -> None:
        await received.start_chunks(*received.encode(events)[: _count_frames(received)])
        # Lines of JSON have no comments.
        chunk = b" " * len(noise) + b"\n" if received.wire.name == "ollama" else noise
        while True:
            await received.send_chunk(chunk)
            await asyncio.sleep(pause)

    return respond


def _count_frames(received: ReceivedRequest) -> int | None:
    """All frames of a stream, and nothing of a whole reply."""
    return None if received.request.stream else 0


def send_error(*events: Event) -> Action:
    """Send an error after these events in the stream, or as a reply with status 200."""

    async def respond(received: ReceivedRequest) -> bool:
        failure = Failure("internal", "we are out of order", 500)
        if not received.request.stream:
            await received.respond(200, encode_json(received.wire.encode_failure(failure)))
            return True
        await received.start_chunks(*received.encode((*events, failure)))
        await received.wait_for_close()
        return False

    return respond


class Fault(Struct, frozen=True):
    """A way to fail, and the error that a client gets."""

    action: Action
    status: int = 502
    """The status, unless a streaming client has received text before the error."""
    text: str = ""
    """The text that a streaming client receives before the error."""
    message: str = ""
    """A part of the error's message."""
    is_stall: bool = False
    """Whether only a timeout of the gateway ends the request."""


_CLOSED = "closed the connection in the middle of its response"
_NO_START = f"did not start to respond within {TIMEOUT:g} s"
_NO_PROGRESS = f"nothing for {TIMEOUT:g} s"
_TRUNCATED_CALL = (CallStart(0, "call_1", "tool_0"), ArgumentsDelta(0, '{"city": "Os'))
FAULTS: dict[str, Fault] = {
    "closed": Fault(close, message="closed the connection"),
    "closed in headers": Fault(close_in_headers),
    "no HTTP": Fault(respond_without_http),
    "truncated before text": Fault(truncate(STARTED), message=_CLOSED),
    "truncated after text": Fault(truncate(*BEGINNING), text=TEXT, message=_CLOSED),
    "truncated in call": Fault(truncate(*BEGINNING, *_TRUNCATED_CALL), text=TEXT, message=_CLOSED),
    "truncated in call without text": Fault(truncate(STARTED, *_TRUNCATED_CALL), message=_CLOSED),
    "ended in frame": Fault(truncate_frame(is_chunked=True), text=TEXT),
    "closed in frame": Fault(truncate_frame(is_chunked=False), text=TEXT),
    "invalid JSON": Fault(send_invalid_json(), message="cannot be decoded"),
    "invalid JSON after text": Fault(
        send_invalid_json(*BEGINNING), text=TEXT, message="cannot be decoded"
    ),
    "web page": Fault(respond_with_page, message="web page"),
    "web page with status 502": Fault(
        respond_with_status(502, HTML, content_type="text/html"), message="web page"
    ),
    "space": Fault(respond_with_status(200, b" ")),
    "empty object": Fault(respond_with_status(200, b"{}")),
    "array": Fault(respond_with_status(200, b"[1, 2]")),
    "string": Fault(respond_with_status(200, b'"hello"')),
    "429": Fault(respond_with_status(429), 429, message="this is a 429"),
    "429 with retry-after": Fault(reject_for_rate("99"), 429, message="this is a 429"),
    "500": Fault(respond_with_status(500), 500, message="this is a 500"),
    "503": Fault(respond_with_status(503), 503, message="this is a 503"),
    "529": Fault(respond_with_status(529), 529, message="this is a 529"),
    "599 as text": Fault(respond_with_status(599, b"out of order"), 599, message="out of order"),
    "700": Fault(respond_with_status(700)),
    "401": Fault(respond_with_status(401), 401, message="this is a 401"),
    "301": Fault(
        respond_with_status(301, b"x", location="http://127.0.0.1:9/else"), message="base_url"
    ),
    "307": Fault(respond_with_status(307, b"x", location="/v2/else"), message="base_url"),
    "silent": Fault(hang(), 504, message=_NO_START, is_stall=True),
    "silent before text": Fault(hang(STARTED), 504, message=_NO_PROGRESS, is_stall=True),
    "silent after text": Fault(
        hang(*BEGINNING), 504, text=TEXT, message=_NO_PROGRESS, is_stall=True
    ),
    "endless space": Fault(send_endlessly(b"  \n\n"), 504, message=_NO_PROGRESS, is_stall=True),
    "endless comments": Fault(
        send_endlessly(b": still here\n\n", *BEGINNING),
        504,
        text=TEXT,
        message=_NO_PROGRESS,
        is_stall=True,
    ),
    "endless comments without pause": Fault(
        send_endlessly(b": " + b"x" * 65536 + b"\n", STARTED, pause=0)
    ),
    "endless space without pause": Fault(
        send_endlessly(b" " * 65536, pause=0), message=f"{MAX_BODY >> 20} MiB"
    ),
    "error that is too long": Fault(
        respond_with_status(500, b"x" * 2 * MAX_BODY), 500, message="xxxxx"
    ),
    "reply that is too long": Fault(
        respond_with_status(200, b'{"a": "' + b"x" * MAX_BODY + b'"}'),
        message=f"{MAX_BODY >> 20} MiB",
    ),
    "error in reply": Fault(send_error(), 500, message="out of order"),
    "error before text": Fault(send_error(STARTED), 500, message="out of order"),
    "error after text": Fault(send_error(*BEGINNING), 500, text=TEXT, message="out of order"),
}


# Gateways.


class FaultySetup(Struct, frozen=True):
    """A faulty upstream, and the gateway in front of it."""

    upstream: FaultyUpstream
    gateway: RunningGateway

    @property
    def url(self) -> str:
        return self.gateway.url

    @property
    def active_requests(self) -> int:
        return self.gateway.gateway.metrics.active_requests

    def wait_until_idle(self, idle_connections: int = 1) -> None:
        """Wait until no task, request or connection is left; some connections may be reused."""
        try:
            wait_until(lambda: not self._list_remaining(idle_connections))
        except AssertionError:
            raise AssertionError(self._list_remaining(idle_connections)) from None

    def _list_remaining(self, idle_connections: int) -> dict[str, Any]:
        remaining = {
            "tasks": self.gateway.list_tasks(),
            "gateway requests": self.active_requests,
            "upstream requests": self.upstream.active_requests,
            "connections": max(0, self.upstream.connections - idle_connections),
        }
        return {name: value for name, value in remaining.items() if value}

    def check_works(self, client: Client) -> None:
        """Check that the next request gets a normal response."""
        self.upstream.set_actions(respond_normally)
        response = ask(self.url, client)
        assert (response.status, response.text, response.error) == (200, TEXT, "")


def change_upstream(config: Config, **settings: Any) -> Config:
    upstream = structs.replace(config.upstreams["scripted"], **{**NO_TIMEOUTS, **settings})
    return structs.replace(config, upstreams={"scripted": upstream})


@contextmanager
def start_setup(
    wire: str = "openai_chat", ping_after: float = 600.0, **settings: Any
) -> Generator[FaultySetup]:
    with FaultyUpstream() as upstream:
        config = change_upstream(make_config(upstream.url, wire), **settings)
        with run_gateway(config, ping_after=ping_after) as gateway:
            yield FaultySetup(upstream, gateway)


class SetupCache:
    """Starts one setup for each wire and timeout, when it is needed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._setups: dict[tuple[str, TimeoutKind], FaultySetup] = {}

    def get(self, wire: str, timeout: TimeoutKind = "none") -> FaultySetup:
        key = wire, timeout
        if key not in self._setups:
            settings = _TIMEOUT_SETTINGS[timeout]
            self._setups[key] = self._stack.enter_context(start_setup(wire, **settings))
        return self._setups[key]


@pytest.fixture(scope="module")
def setups() -> Iterator[SetupCache]:
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setattr(upstream_client, "_MAX_BODY", MAX_BODY)
        yield SetupCache(stack)


# Actions that delay a reply.


def delay(seconds: float, action: Action) -> Action:
    async def respond(received: ReceivedRequest) -> Any:
        await asyncio.sleep(seconds)
        return await action(received)

    return respond


def send_slowly(pause: float, *texts: str) -> Action:
    """Send a reply with these texts, with a pause after each frame."""

    async def respond(received: ReceivedRequest) -> bool:
        await received.start_chunks()
        deltas = map(TextDelta, texts)
        *frames, last = received.encode((STARTED, *deltas, Finish("stop")))
        for data in frames:
            await received.send_chunk(data)
            await asyncio.sleep(pause)
        await received.send_chunk(last)
        await received.end_chunks()
        return True

    return respond
