"""Finds claims of inability in a reply, and decides whether they are false.

A claim is a sentence in which the model says that it cannot do something. It is a false refusal if
an offered tool does exactly that, and nothing in the reply or the question explains it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from typing import Literal

from msgspec import Struct

from ...types import Tool
from .language import (
    Language,
    WordMatches,
    all_topics,
    english_vocabulary,
    load_languages,
    normalize_case,
    normalize_words,
    remove_quotations,
    split_sentences,
    split_words,
    strip_punctuation,
    words_in_all_languages,
)
from .tool_topics import (
    begins_with_call,
    find_named_tool,
    find_tool_for_topics,
    find_tool_with_similar_name,
    purpose_of,
)

_STAGE_DIRECTION = re.compile(r"\s*\*(?![*\s])")
"""`*sighs* I can't open the archive`: a role is played."""
_SENTENCE = re.compile(r"[^.!?？؟。！\n]*[.!?？؟。！\n]?")
_COMMA = re.compile("[,，、،]")
_OPINION_REACH = 25
"""The verb of a denial may follow it within this many characters."""
_MAX_CLAIMS = 8
"""Later claims are ignored: a refusal comes early."""


class Refusal(Struct, frozen=True):
    """A reply that claims that something cannot be done."""

    kind: Literal["false", "honest"]
    words: str
    """The sentence that claims it."""
    tool: str = ""
    """The tool that could have done it, if the refusal is false."""


def find_refusal(
    text: str, tools: Sequence[Tool], *, asked: str = "", after_result: bool = False
) -> Refusal | None:
    """Return the refusal in a reply, or None.

    `asked` is the user's last message. After a tool result, only the claim to have no tools at all
    is false, because the call may have failed.
    """
    if not tools or _STAGE_DIRECTION.match(text) or begins_with_call(text, tools):
        return None
    sentences = split_sentences(normalize_case(remove_quotations(text)))
    question = normalize_words(normalize_case(asked))
    honest: Refusal | None = None
    for claim in find_claims(sentences):
        wanted = Sentence(question, claim.languages).list_names()
        if _is_not_refusal(claim, sentences, wanted):
            continue
        tool = None
        if not _is_honest(claim, sentences, after_result):
            tool = _find_tool(claim, tools, wanted)
        if (
            tool
            and not _asks_for_translation(question, tool)
            and not _asks_back(claim, text)
            and not _describes_tools(claim, sentences, tools)
        ):
            return Refusal("false", claim.words, tool.name)
        honest = honest or Refusal("honest", claim.words)
    return honest


def _is_not_refusal(claim: Claim, sentences: list[str], wanted: set[str]) -> bool:
    """Return True for a requested text, a letter, an explanation, or a step before a call."""
    is_letter = normalize_words(sentences[0]).startswith(_salutations())
    if not wanted.isdisjoint({"writing_task", "forbids_tools"}) or is_letter:
        return True
    for signals in (claim.signals, claim.next_sentence.list_names()):
        if "continues" in signals and "offers" not in signals:
            return True
    may_explain = any(language.needs_speaker for language in claim.languages)
    return may_explain and "asks_why" in wanted and "speaker" not in claim.signals


def _is_honest(claim: Claim, sentences: list[str], after_result: bool) -> bool:
    """Return True if the claim gives a reason other than missing tools."""
    signals = claim.signals
    if not signals.isdisjoint({"harm", "needs_input", "has_tools", "names_functions"}):
        return True
    if "harm" in claim.next_sentence.list_names():
        return True
    if _lacks_input(claim):
        return True
    return after_result and (not _denies_all_tools(signals) or _reports_failure(claim, sentences))


def _lacks_input(claim: Claim) -> bool:
    """Return True if only the user has what is lacking: `without the number`.

    `without access` is no such case. In some languages the lacking thing comes first.
    """
    if "lacking" in claim.signals:
        return claim.signals.isdisjoint({"capability", "self"})
    without = claim.sentence.find_first("without", 0)
    if without is None or "without" not in claim.sentence.list_names(0, claim.contrast):
        return False
    return claim.sentence.list_names(without).isdisjoint({"capability", "self", "live"})


def _denies_all_tools(signals: set[str]) -> bool:
    """Return True if there are said to be no tools, not that one did not help."""
    return "self" in signals or (
        "capability" in signals and not signals.isdisjoint({"live", "web"})
    )


def _reports_failure(claim: Claim, sentences: list[str]) -> bool:
    text = normalize_words(" ".join(sentences))
    return "failed" in Sentence(text, claim.languages).list_names()


def _find_tool(claim: Claim, tools: Sequence[Tool], wanted: set[str]) -> Tool | None:
    """Return the tool that provides what the claim lacks, or else what the user asked for."""
    tool = find_named_tool(claim.denial, tools)
    if tool:
        return tool
    lacked = claim.lacked
    if lacked.isdisjoint(all_topics()) and "able" not in claim.sentence.list_names(0, claim.start):
        lacked = claim.signals
    topics = lacked & all_topics()
    is_action = "action" in claim.sentence.list_names(claim.start, claim.end)
    tool = find_tool_for_topics(topics, is_action, tools)
    tool = tool or find_tool_with_similar_name(claim.denial, is_action, tools)
    if tool or lacked.isdisjoint({"live", "capability", "self"}) or topics - {"web"}:
        return tool
    wanted_topics = wanted & all_topics()
    if wanted_topics - topics:
        # "I have no internet" is an excuse where no internet is needed.
        return find_tool_for_topics(wanted_topics, "action" in wanted, tools)
    return find_tool_for_topics({"live"}, False, tools) if "live" in lacked else None


def _asks_back(claim: Claim, text: str) -> bool:
    """Return True if the reply asks for missing input or for permission: `Which city do you mean?`

    Questions that hand the work back do not count: `Could you paste it?`, `Anything else?` Only the
    first paragraph is read; what follows is a draft or another subject.
    """
    if not claim.signals.isdisjoint({"self", "capability", "live", "web"}):
        return False
    return any(
        "empty_offer" not in Sentence(_normalize(sentence), claim.languages).list_names()
        for sentence in _SENTENCE.findall(text.strip().partition("\n\n")[0])
        if sentence.endswith(("?", "？", "؟"))
    )


def _describes_tools(claim: Claim, sentences: list[str], tools: Sequence[Tool]) -> bool:
    """Return True if the reply says what it can do: `I can only look up flights`."""
    words = _words_for_only(claim.languages)
    for text in sentences:
        if not any(word in text for word in words):
            continue
        for part in Sentence(normalize_words(text), claim.languages).split_at_commas():
            signals = part.list_names()
            if not signals.isdisjoint({"only", "just"}) and find_named_tool(part.text, tools):
                return True
            if "only" not in signals or not signals.isdisjoint({"advice", "self"}):
                continue
            if find_tool_for_topics(signals & all_topics(), False, tools):
                return True
            if find_tool_with_similar_name(part.text, False, tools):
                return True
    return False


@cache
def _words_for_only(languages: tuple[Language, ...]) -> tuple[str, ...]:
    lists = (language.words_in(name) for language in languages for name in ("only", "just"))
    return tuple(word.strip("*$") for words in lists for word in words)


def _asks_for_translation(question: str, tool: Tool) -> bool:
    """Return True if the words of the reply may be a translation of somebody else's."""
    if "translate" in purpose_of(tool).topics:
        return False
    return any(word in question for word in words_in_all_languages("translate"))


