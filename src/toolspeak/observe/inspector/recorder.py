"""Captures requests for the inspector, lists and renders them, and shares them between workers.

`begin` and `end` run for every request; everything else only while an inspector page is open.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Any

import msgspec

from ..._util import encode_json, random_id
from ...config.settings import Config, configured_secrets
from ...store.base import Store
from ...upstream.record import RequestCapture, RequestRecord
from .masking import Masker
from .request_log import RequestLog, RequestSummary, summarize_request
from .request_view import RequestView, mask_summary

log = logging.getLogger("toolspeak.gateway")
_VIEWERS_KEY = "inspector:viewers"
_WORKERS_KEY = "inspector:workers"
_REQUESTED_KEY = "inspector:requested"
_VIEWER_LIFETIME = 20.0
"""Seconds after which a page that asks for nothing any more counts as closed."""
_WORKER_LIFETIME = 30.0
"""Seconds after which a worker that publishes nothing counts as gone."""
_HEARTBEAT = 8.0
_POLL_INTERVAL, _IDLE_INTERVAL = 0.25, 1.0
_RENDERED_LIFETIME = 20.0
_FETCH_TIMEOUT = 3.0
_MAX_ITEMS = 64
_SUMMARIES = msgspec.msgpack.Decoder(list[RequestSummary])


class RequestRecorder:
    """The requests that the inspector shows."""

    def __init__(self, config: Config, store: Store, *, is_shared: bool, epoch: str) -> None:
        self._log = RequestLog()
        self.end = self._log.finish
        self.configure(config)
        self.epoch = epoch
        """Differs for each start of the gateway, so that an open page notices a restart."""
        self._sharing = (
            WorkerSharing(self._log, store, self._render_own, self._summarize_own)
            if is_shared
            else None
        )

    def start(self) -> None:
        """Start to share requests with other worker processes."""
        if self._sharing:
            self._sharing.start()

    def stop(self) -> None:
        if self._sharing:
            self._sharing.stop()

    def configure(self, config: Config) -> None:
        self._log.resize(config.inspector.requests, config.inspector.bytes)
        self._secrets = frozenset(configured_secrets(config))

    def begin(self, record: RequestRecord, target: str, headers: dict[str, str]) -> RequestCapture:
        """Return the capture for the bytes of a request and of its response."""
        # A client may send the same ID twice.
        key = f"req_{random_id()}" if "x-request-id" in headers else record.id
        record.capture = RequestCapture(
            record.started,
            self._log.budget,
            key=key,
            target=target,
            headers=headers,
            changed_at=record.received_at,
        )
        self._log.active[key] = record
        return record.capture

    async def list_summaries(self, after: float = 0.0) -> list[RequestSummary]:
        """Return the requests that finished after that time, oldest first, and all active ones.

        Worker processes that share their requests return all of them: their clocks may differ.
        """
        if self._sharing:
            return await self._sharing.list_summaries()
        return await self._summarize_own(after)

    async def render_request(self, key: str) -> dict[str, Any] | None:
        """Render one request, found by its key or its `x-request-id`."""
        rendered = await self._render_own(key)
        if rendered is None and self._sharing:
            return await self._sharing.fetch_request(key)
        return rendered

    # Summarizing and rendering run in a thread, so that they do not delay other requests.

    async def _summarize_own(self, after: float = 0.0) -> list[RequestSummary]:
        active = list(self._log.active.values())

        def summarize() -> list[RequestSummary]:
            finished = (one.summary for one in self._log.list_finished())
            own = [one for one in finished if one.changed_at > after]
            # A request that has finished by now is returned next time, with those before it.
            own += [one for one in map(summarize_request, active) if not one.is_finished]
            return [mask_summary(one, Masker(self._secrets)) for one in own]

        has_news = bool(active) or self._log.changed_at > after
        return await asyncio.to_thread(summarize) if has_news else []

    async def _render_own(self, key: str) -> dict[str, Any] | None:
        active = self._log.snapshot_active(key)

        def render() -> dict[str, Any] | None:
            record = self._log.find_record(key, active)
            return RequestView(record, self._secrets).render() if record else None

        return await asyncio.to_thread(render)


class WorkerSharing:
    """Shares the requests of this worker process with the others through the store.

    While a page is open, each worker publishes a list of its requests, and renders a request if it
    is opened at another worker. Otherwise, nothing is published.
    """

    def __init__(
        self,
        request_log: RequestLog,
        store: Store,
        render: Callable[[str], Awaitable[dict[str, Any] | None]],
        summarize: Callable[[], Awaitable[list[RequestSummary]]],
    ) -> None:
        self._log = request_log
        self._store = store
        self._render_own = render
        self._summarize_own = summarize
        self._worker = random_id()
        self._published_change = 0.0
        """The last change that was published."""
        self._announced_at = 0.0
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
        """Return the requests of all workers, oldest first."""
        if await self._announce_viewer():
            # Wait until the other workers have noticed, and published their lists.
            await asyncio.sleep(_IDLE_INTERVAL + 2 * _POLL_INTERVAL)
            self._read_at = 0.0
        if monotonic() - self._read_at > _POLL_INTERVAL:
            # However many pages are open, the store is asked once.
            self._read_at = monotonic()
            self._others = await self._read_others()
        all_ = (*self._others, *await self._summarize_own())
        return sorted(all_, key=lambda one: one.changed_at)[-self._log.max_requests :]

    async def fetch_request(self, key: str) -> dict[str, Any] | None:
        """Return a request of another worker, rendered there."""
        await self._announce_viewer()
        rendered_key = _rendered_key(key)
        await self._store.delete(rendered_key)
        data = key.encode("utf-8", "replace")
        await self._store.push(_REQUESTED_KEY, data, max_items=_MAX_ITEMS, seconds=_FETCH_TIMEOUT)
        deadline = monotonic() + _FETCH_TIMEOUT
        while monotonic() < deadline:
            if rendered := await self._store.get(rendered_key):
                return msgspec.json.decode(zlib.decompress(rendered))
            await asyncio.sleep(_POLL_INTERVAL / 2)
        return None

    async def _read_others(self) -> list[RequestSummary]:
        workers = {data.decode() for data in await self._store.list_items(_WORKERS_KEY)}
        summaries: list[RequestSummary] = []
        for worker in workers - {self._worker}:
            if data := await self._store.get(_summaries_key(worker)):
                # Another version of the gateway may have written it.
                with suppress(msgspec.MsgspecError):
                    summaries += _SUMMARIES.decode(data)
        return summaries

    async def _announce_viewer(self) -> bool:
        """Make all workers publish for a while; return True if they did not until now."""
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
                # One unusual request must not hide all others.
                log.exception("this worker could not publish its requests for the inspector")
            await asyncio.sleep(_POLL_INTERVAL if is_watched else _IDLE_INTERVAL)

    async def _publish_summaries(self) -> None:
        changed_at = self._log.changed_at
        is_due = monotonic() - self._announced_at > _HEARTBEAT
        if changed_at == self._published_change and not self._log.active and not is_due:
            return
        self._published_change = changed_at
        data = msgspec.msgpack.encode(await self._summarize_own())
        await self._store.put(_summaries_key(self._worker), data, _WORKER_LIFETIME)
        if is_due:
            self._announced_at = monotonic()
            worker = self._worker.encode()
            await self._store.push(
                _WORKERS_KEY, worker, max_items=_MAX_ITEMS, seconds=_WORKER_LIFETIME
            )

    async def _publish_requested(self) -> None:
        """Render the requests of this worker that were opened at others."""
        for data in set(await self._store.list_items(_REQUESTED_KEY)):
            key = data.decode("utf-8", "replace")
            rendered_key = _rendered_key(key)
            if await self._store.get(rendered_key) is None and (
                rendered := await self._render_own(key)
            ):
                compressed = zlib.compress(encode_json(rendered), 1)
                await self._store.put(rendered_key, compressed, _RENDERED_LIFETIME)


def _rendered_key(key: str) -> str:
    return f"inspector:rendered:{key}"


def _summaries_key(worker: str) -> str:
    return f"inspector:summaries:{worker}"
