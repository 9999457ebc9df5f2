"""A request leaves nothing behind that only the collector of garbage would find.

The gateway lets it run seldom; with many streams at once, cycles would pile up until then.
"""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import pytest

from tests.support import TOOLBOX
from toolspeak import Message, Reply, Request, Text, ToolCall
from toolspeak.events import events_of
from toolspeak.gateway.app import Gateway
from toolspeak.gateway.settings import Config, Model, Upstream
from toolspeak.testing import ScriptedServer
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
    """The status of the answer to a request, as the server would ask the application."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 80),
    }
    statuses: list[int] = []
    given = [{"type": "http.request", "body": data, "more_body": False}]

    async def receive() -> Any:
        return given.pop() if given else await asyncio.get_running_loop().create_future()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await gateway(scope, receive, send)
    return statuses[0]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("tools", ["native", "prompt"])
@pytest.mark.parametrize("wire", PATHS)
def test_a_request_leaves_no_cycles(wire: str, tools: Any, stream: bool) -> None:
    made = ToolCall(id="call_1", name="t", arguments={"a": 1})
    turn = list(events_of(Reply(parts=(Text("Well."), made), stop_reason="calls")))

    async def left() -> set[str]:
        with ScriptedServer(turn) as server:
            upstream = Upstream(provider="custom", wire="openai_chat", base_url=f"{server.url}/v1")
            models = {"m": Model("u", tools=tools, retries=0)}
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


def _is_ours(one: Any) -> bool:
    return type(one).__module__.startswith(("toolspeak.gateway", "toolspeak.bridge"))
