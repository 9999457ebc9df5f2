"""Whether a call may be made, and who has decided that.

    full          every call is made
    read_only     those that write are refused, the others are made
    ask           always_ask > auto_approve > "always" in this session > somebody is asked

A yes holds for one call with exactly these arguments, once, and not for long; "always" holds for
the tool until the session ends. Where nobody can be asked the answer is no.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ..errors import UsageError
from ..jsonish import dumps
from ..scrubbing import Use, scrub
from ..types import ToolCall
from .tools import AgentTool

log = logging.getLogger("toolspeak.agent")

Autonomy = Literal["full", "read_only", "ask"]
Answer = Literal["yes", "no", "always"]
Decider = Literal["policy", "user", "session", "nobody"]
_ANSWERS: dict[str, Answer] = {"y": "yes", "yes": "yes", "a": "always", "always": "always"}
_SHOWN = 80
"""How many characters of each argument are shown to somebody who is asked."""


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What needs no question, and what always does. Names may be patterns: `files_*`."""

    autonomy: Autonomy = "ask"
    always_ask: tuple[str, ...] = ()
    auto_approve: tuple[str, ...] = ()
    nobody: Literal["deny", "approve"] = "deny"
    """What holds where there is nobody to ask."""
    valid: float = 300.0
    """Seconds: how long somebody may take to answer, and how long a yes holds."""


class Question(Struct, frozen=True, kw_only=True):
    """Whether a call may be made."""

    id: str
    tool: str
    arguments: dict[str, Any]
    digest: str
    """Of the name and the exact arguments: what a yes holds for."""
    expires: float
    """When it is too late to answer, in seconds since 1970."""
    can_last: bool = True
    """Whether "always" means more than "yes": not where a question is always asked."""
    secrets: tuple[Use, ...] = ()
    """The secrets that the call would be given, from where, and in which argument."""

    @property
    def summary(self) -> str:
        """The arguments, each cut to what can be read at a glance."""
        return summary(self.arguments)


Approver = Callable[[Question], Answer | Awaitable[Answer]]
"""Asks somebody. Anything but "yes" and "always" is a no, and so is an exception."""


class Decision(Struct, frozen=True, kw_only=True):
    """What was decided of a call, and by whom."""

    is_allowed: bool
    by: Decider
    why: str
    """For the model, if the call is not made: what is true of it."""
    grant: str = ""
    """What a yes is redeemed with."""


class Grant(Struct, frozen=True):
    """A yes that somebody has given."""

    digest: str
    expires: float


class Record(Struct, frozen=True, kw_only=True):
    """A line of the audit log. Secrets are left out of it."""

    time: str
    tool: str
    arguments: str
    digest: str
    decision: Literal["allowed", "denied"]
    by: Decider
    why: str
    channel: str
    secrets: tuple[str, ...] = ()


Audit = Callable[[Record], None]


