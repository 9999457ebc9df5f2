"""Decides whether a reply that claims to be unable to do something is a false refusal.

The claim that there are no tools as such is a false refusal, whatever the tools are for. Any other
claim is one if an offered tool does exactly what the model claims to lack, and nothing in the reply
or the question explains the claim. The tool is found by its name and by its topics:

    lacked {"weather", "live"}, tools get_weather, send_email   ->   get_weather
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from ..._util import memoize_by_identity
from ...types import Tool
from .claims import (
    Claim,
    Language,
    Sentence,
    all_topics,
    find_claims,
    load_languages,
    normalize,
    normalize_case,
    normalize_words,
    remove_quotations,
    speaks_of_tools,
    split_sentences,
)

_MAX_CLAIMS = 8
"""Later claims are ignored: a refusal comes early."""
_STAGE_DIRECTION = re.compile(r"\s*\*(?![*\s])")
"""`*sighs* I can't open the archive`: the model plays a role."""
_SENTENCE = re.compile(r"[^.!?？؟。！\n]*[.!?？؟。！\n]?")
_BEFORE_CALL = re.compile(r"^(?:[\s`\[\](){}<>'\":]|python\b|json\b|\w*tool_\w+|\"?name\")*")
_AFTER_NAME = re.compile(r"\s*[({\"',:\]]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[a-z]{3,}")


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
    if not tools or _STAGE_DIRECTION.match(text) or _begins_with_call(text, tools):
        return None
    sentences = split_sentences(normalize_case(remove_quotations(text)))
    question = normalize(asked)
    honest: Refusal | None = None
    for claim in islice(find_claims(sentences), _MAX_CLAIMS):
        wanted = Sentence(question, claim.languages).list_names()
        if _is_not_refusal(claim, sentences, wanted):
            continue
        if claim.denies_tools:
            is_honest = _is_denial_of_tools_honest(claim, sentences, question, after_result)
            tool = None if is_honest else _find_tool(claim, tools, wanted) or tools[0]
        else:
            is_honest = _is_honest(claim, sentences, after_result) or _asks_back(claim, text)
            tool = None if is_honest else _find_tool(claim, tools, wanted)
            if tool and _describes_tools(claim, sentences, tools):
                tool = None
        if tool and not _asks_for_translation(question, tool):
            return Refusal("false", claim.words, tool.name)
        honest = honest or Refusal("honest", claim.words)
    return honest


def _is_not_refusal(claim: Claim, sentences: list[str], wanted: set[str]) -> bool:
    """Return True for a requested text, a letter, an explanation, or a step before a call."""
    is_letter = normalize_words(sentences[0])[1:].startswith(_words_in("salutation"))
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


def _is_denial_of_tools_honest(
    claim: Claim, sentences: list[str], question: str, after_result: bool
) -> bool:
    """Return True if tools are refused for safety, or if the claim may describe a tool result."""
    signals = claim.signals_beside_denial | claim.next_sentence.list_names() & {"harm"}
    if not signals.isdisjoint({"harm", "has_tools"}):
        return True
    others = [one for one in sentences if normalize_words(one).strip() != claim.words]
    return after_result and (speaks_of_tools(question) or _reports_failure(claim, others))


def _lacks_input(claim: Claim) -> bool:
    """Return True if only the user has what is lacking: `without the number`.

    This does not apply to `without access`. In some languages, `without` follows what is lacking.
    """
    if "lacking" in claim.signals:
        return claim.signals.isdisjoint({"capability", "self"})
    without = claim.sentence.find_first("without", 0)
    if without is None or "without" not in claim.sentence.list_names(0, claim.contrast):
        return False
    return claim.sentence.list_names(without).isdisjoint({"capability", "self", "live"})


def _denies_all_tools(signals: set[str]) -> bool:
    """Return True if the claim is that there are no tools, not that one did not help."""
    return "self" in signals or (
        "capability" in signals and not signals.isdisjoint({"live", "web"})
    )


def _reports_failure(claim: Claim, sentences: list[str]) -> bool:
    text = normalize_words(" ".join(sentences))
    return "failed" in Sentence(text, claim.languages).list_names()


def _find_tool(claim: Claim, tools: Sequence[Tool], wanted: set[str]) -> Tool | None:
    """Return the tool that provides what the claim lacks, or else what the user asked for."""
    tool = _find_named_tool(claim.denial, tools)
    if tool:
        return tool
    lacked = claim.denied_signals
    if lacked.isdisjoint(all_topics()) and "able" not in claim.sentence.list_names(0, claim.start):
        lacked = claim.signals
    topics = lacked & all_topics()
    is_action = "action" in claim.sentence.list_names(claim.start, claim.end)
    able = _tools_able_to_act(tools) if is_action else tools
    tool = _find_tool_for_topics(topics, able) or _find_tool_with_similar_name(claim.denial, able)
    if tool or lacked.isdisjoint({"live", "capability", "self"}) or topics - {"web"}:
        return tool
    wanted_topics = wanted & all_topics()
    if wanted_topics - topics:
        # "I have no internet" is an excuse where no internet is needed.
        able = _tools_able_to_act(tools) if "action" in wanted else tools
        return _find_tool_for_topics(wanted_topics, able)
    return _find_tool_for_topics({"live"}, tools) if "live" in lacked else None


def _tools_able_to_act(tools: Sequence[Tool]) -> list[Tool]:
    return [tool for tool in tools if _purpose_of(tool).changes_something]


def _asks_back(claim: Claim, text: str) -> bool:
    """Return True if the reply asks for missing input or for permission: `Which city do you mean?`

    Questions that hand the work back do not count: `Could you paste it?`, `Anything else?` Only the
    first paragraph is read; what follows is a draft or another subject.
    """
    if not claim.signals.isdisjoint({"self", "capability", "live", "web"}):
        return False
    return any(
        "empty_offer" not in Sentence(normalize(sentence), claim.languages).list_names()
        for sentence in _SENTENCE.findall(text.strip().partition("\n\n")[0])
        if sentence.endswith(("?", "？", "؟"))
    )


def _describes_tools(claim: Claim, sentences: list[str], tools: Sequence[Tool]) -> bool:
    """Return True if the reply says what it can do: `I can only look up flights`."""
    hints = _words_in("only", claim.languages) + _words_in("just", claim.languages)
    for text in sentences:
        if not any(hint.strip() in text for hint in hints):
            continue
        for part in Sentence(normalize_words(text), claim.languages).split_at_commas():
            signals = part.list_names()
            if not signals.isdisjoint({"only", "just"}) and _find_named_tool(part.text, tools):
                return True
            if "only" not in signals or not signals.isdisjoint({"advice", "self"}):
                continue
            if _find_tool_for_topics(signals & all_topics(), tools):
                return True
            if _find_tool_with_similar_name(part.text, tools):
                return True
    return False


def _asks_for_translation(question: str, tool: Tool) -> bool:
    """Return True if the words of the reply may be a translation of somebody else's."""
    if "translate" in _purpose_of(tool).topics:
        return False
    return any(word in question for word in _words_in("translate"))


