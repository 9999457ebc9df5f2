"""Requests create no reference cycles.

The gateway runs the garbage collector rarely, so that cycles of many streams would pile up.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from typing import Any

import pytest

from tests.gateway.running_gateway import AsgiExchange
from tests.support import TOOLBOX
from toolspeak import Message, Reply, Request, Text, ToolCall
from toolspeak.config.settings import Config, ModelSettings, UpstreamSettings
from toolspeak.errors import UpstreamError
from toolspeak.events import unfold
from toolspeak.gateway.app import Gateway
from toolspeak.gateway.chat_handler import PINGS
from toolspeak.testing import ScriptedServer
from toolspeak.upstream.catalog import Endpoint
from toolspeak.upstream.client import UpstreamClient
from toolspeak.upstream.timers import EVERY, Ticker
from toolspeak.wires import WIRES

PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "ollama": "/api/chat",
}


def encode_body(wire: str, *, stream: bool) -> bytes:
    messages = (Message("user", (Text("Go."),)),)
    request = Request(
        model="m", messages=messages, tools=tuple(TOOLBOX), stream=stream, max_tokens=99
    )
    return json.dumps(WIRES[wire].encode_request(request).body).encode()


async def ask(gateway: Gateway, path: str, data: bytes) -> int:
    """Serve a request as the server does, and return the status of the response."""
    headers = {"host": "127.0.0.1", "content-type": "application/json"}
    exchange = AsgiExchange("POST", path, headers, data)
    await gateway(exchange.scope, exchange.receive, exchange.send)
    return exchange.status


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("tools", ["native", "prompt"])
@pytest.mark.parametrize("wire", PATHS)
def test_request_creates_no_cycles(wire: str, tools: Any, stream: bool) -> None:
    assert asyncio.run(find_cycles(wire, tools, stream=stream)) == set()


@pytest.mark.parametrize("wire", PINGS)
def test_stream_with_pings_creates_no_cycles(wire: str) -> None:
    cycles = find_cycles(wire, "native", stream=True, pause=2 * EVERY, ping_after=EVERY / 2)
    assert asyncio.run(cycles) == set()


async def find_cycles(
    wire: str, tools: Any, *, stream: bool, pause: float = 0.0, ping_after: float = 15.0
) -> set[str]:
    """Return the types in the reference cycles that a few requests leave behind."""
    call = ToolCall(id="call_1", name="t", arguments={"a": 1})
    turn = list(unfold(Reply(parts=(Text("Well."), call), stop_reason="calls")))
    with ScriptedServer(turn, pause=pause) as server:
        upstream = UpstreamSettings(
            provider="custom", wire="openai_chat", base_url=f"{server.url}/v1"
        )
        models = {"m": ModelSettings("u", tools=tools, retries=0)}
        gateway = Gateway(
            Config(upstreams={"u": upstream}, models=models), environ={}, ping_after=ping_after
        )
        data = encode_body(wire, stream=stream)
        for _ in range(5):
            assert await ask(gateway, PATHS[wire], data) == 200
        # The collection below then has to look only at the objects of the next requests.
        gc.freeze()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for _ in range(3):
                await ask(gateway, PATHS[wire], data)
            gc.collect()
            # The scripted server is in this process as well.
            found = {type(item).__name__ for item in gc.garbage if _is_ours(item)}
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        await gateway.close()
        return found


@pytest.mark.parametrize("is_silent", [False, True], ids=["closed", "silent"])
def test_failed_request_is_freed_at_once(is_silent: bool) -> None:
    size = 2**20

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1 if is_silent else 10)
        writer.close()

    async def wait_until_freed() -> None:
        server = await asyncio.start_server(respond, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        settings = UpstreamSettings(
            base_url=f"http://127.0.0.1:{port}/v1", first_byte_timeout=0.05, retries=0
        )
        client = UpstreamClient(Ticker())
        endpoint = Endpoint("u", "openai_chat", settings.base_url, "", {}, settings)
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(5):
                with pytest.raises(UpstreamError):
                    await client.send(endpoint, "/x", b"x" * size)
            # The tasks of the last request need some steps of the loop to end.
            async with asyncio.timeout(60):
                while tracemalloc.get_traced_memory()[0] >= size:
                    await asyncio.sleep(0.01)
        finally:
            tracemalloc.stop()
            gc.enable()
            client.close()
            server.close()

    asyncio.run(wait_until_freed())


def _is_ours(item: Any) -> bool:
    return type(item).__module__.startswith(("toolspeak.gateway", "toolspeak.engine"))
