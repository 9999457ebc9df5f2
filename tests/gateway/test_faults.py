"""Upstreams that fail in every way: each client hears of it in its own API, and nothing leaks."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from email.utils import formatdate
from socket import socket
from time import monotonic, sleep, time
from typing import Any, Protocol

import anthropic
import ollama
import openai
import pytest
from google import genai
from msgspec import Struct, structs

from tests.gateway.faulty_upstream import HELLO, Act, Asked, Faulty, answers
from tests.gateway.raw_clients import CLIENTS, STREAMED, WHOLE, Client, ask, bytes_of, connected
from tests.gateway.running_gateway import Running, behind, running
from toolspeak.config.settings import Config, UpstreamSettings
from toolspeak.events import ArgumentsDelta, CallStart, Event, Finish, Started, TextDelta
from toolspeak.gateway import http
from toolspeak.store.base import MemoryStore
from toolspeak.types import Failure
from toolspeak.upstream import client as client_module
from toolspeak.upstream import client as upstream_module
from toolspeak.wires.framing import encode_json

SAID = "Hello there."
HEAD, TEXT, *_ = STARTED = (Started("id_1", "m"), TextDelta(SAID))
WIRES = ("openai_chat", "anthropic", "ollama", "gemini", "openai_responses")
PATIENCE: dict[str, Any] = {"first_byte_timeout": 20.0, "idle_timeout": 20.0}
HASTE: dict[str, Any] = {"connect_timeout": 2.0, "first_byte_timeout": 0.3, "idle_timeout": 0.3}
HTML = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
MOST = 2**20


# Ways to fail.


async def closes(asked: Asked) -> None:
    """Not a byte comes."""


async def closes_in_headers(asked: Asked) -> None:
    await asked.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/ev")


async def says_no_http(asked: Asked) -> None:
    await asked.send(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")


def breaks_off(*events: Event, **headers: str) -> Act:
    """The first events of a stream, or half of a whole reply; and then the connection closes."""

    async def act(asked: Asked) -> None:
        if asked.request.stream:
            await asked.begin(**headers)
            for data in asked.written(events):
                if data:
                    await asked.chunk(data)
        else:
            body = b"".join(asked.written(HELLO))
            await asked.head_of(200, content_length=str(len(body)))
            await asked.send(body[: len(body) // 2])

    return act


def half_a_frame(is_chunked: bool) -> Act:
    """Text, half of the next frame, and the end: of the connection, or of all there is to come."""

    async def act(asked: Asked) -> None:
        if is_chunked:
            await asked.begin()
        else:
            await asked.head_of()
        send = asked.chunk if is_chunked else asked.send
        if not asked.request.stream:
            await send(b"".join(asked.written(HELLO))[:-9])
        else:
            await send(b"".join(asked.written(STARTED)))
            await send(b"".join(asked.written((*STARTED, TextDelta("lost"))))[-20:-9])
        if is_chunked:
            await asked.end()

    return act


def garbage(before: tuple[Event, ...]) -> Act:
    """JSON that is none, in a frame or as the body."""

    async def act(asked: Asked) -> bool:
        await asked.begin()
        if asked.request.stream:
            for data in asked.written(before):
                await asked.chunk(data) if data else None
            is_lines = asked.wire.name == "ollama"
            await asked.chunk(b'{"a": nope}\n' if is_lines else b'data: {"a": nope}\n\n')
            await asked.closed()
        else:
            await asked.chunk(b'{"a": nope}')
        await asked.end()
        return True

    return act


def status(code: int, body: bytes = b"", **headers: str) -> Act:
    async def act(asked: Asked) -> bool:
        failure = Failure("internal", f"this is a {code}", code)
        said = body or encode_json(asked.wire.encode_failure(failure))
        await asked.answer(code, said, **{"content_type": "application/json", **headers})
        return True

    return act


page = status(200, HTML, content_type="text/html")


def busy(retry_after: str = "", **headers: str) -> Act:
    given = {"retry_after": retry_after} if retry_after else {}
    return status(429, b"", **given, **headers)


def hangs(*events: Event) -> Act:
    """After so much, nothing more comes; the connection stays."""

    async def act(asked: Asked) -> None:
        if events:
            await asked.begin()
            for data in asked.written(events)[: None if asked.request.stream else 0]:
                await asked.chunk(data) if data else None
        await asked.closed()

    return act


def endless(noise: bytes, *events: Event, pause: float = 0.01) -> Act:
    """After so much, only what says nothing comes, for ever."""

    async def act(asked: Asked) -> None:
        await asked.begin()
        for data in asked.written(events) if asked.request.stream else ():
            await asked.chunk(data) if data else None
        while True:
            # Lines of JSON have no comments.
            await asked.chunk(b" " * len(noise) + b"\n" if asked.wire.name == "ollama" else noise)
            await asyncio.sleep(pause)

    return act


def own_error(*events: Event) -> Act:
    """An error in the upstream's own words, in the stream or as a reply with status 200."""

    async def act(asked: Asked) -> bool:
        failure = Failure("internal", "we are out of order", 500)
        if not asked.request.stream:
            body = encode_json(asked.wire.encode_failure(failure))
            await asked.answer(200, body)
            return True
        await asked.begin()
        for data in asked.written((*events, failure)):
            await asked.chunk(data) if data else None
        await asked.closed()
        return False

    return act


