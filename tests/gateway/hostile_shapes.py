"""Requests and replies that are as expensive as possible for their size, and the pauses they cause.

REQUESTS["many messages"]()   ->   ("/v1/chat/completions", b'{"model": …')
REPLIES["one event of 60 MB"]()   ->   the request that gets this reply
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

from toolspeak.config.settings import Config, ModelSettings, UpstreamSettings

Shape = Callable[[], tuple[str, bytes]]
LARGE = 31 * 2**20
"""The size of most hostile bodies: just below the default limit."""
CHAT, RESPONSES, ANTHROPIC = "/v1/chat/completions", "/v1/responses", "/v1/messages"
OLLAMA, GEMINI = "/api/chat", "/v1beta/models/m:generateContent"
_HI = b'{"role":"user","content":"Hi"}'


# Requests.


def fill(item: bytes, size: int = LARGE) -> bytes:
    """Return a JSON array of as many of these items as fit."""
    return b"[" + b",".join([item] * (size // (len(item) + 1))) + b"]"


def fill_numbered(item: str, size: int = LARGE) -> bytes:
    """Return a JSON array of items that contain their number at `#`."""
    count = size // (len(item) + 6)
    return b"[" + b",".join(item.replace("#", str(at)).encode() for at in range(count)) + b"]"


def chat(**fields: bytes) -> bytes:
    """Return a Chat Completions request with these fields as JSON."""
    given = {"model": b'"m"', "messages": b"[" + _HI + b"]", **fields}
    return b"{" + b",".join(b'"%b":%b' % (k.encode(), v) for k, v in given.items()) + b"}"


def user(content: bytes) -> bytes:
    return b'[{"role":"user","content":%b}]' % content


def schema_tool(schema: bytes, name: bytes = b"get") -> bytes:
    return b'{"type":"function","function":{"name":"%b","parameters":%b}}' % (name, schema)


def tools(schema: bytes) -> bytes:
    return b"[" + schema_tool(schema) + b"]"


def many_tools(count: int, schema: bytes) -> bytes:
    return b"[" + b",".join(schema_tool(schema, b"t%d" % at) for at in range(count)) + b"]"


def object_schema(properties: bytes) -> bytes:
    return b'{"type":"object","properties":%b}' % properties


def many_properties(value: bytes, size: int) -> bytes:
    count = size // (len(value) + 13)
    return b"{" + b",".join(b'"p%d":%b' % (at, value) for at in range(count)) + b"}"


_SMALL_CALL = (
    '{"role":"assistant","tool_calls":[{"id":"c#","type":"function","function":'
    '{"name":"get","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c#","content":"x"}'
)
_PART = b'{"type":"text","text":"x"}'

REQUESTS: dict[str, Shape] = {
    "chat, nested arrays": lambda: (CHAT, chat(x=b"[" * 4_000_000 + b"]" * 4_000_000)),
    "chat, flat arrays": lambda: (CHAT, chat(x=fill(b"[]"))),
    "chat, flat objects": lambda: (CHAT, chat(x=fill(b"{}"))),
    "chat, numbers": lambda: (CHAT, chat(x=fill(b"1"))),
    "chat, strings": lambda: (CHAT, chat(x=fill(b'""'))),
    "chat, depth 150": lambda: (CHAT, chat(x=fill(b"[" * 150 + b"]" * 150))),
    "chat, deep objects": lambda: (CHAT, chat(x=b'{"a":' * 3_000_000 + b"1" + b"}" * 3_000_000)),
    "chat, many keys": lambda: (CHAT, chat(x=many_properties(b"1", LARGE))),
    "chat, many keys on top": lambda: (
        CHAT,
        chat()[:-1] + b"," + many_properties(b"1", LARGE)[1:],
    ),
    "chat, duplicate keys": lambda: (CHAT, b'{"a":1,' * 1 + b'"a":1,' * 5_000_000 + chat()[1:]),
    "chat, giant string": lambda: (CHAT, chat(messages=user(b'"' + b"x" * LARGE + b'"'))),
    "chat, giant text of words": lambda: (
        CHAT,
        chat(messages=user(b'"' + b"word " * (LARGE // 5) + b'"')),
    ),
    "chat, giant text of brackets": lambda: (
        CHAT,
        chat(messages=user(b'"' + b"{[" * (LARGE // 2) + b'"')),
    ),
    "chat, giant escaped string": lambda: (
        CHAT,
        chat(messages=user(b'"' + b"\\u0041" * (LARGE // 6) + b'"')),
    ),
    "chat, lone surrogates": lambda: (
        CHAT,
        chat(messages=user(b'"' + b"\\ud800" * (LARGE // 6) + b'"')),
    ),
    "chat, giant integer": lambda: (CHAT, chat(x=b"1" * 10**7)),
    "chat, giant float": lambda: (CHAT, chat(x=b"1." + b"1" * 10**7)),
    "chat, many long integers": lambda: (CHAT, chat(x=fill(b"1" * 4000))),
    "chat, many messages": lambda: (CHAT, chat(messages=fill(_HI))),
    "chat, messages of 12 bytes": lambda: (CHAT, chat(messages=fill(b'{"role":"user"}'))),
    "chat, many parts": lambda: (CHAT, chat(messages=user(fill(_PART)))),
    "chat, many calls and results": lambda: (CHAT, chat(messages=fill_numbered(_SMALL_CALL))),
    "chat, many calls, 10,000 messages": lambda: (
        CHAT,
        chat(
            messages=fill_numbered(_SMALL_CALL, 900_000),
            tools=tools(b'{"type":"object","properties":{"city":{"type":"string"}}}'),
        ),
    ),
    "chat, long conversation": lambda: (
        CHAT,
        chat(
            messages=b"["
            + b",".join([b'{"role":"user","content":"%b"}' % (b"word " * 300)] * 8000)
            + b"]",
            tools=many_tools(24, object_schema(b'{"a":{"type":"string"}}')),
        ),
    ),
    "chat, call with huge arguments": lambda: (
        CHAT,
        chat(
            messages=b'[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"c",'
            b'"type":"function","function":{"name":"get","arguments":"%b"}}]},'
            b'{"role":"tool","tool_call_id":"c","content":"x"}]'
            % (b"[" + b"[]," * 9_000_000 + b"1]")
        ),
    ),
    "chat, huge tool result": lambda: (
        CHAT,
        chat(
            messages=b'[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"c",'
            b'"type":"function","function":{"name":"get","arguments":"{}"}}]},'
            b'{"role":"tool","tool_call_id":"c","content":"%b"}]'
            % (b'<tool_call>{\\"name\\": \\"get\\"}</tool_call> ' * 600_000),
            tools=tools(b'{"type":"object","properties":{"a":{"type":"string"}}}'),
        ),
    ),
    "chat, many tools": lambda: (CHAT, chat(tools=many_tools(100_000, b"{}"))),
    "chat, 1,000 tools of 25 KB": lambda: (
        CHAT,
        chat(tools=many_tools(1000, object_schema(many_properties(b'{"type":"string"}', 25_000)))),
    ),
    "chat, 1,000 tools of 3 KB": lambda: (
        CHAT,
        chat(tools=many_tools(1000, object_schema(many_properties(b'{"type":"string"}', 3_000)))),
    ),
    "chat, huge schema": lambda: (
        CHAT,
        chat(tools=tools(object_schema(many_properties(b'{"type":"string"}', LARGE)))),
    ),
    "chat, many references": lambda: (
        CHAT,
        chat(tools=tools(object_schema(many_properties(b'{"$ref":"#/properties/p0"}', 3_000_000)))),
    ),
    "chat, many choices": lambda: (
        CHAT,
        chat(
            tools=tools(
                object_schema(b'{"a":{"anyOf":' + fill(b'{"type":"string"}', 3_000_000) + b"}}")
            )
        ),
    ),
    "chat, nested choices": lambda: (
        CHAT,
        chat(
            tools=tools(object_schema(b'{"a":' + b'{"anyOf":[' * 90 + b"{}" + b",{}]}" * 90 + b"}"))
        ),
    ),
    "chat, choices by reference": lambda: (
        CHAT,
        chat(
            tools=tools(
                b'{"type":"object","properties":{"city":{"$ref":"#/$defs/d0"}},"$defs":{'
                + b",".join(
                    b'"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}'
                    % (at, at + 1, at + 1)
                    for at in range(40)
                )
                + b',"d40":{"type":"string"}}}'
            )
        ),
    ),
    "chat, recursive schema": lambda: (
        CHAT,
        chat(
            tools=tools(
                b'{"type":"object","properties":{"city":{"anyOf":[{"$ref":"#"},{"$ref":"#"},'
                b'{"$ref":"#/properties/city"}]}}}'
            )
        ),
    ),
    "chat, huge enum": lambda: (
        CHAT,
        chat(tools=tools(object_schema(b'{"a":{"enum":' + fill(b'"x"', 3_900_000) + b"}}"))),
    ),
    "chat, huge pattern": lambda: (
        CHAT,
        chat(
            tools=tools(
                object_schema(b'{"city":{"type":"string","pattern":"%b"}}' % (b"(a?)" * 500_000))
            )
        ),
    ),
    "chat, catastrophic pattern": lambda: (
        CHAT,
        chat(
            tools=tools(
                object_schema(b'{"city":{"type":"string","pattern":"^(?=(a+)+$)(a|aa)+$"}}')
            ),
            model=b'"pattern call"',
        ),
    ),
    "chat, 10,000 catastrophic patterns": lambda: (
        CHAT,
        chat(
            tools=tools(
                b'{"type":"object","properties":{"city":{"allOf":'
                + fill(b'{"pattern":"^(?=(a+)+$)(a|aa)+$"}', 390_000)
                + b"}}}"
            ),
            model=b'"pattern call"',
        ),
    ),
    "chat, large repetition": lambda: (
        CHAT,
        chat(
            tools=tools(
                object_schema(
                    b'{"city":{"type":"string","pattern":"((a{1,1000}){1,1000}){1,1000}"}}'
                )
            ),
            model=b'"pattern call"',
        ),
    ),
    "chat, long tool name": lambda: (
        CHAT,
        chat(tools=b"[" + schema_tool(b"{}", b"x" * LARGE) + b"]"),
    ),
    "chat, long description": lambda: (
        CHAT,
        chat(
            tools=b'[{"type":"function","function":{"name":"get","description":"%b"}}]'
            % (b"a. \\n" * 700_000)
        ),
    ),
    "chat, many stop sequences": lambda: (CHAT, chat(stop=fill(b'"x"'))),
    "chat, giant image": lambda: (
        CHAT,
        chat(
            messages=user(
                b'[{"type":"image_url","image_url":{"url":"data:image/png;base64,%b"}}]'
                % (b"iVBORw0K" * (LARGE // 8))
            )
        ),
    ),
    "chat, response format": lambda: (
        CHAT,
        chat(
            response_format=b'{"type":"json_schema","json_schema":{"name":"x","schema":'
            + object_schema(many_properties(b'{"type":"string"}', LARGE))
            + b"}}"
        ),
    ),
    "allowed, 250 KB of messages": lambda: (CHAT, chat(messages=fill(_HI, 250_000))),
    "allowed, 250 KB of parts": lambda: (CHAT, chat(messages=user(fill(_PART, 250_000)))),
    "allowed, 250 KB of calls": lambda: (
        CHAT,
        chat(messages=fill_numbered(_SMALL_CALL, 250_000), tools=_WEATHER),
    ),
    "allowed, 250 KB of tools": lambda: (
        CHAT,
        chat(tools=many_tools(1000, object_schema(many_properties(b"{}", 150)))),
    ),
    "allowed, 250 KB of choices": lambda: (
        CHAT,
        chat(tools=tools(object_schema(b'{"a":{"anyOf":%b}}' % fill(b'{"type":"null"}', 250_000)))),
    ),
    "allowed, 4 MB of tools": lambda: (
        CHAT,
        chat(tools=many_tools(1000, object_schema(many_properties(b'{"type":"string"}', 4000)))),
    ),
    "allowed, 19,000 messages": lambda: (CHAT, chat(messages=fill(_HI, 19_000 * 31))),
    "allowed, 150,000 parts": lambda: (CHAT, chat(messages=user(fill(_PART, 150_000 * 27)))),
    "allowed, 9,000 calls": lambda: (
        CHAT,
        chat(messages=fill_numbered(_SMALL_CALL, 9_000 * 150), tools=_WEATHER),
    ),
    "responses, many items": lambda: (
        RESPONSES,
        b'{"model":"m","input":' + fill(b'{"role":"user","content":"x"}') + b"}",
    ),
    "responses, many parts": lambda: (
        RESPONSES,
        b'{"model":"m","input":[{"role":"user","content":'
        + fill(b'{"type":"input_text","text":"x"}')
        + b"}]}",
    ),
    "responses, many calls": lambda: (
        RESPONSES,
        b'{"model":"m","input":'
        + fill_numbered(
            '{"type":"function_call","call_id":"c#","name":"get","arguments":"{}"},'
            '{"type":"function_call_output","call_id":"c#","output":"x"}'
        )
        + b"}",
    ),
    "anthropic, many messages": lambda: (
        ANTHROPIC,
        b'{"model":"m","max_tokens":9,"messages":' + fill(_HI) + b"}",
    ),
    "anthropic, many parts": lambda: (
        ANTHROPIC,
        b'{"model":"m","max_tokens":9,"messages":' + user(fill(_PART)) + b"}",
    ),
    "anthropic, nested result parts": lambda: (
        ANTHROPIC,
        b'{"model":"m","max_tokens":9,"messages":'
        + user(b'[{"type":"tool_result","tool_use_id":"c","content":' + fill(_PART) + b"}]")
        + b"}",
    ),
    "anthropic, many system parts": lambda: (
        ANTHROPIC,
        b'{"model":"m","max_tokens":9,"messages":[' + _HI + b'],"system":' + fill(_PART) + b"}",
    ),
    "ollama, many messages": lambda: (OLLAMA, b'{"model":"m","messages":' + fill(_HI) + b"}"),
    "ollama, many images": lambda: (
        OLLAMA,
        b'{"model":"m","messages":[{"role":"user","content":"x","images":'
        + fill(b'"aaaa"')
        + b"}]}",
    ),
    "gemini, many contents": lambda: (
        GEMINI,
        b'{"contents":' + fill(b'{"role":"user","parts":[{"text":"x"}]}') + b"}",
    ),
    "gemini, many parts": lambda: (
        GEMINI,
        b'{"contents":[{"role":"user","parts":' + fill(b'{"text":"x"}') + b"}]}",
    ),
    "gemini, many tools": lambda: (
        GEMINI,
        b'{"contents":[{"role":"user","parts":[{"text":"x"}]}],"tools":[{"functionDeclarations":'
        + fill(b'{"name":"a"}')
        + b"}]}",
    ),
    "anthropic, count of many messages": lambda: (
        "/v1/messages/count_tokens",
        b'{"model":"m","messages":' + fill(_HI) + b"}",
    ),
    "embeddings, many inputs": lambda: (
        "/v1/embeddings",
        b'{"model":"m","input":' + fill(b'"x"') + b"}",
    ),
}


# Replies.


def sse(value: bytes) -> bytes:
    return b"data: " + value + b"\n\n"


def delta(fields: bytes) -> bytes:
    return b'{"choices":[{"index":0,"delta":{%b}}]}' % fields


def text_delta(text: bytes) -> bytes:
    return sse(delta(b'"content":"%b"' % text))


def whole(message: bytes) -> bytes:
    return b'{"choices":[{"index":0,"message":{"role":"assistant",%b},"finish_reason":"stop"}]}' % (
        message
    )


def call(arguments: bytes) -> bytes:
    return (
        b'"tool_calls":[{"index":0,"id":"c","type":"function","function":'
        b'{"name":"get","arguments":"%b"}}]' % arguments
    )


_STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
_MUCH = 60_000_000
_WHOLE, _STREAM = "application/json", "text/event-stream"
_WEATHER = tools(b'{"type":"object","properties":{"city":{"type":"string"}}}')

BODIES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "m": (_WHOLE, lambda: whole(b'"content":"Hello."')),
    "pattern call": (
        _WHOLE,
        lambda: whole(b'"content":null,' + call(b'{\\"city\\": \\"%b!\\"}' % (b"a" * 5000))),
    ),
    "whole: a text of 60 MB": (
        _WHOLE,
        lambda: whole(b'"content":"%b"' % (b"word " * (_MUCH // 5))),
    ),
    "whole: a text of marks": (
        _WHOLE,
        lambda: whole(b'"content":"%b"' % (b"<tool_call>" * (_MUCH // 11))),
    ),
    "whole: a text of braces": (
        _WHOLE,
        lambda: whole(b'"content":"%b"' % (b"{" * _MUCH)),
    ),
    "whole: values of 60 MB": (
        _WHOLE,
        lambda: whole(b'"content":"Hi","x":' + fill(b"[]", _MUCH)),
    ),
    "whole: many calls": (
        _WHOLE,
        lambda: whole(
            b'"tool_calls":'
            + fill(
                b'{"id":"c","type":"function","function":{"name":"get","arguments":"{}"}}', _MUCH
            )
        ),
    ),
    "whole: huge arguments": (
        _WHOLE,
        lambda: whole(call(b'{\\"city\\": %b}' % fill(b"[]", _MUCH))),
    ),
    "whole: huge text arguments": (
        _WHOLE,
        lambda: whole(call(b'{\\"city\\": \\"%b\\"}' % (b"word " * (_MUCH // 5)))),
    ),
    "whole: 200,000 calls": (
        _WHOLE,
        lambda: whole(
            b'"tool_calls":'
            + fill(
                b'{"id":"c","type":"function","function":{"name":"get","arguments":"{}"}}',
                200_000 * 74,
            )
        ),
    ),
    "whole: text arguments of numbers": (
        _WHOLE,
        lambda: whole(call(b'{\\"city\\": \\"%b\\"}' % (b"1e5 2.0 " * (_MUCH // 8)))),
    ),
    "whole: escaped text": (
        _WHOLE,
        lambda: whole(b'"content":"%b"' % (b"\\u0041" * (_MUCH // 6))),
    ),
    "whole: lone surrogates": (
        _WHOLE,
        lambda: whole(b'"content":"%b"' % (b"\\ud800" * (_MUCH // 6))),
    ),
    "whole: escaped text arguments": (
        _WHOLE,
        lambda: whole(call(b'{\\"city\\": \\"%b\\"}' % (b"\\\\u0041" * (_MUCH // 7)))),
    ),
    "whole: a long reason": (
        _WHOLE,
        lambda: whole(b'"content":"x","reasoning_content":"%b"' % (b"word " * (_MUCH // 5))),
    ),
    "whole: many reasons": (
        _WHOLE,
        lambda: whole(b'"content":"%b"' % (b"<think>a</think>" * (_MUCH // 16))),
    ),
    "stream: a million tiny events": (
        _STREAM,
        lambda: text_delta(b"x") + b"data:{}\n\n" * 1_000_000 + _STOP,
    ),
    "stream: a million words": (_STREAM, lambda: text_delta(b"x ") * 1_000_000 + _STOP),
    "stream: empty lines": (_STREAM, lambda: text_delta(b"x") + b"\n" * _MUCH + _STOP),
    "stream: one event of 60 MB": (
        _STREAM,
        lambda: text_delta(b"x ") + text_delta(b"word " * (_MUCH // 5)) + _STOP,
    ),
    "stream: one event of marks": (
        _STREAM,
        lambda: text_delta(b"x ") + text_delta(b"<tool_call>" * (_MUCH // 11)) + _STOP,
    ),
    "stream: one event of values": (
        _STREAM,
        lambda: text_delta(b"x ") + sse(delta(b'"x":' + fill(b"[]", _MUCH))) + _STOP,
    ),
    "stream: one event of many lines": (
        _STREAM,
        lambda: text_delta(b"x ") + b"data:\n" * (_MUCH // 6) + b"\n" + _STOP,
    ),
    "stream: huge arguments": (
        _STREAM,
        lambda: sse(delta(call(b'{\\"city\\": '))) + sse(delta(call(fill(b"[]", _MUCH)))) + _STOP,
    ),
    "stream: arguments in pieces": (
        _STREAM,
        lambda: (
            sse(delta(call(b'{\\"city\\": \\"')))
            + sse(
                delta(
                    b'"tool_calls":[{"index":0,"function":{"arguments":"xxxxxxxxxxxxxxxxxxxxxxxx"}}]'
                )
            )
            * 400_000
            + sse(delta(b'"tool_calls":[{"index":0,"function":{"arguments":"\\"}"}}]'))
            + _STOP
        ),
    ),
}


def asks_for(model: str) -> Shape:
    """Return a request for the reply of this name."""

    def build() -> tuple[str, bytes]:
        is_stream = model.startswith("stream")
        fields = {"stream": b"true"} if is_stream else {}
        return CHAT, chat(model=json.dumps(model).encode(), tools=_WEATHER, **fields)

    return build


REPLIES: dict[str, Shape] = {name: asks_for(name) for name in BODIES if ":" in name}


def make_hostile_config(url: str, mode: str = "native", **settings: Any) -> Config:
    """Return a configuration with a model for each reply of a hostile upstream."""
    upstreams = {
        f"u{at}": UpstreamSettings(wire="openai_chat", base_url=f"{url}/{at}/v1", retries=0)
        for at in range(len(BODIES))
    }
    models = {
        name: ModelSettings(f"u{at}", model="m", tools=mode, retries=0)  # type: ignore[arg-type]
        for at, name in enumerate(BODIES)
    }
    return Config(default="m", upstreams=upstreams, models=models, **settings)


class HostileUpstream:
    """An upstream that reads any request, and whose reply depends on the path."""

    def __init__(self) -> None:
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._has_started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._replies = list(BODIES.values())
        self._built: dict[int, bytes] = {}

    def __enter__(self) -> HostileUpstream:
        self._thread.start()
        assert self._has_started.wait(60)
        return self

    def __exit__(self, *problem: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)

    def prepare(self, name: str) -> None:
        """Build the reply of this name, which takes a while."""
        number = [*BODIES].index(name) if name in BODIES else 0
        self._built = {number: self._replies[number][1]()}

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**20)
        )
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._has_started.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).lower():
                length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
                while length:
                    length -= len(await reader.read(min(length, 2**20)))
                number = int(head.split(b"/")[1])
                content_type, build = self._replies[number]
                body = self._built.get(number) or build()
                self._built = {number: body}
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"
                    % (content_type.encode(), len(body))
                )
                view = memoryview(body)
                for at in range(0, len(body), 2**20):
                    writer.write(view[at : at + 2**20])
                    await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


# Pauses.


class PauseMonitor:
    """Measures for how long an event loop could not run anything."""

    _EVERY = 0.002

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.longest_cpu = self.longest = 0.0
        """The longest pause: in CPU seconds of the process, which other programs do not change, and
        in seconds."""
        self._is_stopped = False
        self._tick_cpu, self._tick_at = process_time(), perf_counter()
        loop.call_soon_threadsafe(self._tick)

    def stop(self) -> None:
        """Measure once more, and no longer."""
        asyncio.run_coroutine_threadsafe(asyncio.sleep(2 * self._EVERY), self._loop).result(60)
        self._is_stopped = True

    def _tick(self) -> None:
        cpu, now = process_time(), perf_counter()
        self.longest_cpu = max(self.longest_cpu, cpu - self._tick_cpu)
        self.longest = max(self.longest, now - self._tick_at)
        self._tick_cpu, self._tick_at = cpu, now
        if not self._is_stopped:
            self._loop.call_later(self._EVERY, self._tick)
