"""The requests of all processes that serve one port, as if one had served them.

Nobody looks most of the time, and then nothing is shared: each process keeps its own. As soon as
somebody does, the store says so, and every process puts a list of its own there, and goes on to do
so while it lives; and a whole request, without its secrets, if somebody opens it elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import msgspec

from ...calls.drafts import new_call_id
from ...store.base import Store
from ...wires.framing import encode_json
from .request_log import Ring
from .summary import Summary

log = logging.getLogger("toolspeak.gateway")
_WATCHED, _PROCESSES, _WANTED = "inspector:watched", "inspector:processes", "inspector:wanted"
_WATCHED_FOR = 20.0
"""How many seconds after the last look somebody may look again."""
_LIVES = 30.0
"""How many seconds after its last word a process is believed to be there."""
_BEATS = 8.0
_EVERY, _IDLE = 0.25, 1.0
_SHOWN_FOR = 20.0
_PATIENCE = 3.0
_MOST = 64
_SUMMARIES = msgspec.msgpack.Decoder(list[Summary])

Show = Callable[[str], Awaitable[dict[str, Any] | None]]
"""One request of this process, for people to look at."""


class Sharing:
    """What this process tells the others, and what they tell it."""

    def __init__(
        self, ring: Ring, store: Store, show: Show, own: Callable[[], Awaitable[list[Summary]]]
    ) -> None:
        self._ring = ring
        self._store = store
        self._show = show
        self._own = own
        """All that this process has served, without secrets."""
        self._process = new_call_id()
        self._told = (0.0, 0.0)
        """Up to which change the others know, and when they were told."""
        self._others: list[Summary] = []
        self._read_at = 0.0
        self._watched_until = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_telling())

    def stop(self) -> None:
        if self._task:
            self._task.cancel()

    async def summaries(self) -> list[Summary]:
        """What all have served, the oldest first."""
        if await self._watch():
            # The others have yet to notice that somebody looks.
            await asyncio.sleep(_IDLE + 2 * _EVERY)
            self._read_at = 0.0
        if monotonic() - self._read_at > _EVERY:
            # However many look, the store is asked once.
            self._read_at = monotonic()
            self._others = await self._read()
        all_ = (*self._others, *await self._own())
        return sorted(all_, key=lambda one: one.changed)[-self._ring.most :]

    async def shown(self, key: str) -> dict[str, Any] | None:
        """One request of another process; it is asked for it."""
        await self._watch()
        place = _place(key)
        await self._store.delete(place)
        await self._store.push(
            _WANTED, key.encode("utf-8", "replace"), max_items=_MOST, seconds=_PATIENCE
        )
        deadline = monotonic() + _PATIENCE
        while monotonic() < deadline:
            if data := await self._store.get(place):
                return msgspec.json.decode(zlib.decompress(data))
            await asyncio.sleep(_EVERY / 2)
        return None

    async def _read(self) -> list[Summary]:
        """What the others have told."""
        known = {data.decode() for data in await self._store.list_items(_PROCESSES)}
        told: list[Summary] = []
        for process in known - {self._process}:
            if data := await self._store.get(_list_of(process)):
                told += _decoded(data)
        return told

    async def _watch(self) -> bool:
        """Say that somebody is looking; whether nobody was."""
        if monotonic() <= self._watched_until - _WATCHED_FOR / 2:
            return False
        self._watched_until = monotonic() + _WATCHED_FOR
        is_new = await self._store.get(_WATCHED) is None
        await self._store.put(_WATCHED, b"1", _WATCHED_FOR)
        return is_new

    async def _keep_telling(self) -> None:
        while True:
            is_watched = False
            try:
                is_watched = await self._store.get(_WATCHED) is not None
                if is_watched:
                    await self._tell()
                    await self._tell_wanted()
            except Exception:
                # One odd request must not hide all others.
                log.exception("the inspector could not tell other processes what this one serves")
            await asyncio.sleep(_EVERY if is_watched else _IDLE)

    async def _tell(self) -> None:
        changed, at = self._told
        is_old = monotonic() - at > _BEATS
        if self._ring.changed == changed and not self._ring.active and not is_old:
            return
        self._told = self._ring.changed, monotonic()
        data = msgspec.msgpack.encode(await self._own())
        await self._store.put(_list_of(self._process), data, _LIVES)
        if is_old:
            said = self._process.encode()
            await self._store.push(_PROCESSES, said, max_items=_MOST, seconds=_LIVES)

    async def _tell_wanted(self) -> None:
        for wanted in set(await self._store.list_items(_WANTED)):
            key = wanted.decode("utf-8", "replace")
            if await self._store.get(_place(key)) is None and (shown := await self._show(key)):
                data = zlib.compress(encode_json(shown), 1)
                await self._store.put(_place(key), data, _SHOWN_FOR)


def _place(key: str) -> str:
    return f"inspector:shown:{key}"


def _list_of(process: str) -> str:
    return f"inspector:list:{process}"


def _decoded(data: bytes) -> list[Summary]:
    try:
        return _SUMMARIES.decode(data)
    except msgspec.MsgspecError:
        # Another version of the gateway may have written it.
        return []
