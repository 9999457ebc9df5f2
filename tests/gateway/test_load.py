"""Hostile and heavy load: other clients do not wait, memory is bounded, every request ends."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs

from tests.gateway.faulty_upstream import HELLO, FaultyUpstream, ReceivedRequest, respond_normally
from tests.gateway.gateway_process import (
    format_settings,
    read_resident_megabytes,
    start_gateway,
    wait_until,
)
from tests.gateway.hostile_shapes import (
    REPLIES,
    REQUESTS,
    HostileUpstream,
    PauseMonitor,
    make_hostile_config,
)
from tests.gateway.raw_clients import (
    CLIENTS,
    HTTP,
    STREAMED,
    TOOL,
    WHOLE,
    ask,
    connect,
    encode_request,
)
from tests.gateway.running_gateway import RunningGateway, make_config, run_gateway
from toolspeak.config.settings import Limits
from toolspeak.gateway.file_handles import raise_handle_limit

_MAX_PAUSE = 0.4
"""CPU seconds. On a quiet machine, most pauses take less than 0.1; before, they took 1 to 16."""


# Pauses.


@pytest.fixture(scope="module")
def hostile_upstream() -> Iterator[HostileUpstream]:
    with HostileUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def hostile_gateway(hostile_upstream: HostileUpstream) -> Iterator[RunningGateway]:
    with run_gateway(make_hostile_config(hostile_upstream.url)) as gateway:
        yield gateway


SHAPES = {
    name: {**REQUESTS, **REPLIES}[name]
    for name in (
        "chat, flat arrays",
        "chat, depth 150",
        "chat, many long integers",
        "chat, many messages",
        "chat, many calls and results",
        "chat, call with huge arguments",
        "chat, huge tool result",
        "chat, long tool name",
        "chat, giant image",
        "responses, many items",
        "anthropic, many messages",
        "ollama, many images",
        "gemini, many contents",
        "whole: a text of 60 MB",
        "whole: a text of braces",
        "whole: 200,000 calls",
        "whole: huge text arguments",
        "whole: text arguments of numbers",
        "stream: a million tiny events",
        "stream: one event of values",
        "stream: one event of many lines",
    )
}


@pytest.mark.parametrize("name", SHAPES)
def test_hostile_request_does_not_stop_other_clients(
    name: str, hostile_gateway: RunningGateway, hostile_upstream: HostileUpstream
) -> None:
    path, body = SHAPES[name]()
    hostile_upstream.prepare(name)
    headers = {"content-type": "application/json"}
    HTTP.get(hostile_gateway.url + "/health")
    monitor = PauseMonitor(hostile_gateway.loop)
    response = HTTP.post(hostile_gateway.url + path, content=body, headers=headers, timeout=300)
    assert response.status_code in (200, 400, 413, 502)
    monitor.stop()
    assert monitor.longest_cpu < _MAX_PAUSE


# The memory of bodies.


def test_bodies_beyond_the_budget_are_refused() -> None:
    with (
        FaultyUpstream() as upstream,
        run_gateway(
            structs.replace(make_config(upstream.url), limits=Limits(total_body_bytes=100_000))
        ) as gateway,
    ):
        for client in WHOLE:
            request = encode_request(client, json.dumps(client.body("x" * 40_000)).encode())
            with connect(gateway.url) as first, connect(gateway.url) as second:
                for slow in (first, second):
                    # The end of the body does not come.
                    slow.sendall(request[:-10])
                wait_until(lambda: gateway.gateway.body_bytes > 80_000)
                response = ask(gateway.url, client, client.body("x" * 40_000))
                assert response.status == 503
                assert "limits.total_body_bytes" in response.error
                assert response.headers["retry-after"] == "1"
                assert ask(gateway.url, client).status == 200
            wait_until(lambda: gateway.gateway.body_bytes == 0)
            assert ask(gateway.url, client, client.body("x" * 40_000)).status == 200


LIMIT_CASES = {
    "json_values": {"metadata": {"x": [0] * 3000}},
    "messages": {"messages": [{"role": "user", "content": "Hi"}] * 60},
    "tool_bytes": {
        "tools": [
            {"type": "function", "function": {"name": "f", "description": "x" * 5000}},
        ]
    },
}


@pytest.mark.parametrize("setting", LIMIT_CASES)
def test_request_over_a_count_is_rejected(setting: str) -> None:
    limits = Limits(json_values=2000, messages=50, tool_bytes=4000)
    client = CLIENTS[0]
    with FaultyUpstream() as upstream, run_gateway(make_config(upstream.url)) as gateway:
        body = {**client.body(), **LIMIT_CASES[setting]}
        assert ask(gateway.url, client, body).status == 200
        gateway.gateway.reload(structs.replace(gateway.gateway.config, limits=limits))
        response = ask(gateway.url, client, body)
        assert response.status in (400, 413)
        assert f"limits.{setting}" in response.error
        assert ask(gateway.url, client).status == 200


def test_endless_schema_is_rejected_in_each_api() -> None:
    """Its validation would stop the gateway for ever."""
    parts = {f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 100} for at in range(9)}
    schema = {"type": "object", "properties": {"city": {"$ref": "#/$defs/d0"}}, "$defs": parts}
    with FaultyUpstream() as upstream, run_gateway(make_config(upstream.url)) as gateway:
        for client in CLIENTS:
            text = json.dumps(client.body(tools=1))
            body = json.loads(text.replace(json.dumps(TOOL), json.dumps(schema)))
            response = ask(gateway.url, client, body)
            assert response.status == 400
            assert "once its `$ref`s are expanded" in response.error
            assert ask(gateway.url, client).status == 200


# Many streams.

_STREAMS = 1000


async def _read_stream(port: int) -> str:
    """Request a stream; return "" if it is complete, or else what came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(encode_request(STREAMED[0], None, "Connection: close"))
    data = await reader.read(-1)
    writer.close()
    is_whole = data.startswith(b"HTTP/1.1 200") and b"[DONE]\n\n" in data
    return "" if is_whole and data.endswith(b"0\r\n\r\n") else repr(data[-300:])


