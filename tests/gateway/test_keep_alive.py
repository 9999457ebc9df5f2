"""Pings: what a streaming client receives while its upstream is silent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.faulty_upstream import Action, respond_normally
from tests.gateway.raw_clients import CLIENTS, STREAMED, Client, ask
from tests.gateway.sdk_streams import SDKS, SdkStream
from tests.gateway.upstream_faults import (
    FAULTS,
    MAX_BODY,
    TEXT,
    FaultySetup,
    delay,
    send_slowly,
    start_setup,
)
from toolspeak.upstream import client as upstream_client

PING_AFTER = 0.05
PINGS = {
    "openai_chat": b": keep-alive\n\n",
    "openai_responses": b": keep-alive\n\n",
    "anthropic": b'event: ping\ndata: {"type": "ping"}\n\n',
}
delay_reply = delay(6 * PING_AFTER, respond_normally)
pause_between_texts = send_slowly(3 * PING_AFTER, "Hello", " there.")


@pytest.fixture(scope="module")
def pinging() -> Iterator[FaultySetup]:
    with pytest.MonkeyPatch.context() as patch, start_setup(ping_after=PING_AFTER) as setup:
        patch.setattr(upstream_client, "_MAX_BODY", MAX_BODY)
        yield setup


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize(
    "action", [delay_reply, pause_between_texts], ids=["before the reply", "between texts"]
)
def test_silent_upstream_causes_pings(action: Action, client: Client, pinging: FaultySetup) -> None:
    pinging.upstream.set_actions(action)
    response = ask(pinging.url, client)
    assert (response.status, response.text, response.error) == (200, TEXT, "")
    ping = PINGS.get(client.wire) if client.stream else None
    if ping:
        assert response.raw.count(ping) >= 2
        assert not response.raw.rstrip().endswith(ping.rstrip())
    else:
        assert b"ping" not in response.raw
        assert b"keep-alive" not in response.raw
    pinging.wait_until_idle()


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("name", ["closed", "500", "web page", "invalid JSON", "error in reply"])
def test_fault_after_pings_is_reported_in_the_stream(
    name: str, client: Client, pinging: FaultySetup
) -> None:
    """The head has been sent with the first ping, so that the status cannot change any more."""
    fault = FAULTS[name]
    pinging.upstream.set_actions(delay(3 * PING_AFTER, fault.action))
    response = ask(pinging.url, client)
    has_started = client.stream and client.wire in PINGS
    assert (response.status, response.text) == (200 if has_started else fault.status, "")
    assert fault.message in response.error
    assert response.error
    pinging.wait_until_idle()
    pinging.check_works(client)


def test_stream_without_long_pauses_has_no_pings() -> None:
    """Only the time since the last text counts, and not that since the start."""
    ping_after, pause = 1.2, 0.2
    texts = ["la "] * 7
    assert ping_after < pause * len(texts)
    with start_setup(ping_after=ping_after) as setup:
        setup.upstream.set_actions(send_slowly(pause, *texts))
        response = ask(setup.url, STREAMED[0])
        assert response.text == "".join(texts)
        assert b"keep-alive" not in response.raw


@pytest.mark.parametrize("sdk", SDKS, ids=lambda sdk: sdk.__name__)
@pytest.mark.parametrize(
    "action", [delay_reply, pause_between_texts], ids=["before the reply", "between texts"]
)
def test_sdk_ignores_pings(action: Action, sdk: SdkStream, pinging: FaultySetup) -> None:
    pinging.upstream.set_actions(action)
    assert "".join(sdk(pinging.url)) == TEXT
    pinging.wait_until_idle()
