"""What a line does that begins with a slash. A new command is one row."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from msgspec import Struct, structs

from .. import Transcript
from ..approvals import Autonomy

if TYPE_CHECKING:
    from .session import Session

_AUTONOMIES: tuple[Autonomy, ...] = get_args(Autonomy)
_MODES = {
    "full": "every call is made",
    "read_only": "what may change things is refused, all else is made",
    "ask": "you are asked, unless you have said always",
}


class Command(Struct, frozen=True):
    """A command, and what `/help` says of it."""

    usage: str
    about: str
    run: Callable[[Session, str], Awaitable[None]]


async def obey(session: Session, line: str) -> None:
    """Do what a line says that begins with a slash."""
    name, _, rest = line[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"; did you mean /{near[0]}?" if near else ": /help lists them"
        session.display.say(f"There is no command /{name}{hint}", "yellow")
        return
    await command.run(session, rest.strip())


async def _help(session: Session, _: str) -> None:
    session.display.table([(one.usage, one.about) for one in COMMANDS.values()])
    session.display.say("Ctrl-C interrupts the model or a tool, Ctrl-D leaves.", "dim")


async def _tools(session: Session, _: str) -> None:
    tools = await session.agent.tools()
    if not tools:
        session.display.say("There are none. --files, --shell and --mcp bring some.")
    rows: list[tuple[str, str]] = []
    for tool in tools.values():
        known = session.approvals.known(tool)
        rule = "asks" if known is None else "allowed" if known.is_allowed else "refused"
        about = tool.tool.description.strip().partition("\n")[0]
        rows.append((tool.name, f"[{rule}] {about}"))
    session.display.table(rows)


async def _mode(session: Session, wanted: str) -> None:
    approvals = session.approvals
    chosen = next((one for one in _AUTONOMIES if one == wanted), None)
    if wanted and chosen is None:
        session.display.say(f"Expected one of {', '.join(_AUTONOMIES)}, got {wanted!r}", "yellow")
        return
    if chosen:
        approvals.policy = structs.replace(approvals.policy, autonomy=chosen)
    now = approvals.policy.autonomy
    session.display.say(f"{now}: {_MODES[now]}")
    if approvals.always and now == "ask":
        session.display.say(f"always in this session: {', '.join(sorted(approvals.always))}")


async def _model(session: Session, name: str) -> None:
    if name:
        session.display.wait()
        try:
            await session.use_model(name)
        finally:
            session.display.stop_waiting()
    session.display.say(f"The model is {session.setup.model or 'the default one'}.")


async def _save(session: Session, name: str) -> None:
    path = Path(name).expanduser() if name else session.transcript.path
    if path is None:
        session.display.say("Where to? /save FILE", "yellow")
        return
    if path != session.transcript.path:
        if path.exists():
            session.display.say(f"{path} exists already: it is left as it is", "yellow")
            return
        session.transcript = Transcript(path, session.transcript.messages)
    session.transcript.save()
    said = f"The conversation is in {path}, and so will be what follows."
    session.display.say(f"{said} `toolspeak chat --transcript {path}` goes on with it.")


async def _clear(session: Session, _: str) -> None:
    session.transcript = Transcript()
    session.display.say("A new conversation.")


async def _quit(session: Session, _: str) -> None:
    session.is_over = True


COMMANDS = {
    "help": Command("/help", "this list", _help),
    "tools": Command("/tools", "the tools, and which of them need your approval", _tools),
    "mode": Command("/mode [full|read_only|ask]", "what is done without asking you", _mode),
    "model": Command("/model [NAME]", "the model, or another one", _model),
    "save": Command("/save [FILE]", "write the conversation down, and go on doing so", _save),
    "clear": Command("/clear", "begin a new conversation", _clear),
    "quit": Command("/quit", "leave", _quit),
}
