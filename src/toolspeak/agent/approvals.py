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
import inspect
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct, structs

from ..errors import UsageError
from ..security.scrubbing import SecretUse
from ..types import ToolCall
from .secrets import scrubbed_arguments, told
from .threads import in_thread
from .tools import AgentTool

log = logging.getLogger("toolspeak.agent")

Autonomy = Literal["full", "read_only", "ask"]
Answer = Literal["yes", "no", "always"]
Decider = Literal["policy", "user", "session", "nobody"]
_ANSWERS: dict[str, Answer] = {"y": "yes", "yes": "yes", "a": "always", "always": "always"}
_PLAIN_KEY = re.compile(r"[\w.-]{1,40}")
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

    def __post_init__(self) -> None:
        # A mistake here must not allow more than was meant.
        _expect(self.autonomy, get_args(Autonomy), "$.approval")
        _expect(self.nobody, ("deny", "approve"), "$.approval.nobody")
        for name in ("always_ask", "auto_approve"):
            names = getattr(self, name)
            if not isinstance(names, tuple) or not all(isinstance(one, str) for one in names):
                raise UsageError(f"Expected a tuple of names - at `$.approval.{name}`")
        valid: Any = self.valid
        if not isinstance(valid, (int, float)) or not valid > 0:
            raise UsageError(f"Expected seconds, got {valid!r} - at `$.approval.valid`")


class Question(Struct, frozen=True, kw_only=True):
    """Whether a call may be made."""

    id: str
    tool: str
    arguments: dict[str, Any]
    source: str = ""
    """Where the tool comes from, if not from this program: an MCP server's name."""
    identity: str = ""
    """Of the tool as it is now: what "always" holds for."""
    digest: str
    """Of the name and the exact arguments: what a yes holds for."""
    expires: float
    """When it is too late to answer, in seconds since 1970."""
    can_last: bool = True
    """Whether "always" means more than "yes": not where a question is always asked."""
    is_echo: bool = False
    """Whether the model only repeats a call that stands in what a tool has given."""
    secrets: tuple[SecretUse, ...] = ()
    """The secrets that the call would be given, from where, and in which argument."""

    @property
    def summary(self) -> str:
        """The arguments, each cut to what can be read at a glance."""
        return summary(self.arguments)


Approver = Callable[[Question], Any]
"""Asks somebody: gives "yes", "no" or "always", and may be asynchronous. Anything else is a no, and
so is an exception."""


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
        self.policy = policy if isinstance(policy, Policy) else Policy(autonomy=policy)
        self.approver = approver
        self._audit = _to_file(Path(audit)) if isinstance(audit, (str, Path)) else audit
        self._channel = channel
        self._clock = clock
        self._always: dict[str, str] = {}
        """The tools that somebody has allowed for the session, by what they are exactly."""
        self._grants: dict[str, Grant] = {}

    def question(
        self, call: ToolCall, tool: AgentTool, uses: tuple[SecretUse, ...] = ()
    ) -> Question:
        """What somebody would be asked about a call."""
        return Question(
            id=secrets.token_hex(8),
            tool=call.name,
            # Whoever gets it may do with it what they like.
            arguments=copied(call).arguments,
            source=tool.source,
            identity=identity(tool),
            digest=digest(call),
            expires=self._clock() + self.policy.valid,
            can_last=not (uses or is_echo(call) or self._always_asks(tool)),
            is_echo=is_echo(call),
            secrets=uses,
        )

    def known(
        self, tool: AgentTool, uses: tuple[SecretUse, ...] = (), *, is_echo: bool = False
    ) -> Decision | None:
        """What is decided without a question; None if somebody has to be asked. No secret is given
        away without one, and no call made that only repeats what a tool has brought in."""
        policy, name = self.policy, tool.name
        if policy.autonomy == "read_only" and tool.options.writes:
            why = f"{name} was not run: it may change things, and this agent may only read."
            return Decision(is_allowed=False, by="policy", why=why)
        if uses or is_echo or tool.options.asks:
            return None
        if policy.autonomy in ("full", "read_only"):
            return Decision(is_allowed=True, by="policy", why=f"autonomy is {policy.autonomy}")
        if self._always_asks(tool):
            return None
        if _matches(name, policy.auto_approve):
            return Decision(is_allowed=True, by="policy", why="auto_approve")
        if identity(tool) in self._always:
            return Decision(is_allowed=True, by="session", why="allowed for the session")
        return None

    @property
    def always(self) -> list[str]:
        """The tools that somebody has allowed for the session."""
        return sorted(self._always.values())

    def _always_asks(self, tool: AgentTool) -> bool:
        return tool.options.asks or _matches(tool.name, self.policy.always_ask)

    async def asked(self, question: Question) -> Decision:
        """What somebody says to a question."""
        if self.approver is None:
            return self._by_nobody(question)
        answer, problem = await self._answer(question, self.approver)
        if problem:
            why = f"{question.tool} was not run: it needs approval, and {problem}."
            return Decision(is_allowed=False, by="nobody", why=why)
        if answer == "no":
            why = f"{question.tool} was not run: the user has denied it."
            return Decision(is_allowed=False, by="user", why=why)
        lasts = answer == "always" and question.can_last
        if lasts:
            self._always[question.identity] = question.tool
        expires = self._clock() + self.policy.valid
        self._grants[question.id] = Grant(question.digest, expires)
        why = "allowed for the session" if lasts else "allowed once"
        return Decision(is_allowed=True, by="user", why=why, grant=question.id)

    def _by_nobody(self, question: Question) -> Decision:
        if self.policy.nobody == "approve" and question.can_last:
            return Decision(is_allowed=True, by="policy", why="nobody to ask, which is allowed")
        log.warning("%s needs approval, and there is nobody to ask: see `approval`", question.tool)
        why = f"{question.tool} was not run: it needs approval, and there is nobody to ask."
        return Decision(is_allowed=False, by="nobody", why=why)

    async def _answer(self, question: Question, approver: Approver) -> tuple[Answer, str]:
        """What the approver says, or why there is no answer."""
        limit = asyncio.timeout(max(0.0, question.expires - self._clock()))
        try:
            async with limit:
                said = await _asked(approver, question)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return "no", "asking for it was given up"
        except Exception:
            if limit.expired():
                return "no", "no answer came in time"
            log.exception("asking somebody about %s has failed", question.tool)
            return "no", "asking for it has failed"
        if self._clock() > question.expires:
            return "no", "no answer came in time"
        return answer_of(said) if isinstance(said, str) else "no", ""

    def redeem(self, decision: Decision, call: ToolCall) -> bool:
        """Whether a call may be made now by what was decided: a yes is used up by that, and holds
        for no other arguments."""
        if not decision.grant:
            return decision.is_allowed
        grant = self._grants.pop(decision.grant, None)
        if grant is None or grant.expires < self._clock():
            return False
        return secrets.compare_digest(grant.digest, digest(call))

    def record(self, call: ToolCall, decision: Decision, uses: tuple[SecretUse, ...] = ()) -> None:
        """Write down what was decided."""
        record = Record(
            time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock())),
            tool=call.name,
            arguments=summary(scrubbed_arguments(call.arguments)),
            digest=digest(call),
            decision="allowed" if decision.is_allowed else "denied",
            by=decision.by,
            why=decision.why,
            channel=self._channel,
            secrets=tuple(map(told, uses)),
        )
        log.info("%s %s by %s: %s", record.tool, record.decision, record.by, record.arguments)
        if self._audit:
            self._audit(record)


