"""A conversation at the terminal: lines in, an agent's work out, until somebody leaves."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Generator
from contextlib import aclosing, contextmanager
from typing import Any

from msgspec import Struct, structs

from ...errors import ToolspeakError
from .. import Agent, Answer, Approvals, ModelFailed, Question, Transcript, answer_of
from ..secrets import Scrub
from .commands import obey
from .display import Display
from .keyboard import Interrupted, Keyboard


class Setup(Struct, frozen=True, kw_only=True):
    """What a session is made of."""

    model: str = ""
    """"" is the default one."""
    tools: tuple[Any, ...] = ()
    instructions: str = ""
    max_iterations: int = 10
    scrub: Scrub = "model"
    config: Any = None
    """A `Config`, which only the gateway's own modules need to know."""


class Session:
    """One person, one agent, one conversation at a time."""

    def __init__(
        self,
        setup: Setup,
        approvals: Approvals,
        transcript: Transcript,
        display: Display,
        keyboard: Keyboard,
    ) -> None:
        self.setup = setup
        self.approvals = approvals
        self.transcript = transcript
        self.display = display
        self._keyboard = keyboard
        self.is_over = False
        self._turn: asyncio.Task[None] | None = None
        if keyboard.is_terminal and approvals.approver is None:
            approvals.approver = self._approve
        self.agent = self._agent()

    def _agent(self) -> Agent:
        setup = self.setup
        return Agent(
            setup.model,
            setup.tools,
            setup.instructions,
            max_iterations=setup.max_iterations,
            approval=self.approvals,
            scrub=setup.scrub,
            config=setup.config,
        )

    async def run(self) -> None:
        """Talk until it is over."""
        await self.agent.__aenter__()
        try:
            await self._greet()
            if self.transcript.is_open:
                await self._interruptible(self._work(None))
            while not self.is_over and (line := await self._line()) is not None:
                await self._heard(line)
        finally:
            await self.agent.__aexit__()

    async def use_model(self, name: str) -> None:
        """Go on with another model, if there is such a one; else everything stays as it is."""
        before, self.setup = self.setup, structs.replace(self.setup, model=name)
        agent = self._agent()
        try:
            await agent.check()
        except BaseException:
            self.setup = before
            raise
        # What it has open, the other opens too: an MCP server is not there twice.
        await self.agent.__aexit__()
        self.agent = agent
        await agent.__aenter__()

    async def _greet(self) -> None:
        tools = await self.agent.tools()
        count = f"{len(tools)} tools" if len(tools) != 1 else "1 tool"
        model = self.setup.model or "the default model"
        mode = self.approvals.policy.autonomy
        self.display.say(f"{model}, {count}, approval: {mode}. /help lists the commands.", "dim")

    async def _line(self) -> str | None:
        while True:
            try:
                return await self._keyboard.line()
            except Interrupted:
                self.display.say("(Ctrl-D leaves)", "dim")

    async def _heard(self, line: str) -> None:
        if line.startswith("/"):
            await self._interruptible(obey(self, line))
        elif line.strip():
            await self._interruptible(self._work(line))

    async def _interruptible(self, work: Coroutine[Any, Any, None]) -> None:
        """Let somebody work. Ctrl-C ends that, and nothing else."""
        self._turn = asyncio.create_task(work)
        with _ctrl_c(self._turn):
            try:
                await self._turn
            except asyncio.CancelledError:
                self.display.say("(interrupted)", "yellow")
            except ModelFailed as problem:
                self.display.say(f"The model has failed: {problem}", "red")
            except Exception as problem:
                self.display.say(_told(problem), "red")
            finally:
                self.display.stop_waiting()
                self._turn = None

    async def _work(self, prompt: str | None) -> None:
        self.display.wait()
        async with aclosing(self.agent.stream(prompt, transcript=self.transcript)) as events:
            async for event in events:
                self.display.show(event)

    async def _approve(self, question: Question) -> Answer:
        self.display.stop_waiting()
        try:
            answer = answer_of(await self._said(question))
        except Interrupted:
            if self._turn:
                self._turn.cancel()
            return "no"
        if answer == "always" and question.can_last:
            self.display.say(f"{question.tool} is allowed for the rest of this session.", "yellow")
        return answer

    async def _said(self, question: Question) -> str:
        """What somebody says, who may want to see all of it first."""
        has_more = self.display.question(question)
        more = ", s)how all" if has_more else ""
        lasts = ", a)lways in this session" if question.can_last else ""
        words = f"y)es, n)o{lasts}{more}: "
        said = await self._keyboard.answer(words)
        while has_more and said.strip().lower() in ("s", "show"):
            self.display.question(question, whole=True)
            said = await self._keyboard.answer(words)
        return said


def _told(problem: Exception) -> str:
    """What has gone wrong. The talk goes on, whatever it is."""
    is_ours = isinstance(problem, (ToolspeakError, OSError)) and str(problem)
    return str(problem) if is_ours else f"{type(problem).__name__}: {problem}"


@contextmanager
def _ctrl_c(task: asyncio.Task[None]) -> Generator[None]:
    """While this lasts, Ctrl-C ends a task, and not the program."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, task.cancel)
    except (NotImplementedError, RuntimeError, ValueError):
        yield  # Windows, or not the main thread.
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
