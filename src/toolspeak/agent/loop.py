"""The agent: asks its model, runs what it calls, tells it what came of that, and asks again.

agent = Agent("ollama/qwen3:8b", tools=[get_weather], approval="full")
run = await agent.run("What is the weather in Oslo?")
run.text, run.stop
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from msgspec import structs

from ..bridge.ladder import total
from ..bridge.offered import Offered
from ..bridge.outcome import Outcome, outcome_of
from ..calls import Key, new_id
from ..errors import UsageError
from ..events import Event, ReasoningDelta, TextDelta, fold
from ..scrubbing import Vault
from ..types import (
    Failure,
    Message,
    Note,
    Part,
    Reply,
    Request,
    StopReason,
    Text,
    ToolCall,
    ToolChoice,
    Usage,
)
from .approvals import Approvals, Autonomy, Policy
from .events import AgentEvent, Done, Run, Stop
from .execution import failed
from .models import Given, LiveModel, ModelFailed, as_model
from .opened import Opened, ToolSource
from .relay import Relay
from .round import Round, Rules, Scrub
from .tools import AgentTool, Fatal, as_agent_tools
from .transcript import Transcript

if TYPE_CHECKING:
    from ..gateway.settings import Config

log = logging.getLogger("toolspeak.agent")

REPEATS = 3
"""A round of calls that comes to the same so often in a row is the last."""
_TOLD = frozenset({"invalid-call", "unknown-tool", "truncated-call"})
"""Replies after which the model is told what was wrong with its calls, and goes on."""
LAST_TURN = "No more tools can be called now. Answer with what you know, and say what is missing."


Prompt = str | Sequence[Part] | Message


class Agent:
    """A model with tools. It may be used again and again; in `async with` it stays open between."""

    def __init__(
        self,
        model: Given,
        tools: Iterable[Any] = (),
        instructions: str = "",
        *,
        max_iterations: int = 10,
        approval: Approvals | Policy | Autonomy = "ask",
        scrub: Scrub = "model",
        restore: Iterable[str] = (),
        timeout: float | None = 120.0,
        result_limit: int = 60_000,
        max_tokens: int | None = None,
        sampling: dict[str, float] | None = None,
        config: Config | None = None,
    ) -> None:
        if max_iterations < 1:
            raise UsageError(f"Expected at least 1, got {max_iterations} - at `$.max_iterations`")
        if scrub not in get_args(Scrub):
            allowed = ", ".join(get_args(Scrub))
            raise UsageError(f"Expected one of {allowed}, got {scrub!r} - at `$.scrub`")
        if isinstance(restore, str):
            raise UsageError("Expected a list of names of tools - at `$.restore`")
        given = [tools] if isinstance(tools, ToolSource) else tools
        self._sources = [one for one in _listed(given) if isinstance(one, ToolSource)]
        self._own = as_agent_tools(one for one in _listed(given) if not isinstance(one, ToolSource))
        polling = tuple(one.name for one in self._own if one.options.polling)
        self._new_model = partial(as_model, model, config, polling)
        self.instructions = instructions
        self.max_iterations = max_iterations
        self.approvals = approval if isinstance(approval, Approvals) else Approvals(approval)
        restorable = frozenset(restore)
        self.rules = Rules(
            approvals=self.approvals,
            scrub=scrub,
            vault=Vault() if restorable else None,
            restore=restorable,
            timeout=timeout,
            limit=result_limit,
        )
        self._max_tokens = max_tokens
        self._sampling = sampling or {}
        self._opened: dict[asyncio.AbstractEventLoop, Opened] = {}
        """What is open, for each event loop that it is used in."""

    async def __aenter__(self) -> Agent:
        loop = asyncio.get_running_loop()
        opened = self._opened.setdefault(loop, Opened(self._new_model, self._sources))
        await opened.enter()
        return self

    async def __aexit__(self, *problem: object) -> None:
        loop = asyncio.get_running_loop()
        opened = self._opened[loop]
        try:
            await opened.leave()
        finally:
            if not opened.users:
                self._opened.pop(loop, None)

    # Three ways to run it.

    async def run(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Iterable[Message] = (),
        transcript: Transcript | str | Path | None = None,
    ) -> Run:
        """Work until there is an answer. Without a prompt, an earlier conversation is gone on with:
        what was called there and has no result is run first, where that can do no harm."""
        events = self.stream(prompt, messages=messages, transcript=transcript)
        # Whatever was opened for it is closed before its answer is there.
        async with aclosing(events):
            async for event in events:
                if isinstance(event, Done):
                    return event.run
        raise AssertionError("the last event is Done")

    def run_sync(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Iterable[Message] = (),
        transcript: Transcript | str | Path | None = None,
    ) -> Run:
        """The same, for programs that are not asynchronous."""
        if _is_in_loop():
            raise UsageError("run_sync is not for asynchronous code: use `await agent.run()` there")
        return asyncio.run(self.run(prompt, messages=messages, transcript=transcript))

    async def stream(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Iterable[Message] = (),
        transcript: Transcript | str | Path | None = None,
    ) -> AsyncGenerator[AgentEvent]:
        """What happens, as it happens; the last is `Done`."""
        if not isinstance(transcript, Transcript):
            transcript = Transcript(transcript)
        earlier = tuple(messages)
        if earlier and transcript.messages:
            raise UsageError("give `messages` or a transcript that has some, and not both")
        with transcript.in_use():
            for message in earlier:
                transcript.add(message)
            relay = Relay[AgentEvent]()
            async with self:
                work = _Work(self, transcript, relay.tell)
                async with aclosing(relay.events(work.run(prompt))) as events:
                    async for event in events:
                        yield event

    async def check(self) -> None:
        """Make sure that there is such a model."""
        model = self._new_model()
        try:
            if isinstance(model, LiveModel):
                await model.check()
        finally:
            await model.close()

    # What a turn needs.

    async def tools(self) -> dict[str, AgentTool]:
        """The tools that there are now, by name. A source that fails brings none, and of two tools
        with the same name the first counts."""
        found = {one.name: one for one in self._own}
        for source in self._sources:
            try:
                brought = as_agent_tools(await source.tools())
            except Exception as problem:
                log.warning("%r has no tools now: %s", source, problem)
                continue
            for one in brought:
                if found.setdefault(one.name, one) is not one:
                    log.warning("there are two tools %r: that of %r is left out", one.name, source)
        return found

    def request(
        self, messages: Sequence[Message], tools: Iterable[AgentTool], *, is_last: bool
    ) -> Request:
        """What the model is asked. In the last turn it hears of its tools, and cannot call them."""
        told = [self.instructions, LAST_TURN] if is_last else [self.instructions]
        system = "\n\n".join(filter(None, told))
        first = (Message("system", (Text(system),)),) if system else ()
        offered = tuple(one.tool for one in tools)
        return Request(
            model="",
            messages=(*first, *messages),
            tools=offered or None,
            tool_choice=ToolChoice("none" if is_last else "auto"),
            stream=True,
            max_tokens=self._max_tokens,
            sampling=self._sampling,
        )

    def ask(self, request: Request) -> AsyncGenerator[Event]:
        """What the model says."""
        return self._opened[asyncio.get_running_loop()].model.ask(request)


Tell = Callable[[AgentEvent], Awaitable[None]]


class _Work:
    """One run of an agent."""

    def __init__(self, agent: Agent, transcript: Transcript, tell: Tell) -> None:
        self._agent = agent
        self._transcript = transcript
        self._tell = tell
        self._turns = 0
        self._usage: Usage | None = None
        self._notes: list[Note] = []
        self._rounds: list[tuple[tuple[Key, str], ...]] = []
        """What the rounds have come to, one after the other."""
        self._text = ""
        """The last that the model has said."""
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
        return reply, outcome_of(reply, request, Offered(request))

    def _heard(self, reply: Reply, *, is_whole: bool, may_call: bool) -> Reply:
        """Take down a reply. Of one that was interrupted, no calls are made."""
        self._turns += 1
        self._usage = total(self._usage, reply.usage)
        self._notes += reply.notes
        self._text, self._finish = reply.text, reply.stop_reason
        if is_whole:
            parts = _with_own_ids(_structured_first(reply.parts), self._transcript.identities)
            if not may_call:
                parts = tuple(part for part in parts if not isinstance(part, ToolCall))
        else:
            parts = (Text(reply.text),) if reply.text.strip() else ()
        if parts:
            said = self._transcript.add(Message("assistant", parts), is_partial=not is_whole)
            parts = said.parts
        return structs.replace(reply, parts=parts)

    async def _round(self, calls: Sequence[ToolCall], tools: dict[str, AgentTool]) -> None:
        done = Round(calls, tools, self._agent.rules, self._transcript, self._tell)
        await done.run()
        self._rounds.append(done.outcome)

    def _object(self, outcome: Outcome) -> None:
        """Tell the model which of its calls were not made, and why."""
        problems = [
            f"{one.name or 'A call'} was not run: {one.problem}" for one in outcome.rejected
        ]
        self._transcript.say("\n".join(dict.fromkeys(problems)))
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
                part = structs.replace(part, id=new_id())
            taken.add(part.id)
        own.append(part)
    return tuple(own)


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _listed(tools: Any) -> Iterable[Any]:
    if not isinstance(tools, Iterable) or isinstance(tools, (str, Mapping)):
        raise UsageError(f"Expected a list of tools, got `{type(tools).__name__}` - at `$.tools`")
    return list(tools)


def _message(prompt: Prompt) -> Message:
    match prompt:
        case str():
            return Message("user", (Text(prompt),))
        case Message():
            return prompt
        case _:
            return Message("user", tuple(prompt))
