"""Approval of calls: decided by a policy, or by asking an approver such as the user.

    full          calls run without asking, except those that need a secret or repeat a tool
                  result, and those to a tool whose `ToolOptions.always_ask` is set
    read_only     calls to tools that write are denied; others run as under `full`
    ask           always_ask > auto_approve > "always" in this session > ask the approver

Under every policy, calls of tools with the option `always_ask`, calls that receive a secret and
echoed calls are never allowed without asking.

A yes holds for one call with exactly these arguments, once, and expires. "Always" holds for the
tool until the session ends. Without an approver, the call is denied.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct, structs

from .._util import create_private_file
from ..errors import ToolspeakError, UsageError
from ..observe.inspector.client import InspectorClient
from ..security.scrubbing import SecretUse
from ..types import ToolCall
from .concurrency import call_function, is_being_cancelled, run_in_thread
from .secrets import describe_secret_use, scrub_arguments
from .tools import AgentTool

log = logging.getLogger("toolspeak.agent")

Autonomy = Literal["full", "read_only", "ask"]
ApprovalAnswer = Literal["yes", "no", "always"]
Decider = Literal["policy", "user", "session", "no_answer"]
_ANSWERS: dict[str, ApprovalAnswer] = {
    "y": "yes",
    "yes": "yes",
    "a": "always",
    "always": "always",
    "n": "no",
    "no": "no",
    "": "no",
}
_PLAIN_KEY = re.compile(r"[\w.-]{1,40}")
_MAX_VALUE_LENGTH = 80
"""Characters of each argument in a summary."""
ECHO_FLAG = "~echo"
"""Key in a call's `extra`: the call only repeats one found in a tool's result."""


class ApprovalPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which calls run without asking. Tool names may be patterns: `files_*`."""

    autonomy: Autonomy = "ask"
    always_ask: tuple[str, ...] = ()
    """Only under `ask`. `ToolOptions.always_ask` also holds under `full`."""
    auto_approve: tuple[str, ...] = ()
    timeout: Annotated[float, Meta(gt=0)] = 300.0
    """Seconds to wait for an answer. A yes holds equally long."""

    def __post_init__(self) -> None:
        # A misspelled policy must not allow more than intended.
        if self.autonomy not in get_args(Autonomy):
            allowed = ", ".join(get_args(Autonomy))
            raise UsageError(f"`approval` must be one of {allowed}, got {self.autonomy!r}")
        for field in structs.fields(self):
            try:
                msgspec.convert(getattr(self, field.name), field.type)
            except msgspec.ValidationError as problem:
                raise UsageError(f"{problem} - at `$.approval.{field.name}`") from None


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """A call that needs approval, as the approver sees it."""

    id: str
    tool: str
    arguments: dict[str, Any]
    source: str = ""
    """The MCP server that the tool comes from; "" for a tool of this program."""
    tool_identity: str = ""
    """Hash of the tool's declaration. "Always" holds for this declaration only."""
    digest: str
    """Hash of the tool name and the exact arguments. A yes holds for these only."""
    expires_at: float
    """Unix time after which an answer is too late."""
    can_always: bool = True
    """The approver may answer "always". False if each call needs approval."""
    is_echo: bool = False
    """The call only repeats one found in a tool's result."""
    secrets: tuple[SecretUse, ...] = ()
    """The secrets that the call would receive."""

    @property
    def summary(self) -> str:
        """The arguments on one line, each shortened."""
        return summarize_arguments(self.arguments)


Approver = Callable[[ApprovalRequest], Any]
"""Returns "yes", "no" or "always"; may be async. Anything else means no, and so does an
exception."""


class ApprovalDecision(Struct, frozen=True, kw_only=True):
    """The decision about a call, and where it comes from."""

    is_allowed: bool
    decided_by: Decider
    reason: str
    """The text that the model receives if the call is denied."""
    grant_id: str = ""
    """The grant to redeem when the call runs; "" if none is needed."""


