"""The calls of one turn: which may be made, in which order, and what comes of each.

Calls of tools that may overlap run side by side; any other runs alone, in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from time import perf_counter

from msgspec import Struct, structs

from ..calls.drafts import CallKey, call_key
from ..calls.toolset import Toolset
from ..types import ToolCall, ToolResult
from .approvals import Approvals, Decision, copied, is_echo
from .events import ApprovalAsked, CallMade, ResultGiven
from .execution import failed, fitted, result_of, unknown, within
from .secrets import Secrets
from .tools import AgentTool, Fatal
from .transcript import Transcript

RoundEvent = CallMade | ApprovalAsked | ResultGiven
_INTERRUPTED = "{name} was interrupted: it is not known how far it has come."
_NOT_RUN = "{name} was not run: the agent has stopped."
_UNKNOWN_END = (
    "It is not known whether {name} was run: the program ended in the midst of it. "
    "Find out before you call it again."
)


class Rules(Struct, frozen=True, kw_only=True):
    """How an agent runs its tools."""

    approvals: Approvals
    secrets: Secrets
    timeout: float | None = 120.0
    limit: int = 60_000
    """How many characters of a result the model gets."""


class Round:
    """Runs the calls of one turn."""

    def __init__(
        self,
        calls: Sequence[ToolCall],
        tools: dict[str, AgentTool],
        rules: Rules,
        transcript: Transcript,
        tell: Callable[[RoundEvent], Awaitable[None]],
    ) -> None:
        # Nobody else has these: what was approved is what is run.
        self._calls = [copied(call) for call in calls]
        self._tools = tools
        self._rules = rules
        self._transcript = transcript
        self._tell = tell
        self.results: dict[str, ToolResult] = {}
        """By the ids of their calls."""
        self._made: dict[CallKey, asyncio.Future[ToolResult]] = {}
        """What equal calls of this turn have given, of tools that need not be run twice."""

    @property
    def outcome(self) -> tuple[tuple[CallKey, str], ...]:
        """What was called and what it gave: a round that comes to the same again leads nowhere."""
        done = ((call, self.results[call.id]) for call in self._calls)
        return tuple((call_key(call.name, call.arguments), result.text) for call, result in done)

    async def run(self) -> None:
        """Run them all. Every call has a result afterwards, even if this is given up."""
        try:
            for group in self._groups():
                await self._run_group(group)
        finally:
            # Whoever gives up leaves a conversation behind that can be gone on with.
            self._close()

    def _close(self) -> None:
        for call in self._calls:
            if call.id not in self.results:
                why = _INTERRUPTED if self._transcript.was_started(call) else _NOT_RUN
                self._keep(failed(call, why.format(name=call.name)))

    def _groups(self) -> Iterator[list[ToolCall]]:
        """Calls that may run side by side, as they follow each other."""
        group: list[ToolCall] = []
        for call in self._calls:
            tool = self._tools.get(call.name)
            if tool and tool.may_overlap:
                group.append(call)
                continue
            if group:
                yield group
            yield [call]
            group = []
        if group:
            yield group

    async def _run_group(self, group: list[ToolCall]) -> None:
        """Run calls side by side. None begins before it is known which of them may be made."""
        allowed = [one for call in group if (one := await self._allowed(call))]
        running = [
            asyncio.create_task(self._run_one(tool, call))
            for tool, call, decision in allowed
            if await self._redeemed(call, decision)
        ]
        try:
            await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _redeemed(self, call: ToolCall, decision: Decision) -> bool:
        """Whether what was decided still holds, now that the call is made."""
        approvals = self._rules.approvals
        if approvals.redeem(decision, call):
            return True
        why = f"{call.name} was not run: the approval was not for this call, or came too late."
        approvals.record(call, Decision(is_allowed=False, by="policy", why=why))
        await self._give(call, failed(call, why))
        return False

    async def _allowed(self, call: ToolCall) -> tuple[AgentTool, ToolCall, Decision] | None:
        """The tool of a call, the call as it wants it, and who has allowed it, if anybody has."""
        await self._tell(CallMade(copied(call)))
        tool = self._tools.get(call.name)
        if tool is None:
            offered = Toolset([one.tool for one in self._tools.values()])
            await self._give(call, unknown(call, offered))
            return None
        call, problem = fitted(call, tool)
        if problem := problem or self._doubt(call, tool):
            await self._give(call, failed(call, problem))
            return None
        decision = await self._decided(call, tool)
        if not decision.is_allowed:
            await self._give(call, failed(call, decision.why))
            return None
        return tool, call, decision

    def _doubt(self, call: ToolCall, tool: AgentTool) -> str:
        """Why a call that an earlier program has begun is not made again; "" if it can be."""
        is_safe = tool.options.idempotent or not tool.options.writes
        if is_safe or not self._transcript.was_started(call):
            return ""
        return _UNKNOWN_END.format(name=call.name)

    async def _decided(self, call: ToolCall, tool: AgentTool) -> Decision:
        """Whether a call is made. It is written down either way."""
        approvals, uses = self._rules.approvals, self._rules.secrets.uses(call)
        decision = approvals.known(tool, uses, is_echo=is_echo(call))
        if decision is None:
            question = approvals.question(call, tool, uses)
            await self._tell(ApprovalAsked(question))
            decision = await approvals.asked(question)
        approvals.record(call, decision, uses)
        return decision

    async def _run_one(self, tool: AgentTool, call: ToolCall) -> None:
        key = call_key(call.name, call.arguments)
        if tool.options.idempotent and key in self._made:
            same = await asyncio.shield(self._made[key])
            await self._give(call, structs.replace(same, call_id=call.id))
            return
        self._transcript.started(call)
        began = perf_counter()
        running = asyncio.ensure_future(self._result(tool, call))
        self._made[key] = running
        try:
            result = await running
        except Fatal as problem:
            await self._give(call, failed(call, f"{call.name} has ended all work: {problem}"))
            raise
        await self._give(call, result, perf_counter() - began)

    async def _result(self, tool: AgentTool, call: ToolCall) -> ToolResult:
        given = structs.replace(call, arguments=self._rules.secrets.restored(call))
        return await result_of(tool, copied(given), self._rules.timeout)

    async def _give(self, call: ToolCall, result: ToolResult, seconds: float = 0.0) -> None:
        """A result, without the secrets in it for whom they are not. What is too long is cut after
        that: half a secret is not known for one."""
        for_model, shown = await self._rules.secrets.kept_from(call, result)
        content = within(for_model.content, self._rules.limit)
        kept = self._keep(structs.replace(for_model, content=content))
        await self._tell(ResultGiven(copied(call), kept, shown.text, seconds))

    def _keep(self, result: ToolResult) -> ToolResult:
        """Take a result down."""
        self.results[result.call_id] = kept = self._transcript.result(result)
        return kept
