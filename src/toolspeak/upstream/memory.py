"""What the gateway remembers between requests, by what it is for.

    call ids  ->  the tools that they were made with      a client that sends them only once
    upstream and model  ->  how it makes calls            found out once, not with each request
    a response's id  ->  the response                     a client that goes on from it

Whoever asks with another client's key finds nothing. Keys are hashed, so that none is stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from .._util import memoize_by_identity
from ..engine.pipeline import Observation
from ..store.base import Store
from ..types import Tool

HOUR = 3600.0
DAY = 24 * HOUR
OUTCOMES = 10
"""How many of a model's last calls are remembered as made in the text, or not."""
_MAX_TEXT_CALLS = 3
"""Text calls among the last ones from which a native model is given its tools in the prompt."""
_LOOK_BACK = 16
"""How many calls to look up, so that a request full of unknown ones costs little."""

_TOOLS = msgspec.json.Decoder(tuple[Tool, ...])


class Memory:
    """What is remembered, in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def remember_tools(
        self, client: str, model: str, call_ids: Iterable[str], tools: tuple[Tool, ...]
    ) -> None:
        """Remembers for a day which tools these calls were made with."""
        address, data = _stored(tools)
        if data is not None:
            there = address.encode()
            kept = {_key("call", client, model, call_id): there for call_id in call_ids}
            # The tools come last, so that they do not expire before what points at them.
            kept[address] = data
            await self._store.put_many(kept, DAY)

    async def find_tools(
        self, client: str, model: str, call_ids: Iterable[str]
    ) -> tuple[Tool, ...] | None:
        """The tools of the last of these calls that is known, for another day."""
        for call_id in reversed(list(call_ids)[-_LOOK_BACK:]):
            pointer = _key("call", client, model, call_id)
            address = await self._store.get(pointer)
            if address is not None:
                return await self._tools_at(address.decode(), pointer)
        return None

    async def get_learned_mode(self, upstream: str, model: str) -> str | None:
        """In which mode this model makes its calls, if that was found out in the last hour."""
        mode = await self._store.get(_key("verdict", upstream, model))
        return None if mode is None else mode.decode()

    async def set_learned_mode(self, upstream: str, model: str, mode: str) -> None:
        """Remembers for an hour in which mode this model makes its calls."""
        await self._store.put(_key("verdict", upstream, model), mode.encode(), HOUR)

    async def learn(self, observation: Observation) -> None:
        """Remember what a request has shown; enough of it makes `prompt` the learned mode."""
        upstream, model = observation.upstream, observation.model
        if observation.lacks_tools and not await self.has_called_natively(upstream, model):
            await self.set_learned_mode(upstream, model, "prompt")
        if observation.is_text_call is not None:
            is_text = observation.is_text_call
            if await self.add_call_observation(upstream, model, is_text) >= _MAX_TEXT_CALLS:
                await self.set_learned_mode(upstream, model, "prompt")

    async def add_call_observation(self, upstream: str, model: str, was_text: bool) -> int:
        """Remembers that a model with native calls made one, in the text or not. Gives how many of
        its last ones were in the text; an hour without any makes that forgotten."""
        key = _key("outcomes", upstream, model)
        await self._store.push(key, b"1" if was_text else b"0", max_items=OUTCOMES, seconds=HOUR)
        return (await self._store.list_items(key)).count(b"1")

    async def has_called_natively(self, upstream: str, model: str) -> bool:
        """Whether this model has made native calls in the last hour."""
        return b"0" in await self._store.list_items(_key("outcomes", upstream, model))

    async def put_response(self, client: str, identity: str, value: bytes) -> None:
        """Keeps a response for 24 hours (the vendor keeps them for 30 days)."""
        await self._store.put(_key("response", client, identity), value, DAY)

    async def get_response(self, client: str, identity: str) -> bytes | None:
        """A response that was kept for this client."""
        return await self._store.get(_key("response", client, identity))

    async def delete_response(self, client: str, identity: str) -> None:
        await self._store.delete(_key("response", client, identity))

    async def _tools_at(self, address: str, pointer: str) -> tuple[Tool, ...] | None:
        """The tools that a call points at; both stay for another day."""
        data = await self._store.get(address)
        tools = None if data is None else _decoded(data)
        if data is not None and tools is not None:
            await self._store.put_many({pointer: address.encode(), address: data}, DAY)
        return tools


@memoize_by_identity
def _stored(tools: tuple[Tool, ...]) -> tuple[str, bytes | None]:
    """Where tools are kept, and as which bytes; None if they cannot be."""
    try:
        data = msgspec.json.encode(tools)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        # Half a surrogate pair, say, which is no text but does come.
        return "", None
    return _key("tools", data.decode()), data


def _decoded(data: bytes) -> tuple[Tool, ...] | None:
    try:
        return _TOOLS.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        # Another version of the gateway may have written it.
        return None


def _key(kind: str, *parts: str) -> str:
    """A key that only the same parts give, and that tells none of them."""
    told = repr(parts).encode()
    return f"{kind}:{hashlib.blake2b(told, digest_size=20).hexdigest()}"
