"""Retries at the same upstream, and fallbacks to others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from email.utils import formatdate
from time import time
from typing import Any

import pytest
from msgspec import Struct, structs

from tests.gateway.faulty_upstream import (
    Action,
    FaultyUpstream,
    ReceivedRequest,
    respond_normally,
)
from tests.gateway.raw_clients import STREAMED, WHOLE, Client, ask
from tests.gateway.running_gateway import make_config, run_gateway
from tests.gateway.upstream_faults import (
    BEGINNING,
    FAULTS,
    HTML,
    NO_TIMEOUTS,
    STARTED,
    TEXT,
    TIMEOUT,
    FaultySetup,
    change_upstream,
    close,
    close_in_headers,
    hang,
    reject_for_rate,
    respond_with_page,
    respond_with_status,
    send_error,
    send_invalid_json,
    start_setup,
    truncate,
)
from toolspeak.config.settings import Config, UpstreamSettings
from toolspeak.upstream import client as upstream_client

FIRST_WAIT, MAX_WAIT = 0.25, 20.0


class RecordingAsyncio:
    """Stands in for `asyncio` in the client of upstreams: records waits instead of sleeping."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the gateway has waited before retries; none of them really passes."""
    recording = RecordingAsyncio()
    monkeypatch.setattr(upstream_client, "asyncio", recording)
    return recording.waits


@pytest.fixture(scope="module")
def retrying() -> Iterator[FaultySetup]:
    with start_setup(retries=2) as setup:
        yield setup


def format_date(seconds: float) -> str:
    """Return the time in so many seconds as an HTTP date."""
    return formatdate(time() + seconds, usegmt=True)


class Retry(Struct, frozen=True):
    """The actions of an upstream, and the result of the request."""

    actions: tuple[Action, ...]
    status: int
    requests: int
    """The number of requests to the upstream."""
    wait: float | None = None
    """Seconds before the first retry, or None if the gateway chooses them."""
    retry_after: str | None = None
    """The header of the response to the client."""


error = respond_with_status
limit = reject_for_rate
RETRIES = {
    "first response is fine": Retry((respond_normally,), 200, 1),
    "429 once": Retry((error(429), respond_normally), 200, 2),
    "500 twice": Retry((error(500), error(500), respond_normally), 200, 3),
    "503 and 529": Retry((error(503), error(529), respond_normally), 200, 3),
    "closed twice": Retry((close, close_in_headers, respond_normally), 200, 3),
    "too many errors": Retry((error(500), error(503), error(502), respond_normally), 502, 3),
    "400": Retry((error(400), respond_normally), 400, 1),
    "401": Retry((error(401), respond_normally), 401, 1),
    "404": Retry((error(404), respond_normally), 404, 1),
    "501": Retry((error(501), respond_normally), 501, 1),
    "truncated after headers": Retry((truncate(STARTED), respond_normally), 502, 1),
    "web page": Retry((respond_with_page, respond_normally), 502, 1),
    "seconds": Retry((limit("1"), respond_normally), 200, 2, wait=1.0),
    "milliseconds": Retry((limit(retry_after_ms="300"), respond_normally), 200, 2, wait=0.3),
    "zero": Retry((limit("0"), respond_normally), 200, 2, wait=0.0),
    "negative": Retry((limit("-5"), respond_normally), 200, 2, wait=0.0),
    "date in the past": Retry((limit(format_date(-60)), respond_normally), 200, 2, wait=0.0),
    "invalid": Retry((limit("soon"), respond_normally), 200, 2),
    "infinite": Retry((limit("inf"), respond_normally), 200, 2),
    "too long": Retry((limit("3600"), respond_normally), 429, 1, retry_after="3600"),
    "date too late": Retry(
        (limit(format_date(1e6)), respond_normally), 429, 1, retry_after="1000000"
    ),
    "after the last retry": Retry((limit("0.1"),), 429, 3, wait=0.1, retry_after="1"),
}


