"""Chat with a model that can use tools, in the terminal."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from .._util import state_directory
from ..errors import UsageError
from .terminal import (
    ConfigSource,
    add_config_arguments,
    open_status_console,
    parse_count,
)

if TYPE_CHECKING:
    from ..agent import Approvals


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="?", default="", help="the model's name (default: the default model)"
    )
    add_config_arguments(parser)
    parser.add_argument(
        "--files", type=Path, metavar="FOLDER", help="let the model read this folder"
    )
    parser.add_argument(
        "--edit", action="store_true", help="let the model change files in the folder"
    )
    parser.add_argument("--shell", action="store_true", help="let the model run shell commands")
    parser.add_argument(
        "--mcp", type=Path, metavar="FILE", help="use the MCP servers that this file lists"
    )
    _add_approval_arguments(parser)
    parser.add_argument(
        "--instructions", default="", metavar="TEXT", help="system instructions for the model"
    )
    parser.add_argument(
        "--max-iterations",
        type=parse_count,
        default=10,
        metavar="N",
        help="limit the model's turns per message (default: 10)",
    )
    parser.add_argument(
        "--scrub",
        choices=("model", "display", "both", "off"),
        default="model",
        help="mask secrets in tool results for the model, on the display, or both (default: model)",
    )
    parser.add_argument(
        "--transcript",
        type=Path,
        metavar="FILE",
        help="save the conversation in this file, and continue it",
    )


def _add_approval_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--approve",
        choices=("full", "read_only", "ask"),
        default="ask",
        help="run every call, deny calls that write, or ask (default: ask)",
    )
    parser.add_argument(
        "--always-ask",
        action="append",
        default=[],
        metavar="TOOL",
        help="ask before each call of this tool",
    )
    parser.add_argument(
        "--auto-approve",
        action="append",
        default=[],
        metavar="TOOL",
        help="never ask before a call of this tool",
    )
    parser.add_argument(
        "--inspector",
        nargs="?",
        const="",
        metavar="URL",
        help="ask for approval in a gateway's inspector",
    )
    parser.add_argument(
        "--audit", type=Path, metavar="FILE", help="log every approval to this file"
    )


def run(options: argparse.Namespace) -> int:
    from ..agent import Transcript
    from ..agent.chat import ChatSession, ChatSettings, Display, Keyboard

    settings = ChatSettings(
        model=options.model,
        tools=_build_tools(options),
        instructions=options.instructions,
        max_iterations=options.max_iterations,
        scrub=options.scrub,
        config=ConfigSource(options, open_status_console()).read_config(),
    )
    transcript = Transcript.load(options.transcript)
    transcript.create_file()
    session = ChatSession(
        settings,
        _build_approvals(options),
        transcript,
        Display(Console(highlight=False)),
        Keyboard(_history_file()),
    )
    asyncio.run(session.run())
    return 0


def _build_approvals(options: argparse.Namespace) -> Approvals:
    from ..agent import ApprovalPolicy, Approvals, ask_in_inspector, open_audit_log

    policy = ApprovalPolicy(
        autonomy=options.approve,
        always_ask=tuple(options.always_ask),
        auto_approve=tuple(options.auto_approve),
    )
    audit = open_audit_log(options.audit) if options.audit else None
    if options.inspector is None:
        return Approvals(policy, None, audit=audit, channel="chat")
    approver = ask_in_inspector(options.inspector or None)
    return Approvals(policy, approver, audit=audit, channel="inspector")


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
