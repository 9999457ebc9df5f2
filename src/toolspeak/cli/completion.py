"""Print a script that lets a shell complete what you type.

The script has all the words in it, so that a Tab starts no Python: that would take half a second.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from ..config.providers import PROVIDERS
from ..dialects import DIALECTS
from ..types import ToolsMode
from ..wires import WIRES
from .parser import CommandParser
from .run import RUNNABLE

_VALUES: Mapping[str, Sequence[str]] = {
    "command": [*RUNNABLE],
    "dialect": ["auto", *DIALECTS],
    "model": ["embedded", *(f"{name}/" for name in PROVIDERS)],
    "modes": get_args(ToolsMode),
    "name": [*DIALECTS],
    "source": [*WIRES],
    "target": [*WIRES],
}
"""What may stand for an argument that has no list of its own."""
_FILES = frozenset({"context", "file", "files", "output", "tools"})
"""Arguments that are files, beside those that are paths by their type."""
Commands = Mapping[str, CommandParser]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(_SHELLS), help='eval "$(toolspeak completion bash)"')


def run(options: argparse.Namespace) -> int:
    from . import parsers

    _, commands = parsers()
    print("\n".join(_SHELLS[options.shell](commands)))
    return 0


# What is there to complete.


def _options(parser: CommandParser) -> list[argparse.Action]:
    return [action for action in parser.actions if action.option_strings]


def _operands(parser: CommandParser) -> list[argparse.Action]:
    return [action for action in parser.actions if not action.option_strings]


def _takes(action: argparse.Action) -> bool:
    """Whether a value follows."""
    return action.nargs != 0


def _values(action: argparse.Action) -> Sequence[str]:
    """What the value may be, where that is known."""
    return [*map(str, action.choices)] if action.choices else _VALUES.get(action.dest, ())


def _is_file(action: argparse.Action) -> bool:
    return action.type is Path or action.dest in _FILES


# bash


def _bash(commands: Commands) -> Iterator[str]:
    yield '# For bash: eval "$(toolspeak completion bash)", in ~/.bashrc to have it always.'
    yield "_toolspeak() {"
    yield "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words="
    yield '  [[ $word == "=" ]] && word='
    yield '  [[ $before == "=" ]] && before=${COMP_WORDS[COMP_CWORD-2]}'
    yield '  if [[ " ${COMP_WORDS[*]:0:COMP_CWORD} " == *" -- "* ]]; then'
    yield "    return  # What follows is for another program."
    yield "  elif ((COMP_CWORD == 1)); then"
    yield f"    words='{' '.join(commands)} --help --version'"
    yield "  else"
    yield '    case "${COMP_WORDS[1]} $before $word" in'
    for name, parser in commands.items():
        yield from _bash_command(name, parser)
    yield "    esac"
    yield "  fi"
    yield '  COMPREPLY=($(compgen -W "$words" -- "$word"))'
    yield "  [[ ${COMPREPLY[0]-} == */ ]] && compopt -o nospace 2>/dev/null"
    yield "}"
    yield "complete -o bashdefault -o default -F _toolspeak toolspeak"


def _bash_command(name: str, parser: CommandParser) -> Iterator[str]:
    for action in filter(_takes, _options(parser)):
        patterns = "|".join(f'"{name} {option} "*' for option in action.option_strings)
        yield f"      {patterns}) words='{' '.join(_values(action))}' ;;"
    options = [option for action in _options(parser) for option in action.option_strings]
    yield f'      "{name} "*" -"*) words=\'{" ".join(options)}\' ;;'
    values = [value for action in _operands(parser) for value in _values(action)]
    yield f"      \"{name} \"*) words='{' '.join(values)}' ;;"


# zsh


def _zsh(commands: Commands) -> Iterator[str]:
    yield "#compdef toolspeak"
    yield '# For zsh: eval "$(toolspeak completion zsh)", in ~/.zshrc behind compinit.'
    yield "_toolspeak() {"
    yield "  local state line"
    yield "  local -a commands=("
    for name, parser in commands.items():
        yield f"    {_quoted(f'{name}:{parser.description}')}"
    yield "  )"
    yield "  _arguments -C '(- *)'{-h,--help}'[show help]' '(- *)--version[show the version]' \\"
    yield "    '1:command:->command' '*::argument:->rest'"
    yield "  case $state in"
    yield "    command) _describe command commands ;;"
    yield "    rest)"
    yield "      case $words[1] in"
    for name, parser in commands.items():
        yield f"        {name})"
        yield "          _arguments \\"
        specs = [*_zsh_options(parser), *_zsh_operands(name, parser)]
        yield from (f"            {spec} \\" for spec in specs[:-1])
        yield f"            {specs[-1]} ;;"
    yield "      esac ;;"
    yield "  esac"
    yield "}"
    yield "compdef _toolspeak toolspeak"


def _zsh_options(parser: CommandParser) -> Iterator[str]:
    for action in _options(parser):
        for option in action.option_strings:
            text = f"*{option}[{_escaped(action.help or '', '[]')}]"
            yield _quoted(text + (_zsh_value(action) if _takes(action) else ""))


def _zsh_operands(name: str, parser: CommandParser) -> Iterator[str]:
    for action in _operands(parser):
        place = "*" if action.nargs == "*" else ""
        yield _quoted(f"{place}{_zsh_value(action)}")
    if name == "run":
        yield "'*:::argument:_normal'"


def _zsh_value(action: argparse.Action) -> str:
    """What stands for a value: a list, or files."""
    if values := _values(action):
        plain = [value for value in values if not value.endswith("/")]
        begun = [value.rstrip("/") for value in values if value.endswith("/")]
        if begun:
            # A name that goes on behind the slash.
            more = f"compadd -S / -- {' '.join(begun)}; compadd -- {' '.join(plain)}"
            return f":{action.dest}:{{{more}}}"
        return f":{action.dest}:({' '.join(plain)})"
    return f":{action.dest}:{'_files' if _is_file(action) else ' '}"


# fish


def _fish(commands: Commands) -> Iterator[str]:
    yield "# For fish: toolspeak completion fish > ~/.config/fish/completions/toolspeak.fish"
    yield "complete -c toolspeak -f"
    first = "complete -c toolspeak -n __fish_use_subcommand"
    yield f"{first} -s h -l help -d 'show help'"
    yield f"{first} -l version -d 'show the version'"
    for name, parser in commands.items():
        yield f"{first} -a {name} -d {_quoted(parser.description or '')}"
    for name, parser in commands.items():
        yield from _fish_command(
            f"complete -c toolspeak -n '__fish_seen_subcommand_from {name}'", parser
        )


def _fish_command(begin: str, parser: CommandParser) -> Iterator[str]:
    for action in _options(parser):
        names = " ".join(_fish_name(option) for option in action.option_strings)
        yield f"{begin} {names}{_fish_value(action)} -d {_quoted(action.help or '')}"
    for action in _operands(parser):
        yield f"{begin}{_fish_value(action).replace(' -x', '').replace(' -r', '')}"


def _fish_name(option: str) -> str:
    return f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"


def _fish_value(action: argparse.Action) -> str:
    if not _takes(action):
        return ""
    if values := _values(action):
        return f" -x -a {_quoted(' '.join(values))}"
    return " -r -F" if _is_file(action) else " -x"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _escaped(text: str, characters: str) -> str:
    return "".join(f"\\{letter}" if letter in characters else letter for letter in text)


_SHELLS: Mapping[str, Callable[[Commands], Iterator[str]]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
