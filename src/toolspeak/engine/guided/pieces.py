"""The pieces of a question that may be values: numbers, dates, what is quoted, names, phrases.

A weak model finds the right one among them far better than it writes one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

from msgspec import Struct

from .words import STOP, key_of

Kind = Literal["number", "quote", "date", "name", "phrase", "list", "listed", "earlier", "free"]
STRONG = frozenset[Kind]({"number", "quote", "date", "name"})
"""The kinds that stand out from other words."""


class Piece(Struct, frozen=True):
    """A value, and where the question has it; -1 if it has it nowhere."""

    value: Any
    start: int
    end: int
    kind: Kind

    @property
    def is_placed(self) -> bool:
        return self.start >= 0

    def overlaps(self, start: int, end: int) -> bool:
        return self.start < end and start < self.end


# Numbers.

_NUMBER = re.compile(
    r"(?<![\w.^])(-?)(?:\$|€|£)?(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)"
    r"(\s*%|\s+(?:percent|thousand|million|billion|dozen)\b)?",
    re.I,
)
_WORDS = "zero one two three four five six seven eight nine ten eleven twelve"
_COUNTED = {word: number for number, word in enumerate(_WORDS.split()) if word != "one"}
"""What is counted in words; `one` is hardly ever a number."""
_TIMES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "dozen": 12}
_SHARE = ("%", "percent")
_BEFORE_SIGN = " =([,$:\"'"
_LETTERS = re.compile(r"[A-Za-z]+")


def numbers(text: str, kind: str, skip: Iterable[tuple[int, int]] = ()) -> list[Piece]:
    """The numbers of a text, but for those within `skip`. A share is a fraction, unless it has to
    be an integer; words count where there are no digits."""
    skipped = list(skip)
    is_integer = kind == "integer"
    found = [
        Piece(_value_of(match, text, is_integer), match.start(), match.end(), "number")
        for match in _NUMBER.finditer(text)
        if not any(start <= match.start() < end for start, end in skipped)
    ]
    if not found:
        found = [
            Piece(_COUNTED[match[0].lower()], match.start(), match.end(), "number")
            for match in _LETTERS.finditer(text)
            if match[0].lower() in _COUNTED
        ]
    return [piece for piece in found if not is_integer or piece.value == int(piece.value)]


def _value_of(match: re.Match[str], text: str, is_integer: bool) -> float:
    digits = match[2].replace(",", "")
    value: float = float(digits) if "." in digits else int(digits)
    unit = (match[3] or "").strip().lower()
    if unit in _TIMES:
        value = round(value * _TIMES[unit], 6)
        value = int(value) if value == int(value) else value
    if match[1] and (match.start() == 0 or text[match.start() - 1] in _BEFORE_SIGN):
        value = -value
    return round(value / 100, 10) if unit in _SHARE and not is_integer else value


# Dates, and what is quoted.

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = rf"(?:{'|'.join(_MONTHS).title()})[a-z]*\.?"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_DATE = re.compile(
    rf"\b{_MONTH}\s+{_DAY}(?:,?\s*\d{{4}})?\b|\b{_DAY}\s+(?:of\s+)?{_MONTH}(?:,?\s*\d{{4}})?\b"
    r"|\b\d{4}-\d\d-\d\d\b|\b\d{1,2}/\d{1,2}/\d{2,4}\b"
)
_QUOTED = re.compile(
    r"(?<!\w)'([^'\n]{1,80}?)'(?!\w)|\"([^\"\n]{1,80}?)\"|“([^”\n]{1,80})”|‘([^’\n]{1,80})’"
    r"|«([^»\n]{1,80})»|`([^`\n]{1,80})`"
)
_YEAR, _NAMED_MONTH = re.compile(r"\d{4}"), re.compile(r"[A-Za-z]{3,}")
_DAY_ALONE = re.compile(r"(?<!\d)\d{1,2}(?!\d)")


def iso(date: str) -> str | None:
    """`March 5th, 2024` as `2024-03-05`; None for what is no full date with a month's name."""
    year, month, day = (pattern.search(date) for pattern in (_YEAR, _NAMED_MONTH, _DAY_ALONE))
    if not (year and month and day) or month[0][:3].lower() not in _MONTHS:
        return None
    return f"{year[0]}-{_MONTHS.index(month[0][:3].lower()) + 1:02d}-{int(day[0]):02d}"


