"""Tools, responses and learned modes in each store, and which clients can read them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.store.test_store import (
    Server,
    flush,
    needs_redis,
    open_plain_client,
    redis_store,
    run,
    shared,
    store,
)
from toolspeak import Message, Reply, Request, Text, Tool
from toolspeak.config.settings import StoreLimits
from toolspeak.gateway.conversation_store import DAY, ConversationStore
from toolspeak.store.base import MemoryStore, Store
from toolspeak.upstream.learned_modes import LearnedModes
from toolspeak.wires import Envelope

__all__ = ["shared", "store"]
HOUR = 3600.0
WEATHER = Tool(name="get_weather", parameters={"type": "object"})
STRANGE = Tool(
    name="größe_😀",
    description="line\u2028end \x00 \\ \" ' 中文",
    parameters={"const": 2**70, "default": 1.0, "enum": [None, True, -0.5], "é": {"$ref": "#"}},
    namespace="crm",
    freeform=True,
    strict=False,
    extra={"cache_control": {"type": "ephemeral"}},
)
LARGE = Tool(
    name="large",
    parameters={
        "properties": {
            f"field {number}": {"type": "string", "description": "ö" * 200}
            for number in range(5000)
        }
    },
)


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


async def store_response(conversations: ConversationStore, client: str, identity: str) -> None:
    request = Request(
        wire="openai_responses", model="m", messages=(Message("user", (Text("Hi"),)),)
    )
    reply = Reply(parts=(Text("Hello"),), id=identity, wire="openai_responses")
    await conversations.remember(reply, Envelope(request, "id", 0), client, "m", [])


# Tools.


async def find_tools_of_remembered_calls(store: Store) -> None:
    memory = ConversationStore(store)
    await memory.remember_tools("key", "model", ["call_1", "call_2"], (WEATHER,))
    assert await memory.find_tools("key", "model", ["call_1"]) == (WEATHER,)
    assert await memory.find_tools("key", "model", iter(["call_2"])) == (WEATHER,)
    assert await memory.find_tools("key", "model", ["call_3", "call_2", "call_4"]) == (WEATHER,)
    assert await memory.find_tools("key", "model", ["call_3"]) is None
    unknown = [f"unknown_{number}" for number in range(1000)]
    found = await memory.find_tools("key", "model", [*unknown, "call_1", *unknown[:15]])
    assert found == (WEATHER,)
    assert await memory.find_tools("key", "model", ["call_1", *unknown]) is None
    assert await memory.find_tools("key", "model", []) is None


async def hide_tools_of_other_clients(store: Store) -> None:
    memory = ConversationStore(store)
    await memory.remember_tools("key", "model", ["call_1"], (WEATHER,))
    for client, model, call_id in [
        ("other", "model", "call_1"),
        ("", "model", "call_1"),
        ("key", "other", "call_1"),
        ("keym", "odel", "call_1"),
        ("key", "modelcall", "_1"),
        ("key\0model", "call_1", ""),
    ]:
        assert await memory.find_tools(client, model, [call_id]) is None


async def prefer_the_last_call(store: Store) -> None:
    memory = ConversationStore(store)
    await memory.remember_tools("key", "model", ["call_1"], (WEATHER,))
    await memory.remember_tools("key", "model", ["call_2"], (STRANGE, WEATHER))
    await memory.remember_tools("key", "model", ["call_3"], ())
    assert await memory.find_tools("key", "model", ["call_1", "call_2"]) == (STRANGE, WEATHER)
    assert await memory.find_tools("key", "model", ["call_2", "call_1"]) == (WEATHER,)
    assert await memory.find_tools("key", "model", ["call_1", "call_3"]) == ()


async def keep_strange_and_large_tools(store: Store) -> None:
    memory = ConversationStore(store)
    await memory.remember_tools("kéy", "módel", ["cäll", "\ud800"], (STRANGE, LARGE))
    assert await memory.find_tools("kéy", "módel", ["cäll"]) == (STRANGE, LARGE)
    assert await memory.find_tools("kéy", "módel", ["\ud800"]) == (STRANGE, LARGE)


async def skip_tools_that_cannot_be_encoded(store: Store) -> None:
    memory = ConversationStore(store)
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"items": deep}
    for parameters in ({"default": "\ud800"}, {"default": object()}, deep):
        tool = Tool(name="odd", parameters=parameters)
        await memory.remember_tools("key", "model", ["call_1"], (tool,))
        assert await memory.find_tools("key", "model", ["call_1"]) is None
    while deep:
        # Freed level by level: all at once would be too deep for some versions of Python.
        deep = deep["items"]


# Learned modes and responses.


async def learn_modes_per_model(store: Store) -> None:
    modes = LearnedModes(store)
    assert await modes.get("local", "model") is None
    await modes.set("local", "model", "native")
    await modes.set("local", "model", "prompt")
    assert await modes.get("local", "model") == "prompt"
    assert await modes.get("local", "other") is None
    assert await modes.get("remote", "model") is None


async def count_the_last_ten_calls(store: Store) -> None:
    modes = LearnedModes(store)
    counts = [await modes.add_call("local", "model", is_text=True) for _ in range(12)]
    assert counts == [*range(1, 11), 10, 10]
    counts = [await modes.add_call("local", "model", is_text=False) for _ in range(11)]
    assert counts == [*range(9, -1, -1), 0]
    assert await modes.add_call("local", "other", is_text=False) == 0


async def hide_responses_of_other_clients(store: Store) -> None:
    memory = ConversationStore(store)
    await store_response(memory, "key", "resp_1")
    body = await memory.read_body("key", "resp_1")
    assert body
    assert b"Hello" in body
    assert await memory.read_body("other", "resp_1") is None
    assert await memory.read_body("key", "resp_2") is None
    await memory.delete_response("other", "resp_1")
    assert await memory.read_body("key", "resp_1") is not None
    await memory.delete_response("key", "resp_1")
    assert await memory.read_body("key", "resp_1") is None


BEHAVIOURS = [
    find_tools_of_remembered_calls,
    hide_tools_of_other_clients,
    prefer_the_last_call,
    keep_strange_and_large_tools,
    skip_tools_that_cannot_be_encoded,
    learn_modes_per_model,
    count_the_last_ten_calls,
    hide_responses_of_other_clients,
]


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda behaviour: behaviour.__name__)
def test_operation_in_any_store_behaves_as_specified(
    store: Store, behaviour: Callable[[Store], Awaitable[None]]
) -> None:
    run(behaviour, store)


def test_tools_that_are_read_expire_a_day_later() -> None:
    clock = Clock()

    async def test(store: Store) -> None:
        memory = ConversationStore(store)
        await memory.remember_tools("key", "model", ["call_1", "call_2"], (WEATHER,))
        for _ in range(3):
            clock.time += DAY - 1
            assert await memory.find_tools("key", "model", ["call_1"]) == (WEATHER,)
        assert await memory.find_tools("key", "model", ["call_2"]) is None
        clock.time += DAY
        assert await memory.find_tools("key", "model", ["call_1"]) is None

    run(test, MemoryStore(now=clock))


def test_modes_expire_after_an_hour_and_responses_after_a_day() -> None:
    clock = Clock()

    async def test(store: Store) -> None:
        memory, modes = ConversationStore(store), LearnedModes(store)
        await modes.set("local", "model", "native")
        await modes.add_call("local", "model", is_text=True)
        await store_response(memory, "key", "resp_1")
        clock.time += HOUR - 1
        assert await modes.get("local", "model") == "native"
        clock.time += 1
        assert await modes.get("local", "model") is None
        assert await modes.add_call("local", "model", is_text=False) == 0
        clock.time += DAY - HOUR - 1
        assert await memory.read_body("key", "resp_1")
        clock.time += 1
        assert await memory.read_body("key", "resp_1") is None

    run(test, MemoryStore(now=clock))


def test_evicted_tools_are_not_found() -> None:
    async def test(store: Store) -> None:
        memory = ConversationStore(store)
        await memory.remember_tools("key", "model", ["call_1"], (WEATHER, LARGE))
        assert await memory.find_tools("key", "model", ["call_1"]) is None

    run(test, MemoryStore(StoreLimits(bytes=100_000)))


@needs_redis
def test_tools_are_stored_once_and_client_keys_never(shared: Server) -> None:
    async def test(store: Store) -> None:
        await flush(shared.url)
        memory = ConversationStore(store)
        for number in range(5):
            await memory.remember_tools(f"sk-{number}", "model", ["call_1", "call_2"], (WEATHER,))
        await store_response(memory, "sk-0", "resp_1")
        async with open_plain_client(shared.url) as client:
            entries = {key: await client.get(key) for key in await client.keys("*")}
            lifetimes = {await client.ttl(key) for key in entries}
        assert len(entries) == 5 * 2 + 1 + 1
        assert sum(b"get_weather" in value for value in entries.values()) == 1
        assert not any(b"sk-" in key + value for key, value in entries.items())
        # A busy machine may need some seconds to get here.
        assert all(DAY - 60 <= seconds <= DAY for seconds in lifetimes)

    run(test, redis_store(shared.url))


@needs_redis
def test_tools_of_another_version_are_not_read(shared: Server) -> None:
    async def test(store: Store) -> None:
        await flush(shared.url)
        memory = ConversationStore(store)
        await memory.remember_tools("key", "model", ["call_1"], (WEATHER,))
        async with open_plain_client(shared.url) as client:
            for damaged in (b"", b'[{"name": 1}]', b"\xff", b"[" * 100_000):
                for key in await client.keys("toolspeak:tools:*"):
                    await client.set(key, damaged)
                assert await memory.find_tools("key", "model", ["call_1"]) is None

    run(test, redis_store(shared.url))
