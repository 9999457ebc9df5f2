"""The arguments of a command: its parser, and the kinds of options that the commands share."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

STDIN = Path("-")
"""Stands for standard input, or standard output, where a command expects a file."""
INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells expect it."""
_HELP_COLUMN = 28
_USAGE_FORMS = {"?": "[{}]", "*": "[{} …]", "+": "{} …"}


class CommandParser(argparse.ArgumentParser):
    """The parser of one command: a short usage line, and a list of the command's arguments."""

    def __init__(self, **settings: Any) -> None:
        self.actions: list[argparse.Action] = []
        settings["formatter_class"] = partial(
            argparse.HelpFormatter, max_help_position=_HELP_COLUMN
        )
        super().__init__(**settings)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        action = super().add_argument(*names, **settings)
        if not (action.option_strings or action.metavar or action.choices):
            action.metavar = action.dest.upper()
        self.actions.append(action)
        return action

    # Kinds of arguments.

    def add(self, name: str, text: str, **settings: Any) -> None:
        """Add an argument with its help text."""
        self.add_argument(name, help=text, **settings)

    def add_flag(self, name: str, text: str) -> None:
        self.add(name, text, action="store_true")

    def add_file(self, name: str, text: str, metavar: str = "FILE") -> None:
        self.add(name, text, type=Path, metavar=metavar)

    def add_choice(self, name: str, choices: Sequence[str], text: str) -> None:
        """Add an option with a few possible values, of which the first is the default."""
        default = choices[0]
        self.add(name, f"{text} (default: {default})", choices=choices, default=default)

    def add_count(
        self, name: str, text: str, default: int | None = None, metavar: str = "N", least: int = 1
    ) -> None:
        if default is not None:
            text = f"{text} (default: {default})"
        kind = partial(parse_count, least=least)
        self.add(name, text, type=kind, default=default, metavar=metavar)

    # Arguments that several commands have.

    def add_input(self, text: str) -> None:
        """Add the file that the command reads."""
        self.add("file", f"{text} (default: standard input)", nargs="?", type=Path, default=STDIN)

    def add_model(self) -> None:
        text = "the model (default: the configured or a local one)"
        self.add("model", text, nargs="?", default="")

    def add_config(self) -> None:
        """Add the options that select the configuration and the embedded model."""
        self.add_file("--config", "the configuration (default: toolspeak.toml)")
        self.add_file("--gguf", "run this model file as the embedded model")
        self.add(
            "--embedded",
            "turn the embedded model on or off (default: on with --gguf, or if no upstream is "
            "configured)",
            action=argparse.BooleanOptionalAction,
        )

    def build_usage(self) -> str:
        """Return a usage line without the options, which the help lists below it."""
        return f"{self.prog} {' '.join(self._list_usage_words())}".replace("%", "%%")

    def _list_usage_words(self) -> Iterator[str]:
        yield "[options]"
        for action in self.actions:
            name = str(action.metavar or action.dest.upper())
            if not action.option_strings:
                yield _USAGE_FORMS.get(str(action.nargs), "{}").format(name)
            elif action.required:
                yield f"{action.option_strings[0]} {name}"


def format_error(error: Exception) -> str:
    """Return the message of an error; if a file caused it, the file's name and the reason."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def parse_count(text: str, least: int = 1) -> int:
    """Parse an option's value that must be a whole number."""
    # int() limits the length of its input, and accepts other digits and underscores.
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) >= least):
        raise argparse.ArgumentTypeError(
            f"expected a whole number of at least {least}, got {text!r}"
        )
    return int(text)
