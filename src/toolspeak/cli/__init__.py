"""The command line: one module for each command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from types import ModuleType

from .. import __version__
from .._util import escape_for_terminal
from ..errors import ToolspeakError
from . import (
    chat,
    check,
    completion,
    convert,
    dialects,
    eval,  # noqa: A004 - the name of a command
    explain,
    mcp,
    parse,
    probe,
    providers,
    render,
    run,
    scrub,
    serve,
)
from .parser import CommandParser

_INTERRUPTED = 130
"""The exit code after Ctrl-C."""
COMMANDS = (
    *(chat, check, completion, convert, dialects, eval, explain, mcp, parse, probe, providers),
    *(render, run, scrub, serve),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    parser, _ = build_parser()
    options = parser.parse_args(arguments)
    if isinstance(sys.stdout, TextIOWrapper):
        # A terminal that lacks a letter shows its number instead.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return options.run(options)
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (ToolspeakError, OSError) as error:
        # A server may have said what is wrong.
        print(f"toolspeak: {escape_for_terminal(str(error))}", file=sys.stderr)
        return 2


def build_parser() -> tuple[argparse.ArgumentParser, dict[str, CommandParser]]:
    """What reads the command line, and what reads that of each command."""
    parser = argparse.ArgumentParser(
        prog="toolspeak",
        usage="toolspeak [-h] [--version] COMMAND …",
        description="\n".join(_overview()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"toolspeak {__version__}")
    # The overview has a line for each command; argparse would make two of some.
    added = parser.add_subparsers(
        required=True, metavar="COMMAND", help=argparse.SUPPRESS, parser_class=CommandParser
    )
    commands: dict[str, CommandParser] = {}
    for command in COMMANDS:
        name = _name(command)
        # The program's name is told, or argparse would make one of the usage above.
        about = _summary(command)
        made = added.add_parser(name, prog=f"toolspeak {name}", help=about, description=about)
        command.add_arguments(made)
        made.set_defaults(run=command.run)
        commands[name] = made
    return parser, commands


def _overview() -> Iterator[str]:
    yield "Reliable tool calling for any chat model, for any client."
    yield ""
    for command in COMMANDS:
        yield f"  {_name(command):<11} {_summary(command)}"


def _name(command: ModuleType) -> str:
    return command.__name__.rpartition(".")[2]


def _summary(command: ModuleType) -> str:
    """What it does, in a line: the first of its docstring."""
    return (command.__doc__ or "").strip().partition("\n")[0]