class Fault(Struct, frozen=True):
    """A way to fail, and what a client is to hear of it."""

    act: Act
    status: int = 502
    """Where nothing has been said."""
    said: str = ""
    """What a client that streams has heard before the error."""
    about: str = ""
    """Words of the error."""


CUT_CALL = (CallStart(0, "call_1", "tool_0"), ArgumentsDelta(0, '{"city": "Os'))
FAULTS: dict[str, Fault] = {
    "closes": Fault(closes, about="closed the connection"),
    "closes in the headers": Fault(closes_in_headers),
    "speaks no http": Fault(says_no_http),
    "breaks off before any text": Fault(breaks_off(HEAD), about="broke off"),
    "breaks off after text": Fault(breaks_off(*STARTED), said=SAID, about="broke off"),
    "breaks off in a call": Fault(breaks_off(*STARTED, *CUT_CALL), said=SAID, about="broke off"),
    "breaks off in a first call": Fault(breaks_off(HEAD, *CUT_CALL), about="broke off"),
    "half a frame": Fault(half_a_frame(True), said=SAID),
    "half a frame, closes": Fault(half_a_frame(False), said=SAID),
    "garbage": Fault(garbage(()), about="cannot be decoded"),
    "garbage after text": Fault(garbage(STARTED), said=SAID, about="cannot be decoded"),
    "a page": Fault(page, about="web page"),
    "a page, 502": Fault(status(502, HTML, content_type="text/html"), about="web page"),
    "nothing": Fault(status(200, b" ")),
    "no reply": Fault(status(200, b"{}")),
    "a list": Fault(status(200, b"[1, 2]")),
    "a word": Fault(status(200, b'"hello"')),
    "429": Fault(status(429), 429, about="this is a 429"),
    "429 later": Fault(busy(retry_after="99"), 429, about="this is a 429"),
    "500": Fault(status(500), 500, about="this is a 500"),
    "503": Fault(status(503), 503, about="this is a 503"),
    "529": Fault(status(529), 529, about="this is a 529"),
    "599 in words": Fault(status(599, b"out of order"), 599, about="out of order"),
    "700": Fault(status(700)),
    "401": Fault(status(401), 401, about="this is a 401"),
    "moved": Fault(status(301, b"x", location="http://127.0.0.1:9/else"), about="base_url"),
    "moved for now": Fault(status(307, b"x", location="/v2/else"), about="base_url"),
    "hangs": Fault(hangs(), 504, about="did not start to respond within 0.3 s"),
    "hangs before any text": Fault(hangs(HEAD), 504, about="nothing for 0.3 s"),
    "hangs after text": Fault(hangs(*STARTED), 504, said=SAID, about="nothing for 0.3 s"),
    "endless space": Fault(endless(b"  \n\n"), 504, about="nothing for 0.3 s"),
    "endless comments": Fault(
        endless(b": still here\n\n", *STARTED), 504, said=SAID, about="nothing for 0.3 s"
    ),
    "endless comments in haste": Fault(endless(b": " + b"x" * 65536 + b"\n", HEAD, pause=0)),
    "endless space in haste": Fault(endless(b" " * 65536, pause=0), about=f"{MOST} bytes"),
    "an endless error": Fault(status(500, b"x" * 2 * MOST), 500, about="xxxxx"),
    "too large": Fault(status(200, b'{"a": "' + b"x" * MOST + b'"}'), about=f"{MOST} bytes"),
    "an error of its own": Fault(own_error(), 500, about="out of order"),
    "an error of its own after the head": Fault(own_error(HEAD), 500, about="out of order"),
    "an error of its own after text": Fault(
        own_error(*STARTED), 500, said=SAID, about="out of order"
    ),
}


# Where it happens.


class Place(Struct, frozen=True):
    """An upstream that fails, and the gateway before it."""

    upstream: Faulty
    gateway: Running

    @property
    def url(self) -> str:
        return self.gateway.url

    def settles(self, within: float = 2.0) -> None:
        """Nothing may go on any more."""
        until = monotonic() + within
        while (left := self._left()) and monotonic() < until:
            sleep(0.01)
        assert not left

    def _left(self) -> dict[str, Any]:
        left = {
            "tasks": self.gateway.tasks(),
            "active": self.gateway.gateway.metrics.active_requests,
            "upstream": self.upstream.busy,
            # One that has ended well may be used again.
            "connections": max(0, self.upstream.connections - 1),
        }
        return {what: value for what, value in left.items() if value}

    def works(self, client: Client) -> None:
        """The next request is served as if nothing had happened."""
        self.upstream.does(answers)
        heard = ask(self.url, client)
        assert (heard.status, heard.text, heard.error) == (200, SAID, "")


