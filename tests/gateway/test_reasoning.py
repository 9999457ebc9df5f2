"""Replies that are only reasoning, for every client and with every upstream."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from itertools import product
from typing import Any

import pytest

from tests.gateway.raw_clients import CLIENTS, Client, ask
from tests.gateway.running_gateway import RunningGateway, make_config, run_gateway
from tests.support import Rows
from toolspeak import Event, Finish, ReasoningDelta, Reply, Started, TextDelta, fold
from toolspeak.testing import ScriptedServer
from toolspeak.wires import WIRES, StreamDecoder, get_wire

THOUGHT = "It is 42."
ONLY_REASONING = [Started("id", "m"), ReasoningDelta("It is "), ReasoningDelta("42.")]
every_wire = pytest.mark.parametrize("wire", WIRES)


@contextmanager
def start_both(wire: str, *events: Event, **model: Any) -> Generator[RunningGateway, None, None]:
    """Start a server that always replies with these events, and a gateway before it."""
    with (
        ScriptedServer(events) as server,
        run_gateway(make_config(server.url, wire, **model)) as gateway,
    ):
        yield gateway


def decode(client: Client, raw: bytes) -> Reply:
    """Decode a response as the client would."""
    wire = get_wire(client.wire)
    if not client.stream:
        return fold(wire.decode_reply(json.loads(raw)))
    decoder = StreamDecoder(wire)
    if client.is_array:
        return fold([event for part in json.loads(raw) for event in wire.decode_reply(part)])
    return fold(decoder.feed(raw) + decoder.finish())


@every_wire
@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_reply_that_is_only_reasoning_reaches_every_client_as_text(wire: str, mode: str) -> None:
    rows = Rows()
    with start_both(wire, *ONLY_REASONING, Finish("stop"), tools=mode, model="real") as gateway:
        # Under another model name, no reply is forwarded as it is.
        for client, tools in product(CLIENTS, (0, 1)):
            with rows.row((client.name, tools)):
                reply = decode(client, ask(gateway.url, client, client.body(tools=tools)).raw)
                assert (reply.text, reply.reasoning) == (THOUGHT, THOUGHT)
    rows.assert_passed()


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_reply_that_is_forwarded_or_cut_off_stays_without_text(client: Client) -> None:
    with start_both(client.wire, *ONLY_REASONING, Finish("stop")) as gateway:
        for tools, expected in ((0, ""), (1, THOUGHT)):
            reply = decode(client, ask(gateway.url, client, client.body(tools=tools)).raw)
            assert (reply.text, reply.reasoning) == (expected, THOUGHT)
    with start_both(client.wire, *ONLY_REASONING, Finish("length")) as gateway:
        assert not decode(client, ask(gateway.url, client, client.body(tools=1)).raw).text


@every_wire
@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_tag_in_a_sentence_reaches_every_client_as_text(wire: str, mode: str) -> None:
    rows = Rows()
    said = (
        "R1 emits <think> first, then </think>. Strip it:\n\n1. </think>\n\nDone.</think>\n\nBye."
    )
    with start_both(
        wire, Started("id", "m"), TextDelta(said), Finish("stop"), tools=mode
    ) as gateway:
        for client in CLIENTS:
            with rows.row(client.name):
                reply = decode(client, ask(gateway.url, client, client.body(tools=1)).raw)
                assert (reply.text, reply.reasoning) == (said, "")
    rows.assert_passed()
