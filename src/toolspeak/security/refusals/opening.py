"""Whether what a stream begins with may be a refusal, so that all else can leave at once.

beginning = Beginning()
beginning.feed("I'm sor")                             -> "undecided": held back
beginning.feed("ry, but I can't open files. ")        -> "yes": hold it, and ask `refusal`
Beginning().feed("In Oslo")                           -> "no": nothing is held any more
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from .claims import find_claims
from .language import load_languages
from .prose import after_punctuation, prose, sentences, spoken

MAX_UNDECIDED = 120
"""So many characters may be undecided, and never more."""
_NOT_SPOKEN = tuple('`~>"“„«「『‹‘{[<|#')
_SENTENCE_END = re.compile(r"[!?\n。！？।؟…]|[.:](?=\s)")

OpeningState = Literal["undecided", "yes", "no"]


class OpeningDetector:
    """The beginning of one reply. A sentence that begins as no refusal does decides it, and so does
    the end of one that denies something; after `HELD_AT_MOST` characters it is decided anyway."""

    def __init__(self) -> None:
        self._text = ""
        self._sentence = 0
        self._verdict: OpeningState = "undecided"

    def feed(self, text: str) -> OpeningState:
        if self._verdict == "undecided":
            self._text += text[: MAX_UNDECIDED - len(self._text)]
            self._verdict = self._decide()
        return self._verdict

    def _decide(self) -> OpeningState:
        for end in _SENTENCE_END.finditer(self._text, self._sentence):
            verdict = _of_sentence(self._text[self._sentence : end.end()], is_whole=True)
            if verdict != "undecided":
                return verdict
            self._sentence = end.end()
        is_last = len(self._text) == MAX_UNDECIDED
        verdict = _of_sentence(self._text[self._sentence :], is_whole=is_last)
        return "no" if is_last and verdict == "undecided" else verdict


def begins_like_refusal(text: str) -> bool:
    """Whether a reply that begins like this may be a refusal."""
    return OpeningDetector().feed(text) != "no"


def _of_sentence(sentence: str, is_whole: bool) -> OpeningState:
    """What a sentence decides. One that only says sorry decides nothing."""
    stripped = sentence.lstrip()
    if stripped.startswith(_NOT_SPOKEN) or (stripped[:1] == "*" and stripped[1:2] not in "* "):
        return "no"
    said = after_punctuation(spoken(sentence))
    if not said.startswith(_openings()) and said not in _beginnings_of_openings():
        return "no"
    if is_whole and next(find_claims(sentences(spoken(prose(sentence)))), None):
        return "yes"
    return "undecided"


@cache
def _openings() -> tuple[str, ...]:
    return tuple(opening for language in load_languages().values() for opening in language.begins)


@cache
def _beginnings_of_openings() -> frozenset[str]:
    return frozenset(opening[:size] for opening in _openings() for size in range(len(opening)))
