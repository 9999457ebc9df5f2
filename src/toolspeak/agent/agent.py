"""An agent: a model, its tools, and the ways to run it.

    agent = Agent("ollama/qwen3:8b", tools=[get_weather], approval="full")
    result = await agent.run("What is the weather in Oslo?")
    result.text, result.stop

`loop.py` describes a run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, get_args, runtime_checkable

from ..errors import UsageError
from ..types import Message, Request, Text, ToolChoice
from .approvals import ApprovalPolicy, Approvals, Autonomy
from .concurrency import EventChannel
from .events import AgentEvent, RunFinished, RunResult
from .loop import AgentLoop, Prompt
from .models import LiveModel, Model, ModelLike, SendEvents, as_model
from .secrets import ScrubMode, SecretFilter
from .tools import AgentTool, build_agent_tools
from .transcript import Transcript

if TYPE_CHECKING:
    from ..config.settings import Config

log = logging.getLogger("toolspeak.agent")

LAST_TURN_INSTRUCTIONS = (
    "You cannot call tools any more. Answer with what you know, and say what is missing."
)


@runtime_checkable
class ToolSource(Protocol):
    """A source of tools whose list may change, such as an MCP server."""

    async def open(self) -> None:
        """Connect. `close` is not called if this raises."""
        ...

    async def list_tools(self) -> tuple[AgentTool, ...]:
        """Return the tools available now."""
        ...

    async def close(self) -> None: ...


class Agent:
    """A model with tools. An agent may be run any number of times; `async with` keeps its model
    and tool sources open between runs."""

    def __init__(
        self,
        model: ModelLike,
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
        _check_arguments(max_iterations, scrub, restore)
        self._tool_sources, self._own_tools = _split_tools(tools)
        self.model = model
        self.instructions = instructions
        self.max_iterations = max_iterations
        self.approvals = approval if isinstance(approval, Approvals) else Approvals(approval)
        self.secrets = SecretFilter(scrub, frozenset(restore))
        self.timeout = timeout
        self.result_limit = result_limit
        self._max_tokens = max_tokens
        self._sampling = sampling or {}
        self._config = config
        self._polling = tuple(one.name for one in self._own_tools if one.options.polling)
        self._resources: dict[asyncio.AbstractEventLoop, _AgentResources] = {}
        """One per event loop that uses the agent."""

    async def __aenter__(self) -> Agent:
        loop = asyncio.get_running_loop()
        new = _AgentResources(self._create_model, self._tool_sources)
        await self._resources.setdefault(loop, new).acquire()
        return self

    async def __aexit__(self, *error: object) -> None:
        loop = asyncio.get_running_loop()
        resources = self._resources[loop]
        try:
            await resources.release()
        finally:
            if not resources.users:
                self._resources.pop(loop, None)

    async def run(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Iterable[Message] = (),
        transcript: Transcript | str | Path | None = None,
    ) -> RunResult:
        """Run until the model answers.

        Without a prompt, continue an earlier conversation: its pending calls run first, unless
        repeating them could do harm."""
        events = self.stream(prompt, messages=messages, transcript=transcript)
        # Close everything that was opened for the run before returning.
        async with aclosing(events):
            async for event in events:
                if isinstance(event, RunFinished):
                    return event.result
        raise AssertionError("the last event is RunFinished")

    def run_sync(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Iterable[Message] = (),
        transcript: Transcript | str | Path | None = None,
    ) -> RunResult:
        """Do the same as `run` in a program that is not asynchronous."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise UsageError("run_sync cannot be used in async code: use `await agent.run()`")
        return asyncio.run(self.run(prompt, messages=messages, transcript=transcript))

    async def stream(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Iterable[Message] = (),
        transcript: Transcript | str | Path | None = None,
    ) -> AsyncGenerator[AgentEvent]:
        """Yield the events of a run as they happen; the last is `RunFinished`."""
        if not isinstance(transcript, Transcript):
            transcript = Transcript.load(transcript)
        earlier = tuple(messages)
        if earlier and transcript.messages:
            raise UsageError(
                "the transcript already has messages: pass `messages` or the transcript, not both"
            )
        with transcript.lock():
            for message in earlier:
                transcript.add(message)
            channel = EventChannel[AgentEvent]()
            async with self:
                loop = AgentLoop(self, transcript, channel.send)
                async with aclosing(channel.stream(loop.run(prompt))) as events:
                    async for event in events:
                        yield event

    async def use_model(self, model: str) -> None:
        """Let an open agent continue with another model. If it does not exist, raise and change
        nothing."""
        resources = self._resources[asyncio.get_running_loop()]
        new = LiveModel(model, self._config, self._polling)
        await new.open()
        old, resources.model = resources.model, new
        self.model = model
        await _close(old)

    def _create_model(self) -> Model:
        return as_model(self.model, self._config, self._polling)

    # For the loop.

    async def list_tools(self) -> dict[str, AgentTool]:
        """Return the tools available now, by name. The tools of a failing source are left out, and
        so is a tool with the name of an earlier one."""
        tools = {one.name: one for one in self._own_tools}
        for source in self._tool_sources:
            try:
                listed = build_agent_tools(await source.list_tools())
            except Exception as problem:
                log.warning("cannot list the tools of %r: %s", source, problem)
                continue
            for one in listed:
                if tools.setdefault(one.name, one) is not one:
                    log.warning(
                        "the tool %r of %r is ignored: another tool has this name", one.name, source
                    )
        return tools

    def build_request(
        self, messages: Sequence[Message], tools: Iterable[AgentTool], *, is_last: bool
    ) -> Request:
        """Return the request of a turn. The last turn lists the tools but forbids calls."""
        instructions = [self.instructions, LAST_TURN_INSTRUCTIONS if is_last else ""]
        system = "\n\n".join(filter(None, instructions))
        first = (Message("system", (Text(system),)),) if system else ()
        return Request(
            model="",
            messages=(*first, *messages),
            tools=tuple(one.tool for one in tools) or None,
            tool_choice=ToolChoice("none" if is_last else "auto"),
            stream=True,
            max_tokens=self._max_tokens,
            sampling=self._sampling,
        )

    async def ask_model(self, request: Request, send: SendEvents) -> None:
        """Send the events of the model's reply as they arrive."""
        await self._resources[asyncio.get_running_loop()].model.ask(request, send)


