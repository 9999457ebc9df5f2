"""Clients that disconnect, stop sending or stop reading: their requests end and free everything."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from socket import socket
from time import sleep
from typing import Any

import pytest
from msgspec import Struct

from tests.gateway.faulty_upstream import (
    Action,
    FaultyUpstream,
    ReceivedRequest,
    respond_normally,
)
from tests.gateway.gateway_process import wait_until
from tests.gateway.raw_clients import CLIENTS, STREAMED, WHOLE, Client, ask, connect, encode_request
from tests.gateway.running_gateway import make_config, run_gateway
from tests.gateway.upstream_faults import (
    BEGINNING,
    STARTED,
    TEXT,
    FaultySetup,
    hang,
    reject_for_rate,
    send_endlessly,
    start_setup,
)
from toolspeak.events import Finish, TextDelta
from toolspeak.gateway import http, server_protocol
from toolspeak.store.base import MemoryStore

LONG_TEXT = TextDelta("x" * 100_000)


@pytest.fixture(scope="module")
def setup() -> Iterator[FaultySetup]:
    """A gateway with timeouts so long that requests end only because of their clients."""
    with start_setup(retries=2) as setup:
        yield setup


# Clients that disconnect.


class Stage(Struct, frozen=True):
    """A stage of a request at which its client disconnects."""

    actions: tuple[Action, ...]
    is_reached: Callable[[FaultySetup], Any]


def has_request(setup: FaultySetup) -> bool:
    return len(setup.upstream.requests) == 1


def has_rejected(setup: FaultySetup) -> bool:
    return has_request(setup) and not setup.upstream.active_requests


STAGES = {
    "before the headers": Stage((hang(),), has_request),
    "before the first text": Stage((hang(STARTED),), lambda setup: setup.upstream.active_requests),
    "before a retry": Stage((reject_for_rate("15"), respond_normally), has_rejected),
}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("name", STAGES)
def test_client_that_disconnects_while_waiting_ends_the_request(
    name: str, client: Client, setup: FaultySetup
) -> None:
    stage = STAGES[name]
    setup.upstream.set_actions(*stage.actions)
    with connect(setup.url) as connection:
        connection.sendall(encode_request(client))
        wait_until(lambda: stage.is_reached(setup))
        # Gives the gateway a chance to read what the upstream has sent.
        sleep(0.02)
    setup.wait_until_idle()
    assert len(setup.upstream.requests) == 1
    setup.check_works(client)


@pytest.mark.parametrize("client", STREAMED, ids=lambda client: client.name)
@pytest.mark.parametrize(
    "action",
    [hang(*BEGINNING), send_endlessly(b": x\n\n", *BEGINNING)],
    ids=["silent upstream", "endless comments"],
)
def test_client_that_disconnects_during_a_stream_ends_the_request(
    action: Action, client: Client, setup: FaultySetup
) -> None:
    setup.upstream.set_actions(action)
    with connect(setup.url) as connection:
        connection.sendall(encode_request(client))
        received = b""
        while TEXT.encode() not in received:
            received += connection.recv(65536)
    setup.wait_until_idle()
    setup.check_works(client)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("part", [0.0, 0.5], ids=["before the body", "in the body"])
def test_client_that_disconnects_while_sending_ends_the_request(
    part: float, client: Client, setup: FaultySetup
) -> None:
    setup.upstream.set_actions(respond_normally)
    data = encode_request(client)
    head = data.index(b"\r\n\r\n") + 4
    with connect(setup.url) as connection:
        connection.sendall(data[: head + round(part * (len(data) - head))])
        wait_until(lambda: setup.active_requests)
    setup.wait_until_idle()
    assert setup.upstream.requests == []
    setup.check_works(client)


def test_client_that_disconnects_while_waiting_for_a_slot_takes_none() -> None:
    with start_setup(concurrency=1) as setup:
        setup.upstream.set_actions(hang())
        with connect(setup.url) as first:
            first.sendall(encode_request(WHOLE[0]))
            wait_until(lambda: setup.upstream.active_requests)
            with connect(setup.url) as second:
                second.sendall(encode_request(WHOLE[0]))
                wait_until(lambda: setup.active_requests == 2)
                sleep(0.05)
            wait_until(lambda: setup.active_requests == 1)
            assert len(setup.upstream.requests) == 1
        setup.wait_until_idle()
        setup.check_works(WHOLE[0])


# Clients that stop.


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_client_that_stops_sending_gets_a_timeout(
    client: Client, setup: FaultySetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "BODY_TIMEOUT", 0.2)
    with connect(setup.url) as connection:
        connection.sendall(encode_request(client)[:-1])
        status_line = connection.recv(65536).partition(b"\r\n")[0]
        assert status_line == b"HTTP/1.1 408 Request Timeout"
    setup.wait_until_idle()


async def send_without_end(received: ReceivedRequest) -> None:
    await received.start_chunks()
    data = b"".join(received.encode((LONG_TEXT,)))
    while True:
        await received.send_chunk(data)


@pytest.mark.parametrize("client", STREAMED, ids=lambda client: client.name)
def test_client_that_stops_reading_ends_the_request(
    client: Client, setup: FaultySetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_protocol, "REQUEST_TIMEOUT", 0.3)
    setup.upstream.set_actions(send_without_end)
    with connect(setup.url) as connection:
        connection.sendall(encode_request(client))
        wait_until(lambda: setup.upstream.requests)
        wait_until(lambda: not setup.upstream.active_requests)
        setup.wait_until_idle()
    monkeypatch.undo()
    setup.check_works(client)


async def send_long_reply(received: ReceivedRequest) -> bool:
    """Send a reply that fits into no buffer."""
    await received.start_chunks()
    for data in received.encode((STARTED, *[LONG_TEXT] * 80, Finish("stop"))):
        await received.send_chunk(data)
    await received.end_chunks()
    return True


def read_rest(connection: socket) -> bytes:
    """Return all data until the gateway closes the connection."""
    parts: list[bytes] = []
    with suppress(ConnectionError):
        while data := connection.recv(2**20):
            parts.append(data)
    return b"".join(parts)


def test_client_that_stops_reading_frees_its_slot_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_protocol, "REQUEST_TIMEOUT", 1.0)
    with start_setup(concurrency=1) as setup:
        setup.upstream.set_actions(send_long_reply, respond_normally)
        with connect(setup.url) as connection:
            connection.sendall(encode_request(STREAMED[0]))
            wait_until(
                lambda: len(setup.upstream.requests) == 1 and not setup.upstream.active_requests
            )
            # The slot is free once the upstream has sent the reply, not once the client has it.
            assert ask(setup.url, STREAMED[0]).status == 200
            setup.wait_until_idle()
            rest = read_rest(connection)
            assert rest.startswith(b"HTTP/1.1 200")
            assert 100_000 < len(rest) < 8_000_000


# Memory.


def read_memory() -> int:
    """Return the bytes of memory that this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def send_megabytes(megabytes: int) -> Action:
    async def respond(received: ReceivedRequest) -> None:
        frame = received.encode([STARTED, TextDelta("x" * 65536)])[1]
        await received.start_chunks(*received.encode([STARTED]))
        while received.sent_bytes < megabytes * 2**20:
            await received.send_chunk(frame)
        await received.send_chunk(b"".join(received.encode([Finish("stop")])))
        await received.end_chunks()

    return respond


