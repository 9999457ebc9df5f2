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
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct, structs

from ..errors import ToolspeakError, UsageError
from ..observe.inspector.client import InspectorClient
from ..security.scrubbing import SecretUse
from ..types import ToolCall
from .concurrency import run_in_thread
from .secrets import describe_secret_use, scrub_arguments
from .tools import AgentTool

log = logging.getLogger("toolspeak.agent")

Autonomy = Literal["full", "read_only", "ask"]
ApprovalAnswer = Literal["yes", "no", "always"]
Decider = Literal["policy", "user", "session", "nobody"]
_ANSWERS: dict[str, ApprovalAnswer] = {"y": "yes", "yes": "yes", "a": "always", "always": "always"}
_PLAIN_KEY = re.compile(r"[\w.-]{1,40}")
_MAX_VALUE_LENGTH = 80
"""How many characters of each argument are shown to somebody who is asked."""


class ApprovalPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What needs no question, and what always does. Names may be patterns: `files_*`."""

    autonomy: Autonomy = "ask"
    always_ask: tuple[str, ...] = ()
    auto_approve: tuple[str, ...] = ()
    unattended: Literal["deny", "approve"] = "deny"
    """What holds where there is nobody to ask."""
    timeout: float = 300.0
    """Seconds: how long somebody may take to answer, and how long a yes holds."""

    def __post_init__(self) -> None:
        # A mistake here must not allow more than was meant.
        _require_one_of(self.autonomy, get_args(Autonomy), "$.approval")
        _require_one_of(self.unattended, ("deny", "approve"), "$.approval.nobody")
        for name in ("always_ask", "auto_approve"):
            names = getattr(self, name)
            if not isinstance(names, tuple) or not all(isinstance(one, str) for one in names):
                raise UsageError(f"Expected a tuple of names - at `$.approval.{name}`")
        valid: Any = self.timeout
        if not isinstance(valid, (int, float)) or not valid > 0:
            raise UsageError(f"Expected seconds, got {valid!r} - at `$.approval.valid`")


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """Whether a call may be made."""

    id: str
    tool: str
    arguments: dict[str, Any]
    source: str = ""
    """Where the tool comes from, if not from this program: an MCP server's name."""
    tool_identity: str = ""
    """Of the tool as it is now: what "always" holds for."""
    digest: str
    """Of the name and the exact arguments: what a yes holds for."""
    expires_at: float
    """When it is too late to answer, in seconds since 1970."""
    can_always: bool = True
    """Whether "always" means more than "yes": not where a question is always asked."""
    is_echo: bool = False
    """Whether the model only repeats a call that stands in what a tool has given."""
    secrets: tuple[SecretUse, ...] = ()
    """The secrets that the call would be given, from where, and in which argument."""

    @property
    def summary(self) -> str:
        """The arguments, each cut to what can be read at a glance."""
        return summarize_arguments(self.arguments)


Approver = Callable[[ApprovalRequest], Any]
"""Asks somebody: gives "yes", "no" or "always", and may be asynchronous. Anything else is a no, and
so is an exception."""


class ApprovalDecision(Struct, frozen=True, kw_only=True):
    """What was decided of a call, and by whom."""

    is_allowed: bool
    decided_by: Decider
    reason: str
    """For the model, if the call is not made: what is true of it."""
    grant_id: str = ""
    """What a yes is redeemed with."""


class ApprovalGrant(Struct, frozen=True):
    """A yes that somebody has given."""

    digest: str
    expires_at: float


class AuditRecord(Struct, frozen=True, kw_only=True):
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


AuditSink = Callable[[AuditRecord], None]