async def _asked(approver: Approver, question: Question) -> Any:
    """What an approver says. One that does not wait on its own may wait for a person."""
    if inspect.iscoroutinefunction(approver):
        return await approver(question)
    said = await in_thread(approver, question)
    return await said if inspect.isawaitable(said) else said


def answer_of(said: str) -> Answer:
    """What somebody has typed: y or yes, a or always; all else is a no."""
    return _ANSWERS.get(said.strip().lower(), "no")


def digest(call: ToolCall) -> str:
    """What tells a call from every other: its tool, and its arguments to the letter."""
    said = json.dumps([call.name, call.arguments], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(said.encode()).hexdigest()


ECHO = "~echo"
"""In the `extra` of a call: it repeats one that stands in what a tool has given."""


def is_echo(call: ToolCall) -> bool:
    """Whether a call only repeats what a tool has brought in."""
    return ECHO in call.extra


def copied(call: ToolCall) -> ToolCall:
    """The same call, whose arguments nobody else can change."""
    return structs.replace(call, arguments=json.loads(json.dumps(call.arguments)))


def identity(tool: AgentTool) -> str:
    """What tells a tool from every other, also from one that takes its name later."""
    made = tool.tool
    said = [tool.source, made.name, made.description, made.parameters]
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


def summary(arguments: dict[str, Any]) -> str:
    """Arguments on one line, each cut to what can be read at a glance."""
    return ", ".join(f"{_key(key)}: {_short(value)}" for key, value in arguments.items())


def _key(key: str) -> str:
    """A key that is no plain word is quoted, so that it cannot look like more than one."""
    return key if _PLAIN_KEY.fullmatch(key) else _short(key)


def _short(value: Any) -> str:
    """A value as JSON: a text in quotes, and with its line breaks to be seen."""
    text = json.dumps(value, ensure_ascii=False)
    left = len(text) - _SHOWN
    return text if left <= 0 else f"{text[:_SHOWN]}… ({left} more characters)"


def _expect(value: Any, allowed: tuple[str, ...], path: str) -> None:
    if value not in allowed:
        raise UsageError(f"Expected one of {', '.join(allowed)}, got {value!r} - at `{path}`")


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _to_file(path: Path) -> Audit:
    """A log of JSON lines, which nobody else may read."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError as problem:
        raise UsageError(f"the audit log cannot be written: {problem}") from None

    def write(record: Record) -> None:
        with path.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")

    return write
