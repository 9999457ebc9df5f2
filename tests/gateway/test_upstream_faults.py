"""Faults of upstreams: each client gets an error in the shape of its API, and nothing is leaked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec import structs

from tests.gateway.faulty_upstream import HELLO, Action, ReceivedRequest, respond_normally
from tests.gateway.gateway_process import wait_until
from tests.gateway.raw_clients import (
    CLIENTS,
    STREAMED,
    WHOLE,
    Client,
    ParsedResponse,
    ask,
    connect,
)
from tests.gateway.running_gateway import make_config, run_gateway
from tests.gateway.sdk_streams import SDKS, SdkStream
from tests.gateway.upstream_faults import (
    FAULTS,
    STARTED,
    TEXT,
    WIRES,
    Fault,
    SetupCache,
    send_slowly,
    setups,
    start_setup,
)
from toolspeak.events import TextDelta
from toolspeak.upstream import client as upstream_client

__all__ = ["setups"]


def select_clients(wire: str) -> tuple[Client, ...]:
    """Return every client for two wires, and two clients for the others."""
    return CLIENTS if wire in WIRES[:2] else (WHOLE[0], STREAMED[0])


def list_fault_cases() -> Iterator[Any]:
    for name, fault in FAULTS.items():
        for wire in WIRES:
            for client in select_clients(wire) if not fault.is_stall else ():
                yield pytest.param(name, wire, client, id=f"{name}-{wire}-{client.name}")


def check_error(response: ParsedResponse, client: Client, fault: Fault) -> None:
    is_in_stream = client.stream and fault.text
    expected = (200, fault.text) if is_in_stream else (fault.status, "")
    assert (response.status, response.text) == expected, response
    assert fault.message in response.error
    assert response.error


@pytest.mark.parametrize(("name", "wire", "client"), list(list_fault_cases()))
def test_upstream_with_fault_ends_request_with_error(
    name: str, wire: str, client: Client, setups: SetupCache
) -> None:
    setup = setups.get(wire)
    setup.upstream.set_actions(FAULTS[name].action)
    check_error(ask(setup.url, client), client, FAULTS[name])
    setup.wait_until_idle()
    setup.check_works(client)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", [name for name in FAULTS if FAULTS[name].is_stall])
def test_upstream_that_stalls_ends_request_with_timeout(
    name: str, wire: str, setups: SetupCache
) -> None:
    fault = FAULTS[name]

    def check_client(client: Client) -> None:
        # Until the first event, the timeout for the first byte applies; a client that should
        # receive text must not get into it, however busy the machine is.
        setup = setups.get(wire, "idle" if client.stream and fault.text else "any")
        check_error(ask(setup.url, client), client, fault)

    both_setups = [setups.get(wire, "idle"), setups.get(wire, "any")]
    for setup in both_setups:
        setup.upstream.set_actions(fault.action)
    # All clients wait at the same time.
    with ThreadPoolExecutor(len(CLIENTS)) as pool:
        list(pool.map(check_client, select_clients(wire)))
    for setup in both_setups:
        setup.wait_until_idle()
        setup.upstream.set_actions(respond_normally)
        for client in select_clients(wire):
            # On a busy machine, even a normal response may exceed the short timeout.
            wait_until(lambda url=setup.url, client=client: ask(url, client).text == TEXT)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_upstream_that_cannot_be_reached_ends_request_with_error(client: Client) -> None:
    with run_gateway(make_config("http://127.0.0.1:9")) as gateway:
        response = ask(gateway.url, client)
        assert response.status == 502
        assert "cannot be reached" in response.error
        assert gateway.list_tasks() == set()


# Unusual responses that are valid.


def respond_as(content_type: str) -> Action:
    async def respond(received: ReceivedRequest) -> None:
        await received.send_head(200, content_type=content_type)
        await received.send(b"".join(received.encode(HELLO)))

    return respond


def force_stream(is_stream: bool) -> Action:
    """Respond with a stream or a whole reply, whichever was requested."""

    async def respond(received: ReceivedRequest) -> bool:
        received.request = structs.replace(received.request, stream=is_stream)
        return await respond_normally(received)

    return respond


async def stay_open(received: ReceivedRequest) -> None:
    """Send a whole reply, and do not end the response."""
    await received.start_chunks(*received.encode(HELLO))
    await received.wait_for_close()


async def close_without_end(received: ReceivedRequest) -> None:
    """Send a whole reply, and close the connection in the middle of the response."""
    await received.start_chunks(*received.encode(HELLO))


@pytest.mark.parametrize("client", [WHOLE[0], *STREAMED], ids=lambda client: client.name)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "action",
    [
        respond_as("text/plain"),
        respond_as("application/octet-stream"),
        force_stream(False),
        force_stream(True),
    ],
    ids=["text/plain", "octet-stream", "always whole", "always streamed"],
)
def test_unusual_response_is_accepted(
    action: Action, wire: str, client: Client, setups: SetupCache
) -> None:
    setup = setups.get(wire)
    setup.upstream.set_actions(action)
    response = ask(setup.url, client)
    assert (response.status, response.text, response.error) == (200, TEXT, "")
    setup.wait_until_idle()


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("action", [stay_open, close_without_end])
def test_response_without_end_after_complete_reply_is_accepted(
    action: Action, wire: str, setups: SetupCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_client, "_COMPLETE_TIMEOUT", 0.1)
    setup = setups.get(wire)
    setup.upstream.set_actions(action)
    response = ask(setup.url, STREAMED[0])
    assert (response.status, response.text, response.error) == (200, TEXT, "")
    setup.wait_until_idle()


def test_upstream_with_short_pauses_does_not_time_out() -> None:
    """The idle timeout limits each pause, and not their sum."""
    idle_timeout, pause = 1.2, 0.25
    texts = ("Hel", "lo ", "the", "re", ".")
    assert idle_timeout < pause * len(texts)

    def stream_slowly(wire: str) -> None:
        with start_setup(wire, idle_timeout=idle_timeout) as setup:
            setup.upstream.set_actions(send_slowly(pause, *texts))
            response = ask(setup.url, STREAMED[0])
            assert (response.status, response.text, response.error) == (200, TEXT, "")
            setup.wait_until_idle()

    with ThreadPoolExecutor(len(WIRES)) as pool:
        list(pool.map(stream_slowly, WIRES))


# The SDKs of the vendors.


@pytest.mark.parametrize("sdk", SDKS, ids=lambda sdk: sdk.__name__)
@pytest.mark.parametrize(
    "name", ["truncated after text", "error after text", "503", "invalid JSON"]
)
def test_sdk_raises_error_of_upstream(name: str, sdk: SdkStream, setups: SetupCache) -> None:
    setup, fault = setups.get("openai_chat"), FAULTS[name]
    setup.upstream.set_actions(fault.action)
    texts: list[str] = []
    with pytest.raises(SDKS[sdk], match=fault.message):
        texts += sdk(setup.url)
    assert "".join(texts) == fault.text
    setup.wait_until_idle()


# Errors of the gateway itself.


@pytest.mark.parametrize("client", STREAMED, ids=lambda client: client.name)
def test_internal_error_in_stream_is_reported_with_request_id(
    client: Client, setups: SetupCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = setups.get("openai_chat")

    async def send_in_steps(received: ReceivedRequest) -> bool:
        """Send each frame only after the gateway has read the one before."""
        await received.start_chunks()
        frames = received.encode((STARTED, TextDelta("Hello"), TextDelta(" there."), HELLO[1]))
        for index, data in enumerate(frames):
            while len(seen) < index:
                await asyncio.sleep(0.005)
            await received.send_chunk(data)
        await received.end_chunks()
        return True

    mark_progress = upstream_client.UpstreamResponse.mark_progress
    seen: list[bool] = []

    def fail(self: Any, *, is_complete: bool) -> None:
        seen.append(is_complete)
        if len(seen) == 3:
            raise ZeroDivisionError
        mark_progress(self, is_complete=is_complete)

    monkeypatch.setattr(upstream_client.UpstreamResponse, "mark_progress", fail)
    setup.upstream.set_actions(send_in_steps)
    response = ask(setup.url, client)
    assert (response.status, response.text) == (200, "Hello")
    assert response.headers["x-request-id"] in response.error
    setup.wait_until_idle()


def test_web_socket_is_rejected(setups: SetupCache) -> None:
    setup = setups.get("openai_chat")
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    with connect(setup.url) as connection:
        head = "GET /v1/responses HTTP/1.1\r\nHost: localhost\r\n"
        key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        connection.sendall(f"{head}{upgrade}{key}".encode())
        assert connection.recv(1000).split(b" ")[1] in (b"403", b"405")
    setup.check_works(WHOLE[0])
