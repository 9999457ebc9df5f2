"""One run of an agent, from the prompt to the answer. Read this first.

    list tools     the agent's own, and those of its MCP servers now           agent.py
    ask            the model, through the engine's pipeline                    models.py
    record         the reply, before anything depends on it                    transcript.py
    approve        each call, by policy or by asking                           approvals.py
    run            the tools; every failure becomes a result for the model     execution.py
    scrub          secrets in the results                                      secrets.py
    repeat         until the model answers, repeats itself or reaches a limit  here

`AgentLoop` runs the turns. After `max_iterations` turns, or when equal calls keep giving equal
results, the model must answer without tools. `ToolRound` runs the calls of one turn: a round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import groupby
from time import perf_counter
from typing import TYPE_CHECKING

from msgspec import structs

from ..calls.resolution import MAX_QUOTE, CallKey, call_key, new_call_id
from ..dialects import Parser
from ..engine.outcome import Outcome, classify_reply
from ..engine.pipeline import add_usage
from ..engine.plan import OfferedTools
from ..errors import UsageError
from ..events import CallRejected, Event, ReasoningDelta, TextDelta, fold
from ..notes import NOTES
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
from .approvals import ECHO_FLAG, ApprovalDecision, copy_call, is_echoed
from .events import (
    AgentEvent,
    ApprovalRequested,
    RunFinished,
    RunResult,
    RunStop,
    ToolCallFinished,
    ToolCallRequested,
    ToolEvent,
)
from .execution import coerce_call, error_result, limit_content, run_tool, unknown_tool_result
from .models import ModelFailed
from .tools import AgentTool, FatalToolError
from .transcript import Transcript

if TYPE_CHECKING:
    from .agent import Agent

MAX_EQUAL_ROUNDS = 3
"""After this many equal rounds in a row, the model must answer without tools. A round is the calls
of one turn."""
_CORRECTABLE = frozenset({"invalid-call", "unknown-tool", "truncated-call"})
"""Outcomes after which the model is told what was wrong with its calls."""
_NOT_RUN = "`{name}` was not run: the agent stopped first."
_INTERRUPTED = "`{name}` was interrupted. It may have done part of its work."
_UNKNOWN_OUTCOME = (
    "`{name}` may or may not have run: the agent ended during the call. "
    "Check before you call it again."
)
Prompt = str | Sequence[Part] | Message
Emit = Callable[[AgentEvent], Awaitable[None]]
RoundOutcome = tuple[tuple[CallKey, str], ...]
"""The calls of a round, each with the text of its result."""


class AgentLoop:
    """One run of an agent."""

    def __init__(self, agent: Agent, transcript: Transcript, emit: Emit) -> None:
        self._agent = agent
        self._transcript = transcript
        self._emit = emit
        self._turns = 0
        self._usage: Usage | None = None
        self._notes: list[Note] = []
        self._round_outcomes: list[RoundOutcome] = []
        self._last_text = ""
        self._stop_reason: StopReason | None = None
        self._offered_tools: tuple[Tool, ...] | None = None

    async def run(self, prompt: Prompt | None) -> None:
        """Emit the events of the run; the last is `RunFinished`."""
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
            # An MCP server's list may have changed.
            tools = await self._agent.list_tools()

    async def _finish_pending_calls(self, tools: dict[str, AgentTool]) -> None:
        """Run the calls that an earlier run of the program left without a result. Only those of the
        latest message run; older ones get a result that says that they were not run."""
        transcript = self._transcript
        pending = transcript.pending_calls
        for call in pending:
            if not transcript.is_latest(call):
                transcript.add_result(error_result(call, _NOT_RUN.format(name=call.name)))
        if latest := [call for call in pending if transcript.is_latest(call)]:
            await self._run_calls(latest, tools)

    def _is_answered(self) -> bool:
        """Return True if the conversation already ends with a complete answer."""
        messages = self._transcript.messages
        if not messages:
            raise UsageError("there is nothing to answer: pass a prompt, messages or a transcript")
        if self._transcript.is_partial:
            self._transcript.retract_last()
        if self._transcript.needs_reply:
            return False
        texts = (part.text for part in messages[-1].parts if isinstance(part, Text))
        self._last_text = "".join(texts)
        return True

    def _find_stop(self, tools: dict[str, AgentTool]) -> RunStop | None:
        """Return why the next turn must be the last, or None."""
        if self._turns >= self._agent.max_iterations:
            return "limit"
        return "repeated" if self._is_repeating(tools) else None

    def _is_repeating(self, tools: dict[str, AgentTool]) -> bool:
        """Return True if the last rounds were equal, and not all of their tools are polling
        tools."""
        latest = self._round_outcomes[-MAX_EQUAL_ROUNDS:]
        if len(latest) < MAX_EQUAL_ROUNDS or len({*latest}) > 1:
            return False
        names = {name for (name, _), _ in latest[0]}
        return not all(name in tools and tools[name].options.polling for name in names)

    async def _ask_model(
        self, tools: dict[str, AgentTool], *, is_last: bool
    ) -> tuple[Reply, Outcome]:
        """Ask the model and record its reply, even an interrupted one."""
        messages = self._transcript.messages
        request = self._agent.build_request(messages, tools.values(), is_last=is_last)
        self._offered_tools = request.tools
        received: list[Event] = []

        async def receive(events: list[Event]) -> None:
            for event in _drop_rejected_calls(events) if is_last else events:
                received.append(event)
                if isinstance(event, (TextDelta, ReasoningDelta, Note)):
                    await self._emit(event)

        is_complete = False
        try:
            await self._agent.ask_model(request, receive)
            is_complete = not any(isinstance(event, Failure) for event in received)
        finally:
            reply = self._record_reply(
                fold(received), is_complete=is_complete, can_call=not is_last
            )
        if reply.failure:
            raise ModelFailed(reply.failure)
        return reply, classify_reply(reply, request, OfferedTools(request))

    def _record_reply(self, reply: Reply, *, is_complete: bool, can_call: bool) -> Reply:
        """Add a reply to the transcript; if it is incomplete, only its text."""
        self._turns += 1
        if not can_call:
            reply = self._drop_calls_in_text(reply)
        self._usage = add_usage(self._usage, reply.usage)
        self._notes += reply.notes
        self._last_text, self._stop_reason = reply.text, reply.stop_reason
        if is_complete:
            parts = _prefer_native_calls(self._add_echoed_calls(reply))
            parts = _make_ids_unique(parts, {call.id for call in self._transcript.calls})
            if not can_call:
                parts = tuple(part for part in parts if not isinstance(part, ToolCall))
        else:
            parts = (Text(reply.text),) if reply.text.strip() else ()
        if parts:
            message = Message("assistant", parts)
            parts = self._transcript.add(message, is_partial=not is_complete).parts
        return structs.replace(reply, parts=parts)

    def _drop_calls_in_text(self, reply: Reply) -> Reply:
        """Remove the calls in the text of a reply in which calls are forbidden."""
        if not self._offered_tools or not reply.text:
            return reply
        parser = Parser(tools=self._offered_tools)
        parsed = fold([*parser.feed(reply.text), *parser.finish()])
        if not parsed.calls:
            return reply
        others = (part for part in reply.parts if not isinstance(part, Text))
        answer = (Text(parsed.text.strip()),) if parsed.text.strip() else ()
        note = Note("forbidden-call", NOTES["forbidden-call"], parsed.calls[0].raw[:MAX_QUOTE])
        return structs.replace(reply, parts=(*others, *answer), notes=(*reply.notes, note))

    def _add_echoed_calls(self, reply: Reply) -> tuple[Part, ...]:
        """Return the reply's parts with echoed calls as flagged calls.

        The engine leaves a call that only repeats a tool's result as text. Here it becomes a call
        that needs approval, whatever the policy."""
        if reply.calls or not any(one.code == "echoed" for one in reply.rejected):
            return reply.parts
        parser = Parser(tools=self._offered_tools)
        parsed = fold([*parser.feed(reply.text), *parser.finish()]).parts
        others = (part for part in reply.parts if not isinstance(part, Text))
        return (*others, *map(_flag_echo, parsed))

    async def _run_calls(self, calls: Sequence[ToolCall], tools: dict[str, AgentTool]) -> None:
        tool_round = ToolRound(self._agent, calls, tools, self._transcript, self._emit)
        await tool_round.run()
        self._round_outcomes.append(tool_round.outcome)

    def _report_rejections(self, outcome: Outcome) -> None:
        """Tell the model which of its calls were rejected, and why."""
        problems = [
            f"{f'`{one.name}`' if one.name else 'A call'} was not run: {one.problem.rstrip('.')}."
            for one in outcome.rejected
        ]
        text = "\n".join((*dict.fromkeys(problems), "Correct this and call again."))
        # The text may quote the model, and the model may quote a tool: mark it as not the user's.
        self._transcript.add(Message("user", (Text(text),), {GENERATED_KEY: "agent"}))
        rejected = tuple(((one.name or "", ""), one.problem) for one in outcome.rejected)
        self._round_outcomes.append(rejected)

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


def _drop_rejected_calls(events: list[Event]) -> Iterator[Event]:
    """Yield the events without the text of structured calls that were rejected: it follows the
    rejection."""
    opening = ""
    for event in events:
        if opening and isinstance(event, TextDelta) and event.text.lstrip().startswith(opening):
            yield Note("forbidden-call", NOTES["forbidden-call"], event.text[:MAX_QUOTE])
        else:
            yield event
        if isinstance(event, CallRejected) and event.rejection:
            opening = f"{event.rejection.name or ''}("
        elif not isinstance(event, Note):
            opening = ""


def _flag_echo(part: Part) -> Part:
    return structs.replace(part, extra={ECHO_FLAG: True}) if isinstance(part, ToolCall) else part


def _prefer_native_calls(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Turn calls parsed from text back into text if the model also made native calls."""
    if not any(isinstance(part, ToolCall) and not part.dialect for part in parts):
        return parts
    return tuple(
        Text(part.raw) if isinstance(part, ToolCall) and part.dialect else part for part in parts
    )


