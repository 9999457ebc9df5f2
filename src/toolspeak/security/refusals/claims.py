"""The claims in a text that something cannot be done: which sentence, and what it speaks of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from .language import Language, WordMatches, all_topics, english_vocabulary, load_languages
from .prose import plain, words_of

_COMMA = re.compile("[,，、،]")
_NEAR = 25
"""So many characters after a denial its verb may stand."""
_MOST = 8
"""More than so many claims are not looked at: nobody refuses that late."""


class Sentence:
    """A sentence, and the lists that its words stand in; where it may be of several languages, in
    all of them. Topics are found in English too: names of files and tools are so everywhere."""

    def __init__(self, text: str, spoken_in: tuple[Language, ...]) -> None:
        self.text = text
        self._spoken_in = spoken_in

    @cached_property
    def _found(self) -> WordMatches:
        found = [pair for one in self._spoken_in for pair in one.vocabulary.found(self.text)]
        if all(one.code != "en" for one in self._spoken_in):
            topics = all_topics()
            found += [pair for pair in english_vocabulary().found(self.text) if pair[1] in topics]
        return found

    def names(self, start: int = 0, end: int | None = None) -> set[str]:
        """The lists of the words in a part of it."""
        end = len(self.text) if end is None else end
        return {name for at, name in self._found if start <= at < end}

    def first(self, name: str, start: int) -> int | None:
        """Where the first word of a list stands from there on."""
        return min((at for at, found in self._found if found == name and at >= start), default=None)

    def parts(self) -> Iterator[Sentence]:
        """What stands between its commas."""
        for part in _COMMA.split(self.text):
            yield Sentence(f" {part.strip()} ", self._spoken_in)


class Claim:
    """A sentence in which somebody says that they cannot do something."""

    def __init__(
        self, spoken_in: tuple[Language, ...], sentence: str, at: int, end: int, after: str
    ) -> None:
        self.spoken_in = spoken_in
        self.said = Sentence(sentence, spoken_in)
        self.after = Sentence(plain(after), spoken_in)
        self.start = max(sentence.rfind(comma, 0, at + 1) for comma in ",，、،") + 1
        """Where the part between commas begins that denies."""
        comma = _COMMA.search(sentence, end)
        self.end = comma.start() if comma else len(sentence)
        self._denied_at = end

    @property
    def words(self) -> str:
        return self.said.text.strip()

    @property
    def denial(self) -> str:
        return f" {self.said.text[self.start : self.end].strip()} "

    @cached_property
    def marks(self) -> set[str]:
        return self.said.names()

    @cached_property
    def lacked(self) -> set[str]:
        """The lists of the words for what cannot be done: not those after `but` or `so`."""
        return self.said.names(self.start, self.turn)

    @cached_property
    def turn(self) -> int | None:
        """Where it goes on to something else: at `but` or `so`."""
        return self.said.first("turns", self._denied_at)


def find_claims(said: list[str]) -> Iterator[Claim]:
    """The first claims in these sentences."""
    likely = _likely("\n".join(said), load_languages().values())
    if not likely:
        return
    left = _MOST
    for place, sentence in enumerate(said):
        here = _likely(sentence, likely)
        words = plain(sentence) if here else ""
        denied = [(one, denial) for one in here if (denial := _denial(one, words))]
        if denied:
            after = said[place + 1] if place + 1 < len(said) else ""
            spoken_in = tuple(language for language, _ in denied)
            yield Claim(spoken_in, words, *denied[0][1].span(), after)
            left -= 1
            if not left:
                return


def _likely(text: str, among: Iterable[Language]) -> list[Language]:
    words = words_of(text)
    return [language for language in among if language.may_deny(text, words)]


def _denial(language: Language, sentence: str) -> re.Match[str] | None:
    """The first denial that is no opinion: not `I can't recommend it enough`."""
    for found in language.denial.finditer(sentence):
        near = sentence[found.start() : found.end() + _NEAR]
        if not language.opinions.found(f" {near} "):
            return found
    return None