@pytest.mark.parametrize("client", [WHOLE[0], STREAMED[2]], ids=lambda client: client.name)
@pytest.mark.parametrize("name", RETRIES)
def test_failed_request_is_retried_if_it_may_succeed(
    name: str, client: Client, retrying: FaultySetup, waits: list[float]
) -> None:
    retry = RETRIES[name]
    retrying.upstream.set_actions(*retry.actions)
    response = ask(retrying.url, client)
    actual = response.status, len(retrying.upstream.requests)
    assert actual == (retry.status, retry.requests), response
    # A request on an idle connection that turns out to be closed is sent again at once.
    can_be_sent_again = "closed" in name
    assert len(waits) in (retry.requests - 1, retry.requests - 1 - can_be_sent_again)
    if response.status == 200:
        assert response.headers["x-toolspeak-retries"] == str(retry.requests - 1)
    if retry.retry_after:
        # The dates were formatted when the tests were collected.
        slack = 3600 if "date" in name else 1
        assert abs(int(response.headers["retry-after"]) - int(retry.retry_after)) <= slack
    else:
        assert "retry-after" not in response.headers
    if waits and retry.wait is not None:
        assert waits[0] == retry.wait
    elif waits:
        assert FIRST_WAIT <= waits[0] <= 2 * FIRST_WAIT
        assert all(2 * FIRST_WAIT <= wait <= 4 * FIRST_WAIT for wait in waits[1:])
    retrying.wait_until_idle()


def test_retry_waits_as_long_as_the_upstream_demands(retrying: FaultySetup) -> None:
    retrying.upstream.set_actions(limit(retry_after_ms="300"), respond_normally)
    assert ask(retrying.url, WHOLE[0]).status == 200
    first, second = (received.received_at for received in retrying.upstream.requests)
    assert second - first >= 0.3


def test_retry_waits_until_the_date_that_the_upstream_demands(
    retrying: FaultySetup, waits: list[float]
) -> None:
    retrying.upstream.set_actions(limit(format_date(MAX_WAIT)), respond_normally)
    assert ask(retrying.url, WHOLE[0]).status == 200
    # The date has no fractions of a second, and a busy machine may take some.
    (wait,) = waits
    assert 0 < wait <= MAX_WAIT


@pytest.mark.parametrize("client", [WHOLE[0], STREAMED[2]], ids=lambda client: client.name)
def test_timeout_is_not_retried(client: Client) -> None:
    with start_setup(retries=2, first_byte_timeout=TIMEOUT) as setup:
        setup.upstream.set_actions(hang(), respond_normally)
        assert ask(setup.url, client).status == 504
        assert len(setup.upstream.requests) == 1
        setup.wait_until_idle()


def test_rejection_of_tools_is_not_retried(retrying: FaultySetup, waits: list[float]) -> None:
    """Some servers without tools respond with status 500, and would do so each time."""

    async def reject_tools(received: ReceivedRequest) -> bool:
        await received.respond(500, b'{"error": {"message": "tools param requires --jinja flag"}}')
        return True

    retrying.upstream.set_actions(reject_tools, respond_normally)
    client = WHOLE[0]
    response = ask(retrying.url, client, client.body(tools=1))
    assert (response.status, response.headers["x-toolspeak-mode"]) == (200, "prompt")
    assert len(retrying.upstream.requests) == 2
    assert waits == []


# Fallbacks.


class Fallback(Struct, frozen=True):
    """The actions of three upstreams, the number of requests to each, and the final status."""

    actions: tuple[Action, Action, Action]
    requests: tuple[int, int, int]
    status: int = 200


