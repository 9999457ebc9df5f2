"""A chat session: reads lines, runs the agent or a slash command, and shows the events."""

from __future__ import annotations

import asyncio
import difflib
import signal
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from . import Agent, ApprovalAnswer, ApprovalRequest, ModelFailed, Transcript, parse_answer
from .approvals import Autonomy, is_answer
from .chat_terminal import Display, Interrupted, Keyboard
from .execution import describe_error

_MODES: dict[Autonomy, str] = {
    "full": "calls run without asking, except those that need a secret or repeat a tool result, "
    "and shell commands",
    "read_only": "calls that could change something are denied; others run as under full",
    "ask": "you are asked before each call, unless you have answered 'always' for its tool",
}


class ChatSession:
    """One user, one agent, one conversation at a time."""

    def __init__(
        self, agent: Agent, transcript: Transcript, display: Display, keyboard: Keyboard
    ) -> None:
        self.agent = agent
        self.transcript = transcript
        self.display = display
        self.is_over = False
        self._keyboard = keyboard
        self._running_task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Read and handle lines until the user leaves."""
        if self._keyboard.is_terminal and self.agent.approvals.approver is None:
            self.agent.approvals.approver = self._ask_user
        async with self.agent:
            await self._open_model()
            await self._show_greeting()
            if self.transcript.needs_reply:
                await self._run_interruptible(self._run_agent(None))
            while not self.is_over and (line := await self._read_line()) is not None:
                if line.startswith("/"):
                    await self._run_interruptible(run_command(self, line))
                elif line.strip():
                    await self._run_interruptible(self._run_agent(line))

    async def _open_model(self) -> None:
        """Connect to the model, so that one that does not exist is an error before the prompt."""
        if isinstance(self.agent.model, str):
            self.display.start_waiting()
            try:
                await self.agent.use_model(self.agent.model)
            finally:
                self.display.stop_waiting()

    async def _show_greeting(self) -> None:
        tools = await self.agent.list_tools()
        count = f"{len(tools)} tools" if len(tools) != 1 else "1 tool"
        model = self.agent.model or "default model"
        mode = self.agent.approvals.policy.autonomy
        self.display.print_line(
            f"{model}, {count}, approval: {mode}. Type /help for commands.", "dim"
        )

    async def _read_line(self) -> str | None:
        while True:
            try:
                return await self._keyboard.read_line()
            except Interrupted:
                self.display.print_line("(press Ctrl-D to leave)", "dim")

    async def _run_interruptible(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that Ctrl-C interrupts. Errors are shown and the session continues."""
        self._running_task = asyncio.create_task(work)
        with _cancel_on_ctrl_c(self._running_task):
            try:
                await self._running_task
            except asyncio.CancelledError:
                self.display.print_line("(interrupted)", "yellow")
            except Exception as problem:
                prefix = "The model failed: " if isinstance(problem, ModelFailed) else ""
                self.display.print_line(prefix + describe_error(problem), "red")
            finally:
                self.display.stop_waiting()
                self._running_task = None

    async def _run_agent(self, prompt: str | None) -> None:
        self.display.start_waiting()
        async with aclosing(self.agent.stream(prompt, transcript=self.transcript)) as events:
            async for event in events:
                self.display.show_event(event)

    async def _ask_user(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Ask the user to approve a call. Ctrl-C means no, and ends the turn."""
        self.display.stop_waiting()
        try:
            typed = await self._prompt_user(request)
        except Interrupted:
            if self._running_task:
                self._running_task.cancel()
            return "no"
        answer = parse_answer(typed)
        if not is_answer(typed):
            self.display.print_line(
                f"{typed.strip()!r} is neither yes nor no: it counts as no.", "yellow"
            )
        if answer == "always" and request.can_always:
            self.display.print_line(
                f"{request.tool} is allowed for the rest of this session.", "yellow"
            )
        return answer

    async def _prompt_user(self, request: ApprovalRequest) -> str:
        """Show a request and return the typed answer. The user may first show all of it."""
        is_shortened = self.display.show_question(request)
        always = ", [a]lways in this session" if request.can_always else ""
        show = ", [s]how all" if is_shortened else ""
        prompt = f"[y]es, [n]o{always}{show}: "
        typed = await self._keyboard.read_answer(prompt)
        while is_shortened and typed.strip().lower() in ("s", "show"):
            self.display.show_question(request, whole=True)
            typed = await self._keyboard.read_answer(prompt)
        return typed


@contextmanager
def _cancel_on_ctrl_c(task: asyncio.Task[None]) -> Generator[None]:
    """Let Ctrl-C cancel a task instead of ending the program."""
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


# Slash commands. A new command is a function and a row of COMMANDS.


class ChatCommand(Struct, frozen=True):
    usage: str
    description: str
    run: Callable[[ChatSession, str], Awaitable[None]]


async def run_command(session: ChatSession, line: str) -> None:
    """Run a line that begins with a slash."""
    name, _, argument = line[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        similar = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"; did you mean /{similar[0]}?" if similar else "; type /help for a list"
        session.display.print_line(f"There is no command /{name}{hint}", "yellow")
        return
    await command.run(session, argument.strip())


async def _show_help(session: ChatSession, _: str) -> None:
    session.display.print_table([(one.usage, one.description) for one in COMMANDS.values()])
    session.display.print_line("Ctrl-C interrupts the model or a tool, Ctrl-D leaves.", "dim")


async def _show_tools(session: ChatSession, _: str) -> None:
    tools = await session.agent.list_tools()
    if not tools:
        session.display.print_line(
            "There are no tools. Restart with --files, --shell or --mcp to add some."
        )
    rows: list[tuple[str, str]] = []
    for tool in tools.values():
        decision = session.agent.approvals.decide_by_policy(tool)
        rule = "asks" if decision is None else "allowed" if decision.is_allowed else "denied"
        description = tool.tool.description.strip().partition("\n")[0]
        rows.append((tool.name, f"[{rule}] {description}"))
    session.display.print_table(rows)


async def _set_mode(session: ChatSession, argument: str) -> None:
    approvals = session.agent.approvals
    chosen = next((one for one in _MODES if one == argument), None)
    if argument and chosen is None:
        session.display.print_line(
            f"There is no mode {argument!r}: choose one of {', '.join(_MODES)}", "yellow"
        )
        return
    if chosen:
        approvals.policy = structs.replace(approvals.policy, autonomy=chosen)
    mode = approvals.policy.autonomy
    session.display.print_line(f"{mode}: {_MODES[mode]}")
    if approvals.always_allowed and mode == "ask":
        allowed = ", ".join(approvals.always_allowed)
        session.display.print_line(f"always allowed in this session: {allowed}")


async def _set_model(session: ChatSession, name: str) -> None:
    if name:
        session.display.start_waiting()
        try:
            await session.agent.use_model(name)
        finally:
            session.display.stop_waiting()
    session.display.print_line(f"The model is {session.agent.model or 'the default model'}.")


async def _save_transcript(session: ChatSession, name: str) -> None:
    path = Path(name).expanduser() if name else session.transcript.path
    if path is None:
        session.display.print_line("Name a file: /save FILE", "yellow")
        return
    if path != session.transcript.path:
        if path.exists():
            session.display.print_line(
                f"{path} already exists; nothing was saved. Name another file.", "yellow"
            )
            return
        messages = session.transcript.messages
        session.transcript = Transcript(path)
        for message in messages:
            session.transcript.add(message)
    session.transcript.create_file()
    session.display.print_line(
        f"Saved to {path}; new messages are added to it. "
        f"Continue later with `toolspeak chat --transcript {path}`."
    )


async def _start_new(session: ChatSession, _: str) -> None:
    session.transcript = Transcript()
    session.display.print_line("New conversation.")


async def _quit(session: ChatSession, _: str) -> None:
    session.is_over = True


COMMANDS = {
    "help": ChatCommand("/help", "list the commands", _show_help),
    "tools": ChatCommand("/tools", "list the tools and their approval", _show_tools),
    "mode": ChatCommand("/mode [full|read_only|ask]", "show or set the approval mode", _set_mode),
    "model": ChatCommand("/model [NAME]", "show or change the model", _set_model),
    "save": ChatCommand(
        "/save [FILE]", "save the conversation, now and from here on", _save_transcript
    ),
    "clear": ChatCommand("/clear", "start a new conversation", _start_new),
    "quit": ChatCommand("/quit", "leave", _quit),
}