class AuditRecord(Struct, frozen=True, kw_only=True):
    """A line of the audit log. Secrets are scrubbed from it."""

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
        audit: AuditSink | None = None,
        channel: str = "program",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.policy = ApprovalPolicy(autonomy=policy) if isinstance(policy, str) else policy
        self.approver = approver
        self._audit = audit
        self._channel = channel
        self._clock = clock
        self._always_allowed: dict[str, str] = {}
        """Names of the tools allowed for the session, by tool identity."""
        self._grants: dict[str, tuple[str, float]] = {}
        """By id, each yes that is not used yet: the call's digest, and when the yes expires."""

    @property
    def always_allowed(self) -> list[str]:
        """The names of the tools that were allowed for the session."""
        return sorted(self._always_allowed.values())

    def decide_by_policy(
        self, tool: AgentTool, uses: tuple[SecretUse, ...] = (), *, is_echo: bool = False
    ) -> ApprovalDecision | None:
        """Return the policy's decision, or None if the approver must be asked.

        A call that would receive a secret or that only repeats a tool's result is never allowed
        without asking."""
        policy, name = self.policy, tool.name
        if policy.autonomy == "read_only" and tool.options.writes:
            return _deny("policy", name, "it can change data, and this agent has read-only access")
        if uses or is_echo or tool.options.always_ask:
            return None
        if policy.autonomy in ("full", "read_only"):
            return _allow("policy", f"the policy is {policy.autonomy}")
        if self._must_ask(tool):
            return None
        if _matches_any(name, policy.auto_approve):
            return _allow("policy", "auto_approve lists the tool")
        if identify_tool(tool) in self._always_allowed:
            return _allow("session", "allowed for the session")
        return None

    def build_request(
        self, call: ToolCall, tool: AgentTool, uses: tuple[SecretUse, ...] = ()
    ) -> ApprovalRequest:
        return ApprovalRequest(
            id=secrets.token_hex(8),
            tool=call.name,
            # A copy: the approver may change it.
            arguments=copy_call(call).arguments,
            source=tool.source,
            tool_identity=identify_tool(tool),
            digest=digest_call(call),
            expires_at=self._clock() + self.policy.timeout,
            can_always=not (uses or is_echoed(call) or self._must_ask(tool)),
            is_echo=is_echoed(call),
            secrets=uses,
        )

    async def ask(self, request: ApprovalRequest) -> ApprovalDecision:
        """Ask the approver, and keep what it grants."""
        answer, problem = await self._get_answer(request)
        if problem:
            return _deny("no_answer", request.tool, f"it needs approval, and {problem}")
        if answer == "no":
            return _deny("user", request.tool, "the user denied it", _AFTER_REFUSAL)
        is_lasting = answer == "always" and request.can_always
        if is_lasting:
            self._always_allowed[request.tool_identity] = request.tool
        self._grants[request.id] = (request.digest, self._clock() + self.policy.timeout)
        reason = "allowed for the session" if is_lasting else "allowed once"
        return _allow("user", reason, grant_id=request.id)

    def redeem(self, decision: ApprovalDecision, call: ToolCall) -> bool:
        """Return True if the decision allows this call now. This uses up a yes, which does not
        hold for other arguments."""
        if not decision.grant_id:
            return decision.is_allowed
        digest, expires_at = self._grants.pop(decision.grant_id, ("", 0.0))
        return expires_at >= self._clock() and secrets.compare_digest(digest, digest_call(call))

    def record_decision(
        self, call: ToolCall, decision: ApprovalDecision, uses: tuple[SecretUse, ...] = ()
    ) -> None:
        """Write a decision to the log and to the audit log."""
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

    def _must_ask(self, tool: AgentTool) -> bool:
        return tool.options.always_ask or _matches_any(tool.name, self.policy.always_ask)

    async def _get_answer(self, request: ApprovalRequest) -> tuple[ApprovalAnswer, str]:
        """Return the approver's answer, and the reason if there is none."""
        if self.approver is None:
            advice = "pass `approval=Approvals(policy, approver)`"
            log.warning("%s needs approval, but there is no approver: %s", request.tool, advice)
            return "no", "there is no one to ask"
        limit = asyncio.timeout(max(0.0, request.expires_at - self._clock()))
        try:
            async with limit:
                # A blocking approver runs in a thread, since it may wait for a person.
                answer = await call_function(self.approver, request)
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            return "no", "the request was withdrawn"
        except Exception:
            if limit.expired():
                return "no", "there was no answer in time"
            log.exception("cannot ask for approval of %s", request.tool)
            return "no", "the request for approval failed"
        if self._clock() > request.expires_at:
            return "no", "there was no answer in time"
        return parse_answer(answer) if isinstance(answer, str) else "no", ""


_AFTER_REFUSAL = "Do not repeat this call. Continue without it, or ask the user."
"""Models repeat a call that was denied unless they are told not to."""


