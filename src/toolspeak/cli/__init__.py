"""The command line: one module per command, each with `add_arguments` and `run`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from io import TextIOWrapper
from types import ModuleType

from .. import __version__
from .._util import escape_for_terminal
from ..errors import ToolspeakError
from .arguments import INTERRUPTED, CommandParser, format_error

COMMANDS = (
    *("chat", "check", "completion", "convert", "dialects", "eval", "explain", "mcp", "parse"),
    *("probe", "providers", "render", "run", "scrub", "serve"),
)
_EXTRAS = {
    "chat": "agent,local",
    "check": "gateway",
    "eval": "gateway,local",
    "mcp": "agent",
    "probe": "gateway,local",
    "serve": "gateway,local",
}
"""The optional dependencies that a command needs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    # Importing all commands would take longer than most of them run.
    parser, _ = build_parser(tuple(words[:1]) if words and words[0] in COMMANDS else COMMANDS)
    options = parser.parse_args(words)
    if isinstance(sys.stdout, TextIOWrapper):
        # Escape characters that the terminal's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return options.module.run(options)
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except ModuleNotFoundError as missing:
        return _report_missing_package(words[0], missing)
    except (ToolspeakError, OSError) as error:
        # The message may quote an upstream.
        print(f"toolspeak: {escape_for_terminal(format_error(error))}", file=sys.stderr)
        return 2


def _report_missing_package(command: str, missing: ModuleNotFoundError) -> int:
    if command not in _EXTRAS:
        raise missing
    advice = f"pip install 'toolspeak[{_EXTRAS[command]}]'"
    print(f"toolspeak: `toolspeak {command}` needs {missing.name}: {advice}", file=sys.stderr)
    return 2


def build_parser(
    names: Sequence[str] = COMMANDS,
) -> tuple[argparse.ArgumentParser, dict[str, CommandParser]]:
    """Return the parser of a command line with these commands, and those of the commands."""
    modules = {name: import_module(f"{__name__}.{name}") for name in names}
    parser = argparse.ArgumentParser(
        prog="toolspeak",
        usage="toolspeak [-h] [--version] COMMAND …",
        description="\n".join(_list_commands(modules)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"toolspeak {__version__}")
    # The description lists the commands, one per line; argparse's own list would wrap some.
    subparsers = parser.add_subparsers(
        required=True, metavar="COMMAND", help=argparse.SUPPRESS, parser_class=CommandParser
    )
    commands: dict[str, CommandParser] = {}
    for name, command in modules.items():
        summary = _get_summary(command)
        # Without `prog`, argparse would derive the program's name from the usage above.
        added = subparsers.add_parser(
            name, prog=f"toolspeak {name}", help=summary, description=summary
        )
        command.add_arguments(added)
        added.usage = added.build_usage()
        added.set_defaults(module=command)
        commands[name] = added
    return parser, commands


def _list_commands(modules: Mapping[str, ModuleType]) -> Iterator[str]:
    yield "Reliable tool calling for any chat model, for any client."
    yield ""
    for name, command in modules.items():
        yield f"  {name:<11} {_get_summary(command)}"


def _get_summary(command: ModuleType) -> str:
    """Return the first line of the command's docstring."""
    return (command.__doc__ or "").strip().partition("\n")[0]
