"""Talk to a model that has tools, in the terminal."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from rich.console import Console

from .._util import state_directory
from ..errors import UsageError
from .serve import ConfigSource, add_config_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", default="", help="as clients name it; or the default")
    add_config_arguments(parser)
    parser.add_argument("--files", type=Path, metavar="FOLDER", help="let it read a folder")
    parser.add_argument("--edit", action="store_true", help="let it change files there, too")
    parser.add_argument("--shell", action="store_true", help="let it run commands, each if you say")
    parser.add_argument("--mcp", type=Path, metavar="CONFIG", help="servers that have more tools")
    parser.add_argument(
        "--approve",
        choices=("full", "read_only", "ask"),
        default="ask",
        help="make all calls, refuse those that write, or ask",
    )
    parser.add_argument(
        "--always-ask", action="append", default=[], metavar="TOOL", help="ask in any case"
    )
    parser.add_argument(
        "--auto-approve", action="append", default=[], metavar="TOOL", help="do not ask"
    )
    parser.add_argument(
        "--inspector",
        nargs="?",
        const="",
        metavar="URL",
        help="ask in the inspector of a gateway that runs, and not here",
    )
    parser.add_argument(
        "--instructions", default="", metavar="TEXT", help="what the model is told first"
    )
    parser.add_argument(
        "--max-iterations", type=int, default=10, metavar="N", help="turns for one line"
    )
    parser.add_argument(
        "--scrub",
        choices=("model", "display", "both", "off"),
        default="model",
        help="from whom secrets in results are kept",
    )
    parser.add_argument(
        "--transcript", type=Path, metavar="FILE", help="where the conversation is kept"
    )
    parser.add_argument(
        "--audit", type=Path, metavar="FILE", help="where every approval is written down"
    )


def run(options: argparse.Namespace) -> int:
    try:
        from ..agent.chat import ChatSession
    except ModuleNotFoundError as missing:
        needed = f"the agent needs {missing.name}"
        raise UsageError(f"{needed}: pip install 'toolspeak[agent,local]'") from None
    console = Console(highlight=False)
    session: ChatSession = _session(options, console)
    asyncio.run(session.run())
    return 0


def _session(options: argparse.Namespace, console: Console) -> Any:
    from ..agent import Approvals, Transcript, ask_in_inspector
    from ..agent.chat import ChatSession, ChatSettings, Display, Keyboard

    config = ConfigSource(options, Console(stderr=True, highlight=False)).read_config()
    setup = ChatSettings(
        model=options.model,
        tools=_tools(options),
        instructions=options.instructions,
        max_iterations=options.max_iterations,
        scrub=options.scrub,
        config=config,
    )
    transcript = Transcript(options.transcript)
    transcript.create_file()
    return ChatSession(
        setup,
        Approvals(
            _policy(options),
            None if options.inspector is None else ask_in_inspector(options.inspector or None),
            audit=options.audit,
            channel="chat" if options.inspector is None else "inspector",
        ),
        transcript,
        Display(console),
        Keyboard(_history()),
    )


def _policy(options: argparse.Namespace) -> Any:
    from ..agent import ApprovalPolicy

    return ApprovalPolicy(
        autonomy=options.approve,
        always_ask=tuple(options.always_ask),
        auto_approve=tuple(options.auto_approve),
    )


def _tools(options: argparse.Namespace) -> tuple[Any, ...]:
    """Nothing is there that was not allowed."""
    from ..agent.workspace import SHELL, workspace_tools

    if options.edit and not options.files:
        raise UsageError("--edit needs --files FOLDER")
    tools: list[Any] = []
    if options.files or options.shell:
        folder = options.files or Path()
        found = workspace_tools(folder, writes=options.edit, shell=options.shell)
        tools += [one for one in found if options.files or one.name == SHELL]
    if options.mcp:
        from ..agent.mcp import load_servers

        tools += load_servers(options.mcp)
    return tuple(tools)


def _history() -> Path | None:
    try:
        return state_directory() / "history"
    except RuntimeError:
        # Nobody's home: what is typed is remembered for this time only.
        return None
