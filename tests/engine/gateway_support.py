"""Requests and replies for tests that run the engine behind a gateway."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.raw_clients import CLIENTS, Client
from toolspeak import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    Finish,
    Started,
    TextDelta,
    ToolCall,
    fold,
)
from toolspeak.wires import StreamDecoder, get_wire

Reply = list[Event]


def text_reply(*texts: str, stop: Any = "stop") -> Reply:
    return [Started("id", "m"), *map(TextDelta, texts), Finish(stop)]


def call_reply(
    name: str = "get_weather", stop: Any = "calls", said: str = "", **arguments: Any
) -> Reply:
    """A call by the API's own means."""
    call = ToolCall(id="c1", name=name, arguments=arguments)
    text = [TextDelta(said)] if said else []
    made = [CallStart(0, "c1", name), ArgumentsDelta(0, json.dumps(arguments)), CallEnd(0, call)]
    return [Started("id", "m"), *text, *made, Finish(stop)]


def call_block(name: str = "get_weather", **arguments: Any) -> str:
    call = {"name": name, "arguments": arguments}
    return f"<tool_call>{json.dumps(call)}</tool_call>"


OSLO = {"city": "Oslo"}
VALID_CALL, NATIVE_CALL = text_reply(call_block(**OSLO)), call_reply(**OSLO)
CONSTRAINED = text_reply(json.dumps({"tool": "get_weather", "arguments": OSLO}))
FALSE_REFUSAL = "I'm sorry, but I don't have access to real-time weather data."


def read_call_arguments(client: Client, raw: bytes) -> list[Any]:
    """Return the arguments of the calls in a response."""
    wire = get_wire(client.wire)
    if client.stream and not client.is_array:
        decoder = StreamDecoder(wire)
        events = decoder.feed(raw) + decoder.finish()
    else:
        events = list(wire.decode_reply(json.loads(raw)))
    return [dict(call.arguments) for call in fold(events).calls]


CHAT = CLIENTS[0]
CHAT_STREAMED = next(client for client in CLIENTS if client.name == "chat streamed")
WEATHER_TOOL = ["get_weather"]


FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}


def weather_body(client: Client, **more: Any) -> dict[str, Any]:
    return client.body("How is the weather in Oslo?", tools=WEATHER_TOOL) | more


def body_with_format(client: Client) -> dict[str, Any]:
    wanted = {"type": "json_schema", "json_schema": {"name": "city", "schema": FORM}}
    return weather_body(client, response_format=wanted)


MANY_TOOLS = [f"tool_{number}" for number in range(40)]


whole_and_streamed = pytest.mark.parametrize(
    "client", [CHAT, CHAT_STREAMED], ids=lambda client: client.name
)
