"""The command line: one module for each command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from .. import __version__
from ..errors import ToolspeakError
from . import (
    chat,
    check,
    convert,
    dialects,
    eval,  # noqa: A004 - its command
    mcp,
    parse,
    probe,
    providers,
    render,
    run,
    scrub,
    serve,
)

_INTERRUPTED = 130
"""The exit code after Ctrl-C."""
COMMANDS = (
    *(
        chat,
        check,
        convert,
        dialects,
        eval,
        mcp,
        parse,
        probe,
        providers,
        render,
        run,
        scrub,
        serve,
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="toolspeak", description="Reliable tool calling for any chat model, for any client."
    )
    parser.add_argument("--version", action="version", version=f"toolspeak {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        name = command.__name__.rpartition(".")[2]
        summary = (command.__doc__ or "").strip().partition("\n")[0]
        subparser = commands.add_parser(name, help=summary, description=summary)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
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
        print(f"toolspeak: {error}", file=sys.stderr)
        return 2