def set_up(config: Config, **settings: Any) -> Config:
    """The same, with other settings of the upstream."""
    changed = structs.replace(config.upstreams["scripted"], **{**HASTE, **settings})
    return structs.replace(config, upstreams={"scripted": changed})


@contextmanager
def place(wire: str = "openai_chat", ping_after: float = 15.0, **settings: Any) -> Generator[Place]:
    with (
        Faulty() as upstream,
        running(set_up(behind(upstream.url, wire), **settings), ping_after=ping_after) as gateway,
    ):
        yield Place(upstream, gateway)


class Places(Protocol):
    """Where to find a gateway in front of a faulty upstream."""

    def __call__(self, wire: str, *, is_patient: bool = False) -> Place: ...


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    """One for each wire; and a patient one, where nothing is late on purpose."""
    known: dict[tuple[str, bool], Place] = {}
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_module, "_MAX_BODY", MOST)

        def place_of(wire: str, *, is_patient: bool = False) -> Place:
            key, settings = (wire, is_patient), PATIENCE if is_patient else {}
            if key not in known:
                known[key] = stack.enter_context(place(wire, **settings))
            return known[key]

        yield place_of


def faults() -> Iterator[Any]:
    """Every fault to every client at two wires, and to two clients at the others."""
    for name in FAULTS:
        for wire in WIRES:
            clients = CLIENTS if wire in WIRES[:2] else (WHOLE[0], STREAMED[0])
            for client in clients:
                yield pytest.param(name, wire, client, id=f"{name}-{wire}-{client.name}")


@pytest.mark.parametrize(("name", "wire", "client"), list(faults()))
def test_every_fault(name: str, wire: str, client: Client, places: Places) -> None:
    fault = FAULTS[name]
    here = places(wire, is_patient=fault.status != 504)
    here.upstream.does(fault.act)
    began = monotonic()
    heard = ask(here.url, client)
    assert monotonic() - began < 20
    expected = (200, fault.said) if client.stream and fault.said else (fault.status, "")
    assert (heard.status, heard.text) == expected, heard
    assert fault.about in heard.error
    assert heard.error
    here.settles()
    here.works(client)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_nobody_listens(client: Client) -> None:
    with running(behind("http://127.0.0.1:9")) as gateway:
        heard = ask(gateway.url, client)
        assert heard.status == 502
        assert "cannot be reached" in heard.error
        assert gateway.tasks() == set()


# What looks like a fault, and is none.


def typed(content_type: str) -> Act:
    async def act(asked: Asked) -> None:
        await asked.head_of(200, content_type=content_type)
        await asked.send(b"".join(asked.written(HELLO)))

    return act


async def answers_at_once(asked: Asked) -> bool:
    """JSON, even where a stream was asked for."""
    asked.request = structs.replace(asked.request, stream=False)
    return await answers(asked)


async def answers_as_stream(asked: Asked) -> bool:
    """A stream, even where none was asked for."""
    asked.request = structs.replace(asked.request, stream=True)
    return await answers(asked)


async def stays_open(asked: Asked) -> None:
    """The reply ends, the answer does not."""
    await asked.begin()
    await asked.chunk(b"".join(asked.written(HELLO)))
    await asked.closed()


async def has_no_end(asked: Asked) -> None:
    """The reply ends, and the connection closes in the middle of the answer."""
    await asked.begin()
    await asked.chunk(b"".join(asked.written(HELLO)))


async def whispers(asked: Asked) -> bool:
    """It says nothing for longer than is allowed, but never all of that time at once."""
    await asked.begin()
    for data in (asked.written([TextDelta(piece)])[-1] for piece in ("Hello", " there", ".")):
        await asyncio.sleep(0.2)
        await asked.chunk(data)
    await asyncio.sleep(0.2)
    await asked.chunk(b"".join(asked.written(HELLO[1:])))
    await asked.end()
    return True


