"""What somebody says with their own words: no code, no quotation.

'Sorry, I can’t run `ls -l` or "top".'   ->   "sorry, i can t run  or top."
"""

from __future__ import annotations

import re

_FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)", re.M | re.S)
_QUOTED_LINES = re.compile(r"^[ \t]*>.*$", re.M)
_NAME = re.compile(r"[A-Za-z0-9_.:#/-]{1,64}")
_NAME_ENDS = "(`\"”“»」』›'"
_QUOTES = "``", '""', "“”", "„“", "«»", "「」", "『』", "‹›", "‘’"
_OPENERS = (*(opener for opener, _ in _QUOTES), "*", " '", "\n'", "('")
_QUOTATION = re.compile(
    "|".join(
        (
            *(f"{a}[^{a}{b}\n]*{b}" for a, b in _QUOTES),
            r"(?<!\w)'(?:[^'\n]|'(?=\w)){3,300}'(?!\w)",
            r"(?<!\*)\*(?:[^\s*]+ ){3,60}[^\s*]+\*(?!\*)",
        )
    )
)
"""The last is a sentence in italics; a single word there is only stressed."""
_MARKS = ",.!?;:()*।"
_ENDS = ("!", "?", ";", "。", "！", "？", "；", "؟", "।", "：", "…", ". ", ": ")
# Not all that is no letter: the vowels of Hindi and the accents of Arabic are none either.
_PUNCTUATION = re.compile(
    r"[\s!-+./:-@\[-`{-~\u00a0-\u00bf\u2000-\u2bff\u3000\u3002-\u303f\ufe0f\U0001f000-\U0001faff]+"
)
_VOWEL_SIGNS = re.compile("[\u064b-\u0652\u0640]")
"""Arabic is mostly written without them."""


def prose(text: str) -> str:
    """The text without code and quotations. A name stays: it is spoken of, not spoken."""
    if "```" in text or "~~~" in text:
        text = _FENCE.sub("\n", text)
    if ">" in text:
        text = _QUOTED_LINES.sub("", text)
    if any(opener in text for opener in _OPENERS) or text.startswith("'"):
        text = _QUOTATION.sub(_unless_name, text)
    return text


def spoken(text: str) -> str:
    """In lower case, and with no apostrophe of any kind."""
    text = text.replace("İ", "i").lower()
    for mark in "'’ʼ-‑":
        text = text.replace(mark, " ")
    return text


def sentences(text: str) -> list[str]:
    """What stands between full stops, colons and the like. In `README.md` there is none."""
    for end in _ENDS:
        text = text.replace(end, "\n")
    return [sentence for sentence in text.split("\n") if sentence]


def words_of(text: str) -> set[str]:
    """The words of a text that is spoken."""
    for mark in _MARKS:
        text = text.replace(mark, " ")
    return set(text.split())


def plain(text: str) -> str:
    """Words, commas and single spaces, also around the whole: `" sorry, no file access "`."""
    return f" {_VOWEL_SIGNS.sub('', _PUNCTUATION.sub(' ', text)).strip()} "


def after_punctuation(text: str) -> str:
    """The text from its first letter on."""
    found = _PUNCTUATION.match(text)
    return text[found.end() :] if found else text


def _unless_name(match: re.Match[str]) -> str:
    name = _NAME.match(match[0], 1)
    return name[0] if name and match[0][name.end()] in _NAME_ENDS else " "
