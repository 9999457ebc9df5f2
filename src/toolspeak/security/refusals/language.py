"""The tables of a language, one file each in `languages/`: how a model says that it cannot.

    letters    some of these stand in every text, where the writing tells the language
    cues       one of these words stands in every sentence that denies something
    speakers   and one of these, where the verb alone does not tell who speaks
    denials    how one says of oneself that one cannot, has not or does not know
    opinions   words near a denial that make it none: `I can't recommend it enough`
    begins     words that a refusal begins with
    marks      words that tell how it is meant: `only`, `harm`, `missing`, `failed`, …
    topics     words for what a tool may give: `files`, `weather`, `mail`, …

In marks and topics, a word stands for all that begin with it, `mail$` for itself alone, `*mail` for
all that hold it. Where words are not written apart (`spaced = false`), each is looked for anywhere.
Denials are regular expressions; `{name}` in them is any of the `parts` of that name. All text is
compared in lower case and with spaces for apostrophes and hyphens: `don t`, `can t`, `l accès`.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache, cached_property
from importlib import resources

import msgspec
from msgspec import Struct

WordMatches = list[tuple[int, str]]
"""Where in a text there is a word, and in which list it stands."""


class LanguageTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A language as its file has it."""

    cues: str
    begins: str
    denials: tuple[str, ...]
    marks: dict[str, str]
    topics: dict[str, str]
    opinions: str = ""
    letters: str = ""
    speakers: str = ""
    parts: dict[str, tuple[str, ...]] = {}
    spaced: bool = True
    speaker_needed: bool = False
    """An explanation reads like a refusal, unless it is said who cannot."""


class Vocabulary:
    """Finds the words of lists in a text, by the letters that they begin with."""

    def __init__(self, lists: dict[str, str], spaced: bool) -> None:
        self._spaced = spaced
        self._size = 3 if spaced else 2
        self._anywhere: list[tuple[str, str]] = []
        self._by_beginning: dict[str, list[tuple[str, str]]] = {}
        for name, words in lists.items():
            for word in split_list(words):
                self._add(word, name)

    def _add(self, word: str, name: str) -> None:
        stem = word.strip("*").replace("$", " ")
        if len(stem) < self._size or (word.startswith("*") and self._spaced):
            self._anywhere.append((stem, name))
        else:
            self._by_beginning.setdefault(stem[: self._size], []).append((stem, name))

    def found(self, text: str) -> WordMatches:
        """All words of the lists in this text, which is plain (see `prose.plain`)."""
        found = [(text.find(word), name) for word, name in self._anywhere if word in text]
        known, size = self._by_beginning, self._size
        for at in _word_starts(text) if self._spaced else range(len(text) if known else 0):
            for stem, name in known.get(text[at : at + size], ()):
                if text.startswith(stem, at):
                    found.append((at, name))
        return found


class Language:
    """A table, ready to be looked things up in."""

    def __init__(self, code: str, table: LanguageTable) -> None:
        cues = split_list(table.cues)
        self.code = code
        self.speaker_needed = table.speaker_needed
        self.begins = tuple(word.replace("$", " ") for word in split_list(table.begins))
        self._letters = table.letters
        self._speakers = frozenset(split_list(table.speakers))
        self._words = frozenset(cue for cue in cues if not cue.startswith("*"))
        self._pieces = tuple(cue[1:] for cue in cues if cue.startswith("*"))
        self._table = table

    def may_deny(self, text: str, words: set[str]) -> bool:
        """Whether there may be a denial in a text of these words."""
        if self._letters and not any(letter in text for letter in self._letters):
            return False
        if self._speakers and self._speakers.isdisjoint(words):
            return False
        return not self._words.isdisjoint(words) or any(piece in text for piece in self._pieces)

    @cached_property
    def denial(self) -> re.Pattern[str]:
        either = "|".join(self._table.denials)
        for name, parts in self._table.parts.items():
            either = either.replace(f"{{{name}}}", f"(?:{'|'.join(parts)})")
        return re.compile(rf"(?<!\w)(?:{either})" if self._table.spaced else either)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self._table.marks | self._table.topics, self._table.spaced)

    @cached_property
    def opinions(self) -> Vocabulary:
        """What one cannot do without a lack of tools: `recommend it enough`."""
        return Vocabulary({"opinion": self._table.opinions}, self._table.spaced)

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(self._table.topics)

    def words_in(self, name: str) -> list[str]:
        """The words of one list."""
        return split_list((self._table.marks | self._table.topics).get(name, ""))


@cache
def load_languages() -> dict[str, Language]:
    """All languages by their codes."""
    folder = resources.files("toolspeak").joinpath("security", "refusals", "languages")
    texts = {file.name: file.read_text("utf-8") for file in folder.iterdir()}
    tables = {
        name.removesuffix(".toml"): msgspec.convert(tomllib.loads(text), LanguageTable)
        for name, text in sorted(texts.items())
    }
    return {code: Language(code, table) for code, table in tables.items()}


@cache
def english_vocabulary() -> Vocabulary:
    """Names of files and tools are English everywhere."""
    return load_languages()["en"].vocabulary


@cache
def all_topics() -> frozenset[str]:
    return frozenset(name for one in load_languages().values() for name in one.topics)


def split_list(words: str) -> list[str]:
    return [word.strip() for word in words.split(",")] if words else []


def _word_starts(text: str) -> list[int]:
    starts: list[int] = []
    at = text.find(" ") + 1
    while at:
        starts.append(at)
        at = text.find(" ", at) + 1
    return starts
