"""An agent: a model, its tools, and how it is run.

agent = Agent("ollama/qwen3:8b", tools=[get_weather], approval="full")
run = await agent.run("What is the weather in Oslo?")
run.text, run.stop
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from ..errors import UsageError
from ..events import Event
from ..types import Message, Request, Text, ToolChoice
from .approvals import Approvals, Autonomy, Policy
from .event_channel import Relay
from .events import AgentEvent, Done, Run
from .loop import Prompt, Work
from .models import Given, LiveModel, as_model
from .resources import Opened, ToolSource
from .secrets import Scrub, Secrets
from .tool_round import Rules
from .tools import AgentTool, as_agent_tools
from .transcript import Transcript

if TYPE_CHECKING:
    from ..config.settings import Config

log = logging.getLogger("toolspeak.agent")

LAST_TURN = "No more tools can be called now. Answer with what you know, and say what is missing."


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
        for name, number in (("timeout", timeout), ("result_limit", result_limit)):
            if not isinstance(number, (int, float)) and (name, number) != ("timeout", None):
                raise UsageError(f"Expected a number, got {number!r} - at `$.{name}`")
        given = [tools] if isinstance(tools, ToolSource) else tools
        self._sources = [one for one in _listed(given) if isinstance(one, ToolSource)]
        self._own = as_agent_tools(one for one in _listed(given) if not isinstance(one, ToolSource))
        polling = tuple(one.name for one in self._own if one.options.polling)
        self._new_model = partial(as_model, model, config, polling)
        self.instructions = instructions
        self.max_iterations = max_iterations
        self.approvals = approval if isinstance(approval, Approvals) else Approvals(approval)
        self.rules = Rules(
            approvals=self.approvals,
            secrets=Secrets(scrub, frozenset(restore)),
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
                work = Work(self, transcript, relay.tell)
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
