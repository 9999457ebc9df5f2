"""Chat with a model that can use tools, in the terminal."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from rich.console import Console

from .._util import state_directory
from ..agent import (
    Agent,
    ApprovalPolicy,
    Approvals,
    Transcript,
    ask_in_inspector,
    load_servers,
    open_audit_log,
)
from ..agent.chat_session import ChatSession
from ..agent.chat_terminal import Display, Keyboard
from ..agent.workspace import SHELL, workspace_tools
from ..errors import UsageError
from .arguments import CommandParser
from .terminal import ConfigSource, open_status_console


def add_arguments(parser: CommandParser) -> None:
    parser.add_model()
    parser.add_config()
    parser.add_file("--files", "let the model read this folder", "FOLDER")
    parser.add_flag("--edit", "let the model change files in the folder")
    parser.add_flag("--shell", "let the model run shell commands")
    parser.add_file("--mcp", "use the MCP servers that this file lists")
    _add_approval_arguments(parser)
    parser.add("--instructions", "system instructions for the model", default="", metavar="TEXT")
    parser.add_count("--max-iterations", "at most N tool turns per message", 10)
    parser.add_choice(
        "--scrub",
        ("model", "display", "both", "off"),
        "scrub secrets in tool results for the model, the display or both; off scrubs none",
    )
    parser.add_file("--transcript", "save the conversation in this file; if it exists, continue it")


def _add_approval_arguments(parser: CommandParser) -> None:
    parser.add_choice(
        "--approve",
        ("ask", "read_only", "full"),
        "read_only denies calls that write, full runs most calls without asking",
    )
    for name, text in (
        (
            "--always-ask",
            "if --approve is ask: never run this tool unasked",
        ),
        ("--auto-approve", "if --approve is ask: run this tool without asking"),
    ):
        parser.add(name, text, action="append", default=[], metavar="TOOL")
    parser.add(
        "--inspector",
        "ask for approval in a gateway's inspector",
        nargs="?",
        const="",
        metavar="URL",
    )
    parser.add_file("--audit", "write every approval decision to this file")


def run(options: argparse.Namespace) -> int:
    agent = Agent(
        options.model,
        _build_tools(options),
        options.instructions,
        max_iterations=options.max_iterations,
        approval=_build_approvals(options),
        scrub=options.scrub,
        config=ConfigSource(options, open_status_console()).read_config(),
    )
    transcript = Transcript.load(options.transcript)
    transcript.create_file()
    display, keyboard = Display(Console(highlight=False)), Keyboard(_history_file())
    asyncio.run(ChatSession(agent, transcript, display, keyboard).run())
    return 0


def _build_approvals(options: argparse.Namespace) -> Approvals:
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
    if options.edit and not options.files:
        raise UsageError("--edit needs --files FOLDER")
    tools: list[Any] = []
    if options.files or options.shell:
        folder = options.files or Path()
        found = workspace_tools(folder, writes=options.edit, shell=options.shell)
        tools += [one for one in found if options.files or one.name == SHELL]
    if options.mcp:
        tools += load_servers(options.mcp)
    return tuple(tools)


def _history_file() -> Path | None:
    try:
        return state_directory() / "history"
    except RuntimeError:
        # There is no home directory: the history lasts for this session only.
        return None