class Approvals:
    """Decides on the calls of one session."""

    def __init__(
        self,
        policy: Policy | Autonomy = "ask",
        approver: Approver | None = None,
        *,
        audit: Audit | str | Path | None = None,
        channel: str = "program",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.policy = Policy(autonomy=policy) if isinstance(policy, str) else policy
        self.approver = approver
        self._audit = _to_file(Path(audit)) if isinstance(audit, (str, Path)) else audit
        self._channel = channel
        self._clock = clock
        self.always: set[str] = set()
        """The tools that somebody has allowed for the session."""
        self._grants: dict[str, Grant] = {}

    def question(self, call: ToolCall, tool: AgentTool, uses: tuple[Use, ...] = ()) -> Question:
        """What somebody would be asked about a call."""
        return Question(
            id=secrets.token_hex(8),
            tool=call.name,
            arguments=call.arguments,
            digest=digest(call),
            expires=self._clock() + self.policy.valid,
            can_last=not (uses or self._always_asks(tool)),
            secrets=uses,
        )

    def known(self, tool: AgentTool, uses: tuple[Use, ...] = ()) -> Decision | None:
        """What is decided without a question; None if somebody has to be asked. A secret is never
        given away without one."""
        policy, name = self.policy, tool.name
        if policy.autonomy == "read_only" and tool.options.writes:
            why = f"{name} was not run: it may change things, and this agent may only read."
            return Decision(is_allowed=False, by="policy", why=why)
        if uses or tool.options.asks:
            return None
        if policy.autonomy != "ask":
            return Decision(is_allowed=True, by="policy", why=f"autonomy is {policy.autonomy}")
        if self._always_asks(tool):
            return None
        if _matches(name, policy.auto_approve):
            return Decision(is_allowed=True, by="policy", why="auto_approve")
        if name in self.always:
            return Decision(is_allowed=True, by="session", why="allowed for the session")
        return None

    def _always_asks(self, tool: AgentTool) -> bool:
        return tool.options.asks or _matches(tool.name, self.policy.always_ask)

    async def asked(self, question: Question) -> Decision:
        """What somebody says to a question."""
        if self.approver is None:
            return self._by_nobody(question)
        answer = await self._answer(question, self.approver)
        if answer == "no":
            why = f"{question.tool} was not run: the user has denied it."
            return Decision(is_allowed=False, by="user", why=why)
        if answer is None:
            why = f"{question.tool} was not run: it needs approval, and no answer came in time."
            return Decision(is_allowed=False, by="nobody", why=why)
        lasts = answer == "always" and question.can_last
        if lasts:
            self.always.add(question.tool)
        expires = self._clock() + self.policy.valid
        self._grants[question.id] = Grant(question.digest, expires)
        why = "allowed for the session" if lasts else "allowed once"
        return Decision(is_allowed=True, by="user", why=why, grant=question.id)

    def _by_nobody(self, question: Question) -> Decision:
        if self.policy.nobody == "approve" and not question.secrets:
            return Decision(is_allowed=True, by="policy", why="nobody to ask, which is allowed")
        why = f"{question.tool} was not run: it needs approval, and there is nobody to ask."
        return Decision(is_allowed=False, by="nobody", why=why)

    async def _answer(self, question: Question, approver: Approver) -> Answer | None:
        """What the approver says; None if that is too late."""
        try:
            async with asyncio.timeout(max(0.0, question.expires - self._clock())):
                said: Any = approver(question)
                if isinstance(said, Awaitable):
                    said = await said
        except TimeoutError:
            return None
        except Exception:
            log.exception("the approver has failed, so that %s is denied", question.tool)
            return "no"
        if self._clock() > question.expires:
            return None
        return "no" if said not in ("yes", "always") else said

    def redeem(self, decision: Decision, call: ToolCall) -> bool:
        """Whether a call may be made now by what was decided: a yes is used up by that, and holds
        for no other arguments."""
        if not decision.grant:
            return decision.is_allowed
        grant = self._grants.pop(decision.grant, None)
        if grant is None or grant.expires < self._clock():
            return False
        return secrets.compare_digest(grant.digest, digest(call))

    def record(self, call: ToolCall, decision: Decision, uses: tuple[Use, ...] = ()) -> None:
        """Write down what was decided."""
        record = Record(
            time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock())),
            tool=call.name,
            arguments=scrub(summary(call.arguments)).text,
            digest=digest(call),
            decision="allowed" if decision.is_allowed else "denied",
            by=decision.by,
            why=decision.why,
            channel=self._channel,
            secrets=tuple(use.secret.name for use in uses),
        )
        log.info("%s %s by %s: %s", record.tool, record.decision, record.by, record.arguments)
        if self._audit:
            self._audit(record)


def answer_of(said: str) -> Answer:
    """What somebody has typed: y or yes, a or always; all else is a no."""
    return _ANSWERS.get(said.strip().lower(), "no")


def digest(call: ToolCall) -> str:
    """What tells a call from every other: its tool, and its arguments to the letter."""
    said = json.dumps([call.name, call.arguments], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(said.encode()).hexdigest()


def summary(arguments: dict[str, Any]) -> str:
    """Arguments on one line, each cut to what can be read at a glance."""
    return ", ".join(f"{key}: {_short(value)}" for key, value in arguments.items())


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else dumps(value)
    text = " ".join(text.split()) if text.strip() else repr(text)
    left = len(text) - _SHOWN
    return text if left <= 0 else f"{text[:_SHOWN]}… ({left} more characters)"


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _to_file(path: Path) -> Audit:
    """A log of JSON lines, which nobody else may read."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600, exist_ok=True)
    except OSError as problem:
        raise UsageError(f"the audit log cannot be written: {problem}") from None

    def write(record: Record) -> None:
        with path.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")

    return write
