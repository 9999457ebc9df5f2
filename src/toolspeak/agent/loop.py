"""The loop: a model is asked, what it calls is run, it hears what came of that, and is asked again.

It ends with an answer; after too many turns, or the same ones again and again, with one that is
asked for without tools.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from msgspec import structs

from ..calls.drafts import CallKey, new_call_id
from ..dialects import Parser
from ..engine.outcome import Outcome, classify_reply
from ..engine.pipeline import add_usage
from ..engine.tool_names import OfferedTools
from ..errors import UsageError
from ..events import Event, ReasoningDelta, TextDelta, fold
from ..security.message_origin import GENERATED_KEY
from ..types import Failure, Message, Note, Part, Reply, StopReason, Text, Tool, ToolCall, Usage
from .approvals import ECHO
from .events import AgentEvent, Done, Run, Stop
from .execution import failed
from .models import ModelFailed
from .tool_round import Round
from .tools import AgentTool, Fatal
from .transcript import Transcript

if TYPE_CHECKING:
    from .agent import Agent

REPEATS = 3
"""A round of calls that comes to the same so often in a row is the last."""
_TOLD = frozenset({"invalid-call", "unknown-tool", "truncated-call"})
"""Replies after which the model is told what was wrong with its calls, and goes on."""
Prompt = str | Sequence[Part] | Message
Tell = Callable[[AgentEvent], Awaitable[None]]


class Work:
    """One run of an agent."""

    def __init__(self, agent: Agent, transcript: Transcript, tell: Tell) -> None:
        self._agent = agent
        self._transcript = transcript
        self._tell = tell
        self._turns = 0
        self._usage: Usage | None = None
        self._notes: list[Note] = []
        self._rounds: list[tuple[tuple[CallKey, str], ...]] = []
        """What the rounds have come to, one after the other."""
        self._text = ""
        """The last that the model has said."""
        self._offered: tuple[Tool, ...] | None = None
        """The tools that the model was told of last."""
        self._finish: StopReason | None = None
        """And why it has stopped there."""

    async def run(self, prompt: Prompt | None) -> None:
        try:
            stop = await self._run(prompt)
        except Fatal as problem:
            await self._tell(self._done("fatal", str(problem)))
        else:
            await self._tell(self._done(stop))

    async def _run(self, prompt: Prompt | None) -> Stop:
        tools = await self._agent.tools()
        await self._catch_up(tools)
        if prompt is not None:
            self._transcript.add(_message(prompt))
        elif self._is_answered():
            return "answer"
        while True:
            stop = self._why_last(tools)
            reply, outcome = await self._turn(tools, is_last=stop is not None)
            if stop or not (reply.calls or outcome.kind in _TOLD):
                return stop or "answer"
            if reply.calls:
                await self._round(reply.calls, tools)
            if outcome.rejected:
                self._object(outcome)
            tools = await self._agent.tools()

    async def _catch_up(self, tools: dict[str, AgentTool]) -> None:
        """Run what an earlier program has not come to. What lies further back is not made any
        more, but has to have a result."""
        transcript = self._transcript
        pending = transcript.pending
        for call in pending:
            if not transcript.is_last(call):
                transcript.result(failed(call, f"{call.name} was not run: the agent has stopped."))
        if last := [call for call in pending if transcript.is_last(call)]:
            await self._round(last, tools)

    def _is_answered(self) -> bool:
        """Whether the model has said all there is to say in an earlier conversation."""
        messages = self._transcript.messages
        if not messages:
            raise UsageError("there is nothing to answer: give a prompt, or a transcript")
        if self._transcript.is_partial:
            self._transcript.retract()
        if self._transcript.is_open:
            return False
        self._text = "".join(part.text for part in messages[-1].parts if isinstance(part, Text))
        return True

    def _why_last(self, tools: dict[str, AgentTool]) -> Stop | None:
        """Why the next turn is the last; None if it is not."""
        if self._turns >= self._agent.max_iterations:
            return "limit"
        return "repeated" if self._is_stuck(tools) else None

    def _is_stuck(self, tools: dict[str, AgentTool]) -> bool:
        """Whether the same calls come to the same again and again, and do not just wait."""
        last = self._rounds[-REPEATS:]
        if len(last) < REPEATS or len({*last}) > 1:
            return False
        names = {name for (name, _), _ in last[0]}
        return not all(name in tools and tools[name].options.polling for name in names)

    async def _turn(self, tools: dict[str, AgentTool], *, is_last: bool) -> tuple[Reply, Outcome]:
        """Ask the model. What it has said is kept, even if it is stopped in the midst of it."""
        request = self._agent.request(self._transcript.messages, tools.values(), is_last=is_last)
        self._offered = request.tools
        said: list[Event] = []
        is_whole = False
        try:
            async with aclosing(self._agent.ask(request)) as events:
                async for event in events:
                    said.append(event)
                    if isinstance(event, (TextDelta, ReasoningDelta, Note)):
                        await self._tell(event)
            is_whole = not any(isinstance(event, Failure) for event in said)
        finally:
            reply = self._heard(fold(said), is_whole=is_whole, may_call=not is_last)
        if reply.failure:
            raise ModelFailed(reply.failure)
        return reply, classify_reply(reply, request, OfferedTools(request))

    def _heard(self, reply: Reply, *, is_whole: bool, may_call: bool) -> Reply:
        """Take down a reply. Of one that was interrupted, no calls are made."""
        self._turns += 1
        self._usage = add_usage(self._usage, reply.usage)
        self._notes += reply.notes
        self._text, self._finish = reply.text, reply.stop_reason
        if is_whole:
            parts = _structured_first(self._with_echoes(reply))
            parts = _with_own_ids(parts, self._transcript.identities)
            if not may_call:
                parts = tuple(part for part in parts if not isinstance(part, ToolCall))
        else:
            parts = (Text(reply.text),) if reply.text.strip() else ()
        if parts:
            said = self._transcript.add(Message("assistant", parts), is_partial=not is_whole)
            parts = said.parts
        return structs.replace(reply, parts=parts)

    def _with_echoes(self, reply: Reply) -> tuple[Part, ...]:
        """The parts of a reply. What only repeats a call that a tool has brought in is text to the
        bridge; here it is a call that somebody is asked about."""
        if reply.calls or not any(one.code == "echoed" for one in reply.rejected):
            return reply.parts
        parser = Parser(tools=self._offered)
        read = fold([*parser.feed(reply.text), *parser.finish()]).parts
        others = (part for part in reply.parts if not isinstance(part, Text))
        return (*others, *map(_echoed, read))

    async def _round(self, calls: Sequence[ToolCall], tools: dict[str, AgentTool]) -> None:
        done = Round(calls, tools, self._agent.rules, self._transcript, self._tell)
        await done.run()
        self._rounds.append(done.outcome)

    def _object(self, outcome: Outcome) -> None:
        """Tell the model which of its calls were not made, and why."""
        problems = [
            f"{one.name or 'A call'} was not run: {one.problem}" for one in outcome.rejected
        ]
        # It repeats what the model has said, who may have it from elsewhere.
        told = Message(
            "user", (Text("\n".join(dict.fromkeys(problems))),), {GENERATED_KEY: "agent"}
        )
        self._transcript.add(told)
        self._rounds.append(tuple(((one.name or "", ""), one.problem) for one in outcome.rejected))

    def _done(self, stop: Stop, error: str = "") -> Done:
        return Done(
            Run(
                text="" if stop == "fatal" else self._text.strip(),
                stop=stop,
                messages=self._transcript.messages,
                turns=self._turns,
                usage=self._usage,
                notes=tuple(self._notes),
                error=error,
                finish=self._finish,
            )
        )


def _echoed(part: Part) -> Part:
    return structs.replace(part, extra={ECHO: True}) if isinstance(part, ToolCall) else part


def _structured_first(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Where a model has made calls by its API, what looks like one in its text is text."""
    if not any(isinstance(part, ToolCall) and not part.raw for part in parts):
        return parts
    return tuple(
        Text(part.raw) if isinstance(part, ToolCall) and part.raw else part for part in parts
    )


def _with_own_ids(parts: tuple[Part, ...], taken: set[str]) -> tuple[Part, ...]:
    """No two calls of a conversation have the same id."""
    own: list[Part] = []
    for part in parts:
        if isinstance(part, ToolCall):
            if not part.id or part.id in taken:
                part = structs.replace(part, id=new_call_id())
            taken.add(part.id)
        own.append(part)
    return tuple(own)


def _message(prompt: Prompt) -> Message:
    match prompt:
        case str():
            return Message("user", (Text(prompt),))
        case Message():
            return prompt
        case _:
            return Message("user", tuple(prompt))
