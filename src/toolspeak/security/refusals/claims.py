"""Finds claims of inability in a reply, and detects whether a stream may begin with one.

A claim is a sentence in which the model says that it cannot do something:

    "Sorry, but I can't open files here."    denial: "i can t open files", it lacks: {"files"}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from itertools import pairwise
from typing import Literal

from .language import (
    Language,
    WordMatches,
    load_languages,
    normalize_case,
    normalize_words,
    remove_quotations,
    split_sentences,
    split_words,
    strip_punctuation,
)

_COMMA = re.compile("[,，、،]")
_OPINION_REACH = 25
"""The verb of a denial may follow it within this many characters."""


class Sentence:
    """A sentence, and the lists that contain its words, in all languages that it may be in.

    Topics are also found in English, because names of files and tools are English everywhere.
    """

    def __init__(self, text: str, languages: tuple[Language, ...]) -> None:
        self.text = text
        self._languages = languages

    @cached_property
    def _matches(self) -> WordMatches:
        found = [pair for one in self._languages for pair in one.vocabulary.find(self.text)]
        english = load_languages()["en"]
        if english not in self._languages:
            in_english = english.vocabulary.find(self.text)
            found += [pair for pair in in_english if pair[1] in english.topics]
        return found

    def list_names(self, start: int = 0, end: int | None = None) -> set[str]:
        """Return the names of the lists whose words are in a part of the sentence."""
        end = len(self.text) if end is None else end
        return {name for at, name in self._matches if start <= at < end}

    def find_first(self, name: str, start: int) -> int | None:
        """Return the position of the first word of a list from `start` on."""
        places = (at for at, found in self._matches if found == name and at >= start)
        return min(places, default=None)

    def split_at_commas(self) -> Iterator[Sentence]:
        for part in _COMMA.split(self.text):
            yield Sentence(f" {part.strip()} ", self._languages)


class Claim:
    """A sentence in which the speaker claims to be unable to do something."""

    def __init__(
        self, languages: tuple[Language, ...], text: str, denial: re.Match[str], next_text: str
    ) -> None:
        self.languages = languages
        self.words = text.strip()
        self.sentence = Sentence(text, languages)
        self.next_sentence = Sentence(normalize_words(next_text), languages)
        self.start = max(text.rfind(comma, 0, denial.start() + 1) for comma in ",，、،") + 1
        """The start of the part between commas that denies."""
        comma = _COMMA.search(text, denial.end())
        self.end = comma.start() if comma else len(text)
        self.denial = f" {text[self.start : self.end].strip()} "
        self._denial_end = denial.end()

    @cached_property
    def signals(self) -> set[str]:
        return self.sentence.list_names()

    @cached_property
    def denied_signals(self) -> set[str]:
        """The lists of the words for what cannot be done, up to `but` or `so`."""
        return self.sentence.list_names(self.start, self.contrast)

    @cached_property
    def contrast(self) -> int | None:
        """The position of `but`, `so` or the like after the denial."""
        return self.sentence.find_first("contrast", self._denial_end)


def find_claims(sentences: list[str]) -> Iterator[Claim]:
    possible = _possible_languages("\n".join(sentences), load_languages().values())
    if not possible:
        return
    for sentence, next_sentence in pairwise([*sentences, ""]):
        languages = _possible_languages(sentence, possible)
        text = normalize_words(sentence) if languages else ""
        denials = [(one, denial) for one in languages if (denial := _find_denial(one, text))]
        if denials:
            denying = tuple(language for language, _ in denials)
            yield Claim(denying, text, denials[0][1], next_sentence)


def _possible_languages(text: str, among: Iterable[Language]) -> list[Language]:
    words = split_words(text)
    return [language for language in among if language.may_deny(text, words)]


def _find_denial(language: Language, sentence: str) -> re.Match[str] | None:
    """Return the first denial that is not an opinion (`I can't recommend it enough`)."""
    for denial in language.denial.finditer(sentence):
        nearby = sentence[denial.start() : denial.end() + _OPINION_REACH]
        if not language.opinion_words.find(f" {nearby} "):
            return denial
    return None


# Openings of streams.

MAX_UNDECIDED = 120
"""The most characters that may be undecided."""
_NOT_PROSE = tuple('`~>"“„«「『‹‘{[<|#')
_SENTENCE_END = re.compile(r"[!?\n。！？।؟…]|[.:](?=\s)")

OpeningState = Literal["undecided", "yes", "no"]


class OpeningDetector:
    """Decides, as a reply arrives, whether it may begin with a refusal.

    detector.feed("I'm sor")                             -> "undecided": hold it back
    detector.feed("ry, but I can't open files. ")        -> "yes": hold it, call `find_refusal`
    OpeningDetector().feed("In Oslo")                    -> "no": hold nothing back

    The answer is "no" once a sentence begins in a way that no refusal does, and "yes" at the end of
    a sentence with a denial. After `MAX_UNDECIDED` characters without either, it is "no".
    """

    def __init__(self) -> None:
        self._text = ""
        self._sentence_start = 0
        self._state: OpeningState = "undecided"

    def feed(self, text: str) -> OpeningState:
        if self._state == "undecided":
            self._text += text[: MAX_UNDECIDED - len(self._text)]
            self._state = self._decide()
        return self._state

    def _decide(self) -> OpeningState:
        for end in _SENTENCE_END.finditer(self._text, self._sentence_start):
            sentence = self._text[self._sentence_start : end.end()]
            state = _classify_opening(sentence, is_complete=True)
            if state != "undecided":
                return state
            self._sentence_start = end.end()
        is_last = len(self._text) == MAX_UNDECIDED
        rest = self._text[self._sentence_start :]
        state = _classify_opening(rest, is_complete=is_last)
        return "no" if is_last and state == "undecided" else state


def begins_like_refusal(text: str) -> bool:
    return OpeningDetector().feed(text) != "no"


def _classify_opening(sentence: str, is_complete: bool) -> OpeningState:
    """Classify one sentence; an apology alone leaves it undecided."""
    stripped = sentence.lstrip()
    if stripped.startswith(_NOT_PROSE) or (stripped[:1] == "*" and stripped[1:2] not in "* "):
        return "no"
    text = strip_punctuation(normalize_case(sentence))
    if not text.startswith(_openings()) and text not in _opening_prefixes():
        return "no"
    if not is_complete:
        return "undecided"
    sentences = split_sentences(normalize_case(remove_quotations(sentence)))
    return "yes" if next(find_claims(sentences), None) else "undecided"


@cache
def _openings() -> tuple[str, ...]:
    languages = load_languages().values()
    return tuple(word for language in languages for word in language.openings)


@cache
def _opening_prefixes() -> frozenset[str]:
    return frozenset(opening[:size] for opening in _openings() for size in range(len(opening)))
