"""Chat with a model that has tools, in the terminal."""

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
    parser.add_argument(
        "model", nargs="?", default="", help="the model as clients name it; default: the default"
    )
    add_config_arguments(parser)
    parser.add_argument("--files", type=Path, metavar="FOLDER", help="let it read this folder")
    parser.add_argument("--edit", action="store_true", help="let it change files in the folder")
    parser.add_argument("--shell", action="store_true", help="let it run commands, asking for each")
    parser.add_argument("--mcp", type=Path, metavar="CONFIG", help="a file of MCP servers to use")
    parser.add_argument(
        "--approve",
        choices=("full", "read_only", "ask"),
        default="ask",
        help="run every call, deny those that write, or ask (default)",
    )
    parser.add_argument(
        "--always-ask", action="append", default=[], metavar="TOOL", help="always ask for this tool"
    )
    parser.add_argument(
        "--auto-approve",
        action="append",
        default=[],
        metavar="TOOL",
        help="never ask for this tool",
    )
    parser.add_argument(
        "--inspector",
        nargs="?",
        const="",
        metavar="URL",
        help="ask in the inspector of a running gateway",
    )
    parser.add_argument(
        "--instructions", default="", metavar="TEXT", help="system instructions for the model"
    )
    parser.add_argument(
        "--max-iterations", type=int, default=10, metavar="N", help="most turns per line (10)"
    )
    parser.add_argument(
        "--scrub",
        choices=("model", "display", "both", "off"),
        default="model",
        help="who does not see secrets in tool results (default: the model)",
    )
    parser.add_argument(
        "--transcript", type=Path, metavar="FILE", help="keep the conversation in this file"
    )
    parser.add_argument(
        "--audit", type=Path, metavar="FILE", help="log every approval to this file"
    )


def run(options: argparse.Namespace) -> int:
    try:
        from ..agent.chat import ChatSession
    except ModuleNotFoundError as missing:
        needed = f"`toolspeak chat` needs {missing.name}"
        raise UsageError(f"{needed}: pip install 'toolspeak[agent,local]'") from None
    console = Console(highlight=False)
    session: ChatSession = _build_session(options, console)
    asyncio.run(session.run())
    return 0


def _build_session(options: argparse.Namespace, console: Console) -> Any:
    from ..agent import Approvals, Transcript, ask_in_inspector
    from ..agent.chat import ChatSession, ChatSettings, Display, Keyboard

    config = ConfigSource(options, Console(stderr=True, highlight=False)).read_config()
    settings = ChatSettings(
        model=options.model,
        tools=_build_tools(options),
        instructions=options.instructions,
        max_iterations=options.max_iterations,
        scrub=options.scrub,
        config=config,
    )
    transcript = Transcript(options.transcript)
    transcript.create_file()
    return ChatSession(
        settings,
        Approvals(
            _build_policy(options),
            None if options.inspector is None else ask_in_inspector(options.inspector or None),
            audit=options.audit,
            channel="chat" if options.inspector is None else "inspector",
        ),
        transcript,
        Display(console),
        Keyboard(_history_file()),
    )


def _build_policy(options: argparse.Namespace) -> Any:
    from ..agent import ApprovalPolicy

    return ApprovalPolicy(
        autonomy=options.approve,
        always_ask=tuple(options.always_ask),
        auto_approve=tuple(options.auto_approve),
    )


def _build_tools(options: argparse.Namespace) -> tuple[Any, ...]:
    """Return only the tools that the options allow."""
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


def _history_file() -> Path | None:
    try:
        return state_directory() / "history"
    except RuntimeError:
        # There is no home directory: the history lasts for this session only.
        return None