@pytest.mark.parametrize("client", [WHOLE[0], *STREAMED], ids=lambda client: client.name)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "act",
    [typed("text/plain"), typed("application/octet-stream"), answers_at_once, answers_as_stream],
    ids=["as text", "as bytes", "at once", "as a stream"],
)
def test_odd_but_right(act: Act, wire: str, client: Client, places: Places) -> None:
    here = places(wire, is_patient=True)
    here.upstream.does(act)
    heard = ask(here.url, client)
    assert (heard.status, heard.text, heard.error) == (200, SAID, "")
    here.settles()


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("act", [stays_open, has_no_end, whispers])
def test_a_complete_reply_cannot_break_off(
    act: Act, wire: str, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_COMPLETE_TIMEOUT", 0.25)
    here = places(wire)
    here.upstream.does(act)
    heard = ask(here.url, STREAMED[0])
    assert (heard.status, heard.text, heard.error) == (200, SAID, "")
    here.settles()


# Asking again.


def later(seconds: float) -> str:
    return formatdate(time() + seconds, usegmt=True)


class Retry(Struct, frozen=True):
    """What an upstream does to each request, and what comes of it."""

    acts: tuple[Act, ...]
    status: int
    asked: int
    """How often the upstream is asked."""
    pause: float = 0.0
    """Seconds between the first two."""
    after: str | None = None
    """What the client is told to wait."""


RETRIES = {
    "not needed": Retry((answers,), 200, 1),
    "429 once": Retry((status(429), answers), 200, 2, pause=0.02),
    "500 twice": Retry((status(500), status(500), answers), 200, 3),
    "503 and 529": Retry((status(503), status(529), answers), 200, 3),
    "closes twice": Retry((closes, closes_in_headers, answers), 200, 3),
    "too often": Retry((status(500), status(503), status(502), answers), 502, 3),
    "not for 400": Retry((status(400), answers), 400, 1),
    "not for 401": Retry((status(401), answers), 401, 1),
    "not for 404": Retry((status(404), answers), 404, 1),
    "not for 501": Retry((status(501), answers), 501, 1),
    "not for a timeout": Retry((hangs(), answers), 504, 1),
    "not after the headers": Retry((breaks_off(HEAD), answers), 502, 1),
    "not after a page": Retry((page, answers), 502, 1),
    "seconds": Retry((busy(retry_after="1"), answers), 200, 2, pause=1.0),
    "milliseconds": Retry((busy(retry_after_ms="300"), answers), 200, 2, pause=0.3),
    "none": Retry((busy(retry_after="0"), answers), 200, 2),
    "less than none": Retry((busy(retry_after="-5"), answers), 200, 2),
    "past": Retry((busy(retry_after=later(-60)), answers), 200, 2),
    "nonsense": Retry((busy(retry_after="soon"), answers), 200, 2, pause=0.02),
    "for ever": Retry((busy(retry_after="inf"), answers), 200, 2, pause=0.02),
    "too long": Retry((busy(retry_after="3600"), answers), 429, 1, after="3600"),
    "too long a date": Retry((busy(retry_after=later(1e6)), answers), 429, 1, after="1000000"),
    "told in the end": Retry((busy(retry_after="0.1"),), 429, 3, after="1"),
}


@pytest.fixture(scope="module")
def patient() -> Iterator[Place]:
    with pytest.MonkeyPatch.context() as patch, place(retries=2) as here:
        patch.setattr(upstream_module, "_FIRST_WAIT", 0.02)
        yield here


@pytest.mark.parametrize("client", [WHOLE[0], STREAMED[2]], ids=lambda client: client.name)
@pytest.mark.parametrize("name", RETRIES)
def test_retries(name: str, client: Client, patient: Place) -> None:
    retry = RETRIES[name]
    patient.upstream.does(*retry.acts)
    heard = ask(patient.url, client)
    assert (heard.status, len(patient.upstream.asked)) == (retry.status, retry.asked), heard
    if heard.status == 200:
        assert heard.headers["x-toolspeak-retries"] == str(retry.asked - 1)
    if retry.after:
        # The dates were written when the tests were collected.
        slack = 3600 if "date" in name else 1
        assert abs(int(heard.headers["retry-after"]) - int(retry.after)) <= slack
    else:
        assert "retry-after" not in heard.headers
    times = [asked.at for asked in patient.upstream.asked]
    if retry.pause:
        assert retry.pause <= times[1] - times[0] < retry.pause + 0.5
    patient.settles()


def test_a_refusal_of_tools_is_not_asked_for_again(patient: Place) -> None:
    """Some servers say with a 500 that they know none, and would say so each time."""

    async def refuses(asked: Asked) -> bool:
        await asked.answer(500, b'{"error": {"message": "tools param requires --jinja flag"}}')
        return True

    patient.upstream.does(refuses, answers)
    client = WHOLE[0]
    heard = ask(patient.url, client, client.body(tools=1))
    assert (heard.status, heard.headers["x-toolspeak-mode"]) == (200, "prompt")
    assert len(patient.upstream.asked) == 2


def test_a_date_is_honoured(patient: Place) -> None:
    patient.upstream.does(busy(retry_after=later(2)), answers)
    assert ask(patient.url, WHOLE[0]).status == 200
    first, second = (asked.at for asked in patient.upstream.asked)
    assert 0.9 < second - first < 2.5


class Fallback(Struct, frozen=True):
    """What each of three upstreams does, and what the client hears."""

    acts: tuple[Act, Act, Act]
    asked: tuple[int, int, int]
    status: int = 200


FALLBACKS = {
    "the first works": Fallback((answers, answers, answers), (1, 0, 0)),
    "the second works": Fallback((closes, answers, answers), (1, 1, 0)),
    "the third works": Fallback((status(500), hangs(), answers), (1, 1, 1)),
    "none works": Fallback((status(500), status(503), status(529)), (1, 1, 1), 529),
    "busy": Fallback((busy(retry_after="3600"), answers, answers), (1, 1, 0)),
    "a page": Fallback(
        (status(200, HTML, **{"content-type": "text/html"}), answers, answers), (1, 1, 0)
    ),
    "moved": Fallback((status(302, b"x", location="/"), answers, answers), (1, 1, 0)),
    "garbage": Fallback((garbage(()), answers, answers), (1, 1, 0)),
    "breaks off at first": Fallback((breaks_off(HEAD), answers, answers), (1, 1, 0)),
    "its own error": Fallback((own_error(HEAD), answers, answers), (1, 1, 0)),
    "not for a bad request": Fallback((status(400), answers, answers), (1, 0, 0), 400),
    "not for a bad key": Fallback((status(401), answers, answers), (1, 0, 0), 401),
}


@pytest.mark.parametrize("client", [WHOLE[2], STREAMED[0], STREAMED[-1]], ids=lambda c: c.name)
@pytest.mark.parametrize("name", FALLBACKS)
def test_fallbacks(name: str, client: Client) -> None:
    fallback = FALLBACKS[name]
    with Faulty() as first, Faulty() as second, Faulty() as third:
        all_three = (first, second, third)
        for upstream, act in zip(all_three, fallback.acts, strict=True):
            upstream.does(act)
        with running(moving(*all_three)) as gateway:
            heard = ask(gateway.url, client)
            assert heard.status == fallback.status, heard
            assert tuple(len(upstream.asked) for upstream in all_three) == fallback.asked
            if heard.status == 200:
                assert heard.text == SAID
                assert heard.headers["x-toolspeak-retries"] == str(sum(fallback.asked) - 1)
            if fallback.asked[1]:
                assert second.asked[0].request.model == "another"
            for upstream in all_three:
                Place(upstream, gateway).settles()


def moving(*upstreams: Faulty) -> Config:
    """A model that has three upstreams, of three APIs."""
    first, second, third = (upstream.url for upstream in upstreams)
    config = set_up(behind(first))
    more = {
        "second": UpstreamSettings(
            wire="anthropic", base_url=second, model="another", retries=0, **HASTE
        ),
        "third": UpstreamSettings(wire="ollama", base_url=third, retries=0, **HASTE),
    }
    scripted = structs.replace(config.upstreams["scripted"], fallbacks=("second", "third"))
    return structs.replace(config, upstreams={"scripted": scripted, **more})


def test_no_fallback_once_something_was_said() -> None:
    with Faulty() as first, Faulty() as second, Faulty() as third:
        first.does(breaks_off(*STARTED))
        with running(moving(first, second, third)) as gateway:
            heard = ask(gateway.url, STREAMED[0])
            assert (heard.status, heard.text) == (200, SAID)
            assert "broke off" in heard.error
            assert second.asked == []


# Clients that go away.


def within(seconds: float, holds: Callable[[], Any]) -> None:
    """Wait until something is so."""
    until = monotonic() + seconds
    while not holds():
        assert monotonic() < until
        sleep(0.005)


class Stage(Struct, frozen=True):
    """Where a request is when its client goes away."""

    acts: tuple[Act, ...]
    is_there: Callable[[Place], Any]
    """Whether it is there by now."""


def is_asked(here: Place) -> bool:
    return len(here.upstream.asked) == 1


def is_refused(here: Place) -> bool:
    return is_asked(here) and not here.upstream.busy


STAGES = {
    "waits for the headers": Stage((hangs(),), is_asked),
    "waits for the first word": Stage((hangs(HEAD),), lambda here: here.upstream.busy),
    "waits to ask again": Stage((busy(retry_after="15"), answers), is_refused),
}


@pytest.fixture(scope="module")
def slow() -> Iterator[Place]:
    """An upstream that may take its time."""
    with place(first_byte_timeout=60, idle_timeout=60, retries=2) as here:
        yield here


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("name", STAGES)
def test_a_client_that_waits_goes(name: str, client: Client, slow: Place) -> None:
    stage = STAGES[name]
    slow.upstream.does(*stage.acts)
    with connected(slow.url) as connection:
        connection.sendall(bytes_of(client))
        within(5, lambda: stage.is_there(slow))
        sleep(0.02)
        left = monotonic()
    slow.settles(1)
    assert len(slow.upstream.asked) == 1
    closed_at = slow.upstream.asked[0].closed_at
    assert closed_at is None or closed_at - left < 1
    slow.works(client)


@pytest.mark.parametrize("client", STREAMED, ids=lambda client: client.name)
@pytest.mark.parametrize("act", [hangs(*STARTED), endless(b": x\n\n", *STARTED)], ids=["", "noise"])
def test_a_client_that_listens_goes(act: Act, client: Client, slow: Place) -> None:
    slow.upstream.does(act)
    with connected(slow.url) as connection:
        connection.sendall(bytes_of(client))
        heard = b""
        while SAID.encode() not in heard:
            heard += connection.recv(65536)
    slow.settles(1)
    slow.works(client)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("much", [0.0, 0.5])
def test_a_client_that_speaks_goes(much: float, client: Client, slow: Place) -> None:
    slow.upstream.does(answers)
    data = bytes_of(client)
    head = data.index(b"\r\n\r\n") + 4
    with connected(slow.url) as connection:
        connection.sendall(data[: head + round(much * (len(data) - head))])
        within(5, lambda: slow.gateway.gateway.metrics.active_requests)
    slow.settles(1)
    assert slow.upstream.asked == []
    slow.works(client)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_that_does_not_go_on(
    client: Client, slow: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "PATIENCE", 0.2)
    data = bytes_of(client)
    with connected(slow.url) as connection:
        connection.sendall(data[:-1])
        head = connection.recv(65536).partition(b"\r\n")[0]
        assert head == b"HTTP/1.1 408 Request Timeout"
    slow.settles(1)


async def talks(asked: Asked) -> None:
    """Says more than fits in between."""
    await asked.begin()
    data = b"".join(asked.written((TextDelta("x" * 100_000),)))
    while True:
        await asked.chunk(data)


@pytest.mark.parametrize("client", STREAMED, ids=lambda client: client.name)
def test_a_client_that_does_not_listen(
    client: Client, slow: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "PATIENCE", 0.3)
    slow.upstream.does(talks)
    with connected(slow.url) as connection:
        connection.sendall(bytes_of(client))
        within(5, lambda: slow.upstream.busy)
        within(10, lambda: not slow.upstream.busy)
        slow.settles(1)
    monkeypatch.undo()
    slow.works(client)


async def says_it_all(asked: Asked) -> bool:
    """Says more than fits in between, and ends."""
    await asked.begin()
    said = [TextDelta("x" * 100_000)] * 80
    for data in asked.written((HEAD, *said, Finish("stop"))):
        await asked.chunk(data)
    await asked.end()
    return True


def rest_of(connection: socket) -> bytes:
    """What can still be read, until the other side has closed the connection."""
    parts: list[bytes] = []
    with suppress(ConnectionError):
        while data := connection.recv(2**20):
            parts.append(data)
    return b"".join(parts)


def test_a_client_that_does_not_listen_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "PATIENCE", 1.0)
    with place(concurrency=1) as here:
        here.upstream.does(says_it_all, answers)
        with connected(here.url) as connection:
            connection.sendall(bytes_of(STREAMED[0]))
            within(5, lambda: len(here.upstream.asked) == 1 and not here.upstream.busy)
            # The upstream is free as soon as it has said all, and not when that is taken.
            assert ask(here.url, STREAMED[0]).status == 200
            here.settles(3)
            taken = rest_of(connection)
            assert taken.startswith(b"HTTP/1.1 200")
            assert 100_000 < len(taken) < 8_000_000


