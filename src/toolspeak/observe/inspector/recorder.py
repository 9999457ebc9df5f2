"""Captures requests for the inspector, and lists and renders them for people who look.

`begin` and `end` run for every request; all else only while somebody has the inspector open.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from ...calls.drafts import new_call_id
from ...config.settings import Config, configured_secrets
from ...store.base import Store
from ...upstream.record import RequestCapture, RequestRecord, StreamCapture
from .approvals import ApprovalQueue
from .masking import Masker
from .request_log import RequestLog, RequestSummary, summarize_request
from .request_view import RequestView, mask_summary
from .sharing import WorkerSharing


class CapturedRequest(Protocol):
    """An HTTP request that writes its body into `copy`."""

    target: str
    headers: dict[str, str]
    copy: RequestCapture | None


class CapturedResponse(Protocol):
    """An HTTP response that writes its body into `copy`."""

    copy: StreamCapture | None


class RequestRecorder:
    """The requests and approvals that the inspector shows."""

    def __init__(self, config: Config, store: Store, *, is_shared: bool, epoch: str) -> None:
        self._log = RequestLog()
        self.end = self._log.finish
        self.approvals = ApprovalQueue(store)
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

    def begin(
        self, record: RequestRecord, request: CapturedRequest, response: CapturedResponse
    ) -> None:
        """Capture the bytes of a request and of its response."""
        headers = request.headers
        # A client may send the same ID twice.
        key = f"req_{new_call_id()[5:]}" if "x-request-id" in headers else record.id
        record.capture = request.copy = response.copy = RequestCapture(
            record.started,
            self._log.budget,
            key=key,
            target=request.target,
            headers=headers,
            changed_at=record.received_at,
        )
        self._log.active[key] = record

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
