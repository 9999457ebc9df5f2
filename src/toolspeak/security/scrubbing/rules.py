"""The scrubbing rules of `rules.toml`, and the rule that applies to a name.

GITHUB_TOKEN, accessToken, x-api-key          -> a NameRule: the kind of secret, and its values
max_tokens, token_count, primary_key, key     -> None
"""

from __future__ import annotations

import re
import tomllib
from functools import cache, lru_cache
from importlib import resources

import msgspec
from msgspec import Struct


class SecretNameRule(Struct, frozen=True, forbid_unknown_fields=True):
    """A name that is followed by a secret, as words."""

    kind: str
    words: tuple[str, ...]
    not_after: tuple[str, ...] = ()
    """The rule does not apply after one of these words: `max_token`."""
    only_after: tuple[str, ...] = ()
    """The rule applies only after one of these words: `api_key`."""
    random_only: bool = False
    """Only values that look random are secrets."""
    multi_word: bool = False
    """Values of several words are secrets too."""
    header: str = ""
    """The value is structured like that of this header: `authorization` or `cookie`."""


class KeyShape(Struct, frozen=True, forbid_unknown_fields=True):
    """A key that is recognised by its format."""

    kind: str
    shape: str
    needs_digit: bool = False
    """The key contains a digit and does not consist of words."""
    at_word_start: bool = False
    """The key is not recognised behind a prefix: `cache-key-…` is something else."""


class CuePattern(Struct, frozen=True, forbid_unknown_fields=True):
    """A secret that is recognised by the text before it."""

    kind: str
    cue: str
    pattern: str
    random_only: bool = False


class KeyBlock(Struct, frozen=True, forbid_unknown_fields=True):
    """A secret of many lines between an opening and a closing line, which are kept."""

    kind: str
    cue: str
    opens: str
    closes: str


class NameCues(Struct, frozen=True, forbid_unknown_fields=True):
    names: tuple[str, ...]


class Harmless(Struct, frozen=True, forbid_unknown_fields=True):
    suffixes: str
    values: str


class HeaderWords(Struct, frozen=True, forbid_unknown_fields=True):
    schemes: str
    attributes: str


class ScrubbingRules(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `rules.toml`."""

    names: tuple[SecretNameRule, ...]
    cues: NameCues
    harmless: Harmless
    headers: HeaderWords
    shapes: tuple[KeyShape, ...]
    patterns: tuple[CuePattern, ...]
    blocks: tuple[KeyBlock, ...]


@cache
def load_rules() -> ScrubbingRules:
    folder = resources.files("toolspeak").joinpath("security", "scrubbing")
    text = folder.joinpath("rules.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), ScrubbingRules)


def split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Names.

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
"""`HTTPPassword2_old` consists of `HTTP`, `Password` and `old`."""
_MIN_SUFFIX = 5
"""Shorter words do not count as the end of a longer one: `monkey` ends with `key`."""
_PHRASES = tuple((phrase, rule) for rule in load_rules().names for phrase in rule.words)
_HARMLESS_SUFFIXES = split_words(load_rules().harmless.suffixes)


@lru_cache(1024)
def find_name_rule(name: str) -> SecretNameRule | None:
    """Return the rule for a name that is followed by a secret, or None.

    Of a dotted name only the last part can match: `token.kind` is not a token.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if "public" in words:
        return None
    in_last_part = len(_WORD.findall(name.rstrip(".").rpartition(".")[2]))
    for index in range(len(words) - 1, len(words) - in_last_part - 1, -1):
        rule = _find_rule_ending_at(words, index)
        if rule:
            return rule if _HARMLESS_SUFFIXES.isdisjoint(words[index + 1 :]) else None
    return None


def _find_rule_ending_at(words: list[str], index: int) -> SecretNameRule | None:
    before = words[:index]
    for phrase, rule in _PHRASES:
        if _ends_with(words[: index + 1], phrase) and _applies_after(rule, before):
            return rule
    return None


def _ends_with(words: list[str], phrase: str) -> bool:
    if " " in phrase:
        return " ".join(words).endswith(phrase)
    is_suffix = len(phrase) >= _MIN_SUFFIX and words[-1].endswith(phrase)
    return words[-1] == phrase or is_suffix


def _applies_after(rule: SecretNameRule, before: list[str]) -> bool:
    if rule.only_after and not (before and before[-1] in rule.only_after):
        return False
    return not (before and before[-1] in rule.not_after)
