"""A conversation at the terminal: lines in, an agent's work out, until somebody leaves."""

from __future__ import annotations

import asyncio
import difflib
import signal
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from msgspec import Struct, structs

from ...errors import ToolspeakError
from .. import (
    Agent,
    ApprovalAnswer,
    ApprovalRequest,
    Approvals,
    ModelFailed,
    Transcript,
    parse_answer,
)
from ..approvals import Autonomy
from ..secrets import ScrubMode
from .terminal import Display, Interrupted, Keyboard


class ChatSettings(Struct, frozen=True, kw_only=True):
    """What a session is made of."""

    model: str = ""
    """"" is the default one."""
    tools: tuple[Any, ...] = ()
    instructions: str = ""
    max_iterations: int = 10
    scrub: ScrubMode = "model"
    config: Any = None
    """A `Config`, which only the gateway's own modules need to know."""


class ChatSession:
    """One person, one agent, one conversation at a time."""

    def __init__(
        self,
        setup: ChatSettings,
        approvals: Approvals,
        transcript: Transcript,
        display: Display,
        keyboard: Keyboard,
    ) -> None:
        self.settings = setup
        self.approvals = approvals
        self.transcript = transcript
        self.display = display
        self._keyboard = keyboard
        self.is_over = False
        self._running_task: asyncio.Task[None] | None = None
        if keyboard.is_terminal and approvals.approver is None:
            approvals.approver = self._ask_user
        self.agent = self._create_agent()

    def _create_agent(self) -> Agent:
        setup = self.settings
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
            await self._show_greeting()
            if self.transcript.needs_reply:
                await self._run_interruptible(self._run_agent(None))
            while not self.is_over and (line := await self._read_line()) is not None:
                await self._handle_line(line)
        finally:
            await self.agent.__aexit__()

    async def use_model(self, name: str) -> None:
        """Go on with another model, if there is such a one; else everything stays as it is."""
        before, self.settings = self.settings, structs.replace(self.settings, model=name)
        agent = self._create_agent()
        try:
            await agent.check_model()
        except BaseException:
            self.settings = before
            raise
        # What it has open, the other opens too: an MCP server is not there twice.
        await self.agent.__aexit__()
        self.agent = agent
        await agent.__aenter__()

    async def _show_greeting(self) -> None:
        tools = await self.agent.list_tools()
        count = f"{len(tools)} tools" if len(tools) != 1 else "1 tool"
        model = self.settings.model or "the default model"
        mode = self.approvals.policy.autonomy
        self.display.print_line(
            f"{model}, {count}, approval: {mode}. /help lists the commands.", "dim"
        )

    async def _read_line(self) -> str | None:
        while True:
            try:
                return await self._keyboard.read_line()
            except Interrupted:
                self.display.print_line("(Ctrl-D leaves)", "dim")

    async def _handle_line(self, line: str) -> None:
        if line.startswith("/"):
            await self._run_interruptible(run_command(self, line))
        elif line.strip():
            await self._run_interruptible(self._run_agent(line))

    async def _run_interruptible(self, work: Coroutine[Any, Any, None]) -> None:
        """Let somebody work. Ctrl-C ends that, and nothing else."""
        self._running_task = asyncio.create_task(work)
        with _cancel_on_ctrl_c(self._running_task):
            try:
                await self._running_task
            except asyncio.CancelledError:
                self.display.print_line("(interrupted)", "yellow")
            except ModelFailed as problem:
                self.display.print_line(f"The model has failed: {problem}", "red")
            except Exception as problem:
                self.display.print_line(_describe_problem(problem), "red")
            finally:
                self.display.stop_waiting()
                self._running_task = None

    async def _run_agent(self, prompt: str | None) -> None:
        self.display.start_waiting()
        async with aclosing(self.agent.stream(prompt, transcript=self.transcript)) as events:
            async for event in events:
                self.display.show_event(event)

    async def _ask_user(self, question: ApprovalRequest) -> ApprovalAnswer:
        self.display.stop_waiting()
        try:
            answer = parse_answer(await self._prompt_user(question))
        except Interrupted:
            if self._running_task:
                self._running_task.cancel()
            return "no"
        if answer == "always" and question.can_always:
            self.display.print_line(
                f"{question.tool} is allowed for the rest of this session.", "yellow"
            )
        return answer

    async def _prompt_user(self, question: ApprovalRequest) -> str:
        """What somebody says, who may want to see all of it first."""
        has_more = self.display.show_question(question)
        more = ", s)how all" if has_more else ""
        lasts = ", a)lways in this session" if question.can_always else ""
        words = f"y)es, n)o{lasts}{more}: "
        said = await self._keyboard.read_answer(words)
        while has_more and said.strip().lower() in ("s", "show"):
            self.display.show_question(question, whole=True)
            said = await self._keyboard.read_answer(words)
        return said


