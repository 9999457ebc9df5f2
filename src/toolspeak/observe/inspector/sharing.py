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
from .request_log import RequestLog, RequestSummary

log = logging.getLogger("toolspeak.gateway")
_VIEWERS_KEY, _WORKERS_KEY, _REQUESTED_KEY = (
    "inspector:watched",
    "inspector:processes",
    "inspector:wanted",
)
_VIEWER_LIFETIME = 20.0
"""How many seconds after the last look somebody may look again."""
_WORKER_LIFETIME = 30.0
"""How many seconds after its last word a process is believed to be there."""
_HEARTBEAT = 8.0
_POLL_INTERVAL, _IDLE_INTERVAL = 0.25, 1.0
_RENDERED_LIFETIME = 20.0
_FETCH_TIMEOUT = 3.0
_MAX_ITEMS = 64
_SUMMARIES = msgspec.msgpack.Decoder(list[RequestSummary])

RenderRequest = Callable[[str], Awaitable[dict[str, Any] | None]]
"""One request of this process, for people to look at."""


class WorkerSharing:
    """What this process tells the others, and what they tell it."""

    def __init__(
        self,
        ring: RequestLog,
        store: Store,
        show: RenderRequest,
        own: Callable[[], Awaitable[list[RequestSummary]]],
    ) -> None:
        self._log = ring
        self._store = store
        self._render_own = show
        self._summarize_own = own
        """All that this process has served, without secrets."""
        self._process = new_call_id()
        self._published = (0.0, 0.0)
        """Up to which change the others know, and when they were told."""
        self._others: list[RequestSummary] = []
        self._read_at = 0.0
        self._watched_until = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._publish_forever())

    def stop(self) -> None:
        if self._task:
            self._task.cancel()

    async def list_summaries(self) -> list[RequestSummary]:
        """What all have served, the oldest first."""
        if await self._announce_viewer():
            # The others have yet to notice that somebody looks.
            await asyncio.sleep(_IDLE_INTERVAL + 2 * _POLL_INTERVAL)
            self._read_at = 0.0
        if monotonic() - self._read_at > _POLL_INTERVAL:
            # However many look, the store is asked once.
            self._read_at = monotonic()
            self._others = await self._read_others()
        all_ = (*self._others, *await self._summarize_own())
        return sorted(all_, key=lambda one: one.changed_at)[-self._log.max_requests :]

    async def fetch_request(self, key: str) -> dict[str, Any] | None:
        """One request of another process; it is asked for it."""
        await self._announce_viewer()
        place = _request_key(key)
        await self._store.delete(place)
        await self._store.push(
            _REQUESTED_KEY,
            key.encode("utf-8", "replace"),
            max_items=_MAX_ITEMS,
            seconds=_FETCH_TIMEOUT,
        )
        deadline = monotonic() + _FETCH_TIMEOUT
        while monotonic() < deadline:
            if data := await self._store.get(place):
                return msgspec.json.decode(zlib.decompress(data))
            await asyncio.sleep(_POLL_INTERVAL / 2)
        return None

    async def _read_others(self) -> list[RequestSummary]:
        """What the others have told."""
        known = {data.decode() for data in await self._store.list_items(_WORKERS_KEY)}
        told: list[RequestSummary] = []
        for process in known - {self._process}:
            if data := await self._store.get(_summaries_key(process)):
                told += _decode_summaries(data)
        return told

    async def _announce_viewer(self) -> bool:
        """Say that somebody is looking; whether nobody was."""
        if monotonic() <= self._watched_until - _VIEWER_LIFETIME / 2:
            return False
        self._watched_until = monotonic() + _VIEWER_LIFETIME
        is_new = await self._store.get(_VIEWERS_KEY) is None
        await self._store.put(_VIEWERS_KEY, b"1", _VIEWER_LIFETIME)
        return is_new

    async def _publish_forever(self) -> None:
        while True:
            is_watched = False
            try:
                is_watched = await self._store.get(_VIEWERS_KEY) is not None
                if is_watched:
                    await self._publish_summaries()
                    await self._publish_requested()
            except Exception:
                # One odd request must not hide all others.
                log.exception("the inspector could not tell other processes what this one serves")
            await asyncio.sleep(_POLL_INTERVAL if is_watched else _IDLE_INTERVAL)

    async def _publish_summaries(self) -> None:
        changed, at = self._published
        is_old = monotonic() - at > _HEARTBEAT
        if self._log.changed_at == changed and not self._log.active and not is_old:
            return
        self._published = self._log.changed_at, monotonic()
        data = msgspec.msgpack.encode(await self._summarize_own())
        await self._store.put(_summaries_key(self._process), data, _WORKER_LIFETIME)
        if is_old:
            said = self._process.encode()
            await self._store.push(
                _WORKERS_KEY, said, max_items=_MAX_ITEMS, seconds=_WORKER_LIFETIME
            )

    async def _publish_requested(self) -> None:
        for wanted in set(await self._store.list_items(_REQUESTED_KEY)):
            key = wanted.decode("utf-8", "replace")
            if await self._store.get(_request_key(key)) is None and (
                shown := await self._render_own(key)
            ):
                data = zlib.compress(encode_json(shown), 1)
                await self._store.put(_request_key(key), data, _RENDERED_LIFETIME)


def _request_key(key: str) -> str:
    return f"inspector:shown:{key}"


def _summaries_key(process: str) -> str:
    return f"inspector:list:{process}"


def _decode_summaries(data: bytes) -> list[RequestSummary]:
    try:
        return _SUMMARIES.decode(data)
    except msgspec.MsgspecError:
        # Another version of the gateway may have written it.
        return []
