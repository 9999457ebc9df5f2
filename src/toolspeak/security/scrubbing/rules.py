"""What is found, as `rules.toml` says it."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources

import msgspec
from msgspec import Struct


class NameRule(Struct, frozen=True, forbid_unknown_fields=True):
    """A name of something secret, as words."""

    kind: str
    words: tuple[str, ...]
    not_after: tuple[str, ...] = ()
    """It is something else after one of these words: `max_token`."""
    only_after: tuple[str, ...] = ()
    """It counts only after one of these words: `api_key`."""
    strict: bool = False
    """Only values that look random count."""
    phrase: bool = False
    """Values of several words count too."""
    header: str = ""
    """Its value has parts, as that header has: `authorization` or `cookie`."""


class KeyShape(Struct, frozen=True, forbid_unknown_fields=True):
    """A key that is known by how it looks."""

    kind: str
    shape: str
    random: bool = False
    """There has to be a digit, and no mere words."""
    alone: bool = False
    """It counts only where a word begins: `cache-key-…` is something else."""


class CuePattern(Struct, frozen=True, forbid_unknown_fields=True):
    """A secret that is known by what stands before it."""

    kind: str
    cue: str
    pattern: str
    random: bool = False
    any_length: bool = False


class KeyBlock(Struct, frozen=True, forbid_unknown_fields=True):
    """A secret of many lines, between two that stay."""

    kind: str
    cue: str
    opens: str
    closes: str


class Cues(Struct, frozen=True, forbid_unknown_fields=True):
    names: tuple[str, ...]


class Harmless(Struct, frozen=True, forbid_unknown_fields=True):
    after: str
    values: str


class Headers(Struct, frozen=True, forbid_unknown_fields=True):
    schemes: str
    attributes: str


class ScrubbingRules(Struct, frozen=True, forbid_unknown_fields=True):
    """All of `rules.toml`."""

    names: tuple[NameRule, ...]
    cues: Cues
    harmless: Harmless
    headers: Headers
    shapes: tuple[KeyShape, ...]
    patterns: tuple[CuePattern, ...]
    blocks: tuple[KeyBlock, ...]


@cache
def load_rules() -> ScrubbingRules:
    text = (
        resources.files("toolspeak")
        .joinpath("security", "scrubbing", "rules.toml")
        .read_text("utf-8")
    )
    return msgspec.convert(tomllib.loads(text), ScrubbingRules)


def split_words(text: str) -> frozenset[str]:
    """A list of words that the table writes as a text."""
    return frozenset(text.split())
