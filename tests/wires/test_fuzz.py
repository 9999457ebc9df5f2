"""Random conversations survive a round trip; broken requests and replies raise nothing else."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.wires import (
    test_anthropic,
    test_gemini,
    test_ollama,
    test_openai_chat,
    test_openai_responses,
)
from tests.wires.scenarios import (
    SCENARIOS,
    Scenario,
    call_events,
    describe_reply,
    describe_request,
    reply_events,
)
from tests.wires.test_matrix import NOTE_WORDS, expect_losses, join_notes
from toolspeak import (
    Event,
    Failure,
    Image,
    Message,
    Reasoning,
    ReasoningDelta,
    Request,
    ResponseFormat,
    Text,
    TextDelta,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    WireError,
    fold,
)
from toolspeak.wires import WIRES, Envelope, StreamDecoder, Wire

EACH_WIRE = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
NO_DEADLINE = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)

# Conversations.

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)
arguments = st.dictionaries(words, values, max_size=3)
tool_names = st.sampled_from(["get_weather", "now", "search-files", "t_1"])
signatures = st.none() | st.sampled_from(["c2ln", "QUJD"])


@st.composite
def messages(draw: st.DrawFn) -> tuple[Message, ...]:
    """Draw a valid conversation: every result follows its call."""
    found: list[Message] = []
    if draw(st.booleans()):
        found.append(Message("system", (Text(draw(words)),)))
    for turn in range(draw(st.integers(1, 4))):
        found.append(Message("user", tuple(draw(user_parts()))))
        calls = [
            ToolCall(id=f"call_{turn}_{number}", name=draw(tool_names), arguments=draw(arguments))
            for number in range(draw(st.integers(0, 3)))
        ]
        thoughts = [
            Reasoning(draw(words), draw(signatures)) for _ in range(draw(st.integers(0, 1)))
        ]
        texts = [Text(draw(words)) for _ in range(draw(st.integers(0, 1)))]
        if calls or texts:
            found.append(Message("assistant", (*thoughts, *texts, *calls)))
        if calls:
            results = tuple(
                ToolResult(call_id=call.id, name=call.name, content=draw(words)) for call in calls
            )
            found.append(Message("tool", results))
    return tuple(found)


@st.composite
def user_parts(draw: st.DrawFn) -> list[Text | Image]:
    pictures = [Image(data="QUJD", media_type="image/png") for _ in range(draw(st.integers(0, 1)))]
    return [Text(draw(words)), *pictures]


tools = st.lists(tool_names, unique=True, min_size=1).map(
    lambda names: tuple(
        Tool(name=name, description="Does it.", parameters={"type": "object", "properties": {}})
        for name in names
    )
)
requests = st.builds(
    Request,
    model=st.just("m"),
    messages=messages(),
    tools=st.none() | tools,
    tool_choice=st.sampled_from([ToolChoice(), ToolChoice("none"), ToolChoice("required")]),
    parallel_tool_calls=st.booleans(),
    response_format=st.none() | st.just(ResponseFormat({"type": "object"}, "answer")),
    thinking=st.sampled_from([Thinking(), Thinking(enabled=False), Thinking(effort="low")]),
    stream=st.booleans(),
    max_tokens=st.just(500),
    stop=st.lists(words, max_size=2).map(tuple),
    sampling=st.dictionaries(st.sampled_from(["temperature", "top_p"]), st.floats(0, 1)),
)


@EACH_WIRE
@NO_DEADLINE
@given(request=requests)
@example(request=Request(model="m", messages=(Message("user", (Text("a"), Text("\x85"))),)))
def test_request_round_trip_is_equal_or_noted(wire: Wire, request: Request) -> None:
    sent = wire.encode_request(request)
    read = wire.decode_request(sent.body, model=request.model, stream=request.stream)
    before, after = describe_request(request), describe_request(read)
    for facet in before.keys() | after.keys():
        if facet in ("choice", "parallel") and not request.tools:
            continue
        if before.get(facet) != after.get(facet):
            notes = join_notes(sent.notes)
            is_noted = NOTE_WORDS.get(facet, facet) in notes
            is_noted |= facet == "turns" and "texts that are only white space" in notes
            assert is_noted, (facet, before, after, sent)


@EACH_WIRE
@NO_DEADLINE
@given(request=requests)
def test_request_decoded_again_is_equal(wire: Wire, request: Request) -> None:
    """A decoded request survives another round trip without notes."""
    options = {"model": request.model, "stream": request.stream}
    once = wire.decode_request(wire.encode_request(request).body, **options)
    again = wire.decode_request(wire.encode_request(once).body, **options)
    assert again == once
    assert not wire.encode_request(once).notes


# Replies.


@st.composite
def replies(draw: st.DrawFn) -> tuple[Event, ...]:
    """Draw reasoning, text and calls, in an order that every API supports."""
    events: list[Event] = []
    for piece in draw(st.lists(words, max_size=3)):
        events.append(ReasoningDelta(piece))
    if events and draw(st.booleans()):
        events.append(ReasoningDelta("", "c2ln"))
    events += [TextDelta(piece) for piece in draw(st.lists(words, max_size=4))]
    count = draw(st.integers(0, 3))
    for index in range(count):
        call = ToolCall(id=f"call_{index}", name=draw(tool_names), arguments=draw(arguments))
        events += call_events(index, call, draw(st.integers(1, 9)))
    return reply_events(*events, reason="calls" if count else "stop")


def split(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


@EACH_WIRE
@NO_DEADLINE
@given(events=replies(), size=st.integers(1, 40))
def test_reply_round_trip_is_equal(wire: Wire, events: tuple[Event, ...], size: int) -> None:
    request = Request(model="m", messages=(), extra={"stream_options": {"include_usage": True}})
    expected = describe_reply(fold(events))
    expected |= expect_losses(fold(events), wire)
    encoder = wire.stream_encoder(Envelope(request, "1"))
    decoder = StreamDecoder(wire)
    data = b"".join(map(encoder.feed, events))
    heard = [event for piece in split(data, size) for event in decoder.feed(piece)]
    assert describe_reply(fold([*heard, *decoder.finish()])) == expected
    whole = wire.encode_reply(fold(events), Envelope(request, "1"))
    assert describe_reply(fold(wire.decode_reply(whole))) == expected


# Junk.

junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def list_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values within a JSON value."""
    yield path
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in items:
        yield from list_paths(item, (*path, key))