def test_waiting_for_a_slot() -> None:
    """One that waits for its turn and goes takes no turn."""
    with place(first_byte_timeout=60, concurrency=1) as here:
        here.upstream.does(hangs())
        with connected(here.url) as first:
            first.sendall(bytes_of(WHOLE[0]))
            within(5, lambda: here.upstream.busy)
            with connected(here.url) as second:
                second.sendall(bytes_of(WHOLE[0]))
                within(5, lambda: here.gateway.gateway.metrics.active_requests == 2)
                sleep(0.05)
            within(1, lambda: here.gateway.gateway.metrics.active_requests == 1)
            assert len(here.upstream.asked) == 1
        here.settles(1)
        here.works(WHOLE[0])


# Clients that do not read.


def memory() -> int:
    """Bytes that this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def floods(megabytes: int) -> Act:
    async def act(asked: Asked) -> None:
        await asked.begin()
        await asked.chunk(b"".join(asked.written([HEAD])))
        frame = asked.written([HEAD, TextDelta("x" * 65536)])[1]
        while asked.sent < megabytes * 2**20:
            await asked.chunk(frame)
        await asked.chunk(b"".join(asked.written([Finish("stop")])))
        await asked.end()

    return act


@pytest.mark.parametrize("client", [STREAMED[0], STREAMED[2]], ids=lambda client: client.name)
def test_back_pressure(client: Client, slow: Place) -> None:
    slow.works(client)
    slow.upstream.does(floods(200))
    before = memory()
    with connected(slow.url) as connection:
        connection.sendall(bytes_of(client))
        within(5, lambda: slow.upstream.asked)
        asked, sent = slow.upstream.asked[0], -1
        while sent != asked.sent:
            sent = asked.sent
            sleep(0.3)
        # What is left stands in the buffers of the system.
        assert asked.sent < 24 * 2**20
        assert memory() - before < 24 * 2**20
    slow.settles(1)
    slow.works(client)


def test_a_long_reply_is_not_kept(slow: Place) -> None:
    """The gateway's memory does not grow with what it passes on."""
    slow.works(STREAMED[0])
    slow.upstream.does(floods(100))
    before = memory()
    with connected(slow.url) as connection:
        connection.sendall(bytes_of(STREAMED[0]))
        heard, most = b"", 0
        while b"[DONE]" not in heard:
            heard = heard[-10:] + connection.recv(2**20)
            most = max(most, memory() - before)
    assert most < 24 * 2**20
    slow.settles()


