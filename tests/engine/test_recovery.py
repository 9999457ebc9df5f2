"""Upstreams that misbehave in every way there is a class for, and those that do not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Struct

from tests.gateway.raw_clients import CLIENTS, Client, ask
from tests.gateway.running_gateway import behind, running
from toolspeak import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    Finish,
    Started,
    TextDelta,
    ToolCall,
)
from toolspeak.testing import ScriptedServer
from toolspeak.wires import get_wire

Reply = list[Event]


def says(*texts: str, stop: Any = "stop") -> Reply:
    return [Started("id", "m"), *map(TextDelta, texts), Finish(stop)]


def calls(
    name: str = "get_weather", stop: Any = "calls", said: str = "", **arguments: Any
) -> Reply:
    """A call by the API's own means."""
    call = ToolCall(id="c1", name=name, arguments=arguments)
    text = [TextDelta(said)] if said else []
    made = [CallStart(0, "c1", name), ArgumentsDelta(0, json.dumps(arguments)), CallEnd(0, call)]
    return [Started("id", "m"), *text, *made, Finish(stop)]


def block(name: str = "get_weather", **arguments: Any) -> str:
    call = {"name": name, "arguments": arguments}
    return f"<tool_call>{json.dumps(call)}</tool_call>"


OSLO = {"city": "Oslo"}
GOOD, NATIVE = says(block(**OSLO)), calls(**OSLO)
HELD = says(json.dumps({"tool": "get_weather", "arguments": OSLO}))
SORRY = "I'm sorry, but I don't have access to real-time weather data."
PLEASE = "Which city do you mean?"
CUT = '<tool_call>{"name": "get_weather", "arguments": {"ci'


class Script(Struct, frozen=True):
    """What an upstream says to each request, and what the client is to get."""

    replies: tuple[Reply, ...]
    asked: int
    """How many requests the upstream is to get."""
    call: dict[str, Any] | None = None
    text: str | None = None
    mode: str = "prompt"
    required: bool = False
    status: int = 200
    retries: int = 2
    constrained: bool = False
    streamed: str | None = None
    """The text, where the client streams and something has left before it was known."""


