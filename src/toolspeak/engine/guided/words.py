"""The words of a question and of a tool, as far as they tell what it is about."""

from __future__ import annotations

import re

_STOP = (
    "a an and are as at be by can could do does for from get give given has have how i if in into "
    "is it its like me my of on or please that the their them these this to was we were what when "
    "where which who will with would you your find calculate specific based about between using "
    "use"
)
STOP = frozenset(_STOP.split())
"""Words that every question has."""
_SHORTEST = 4
_HUMP = re.compile(r"([a-z0-9])([A-Z])")
_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """`getUserName` is three words, and so is `get_user_name`."""
    return _WORD.findall(_HUMP.sub(r"\1 \2", text).lower())


def key_of(word: str) -> str:
    """What a word has in common with its other forms, in most languages well enough."""
    return word[:5]


def keys(text: str) -> set[str]:
    """The words that tell what a text is about."""
    found = (word for word in words(text) if len(word) >= _SHORTEST and not word.isdigit())
    return {key_of(word) for word in found if word not in STOP}


def is_named(value: object, text: str) -> bool:
    """Whether a text names this very value."""
    return place_of(value, text) >= 0


def place_of(value: object, text: str) -> int:
    """Where a text names a value; -1 if it does not."""
    pattern = rf"(?<!\w){re.escape(str(value).lower())}(?!\w)"
    found = re.search(pattern, text.lower())
    return found.start() if found else -1