class _AgentResources:
    """The model and tool sources of an agent, open while it has users."""

    def __init__(self, create_model: Callable[[], Model], sources: Sequence[ToolSource]) -> None:
        self._create_model = create_model
        self._sources = sources
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()
        self.users = 0

    async def acquire(self) -> None:
        async with self._lock:
            if not self.users:
                await self._open()
            self.users += 1

    async def release(self) -> None:
        async with self._lock:
            self.users -= 1
            if not self.users:
                await self._stack.aclose()

    async def _open(self) -> None:
        async with AsyncExitStack() as stack:
            self.model = self._create_model()
            # The model may be replaced until then.
            stack.push_async_callback(lambda: _close(self.model))
            for source in self._sources:
                await source.open()
                stack.push_async_callback(_close, source)
            self._stack = stack.pop_all()


async def _close(resource: Model | ToolSource) -> None:
    """Close a resource. A failure is logged: the run's result is still valid."""
    try:
        await resource.close()
    except Exception:
        log.warning("cannot close %r", resource, exc_info=True)


def _check_arguments(max_iterations: int, scrub: str, restore: Any) -> None:
    if max_iterations < 1:
        raise UsageError(f"`max_iterations` must be at least 1, got {max_iterations}")
    if scrub not in get_args(ScrubMode):
        allowed = ", ".join(get_args(ScrubMode))
        raise UsageError(f"`scrub` must be one of {allowed}, got {scrub!r}")
    if isinstance(restore, str):
        raise UsageError("`restore` must be a list of tool names, got a string")


def _split_tools(tools: Any) -> tuple[list[ToolSource], tuple[AgentTool, ...]]:
    """Return the sources of tools, and the other tools."""
    given: Any = [tools] if isinstance(tools, ToolSource) else tools
    if not isinstance(given, Iterable) or isinstance(given, (str, Mapping)):
        raise UsageError(f"`tools` must be a list of tools, got `{type(tools).__name__}`")
    listed: list[Any] = list(given)
    sources = [one for one in listed if isinstance(one, ToolSource)]
    return sources, build_agent_tools(one for one in listed if not isinstance(one, ToolSource))