SCRIPTS: dict[str, Script] = {
    # Those that behave are asked once.
    "a call in the text": Script((GOOD,), 1, OSLO),
    "a native call": Script((NATIVE,), 1, OSLO, mode="native"),
    "a native call with words": Script(
        (calls(said="Let me look. ", **OSLO),), 1, OSLO, mode="native"
    ),
    "an answer": Script((says("It is sunny."),), 1, text="It is sunny."),
    "a native answer": Script((says("It is sunny."),), 1, text="It is sunny.", mode="native"),
    "a question": Script((says(PLEASE),), 1, text=PLEASE),
    "a greeting": Script((says("Hello! How can I help?"),), 1, text="Hello! How can I help?"),
    "thanks": Script((says("You're welcome!"),), 1, text="You're welcome!"),
    "a call that is required": Script((GOOD,), 1, OSLO, required=True),
    "a native one that is required": Script((NATIVE,), 1, OSLO, mode="native", required=True),
    "a call that can be mended": Script((says(block(city=5)),), 1, {"city": "5"}),
    "an example in code": Script((says(f"Write `{block(**OSLO)}`."),), 1),
    "a long answer": Script((says("Well. " * 400),), 1, text="Well. " * 400),
    # A call that cannot be made.
    "arguments of the wrong kind": Script((says(block(city=[1])), GOOD), 2, OSLO),
    "the same, native": Script((calls(city=[1]), NATIVE), 2, OSLO, mode="native"),
    "wrong twice": Script((says(block(city=[1])), says(block(city=[])), GOOD), 3, OSLO),
    "wrong for ever": Script((says(block(city=[1])),), 3, text=block(city=[1])),
    "wrong, and no retries": Script((says(block(city=[1])),), 1, text=block(city=[1]), retries=0),
    "wrong, and one retry": Script((says(block(city=[1])),), 2, text=block(city=[1]), retries=1),
    "wrong, then an answer": Script(
        (says(block(city=[1])), says("Never mind.")), 2, text="Never mind."
    ),
    "wrong, then held to a schema": Script(
        (says(block(city=[1])), says(block(city=[1])), HELD), 3, OSLO, constrained=True
    ),
    "a block that is no JSON": Script(
        (says("<tool_call>get_weather, Oslo</tool_call>"), GOOD), 2, OSLO
    ),
    "words before a wrong call": Script(
        (says("Let me look. ", block(city=[1])), GOOD), 2, OSLO, streamed="Let me look."
    ),
    "wrong and required": Script((says(block(city=[1])), GOOD), 2, OSLO, required=True),
    "wrong for ever and required": Script((says(block(city=[1])),), 3, required=True, status=502),
    # A tool that does not exist.
    "another tool": Script((says(block("get_whether", **OSLO)), GOOD), 2, OSLO),
    "another native tool": Script((calls("get_whether", **OSLO), NATIVE), 2, OSLO, mode="native"),
    "another tool for ever": Script((says(block("nope", **OSLO)),), 3, text=block("nope", **OSLO)),
    # No call though one is required.
    "an answer though a call is required": Script((says("Sunny."), GOOD), 2, OSLO, required=True),
    "native, and then by prompt": Script(
        (says("Sunny."), GOOD), 2, OSLO, mode="native", required=True
    ),
    "held to a schema at once": Script(
        (says("Sunny."), HELD), 2, OSLO, required=True, constrained=True
    ),
    "never": Script((says("Sunny."),), 3, required=True, status=502),
    "never, and no retries": Script((says("Sunny."),), 1, required=True, status=502, retries=0),
    # A false refusal.
    "no access": Script((says(SORRY), GOOD), 2, OSLO),
    "no access, natively": Script((says(SORRY), NATIVE), 2, OSLO, mode="native"),
    "no access twice": Script((says(SORRY), says(SORRY), GOOD), 3, OSLO),
    "no access for ever": Script((says(SORRY),), 3, text=SORRY),
    "no access, in pieces": Script((says(*SORRY), GOOD), 2, OSLO),
    "no access, then an answer": Script(
        (says(SORRY), says("It is sunny.")), 2, text="It is sunny."
    ),
    "no access, and required": Script((says(SORRY), GOOD), 2, OSLO, required=True),
    # A call that is cut off.
    "cut off": Script((says(CUT, stop="length"), says('ty": "Oslo"}}</tool_call>')), 2, OSLO),
    "cut off, and begun anew": Script((says(CUT, stop="length"), says("…"), GOOD), 3, OSLO),
    "cut off for ever": Script((says(CUT, stop="length"),), 3, text=CUT),
    # Nothing.
    "nothing": Script((says(), GOOD), 2, OSLO),
    "white space": Script((says(" \n"), GOOD), 2, OSLO),
    "nothing twice": Script((says(), says(), says("Sunny.")), 3, text="Sunny."),
    "nothing, natively": Script((says(), NATIVE), 2, OSLO, mode="native"),
    "nothing at all": Script((says(),), 3, text=""),
}


def served(script: Script, server: ScriptedServer) -> Any:
    provider = "llamacpp" if script.constrained else ""
    given: dict[str, Any] = {"tools": script.mode, "dialect": "hermes"}
    return behind(server.url, provider=provider, retries=script.retries, **given)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts(name: str, client: Client) -> None:
    script = SCRIPTS[name]
    if script.required and client.wire == "ollama":
        pytest.skip("Ollama's API has no choice of tools")
    with ScriptedServer(*script.replies) as server:
        with running(served(script, server)) as gateway:
            body = client.body(
                "How is the weather in Oslo?", tools=["get_weather"], required=script.required
            )
            heard = ask(gateway.url, client, body)
        assert heard.status == script.status, heard
        assert len(server.requests) == script.asked
        assert (server.requests[-1].response_format is not None) == script.constrained
        text = script.text if script.streamed is None or not client.stream else script.streamed
        if text is not None:
            assert heard.text.strip() == text.strip()
        assert made(client, heard.raw) == ([script.call] if script.call else [])
        if not client.stream:
            assert heard.headers.get("x-toolspeak-retries", "0") == str(script.asked - 1)


def made(client: Client, raw: bytes) -> list[Any]:
    """The arguments of the calls that a client hears."""
    wire = get_wire(client.wire)
    from toolspeak import fold
    from toolspeak.wires import StreamDecoder

    if not client.stream or client.is_array:
        value = json.loads(raw)
        frames = value if isinstance(value, list) else [value]
        decoder = StreamDecoder(wire)
        decoder.is_done = True
        events = [event for frame in frames for event in decoder.feed_value(frame)]
        events += decoder.finish()
    else:
        decoder = StreamDecoder(wire)
        events = decoder.feed(raw) + decoder.finish()
    return [dict(call.arguments) for call in fold(events).calls]