# Clients that wait.


def after(seconds: float, act: Act) -> Act:
    async def late(asked: Asked) -> Any:
        await asyncio.sleep(seconds)
        return await act(asked)

    return late


async def pauses(asked: Asked) -> bool:
    """Silence between two words."""
    await asked.begin()
    *begun, last = asked.written((HEAD, TextDelta("Hello"), TextDelta(" there."), HELLO[1]))
    for data in begun:
        await asked.chunk(data) if data else None
        await asyncio.sleep(0.2)
    await asked.chunk(last)
    await asked.end()
    return True


async def babbles(asked: Asked) -> bool:
    """Words for longer than pings wait, without a pause that is as long."""
    await asked.begin()
    for data in asked.written((HEAD, *[TextDelta("la ")] * 10, HELLO[1])):
        await asked.chunk(data) if data else None
        await asyncio.sleep(0.15)
    await asked.end()
    return True


PINGS = {
    "openai_chat": b": keep-alive\n\n",
    "openai_responses": b": keep-alive\n\n",
    "anthropic": b'event: ping\ndata: {"type": "ping"}\n\n',
}


@pytest.fixture(scope="module")
def pinging() -> Iterator[Place]:
    with place(ping_after=0.05, first_byte_timeout=5, idle_timeout=5) as here:
        yield here


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize(
    "act", [after(0.4, answers), pauses], ids=["before the first byte", "between words"]
)
def test_pings(act: Act, client: Client, pinging: Place) -> None:
    pinging.upstream.does(act)
    heard = ask(pinging.url, client)
    assert (heard.status, heard.text, heard.error) == (200, SAID, "")
    ping = PINGS.get(client.wire) if client.stream else None
    if ping:
        assert 2 <= heard.raw.count(ping) <= 12
        assert heard.raw.rstrip().endswith(ping.rstrip()) is False
    else:
        assert b"ping" not in heard.raw
        assert b"keep-alive" not in heard.raw
    pinging.settles()


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("name", ["closes", "500", "a page", "garbage", "an error of its own"])
def test_a_failure_after_pings(name: str, client: Client, pinging: Place) -> None:
    """Once the head has left, an error is part of the stream."""
    fault = FAULTS[name]
    pinging.upstream.does(after(0.2, fault.act))
    heard = ask(pinging.url, client)
    begun = client.stream and client.wire in PINGS
    assert (heard.status, heard.text) == (200 if begun else fault.status, "")
    assert fault.about in heard.error
    assert heard.error
    pinging.settles()
    pinging.works(client)