def quoted(text: str) -> list[Piece]:
    """What stands in quotes."""
    return [
        Piece(match[match.lastindex or 0], match.start(), match.end(), "quote")
        for match in _QUOTED.finditer(text)
    ]


def without_quotes(text: str) -> str:
    """A question that stands in quotes as a whole, without them."""
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


# Names and phrases.

_WORD = re.compile(r"[^\s,;:?!()\[\]{}\"“”«»]+")
_ENDING = re.compile(r"(?:'s|’s|s'|')?[.'’]*$")
_INITIALS = re.compile(r"(?:\w\.)+\w")
_STATE = re.compile(r"[A-Z]{2,3}|(?:[A-Z]\.)+[A-Z]?\.?")
_SENTENCE_BEFORE = re.compile(r"[.?!]\s*[\"'(]*$")
_WITHIN_NAMES = frozenset(
    ("of", "the", "de", "la", "del", "von", "van", "da", "di", "du", "des", "and", "&", "for", "in")
)
_MOST_WORDS, _FARTHEST = 4, 6
_FAR_ENOUGH = 16


class _Word(Struct, frozen=True):
    """A word, or several that are one name. The first of a sentence is capitalised anyway."""

    text: str
    start: int
    end: int
    kind: Literal["name", "first", "plain", "stop"]