def _describe_problem(problem: Exception) -> str:
    """What has gone wrong. The talk goes on, whatever it is."""
    is_ours = isinstance(problem, (ToolspeakError, OSError)) and str(problem)
    return str(problem) if is_ours else f"{type(problem).__name__}: {problem}"


@contextmanager
def _cancel_on_ctrl_c(task: asyncio.Task[None]) -> Generator[None]:
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


if TYPE_CHECKING:
    pass

_MODES: tuple[Autonomy, ...] = get_args(Autonomy)
_MODE_DESCRIPTIONS = {
    "full": "every call is made",
    "read_only": "what may change things is refused, all else is made",
    "ask": "you are asked, unless you have said always",
}


class ChatCommand(Struct, frozen=True):
    """A command, and what `/help` says of it."""

    usage: str
    description: str
    run: Callable[[ChatSession, str], Awaitable[None]]


async def run_command(session: ChatSession, line: str) -> None:
    """Do what a line says that begins with a slash."""
    name, _, rest = line[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"; did you mean /{near[0]}?" if near else ": /help lists them"
        session.display.print_line(f"There is no command /{name}{hint}", "yellow")
        return
    await command.run(session, rest.strip())


async def _show_help(session: ChatSession, _: str) -> None:
    session.display.print_table([(one.usage, one.description) for one in COMMANDS.values()])
    session.display.print_line("Ctrl-C interrupts the model or a tool, Ctrl-D leaves.", "dim")


async def _show_tools(session: ChatSession, _: str) -> None:
    tools = await session.agent.list_tools()
    if not tools:
        session.display.print_line("There are none. --files, --shell and --mcp bring some.")
    rows: list[tuple[str, str]] = []
    for tool in tools.values():
        known = session.approvals.decide_by_policy(tool)
        rule = "asks" if known is None else "allowed" if known.is_allowed else "refused"
        about = tool.tool.description.strip().partition("\n")[0]
        rows.append((tool.name, f"[{rule}] {about}"))
    session.display.print_table(rows)


async def _set_mode(session: ChatSession, wanted: str) -> None:
    approvals = session.approvals
    chosen = next((one for one in _MODES if one == wanted), None)
    if wanted and chosen is None:
        session.display.print_line(f"Expected one of {', '.join(_MODES)}, got {wanted!r}", "yellow")
        return
    if chosen:
        approvals.policy = structs.replace(approvals.policy, autonomy=chosen)
    now = approvals.policy.autonomy
    session.display.print_line(f"{now}: {_MODE_DESCRIPTIONS[now]}")
    if approvals.always_allowed and now == "ask":
        session.display.print_line(
            f"always in this session: {', '.join(sorted(approvals.always_allowed))}"
        )


async def _set_model(session: ChatSession, name: str) -> None:
    if name:
        session.display.start_waiting()
        try:
            await session.use_model(name)
        finally:
            session.display.stop_waiting()
    session.display.print_line(f"The model is {session.settings.model or 'the default one'}.")


async def _save_transcript(session: ChatSession, name: str) -> None:
    path = Path(name).expanduser() if name else session.transcript.path
    if path is None:
        session.display.print_line("Where to? /save FILE", "yellow")
        return
    if path != session.transcript.path:
        if path.exists():
            session.display.print_line(f"{path} exists already: it is left as it is", "yellow")
            return
        session.transcript = Transcript(path, session.transcript.messages)
    session.transcript.create_file()
    said = f"The conversation is in {path}, and so will be what follows."
    session.display.print_line(f"{said} `toolspeak chat --transcript {path}` goes on with it.")


async def _start_new(session: ChatSession, _: str) -> None:
    session.transcript = Transcript()
    session.display.print_line("A new conversation.")


async def _quit(session: ChatSession, _: str) -> None:
    session.is_over = True


COMMANDS = {
    "help": ChatCommand("/help", "this list", _show_help),
    "tools": ChatCommand("/tools", "the tools, and which of them need your approval", _show_tools),
    "mode": ChatCommand("/mode [full|read_only|ask]", "what is done without asking you", _set_mode),
    "model": ChatCommand("/model [NAME]", "the model, or another one", _set_model),
    "save": ChatCommand(
        "/save [FILE]", "write the conversation down, and go on doing so", _save_transcript
    ),
    "clear": ChatCommand("/clear", "begin a new conversation", _start_new),
    "quit": ChatCommand("/quit", "leave", _quit),
}
