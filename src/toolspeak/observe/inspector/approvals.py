"""Calls that wait for a person's approval.

An agent adds a request and polls for its answer; the page lists what is pending and answers. All
of it is in the store, so any worker process can serve either side. The first answer counts.
"""

from __future__ import annotations

from time import time
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from ...calls.drafts import new_call_id
from ...store.base import Store

ApprovalAnswer = Literal["yes", "always", "no", "withdrawn"]
_QUEUE_KEY = "approvals"
_MAX_PENDING = 200
_MAX_LIFETIME = 3600.0


class SubmittedApproval(Struct, frozen=True, kw_only=True):
    """A call that an agent wants to make."""

    tool: str
    arguments: dict[str, Any] = {}
    source: str = ""
    agent: str = ""
    expires_at: float
    """Seconds since 1970; unanswered by then means no."""
    can_always: bool = False
    is_echo: bool = False
    """The model may only repeat a call that a tool result contains."""
    secrets: tuple[str, ...] = ()
    """Descriptions of the secrets that the call would receive."""


class PendingApproval(SubmittedApproval, frozen=True, kw_only=True):
    """An approval request in the queue."""

    id: str
    created_at: float


_DECODER = msgspec.json.Decoder(PendingApproval)


class ApprovalQueue:
    """The approval requests of all agents, and their answers."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def add(self, request: SubmittedApproval) -> PendingApproval:
        fields = structs.asdict(request)
        fields["expires_at"] = min(request.expires_at, time() + _MAX_LIFETIME)
        approval = PendingApproval(id=f"ask_{new_call_id()[5:]}", created_at=time(), **fields)
        data = msgspec.json.encode(approval)
        await self._store.push(_QUEUE_KEY, data, max_items=_MAX_PENDING, seconds=_MAX_LIFETIME)
        return approval

    async def list_pending(self) -> list[PendingApproval]:
        """Return the unanswered requests, oldest first."""
        all_ = map(_DECODER.decode, reversed(await self._store.list_items(_QUEUE_KEY)))
        open_ = [one for one in all_ if one.expires_at > time()]
        return [one for one in open_ if not await self.get_answer(one.id)]

    async def answer(self, identity: str, answer: ApprovalAnswer) -> ApprovalAnswer | None:
        """Answer a request; return the answer that counts, or None if there is no such request."""
        all_ = map(_DECODER.decode, await self._store.list_items(_QUEUE_KEY))
        approval = {one.id: one for one in all_}.get(identity)
        if approval is None or approval.expires_at <= time():
            return None
        if earlier := await self.get_answer(identity):
            return earlier
        if answer == "always" and not approval.can_always:
            answer = "yes"
        key = _answer_key(identity)
        await self._store.push(key, answer.encode(), max_items=_MAX_PENDING, seconds=_MAX_LIFETIME)
        return await self.get_answer(identity)

    async def get_answer(self, identity: str) -> ApprovalAnswer | None:
        # The store lists the newest first.
        answers = await self._store.list_items(_answer_key(identity))
        return msgspec.convert(answers[-1].decode(), ApprovalAnswer) if answers else None


def _answer_key(identity: str) -> str:
    return f"approval:{identity}"
