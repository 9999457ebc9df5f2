"""An agent: a model, its tools, and how it is run.

agent = Agent("ollama/qwen3:8b", tools=[get_weather], approval="full")
run = await agent.run("What is the weather in Oslo?")
run.text, run.stop
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, get_args, runtime_checkable

from ..errors import UsageError
from ..events import Event
from ..types import Message, Request, Text, ToolChoice
from .approvals import ApprovalPolicy, Approvals, Autonomy
from .concurrency import EventChannel
from .events import AgentEvent, RunFinished, RunResult
from .loop import AgentLoop, Prompt, ToolSettings
from .models import Given, LiveModel, Model, as_model
from .secrets import ScrubMode, SecretFilter
from .tools import AgentTool, build_agent_tools
from .transcript import Transcript

if TYPE_CHECKING:
    from ..config.settings import Config

log = logging.getLogger("toolspeak.agent")

LAST_TURN_INSTRUCTIONS = (
    "No more tools can be called now. Answer with what you know, and say what is missing."
)


class Agent:
    """A model with tools. It may be used again and again; in `async with` it stays open between."""

    def __init__(
        self,
        model: Given,
        tools: Iterable[Any] = (),
        instructions: str = "",
        *,
        max_iterations: int = 10,
        approval: Approvals | ApprovalPolicy | Autonomy = "ask",
        scrub: ScrubMode = "model",
        restore: Iterable[str] = (),
        timeout: float | None = 120.0,
        result_limit: int = 60_000,
        max_tokens: int | None = None,
        sampling: dict[str, float] | None = None,
        config: Config | None = None,
    ) -> None:
        if max_iterations < 1:
            raise UsageError(f"Expected at least 1, got {max_iterations} - at `$.max_iterations`")
        if scrub not in get_args(ScrubMode):
            allowed = ", ".join(get_args(ScrubMode))
            raise UsageError(f"Expected one of {allowed}, got {scrub!r} - at `$.scrub`")
        if isinstance(restore, str):
            raise UsageError("Expected a list of names of tools - at `$.restore`")
        for name, number in (("timeout", timeout), ("result_limit", result_limit)):
            if not isinstance(number, (int, float)) and (name, number) != ("timeout", None):
                raise UsageError(f"Expected a number, got {number!r} - at `$.{name}`")
        given = [tools] if isinstance(tools, ToolSource) else tools
        self._tool_sources = [one for one in _as_list(given) if isinstance(one, ToolSource)]
        self._own_tools = build_agent_tools(
            one for one in _as_list(given) if not isinstance(one, ToolSource)
        )
        polling = tuple(one.name for one in self._own_tools if one.options.polling)
        self._create_model = partial(as_model, model, config, polling)
        self.instructions = instructions
        self.max_iterations = max_iterations
        self.approvals = approval if isinstance(approval, Approvals) else Approvals(approval)
        self.settings = ToolSettings(
            approvals=self.approvals,
            secrets=SecretFilter(scrub, frozenset(restore)),
            timeout=timeout,
            result_limit=result_limit,
        )
        self._max_tokens = max_tokens
        self._sampling = sampling or {}
        self._resources: dict[asyncio.AbstractEventLoop, AgentResources] = {}
        """What is open, for each event loop that it is used in."""

    async def __aenter__(self) -> Agent:
        loop = asyncio.get_running_loop()
        opened = self._resources.setdefault(
            loop, AgentResources(self._create_model, self._tool_sources)
        )
        await opened.acquire()
        return self

    async def __aexit__(self, *problem: object) -> None:
        loop = asyncio.get_running_loop()
        opened = self._resources[loop]
        try:
            await opened.release()
        finally:
            if not opened.users:
                self._resources.pop(loop, None)

    # Three ways to run it.

    async def run(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Iterable[Message] = (),
        transcript: Transcript | str | Path | None = None,
    ) -> RunResult:
        """Work until there is an answer. Without a prompt, an earlier conversation is gone on with:
        what was called there and has no result is run first, where that can do no harm."""
        events = self.stream(prompt, messages=messages, transcript=transcript)
        # Whatever was opened for it is closed before its answer is there.
        async with aclosing(events):
            async for event in events:
                if isinstance(event, RunFinished):
                    return event.result
        raise AssertionError("the last event is Done")

    def run_sync(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Iterable[Message] = (),
        transcript: Transcript | str | Path | None = None,
    ) -> RunResult:
        """The same, for programs that are not asynchronous."""
        if _has_running_loop():
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
        with transcript.lock():
            for message in earlier:
                transcript.add(message)
            relay = EventChannel[AgentEvent]()
            async with self:
                work = AgentLoop(self, transcript, relay.send)
                async with aclosing(relay.stream(work.run(prompt))) as events:
                    async for event in events:
                        yield event

    async def check_model(self) -> None:
        """Make sure that there is such a model."""
        model = self._create_model()
        try:
            if isinstance(model, LiveModel):
                await model.check()
        finally:
            await model.close()

    # What a turn needs.

    async def list_tools(self) -> dict[str, AgentTool]:
        """The tools that there are now, by name. A source that fails brings none, and of two tools
        with the same name the first counts."""
        found = {one.name: one for one in self._own_tools}
        for source in self._tool_sources:
            try:
                brought = build_agent_tools(await source.list_tools())
            except Exception as problem:
                log.warning("%r has no tools now: %s", source, problem)
                continue
            for one in brought:
                if found.setdefault(one.name, one) is not one:
                    log.warning("there are two tools %r: that of %r is left out", one.name, source)
        return found

    def build_request(
        self, messages: Sequence[Message], tools: Iterable[AgentTool], *, is_last: bool
    ) -> Request:
        """What the model is asked. In the last turn it hears of its tools, and cannot call them."""
        told = [self.instructions, LAST_TURN_INSTRUCTIONS] if is_last else [self.instructions]
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

    def ask_model(self, request: Request) -> AsyncGenerator[Event]:
        """What the model says."""
        return self._resources[asyncio.get_running_loop()].model.ask(request)


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _as_list(tools: Any) -> Iterable[Any]:
    if not isinstance(tools, Iterable) or isinstance(tools, (str, Mapping)):
        raise UsageError(f"Expected a list of tools, got `{type(tools).__name__}` - at `$.tools`")
    return list(tools)


@runtime_checkable
class ToolSource(Protocol):
    """Where tools come from that may change: an MCP server."""

    async def open(self) -> None:
        """Get ready. What fails here is not closed."""
        ...

    async def list_tools(self) -> tuple[AgentTool, ...]:
        """The tools that there are now."""
        ...

    async def close(self) -> None:
        """Let go of it."""
        ...


class AgentResources:
    """Open from the first who uses it until the last leaves."""

    def __init__(self, new_model: Callable[[], Model], sources: Sequence[ToolSource]) -> None:
        self._create_model = new_model
        self._sources = sources
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()
        self.users = 0

    async def acquire(self) -> None:
        """One more uses it."""
        async with self._lock:
            if not self.users:
                await self._open()
            self.users += 1

    async def release(self) -> None:
        """One of them uses it no more."""
        async with self._lock:
            self.users -= 1
            if not self.users:
                await self._stack.aclose()

    async def _open(self) -> None:
        async with AsyncExitStack() as stack:
            self.model = self._create_model()
            stack.push_async_callback(_close, self.model)
            for source in self._sources:
                await source.open()
                stack.push_async_callback(_close, source)
            self._stack = stack.pop_all()


async def _close(opened: Model | ToolSource) -> None:
    """Close something. If that fails, what was done is done all the same."""
    try:
        await opened.close()
    except Exception:
        log.warning("%r could not be closed", opened, exc_info=True)