def replace_at(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    if not path:
        return other
    value = copy.copy(value)
    value[path[0]] = replace_at(value[path[0]], path[1:], other)
    return value


RICH: dict[str, list[Any]] = {
    "openai_chat": [test_openai_chat.RICH],
    "openai_responses": [test_openai_responses.CODEX],
    "anthropic": [test_anthropic.CLAUDE_CODE],
    "ollama": [test_ollama.CLIENT, test_ollama.GENERATE],
    "gemini": [test_gemini.CLIENT],
}
"""Requests with fields that our own encoders do not use."""


@EACH_WIRE
@NO_DEADLINE
@given(data=st.data())
def test_broken_request_raises_only_wire_errors(wire: Wire, data: st.DataObject) -> None:
    bodies = [wire.encode_request(scenario.request).body for scenario in SCENARIOS]
    body = data.draw(st.sampled_from([*bodies, *RICH[wire.name] * len(bodies)]))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(list_paths(body))))
        body = replace_at(body, path, data.draw(junk))
    try:
        request = wire.decode_request(body, model="m", stream=False)
    except WireError:
        return
    for other in WIRES.values():
        other.encode_request(request)


@EACH_WIRE
@NO_DEADLINE
@given(data=st.data(), scenario=st.sampled_from(SCENARIOS))
def test_broken_reply_raises_nothing(wire: Wire, data: st.DataObject, scenario: Scenario) -> None:
    envelope = Envelope(Request(model="m", messages=()), "1")
    body = wire.encode_reply(fold(scenario.reply), envelope)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(list_paths(body))))
        body = replace_at(body, path, data.draw(junk))
    events = list(wire.decode_reply(body))
    encode_everywhere(events)


@EACH_WIRE
@NO_DEADLINE
@given(data=st.data(), scenario=st.sampled_from(SCENARIOS))
def test_broken_stream_raises_nothing(wire: Wire, data: st.DataObject, scenario: Scenario) -> None:
    encoder = wire.stream_encoder(Envelope(Request(model="m", messages=()), "1"))
    stream = bytearray(b"".join(map(encoder.feed, scenario.reply)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(0, len(stream) - 1)))
        size = data.draw(st.integers(0, 20))
        stream[at : at + size] = data.draw(
            st.binary(max_size=8) | st.just(bytes(stream[at : at + 9]))
        )
    decoder = StreamDecoder(wire)
    events = [event for piece in split(bytes(stream), 16) for event in decoder.feed(piece)]
    events += decoder.finish()
    encode_everywhere(events)


@EACH_WIRE
@NO_DEADLINE
@given(data=st.binary(max_size=300), size=st.integers(1, 50))
def test_random_bytes_are_a_failure(wire: Wire, data: bytes, size: int) -> None:
    decoder = StreamDecoder(wire)
    events = [event for piece in split(data, size) for event in decoder.feed(piece)]
    assert fold([*events, *decoder.finish()]).failure


def encode_everywhere(events: list[Event]) -> None:
    """Check that the events can be folded and encoded for any client."""
    reply = fold(events)
    assert reply.failure is None or isinstance(reply.failure, Failure)
    for wire in WIRES.values():
        envelope = Envelope(Request(model="m", messages=()), "1")
        encoder = wire.stream_encoder(envelope)
        b"".join(map(encoder.feed, events))
        wire.encode_reply(reply, envelope)
