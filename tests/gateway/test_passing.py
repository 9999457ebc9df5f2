"""Replies that nothing has to be done to reach the client as the upstream wrote them."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from msgspec import structs

from tests.gateway.faulty_upstream import HELLO, Act, Asked, Faulty
from tests.gateway.raw_clients import STREAMED, WHOLE, Client, ask
from tests.gateway.running_gateway import Running, behind, running

SAME = [client for client in STREAMED if not client.is_array]
UNKNOWN = "never_seen_before"


@contextmanager
def passing(wire: str, act: Act, **model: Any) -> Generator[tuple[Faulty, Running], None, None]:
    with Faulty() as upstream:
        upstream.does(act)
        with running(behind(upstream.url, wire, **model)) as gateway:
            yield upstream, gateway


def with_unknown(asked: Asked) -> list[bytes]:
    """A reply with a field in each frame that nobody has heard of."""
    return [_marked(data) for data in asked.written(HELLO)]


def _marked(data: bytes) -> bytes:
    lines = data.split(b"\n")
    return b"\n".join(_marked_line(line) for line in lines)


def _marked_line(line: bytes) -> bytes:
    before, brace, after = line.partition(b"{")
    return b'%b{"%b": 1, %b' % (before, UNKNOWN.encode(), after) if brace else line


def says(pieces: Callable[[Asked], list[bytes]], size: int | None = None) -> Act:
    async def act(asked: Asked) -> bool:
        if not asked.request.stream:
            await asked.answer(200, b"".join(pieces(asked)))
            return True
        await asked.begin()
        data = b"".join(pieces(asked))
        for at in range(0, len(data), size or len(data)):
            await asked.chunk(data[at : at + (size or len(data))])
        await asked.end()
        return True

    return act


@pytest.mark.parametrize("client", [*SAME, *WHOLE], ids=lambda client: client.name)
@pytest.mark.parametrize("size", [None, 7, 100])
def test_what_nobody_knows_gets_through(client: Client, size: int | None) -> None:
    with passing(client.wire, says(with_unknown, size)) as (upstream, gateway):
        heard = ask(gateway.url, client, {**client.body(), **_model(client)})
        assert heard.status == 200
        sent = b"".join(with_unknown(upstream.asked[0]))
        assert _lines(heard.raw) == _lines(sent)
        assert UNKNOWN.encode() in heard.raw


def _model(client: Client) -> dict[str, Any]:
    named = {} if client.wire == "gemini" else {"model": "m"}
    asks = client.wire == "openai_chat" and client.stream
    return named | ({"stream_options": {"include_usage": True}} if asks else {})


def _lines(data: bytes) -> list[bytes]:
    return [line for line in data.split(b"\n") if line.strip()]


@pytest.mark.parametrize("client", SAME, ids=lambda client: client.name)
@pytest.mark.parametrize("why", ["tools", "another name"])
def test_what_has_to_be_read_or_renamed_is_written_anew(client: Client, why: str) -> None:
    other = {"model": "real"} if why == "another name" else {}
    body = client.body(tools=1 if why == "tools" else 0)
    with passing(client.wire, says(with_unknown), **other) as (upstream, gateway):
        heard = ask(gateway.url, client, {**body, **_model(client)})
        sent = b"".join(with_unknown(upstream.asked[0]))
        assert (heard.status, heard.text) == (200, "Hello there.")
        assert _lines(heard.raw) != _lines(sent)


CALL = {"id": "call_1234567890", "type": "function"}
ARGUMENTS = '{"a":   1}'
"""As nobody else would write it."""


def completion(call: dict[str, Any], arguments: Any, **fields: Any) -> bytes:
    made = {**call, "function": {"name": "t0", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [made]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    head = {"id": "c-1", "object": "chat.completion", "created": 5, "model": "theirs"}
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    return json.dumps({**head, "choices": [choice], "usage": usage, **fields}).encode()


@pytest.mark.parametrize(
    ("call", "arguments", "leaves"),
    [
        (CALL, ARGUMENTS, True),
        ({"type": "function"}, ARGUMENTS, False),
        (CALL, {"a": 1}, False),
        (CALL, '{"a": "1"}', False),
        (CALL, "{'a': 1}", False),
    ],
)
@pytest.mark.parametrize("name", ["m", "another"])
def test_a_call_that_is_fine_leaves_as_it_came(
    call: dict[str, Any], arguments: Any, leaves: bool, name: str
) -> None:
    """Whatever the client calls the model; and what is not, as it should have been."""
    said = completion(call, arguments)
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tool = {"type": "function", "function": {"name": "t0", "parameters": parameters}}
    body = {"messages": [{"role": "user", "content": "Go."}], "tools": [tool], "model": "m"}
    with passing("openai_chat", says(lambda _: [said]), model=name) as (_, gateway):
        heard = httpx.post(f"{gateway.url}/v1/chat/completions", json=body)
    assert (heard.content == said) is leaves
    (made,) = heard.json()["choices"][0]["message"]["tool_calls"]
    assert json.loads(made["function"]["arguments"]) == {"a": 1}
    assert made["id"]
    assert heard.headers["x-toolspeak-mode"] == "native"


@pytest.mark.parametrize("name", ["get.weather.v1", "t" * 70, "wétter"])
def test_a_tool_has_the_clients_name_for_it(name: str) -> None:
    """Whatever it had to be called on the way."""

    def says_it(asked: Asked) -> list[bytes]:
        tool = next(iter(asked.request.tools or ()))
        call = {**CALL, "function": {"name": tool.name, "arguments": "{}"}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        return [completion(CALL, "{}", choices=[choice])]

    tool = {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    body = {"messages": [{"role": "user", "content": "Go."}], "tools": [tool], "model": "m"}
    with passing("openai_chat", says(says_it)) as (upstream, gateway):
        heard = httpx.post(f"{gateway.url}/v1/chat/completions", json=body)
        asked = next(iter(upstream.asked[0].request.tools or ()))
    assert asked.name != name
    (made,) = heard.json()["choices"][0]["message"]["tool_calls"]
    assert made["function"]["name"] == name


@pytest.mark.parametrize("wants", [True, False])
def test_only_who_asked_for_it_gets_the_usage(wants: bool) -> None:
    client = next(client for client in SAME if client.wire == "openai_chat")
    choice = {"index": 0, "delta": {"content": "Hello."}, "finish_reason": None}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    chunks = [
        {"choices": [choice]},
        {"choices": [{**choice, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": usage},
    ]
    frames = [b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks]
    with passing("openai_chat", says(lambda _: [*frames, b"data: [DONE]\n\n"])) as (_, gateway):
        options = {"stream_options": {"include_usage": True}} if wants else {}
        heard = ask(gateway.url, client, {**client.body(), "model": "m", **options})
        assert (b"usage" in heard.raw, heard.text) == (wants, "Hello.")
        counted = httpx.get(f"{gateway.url}/metrics").text
        assert 'toolspeak_tokens_total{kind="input"} 7' in counted


@pytest.mark.parametrize("size", [1, 50, None])
@pytest.mark.parametrize("client", SAME, ids=lambda client: client.name)
def test_a_failure_does_not_get_through_as_it_is(client: Client, size: int | None) -> None:
    """It may repeat what only the upstream may know, even if it comes in pieces."""
    secret = "sk-very-secret-indeed"

    def pieces(asked: Asked) -> list[bytes]:
        error = {"type": "error", "error": {"type": "oops", "message": f"bad key {secret}"}}
        data = json.dumps(error).encode()
        is_line = asked.wire.name == "ollama"
        frame = (
            b'{"error": "bad key %b"}\n' % secret.encode() if is_line else b"data: %b\n\n" % data
        )
        return [*with_unknown(asked)[:2], frame]

    with Faulty() as upstream:
        upstream.does(says(pieces, size))
        config = behind(upstream.url, client.wire)
        known = structs.replace(config.upstreams["scripted"], key=secret)
        config = structs.replace(config, upstreams={"scripted": known})
        with running(config) as gateway:
            heard = ask(gateway.url, client, {**client.body(), **_model(client)})
    assert secret.encode() not in heard.raw
    assert heard.error


def test_a_failure_goes_on_from_what_was_passed_on() -> None:
    """It is one of the same response, and not of another."""
    client = next(client for client in SAME if client.wire == "openai_responses")
    with passing(client.wire, says(lambda asked: with_unknown(asked)[:1])) as (_, gateway):
        heard = ask(gateway.url, client, {**client.body(), **_model(client)})
    frames = [json.loads(line[6:]) for line in heard.raw.split(b"\n") if line[:6] == b"data: "]
    ids = {frame["response"]["id"] for frame in frames if "response" in frame}
    assert "ended before its reply was complete" in heard.error
    assert len(ids) == 1
