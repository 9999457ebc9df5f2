"""A configuration file's values, and the problems found in them.

Every problem has a path and is collected, so that a user sees all of them at once:

    Expected `int`, got `str` - at `$.server.port`

A value with a problem is left out, and reading goes on with its default.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from ..errors import UsageError

Settings = TypeVar("Settings", bound=Struct)

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_VARIABLE = re.compile(
    r"(?P<literal>\$\$\{)|\$\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>(?:(?!\$\{)[^}])*))?\}|\$\{"
)


class ConfigProblem(Struct, frozen=True):
    """One thing that is wrong, and its path in the configuration."""

    message: str
    path: str = "$"

    def __str__(self) -> str:
        return f"{self.message} - at `{self.path}`"


class ConfigError(UsageError):
    """A configuration cannot be used. Each problem is one line that contains no secret."""

    def __init__(self, problems: Sequence[str], warnings: Sequence[str] = ()) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)


class ConfigDocument:
    """The values of a file, with the problems and warnings found so far."""

    def __init__(self, source: str, values: dict[str, Any] | None = None) -> None:
        self.source = source
        self.values = values or {}
        self.source_paths: dict[str, str] = {}
        """Maps a path in `values` to the path in the file, where they differ."""
        self.overrides: dict[str, str] = {}
        """Maps a path in `values` to the environment variable or option that its value is from."""
        self.problems: list[ConfigProblem] = []
        self.warnings: list[ConfigProblem] = []

    def add_problems(self, *problems: ConfigProblem) -> None:
        """Add problems, except those that may only be the result of an earlier one."""
        earlier = {problem.path for problem in self.problems}
        self.problems += (
            problem
            for problem in problems
            if not any(
                is_inside(problem.path, path) or is_inside(path, problem.path) for path in earlier
            )
        )

    def format_problems(self, problems: Iterable[ConfigProblem]) -> tuple[str, ...]:
        """Return one line for each distinct problem, with its place in the file."""
        return tuple(dict.fromkeys(map(self._format_problem, problems)))

    def _format_problem(self, problem: ConfigProblem) -> str:
        for path, source in self.overrides.items():
            if is_inside(problem.path, path):
                return f"{source}: {problem.message}"
        return f"{self.source}: {ConfigProblem(problem.message, self._source_path(problem.path))}"

    def _source_path(self, path: str) -> str:
        outer = [known for known in self.source_paths if is_inside(path, known)]
        if not outer:
            return path
        nearest = max(outer, key=len)
        return self.source_paths[nearest] + path[len(nearest) :]

    # Environment variables.

    def expand_variables(self, environ: Mapping[str, str]) -> None:
        """Replace `${VARIABLE}` in all strings with the environment's values."""
        self.values = self._expand(self.values, "$", environ)

    def _expand(self, value: Any, path: str, environ: Mapping[str, str]) -> Any:
        match value:
            case dict():
                return {
                    key: self._expand(item, join_path(path, key), environ)
                    for key, item in value.items()
                }
            case list():
                return [
                    self._expand(item, join_path(path, index), environ)
                    for index, item in enumerate(value)
                ]
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
        message = "Expected `${VARIABLE}`; write `$${` for a literal `${`"
        if name:
            message = f"the variable {name} is not set; set it, or remove this setting"
        self.problems.append(ConfigProblem(message, path))
        return match[0]

    # Conversion to settings.

    def build_settings(self, kind: type[Settings], value: Any, path: str = "$") -> Settings:
        """Convert a table to settings; leave out fields that have problems."""
        if not isinstance(value, dict):
            self._convert(kind, value, path)
            return _construct(kind)
        converted = {
            field.name: self._convert_field(
                field.type, value[field.name], join_path(path, field.name)
            )
            for field in fields(kind)
            if field.name in value
        }
        self._check_fields(kind, value, path)
        return _construct(kind, **_without_unset(converted))

    def _check_fields(self, kind: type[Struct], value: dict[str, Any], path: str) -> None:
        """Report unknown fields and missing ones."""
        known = kind.__struct_fields__
        unknown = [key for key in value if key not in known]
        for key in unknown:
            message = f"`{key}` is not a known setting{suggest_names(key, known)}"
            self.add_problems(ConfigProblem(message, join_path(path, key)))
        for name in _required_fields(kind):
            # An unknown field may be a misspelling of the missing one.
            if name not in value and not unknown:
                self.problems.append(ConfigProblem(f"`{name}` is missing; set it", path))

    def _convert_field(self, kind: Any, value: Any, path: str) -> Any:
        """Convert a value, or add a problem and return UNSET."""
        if isinstance(kind, type) and issubclass(kind, Struct):
            return self.build_settings(kind, value, path)
        if get_origin(kind) is dict and isinstance(value, dict):
            item_kind = get_args(kind)[1]
            converted = {
                key: self._convert_field(item_kind, item, join_path(path, key))
                for key, item in value.items()
            }
            return _without_unset(converted)
        return self._convert(kind, value, path)

    def _convert(self, kind: Any, value: Any, path: str) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at `$")
            if message.startswith("Invalid enum value"):
                message = (
                    f"{value!r} is not a known value{suggest_names(str(value), _choices(kind))}"
                )
            self.add_problems(ConfigProblem(message, path + place.rstrip("`")))
            return msgspec.UNSET


def join_path(path: str, key: str | int) -> str:
    """Append a key to a path: `$.models["claude-*"]`, `$.server.keys[0]`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if _BARE_KEY.fullmatch(key) else f'{path}["{key}"]'


def is_inside(path: str, outer: str) -> bool:
    """Return True if a path is `outer` or a descendant of it."""
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))


def suggest_names(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a clause that suggests the nearest known names, or else lists all of them."""
    names = list(dict.fromkeys(known))
    if near := difflib.get_close_matches(name, names, 3):
        return f"; did you mean {' or '.join(near)}?"
    if otherwise:
        return f"; {otherwise}"
    return f"; known names: {', '.join(names)}" if names else "; none is configured"


def escape_variables(text: str) -> str:
    """Escape `${` so that `expand_variables` gives the text back unchanged."""
    return text.replace("${", "$${")


def _construct(kind: type[Settings], **values: Any) -> Settings:
    """Construct settings; a missing required field is an empty string."""
    return kind(**{**dict.fromkeys(_required_fields(kind), ""), **values})


def _without_unset(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not msgspec.UNSET}


def _required_fields(kind: type[Struct]) -> list[str]:
    return [field.name for field in fields(kind) if field.required]


def _choices(kind: Any) -> list[str]:
    """Return the strings that a type of literals allows."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [choice for part in get_args(kind) for choice in _choices(part)]
