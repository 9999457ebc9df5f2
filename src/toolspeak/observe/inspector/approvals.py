"""Calls that somebody has to allow, and what is said to them.

An agent puts a question on the desk and waits; whoever looks at the page answers. All of it is in
the store, so that it does not matter which worker is asked. The first answer counts.
"""

from __future__ import annotations

from time import time
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ...calls.drafts import new_call_id
from ...store.base import Store

Answer = Literal["yes", "always", "no", "withdrawn"]
_KEY = "approvals"
_MOST = 200
_LONGEST = 3600.0


class Asked(Struct, frozen=True, kw_only=True):
    """What an agent asks."""

    tool: str
    arguments: dict[str, Any] = {}
    source: str = ""
    agent: str = ""
    """Who asks."""
    expires: float
    """When it is too late to answer, in seconds since 1970."""
    can_last: bool = False
    is_echo: bool = False
    secrets: tuple[str, ...] = ()


class Approval(Asked, frozen=True, kw_only=True):
    """A question on the desk."""

    id: str
    asked_at: float


_DECODER = msgspec.json.Decoder(Approval)


class Desk:
    """The questions that are open."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def ask(self, asked: Asked) -> Approval:
        """Put a question on the desk."""
        fields = {name: getattr(asked, name) for name in asked.__struct_fields__}
        fields["expires"] = min(asked.expires, time() + _LONGEST)
        approval = Approval(id=f"ask_{new_call_id()[5:]}", asked_at=time(), **fields)
        data = msgspec.json.encode(approval)
        await self._store.push(_KEY, data, max_items=_MOST, seconds=_LONGEST)
        return approval

    async def pending(self) -> list[Approval]:
        """The questions that nobody has answered, the oldest first."""
        asked = map(_DECODER.decode, reversed(await self._store.list_items(_KEY)))
        return [one for one in asked if one.expires > time() and not await self.answered(one.id)]

    async def answer(self, identity: str, answer: Answer) -> Answer | None:
        """Answer a question; gives what counts, or None if there is no such question."""
        asked = {one.id: one for one in map(_DECODER.decode, await self._store.list_items(_KEY))}
        question = asked.get(identity)
        if question is None or question.expires <= time():
            return None
        if before := await self.answered(identity):
            return before
        if answer == "always" and not question.can_last:
            answer = "yes"
        key = _answers(identity)
        await self._store.push(key, answer.encode(), max_items=_MOST, seconds=_LONGEST)
        return await self.answered(identity)

    async def answered(self, identity: str) -> Answer | None:
        """What was said to a question."""
        said = await self._store.list_items(_answers(identity))
        return msgspec.convert(said[-1].decode(), Answer) if said else None


def _answers(identity: str) -> str:
    return f"approval:{identity}"
