"""What a file says, on its way to becoming settings.

A file may say something wrong in several places: each becomes a problem of its own, and the rest
is read as if it were right, so that everything can be told at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from .problems import Problem, at, instead, within

Settings = TypeVar("Settings", bound=Struct)

_VARIABLE = re.compile(
    r"(?P<literal>\$\$\{)|\$\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>(?:(?!\$\{)[^}])*))?\}|\$\{"
)


class Draft:
    """The values of a file, and what there is to say about them so far."""

    def __init__(self, source: str, values: dict[str, Any] | None = None) -> None:
        self.source = source
        self.values = values or {}
        self.moved: dict[str, str] = {}
        """Where a value stands in the file, if not at its own path."""
        self.variables: dict[str, str] = {}
        """The environment variables that some of the values come from."""
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def add(self, *problems: Problem) -> None:
        """Take these problems, but none that may only follow from an earlier one."""
        earlier = {problem.path for problem in self.problems}
        self.problems += (
            problem
            for problem in problems
            if not any(_related(problem.path, path) for path in earlier)
        )

    def said(self, problems: Iterable[Problem]) -> tuple[str, ...]:
        """Problems in words, with their places, each once."""
        return tuple(dict.fromkeys(map(self._say, problems)))

    def _say(self, problem: Problem) -> str:
        for path, variable in self.variables.items():
            if within(problem.path, path):
                return f"{variable}: {problem.message}"
        return f"{self.source}: {problem.message} - at `{self._place(problem.path)}`"

    def _place(self, path: str) -> str:
        outer = [known for known in self.moved if within(path, known)]
        if not outer:
            return path
        nearest = max(outer, key=len)
        return self.moved[nearest] + path[len(nearest) :]

    def fill_in(self, environ: Mapping[str, str]) -> None:
        """Put the environment's values in place of `${VARIABLE}`."""
        self.values = self._filled(self.values, "$", environ)

    def _filled(self, value: Any, path: str, environ: Mapping[str, str]) -> Any:
        match value:
            case dict():
                return {key: self._filled(v, at(path, key), environ) for key, v in value.items()}
            case list():
                return [self._filled(v, at(path, i), environ) for i, v in enumerate(value)]
            case str():
                return _VARIABLE.sub(lambda match: self._value(match, path, environ), value)
            case _:
                return value

    def _value(self, match: re.Match[str], path: str, environ: Mapping[str, str]) -> str:
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
        self.problems.append(Problem(problem, path))
        return match[0]

    def build(self, kind: type[Settings], value: Any, path: str = "$") -> Settings:
        """The settings that a table means. What does not fit is a problem, and left out."""
        if not isinstance(value, dict):
            self._converted(kind, value, path)
            return _stand_in(kind)
        built = {
            field.name: self._value_of(field.type, value[field.name], at(path, field.name))
            for field in fields(kind)
            if field.name in value
        }
        self._compare_names(kind, value, path)
        return _stand_in(kind, **_without_unset(built))

    def _compare_names(self, kind: type[Struct], value: dict[str, Any], path: str) -> None:
        """Whether a table has what it has to have, and nothing else."""
        known = kind.__struct_fields__
        unknown = [key for key in value if key not in known]
        for key in unknown:
            message = f"Object contains unknown field `{key}`{instead(key, known)}"
            self.add(Problem(message, at(path, key)))
        for name in _needed(kind):
            # What is misspelt is not missing.
            if name not in value and not unknown:
                self.problems.append(Problem(f"Object missing required field `{name}`", path))

    def _value_of(self, kind: Any, value: Any, path: str) -> Any:
        """A value of that type, or UNSET and a problem."""
        if isinstance(kind, type) and issubclass(kind, Struct):
            return self.build(kind, value, path)
        if get_origin(kind) is dict and isinstance(value, dict):
            item = get_args(kind)[1]
            return _without_unset(
                {key: self._value_of(item, v, at(path, key)) for key, v in value.items()}
            )
        return self._converted(kind, value, path)

    def _converted(self, kind: Any, value: Any, path: str) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at `$")
            if message.startswith("Invalid enum value"):
                message += instead(str(value), _choices(kind))
            self.add(Problem(message, path + place.rstrip("`")))
            return msgspec.UNSET


def escaped(text: str) -> str:
    """A text as a file has to write it for nothing to be filled in."""
    return text.replace("${", "$${")


def _related(path: str, other: str) -> bool:
    return within(path, other) or within(other, path)


def _stand_in(kind: type[Settings], **found: Any) -> Settings:
    """Settings in which a text that is needed, and missing, is empty."""
    return kind(**{**dict.fromkeys(_needed(kind), ""), **found})


def _without_unset(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not msgspec.UNSET}


def _needed(kind: type[Struct]) -> list[str]:
    return [field.name for field in fields(kind) if field.required]


def _choices(kind: Any) -> list[str]:
    """The words that a type allows."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [word for part in get_args(kind) for word in _choices(part)]