@cache
def _salutations() -> tuple[str, ...]:
    return tuple(f" {word}" for word in words_in_all_languages("salutation"))


def _normalize(text: str) -> str:
    return normalize_words(normalize_case(text))


# Claims.


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
        if all(language.code != "en" for language in self._languages):
            topics = all_topics()
            found += [pair for pair in english_vocabulary().find(self.text) if pair[1] in topics]
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
        self.sentence = Sentence(text, languages)
        self.next_sentence = Sentence(normalize_words(next_text), languages)
        self.start = max(text.rfind(comma, 0, denial.start() + 1) for comma in ",，、،") + 1
        """The start of the part between commas that denies."""
        comma = _COMMA.search(text, denial.end())
        self.end = comma.start() if comma else len(text)
        self._denial_end = denial.end()

    @property
    def words(self) -> str:
        return self.sentence.text.strip()

    @property
    def denial(self) -> str:
        return f" {self.sentence.text[self.start : self.end].strip()} "

    @cached_property
    def signals(self) -> set[str]:
        return self.sentence.list_names()

    @cached_property
    def lacked(self) -> set[str]:
        """The lists of the words for what cannot be done, up to `but` or `so`."""
        return self.sentence.list_names(self.start, self.contrast)

    @cached_property
    def contrast(self) -> int | None:
        """The position of `but`, `so` or the like after the denial."""
        return self.sentence.find_first("contrast", self._denial_end)


def find_claims(sentences: list[str]) -> Iterator[Claim]:
    """Yield the first claims of inability in these sentences."""
    possible = _possible_languages("\n".join(sentences), load_languages().values())
    if not possible:
        return
    remaining = _MAX_CLAIMS
    for index, sentence in enumerate(sentences):
        languages = _possible_languages(sentence, possible)
        text = normalize_words(sentence) if languages else ""
        denials = [(one, denial) for one in languages if (denial := _find_denial(one, text))]
        if denials:
            next_text = sentences[index + 1] if index + 1 < len(sentences) else ""
            denying = tuple(language for language, _ in denials)
            yield Claim(denying, text, denials[0][1], next_text)
            remaining -= 1
            if not remaining:
                return


def _possible_languages(text: str, among: Iterable[Language]) -> list[Language]:
    words = split_words(text)
    return [language for language in among if language.may_deny(text, words)]


def _find_denial(language: Language, sentence: str) -> re.Match[str] | None:
    """Return the first denial that is not an opinion (`I can't recommend it enough`)."""
    for denial in language.denial.finditer(sentence):
        nearby = sentence[denial.start() : denial.end() + _OPINION_REACH]
        if not language.opinions.find(f" {nearby} "):
            return denial
    return None


# Openings: does a stream begin with a refusal?

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

    A sentence that begins as no refusal does decides it, and so does the end of one that denies
    something. After `MAX_UNDECIDED` characters it is decided in any case.
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
            state = _judge_opening_sentence(sentence, is_complete=True)
            if state != "undecided":
                return state
            self._sentence_start = end.end()
        is_last = len(self._text) == MAX_UNDECIDED
        rest = self._text[self._sentence_start :]
        state = _judge_opening_sentence(rest, is_complete=is_last)
        return "no" if is_last and state == "undecided" else state


def begins_like_refusal(text: str) -> bool:
    return OpeningDetector().feed(text) != "no"


def _judge_opening_sentence(sentence: str, is_complete: bool) -> OpeningState:
    """Decide by one sentence; a mere apology decides nothing."""
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
    return tuple(word for language in load_languages().values() for word in language.openings)


@cache
def _opening_prefixes() -> frozenset[str]:
    return frozenset(opening[:size] for opening in _openings() for size in range(len(opening)))
