"""Asks whoever looks at a gateway's inspector whether a call may be made.

    Agent(…, approval=Approvals("ask", in_inspector()))       the gateway that runs on this machine

The answer binds as one on a terminal does: to exactly these arguments, and once.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from ..errors import ToolspeakError
from ..observe.inspector.client import Inspector
from .approvals import Approver, Question
from .secrets import told
from .threads import in_thread

_A_LOOK = "2"
"""How many seconds the gateway may take to say that there is no answer yet."""


def in_inspector(
    url: str | None = None, key: str | None = None, *, agent: str = "an agent"
) -> Approver:
    """Asks there. Without an address it is the gateway that was started last on this machine; `key`
    is its admin key, if it has one."""
    inspector = Inspector.at(url, key)

    async def approve(question: Question) -> str:
        asked = await in_thread(inspector.post, "approvals", _described(question, agent))
        place = f"approvals/{asked['id']}"
        try:
            while time.time() < question.expires:
                said = await in_thread(_look, inspector, place)
                if said["answer"]:
                    return str(said["answer"])
        except BaseException:
            # Nobody waits any more: an answer would only mislead whoever gives it.
            with suppress(ToolspeakError):
                await in_thread(inspector.post, place, {"answer": "withdrawn"})
            raise
        return "no"

    return approve


def _look(inspector: Inspector, place: str) -> Any:
    return inspector.get(place, wait=_A_LOOK)


def _described(question: Question, agent: str) -> dict[str, Any]:
    return {
        "tool": question.tool,
        "arguments": question.arguments,
        "source": question.source,
        "agent": agent,
        "expires": question.expires,
        "can_last": question.can_last,
        "is_echo": question.is_echo,
        "secrets": [told(use) for use in question.secrets],
    }