class Question:
    """What a user asks for, taken apart."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def dates(self) -> list[Piece]:
        return [
            Piece(match[0], match.start(), match.end(), "date")
            for match in _DATE.finditer(self.text)
        ]

    @cached_property
    def quotes(self) -> list[Piece]:
        return quoted(self.text)

    @cached_property
    def names(self) -> list[Piece]:
        """Runs of capitalised words."""
        names = (word for word in self._words if word.kind == "name")
        return [Piece(word.text, word.start, word.end, "name") for word in names]

    def numbers(self, kind: str) -> list[Piece]:
        """The numbers that are no part of a date or a name, if there are any such."""
        return self.plain_numbers(kind) or numbers(self.text, kind)

    def plain_numbers(self, kind: str) -> list[Piece]:
        """The numbers that are no part of a date or a name."""
        skip = [(piece.start, piece.end) for piece in (*self.dates, *self.names)]
        return numbers(self.text, kind, skip)

    @cached_property
    def is_telling(self) -> bool:
        """Whether there is anything in it that stands out."""
        return bool(self.quotes or self.dates or self.names or numbers(self.text, "number"))

    def texts(self, labels: set[str]) -> list[Piece]:
        """All that may be a text argument. `labels` are the words that name arguments, and are no
        values themselves."""
        found = [*self.dates, *self.quotes]
        for at, word in enumerate(self._words):
            if word.kind != "stop" and not _is_label(word, labels):
                found += self._from(at, labels)
        return found

    def _from(self, at: int, labels: set[str]) -> Iterator[Piece]:
        """The pieces that begin with a word."""
        words, first = self._words, self._words[at]
        kind: Kind = "name" if first.kind == "name" else "phrase"
        if first.kind != "first":
            yield Piece(first.text, first.start, first.end, kind)
        count = 1
        for index in range(at + 1, min(len(words), at + _FARTHEST)):
            before, word = words[index - 1], words[index]
            gap = self.text[before.end : word.start]
            are_names = before.kind == word.kind == "name"
            if gap != " " and not (gap == ", " and are_names):
                return
            if word.kind == "stop":
                follows = words[index + 1].kind == "name" if index + 1 < len(words) else False
                if before.kind == "name" and follows and word.text.lower() in _WITHIN_NAMES:
                    continue
                return
            count += 1
            if count > _MOST_WORDS or (first.kind == "name") != (word.kind == "name"):
                return
            if not _is_label(word, labels):
                yield Piece(self.text[first.start : word.end], first.start, word.end, kind)

    @cached_property
    def _words(self) -> list[_Word]:
        found: list[_Word] = []
        taken = [(piece.start, piece.end) for piece in (*self.dates, *self.quotes)]
        last: _Word | None = None
        for match in _WORD.finditer(self.text):
            within = any(start <= match.start() < end for start, end in taken)
            word = None if within else self._word(match)
            if word and last and last.kind == "name" and self._goes_on(last, word):
                word = _Word(self.text[last.start : word.end], last.start, word.end, "name")
                found[-1] = word
            elif word:
                found.append(word)
            last = word
        return found

    def _word(self, match: re.Match[str]) -> _Word | None:
        text = match[0].lstrip("'‘$€£¿¡")
        start = match.end() - len(text)
        bare = _ENDING.sub("", text)
        if text[len(bare) :].startswith(".") and self._is_short_form(bare, match.end()):
            bare += "."
        if not bare:
            return None
        is_stop = bare.lower() in STOP
        is_name = bare[0].isupper() and not is_stop
        before = self.text[max(0, start - _FAR_ENOUGH) : start]
        begins = start == 0 or _SENTENCE_BEFORE.search(before) is not None
        if is_name:
            return _Word(bare, start, start + len(bare), "first" if begins else "name")
        kind = "stop" if is_stop or len(bare) < 2 else "plain"
        return _Word(bare, start, start + len(bare), kind)

    def _is_short_form(self, bare: str, end: int) -> bool:
        """Whether a dot belongs to the word: `U.S.`, `Inc.` before more of the sentence."""
        goes_on = self.text[end : end + 2].strip()[:1].islower()
        return bool(_INITIALS.fullmatch(bare)) or (
            len(bare) <= 4 and bare[0:1].isupper() and goes_on
        )

    def _goes_on(self, last: _Word, word: _Word) -> bool:
        """Whether a name goes on with this word: `New York`, `Maroon 5`, `Boston, MA`."""
        gap = self.text[last.end : word.start]
        capital = word.text[0].isupper() and word.kind != "stop"
        joined = gap == " " and (capital or word.text.isdigit())
        return joined or (gap == ", " and _STATE.fullmatch(word.text) is not None)


def _is_label(word: _Word, labels: set[str]) -> bool:
    return word.kind in ("plain", "first") and key_of(word.text.lower()) in labels


# Several of a kind.

_LINK = r"(?:,|,?\s*\b(?:and|or|as well as|vs|versus|y|e|et|und)\b|&)"


def _between(unit: str) -> re.Pattern[str]:
    return re.compile(
        rf"['\"”’]?{unit}\s*{_LINK}\s*(?:the\s+|for\s+|in\s+|of\s+)?['\"“‘$€£]?", re.I
    )


_BETWEEN, _BETWEEN_NUMBERS = _between(""), _between(r"(?:\s?[^\W\d]+)?")


def enumerated(pieces: Sequence[Piece], text: str, kind: Kind) -> list[list[Piece]]:
    """What is listed: `A, B and C`; numbers may have a unit: `20 minutes and 15 minutes`."""
    between = _BETWEEN_NUMBERS if kind == "number" else _BETWEEN
    runs: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda piece: piece.start):
        if runs and between.fullmatch(text[runs[-1][-1].end : piece.start]):
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return [run for run in runs if len(run) > 1 and not (kind == "name" and _is_place(run, text))]


def _is_place(run: list[Piece], text: str) -> bool:
    """`Austin, Texas` is one place, and no list."""
    return len(run) == 2 and text[run[0].end : run[1].start].strip() == ","


def largest(pieces: Sequence[Piece]) -> list[Piece]:
    """Those that stand in no other."""
    return [
        piece
        for piece in pieces
        if not any(
            other.start <= piece.start
            and piece.end <= other.end
            and other.end - other.start > piece.end - piece.start
            for other in pieces
        )
    ]