fine = respond_normally
FALLBACKS = {
    "first works": Fallback((fine, fine, fine), (1, 0, 0)),
    "second works": Fallback((close, fine, fine), (1, 1, 0)),
    "third works": Fallback((error(500), hang(), fine), (1, 1, 1)),
    "none works": Fallback((error(500), error(503), error(529)), (1, 1, 1), 529),
    "busy": Fallback((limit("3600"), fine, fine), (1, 1, 0)),
    "web page": Fallback(
        (respond_with_status(200, HTML, **{"content-type": "text/html"}), fine, fine), (1, 1, 0)
    ),
    "redirect": Fallback((error(302, b"x", location="/"), fine, fine), (1, 1, 0)),
    "invalid JSON": Fallback((send_invalid_json(), fine, fine), (1, 1, 0)),
    "truncated before text": Fallback((truncate(STARTED), fine, fine), (1, 1, 0)),
    "error before text": Fallback((send_error(STARTED), fine, fine), (1, 1, 0)),
    "400": Fallback((error(400), fine, fine), (1, 0, 0), 400),
    "401": Fallback((error(401), fine, fine), (1, 0, 0), 401),
}


def configure_fallbacks(
    *upstreams: FaultyUpstream, first_timeout: float = 600, second_timeout: float = 600
) -> Config:
    """Return a configuration of one model at three upstreams with different APIs."""
    first, second, third = (upstream.url for upstream in upstreams)
    config = change_upstream(make_config(first), first_byte_timeout=first_timeout)
    more = {
        "second": UpstreamSettings(
            wire="anthropic",
            base_url=second,
            model="another",
            retries=0,
            first_byte_timeout=second_timeout,
            idle_timeout=600,
        ),
        "third": UpstreamSettings(wire="ollama", base_url=third, retries=0, **NO_TIMEOUTS),
    }
    scripted = structs.replace(config.upstreams["scripted"], fallbacks=("second", "third"))
    return structs.replace(config, upstreams={"scripted": scripted, **more})


@pytest.mark.parametrize("client", [WHOLE[2], STREAMED[0], STREAMED[-1]], ids=lambda c: c.name)
@pytest.mark.parametrize("name", FALLBACKS)
def test_failed_upstream_is_replaced_by_its_fallback(name: str, client: Client) -> None:
    fallback = FALLBACKS[name]
    with FaultyUpstream() as first, FaultyUpstream() as second, FaultyUpstream() as third:
        all_three = (first, second, third)
        for upstream, action in zip(all_three, fallback.actions, strict=True):
            upstream.set_actions(action)
        timeout = TIMEOUT if name == "third works" else 600
        with run_gateway(configure_fallbacks(*all_three, second_timeout=timeout)) as gateway:
            response = ask(gateway.url, client)
            assert response.status == fallback.status, response
            assert tuple(len(upstream.requests) for upstream in all_three) == fallback.requests
            if response.status == 200:
                assert response.text == TEXT
                assert response.headers["x-toolspeak-retries"] == str(sum(fallback.requests) - 1)
            if fallback.requests[1]:
                assert second.requests[0].request.model == "another"
            for upstream in all_three:
                FaultySetup(upstream, gateway).wait_until_idle()


def test_fault_after_text_has_no_fallback() -> None:
    with FaultyUpstream() as first, FaultyUpstream() as second, FaultyUpstream() as third:
        first.set_actions(truncate(*BEGINNING))
        with run_gateway(configure_fallbacks(first, second, third)) as gateway:
            response = ask(gateway.url, STREAMED[0])
            assert (response.status, response.text) == (200, TEXT)
            assert FAULTS["truncated after text"].message in response.error
            assert second.requests == []


def test_fallback_after_keep_alive_continues_the_stream() -> None:
    with FaultyUpstream() as first, FaultyUpstream() as second, FaultyUpstream() as third:
        first.set_actions(hang())
        config = configure_fallbacks(first, second, third, first_timeout=0.5)
        with run_gateway(config, ping_after=0.05) as gateway:
            response = ask(gateway.url, STREAMED[0])
            assert (response.text, response.error) == (TEXT, "")
            assert response.raw.startswith(b": keep-alive\n\n")
