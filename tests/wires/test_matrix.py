"""Every scenario from every client API to every upstream API and back, whole and streamed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wires.scenarios import SCENARIOS, Scenario, describe_reply, describe_request
from toolspeak import Event, Note, Reasoning, Reply, Request, fold
from toolspeak.wires import WIRES, Envelope, StreamDecoder, Wire

PAIRS = [(client, upstream) for client in WIRES.values() for upstream in WIRES.values()]
NOTE_WORDS = {
    "strict": "strict",
    "choice": "choice",
    "parallel": "parallel_tool_calls",
    "schema": "schema",
    "effort": "effort",
    "stop": "stop",
    "user": "user",
    "system": "instructions",
    "reasoning": "reasoning",
    "images": "images",
    "documents": "document",
    "tools": "tools",
    "turns": "result",
}
"""A word in the note on each unsupported feature. Settings are noted by their names."""


def join_notes(notes: tuple[Note, ...]) -> str:
    return " ".join(f"{note.message} {note.where}" for note in notes if note.code != "renamed-tool")


def find_differences(one: Request, other: Request) -> dict[str, tuple[Any, Any]]:
    before, after = describe_request(one), describe_request(other)
    keys = before.keys() | after.keys()
    changed = {key: (before.get(key), after.get(key)) for key in keys}
    return {key: pair for key, pair in changed.items() if pair[0] != pair[1]}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@pytest.mark.parametrize(
    ("client", "upstream"), PAIRS, ids=[f"{a.name} to {b.name}" for a, b in PAIRS]
)
def test_request_between_any_two_apis_arrives_or_is_noted(
    client: Wire, upstream: Wire, scenario: Scenario
) -> None:
    spoken = client.encode_request(scenario.request)
    heard = client.decode_request(
        spoken.body, model=scenario.request.model, stream=scenario.request.stream
    )
    passed = upstream.encode_request(heard)
    understood = upstream.decode_request(
        passed.body, model=scenario.request.model, stream=scenario.request.stream
    )
    for stage, notes in (
        (find_differences(scenario.request, heard), spoken.notes),
        (find_differences(heard, understood), (*passed.notes, *heard.notes)),
    ):
        for facet, change in stage.items():
            assert NOTE_WORDS.get(facet, facet) in join_notes(notes).lower(), (facet, change, notes)


def relay_stream(
    client: Wire, upstream: Wire, request: Request, events: list[Event]
) -> list[Event]:
    """Return the events of an upstream's stream as the client decodes them."""
    sent = upstream.stream_encoder(Envelope(request, "1"))
    data = b"".join(map(sent.feed, events))
    inward, outward = StreamDecoder(upstream), client.stream_encoder(Envelope(request, "2"))
    received = StreamDecoder(client)
    heard: list[Event] = []
    for at in range(0, len(data), 7):
        for event in inward.feed(data[at : at + 7]):
            heard += received.feed(outward.feed(event))
    for event in inward.finish():
        heard += received.feed(outward.feed(event))
    return [*heard, *received.finish()]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@pytest.mark.parametrize(
    ("client", "upstream"), PAIRS, ids=[f"{a.name} to {b.name}" for a, b in PAIRS]
)
def test_reply_between_any_two_apis_arrives(
    client: Wire, upstream: Wire, scenario: Scenario
) -> None:
    extra: dict[str, Any] = {"stream_options": {"include_usage": True}}
    request = Request(
        model="m", messages=(), tools=scenario.request.tools, stream=True, extra=extra
    )
    expected = describe_reply(fold(scenario.reply))
    streamed = relay_stream(client, upstream, request, list(scenario.reply))
    assert describe_reply(fold(streamed)) == expected | expect_losses(
        fold(scenario.reply), upstream, client
    )

    answered = upstream.encode_reply(fold(scenario.reply), Envelope(request, "1"))
    reply = fold(upstream.decode_reply(answered))
    passed_on = client.encode_reply(reply, Envelope(request, "2"))
    received = describe_reply(fold(client.decode_reply(passed_on)))
    assert received == expected | expect_losses(fold(scenario.reply), upstream, client)


def expect_losses(reply: Reply, *wires: Wire) -> dict[str, Any]:
    """Return what changes if a wire does not support signatures, which must be noted."""
    mute = [wire for wire in wires if "signatures" in wire.unsupported_in_replies]
    signed = any(isinstance(part, Reasoning) and part.signature for part in reply.parts)
    if not mute or not signed:
        return {}
    assert "signature" in join_notes(mute[0].find_losses(reply))
    return {"signatures": [None]}