def _make_ids_unique(parts: tuple[Part, ...], taken: set[str]) -> tuple[Part, ...]:
    """Give a new id to every call whose id is missing or already taken."""
    unique: list[Part] = []
    for part in parts:
        if isinstance(part, ToolCall):
            if not part.id or part.id in taken:
                part = structs.replace(part, id=new_call_id())
            taken.add(part.id)
        unique.append(part)
    return tuple(unique)


def _as_message(prompt: Prompt) -> Message:
    match prompt:
        case str():
            return Message("user", (Text(prompt),))
        case Message():
            return prompt
        case _:
            return Message("user", tuple(prompt))


class ToolRound:
    """Runs the calls of one turn, in order. Consecutive calls to tools that may run in parallel run
    at the same time; any other call runs alone."""

    def __init__(
        self,
        agent: Agent,
        calls: Sequence[ToolCall],
        tools: dict[str, AgentTool],
        transcript: Transcript,
        emit: Callable[[ToolEvent], Awaitable[None]],
    ) -> None:
        # Copies, so that no call can be changed between its approval and its execution.
        self._calls = [copy_call(call) for call in calls]
        self._tools = tools
        self._agent = agent
        self._transcript = transcript
        self._emit = emit
        self._results: dict[str, ToolResult] = {}
        """By call id."""
        self._running: dict[CallKey, asyncio.Future[ToolResult]] = {}
        """Equal calls to an idempotent tool share one execution."""

    @property
    def outcome(self) -> RoundOutcome:
        return tuple(
            (call_key(call.name, call.arguments), self._results[call.id].text)
            for call in self._calls
        )

    async def run(self) -> None:
        """Run all calls. Every call has a result afterwards, even if this is cancelled."""
        try:
            for can_run_parallel, calls in groupby(self._calls, self._can_run_parallel):
                if can_run_parallel:
                    await self._run_group([*calls])
                else:
                    for call in calls:
                        await self._run_group([call])
        finally:
            self._answer_unfinished()

    def _can_run_parallel(self, call: ToolCall) -> bool:
        tool = self._tools.get(call.name)
        return tool is not None and tool.can_run_parallel

    async def _run_group(self, group: list[ToolCall]) -> None:
        """Decide on each call of a group, then run the allowed ones at the same time."""
        approved = [one for call in group if (one := await self._check_call(call))]
        tasks = [
            asyncio.create_task(self._run_call(tool, call))
            for tool, call, decision in approved
            if await self._redeem_approval(call, decision)
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _check_call(
        self, call: ToolCall
    ) -> tuple[AgentTool, ToolCall, ApprovalDecision] | None:
        """Validate a call and have it approved. If it may not run, deliver the reason as its
        result and return None."""
        await self._emit(ToolCallRequested(copy_call(call)))
        tool = self._tools.get(call.name)
        if tool is None:
            await self._deliver_result(call, unknown_tool_result(call, self._tools))
            return None
        call, problem = coerce_call(call, tool)
        if problem := problem or self._find_unknown_outcome(call, tool):
            await self._deliver_result(call, error_result(call, problem))
            return None
        decision = await self._decide(call, tool)
        if not decision.is_allowed:
            await self._deliver_result(call, error_result(call, decision.reason))
            return None
        return tool, call, decision

    def _find_unknown_outcome(self, call: ToolCall, tool: AgentTool) -> str:
        """Return why a call that an earlier run of the program started must not be repeated, or
        ""."""
        is_repeatable = tool.options.idempotent or not tool.options.writes
        if is_repeatable or not self._transcript.was_started(call):
            return ""
        return _UNKNOWN_OUTCOME.format(name=call.name)

    async def _decide(self, call: ToolCall, tool: AgentTool) -> ApprovalDecision:
        """Decide by policy or ask the approver. Every decision is recorded."""
        approvals, uses = self._agent.approvals, self._agent.secrets.find_uses(call)
        decision = approvals.decide_by_policy(tool, uses, is_echo=is_echoed(call))
        if decision is None:
            request = approvals.build_request(call, tool, uses)
            await self._emit(ApprovalRequested(request))
            decision = await approvals.ask(request)
        approvals.record_decision(call, decision, uses)
        return decision

    async def _redeem_approval(self, call: ToolCall, decision: ApprovalDecision) -> bool:
        """Return True if the decision still holds at the moment when the call runs."""
        approvals = self._agent.approvals
        if approvals.redeem(decision, call):
            return True
        problem = "its approval expired or was for another call. Call it again if you need it."
        reason = f"`{call.name}` was not run: {problem}"
        denial = ApprovalDecision(is_allowed=False, decided_by="policy", reason=reason)
        approvals.record_decision(call, denial)
        await self._deliver_result(call, error_result(call, reason))
        return False

    async def _run_call(self, tool: AgentTool, call: ToolCall) -> None:
        key = call_key(call.name, call.arguments)
        if tool.options.idempotent and key in self._running:
            shared = await asyncio.shield(self._running[key])
            await self._deliver_result(call, structs.replace(shared, call_id=call.id))
            return
        self._transcript.mark_started(call)
        started = perf_counter()
        self._running[key] = execution = asyncio.ensure_future(self._execute(tool, call))
        try:
            result = await execution
        except FatalToolError as problem:
            message = f"`{call.name}` ended the run: {problem}"
            await self._deliver_result(call, error_result(call, message))
            raise
        await self._deliver_result(call, result, perf_counter() - started)

    async def _execute(self, tool: AgentTool, call: ToolCall) -> ToolResult:
        arguments = self._agent.secrets.restore_arguments(call)
        restored = structs.replace(call, arguments=arguments)
        return await run_tool(tool, copy_call(restored), self._agent.timeout)

    async def _deliver_result(
        self, call: ToolCall, result: ToolResult, seconds: float = 0.0
    ) -> None:
        """Scrub a result, shorten it, store it and emit it. It is scrubbed first: half a secret
        would not be recognized."""
        for_model, for_display = await self._agent.secrets.scrub_result(call, result)
        content = limit_content(for_model.content, self._agent.result_limit)
        stored = self._store_result(structs.replace(for_model, content=content))
        await self._emit(ToolCallFinished(copy_call(call), stored, for_display.text, seconds))

    def _store_result(self, result: ToolResult) -> ToolResult:
        self._results[result.call_id] = stored = self._transcript.add_result(result)
        return stored

    def _answer_unfinished(self) -> None:
        """Store a result for every call that has none, so that the conversation can be
        continued."""
        for call in self._calls:
            if call.id not in self._results:
                was_started = self._transcript.was_started(call)
                reason = _INTERRUPTED if was_started else _NOT_RUN
                self._store_result(error_result(call, reason.format(name=call.name)))