def test_no_pings_while_words_come() -> None:
    with place(ping_after=1.2) as here:
        here.upstream.does(babbles)
        heard = ask(here.url, STREAMED[0])
        assert heard.text == "la " * 10
        assert b"keep-alive" not in heard.raw


def test_another_upstream_after_pings() -> None:
    with Faulty() as first, Faulty() as second, Faulty() as third:
        first.does(hangs())
        with running(moving(first, second, third), ping_after=0.05) as gateway:
            heard = ask(gateway.url, STREAMED[0])
            assert (heard.text, heard.error) == (SAID, "")
            assert heard.raw.startswith(PINGS["openai_chat"])


# What goes wrong in the gateway itself.


class SlowStore(MemoryStore):
    """One that takes its time to write."""

    async def put(self, key: str, value: bytes, seconds: float) -> None:
        await asyncio.sleep(0.2)
        await super().put(key, value, seconds)


@pytest.mark.parametrize("client", [WHOLE[1], STREAMED[1]], ids=lambda client: client.name)
def test_what_is_next_may_need_what_was(client: Client) -> None:
    """A client may go on from a response as soon as it has all of it."""
    with Faulty() as upstream, running(behind(upstream.url), store=SlowStore()) as gateway:
        with connected(gateway.url) as connection:
            connection.sendall(bytes_of(client))
            raw = b""
            while b'"completed"' not in raw:
                raw += connection.recv(65536)
        identity = raw.split(b'"id":"resp_')[1].split(b'"')[0].decode()
        body = client.body("And then?") | {"previous_response_id": f"resp_{identity}"}
        assert ask(gateway.url, client, body).text == SAID
        assert "And then?" in upstream.asked[-1].body.decode()
        assert SAID in upstream.asked[-1].body.decode()


