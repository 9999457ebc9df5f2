"""What an argument may be: the pieces of the question that are of its kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from .pieces import STRONG, Piece, Question, enumerated, iso, largest, numbers, quoted
from .words import is_named

_BRACKETS = re.compile(r"\[([^\[\]]*)\]|\(([^()]*,[^()]*)\)")
_DIGITS = re.compile(r"-?\d+(?:\.\d+)?")
_ROW = re.compile(r"-?\d+(?:\.\d+)?(?:(?:, and |, | and |,)-?\d+(?:\.\d+)?(?![\d%]))+")
_DATE_FORM = re.compile(r"yyyy-mm-dd", re.I)
NUMBERS = ("integer", "number")
Json = dict[str, Any]


class Values:
    """The values that there are for the arguments of one call."""

    def __init__(
        self,
        question: Question,
        labels: set[str],
        *,
        context: str = "",
        earlier: Mapping[str, Any] | None = None,
        not_values: Iterable[str] = (),
    ) -> None:
        self._question = question
        self._labels = labels
        """The words that name arguments, and are none."""
        self._context = context
        """All that the user said, of which the question may be a part."""
        self._earlier = earlier or {}
        """The arguments of calls before."""
        self._not_values = frozenset(not_values)
        self.used: set[tuple[int, int]] = set()
        """The places that are some argument's."""

    def free(self, pieces: Iterable[Piece]) -> list[Piece]:
        """Those that are no other argument's."""
        used = self.used
        return [piece for piece in pieces if not any(piece.overlaps(*place) for place in used)]

    def of(self, name: str, schema: Json) -> list[Piece]:
        if listed := schema.get("enum"):
            return [Piece(value, -1, -1, "listed") for value in self.named(listed) or listed]
        match kind_of(schema):
            case "boolean":
                return [Piece(value, -1, -1, "listed") for value in (True, False)]
            case "integer" | "number" as kind:
                return self._numbers(name, kind)
            case "array":
                return self._lists(name, schema)
            case "string":
                return self._texts(name, schema)
            case _:
                return []

    def named(self, values: Iterable[Any]) -> list[Any]:
        """The values that the question names, but none that is only a part of another."""
        named = [value for value in values if is_named(value, self._question.text)]
        lower = [str(value).lower() for value in named]
        return [
            value
            for value in named
            if not any(str(value).lower() in other != str(value).lower() for other in lower)
        ]

    def _numbers(self, name: str, kind: str) -> list[Piece]:
        found = self._question.numbers(kind)
        if not found and name in self._earlier:
            return [Piece(self._earlier[name], -1, -1, "earlier")]
        if not found:
            around = numbers(self._context, kind)
            found = [Piece(piece.value, -1, -1, "earlier") for piece in around]
        return self.free(found) or found

    def _texts(self, name: str, schema: Json) -> list[Piece]:
        question = self._question
        examples = examples_in(schema)
        if named := [one for one in examples if is_named(one.value, question.text)]:
            return named
        dates = self.free(question.dates)
        if _DATE_FORM.search(schema.get("description") or ""):
            full = [(iso(piece.value), piece) for piece in dates]
            if found := [Piece(date, one.start, one.end, "date") for date, one in full if date]:
                return found
        if "date" in name and dates:
            return dates
        pieces = [one for one in question.texts(self._labels) if one.value not in self._not_values]
        pieces = self.free(pieces) or pieces
        if name in self._earlier and not any(piece.kind in STRONG for piece in pieces):
            return [Piece(self._earlier[name], -1, -1, "earlier")]
        return pieces + examples

    def _lists(self, name: str, schema: Json) -> list[Piece]:
        items = schema.get("items")
        item: Json = dict(items) if isinstance(items, Mapping) else {"type": "string"}
        kind = kind_of(item)
        found: list[Piece] = []
        if kind in NUMBERS:
            found = _rows(self._question.text) or [
                Piece([piece.value], piece.start, piece.end, "list")
                for piece in numbers(self._question.text, kind)
            ]
        elif kind == "string":
            described = quoted(schema.get("description") or "")
            listed = item.get("enum") or [one.value for one in described]
            if named := [one for one in listed if is_named(one, self._question.text)]:
                return [Piece(named, -1, -1, "listed")]
            found = self._text_lists()
        found = self.free(found) or found
        if not found and name in self._earlier:
            found = [Piece(self._earlier[name], -1, -1, "earlier")]
        if not found and self._context not in ("", self._question.text):
            around = Values(Question(self._context), self._labels)._lists(name, schema)
            found = [Piece(piece.value, -1, -1, "earlier") for piece in around]
        return found

    def _text_lists(self) -> list[Piece]:
        text = self._question.text
        found = [
            Piece(
                [part.strip().strip("'\"") for part in match[1].split(",")], *match.span(), "list"
            )
            for match in _BRACKETS.finditer(text)
            if match[1] is not None
        ]
        if found:
            return found
        single = self._question.texts(self._labels)
        phrases = largest([piece for piece in single if piece.kind == "phrase"])
        runs = [
            *enumerated([piece for piece in single if piece.kind == "quote"], text, "quote"),
            *enumerated(self._question.names, text, "name"),
            *enumerated(phrases, text, "phrase"),
        ]
        lists = [
            Piece([piece.value for piece in run], run[0].start, run[-1].end, "list") for run in runs
        ]
        alone = [Piece([one.value], one.start, one.end, "list") for one in self.free(single)]
        return self.free(lists) + alone


def kind_of(schema: Mapping[str, Any]) -> str:
    """The kind of value that a schema is for; a text, if it does not say."""
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), None)
    if kind is None and "properties" in schema:
        return "object"
    return _KINDS.get(kind, str(kind))


_KINDS = {None: "string", "any": "string", "float": "number", "dict": "object", "list": "array"}
"""What some call the kinds of JSON."""


def examples_in(schema: Mapping[str, Any]) -> list[Piece]:
    """The values that a description quotes, if there are several."""
    found = [Piece(one.value, -1, -1, "listed") for one in quoted(schema.get("description") or "")]
    return found if len(found) > 1 else []


def _rows(text: str) -> list[Piece]:
    """Numbers in a row, in brackets or without."""
    found: list[Piece] = []
    for match in _BRACKETS.finditer(text):
        parts = [part.strip() for part in (match[1] or match[2] or "").split(",")]
        if all(_DIGITS.fullmatch(part) for part in parts):
            found.append(Piece(list(map(_number, parts)), *match.span(), "list"))
    return found or [
        Piece(list(map(_number, _DIGITS.findall(match[0]))), *match.span(), "list")
        for match in _ROW.finditer(text)
    ]


def _number(digits: str) -> float:
    return float(digits) if "." in digits else int(digits)
