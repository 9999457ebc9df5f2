"""Which of the tools would give what is lacked: by topics, and by the words of its own name.

lacked {"weather", "live"}, tools get_weather, send_email   ->   get_weather
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources

import msgspec
from msgspec import Struct

from ..._util import memoize_by_identity
from ...types import Tool
from .language import all_topics, english_vocabulary, load_languages
from .prose import plain, spoken

_BEFORE_CALL = re.compile(r"^(?:[\s`\[\](){}<>'\":]|python\b|json\b|\w*tool_\w+|\"?name\")*")
_AFTER_NAME = re.compile(r"\s*[({\"',:\]]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[a-z]{3,}")


class ToolKnowledge(Struct, frozen=True, forbid_unknown_fields=True):
    """What `tools.toml` says of tools in general."""

    families: dict[str, tuple[str, ...]]
    broader: dict[str, tuple[str, ...]]
    changes: tuple[str, ...]
    makes: tuple[str, ...]
    computes: tuple[str, ...]
    common: str

    def gives(self, topics: set[str]) -> set[str]:
        """These topics, and what they bring with them."""
        found = topics.union(*(self.broader.get(topic, ()) for topic in topics))
        return found | {name for name, members in self.families.items() if found & {*members}}


@cache
def load_knowledge() -> ToolKnowledge:
    text = (
        resources.files("toolspeak")
        .joinpath("security", "refusals", "tools.toml")
        .read_text("utf-8")
    )
    return msgspec.convert(tomllib.loads(text), ToolKnowledge)


@cache
def _common() -> frozenset[str]:
    return frozenset(load_knowledge().common.split())


class ToolPurpose:
    """What a tool is for."""

    def __init__(self, tool: Tool) -> None:
        self.name = plain(spoken(_CAMEL.sub(" ", tool.name).replace("_", " "))).strip()
        told = plain(spoken(tool.description))
        in_name = _lists(f" {self.name} ", told.isascii())
        said = _lists(told, told.isascii())
        self.topics = (in_name & all_topics()) or (said & all_topics())
        if any(verb in self.name for verb in load_knowledge().computes):
            self.topics &= {"maths"}
        self.topics = load_knowledge().gives(self.topics)
        self.changes = not (in_name | said).isdisjoint(load_knowledge().changes) or any(
            f" {verb}" in f" {self.name} {told}" for verb in load_knowledge().makes
        )
        self.stems = stems(self.name)


def _lists(text: str, is_english: bool) -> set[str]:
    vocabularies = (
        [english_vocabulary()]
        if is_english
        else [one.vocabulary for one in load_languages().values()]
    )
    return {name for vocabulary in vocabularies for _, name in vocabulary.found(text)}


@memoize_by_identity
def purpose_of(tool: Tool) -> ToolPurpose:
    return ToolPurpose(tool)


def stems(text: str) -> set[str]:
    """The words of an English text that say something, without their endings."""
    common = _common()
    return {_stem(word) for word in _WORD.findall(text) if word not in common} - common


def _stem(word: str) -> str:
    for ending in ("ings", "ing", "ies", "es", "ed", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def find_named_tool(text: str, tools: Sequence[Tool]) -> Tool | None:
    """The tool whose name is spoken of. A name of one word is a word like any other, unless it is
    said to be a tool."""
    for tool in tools:
        name = purpose_of(tool).name
        spoken_of = f" {name} " if " " in name else f" {name} tool "
        if spoken_of in text:
            return tool
    return None


def find_tool_for_topics(topics: set[str], changes: bool, tools: Sequence[Tool]) -> Tool | None:
    """A tool for one of these topics; if something is to be changed, one that changes things. Who
    speaks of hotels does not speak of any journey."""
    families = load_knowledge().families.items()
    special = set(topics) - {name for name, members in families if topics & {*members}}
    for tool in tools:
        gives = purpose_of(tool)
        if not gives.topics.isdisjoint(special) and (gives.changes or not changes):
            return tool
    return None


def find_tool_with_similar_name(text: str, changes: bool, tools: Sequence[Tool]) -> Tool | None:
    """A tool that is for no topic that is known, and whose name is mostly of words of this text."""
    words = stems(text)
    for tool in tools:
        gives = purpose_of(tool)
        is_alike = not gives.topics and 2 * len(gives.stems & words) > len(gives.stems)
        if is_alike and (gives.changes or not changes):
            return tool
    return None


def begins_with_call(text: str, tools: Sequence[Tool]) -> bool:
    """Whether the first word is a tool: such a reply tries, whatever it says after that."""
    first = _BEFORE_CALL.sub("", text, count=1)
    return any(
        first.startswith(tool.name) and _AFTER_NAME.match(first, len(tool.name)) for tool in tools
    )
