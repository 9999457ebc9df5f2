"""A request leaves nothing behind that only the collector of garbage would find.

The gateway lets it run seldom; with many streams at once, cycles would pile up until then.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from typing import Any

import pytest

from tests.gateway.running_gateway import Nowhere
from tests.support import TOOLBOX
from toolspeak import Message, Reply, Request, Text, ToolCall
from toolspeak.config.settings import Config, ModelSettings, UpstreamSettings
from toolspeak.errors import UpstreamError
from toolspeak.events import unfold
from toolspeak.gateway.app import Gateway
from toolspeak.gateway.http import Incoming, Sender
from toolspeak.testing import ScriptedServer
from toolspeak.upstream.catalog import Endpoint
from toolspeak.upstream.client import UpstreamClient
from toolspeak.upstream.timers import Ticker
from toolspeak.wires import WIRES

PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "ollama": "/api/chat",
}


def body(wire: str, *, stream: bool) -> bytes:
    asked = (Message("user", (Text("Go."),)),)
    request = Request(model="m", messages=asked, tools=tuple(TOOLBOX), stream=stream, max_tokens=99)
    return json.dumps(WIRES[wire].encode_request(request).body).encode()


async def ask(gateway: Gateway, path: str, data: bytes) -> int:
    """The status of the answer to a request, as the server would have it served."""
    headers = [(b"Host", b"127.0.0.1"), (b"Content-Type", b"application/json")]
    nowhere = Nowhere(gateway.ticker)
    incoming, sender = Incoming(nowhere, "POST", path, headers), Sender(nowhere)
    incoming.take(data)
    incoming.complete()
    await gateway.serve(incoming, sender)
    return sender.status


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("tools", ["native", "prompt"])
@pytest.mark.parametrize("wire", PATHS)
def test_a_request_leaves_no_cycles(wire: str, tools: Any, stream: bool) -> None:
    made = ToolCall(id="call_1", name="t", arguments={"a": 1})
    turn = list(unfold(Reply(parts=(Text("Well."), made), stop_reason="calls")))

    async def left() -> set[str]:
        with ScriptedServer(turn) as server:
            upstream = UpstreamSettings(
                provider="custom", wire="openai_chat", base_url=f"{server.url}/v1"
            )
            models = {"m": ModelSettings("u", tools=tools, retries=0)}
            gateway = Gateway(Config(upstreams={"u": upstream}, models=models), environ={})
            data = body(wire, stream=stream)
            for _ in range(5):
                assert await ask(gateway, PATHS[wire], data) == 200
            gc.collect()
            gc.disable()
            gc.set_debug(gc.DEBUG_SAVEALL)
            try:
                for _ in range(3):
                    await ask(gateway, PATHS[wire], data)
                gc.collect()
                # Others are of the server that answers, in this very process.
                found = {type(one).__name__ for one in gc.garbage if _is_ours(one)}
            finally:
                gc.set_debug(0)
                gc.garbage.clear()
                gc.enable()
            await gateway.close()
            return found

    assert asyncio.run(left()) == set()


@pytest.mark.parametrize("answers", [b"", None], ids=["closes", "is silent"])
def test_one_that_fails_leaves_nothing_of_what_was_asked(answers: bytes | None) -> None:
    """A megabyte each, if it were to wait for the collector."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10 if answers is not None else -1)
        writer.close()

    async def held() -> int:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        here = UpstreamSettings(
            base_url=f"http://127.0.0.1:{port}/v1", first_byte_timeout=0.1, retries=0
        )
        upstreams = UpstreamClient(Ticker())
        endpoint = Endpoint("u", "openai_chat", here.base_url, "", {}, here)
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(5):
                with pytest.raises(UpstreamError):
                    await upstreams.send(endpoint, "/x", b"x" * 2**20)
            await asyncio.sleep(0.2)
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
            gc.enable()
            upstreams.close()
            server.close()

    assert asyncio.run(held()) < 2**20


def _is_ours(one: Any) -> bool:
    return type(one).__module__.startswith(("toolspeak.gateway", "toolspeak.engine"))
