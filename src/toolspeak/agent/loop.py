"""The loop: a model is asked, what it calls is run, it hears what came of that, and is asked again.

It ends with an answer; after too many turns, or the same ones again and again, with one that is
asked for without tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from time import perf_counter
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ..calls.drafts import CallKey, call_key, new_call_id
from ..calls.toolset import Toolset
from ..dialects import Parser
from ..engine.outcome import Outcome, classify_reply
from ..engine.pipeline import add_usage
from ..engine.tool_names import OfferedTools
from ..errors import UsageError
from ..events import Event, ReasoningDelta, TextDelta, fold
from ..security.message_origin import GENERATED_KEY
from ..types import (
    Failure,
    Message,
    Note,
    Part,
    Reply,
    StopReason,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
)
from .approvals import ECHO_FLAG, ApprovalDecision, Approvals, copy_call, is_echoed
from .events import (
    AgentEvent,
    ApprovalRequested,
    RunFinished,
    RunResult,
    RunStop,
    ToolCallFinished,
    ToolCallRequested,
)
from .execution import coerce_call, error_result, limit_content, run_tool, unknown_tool_result
from .models import ModelFailed
from .secrets import SecretFilter
from .tools import AgentTool, FatalToolError
from .transcript import Transcript

if TYPE_CHECKING:
    from .agent import Agent

MAX_REPEATS = 3
"""A round of calls that comes to the same so often in a row is the last."""
_CORRECTABLE = frozenset({"invalid-call", "unknown-tool", "truncated-call"})
"""Replies after which the model is told what was wrong with its calls, and goes on."""
Prompt = str | Sequence[Part] | Message
Emit = Callable[[AgentEvent], Awaitable[None]]


class AgentLoop:
    """One run of an agent."""

    def __init__(self, agent: Agent, transcript: Transcript, tell: Emit) -> None:
        self._agent = agent
        self._transcript = transcript
        self._emit = tell
        self._turns = 0
        self._usage: Usage | None = None
        self._notes: list[Note] = []
        self._round_outcomes: list[tuple[tuple[CallKey, str], ...]] = []
        """What the rounds have come to, one after the other."""
        self._last_text = ""
        """The last that the model has said."""
        self._offered_tools: tuple[Tool, ...] | None = None
        """The tools that the model was told of last."""
        self._stop_reason: StopReason | None = None
        """And why it has stopped there."""

    async def run(self, prompt: Prompt | None) -> None:
        try:
            stop = await self._run_turns(prompt)
        except FatalToolError as problem:
            await self._emit(self._finish_run("fatal", str(problem)))
        else:
            await self._emit(self._finish_run(stop))

    async def _run_turns(self, prompt: Prompt | None) -> RunStop:
        tools = await self._agent.list_tools()
        await self._finish_pending_calls(tools)
        if prompt is not None:
            self._transcript.add(_as_message(prompt))
        elif self._is_answered():
            return "answer"
        while True:
            stop = self._find_stop(tools)
            reply, outcome = await self._ask_model(tools, is_last=stop is not None)
            if stop or not (reply.calls or outcome.kind in _CORRECTABLE):
                return stop or "answer"
            if reply.calls:
                await self._run_calls(reply.calls, tools)
            if outcome.rejected:
                self._report_rejections(outcome)
            tools = await self._agent.list_tools()

    async def _finish_pending_calls(self, tools: dict[str, AgentTool]) -> None:
        """Run what an earlier program has not come to. What lies further back is not made any
        more, but has to have a result."""
        transcript = self._transcript
        pending = transcript.pending_calls
        for call in pending:
            if not transcript.is_latest(call):
                transcript.add_result(
                    error_result(call, f"{call.name} was not run: the agent has stopped.")
                )
        if last := [call for call in pending if transcript.is_latest(call)]:
            await self._run_calls(last, tools)

    def _is_answered(self) -> bool:
        """Whether the model has said all there is to say in an earlier conversation."""
        messages = self._transcript.messages
        if not messages:
            raise UsageError("there is nothing to answer: give a prompt, or a transcript")
        if self._transcript.is_partial:
            self._transcript.retract_last()
        if self._transcript.needs_reply:
            return False
        self._last_text = "".join(
            part.text for part in messages[-1].parts if isinstance(part, Text)
        )
        return True

    def _find_stop(self, tools: dict[str, AgentTool]) -> RunStop | None:
        """Why the next turn is the last; None if it is not."""
        if self._turns >= self._agent.max_iterations:
            return "limit"
        return "repeated" if self._is_repeating(tools) else None

    def _is_repeating(self, tools: dict[str, AgentTool]) -> bool:
        """Whether the same calls come to the same again and again, and do not just wait."""
        last = self._round_outcomes[-MAX_REPEATS:]
        if len(last) < MAX_REPEATS or len({*last}) > 1:
            return False
        names = {name for (name, _), _ in last[0]}
        return not all(name in tools and tools[name].options.polling for name in names)

    async def _ask_model(
        self, tools: dict[str, AgentTool], *, is_last: bool
    ) -> tuple[Reply, Outcome]:
        """Ask the model. What it has said is kept, even if it is stopped in the midst of it."""
        request = self._agent.build_request(
            self._transcript.messages, tools.values(), is_last=is_last
        )
        self._offered_tools = request.tools
        said: list[Event] = []
        is_whole = False
        try:
            async with aclosing(self._agent.ask_model(request)) as events:
                async for event in events:
                    said.append(event)
                    if isinstance(event, (TextDelta, ReasoningDelta, Note)):
                        await self._emit(event)
            is_whole = not any(isinstance(event, Failure) for event in said)
        finally:
            reply = self._record_reply(fold(said), is_whole=is_whole, may_call=not is_last)
        if reply.failure:
            raise ModelFailed(reply.failure)
        return reply, classify_reply(reply, request, OfferedTools(request))

    def _record_reply(self, reply: Reply, *, is_whole: bool, may_call: bool) -> Reply:
        """Take down a reply. Of one that was interrupted, no calls are made."""
        self._turns += 1
        self._usage = add_usage(self._usage, reply.usage)
        self._notes += reply.notes
        self._last_text, self._stop_reason = reply.text, reply.stop_reason
        if is_whole:
            parts = _prefer_native_calls(self._add_echoed_calls(reply))
            parts = _make_ids_unique(parts, self._transcript.call_ids)
            if not may_call:
                parts = tuple(part for part in parts if not isinstance(part, ToolCall))
        else:
            parts = (Text(reply.text),) if reply.text.strip() else ()
        if parts:
            said = self._transcript.add(Message("assistant", parts), is_partial=not is_whole)
            parts = said.parts
        return structs.replace(reply, parts=parts)

    def _add_echoed_calls(self, reply: Reply) -> tuple[Part, ...]:
        """The parts of a reply. What only repeats a call that a tool has brought in is text to the
        bridge; here it is a call that somebody is asked about."""
        if reply.calls or not any(one.code == "echoed" for one in reply.rejected):
            return reply.parts
        parser = Parser(tools=self._offered_tools)
        read = fold([*parser.feed(reply.text), *parser.finish()]).parts
        others = (part for part in reply.parts if not isinstance(part, Text))
        return (*others, *map(_mark_echo, read))

    async def _run_calls(self, calls: Sequence[ToolCall], tools: dict[str, AgentTool]) -> None:
        done = ToolRound(calls, tools, self._agent.settings, self._transcript, self._emit)
        await done.run()
        self._round_outcomes.append(done.outcome)

    def _report_rejections(self, outcome: Outcome) -> None:
        """Tell the model which of its calls were not made, and why."""
        problems = [
            f"{one.name or 'A call'} was not run: {one.problem}" for one in outcome.rejected
        ]
        # It repeats what the model has said, who may have it from elsewhere.
        told = Message(
            "user", (Text("\n".join(dict.fromkeys(problems))),), {GENERATED_KEY: "agent"}
        )
        self._transcript.add(told)
        self._round_outcomes.append(
            tuple(((one.name or "", ""), one.problem) for one in outcome.rejected)
        )

    def _finish_run(self, stop: RunStop, error: str = "") -> RunFinished:
        return RunFinished(
            RunResult(
                text="" if stop == "fatal" else self._last_text.strip(),
                stop=stop,
                messages=self._transcript.messages,
                turns=self._turns,
                usage=self._usage,
                notes=tuple(self._notes),
                error=error,
                model_stop_reason=self._stop_reason,
            )
        )


def _mark_echo(part: Part) -> Part:
    return structs.replace(part, extra={ECHO_FLAG: True}) if isinstance(part, ToolCall) else part


def _prefer_native_calls(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Where a model has made calls by its API, what looks like one in its text is text."""
    if not any(isinstance(part, ToolCall) and not part.raw for part in parts):
        return parts
    return tuple(
        Text(part.raw) if isinstance(part, ToolCall) and part.raw else part for part in parts
    )


