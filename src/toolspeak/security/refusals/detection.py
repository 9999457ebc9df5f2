"""Whether a claim is false: there is a tool that does what cannot be done."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Literal

from msgspec import Struct

from ...types import Tool
from .claims import Claim, Sentence, find_claims
from .language import Language, all_topics, load_languages
from .prose import plain, prose, sentences, spoken
from .tool_topics import (
    begins_with_call,
    find_named_tool,
    find_tool_for_topics,
    find_tool_with_similar_name,
    purpose_of,
)

_STAGE_DIRECTION = re.compile(r"\s*\*(?![*\s])")
"""`*sighs* I can't open the archive`: somebody is played."""
_SENTENCE = re.compile(r"[^.!?？؟。！\n]*[.!?？؟。！\n]?")


class Refusal(Struct, frozen=True):
    """A reply that says that something cannot be done."""

    kind: Literal["false", "honest"]
    words: str
    """Where it says so."""
    tool: str = ""
    """The tool that would have done it, if the claim is false."""


def find_refusal(
    text: str, tools: Sequence[Tool], *, asked: str = "", after_result: bool = False
) -> Refusal | None:
    """What the reply refuses, if it does. `asked` is what the user has said last; after a result
    only the claim to have no tools at all is false, since what was called may well have failed."""
    if not tools or _STAGE_DIRECTION.match(text) or begins_with_call(text, tools):
        return None
    said = sentences(spoken(prose(text)))
    question = plain(spoken(asked))
    honest: Refusal | None = None
    for claim in find_claims(said):
        wanted = Sentence(question, claim.spoken_in).names()
        if _is_no_refusal(claim, said, wanted):
            continue
        tool = None
        if not _is_honest(claim, said, after_result):
            tool = _tool_for(claim, tools, wanted)
        if (
            tool
            and not _translates(question, tool)
            and not _asks_back(claim, text)
            and not _knows_its_tools(claim, said, tools)
        ):
            return Refusal("false", claim.words, tool.name)
        honest = honest or Refusal("honest", claim.words)
    return honest


def _is_no_refusal(claim: Claim, said: list[str], wanted: set[str]) -> bool:
    """Whether it only reads like one: words that were asked for, a letter, an explanation, or the
    step before a call; or no call was wanted."""
    if not wanted.isdisjoint({"words", "forbids"}) or plain(said[0]).startswith(_salutations()):
        return True
    for marks in (claim.marks, claim.after.names()):
        if "goes_on" in marks and "offers" not in marks:
            return True
    is_explained = any(one.speaker_needed for one in claim.spoken_in) and "why" in wanted
    return is_explained and "speaker" not in claim.marks


def _is_honest(claim: Claim, said: list[str], after_result: bool) -> bool:
    """Whether it says why, and not that it has no tool."""
    marks = claim.marks
    if not marks.isdisjoint({"harm", "missing", "given", "aware"}):
        return True
    if "harm" in claim.after.names():
        return True
    if _needs_to_know(claim):
        return True
    return after_result and (not _is_of_all_tools(marks) or _has_failed(claim, said))


def _needs_to_know(claim: Claim) -> bool:
    """Whether it cannot without something that only the user has: `without the number`, and not
    `without access`. In some languages that stands before the word for it."""
    if "lacking" in claim.marks:
        return claim.marks.isdisjoint({"general", "self"})
    without = claim.said.first("without", 0)
    if without is None or "without" not in claim.said.names(0, claim.turn):
        return False
    return claim.said.names(without).isdisjoint({"general", "self", "live"})


def _is_of_all_tools(marks: set[str]) -> bool:
    """Whether a sentence says that there are no tools, and not that one of them did not help."""
    return "self" in marks or ("general" in marks and not marks.isdisjoint({"live", "web"}))


def _has_failed(claim: Claim, said: list[str]) -> bool:
    return "failed" in Sentence(plain(" ".join(said)), claim.spoken_in).names()


def _tool_for(claim: Claim, tools: Sequence[Tool], wanted: set[str]) -> Tool | None:
    """The tool that gives what is claimed to be lacking, or else what was asked for."""
    tool = find_named_tool(claim.denial, tools)
    if tool:
        return tool
    lacked = claim.lacked
    if lacked.isdisjoint(all_topics()) and "able" not in claim.said.names(0, claim.start):
        lacked = claim.marks
    topics = lacked & all_topics()
    changes = "act" in claim.said.names(claim.start, claim.end)
    tool = find_tool_for_topics(topics, changes, tools) or find_tool_with_similar_name(
        claim.denial, changes, tools
    )
    if tool or lacked.isdisjoint({"live", "general", "self"}) or topics - {"web"}:
        return tool
    asked_for = wanted & all_topics()
    if asked_for - topics:
        # `I have no internet` is an excuse where no internet is needed.
        return find_tool_for_topics(asked_for, "act" in wanted, tools)
    return find_tool_for_topics({"live"}, False, tools) if "live" in lacked else None


def _asks_back(claim: Claim, text: str) -> bool:
    """Whether the reply asks for what is missing, or for leave: `Which city do you mean?`, and not
    for the work to be done: `Could you paste it?`, `Anything else?` What follows later is a draft
    of something, or another subject."""
    if not claim.marks.isdisjoint({"self", "general", "live", "web"}):
        return False
    return any(
        "hollow" not in Sentence(plain(spoken(sentence)), claim.spoken_in).names()
        for sentence in _SENTENCE.findall(text.strip().partition("\n\n")[0])
        if sentence.endswith(("?", "？", "؟"))
    )


def _knows_its_tools(claim: Claim, said: list[str], tools: Sequence[Tool]) -> bool:
    """Whether the reply says what it can: `I can only look up flights`."""
    only = _words_for_only(claim.spoken_in)
    for sentence in said:
        if not any(word in sentence for word in only):
            continue
        for part in Sentence(plain(sentence), claim.spoken_in).parts():
            marks = part.names()
            if not marks.isdisjoint({"only", "just"}) and find_named_tool(part.text, tools):
                return True
            if "only" not in marks or not marks.isdisjoint({"soft", "self"}):
                continue
            if find_tool_for_topics(
                marks & all_topics(), False, tools
            ) or find_tool_with_similar_name(part.text, False, tools):
                return True
    return False


@cache
def _words_for_only(spoken_in: tuple[Language, ...]) -> tuple[str, ...]:
    lists = (one.words_in(name) for one in spoken_in for name in ("only", "just"))
    return tuple(word.strip("*$") for words in lists for word in words)


def _translates(question: str, tool: Tool) -> bool:
    """Whether a translation was asked for, in any language: the words are somebody else's."""
    if "translate" in purpose_of(tool).topics:
        return False
    return any(word in question for word in _words_for_translating())


@cache
def _words_for_translating() -> tuple[str, ...]:
    return tuple(word for one in load_languages().values() for word in one.words_in("translate"))


@cache
def _salutations() -> tuple[str, ...]:
    return tuple(f" {word}" for one in load_languages().values() for word in one.words_in("letter"))
