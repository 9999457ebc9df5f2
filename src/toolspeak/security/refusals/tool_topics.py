"""Finds the tool that provides what a model claims to lack, by topics and by its name.

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
from .language import (
    all_topics,
    english_vocabulary,
    load_languages,
    normalize_case,
    normalize_words,
)

_BEFORE_CALL = re.compile(r"^(?:[\s`\[\](){}<>'\":]|python\b|json\b|\w*tool_\w+|\"?name\")*")
_AFTER_NAME = re.compile(r"\s*[({\"',:\]]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[a-z]{3,}")


class ToolKnowledge(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `tools.toml`."""

    families: dict[str, tuple[str, ...]]
    implied: dict[str, tuple[str, ...]]
    change_topics: tuple[str, ...]
    change_verbs: tuple[str, ...]
    compute_verbs: tuple[str, ...]
    common_words: str

    def add_implied(self, topics: set[str]) -> set[str]:
        """Return the topics, those that they imply, and their families."""
        found = topics.union(*(self.implied.get(topic, ()) for topic in topics))
        return found | {name for name, members in self.families.items() if found & {*members}}


@cache
def load_knowledge() -> ToolKnowledge:
    folder = resources.files("toolspeak").joinpath("security", "refusals")
    text = folder.joinpath("tools.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), ToolKnowledge)


@cache
def _common_words() -> frozenset[str]:
    return frozenset(load_knowledge().common_words.split())


class ToolPurpose(Struct, frozen=True):
    """What a tool is for."""

    name: str
    topics: set[str]
    changes_something: bool
    stems: set[str]


@memoize_by_identity
def purpose_of(tool: Tool) -> ToolPurpose:
    knowledge = load_knowledge()
    name = _normalize(_CAMEL.sub(" ", tool.name).replace("_", " ")).strip()
    description = _normalize(tool.description)
    in_name = _list_names(f" {name} ", description.isascii())
    in_description = _list_names(description, description.isascii())
    topics = (in_name & all_topics()) or (in_description & all_topics())
    if any(verb in name for verb in knowledge.compute_verbs):
        topics &= {"maths"}
    changes_something = not (in_name | in_description).isdisjoint(knowledge.change_topics) or any(
        f" {verb}" in f" {name} {description}" for verb in knowledge.change_verbs
    )
    return ToolPurpose(name, knowledge.add_implied(topics), changes_something, _stems(name))


def _normalize(text: str) -> str:
    return normalize_words(normalize_case(text))


def _list_names(text: str, is_english: bool) -> set[str]:
    every = load_languages().values()
    vocabularies = [english_vocabulary()] if is_english else [one.vocabulary for one in every]
    return {name for vocabulary in vocabularies for _, name in vocabulary.find(text)}


def _stems(text: str) -> set[str]:
    """Return the significant words of an English text without their endings."""
    common = _common_words()
    return {_stem(word) for word in _WORD.findall(text) if word not in common} - common


def _stem(word: str) -> str:
    for ending in ("ings", "ing", "ies", "es", "ed", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def find_named_tool(text: str, tools: Sequence[Tool]) -> Tool | None:
    """Return the tool whose name is in the text.

    A name of one word counts only before `tool`, because it is a word like any other.
    """
    for tool in tools:
        name = purpose_of(tool).name
        mention = f" {name} " if " " in name else f" {name} tool "
        if mention in text:
            return tool
    return None


def find_tool_for_topics(topics: set[str], must_change: bool, tools: Sequence[Tool]) -> Tool | None:
    """Return a tool for one of the topics; with `must_change`, one that changes something.

    A family does not count beside its member: a text about hotels is not about all travel.
    """
    families = load_knowledge().families.items()
    specific = set(topics) - {name for name, members in families if topics & {*members}}
    for tool in tools:
        purpose = purpose_of(tool)
        fits = not purpose.topics.isdisjoint(specific)
        if fits and (purpose.changes_something or not must_change):
            return tool
    return None


def find_tool_with_similar_name(text: str, must_change: bool, tools: Sequence[Tool]) -> Tool | None:
    """Return a tool without a known topic most of whose name is in the text."""
    words = _stems(text)
    for tool in tools:
        purpose = purpose_of(tool)
        is_similar = 2 * len(purpose.stems & words) > len(purpose.stems)
        fits = not purpose.topics and is_similar
        if fits and (purpose.changes_something or not must_change):
            return tool
    return None


def begins_with_call(text: str, tools: Sequence[Tool]) -> bool:
    """Return True if the first word is a tool's name: such a reply attempts a call."""
    first = _BEFORE_CALL.sub("", text, count=1)
    return any(
        first.startswith(tool.name) and _AFTER_NAME.match(first, len(tool.name)) for tool in tools
    )
