"""What is remembered between requests, on top of a store.

    call id  ->  the tools of its request        for clients that send their tools only once
    upstream and model  ->  the learned mode     so that it is not learned with each request
    response id  ->  the response                for clients that continue from it

Entries are found only with the key of the client that made them. Keys are stored as hashes.
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
OBSERVED_CALLS = 10
"""How many of a model's last calls are remembered as text calls or native calls."""
_MAX_TEXT_CALLS = 3
"""Text calls among the last ones from which a native model is given its tools in the prompt."""
_LOOK_BACK = 16
"""How many calls are looked up at most: a request may be full of unknown ones."""

_TOOLS = msgspec.json.Decoder(tuple[Tool, ...])


class Memory:
    """Remembers tools, learned modes and responses in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def remember_tools(
        self, client: str, model: str, call_ids: Iterable[str], tools: tuple[Tool, ...]
    ) -> None:
        """Remember for a day with which tools these calls were made."""
        address, data = _encode_tools(tools)
        if data is not None:
            there = address.encode()
            kept = {_hash_key("call", client, model, call_id): there for call_id in call_ids}
            # The tools are written last, so that they do not expire before their pointers.
            kept[address] = data
            await self._store.put_many(kept, DAY)

    async def find_tools(
        self, client: str, model: str, call_ids: Iterable[str]
    ) -> tuple[Tool, ...] | None:
        """Return the tools of the last known call, and keep them for another day."""
        for call_id in reversed(list(call_ids)[-_LOOK_BACK:]):
            pointer = _hash_key("call", client, model, call_id)
            address = await self._store.get(pointer)
            if address is not None:
                return await self._load_tools(address.decode(), pointer)
        return None

    async def get_learned_mode(self, upstream: str, model: str) -> str | None:
        """Return the mode that was learned for a model in the last hour."""
        mode = await self._store.get(_hash_key("verdict", upstream, model))
        return None if mode is None else mode.decode()

    async def set_learned_mode(self, upstream: str, model: str, mode: str) -> None:
        """Remember for an hour which mode works for a model."""
        await self._store.put(_hash_key("verdict", upstream, model), mode.encode(), HOUR)

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
        """Remember that a native model made a call, in its text or not, for an hour.

        Return how many of its last calls were in the text.
        """
        key = _hash_key("outcomes", upstream, model)
        await self._store.push(
            key, b"1" if was_text else b"0", max_items=OBSERVED_CALLS, seconds=HOUR
        )
        return (await self._store.list_items(key)).count(b"1")

    async def has_called_natively(self, upstream: str, model: str) -> bool:
        """Return True if a model has made a native call in the last hour."""
        return b"0" in await self._store.list_items(_hash_key("outcomes", upstream, model))

    async def put_response(self, client: str, identity: str, value: bytes) -> None:
        """Keep a response for 24 hours (the vendor keeps them for 30 days)."""
        await self._store.put(_hash_key("response", client, identity), value, DAY)

    async def get_response(self, client: str, identity: str) -> bytes | None:
        return await self._store.get(_hash_key("response", client, identity))

    async def delete_response(self, client: str, identity: str) -> None:
        await self._store.delete(_hash_key("response", client, identity))

    async def _load_tools(self, address: str, pointer: str) -> tuple[Tool, ...] | None:
        """Return the tools that a call points at, and keep both for another day."""
        data = await self._store.get(address)
        tools = None if data is None else _decode_tools(data)
        if data is not None and tools is not None:
            await self._store.put_many({pointer: address.encode(), address: data}, DAY)
        return tools


@memoize_by_identity
def _encode_tools(tools: tuple[Tool, ...]) -> tuple[str, bytes | None]:
    """Return the address and the bytes under which tools are stored; None if they cannot be."""
    try:
        data = msgspec.json.encode(tools)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        # For example a lone surrogate, which some clients do send.
        return "", None
    return _hash_key("tools", data.decode()), data


def _decode_tools(data: bytes) -> tuple[Tool, ...] | None:
    try:
        return _TOOLS.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        # Another version of the gateway may have written it.
        return None


def _hash_key(kind: str, *parts: str) -> str:
    """Return a key that is unique for the parts and reveals none of them."""
    told = repr(parts).encode()
    return f"{kind}:{hashlib.blake2b(told, digest_size=20).hexdigest()}"
