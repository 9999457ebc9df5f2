"""Requests to and replies from a model behind any wire, without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

from tests.wires.scenarios import TOOLS
from toolspeak import Event, Message, Reply, Request, Text, ToolCall, ToolResult, fold
from toolspeak.engine import Attempt, ModelProfile, Pipeline, ReplyReader, prepare_attempt
from toolspeak.wires import Envelope, get_wire

CALL = ToolCall(id="call_1", name="get_weather", arguments={"city": "Oslo"})
RESULT = ToolResult(call_id="call_1", name="get_weather", content="rain, 7 °C")


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def build_request(*messages: Message, **fields: Any) -> Request:
    """Build a request with tools."""
    fields = {"tools": TOOLS, **fields}
    return Request(model="m", messages=messages or (user("How is Oslo?"),), **fields)


def count_ids() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"call_new_{next(numbers)}"


def prepare(request: Request, **profile: Any) -> Attempt:
    profile.setdefault("model", "plain-7b")
    return prepare_attempt(request, ModelProfile(**profile), new_id=count_ids())


class PipelineRun:
    """Runs a pipeline by hand: replies are fed as events, attempts end when the test says so."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._steps = pipeline.run()
        self.attempt = next(self._steps)

    def feed(self, events: list[Event]) -> list[Event]:
        """Return what may be sent to the client now."""
        return self.pipeline.receive(events)

    def end(self) -> list[Event] | None:
        """End the attempt: return the rest of the reply, or None if there is another attempt."""
        try:
            self.attempt = next(self._steps)
        except StopIteration as end:
            return end.value
        return None


def decode_outgoing(sent: Attempt) -> Request:
    """Decode the outgoing request as the upstream would."""
    return get_wire(sent.profile.wire).decode_request(sent.outgoing.body, model="m")


def read_reply(sent: Attempt, events: Sequence[Event], *, piece: int = 0) -> Reply:
    """Return the reply that a client gets for an upstream's events, streamed if `piece` is set."""
    return fold(read_events(sent, events, piece=piece))


def read_events(sent: Attempt, events: Sequence[Event], *, piece: int = 0) -> Iterable[Event]:
    wire = get_wire(sent.profile.wire)
    envelope = Envelope(sent.model_request, "id_1", 1)
    answer = ReplyReader(sent)
    if not piece:
        return list(answer.read_whole(wire.encode_reply(fold(events), envelope)))
    encoder = wire.stream_encoder(envelope)
    data = b"".join(map(encoder.feed, events))
    pieces = (data[at : at + piece] for at in range(0, len(data), piece))
    return [*(event for part in pieces for event in answer.feed(part)), *answer.finish()]