class Approvals:
    """Decides on the calls of one session."""

    def __init__(
        self,
        policy: ApprovalPolicy | Autonomy = "ask",
        approver: Approver | None = None,
        *,
        audit: AuditSink | str | Path | None = None,
        channel: str = "program",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.policy = (
            policy if isinstance(policy, ApprovalPolicy) else ApprovalPolicy(autonomy=policy)
        )
        self.approver = approver
        self._audit = _open_audit_file(Path(audit)) if isinstance(audit, (str, Path)) else audit
        self._channel = channel
        self._clock = clock
        self._session_grants: dict[str, str] = {}
        """The tools that somebody has allowed for the session, by what they are exactly."""
        self._grants: dict[str, ApprovalGrant] = {}

    def build_request(
        self, call: ToolCall, tool: AgentTool, uses: tuple[SecretUse, ...] = ()
    ) -> ApprovalRequest:
        """What somebody would be asked about a call."""
        return ApprovalRequest(
            id=secrets.token_hex(8),
            tool=call.name,
            # Whoever gets it may do with it what they like.
            arguments=copy_call(call).arguments,
            source=tool.source,
            tool_identity=identify_tool(tool),
            digest=digest_call(call),
            expires_at=self._clock() + self.policy.timeout,
            can_always=not (uses or is_echoed(call) or self._must_ask(tool)),
            is_echo=is_echoed(call),
            secrets=uses,
        )

    def decide_by_policy(
        self, tool: AgentTool, uses: tuple[SecretUse, ...] = (), *, is_echo: bool = False
    ) -> ApprovalDecision | None:
        """What is decided without a question; None if somebody has to be asked. No secret is given
        away without one, and no call made that only repeats what a tool has brought in."""
        policy, name = self.policy, tool.name
        if policy.autonomy == "read_only" and tool.options.writes:
            why = f"{name} was not run: it may change things, and this agent may only read."
            return ApprovalDecision(is_allowed=False, decided_by="policy", reason=why)
        if uses or is_echo or tool.options.always_ask:
            return None
        if policy.autonomy in ("full", "read_only"):
            return ApprovalDecision(
                is_allowed=True, decided_by="policy", reason=f"autonomy is {policy.autonomy}"
            )
        if self._must_ask(tool):
            return None
        if _matches_any(name, policy.auto_approve):
            return ApprovalDecision(is_allowed=True, decided_by="policy", reason="auto_approve")
        if identify_tool(tool) in self._session_grants:
            return ApprovalDecision(
                is_allowed=True, decided_by="session", reason="allowed for the session"
            )
        return None

    @property
    def always_allowed(self) -> list[str]:
        """The tools that somebody has allowed for the session."""
        return sorted(self._session_grants.values())

    def _must_ask(self, tool: AgentTool) -> bool:
        return tool.options.always_ask or _matches_any(tool.name, self.policy.always_ask)

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        """What somebody says to a question."""
        if self.approver is None:
            return self._decide_unattended(question)
        answer, problem = await self._get_answer(question, self.approver)
        if problem:
            why = f"{question.tool} was not run: it needs approval, and {problem}."
            return ApprovalDecision(is_allowed=False, decided_by="nobody", reason=why)
        if answer == "no":
            why = f"{question.tool} was not run: the user has denied it."
            return ApprovalDecision(is_allowed=False, decided_by="user", reason=why)
        lasts = answer == "always" and question.can_always
        if lasts:
            self._session_grants[question.tool_identity] = question.tool
        expires = self._clock() + self.policy.timeout
        self._grants[question.id] = ApprovalGrant(question.digest, expires)
        why = "allowed for the session" if lasts else "allowed once"
        return ApprovalDecision(
            is_allowed=True, decided_by="user", reason=why, grant_id=question.id
        )

    def _decide_unattended(self, question: ApprovalRequest) -> ApprovalDecision:
        if self.policy.unattended == "approve" and question.can_always:
            return ApprovalDecision(
                is_allowed=True, decided_by="policy", reason="nobody to ask, which is allowed"
            )
        log.warning("%s needs approval, and there is nobody to ask: see `approval`", question.tool)
        why = f"{question.tool} was not run: it needs approval, and there is nobody to ask."
        return ApprovalDecision(is_allowed=False, decided_by="nobody", reason=why)

    async def _get_answer(
        self, question: ApprovalRequest, approver: Approver
    ) -> tuple[ApprovalAnswer, str]:
        """What the approver says, or why there is no answer."""
        limit = asyncio.timeout(max(0.0, question.expires_at - self._clock()))
        try:
            async with limit:
                said = await _call_approver(approver, question)
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
        if self._clock() > question.expires_at:
            return "no", "no answer came in time"
        return parse_answer(said) if isinstance(said, str) else "no", ""

    def redeem(self, decision: ApprovalDecision, call: ToolCall) -> bool:
        """Whether a call may be made now by what was decided: a yes is used up by that, and holds
        for no other arguments."""
        if not decision.grant_id:
            return decision.is_allowed
        grant = self._grants.pop(decision.grant_id, None)
        if grant is None or grant.expires_at < self._clock():
            return False
        return secrets.compare_digest(grant.digest, digest_call(call))

    def record_decision(
        self, call: ToolCall, decision: ApprovalDecision, uses: tuple[SecretUse, ...] = ()
    ) -> None:
        """Write down what was decided."""
        record = AuditRecord(
            time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock())),
            tool=call.name,
            arguments=summarize_arguments(scrub_arguments(call.arguments)),
            digest=digest_call(call),
            decision="allowed" if decision.is_allowed else "denied",
            by=decision.decided_by,
            why=decision.reason,
            channel=self._channel,
            secrets=tuple(map(describe_secret_use, uses)),
        )
        log.info("%s %s by %s: %s", record.tool, record.decision, record.by, record.arguments)
        if self._audit:
            self._audit(record)


