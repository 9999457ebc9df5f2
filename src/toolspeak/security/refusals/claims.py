"""Finds claims of inability in a reply, and detects whether a stream may begin with one.

A claim is a sentence in which the model says that it cannot do something:

    "Sorry, but I can't open files here."    denial: "i can t open files", it lacks: {"files"}

Each file in `languages/` is a table of one language:

    letters          at least one of these is in every text, where the script shows the language
    cues             one of these words is in every sentence that denies something
    speakers         and one of these, where the verb alone does not show who speaks
    denials          ways to say "I cannot", "I have no …", "I do not know"
    opinions         words after a denial that make it harmless: `I can't recommend it enough`
    openings         words that a refusal begins with
    signals          words that show how a sentence is meant: `only`, `harm`, `failed`, …
    topics           words for what a tool may provide: `files`, `weather`, `mail`, …
    no_tools         ways to say that tools as such are missing: `Tools are unavailable`
    spaced           false if the language does not write spaces between words
    needs_speaker    explanations read like refusals, unless they say who cannot

In signals and topics, `mail` matches all words that begin with it, `mail$` only the word itself,
and `*mail` all words that contain it. Without spaces between words, each matches anywhere. Denials
are regular expressions; `{name}` matches any of the `parts` of that name. Texts are compared in
lower case, with spaces for apostrophes and hyphens: `don t`, `can t`, `l accès`.

`no_tools` has two kinds of patterns: `claims` say who lacks the tools and may follow other words;
`statements` do not, so they must begin the sentence, after `openings`: `Sorry, but tools are …`.
After both, only `endings` may follow (`here`, `right now`), up to a comma or a word of `then`. So
`Power tools are unavailable` and `I have no tool to send mail` are other claims.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

WordMatches = list[tuple[int, str]]
"""The position of each matched word, and the name of its list."""


class WordList(frozenset[str]):
    """The words of one list. The `$` at the end of a whole word has become a space."""


class Vocabulary:
    """Finds the words of several lists in a text, indexed by their first letters."""

    def __init__(self, lists: dict[str, WordList], spaced: bool) -> None:
        self._spaced = spaced
        self._key_size = 3 if spaced else 2
        self._anywhere: list[tuple[str, str]] = []
        self._by_first_letters: dict[str, list[tuple[str, str]]] = {}
        for name, words in lists.items():
            for word in words:
                self._add(word, name)

    def _add(self, word: str, name: str) -> None:
        stem = word.strip("*")
        if len(stem) < self._key_size or (word.startswith("*") and self._spaced):
            self._anywhere.append((stem, name))
        else:
            self._by_first_letters.setdefault(stem[: self._key_size], []).append((stem, name))

    def find(self, text: str) -> WordMatches:
        """Find all words of the lists in a text that `normalize_words` has returned."""
        found = [(text.find(word), name) for word, name in self._anywhere if word in text]
        index, size = self._by_first_letters, self._key_size
        for at in _word_starts(text) if self._spaced else range(len(text) if index else 0):
            for stem, name in index.get(text[at : at + size], ()):
                if text.startswith(stem, at):
                    found.append((at, name))
        return found


class ToolDenials(Struct, frozen=True, forbid_unknown_fields=True, eq=False):
    """The ways of one language to say that tools as such are missing."""

    words: WordList
    """Each of these ways contains one of these words."""
    claims: tuple[str, ...]
    statements: tuple[str, ...]
    openings: tuple[str, ...]
    endings: tuple[str, ...]
    then: tuple[str, ...]
    parts: dict[str, tuple[str, ...]]


class Language(Struct, frozen=True, forbid_unknown_fields=True, dict=True, eq=False):
    """The words of one language, as its file lists them."""

    code: str
    cues: WordList
    openings: WordList
    denials: tuple[str, ...]
    signals: dict[str, WordList]
    topics: dict[str, WordList]
    no_tools: ToolDenials
    opinions: WordList = WordList()
    letters: str = ""
    speakers: WordList = WordList()
    parts: dict[str, tuple[str, ...]] = {}
    spaced: bool = True
    needs_speaker: bool = False

    def may_deny(self, text: str, words: set[str]) -> bool:
        """Return False if a text of these words contains no denial in this language."""
        if self.letters and not any(letter in text for letter in self.letters):
            return False
        if self.speakers and self.speakers.isdisjoint(words):
            return False
        return not self.cues.isdisjoint(words) or any(part in text for part in self._cue_parts)

    @cached_property
    def _cue_parts(self) -> tuple[str, ...]:
        return tuple(cue[1:] for cue in self.cues if cue.startswith("*"))

    @cached_property
    def denial(self) -> re.Pattern[str]:
        pattern = _fill_parts(self.denials, self.parts)
        return re.compile(rf"(?<!\w){pattern}" if self.spaced else pattern)

    @cached_property
    def denial_of_tools(self) -> re.Pattern[str]:
        table, gap, end = self.no_tools, " " if self.spaced else " ?", "\\b" * self.spaced
        claims, statements, openings, endings, then = (
            _fill_parts(patterns, self.parts | table.parts)
            for patterns in (
                table.claims,
                table.statements,
                table.openings,
                table.endings,
                table.then,
            )
        )
        begin = rf"^ (?:{openings}[,，、،]?{gap})*"
        after = rf"(?:[,，、،]?{gap}{endings})*(?={gap}(?:$|{then}{end})|[,，、،])"
        word = r"(?<!\w)" * self.spaced
        return re.compile(f"(?:{begin}(?P<statement>{statements})|{word}{claims}){after}")

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.signals | self.topics, self.spaced)

    @cached_property
    def opinion_words(self) -> Vocabulary:
        return Vocabulary({"opinion": self.opinions}, self.spaced)


def _fill_parts(patterns: Iterable[str], parts: dict[str, tuple[str, ...]]) -> str:
    """Return a pattern for any of `patterns`, with the parts that they name."""
    filled = "|".join(patterns)
    for name, alternatives in parts.items():
        filled = filled.replace(f"{{{name}}}", f"(?:{'|'.join(alternatives)})")
    return f"(?:{filled})"


@cache
def load_languages() -> dict[str, Language]:
    files = sorted(Path(__file__).with_name("languages").glob("*.toml"))
    return {file.stem: _load_language(file) for file in files}


def _load_language(file: Path) -> Language:
    table = {"code": file.stem, **tomllib.loads(file.read_text("utf-8"))}
    return msgspec.convert(table, Language, dec_hook=_decode_word_list)


def _decode_word_list(_: type, words: str) -> WordList:
    return WordList(word.strip().replace("$", " ") for word in words.split(","))


@cache
def all_topics() -> frozenset[str]:
    return frozenset(name for language in load_languages().values() for name in language.topics)


def _word_starts(text: str) -> list[int]:
    starts: list[int] = []
    at = text.find(" ") + 1
    while at:
        starts.append(at)
        at = text.find(" ", at) + 1
    return starts


# Preparing a text:  'Sorry, I can’t run `ls -l` or "top".'   ->   "sorry, i can t run  or top."

_FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)", re.M | re.S)
_QUOTED_LINES = re.compile(r"^[ \t]*>.*$", re.M)
_NAME = re.compile(r"[A-Za-z0-9_.:#/-]{1,64}")
_NAME_ENDS = "(`\"”“»」』›'"
_QUOTES = "``", '""', "“”", "„“", "«»", "「」", "『』", "‹›", "‘’"
_QUOTE_OPENERS = (*(opener for opener, _ in _QUOTES), "*", " '", "\n'", "('")
_QUOTATION = re.compile(
    "|".join(
        (
            *(f"{a}[^{a}{b}\n]*{b}" for a, b in _QUOTES),
            r"(?<!\w)'(?:[^'\n]|'(?=\w)){3,300}'(?!\w)",
            r"(?<!\*)\*(?:[^\s*]+ ){3,60}[^\s*]+\*(?!\*)",
        )
    )
)
"""The last alternative is a sentence in italics; a single word in italics is only emphasised."""
_WORD_SEPARATORS = ",.!?;:()*।"
_SENTENCE_ENDS = ("!", "?", ";", "。", "！", "？", "；", "؟", "।", "：", "…", ". ", ": ")
# Not "everything but letters": the vowel signs of Hindi and the accents of Arabic are not letters.
_PUNCTUATION = re.compile(
    r"[\s!-+./:-@\[-`{-~\u00a0-\u00bf\u2000-\u2bff\u3000\u3002-\u303f\ufe0f\U0001f000-\U0001faff]+"
)
_VOWEL_SIGNS = re.compile("[\u064b-\u0652\u0640]")
"""Arabic is usually written without them."""


def remove_quotations(text: str) -> str:
    """Remove code and quotations. Quoted names stay: they are mentioned, not cited."""
    if "```" in text or "~~~" in text:
        text = _FENCE.sub("\n", text)
    if ">" in text:
        text = _QUOTED_LINES.sub("", text)
    if any(opener in text for opener in _QUOTE_OPENERS) or text.startswith("'"):
        text = _QUOTATION.sub(_keep_name, text)
    return text


def _keep_name(match: re.Match[str]) -> str:
    name = _NAME.match(match[0], 1)
    return name[0] if name and match[0][name.end()] in _NAME_ENDS else " "


def normalize_case(text: str) -> str:
    """Return the text in lower case, with spaces for apostrophes and hyphens."""
    text = text.replace("İ", "i").lower()
    for mark in "'’ʼ-‑":
        text = text.replace(mark, " ")
    return text


def normalize_words(text: str) -> str:
    """Return words, commas and single spaces, also at both ends: `" sorry, no file access "`."""
    return f" {_VOWEL_SIGNS.sub('', _PUNCTUATION.sub(' ', text)).strip()} "


def normalize(text: str) -> str:
    return normalize_words(normalize_case(text))


def split_sentences(text: str) -> list[str]:
    """Split at full stops, colons and the like; the dot of `README.md` is not one."""
    for end in _SENTENCE_ENDS:
        text = text.replace(end, "\n")
    return [sentence for sentence in text.split("\n") if sentence]


def split_words(text: str) -> set[str]:
    for mark in _WORD_SEPARATORS:
        text = text.replace(mark, " ")
    return set(text.split())


def strip_punctuation(text: str) -> str:
    """Return the text from its first letter on."""
    found = _PUNCTUATION.match(text)
    return text[found.end() :] if found else text


# Claims.

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
        self,
        languages: tuple[Language, ...],
        text: str,
        denial: re.Match[str],
        next_text: str,
        *,
        denies_tools: bool = False,
    ) -> None:
        self.denies_tools = denies_tools
        """The claim is that tools as such are missing, whatever they are for."""
        self.languages = languages
        self.words = text.strip()
        self.sentence = Sentence(text, languages)
        self.next_sentence = Sentence(normalize_words(next_text), languages)
        self.start = max(text.rfind(comma, 0, denial.start() + 1) for comma in ",，、،") + 1
        """The start of the part between commas that denies."""
        comma = _COMMA.search(text, denial.end())
        self.end = comma.start() if comma else len(text)
        self.denial = f" {text[self.start : self.end].strip()} "
        self._denial_start, self._denial_end = denial.span()

    @cached_property
    def signals(self) -> set[str]:
        return self.sentence.list_names()

    @cached_property
    def signals_beside_denial(self) -> set[str]:
        """The lists of the words before and after the denial."""
        before = self.sentence.list_names(0, self._denial_start)
        return before | self.sentence.list_names(self._denial_end)

    @cached_property
    def denied_signals(self) -> set[str]:
        """The lists of the words for what cannot be done, up to `but` or `so`."""
        return self.sentence.list_names(self.start, self.contrast)

    @cached_property
    def contrast(self) -> int | None:
        """The position of `but`, `so` or the like after the denial."""
        return self.sentence.find_first("contrast", self._denial_end)


def find_claims(sentences: list[str]) -> Iterator[Claim]:
    text = "\n".join(sentences)
    possible = _possible_languages(text, load_languages().values())
    speaking_of_tools = _languages_speaking_of_tools(text)
    if not possible and not speaking_of_tools:
        return
    previous = ""
    for sentence, next_sentence in pairwise([*sentences, ""]):
        claim = None
        if speaking_of_tools:
            claim = _find_denial_of_tools(speaking_of_tools, sentence, previous, next_sentence)
        if claim is None and (languages := _possible_languages(sentence, possible)):
            claim = _find_claim(languages, normalize_words(sentence), next_sentence)
        if claim:
            yield claim
        previous = sentence


def _find_claim(languages: list[Language], text: str, next_text: str) -> Claim | None:
    denials = [(one, denial) for one in languages if (denial := _find_denial(one, text))]
    if not denials:
        return None
    return Claim(tuple(language for language, _ in denials), text, denials[0][1], next_text)


def speaks_of_tools(text: str) -> bool:
    """Return True if a text of lower case names tools as such, in any language."""
    return bool(_languages_speaking_of_tools(text))


def _languages_speaking_of_tools(text: str) -> list[Language]:
    languages = _words_for_tools(text.isascii())
    found = [language for word in languages if word in text for language in languages[word]]
    return list(dict.fromkeys(found))


@cache
def _words_for_tools(is_ascii: bool) -> dict[str, list[Language]]:
    """Return the words for tools, with the languages that have them; or only those in ASCII."""
    languages: dict[str, list[Language]] = {}
    for language in load_languages().values():
        for word in language.no_tools.words:
            if word.isascii() or not is_ascii:
                languages.setdefault(word, []).append(language)
    return languages


def _find_denial_of_tools(
    languages: list[Language], sentence: str, previous: str, next_text: str
) -> Claim | None:
    """Return the claim that tools as such are missing, or None.

    A statement, which names no speaker, is not a claim after a sentence such as `The log says:`.
    """
    text = ""
    for language in languages:
        if not any(word in sentence for word in language.no_tools.words):
            continue
        text = text or normalize_words(sentence)
        if not (denial := language.denial_of_tools.search(text)):
            continue
        before = Sentence(normalize_words(previous), (language,)).list_names()
        if denial["statement"] and "failed" in before:
            continue
        return Claim((language,), text, denial, next_text, denies_tools=True)
    return None


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