def _make_ids_unique(parts: tuple[Part, ...], taken: set[str]) -> tuple[Part, ...]:
    """No two calls of a conversation have the same id."""
    own: list[Part] = []
    for part in parts:
        if isinstance(part, ToolCall):
            if not part.id or part.id in taken:
                part = structs.replace(part, id=new_call_id())
            taken.add(part.id)
        own.append(part)
    return tuple(own)


def _as_message(prompt: Prompt) -> Message:
    match prompt:
        case str():
            return Message("user", (Text(prompt),))
        case Message():
            return prompt
        case _:
            return Message("user", tuple(prompt))


ToolEvent = ToolCallRequested | ApprovalRequested | ToolCallFinished
_INTERRUPTED = "{name} was interrupted: it is not known how far it has come."
_NOT_RUN = "{name} was not run: the agent has stopped."
_UNKNOWN_END = (
    "It is not known whether {name} was run: the program ended in the midst of it. "
    "Find out before you call it again."
)


class ToolSettings(Struct, frozen=True, kw_only=True):
    """How an agent runs its tools."""

    approvals: Approvals
    secrets: SecretFilter
    timeout: float | None = 120.0
    result_limit: int = 60_000
    """How many characters of a result the model gets."""


class ToolRound:
    """Runs the calls of one turn."""

    def __init__(
        self,
        calls: Sequence[ToolCall],
        tools: dict[str, AgentTool],
        rules: ToolSettings,
        transcript: Transcript,
        tell: Callable[[ToolEvent], Awaitable[None]],
    ) -> None:
        # Nobody else has these: what was approved is what is run.
        self._calls = [copy_call(call) for call in calls]
        self._tools = tools
        self._settings = rules
        self._transcript = transcript
        self._emit = tell
        self.results: dict[str, ToolResult] = {}
        """By the ids of their calls."""
        self._shared_results: dict[CallKey, asyncio.Future[ToolResult]] = {}
        """What equal calls of this turn have given, of tools that need not be run twice."""

    @property
    def outcome(self) -> tuple[tuple[CallKey, str], ...]:
        """What was called and what it gave: a round that comes to the same again leads nowhere."""
        done = ((call, self.results[call.id]) for call in self._calls)
        return tuple((call_key(call.name, call.arguments), result.text) for call, result in done)

    async def run(self) -> None:
        """Run them all. Every call has a result afterwards, even if this is given up."""
        try:
            for group in self._split_into_groups():
                await self._run_group(group)
        finally:
            # Whoever gives up leaves a conversation behind that can be gone on with.
            self._answer_unfinished()

    def _answer_unfinished(self) -> None:
        for call in self._calls:
            if call.id not in self.results:
                why = _INTERRUPTED if self._transcript.was_started(call) else _NOT_RUN
                self._store_result(error_result(call, why.format(name=call.name)))

    def _split_into_groups(self) -> Iterator[list[ToolCall]]:
        """Calls that may run side by side, as they follow each other."""
        group: list[ToolCall] = []
        for call in self._calls:
            tool = self._tools.get(call.name)
            if tool and tool.can_run_parallel:
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
        allowed = [one for call in group if (one := await self._check_call(call))]
        running = [
            asyncio.create_task(self._run_call(tool, call))
            for tool, call, decision in allowed
            if await self._redeem_approval(call, decision)
        ]
        try:
            await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _redeem_approval(self, call: ToolCall, decision: ApprovalDecision) -> bool:
        """Whether what was decided still holds, now that the call is made."""
        approvals = self._settings.approvals
        if approvals.redeem(decision, call):
            return True
        why = f"{call.name} was not run: the approval was not for this call, or came too late."
        approvals.record_decision(
            call, ApprovalDecision(is_allowed=False, decided_by="policy", reason=why)
        )
        await self._deliver_result(call, error_result(call, why))
        return False

    async def _check_call(
        self, call: ToolCall
    ) -> tuple[AgentTool, ToolCall, ApprovalDecision] | None:
        """The tool of a call, the call as it wants it, and who has allowed it, if anybody has."""
        await self._emit(ToolCallRequested(copy_call(call)))
        tool = self._tools.get(call.name)
        if tool is None:
            offered = Toolset([one.tool for one in self._tools.values()])
            await self._deliver_result(call, unknown_tool_result(call, offered))
            return None
        call, problem = coerce_call(call, tool)
        if problem := problem or self._find_uncertain_start(call, tool):
            await self._deliver_result(call, error_result(call, problem))
            return None
        decision = await self._decide(call, tool)
        if not decision.is_allowed:
            await self._deliver_result(call, error_result(call, decision.reason))
            return None
        return tool, call, decision

    def _find_uncertain_start(self, call: ToolCall, tool: AgentTool) -> str:
        """Why a call that an earlier program has begun is not made again; "" if it can be."""
        is_safe = tool.options.idempotent or not tool.options.writes
        if is_safe or not self._transcript.was_started(call):
            return ""
        return _UNKNOWN_END.format(name=call.name)

    async def _decide(self, call: ToolCall, tool: AgentTool) -> ApprovalDecision:
        """Whether a call is made. It is written down either way."""
        approvals, uses = self._settings.approvals, self._settings.secrets.find_uses(call)
        decision = approvals.decide_by_policy(tool, uses, is_echo=is_echoed(call))
        if decision is None:
            question = approvals.build_request(call, tool, uses)
            await self._emit(ApprovalRequested(question))
            decision = await approvals.ask(question)
        approvals.record_decision(call, decision, uses)
        return decision

    async def _run_call(self, tool: AgentTool, call: ToolCall) -> None:
        key = call_key(call.name, call.arguments)
        if tool.options.idempotent and key in self._shared_results:
            same = await asyncio.shield(self._shared_results[key])
            await self._deliver_result(call, structs.replace(same, call_id=call.id))
            return
        self._transcript.mark_started(call)
        began = perf_counter()
        running = asyncio.ensure_future(self._execute(tool, call))
        self._shared_results[key] = running
        try:
            result = await running
        except FatalToolError as problem:
            await self._deliver_result(
                call, error_result(call, f"{call.name} has ended all work: {problem}")
            )
            raise
        await self._deliver_result(call, result, perf_counter() - began)

    async def _execute(self, tool: AgentTool, call: ToolCall) -> ToolResult:
        given = structs.replace(call, arguments=self._settings.secrets.restore_arguments(call))
        return await run_tool(tool, copy_call(given), self._settings.timeout)

    async def _deliver_result(
        self, call: ToolCall, result: ToolResult, seconds: float = 0.0
    ) -> None:
        """A result, without the secrets in it for whom they are not. What is too long is cut after
        that: half a secret is not known for one."""
        for_model, shown = await self._settings.secrets.scrub_result(call, result)
        content = limit_content(for_model.content, self._settings.result_limit)
        kept = self._store_result(structs.replace(for_model, content=content))
        await self._emit(ToolCallFinished(copy_call(call), kept, shown.text, seconds))

    def _store_result(self, result: ToolResult) -> ToolResult:
        """Take a result down."""
        self.results[result.call_id] = kept = self._transcript.add_result(result)
        return kept
