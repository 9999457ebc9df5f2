"""What reads the command line of one command: its help is short, and it knows its own arguments."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any

_COLUMN = 28
"""Where it is said what an option does."""
_FORMS = {"?": "[{}]", "*": "[{} …]", "+": "{} …"}


class CommandParser(argparse.ArgumentParser):
    """The parser of one command."""

    def __init__(self, **settings: Any) -> None:
        self.actions: list[argparse.Action] = []
        """What may be said, in order."""
        settings["formatter_class"] = partial(argparse.HelpFormatter, max_help_position=_COLUMN)
        super().__init__(**settings)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        action = super().add_argument(*names, **settings)
        self.actions.append(action)
        return action

    def format_usage(self) -> str:
        return f"usage: {self.prog} {' '.join(self._words())}\n"

    def format_help(self) -> str:
        # The options are listed below: once is enough.
        self.usage = f"{self.prog} {' '.join(self._words())}".replace("%", "%%")
        return super().format_help()

    def _words(self) -> Iterator[str]:
        """Only what has to be said, or what it is about."""
        yield "[options]"
        for action in self.actions:
            name = str(action.metavar or action.dest.upper())
            if not action.option_strings:
                yield _FORMS.get(str(action.nargs), "{}").format(name)
            elif action.required:
                yield f"{action.option_strings[0]} {name}"
