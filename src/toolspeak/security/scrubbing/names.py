"""Whether a name is one of something secret.

GITHUB_TOKEN, accessToken, x-api-key          -> a rule: its kind, and what its values are like
max_tokens, token_count, primary_key, key     -> None
"""

from __future__ import annotations

import re
from functools import lru_cache

from .rules import NameRule, load_rules, split_words

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
"""`HTTPPassword2_old` is `HTTP`, `Password` and `old`."""


@lru_cache(1024)
def find_name_rule(name: str) -> NameRule | None:
    """The rule for a name, if it is one of something secret. `token.kind` is the kind of one."""
    said = [word.lower() for word in _WORD.findall(name)]
    if "public" in said:
        return None
    of_its_own = len(_WORD.findall(name.rstrip(".").rpartition(".")[2]))
    for place in range(len(said) - 1, len(said) - of_its_own - 1, -1):
        rule = _rule_at(said, place)
        if rule:
            return rule if _HARMLESS.isdisjoint(said[place + 1 :]) else None
    return None


def _rule_at(said: list[str], place: int) -> NameRule | None:
    """The rule whose words end at this place."""
    before = said[:place]
    for phrase, rule in _PHRASES:
        if _ends_with(said[: place + 1], phrase) and _stands_well(rule, before):
            return rule
    return None


def _ends_with(said: list[str], phrase: str) -> bool:
    """Whether the last words are these. A long one may be the end of a word: `pgpassword`."""
    if " " in phrase:
        return " ".join(said).endswith(phrase)
    return said[-1] == phrase or (len(phrase) >= _LONG and said[-1].endswith(phrase))


def _stands_well(rule: NameRule, before: list[str]) -> bool:
    if rule.only_after and not (before and before[-1] in rule.only_after):
        return False
    return not (before and before[-1] in rule.not_after)


_LONG = 5
"""Shorter words are not looked for at the end of others: `monkey` ends with one."""
_PHRASES = tuple((phrase, rule) for rule in load_rules().names for phrase in rule.words)
_HARMLESS = split_words(load_rules().harmless.after)
