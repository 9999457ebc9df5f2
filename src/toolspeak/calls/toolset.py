"""The tools that were offered: which of them a name means, and whether arguments fit it.

Toolset(tools).find("functions.get-weather")   ->   "get_weather"
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Any

from ..types import Tool
from .coercion import Coercion, coerce_arguments
from .schema import SchemaValidator, get_properties, get_validator

NAME_PREFIXES = (
    "functions.",
    "function.",
    "tools.",
    "tool.",
    "default_api.",
    "api.",
    "multi_tool_use.",
)
"""What models put before names because their prompts do."""
_PREFIX = re.compile("|".join(map(re.escape, NAME_PREFIXES)))
_SEPARATOR = re.compile(r"[.\-/:\s]+")
_NOTHING: dict[str, Any] = {}


class Toolset:
    """The declared tools of one request."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.names = tuple(self.tools)
        self._validators: dict[str, SchemaValidator] = {}

    def resolve_name(self, name: str) -> str | None:
        """The declared name that is meant: as it stands, or the only one that fits once it is
        undone what providers and prompts do to names. A namespace that is not the tool's own is
        another tool's: `cache.delete` is no `delete`, and no `files.delete`."""
        if name in self.tools:
            return name
        spelling = name
        for spelling in _spellings(name):
            if spelling in self.tools:
                return spelling
            found = self._folded.get(_fold(spelling), ())
            if found:
                return found[0] if len(found) == 1 else None
        if "." not in name:
            return None
        given = _parts(spelling)
        if len(given) > 1 and len(set(given)) == 1:
            # Some prompts make a namespace for each tool, by its own name.
            found = self._folded.get(given[0], [])
        else:
            found = [one for one in self.names if _parts(one)[-len(given) :] == given]
        return found[0] if len(found) == 1 else None

    def has_name_starting_with(self, text: str) -> bool:
        """Whether a declared name begins like this."""
        return f"\n{text}" in _beginnings(self.names)

    def get_schema(self, name: str) -> dict[str, Any]:
        """The parameters that a tool declares; nothing if it is not known."""
        tool = self.tools.get(self.resolve_name(name) or "")
        return tool.parameters if tool else _NOTHING

    def coerce_arguments(self, name: str, arguments: dict[str, Any], source: str) -> Coercion:
        """The arguments as the tool's schema wants them."""
        validator = self._validators.get(name)
        if validator is None:
            schema = self.tools[name].parameters
            try:
                validator = self._validators[name] = get_validator(schema)
            except RecursionError:
                # A nest that cannot be compiled: `fit` has the words for that.
                return coerce_arguments(arguments, schema, source)
        return coerce_arguments(arguments, validator, source)

    def find_by_arguments(self, arguments: Mapping[str, Any]) -> list[str]:
        """The tools that declare all of these arguments."""
        return [
            tool.name
            for tool in self.tools.values()
            if arguments and arguments.keys() <= get_properties(tool.parameters).keys()
        ]

    def suggest_names(self, name: str) -> list[str]:
        """The declared names that look most like this one; a few of all if none does."""
        return difflib.get_close_matches(name, self.names, 3, 0.5) or list(self.names[:3])

    @cached_property
    def _folded(self) -> dict[str, list[str]]:
        folded: dict[str, list[str]] = {}
        for name in self.names:
            folded.setdefault(_fold(name), []).append(name)
        return folded


@lru_cache(maxsize=256)
def _beginnings(names: tuple[str, ...]) -> str:
    """Every way in which a name may be spelled, each on a line, for one search through all."""
    spelled = [spelling for name in names for spelling in (name, *spelling_variants(name))]
    prefixed = (f"{prefix}{spelling}" for prefix in NAME_PREFIXES for spelling in spelled)
    return "\n" + "\n".join((*spelled, *prefixed))


def strip_name_prefix(name: str) -> str:
    """A name as it is where no tools are declared to compare it with."""
    return name.strip().removeprefix("functions.")


def spelling_variants(name: str) -> tuple[str, ...]:
    """How a name is seen in text besides its own spelling."""
    plain = _SEPARATOR.sub("_", name)
    escaped = name.replace("_", "\\_")
    return tuple(dict.fromkeys(s for s in (plain, escaped) if s != name))


def _spellings(name: str) -> Iterable[str]:
    name = name.strip().replace("\\", "")
    yield name
    prefix = _PREFIX.match(name)
    bare = name[prefix.end() :] if prefix else name
    if bare != name:
        yield bare


def _parts(name: str) -> list[str]:
    """A name, behind the namespaces that it is in."""
    return [_fold(part) for part in name.split(".")]


def _fold(name: str) -> str:
    return _SEPARATOR.sub("_", name).lower()