@pytest.mark.parametrize("client", [STREAMED[0], STREAMED[2]], ids=lambda client: client.name)
def test_client_that_stops_reading_stops_the_upstream(client: Client, setup: FaultySetup) -> None:
    setup.check_works(client)
    setup.upstream.set_actions(send_megabytes(200))
    before = read_memory()
    with connect(setup.url) as connection:
        connection.sendall(encode_request(client))
        wait_until(lambda: setup.upstream.requests)
        received, sent_bytes = setup.upstream.requests[0], -1
        while sent_bytes != received.sent_bytes:
            sent_bytes = received.sent_bytes
            sleep(0.3)
        # The rest is in the buffers of the system.
        assert received.sent_bytes < 24 * 2**20
        assert read_memory() - before < 24 * 2**20
    setup.wait_until_idle()
    setup.check_works(client)


def test_long_stream_needs_little_memory(setup: FaultySetup) -> None:
    setup.check_works(STREAMED[0])
    setup.upstream.set_actions(send_megabytes(100))
    before = read_memory()
    with connect(setup.url) as connection:
        connection.sendall(encode_request(STREAMED[0]))
        end, growth = b"", 0
        while b"[DONE]" not in end:
            end = end[-10:] + connection.recv(2**20)
            growth = max(growth, read_memory() - before)
    assert growth < 24 * 2**20
    setup.wait_until_idle()


# Clients that continue from a response at once.


class SlowStore(MemoryStore):
    async def put(self, key: str, value: bytes, seconds: float) -> None:
        await asyncio.sleep(0.2)
        await super().put(key, value, seconds)


@pytest.mark.parametrize("client", [WHOLE[1], STREAMED[1]], ids=lambda client: client.name)
def test_response_is_stored_before_the_client_can_refer_to_it(client: Client) -> None:
    with (
        FaultyUpstream() as upstream,
        run_gateway(make_config(upstream.url), store=SlowStore()) as gateway,
    ):
        with connect(gateway.url) as connection:
            connection.sendall(encode_request(client))
            raw = b""
            while b'"completed"' not in raw:
                raw += connection.recv(65536)
        identity = raw.split(b'"id":"resp_')[1].split(b'"')[0].decode()
        body = client.body("And then?") | {"previous_response_id": f"resp_{identity}"}
        assert ask(gateway.url, client, body).text == TEXT
        assert "And then?" in upstream.requests[-1].body.decode()
        assert TEXT in upstream.requests[-1].body.decode()
