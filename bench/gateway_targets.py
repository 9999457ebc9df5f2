"""The upstream and the bare proxies that bench/gateway.py compares the gateway with.

python -m bench.gateway_targets upstream PORT [PACE [DYING]]
python -m bench.gateway_targets proxy PORT URL
python -m bench.gateway_targets pair PORT PORT URL MODE
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

SERVED = "fake-model"
"""The model name in replies: most upstreams return the exact version, not the requested name."""
CALL = {
    "id": "chatcmpl-abc123",
    "object": "chat.completion",
    "created": 1760000000,
    "model": SERVED,
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_7SNbJpYxGvQe4KuTzWmR2aHc",
                        "type": "function",
                        "function": {
                            "name": "get_weather",
                            "arguments": '{"city": "Oslo", "days": 3}',
                        },
                    }
                ],
            },
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 200, "completion_tokens": 20, "total_tokens": 220},
}
TEXT_CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
CHUNKS, EVERY = 200, 0.01
"""The number of chunks of a stream, and the seconds between them."""


def _build_chunk(number: int) -> bytes:
    delta = {"content": f"word {number} "}
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return _encode_frame({"choices": [choice]})


def _encode_frame(said: dict[str, Any]) -> bytes:
    head = {key: CALL[key] for key in ("id", "created", "model")}
    value = {"object": "chat.completion.chunk", **head, **said}
    return b"data: " + json.dumps(value).encode() + b"\n\n"


_STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
_LAST = _encode_frame(_STOP) + b"data: [DONE]\n\n"


def _encode_response(value: Any) -> bytes:
    body = json.dumps(value).encode()
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _build_text_reply() -> dict[str, Any]:
    message = {"role": "assistant", "content": TEXT_CALL}
    return CALL | {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


_CALL, _TEXT = _encode_response(CALL), _encode_response(_build_text_reply())


class _Upstream(asyncio.Protocol):
    """Replies with a call, with a call in text if the request has no tools, or with a stream."""

    pace = EVERY
    dying = 0.0
    """The share of streams that break off halfway."""
    _count = 0

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        while True:
            head, found, rest = self._data.partition(b"\r\n\r\n")
            if not found:
                return
            lengths = [line for line in head.lower().split(b"\r\n") if b"content-length" in line]
            length = int(lengths[0].partition(b":")[2]) if lengths else 0
            if len(rest) < length:
                return
            body, self._data = rest[:length], rest[length:]
            self._answer(body)

    def _answer(self, body: bytes) -> None:
        if b'"stream":true' in body or b'"stream": true' in body:
            self._task = asyncio.ensure_future(self._stream())
        else:
            self._transport.write(_CALL if b'"tools"' in body else _TEXT)

    async def _stream(self) -> None:
        write = self._transport.write
        write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        begin = asyncio.get_running_loop().time()
        _Upstream._count += 1
        is_dying = _Upstream._count * self.dying % 1 >= 1 - self.dying
        for number in range(CHUNKS):
            if is_dying and number == CHUNKS // 2:
                self._transport.abort()
            if self._transport.is_closing():
                return
            data = _build_chunk(number)
            write(b"%x\r\n%b\r\n" % (len(data), data))
            due = begin + (number + 1) * self.pace
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(_LAST), _LAST))


def run_upstream(port: int, pace: str = "", dying: str = "0") -> None:
    """Run a server that costs almost nothing."""
    import uvloop

    _Upstream.pace, _Upstream.dying = float(pace or EVERY), float(dying)

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(_Upstream, "127.0.0.1", port, backlog=2048)
        await server.serve_forever()

    uvloop.run(serve())


def run_proxy(port: int, url: str) -> None:
    """Run a proxy of Starlette and aiohttp that decodes and encodes streams."""
    import uvicorn

    aiohttp: Any = import_module("aiohttp")
    orjson: Any = import_module("orjson")
    responses: Any = import_module("starlette.responses")
    sessions: list[Any] = []

    async def relay(request: Any) -> Any:
        if not sessions:
            sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        body = orjson.dumps(orjson.loads(await request.body()))
        headers = {"content-type": "application/json"}
        answer = await sessions[0].post(url + request.url.path, data=body, headers=headers)
        if answer.content_type != "text/event-stream":
            data = orjson.dumps(orjson.loads(await answer.read()))
            return responses.Response(data, media_type="application/json")
        return responses.StreamingResponse(decoded(answer), media_type="text/event-stream")

    async def decoded(answer: Any) -> AsyncIterator[bytes]:
        held = b""
        async for data in answer.content.iter_any():
            *frames, held = (held + data).split(b"\n\n")
            for frame in frames:
                payload = frame.removeprefix(b"data: ")
                if payload != b"[DONE]":
                    payload = orjson.dumps(orjson.loads(payload))
                yield b"data: " + payload + b"\n\n"

    routing: Any = import_module("starlette.routing")
    routes = [routing.Route("/{path:path}", relay, methods=["POST"])]
    app = import_module("starlette.applications").Starlette(routes=routes)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)


def run_pair(port: int, other: str, url: str, mode: str) -> None:
    """Run two gateways in one process, one of them with the inspector."""
    from toolspeak.config.settings import Config, InspectorSettings, ModelSettings, UpstreamSettings
    from toolspeak.gateway.app import Gateway
    from toolspeak.gateway.server import GatewayServer, event_loop_factory, tune_process

    async def serve() -> None:
        serving: list[Any] = []
        for is_on, own in ((False, port), (True, int(other))):
            config = Config(
                default="m",
                inspector=InspectorSettings(enabled=is_on),
                upstreams={"fast": UpstreamSettings(wire="openai_chat", base_url=f"{url}/v1")},
                models={"m": ModelSettings("fast", tools=mode)},  # pyright: ignore[reportArgumentType]
            )
            listener = socket.create_server(("127.0.0.1", own), backlog=512)
            serving.append(
                GatewayServer(Gateway(config, environ={}, token="a token")).serve(listener)
            )
        await asyncio.gather(*serving)

    tune_process()
    with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
        runner.run(serve())


if __name__ == "__main__":
    kind, port, *rest = sys.argv[1:]
    {"upstream": run_upstream, "proxy": run_proxy, "pair": run_pair}[kind](int(port), *rest)