@pytest.mark.parametrize("client", STREAMED, ids=lambda client: client.name)
def test_the_gateway_breaks_in_mid_stream(
    client: Client, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = places("openai_chat", is_patient=True)
    here.upstream.does(pauses)
    heard_of = client_module.UpstreamResponse.mark_progress
    seen: list[bool] = []

    def breaks(self: Any, *, is_complete: bool) -> None:
        seen.append(is_complete)
        if len(seen) == 3:
            raise ZeroDivisionError
        heard_of(self, is_complete=is_complete)

    monkeypatch.setattr(client_module.UpstreamResponse, "mark_progress", breaks)
    heard = ask(here.url, client)
    assert (heard.status, heard.text) == (200, "Hello")
    assert heard.headers["x-request-id"] in heard.error
    here.settles()


def test_web_sockets_are_refused(places: Places) -> None:
    here = places("openai_chat")
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    with connected(here.url) as connection:
        head = "GET /v1/responses HTTP/1.1\r\nHost: localhost\r\n"
        key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        connection.sendall(f"{head}{upgrade}{key}".encode())
        assert connection.recv(1000).split(b" ")[1] in (b"403", b"405")
    here.works(WHOLE[0])


# What the vendors' SDKs make of it.


def openai_chat(url: str) -> Iterator[str]:
    messages: Any = [{"role": "user", "content": "Hi"}]
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        client.chat.completions.create(model="m", messages=messages, stream=True) as stream,
    ):
        for chunk in stream:
            yield from (choice.delta.content or "" for choice in chunk.choices)


def openai_responses(url: str) -> Iterator[str]:
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        client.responses.create(model="m", input="Hi", stream=True) as stream,
    ):
        for event in stream:
            if event.type == "response.output_text.delta":
                yield event.delta


def anthropic_messages(url: str) -> Iterator[str]:
    messages: Any = [{"role": "user", "content": "Hi"}]
    with (
        anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client,
        client.messages.stream(model="m", max_tokens=10, messages=messages) as stream,
    ):
        yield from stream.text_stream


def ollama_chat(url: str) -> Iterator[str]:
    messages = [{"role": "user", "content": "Hi"}]
    with ollama.Client(host=url) as client:
        for part in client.chat(model="m", messages=messages, stream=True):
            yield part.message.content or ""


def google_genai(url: str) -> Iterator[str]:
    options: Any = {"base_url": url}
    with genai.Client(api_key="none", http_options=options) as client:
        for part in client.models.generate_content_stream(model="m", contents="Hi"):
            yield part.text or ""


SDKS: dict[Callable[[str], Iterator[str]], type[Exception]] = {
    openai_chat: openai.APIError,
    openai_responses: openai.APIError,
    anthropic_messages: anthropic.APIStatusError,
    ollama_chat: ollama.ResponseError,
    google_genai: genai.errors.APIError,
}


@pytest.mark.parametrize("sdk", SDKS, ids=lambda sdk: sdk.__name__)
@pytest.mark.parametrize(
    "name", ["breaks off after text", "an error of its own after text", "503", "garbage"]
)
def test_sdks_raise(name: str, sdk: Callable[[str], Iterator[str]], places: Places) -> None:
    here, fault = places("openai_chat"), FAULTS[name]
    here.upstream.does(fault.act)
    said: list[str] = []
    with pytest.raises(SDKS[sdk], match=fault.about):
        said += sdk(here.url)
    assert "".join(said) == fault.said
    here.settles()


@pytest.mark.parametrize("sdk", SDKS, ids=lambda sdk: sdk.__name__)
@pytest.mark.parametrize("act", [after(0.2, answers), pauses], ids=["late", "with pauses"])
def test_sdks_hear_no_pings(act: Act, sdk: Callable[[str], Iterator[str]], pinging: Place) -> None:
    pinging.upstream.does(act)
    assert "".join(sdk(pinging.url)) == SAID
    pinging.settles()