@cache
def _words_in(name: str, languages: tuple[Language, ...] = ()) -> tuple[str, ...]:
    """Return the words of one list of signals or topics in these languages, or in all."""
    tables = [one.signals | one.topics for one in languages or load_languages().values()]
    return tuple(word.strip("*") for table in tables for word in table.get(name, ()))


# Tools: their topics, and the tool that a claim is about.


class ToolKnowledge(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `tools.toml`."""

    families: dict[str, tuple[str, ...]]
    implied: dict[str, tuple[str, ...]]
    change_topics: tuple[str, ...]
    change_verbs: tuple[str, ...]
    compute_verbs: tuple[str, ...]
    common_words: frozenset[str]

    def add_implied(self, topics: set[str]) -> set[str]:
        """Return the topics, those that they imply, and their families."""
        found = topics.union(*(self.implied.get(topic, ()) for topic in topics))
        return found | {name for name, members in self.families.items() if found & {*members}}


@cache
def _load_knowledge() -> ToolKnowledge:
    table = tomllib.loads(Path(__file__).with_name("tools.toml").read_text("utf-8"))
    table["common_words"] = table["common_words"].split()
    return msgspec.convert(table, ToolKnowledge)


def load_vocabulary() -> None:
    """Read all files of words, which are cached."""
    load_languages()
    _load_knowledge()


class ToolPurpose(Struct, frozen=True):
    """The purpose of a tool, read from its name and description."""

    name: str
    topics: set[str]
    changes_something: bool
    stems: set[str]


@memoize_by_identity
def _purpose_of(tool: Tool) -> ToolPurpose:
    knowledge = _load_knowledge()
    name = normalize(_CAMEL.sub(" ", tool.name).replace("_", " ")).strip()
    description = normalize(tool.description)
    every = load_languages()
    languages = (every["en"],) if description.isascii() else tuple(every.values())
    in_name = Sentence(f" {name} ", languages).list_names()
    in_description = Sentence(description, languages).list_names()
    topics = (in_name & all_topics()) or (in_description & all_topics())
    if any(verb in name for verb in knowledge.compute_verbs):
        topics &= {"maths"}
    changes_something = not (in_name | in_description).isdisjoint(knowledge.change_topics) or any(
        f" {verb}" in f" {name} {description}" for verb in knowledge.change_verbs
    )
    return ToolPurpose(name, knowledge.add_implied(topics), changes_something, _stems(name))


def _stems(text: str) -> set[str]:
    """Return the significant words of an English text without their endings."""
    common = _load_knowledge().common_words
    return {_stem(word) for word in _WORD.findall(text) if word not in common} - common


def _stem(word: str) -> str:
    for ending in ("ings", "ing", "ies", "es", "ed", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def _find_named_tool(text: str, tools: Sequence[Tool]) -> Tool | None:
    """Return the tool whose name is in the text.

    A name of one word counts only before `tool`, because it is a word like any other.
    """
    for tool in tools:
        name = _purpose_of(tool).name
        mention = f" {name} " if " " in name else f" {name} tool "
        if mention in text:
            return tool
    return None


def _find_tool_for_topics(topics: set[str], tools: Sequence[Tool]) -> Tool | None:
    """Return a tool for one of the topics.

    A family does not count beside its member: a text about hotels is not about all travel.
    """
    families = _load_knowledge().families.items()
    specific = topics - {name for name, members in families if topics & {*members}}
    return next((tool for tool in tools if _purpose_of(tool).topics & specific), None)


def _find_tool_with_similar_name(text: str, tools: Sequence[Tool]) -> Tool | None:
    """Return a tool that has no known topic, and whose name is mostly in the text."""
    words = _stems(text)
    for tool in tools:
        purpose = _purpose_of(tool)
        if not purpose.topics and 2 * len(purpose.stems & words) > len(purpose.stems):
            return tool
    return None


def _begins_with_call(text: str, tools: Sequence[Tool]) -> bool:
    """Return True if the first word is a tool's name: such a reply attempts a call."""
    first = _BEFORE_CALL.sub("", text, count=1)
    return any(
        first.startswith(tool.name) and _AFTER_NAME.match(first, len(tool.name)) for tool in tools
    )
