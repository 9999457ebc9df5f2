"""Print a completion script for bash, zsh or fish.

    eval "$(toolspeak completion bash)"         in ~/.bashrc; zsh: in ~/.zshrc, after compinit
    toolspeak completion fish | source          in ~/.config/fish/config.fish

The script contains every command, option and value: completing a word starts no Python, which would
take half a second.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

import shtab

from ..config.providers import PROVIDERS
from ..dialects import DIALECTS
from ..types import ToolsMode
from ..wires import WIRES
from . import build_parser
from .arguments import CommandParser
from .run import RUNNABLE

VALUES: Mapping[str, Sequence[str]] = {
    "command": [*RUNNABLE],
    "dialect": ["auto", *DIALECTS],
    "model": ["embedded", *(f"{name}/" for name in PROVIDERS)],
    "modes": get_args(ToolsMode),
    "name": [*DIALECTS],
    "source": [*WIRES],
    "target": [*WIRES],
}
"""Values for arguments that declare no `choices`, by the argument's name."""
SHELLS = ("bash", "zsh", "fish")
_BASH_WRAPPER = """
_toolspeak() {
  local word words=()
  for word in "${COMP_WORDS[@]:0:COMP_CWORD}"; do
    [[ $word == -- ]] && return  # The rest is for another program.
    [[ $word == = ]] || words+=("$word")  # bash splits --option=value into three words.
  done
  word=${COMP_WORDS[COMP_CWORD]#=}
  local COMP_WORDS=("${words[@]}" "$word") COMP_CWORD=${#words[@]}
  _shtab_toolspeak
  # A provider's name is followed by a model's, not by a space.
  [[ ${COMPREPLY[0]-} == */ ]] && compopt -o nospace 2>/dev/null
}
complete -o bashdefault -o default -F _toolspeak toolspeak"""


def add_arguments(parser: CommandParser) -> None:
    text = 'the shell; bash and zsh load the script with eval "$(toolspeak completion SHELL)", '
    text += "fish with toolspeak completion fish | source"
    parser.add("shell", text, choices=SHELLS)


def run(options: argparse.Namespace) -> int:
    print(build_script(options.shell))
    return 0


def build_script(shell: str) -> str:
    parser, commands = build_parser()
    # The overview already lists the commands, but shtab skips what the help hides.
    parser._actions[-1].help = "command"  # pyright: ignore[reportPrivateUsage]
    for action in (action for command in commands.values() for action in command.actions):
        values = VALUES.get(action.dest, ())
        if action.type is Path:
            _set_completer(action, shtab.FILE)
        elif shell == "zsh" and any(value.endswith("/") for value in values):
            _set_completer(action, {"zsh": f"{{compadd -S '' -- {' '.join(values)}}}"})
        elif values and not action.choices:
            action.choices = values
    return shtab.complete(parser, shell) + (_BASH_WRAPPER if shell == "bash" else "")


def _set_completer(action: argparse.Action, completer: Mapping[str, object]) -> None:
    action.complete = completer  # pyright: ignore[reportAttributeAccessIssue]