async def _call_approver(approver: Approver, question: ApprovalRequest) -> Any:
    """What an approver says. One that does not wait on its own may wait for a person."""
    if inspect.iscoroutinefunction(approver):
        return await approver(question)
    said = await run_in_thread(approver, question)
    return await said if inspect.isawaitable(said) else said


def parse_answer(said: str) -> ApprovalAnswer:
    """What somebody has typed: y or yes, a or always; all else is a no."""
    return _ANSWERS.get(said.strip().lower(), "no")


def digest_call(call: ToolCall) -> str:
    """What tells a call from every other: its tool, and its arguments to the letter."""
    said = json.dumps([call.name, call.arguments], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(said.encode()).hexdigest()


ECHO_FLAG = "~echo"
"""In the `extra` of a call: it repeats one that stands in what a tool has given."""


def is_echoed(call: ToolCall) -> bool:
    """Whether a call only repeats what a tool has brought in."""
    return ECHO_FLAG in call.extra


def copy_call(call: ToolCall) -> ToolCall:
    """The same call, whose arguments nobody else can change."""
    return structs.replace(call, arguments=json.loads(json.dumps(call.arguments)))


def identify_tool(tool: AgentTool) -> str:
    """What tells a tool from every other, also from one that takes its name later."""
    made = tool.tool
    said = [tool.source, made.name, made.description, made.parameters]
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


def summarize_arguments(arguments: dict[str, Any]) -> str:
    """Arguments on one line, each cut to what can be read at a glance."""
    return ", ".join(
        f"{_format_key(key)}: {_format_value(value)}" for key, value in arguments.items()
    )


def _format_key(key: str) -> str:
    """A key that is no plain word is quoted, so that it cannot look like more than one."""
    return key if _PLAIN_KEY.fullmatch(key) else _format_value(key)


def _format_value(value: Any) -> str:
    """A value as JSON: a text in quotes, and with its line breaks to be seen."""
    text = json.dumps(value, ensure_ascii=False)
    left = len(text) - _MAX_VALUE_LENGTH
    return text if left <= 0 else f"{text[:_MAX_VALUE_LENGTH]}… ({left} more characters)"


def _require_one_of(value: Any, allowed: tuple[str, ...], path: str) -> None:
    if value not in allowed:
        raise UsageError(f"Expected one of {', '.join(allowed)}, got {value!r} - at `{path}`")


def _matches_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _open_audit_file(path: Path) -> AuditSink:
    """A log of JSON lines, which nobody else may read."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError as problem:
        raise UsageError(f"the audit log cannot be written: {problem}") from None

    def write(record: AuditRecord) -> None:
        with path.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")

    return write


_POLL_SECONDS = "2"
"""How many seconds the gateway may take to say that there is no answer yet."""


def ask_in_inspector(
    url: str | None = None, key: str | None = None, *, agent: str = "an agent"
) -> Approver:
    """Asks there. Without an address it is the gateway that was started last on this machine; `key`
    is its admin key, if it has one."""
    inspector = InspectorClient.connect(url, key)

    async def approve(question: ApprovalRequest) -> str:
        asked = await run_in_thread(inspector.post, "approvals", _describe_request(question, agent))
        place = f"approvals/{asked['id']}"
        try:
            while time.time() < question.expires_at:
                said = await run_in_thread(_poll_answer, inspector, place)
                if said["answer"]:
                    return str(said["answer"])
        except BaseException:
            # Nobody waits any more: an answer would only mislead whoever gives it.
            with suppress(ToolspeakError):
                await run_in_thread(inspector.post, place, {"answer": "withdrawn"})
            raise
        return "no"

    return approve


def _poll_answer(inspector: InspectorClient, place: str) -> Any:
    return inspector.get(place, wait=_POLL_SECONDS)


def _describe_request(question: ApprovalRequest, agent: str) -> dict[str, Any]:
    return {
        "tool": question.tool,
        "arguments": question.arguments,
        "source": question.source,
        "agent": agent,
        "expires_at": question.expires_at,
        "can_always": question.can_always,
        "is_echo": question.is_echo,
        "secrets": [describe_secret_use(use) for use in question.secrets],
    }
