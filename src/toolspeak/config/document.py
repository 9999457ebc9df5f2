"""What is wrong with a configuration, where, and what to do about it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from ..errors import UsageError

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class ConfigProblem(Struct, frozen=True):
    """One thing that is wrong, and its path in the configuration."""

    message: str
    path: str = "$"


class ConfigError(UsageError):
    """A configuration cannot be used. Every problem is one line; no line holds a secret."""

    def __init__(self, problems: Sequence[str], warnings: Sequence[str] = ()) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)


def join_path(path: str, key: str | int) -> str:
    """The path of what stands under a key: `$.models["claude-*"]`, `$.server.keys[0]`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if _BARE.fullmatch(key) else f'{path}["{key}"]'


def is_inside(path: str, outer: str) -> bool:
    """Whether a path is `outer`, or leads further into it."""
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))


def suggest_names(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """What to write in place of an unknown name: the nearest ones, or else all of them."""
    names = list(known)
    if near := difflib.get_close_matches(name, names, 3):
        return f"; did you mean {' or '.join(near)}?"
    if otherwise:
        return f"; {otherwise}"
    return f"; known are {', '.join(names)}" if names else "; there is none yet"


Settings = TypeVar("Settings", bound=Struct)

_VARIABLE = re.compile(
    r"(?P<literal>\$\$\{)|\$\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>(?:(?!\$\{)[^}])*))?\}|\$\{"
)


class ConfigDocument:
    """The values of a file, and what there is to say about them so far."""

    def __init__(self, source: str, values: dict[str, Any] | None = None) -> None:
        self.source = source
        self.values = values or {}
        self.source_paths: dict[str, str] = {}
        """Where a value stands in the file, if not at its own path."""
        self.variables: dict[str, str] = {}
        """The environment variables that some of the values come from."""
        self.problems: list[ConfigProblem] = []
        self.warnings: list[ConfigProblem] = []

    def add_problems(self, *problems: ConfigProblem) -> None:
        """Take these problems, but none that may only follow from an earlier one."""
        earlier = {problem.path for problem in self.problems}
        self.problems += (
            problem
            for problem in problems
            if not any(_overlaps(problem.path, path) for path in earlier)
        )

    def format_problems(self, problems: Iterable[ConfigProblem]) -> tuple[str, ...]:
        """Problems in words, with their places, each once."""
        return tuple(dict.fromkeys(map(self._format_problem, problems)))

    def _format_problem(self, problem: ConfigProblem) -> str:
        for path, variable in self.variables.items():
            if is_inside(problem.path, path):
                return f"{variable}: {problem.message}"
        return f"{self.source}: {problem.message} - at `{self._source_path(problem.path)}`"

    def _source_path(self, path: str) -> str:
        outer = [known for known in self.source_paths if is_inside(path, known)]
        if not outer:
            return path
        nearest = max(outer, key=len)
        return self.source_paths[nearest] + path[len(nearest) :]

    def expand_variables(self, environ: Mapping[str, str]) -> None:
        """Put the environment's values in place of `${VARIABLE}`."""
        self.values = self._expand(self.values, "$", environ)

    def _expand(self, value: Any, path: str, environ: Mapping[str, str]) -> Any:
        match value:
            case dict():
                return {
                    key: self._expand(v, join_path(path, key), environ) for key, v in value.items()
                }
            case list():
                return [self._expand(v, join_path(path, i), environ) for i, v in enumerate(value)]
            case str():
                return _VARIABLE.sub(
                    lambda match: self._variable_value(match, path, environ), value
                )
            case _:
                return value

    def _variable_value(self, match: re.Match[str], path: str, environ: Mapping[str, str]) -> str:
        name, default = match["name"], match["default"]
        if match["literal"]:
            return "${"
        if default is not None:
            return environ.get(name) or default
        if name in environ:
            return environ[name]
        problem = "Expected `${VARIABLE}`; write `$${` for a literal `${`"
        if name:
            problem = f"the variable {name} is not set; set it, or leave out this setting"
        self.problems.append(ConfigProblem(problem, path))
        return match[0]

    def build_settings(self, kind: type[Settings], value: Any, path: str = "$") -> Settings:
        """The settings that a table means. What does not fit is a problem, and left out."""
        if not isinstance(value, dict):
            self._convert(kind, value, path)
            return _construct(kind)
        built = {
            field.name: self._convert_field(
                field.type, value[field.name], join_path(path, field.name)
            )
            for field in fields(kind)
            if field.name in value
        }
        self._check_fields(kind, value, path)
        return _construct(kind, **_without_unset(built))

    def _check_fields(self, kind: type[Struct], value: dict[str, Any], path: str) -> None:
        """Whether a table has what it has to have, and nothing else."""
        known = kind.__struct_fields__
        unknown = [key for key in value if key not in known]
        for key in unknown:
            message = f"Object contains unknown field `{key}`{suggest_names(key, known)}"
            self.add_problems(ConfigProblem(message, join_path(path, key)))
        for name in _required_fields(kind):
            # What is misspelt is not missing.
            if name not in value and not unknown:
                self.problems.append(ConfigProblem(f"Object missing required field `{name}`", path))

    def _convert_field(self, kind: Any, value: Any, path: str) -> Any:
        """A value of that type, or UNSET and a problem."""
        if isinstance(kind, type) and issubclass(kind, Struct):
            return self.build_settings(kind, value, path)
        if get_origin(kind) is dict and isinstance(value, dict):
            item = get_args(kind)[1]
            return _without_unset(
                {
                    key: self._convert_field(item, v, join_path(path, key))
                    for key, v in value.items()
                }
            )
        return self._convert(kind, value, path)

    def _convert(self, kind: Any, value: Any, path: str) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at `$")
            if message.startswith("Invalid enum value"):
                message += suggest_names(str(value), _choices(kind))
            self.add_problems(ConfigProblem(message, path + place.rstrip("`")))
            return msgspec.UNSET


def escape_variables(text: str) -> str:
    """A text as a file has to write it for nothing to be filled in."""
    return text.replace("${", "$${")


def _overlaps(path: str, other: str) -> bool:
    return is_inside(path, other) or is_inside(other, path)


def _construct(kind: type[Settings], **found: Any) -> Settings:
    """Settings in which a text that is needed, and missing, is empty."""
    return kind(**{**dict.fromkeys(_required_fields(kind), ""), **found})


def _without_unset(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not msgspec.UNSET}


def _required_fields(kind: type[Struct]) -> list[str]:
    return [field.name for field in fields(kind) if field.required]


def _choices(kind: Any) -> list[str]:
    """The words that a type allows."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [word for part in get_args(kind) for word in _choices(part)]
