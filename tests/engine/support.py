"""A model behind every wire, without a network: it is asked and answers in that wire's words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

from tests.wires.scenarios import TOOLS
from toolspeak import Event, Message, Reply, Request, Text, ToolCall, ToolResult, fold
from toolspeak.engine import Attempt, ModelProfile
from toolspeak.wires import Envelope, get_wire

CALL = ToolCall(id="call_1", name="get_weather", arguments={"city": "Oslo"})
RESULT = ToolResult(call_id="call_1", name="get_weather", content="rain, 7 °C")


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def asked(*messages: Message, **fields: Any) -> Request:
    """A request with tools."""
    fields = {"tools": TOOLS, **fields}
    return Request(model="m", messages=messages or (user("How is Oslo?"),), **fields)


def ids() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"call_new_{next(numbers)}"


def exchange(request: Request, **target: Any) -> Attempt:
    target.setdefault("model", "plain-7b")
    return Attempt(request, ModelProfile(**target), new_id=ids())


def seen(sent: Attempt) -> Request:
    """What the upstream understands of what it is sent."""
    return get_wire(sent.profile.wire).decode_request(sent.outgoing.body, model="m")


def answered(sent: Attempt, events: Sequence[Event], *, piece: int = 0) -> Reply:
    """What a client gets if the upstream says this: whole, or streamed in pieces."""
    return fold(events_of(sent, events, piece=piece))


def events_of(sent: Attempt, events: Sequence[Event], *, piece: int = 0) -> Iterable[Event]:
    wire = get_wire(sent.profile.wire)
    envelope = Envelope(sent.model_request, "id_1", 1)
    answer = sent.reader()
    if not piece:
        return list(answer.read_whole(wire.encode_reply(fold(events), envelope)))
    encoder = wire.stream_encoder(envelope)
    data = b"".join(map(encoder.feed, events))
    pieces = (data[at : at + piece] for at in range(0, len(data), piece))
    return [*(event for part in pieces for event in answer.feed(part)), *answer.finish()]
