"""Every scenario from every client API to every upstream API and back, whole and streamed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wires.scenarios import SCENARIOS, Scenario, facets, meaning
from toolspeak import Event, Note, Reasoning, Reply, Request, fold
from toolspeak.wires import WIRES, Envelope, StreamDecoder, Wire

PAIRS = [(client, upstream) for client in WIRES.values() for upstream in WIRES.values()]
SAID = {
    "strict": "strict",
    "choice": "choice",
    "parallel": "parallel_tool_calls",
    "schema": "schema",
    "effort": "effort",
    "stop": "stop",
    "user": "user",
    "system": "instructions",
    "reasoning": "reasoning",
    "pictures": "images",
    "papers": "document",
    "tools": "tools",
    "turns": "result",
}
"""A word of the note on each unsupported aspect. Settings are noted by their names."""


def remarks(notes: tuple[Note, ...]) -> str:
    return " ".join(f"{note.message} {note.where}" for note in notes if note.code != "renamed-tool")


def differences(one: Request, other: Request) -> dict[str, tuple[Any, Any]]:
    before, after = facets(one), facets(other)
    keys = before.keys() | after.keys()
    changed = {key: (before.get(key), after.get(key)) for key in keys}
    return {key: pair for key, pair in changed.items() if pair[0] != pair[1]}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@pytest.mark.parametrize(
    ("client", "upstream"), PAIRS, ids=[f"{a.name} to {b.name}" for a, b in PAIRS]
)
def test_what_is_asked_arrives_or_is_noted(
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
        (differences(scenario.request, heard), spoken.notes),
        (differences(heard, understood), (*passed.notes, *heard.notes)),
    ):
        for facet, change in stage.items():
            assert SAID.get(facet, facet) in remarks(notes).lower(), (facet, change, notes)


def relayed(client: Wire, upstream: Wire, request: Request, events: list[Event]) -> list[Event]:
    """Events that an upstream streams, as the client reads them."""
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
def test_what_is_answered_arrives(client: Wire, upstream: Wire, scenario: Scenario) -> None:
    extra: dict[str, Any] = {"stream_options": {"include_usage": True}}
    request = Request(
        model="m", messages=(), tools=scenario.request.tools, stream=True, extra=extra
    )
    expected = meaning(fold(scenario.reply))
    streamed = relayed(client, upstream, request, list(scenario.reply))
    assert meaning(fold(streamed)) == expected | unsaid(fold(scenario.reply), upstream, client)

    answered = upstream.encode_reply(fold(scenario.reply), Envelope(request, "1"))
    reply = fold(upstream.decode_reply(answered))
    passed_on = client.encode_reply(reply, Envelope(request, "2"))
    received = meaning(fold(client.decode_reply(passed_on)))
    assert received == expected | unsaid(fold(scenario.reply), upstream, client)


def unsaid(reply: Reply, *wires: Wire) -> dict[str, Any]:
    """What is not said because a wire has no words for it, which has to be noted."""
    mute = [wire for wire in wires if "signatures" in wire.unsupported_in_replies]
    signed = any(isinstance(part, Reasoning) and part.signature for part in reply.parts)
    if not mute or not signed:
        return {}
    assert "signature" in remarks(mute[0].find_losses(reply))
    return {"signatures": [None]}