def test_many_concurrent_streams_complete_in_constant_memory(tmp_path: Path) -> None:
    raise_handle_limit()

    async def respond_together(received: ReceivedRequest) -> bool:
        """Begin only when all streams are open."""
        while upstream.active_requests < _STREAMS and not received_all:
            await asyncio.sleep(0.05)
        received_all.append(True)
        return await respond_normally(received)

    async def run_round(port: int) -> Counter[str]:
        return Counter(await asyncio.gather(*(_read_stream(port) for _ in range(_STREAMS))))

    received_all: list[bool] = []
    memory: list[float] = []
    with FaultyUpstream() as upstream:
        upstream.set_actions(respond_together)
        (tmp_path / "toolspeak.toml").write_text(format_settings(upstream.url))
        with start_gateway(tmp_path) as gateway:
            port = int(gateway.url.rpartition(":")[2])
            for _ in range(4):
                received_all.clear()
                assert asyncio.run(run_round(port)) == {"": _STREAMS}
                upstream.requests.clear()
                memory.append(read_resident_megabytes(gateway.pid))
    assert memory[-1] < 1.1 * memory[1]


# Upstreams that die.


async def _reset_before_head(received: ReceivedRequest) -> None:
    received.reset()


async def _reset_in_head(received: ReceivedRequest) -> None:
    await received.send(b"HTTP/1.1 200 OK\r\nContent-Ty")
    received.reset()


async def _reset_in_reply(received: ReceivedRequest) -> None:
    await received.start_chunks(received.encode(HELLO)[0][:-2])
    received.reset()


@pytest.mark.parametrize("retries", [0, 2])
def test_requests_to_dying_upstream_all_end(retries: int) -> None:
    faults = (_reset_before_head, _reset_in_head, _reset_in_reply)
    choices = random.Random(1)

    async def die_sometimes(received: ReceivedRequest) -> bool:
        is_fault = choices.random() < 0.2
        return bool(await (choices.choice(faults) if is_fault else respond_normally)(received))

    statuses: Counter[int] = Counter()
    with FaultyUpstream() as upstream:
        config = make_config(upstream.url)
        settings = structs.replace(config.upstreams["scripted"], retries=retries)
        config = structs.replace(config, upstreams={"scripted": settings})
        with run_gateway(config) as gateway, ThreadPoolExecutor(20) as pool:
            upstream.set_actions(die_sometimes)
            # `ask` checks that each response is complete and valid in its API.
            requests = [client for client in CLIENTS for _ in range(30)]
            for response in pool.map(partial(ask, gateway.url), requests):
                statuses[response.status] += 1
                assert response.status in (200, 502)
                assert response.text == "Hello there." or response.error
            wait_until(lambda: upstream.active_requests == 0)
            wait_until(lambda: gateway.list_tasks() == set())
            assert gateway.gateway.metrics.active_requests == 0
            assert gateway.gateway.body_bytes == 0
    assert statuses[200] > len(requests) // 2
    assert (statuses[502] > 0) == (retries == 0) or statuses[502] < len(requests) // 10
