"""The traces of all processes that serve one port, as if there were one ring.

Nobody looks most of the time, and then nothing is shared: each process keeps its own. As soon as
somebody does, the store says so, and every process puts its summaries there; and a whole request,
without its secrets, if somebody opens it in another process.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from time import monotonic
from typing import Any

import msgspec

from ...wires.framing import encode_json
from ..store import Store
from .ring import Ring
from .trace import Summary

_WATCHED, _LIST, _WANTED = "inspector:watched", "inspector:requests", "inspector:wanted"
_WATCHED_FOR = 20.0
"""How many seconds after the last look somebody may look again."""
_KEPT_FOR = 900.0
_SHOWN_FOR = 20.0
_EVERY = 0.25
_IDLE = 1.0
_PATIENCE = 3.0
_SUMMARY = msgspec.msgpack.Decoder(Summary)

Show = Callable[[str], dict[str, Any] | None]
"""One request of this process, for people to look at."""


class Sharing:
    """What this process tells the others, and what they tell it."""

    def __init__(self, ring: Ring, store: Store, show: Show, cover: Callable[[Summary], Summary]):
        self._ring = ring
        self._store = store
        self._show = show
        self._cover = cover
        self._told = 0.0
        """Up to when the others know what has changed here."""
        self._watched_until = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_telling())

    def stop(self) -> None:
        if self._task:
            self._task.cancel()

    async def summaries(self, after: float = 0.0) -> list[Summary]:
        """What has changed anywhere since then, the oldest first."""
        await self._watch()
        newest: dict[str, Summary] = {}
        for data in await self._store.items(_LIST):
            summary = _decoded(data)
            if summary and summary.changed > after:
                newest.setdefault(summary.key, summary)
        own = {one.key: one for one in map(self._cover, self._ring.summaries(after))}
        return sorted((newest | own).values(), key=lambda one: one.changed)

    async def shown(self, key: str) -> dict[str, Any] | None:
        """One request of another process; it is asked for it."""
        await self._watch()
        place = f"inspector:shown:{key}"
        await self._store.delete(place)
        await self._store.push(_WANTED, key.encode(), most=50, seconds=_PATIENCE)
        deadline = monotonic() + _PATIENCE
        while monotonic() < deadline:
            if data := await self._store.get(place):
                return msgspec.json.decode(zlib.decompress(data))
            await asyncio.sleep(_EVERY / 2)
        return None

    async def _watch(self) -> None:
        """Say that somebody is looking."""
        if monotonic() > self._watched_until - _WATCHED_FOR / 2:
            self._watched_until = monotonic() + _WATCHED_FOR
            await self._store.put(_WATCHED, b"1", _WATCHED_FOR)

    async def _keep_telling(self) -> None:
        while True:
            is_watched = await self._store.get(_WATCHED) is not None
            if is_watched:
                await self._tell()
            await asyncio.sleep(_EVERY if is_watched else _IDLE)

    async def _tell(self) -> None:
        for summary in self._ring.summaries(self._told):
            data = msgspec.msgpack.encode(self._cover(summary))
            await self._store.push(_LIST, data, most=self._ring.most, seconds=_KEPT_FOR)
            self._told = max(self._told, summary.changed)
        for wanted in set(await self._store.items(_WANTED)):
            await self._tell_all(wanted.decode("utf-8", "replace"))

    async def _tell_all(self, key: str) -> None:
        place = f"inspector:shown:{key}"
        if await self._store.get(place) is None:
            shown = await asyncio.to_thread(self._show, key)
            if shown is not None:
                data = zlib.compress(encode_json(shown), 1)
                await self._store.put(place, data, _SHOWN_FOR)


def _decoded(data: bytes) -> Summary | None:
    try:
        return _SUMMARY.decode(data)
    except msgspec.MsgspecError:
        # Another version of the gateway may have written it.
        return None