def _allow(decided_by: Decider, reason: str, grant_id: str = "") -> ApprovalDecision:
    return ApprovalDecision(
        is_allowed=True, decided_by=decided_by, reason=reason, grant_id=grant_id
    )


def _deny(
    decided_by: Decider, tool: str, reason: str, advice: str = "Continue without it."
) -> ApprovalDecision:
    text = f"`{tool}` was not run: {reason}. {advice}"
    return ApprovalDecision(is_allowed=False, decided_by=decided_by, reason=text)


def parse_answer(typed: str) -> ApprovalAnswer:
    """Read a typed answer: y or yes, a or always; anything else means no."""
    return _ANSWERS.get(typed.strip().lower(), "no")


def is_answer(typed: str) -> bool:
    """Return True for a known answer, False for other text, which `parse_answer` reads as no."""
    return typed.strip().lower() in _ANSWERS


def digest_call(call: ToolCall) -> str:
    """Hash the tool name and the exact arguments."""
    text = json.dumps([call.name, call.arguments], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def identify_tool(tool: AgentTool) -> str:
    """Hash a tool's source and declaration, so that a tool which takes over the name of another
    does not inherit its approval."""
    declared = tool.tool
    fields = [tool.source, declared.name, declared.description, declared.parameters]
    return hashlib.sha256(json.dumps(fields, sort_keys=True, default=str).encode()).hexdigest()


def is_echoed(call: ToolCall) -> bool:
    """Return True if a call only repeats one found in a tool's result."""
    return ECHO_FLAG in call.extra


def copy_call(call: ToolCall) -> ToolCall:
    """Copy a call with its arguments, so that no other holder can change them."""
    return structs.replace(call, arguments=json.loads(json.dumps(call.arguments)))


def summarize_arguments(arguments: dict[str, Any]) -> str:
    """Format arguments on one line, each shortened."""
    return ", ".join(f"{_format_key(key)}: {_format_value(one)}" for key, one in arguments.items())


def _format_key(key: str) -> str:
    """Quote a key that is not a plain word, so that it cannot pass for several arguments."""
    return key if _PLAIN_KEY.fullmatch(key) else _format_value(key)


def _format_value(value: Any) -> str:
    """Format a value as JSON, which quotes strings and escapes line breaks."""
    text = json.dumps(value, ensure_ascii=False)
    omitted = len(text) - _MAX_VALUE_LENGTH
    return text if omitted <= 0 else f"{text[:_MAX_VALUE_LENGTH]}… ({omitted} more characters)"


def _matches_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def open_audit_log(path: str | Path) -> AuditSink:
    """Return a sink that appends JSON lines to a file, readable only by its owner."""
    path = Path(path)
    try:
        create_private_file(path)
    except OSError as problem:
        raise UsageError(f"cannot write the audit log: {problem}") from None

    def write(record: AuditRecord) -> None:
        with path.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")

    return write


# Asking in the inspector of a gateway.

_POLL_SECONDS = "2"
"""Seconds for which the gateway holds a poll before it says that there is no answer yet."""


def ask_in_inspector(
    url: str | None = None, key: str | None = None, *, agent: str = "an agent"
) -> Approver:
    """Return an approver that asks in a gateway's inspector.

    Without `url`, that is the gateway started last on this machine; `key` is its admin key, if it
    has one."""
    inspector = InspectorClient.connect(url, key)
    poll = partial(inspector.get, wait=_POLL_SECONDS)

    async def approve(request: ApprovalRequest) -> str:
        description = _describe_request(request, agent)
        posted = await run_in_thread(inspector.post, "approvals", description)
        path = f"approvals/{posted['id']}"
        try:
            while time.time() < request.expires_at:
                state = await run_in_thread(poll, path)
                if state["answer"]:
                    return str(state["answer"])
        except BaseException:
            # The answer is no longer needed: take the question off the page.
            with suppress(ToolspeakError):
                await run_in_thread(inspector.post, path, {"answer": "withdrawn"})
            raise
        return "no"

    return approve


def _describe_request(request: ApprovalRequest, agent: str) -> dict[str, Any]:
    fields = ("tool", "arguments", "source", "expires_at", "can_always", "is_echo")
    secrets = [describe_secret_use(use) for use in request.secrets]
    return {**{name: getattr(request, name) for name in fields}, "agent": agent, "secrets": secrets}
