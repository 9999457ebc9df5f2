"""The arguments of one call: what the question says plainly is taken, the model chooses the rest.

It chooses by JSON schema among the pieces that the question has, all arguments in one request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable, Mapping
from typing import Any

from msgspec import Struct

from ...calls.schema import get_properties, get_required, resolve_ref
from ...types import Tool
from .candidates import NUMBERS, Values, examples_in, kind_of
from .pieces import STRONG, Piece, Question, numbers
from .words import is_named, key_of, keys, words

SYSTEM = "Fill in the arguments of the function with words from the question."
_NUMBERED = re.compile(r"\d+|(?:^|_)(?:first|second|third|one|two|three)(?=_|$)")
_NOT = re.compile(r"\b(?:not|no|without|exclud\w*|don't|doesn't|except|never|avoid\w*)\b", re.I)
_STOPS = re.compile(r"[.;?!]\s|,\s")
_STOP_AFTER = re.compile(r"[.;?!,]\s")
_CLAUSE = re.compile(r"[.,;?!]")
_LONGEST = 40
_MOST_VALUES = 256
_BOUNDS = ("minimum", "maximum", "minItems", "maxItems")
_BEFORE = 3
"""How many words before a value may name what it is."""

Json = dict[str, Any]


class Step(Struct, frozen=True):
    """One question for the model."""

    system: str
    user: str
    schema: Json


Steps = Generator[Step, Json, Json]
"""Asks, is given what the model has answered, and ends with the arguments."""


class NoValue(Exception):
    """The question has no value for an argument that is needed."""


class Filling:
    """The arguments for one call of a tool."""

    def __init__(
        self,
        question: Question,
        tool: Tool,
        *,
        context: str = "",
        earlier: Mapping[str, Any] | None = None,
        not_values: Iterable[str] = (),
        must: bool = False,
    ) -> None:
        self.question = question
        self.tool = tool
        self.schemas: dict[str, Json] = {
            name: dict(resolve_ref(schema, tool.parameters))
            for name, schema in get_properties(tool.parameters).items()
        }
        self._required = _needed(tool, self.schemas)
        self.labels = keys(tool.name) | {key for name in self.schemas for key in keys(name)}
        self.values = Values(
            question, self.labels, context=context, earlier=earlier, not_values=not_values
        )
        self._must = must
        """A call has to be made, whatever is missing."""
        self.only: dict[str, list[Piece]] = {}
        """The pieces that an argument may have, where they are known."""
        self.given: Json = {}
        """Arguments that are known."""
        self.sources: dict[str, Piece] = {}
        """Where arguments come from."""
        self._arguments: Json = {}

    def run(self) -> Steps:
        """Fill in all that is needed, and what else the question speaks of."""
        self._arguments = dict(self.given)
        spoken_of = [name for name in self.schemas if self._is_spoken_of(name)]
        for name in (*self._required, *spoken_of):
            self._take_plain(name, is_needed=name in self._required)
        yield from self._fill(self._required)
        wanted = [name for name in spoken_of if name in self._arguments or self._is_left_for(name)]
        yield from self._fill([*self._required, *wanted])
        return {name: self._arguments[name] for name in self.schemas if name in self._arguments}

    def _fill(self, names: list[str]) -> Generator[Step, Json, None]:
        while open_ := [name for name in names if name not in self._arguments]:
            pools = self._pools(open_)
            if pools:
                said = yield self._step(names, pools)
                self._hear(said, pools)

    def _pools(self, names: list[str]) -> dict[str, list[Piece] | None]:
        """What each argument may be, of those that are not clear by themselves; None for objects,
        whose own fields have their own."""
        pools: dict[str, list[Piece] | None] = {}
        for name in names:
            kind = kind_of(self.schemas[name])
            if kind == "object":
                pools[name] = None
                continue
            pieces = self._pieces(name)
            if not pieces and kind == "array":
                self._arguments[name] = []
            elif not pieces and kind in NUMBERS and not self._must:
                raise NoValue(name)
            elif pieces and not pools and (one := self._only_one(name, pieces)):
                self._take(name, one)
            else:
                pools[name] = pieces
        return pools

    def _only_one(self, name: str, pieces: list[Piece]) -> Piece | None:
        return pieces[0] if len(_values(pieces)) == 1 else self._in_order(name, pieces)

    def _step(self, names: list[str], pools: Mapping[str, list[Piece] | None]) -> Step:
        order = [name for name in names if name in self._arguments or name in pools]
        fields = {
            name: self._schema(name, pools[name])
            if name in pools
            else {"enum": [self._arguments[name]]}
            for name in order
        }
        lines = [
            f"Function: {self.tool.name}: {self.tool.description}",
            "Arguments:",
            *(f"- {name} {_told(self.schemas[name])}" for name in names),
            f"Question: {self.question.text}",
        ]
        return Step(SYSTEM, "\n".join(lines), _object(fields))

    def _schema(self, name: str, pieces: list[Piece] | None) -> Json:
        schema = self.schemas[name]
        if pieces is None:
            inner = get_properties(schema)
            return _object({key: self._inner(key, dict(item)) for key, item in inner.items()})
        values = _values(pieces)[:_MOST_VALUES]
        return {"enum": values} if values else _free(schema)

    def _inner(self, name: str, schema: Json) -> Json:
        """The schema of an object's field."""
        if kind_of(schema) == "object":
            return _object({key: _free(dict(item)) for key, item in get_properties(schema).items()})
        values = [] if kind_of(schema) == "boolean" else _values(self.values.of(name, schema))
        return {"enum": values} if values else _free(schema)

    def _hear(self, said: Json, pools: Mapping[str, list[Piece] | None]) -> None:
        """Take what the model has chosen. Of two that chose the same piece, only one is right, and
        the second is asked about again."""
        for at, (name, pieces) in enumerate(pools.items()):
            value = said.get(name)
            if not pieces:
                self._arguments[name] = value
                continue
            chosen = [one for one in pieces if _same(one.value, value)]
            free = self.values.free(chosen)
            if free or at == 0 or (chosen and not chosen[0].is_placed):
                self._take(name, (free or chosen or [Piece(value, -1, -1, "free")])[0])

    def _take(self, name: str, piece: Piece) -> None:
        if piece.is_placed:
            self.values.used.add((piece.start, piece.end))
        self.sources[name] = piece
        self._arguments[name] = piece.value

    def _pieces(self, name: str) -> list[Piece]:
        if name in self.only:
            return self.values.free(self.only[name]) or self.only[name]
        return self.values.of(name, self.schemas[name])

    # What is clear by itself.

    def _take_plain(self, name: str, *, is_needed: bool) -> None:
        """Take a value that stands right beside its own name."""
        kind = kind_of(self.schemas[name])
        if name in self._arguments or kind == "object":
            return
        if kind == "boolean":
            if not is_needed:
                self._arguments[name] = self._is_wanted(name)
            return
        pieces = self._pieces(name)
        if len(_values(pieces)) > 1 and (beside := self._beside_name(name, pieces)):
            self._take(name, beside)

    def _beside_name(self, name: str, pieces: list[Piece]) -> Piece | None:
        """`radius of 4`, `3 nights`."""
        others = (key for other in self.schemas if other != name for key in keys(other))
        own = keys(name) - {*others, *keys(self.tool.name)} or (
            {name.lower()} if len(name) == 1 else set[str]()
        )
        pieces = [piece for piece in pieces if piece.is_placed and piece.kind in STRONG]
        if not own or not pieces:
            return None
        ranked = [(rank, piece) for piece in pieces if (rank := self._rank(piece, pieces, own)) < 2]
        best = min((rank for rank, _ in ranked), default=2)
        found = [piece for rank, piece in ranked if rank == best]
        return found[0] if len(_values(found)) == 1 else None

    def _rank(self, piece: Piece, pieces: list[Piece], own: set[str]) -> int:
        """0 if the name stands before a piece, 1 if after it, 2 if neither."""
        text = self.question.text
        begin = max((one.end for one in pieces if one.end <= piece.start), default=0)
        end = min((one.start for one in pieces if one.start >= piece.end), default=len(text))
        before = words(_STOPS.split(text[begin : piece.start])[-1])[-_BEFORE:]
        after = words(_STOP_AFTER.split(text[piece.end : end])[0])[:1]
        if own & {key_of(word) for word in before}:
            return 0
        return 1 if own & {key_of(word) for word in after} else 2

    def _in_order(self, name: str, pieces: list[Piece]) -> Piece | None:
        """Arguments that differ only in a number (`city1`, `city2`) take what comes, in order."""
        alike = [other for other in self.schemas if _unnumbered(other) == _unnumbered(name)]
        if len(alike) < 2:
            return None
        last = next((self.sources[one] for one in reversed(alike) if one in self.sources), None)
        kinds = {piece.kind for piece in pieces}
        if pieces[0].kind == "number" or kinds in ({"quote"}, {"list"}):
            after = (piece for piece in pieces if last is None or piece.start >= last.end)
            return next(after, None)
        if last is None or last.kind not in ("name", "quote") or not last.is_placed:
            return None
        later = [one for one in pieces if one.kind == last.kind and one.start >= last.end]
        first = min((one.start for one in later), default=-1)
        return max(
            (one for one in later if one.start == first), key=lambda one: one.end, default=None
        )

    def _is_wanted(self, name: str) -> bool:
        """Whether a switch that the question speaks of is on."""
        own, text = keys(name), self.question.text
        for match in re.finditer(r"[^\W_]+", text):
            if key_of(match[0].lower()) in own:
                before = _CLAUSE.split(text[max(0, match.start() - 40) : match.start()])[-1]
                return not _NOT.search(before)
        return True

    def _is_spoken_of(self, name: str) -> bool:
        """Whether an argument that is not needed may be meant."""
        if name in self._required:
            return False
        if name in self.given or name in self.only:
            return True
        schema, text = self.schemas[name], self.question.text
        if schema.get("enum"):
            return any(is_named(value, text) for value in schema["enum"])
        named = bool((keys(name) - keys(self.tool.name)) & keys(text))
        if kind_of(schema) == "string":
            return named or any(is_named(one.value, text) for one in examples_in(schema))
        return named and kind_of(schema) != "object"

    def _is_left_for(self, name: str) -> bool:
        """Whether the question has anything left for an argument that is not needed."""
        schema, text = self.schemas[name], self.question.text
        match kind_of(schema):
            case "integer" | "number" as kind:
                return bool(self.values.free(numbers(text, kind)))
            case "string" if not schema.get("enum"):
                return bool(self.values.free(self.question.texts(self.labels))) or any(
                    is_named(one.value, text) for one in examples_in(schema)
                )
            case _:
                return True


def _needed(tool: Tool, schemas: Mapping[str, Json]) -> list[str]:
    """The arguments that a call needs; the first one, where a schema says nothing of that."""
    if "required" in tool.parameters:
        return [name for name in schemas if name in get_required(tool.parameters)]
    return [name for name, schema in schemas.items() if kind_of(schema) != "boolean"][:1]


def _told(schema: Mapping[str, Any]) -> str:
    return f"({schema.get('type')}): {schema.get('description') or ''}"


def _unnumbered(name: str) -> str:
    return _NUMBERED.sub("#", name)


def _values(pieces: Iterable[Piece]) -> list[Any]:
    """The values of pieces, each once. `1` and `true` are two."""
    return list({json.dumps(piece.value): piece.value for piece in pieces}.values())


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


def _object(fields: Json) -> Json:
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def _free(schema: Mapping[str, Any]) -> Json:
    """For a value that the question does not have."""
    kind = kind_of(schema)
    if schema.get("enum"):
        return {"enum": list(schema["enum"])}
    if kind == "string":
        return {"type": "string", "maxLength": _LONGEST}
    bounds = {key: schema[key] for key in _BOUNDS if key in schema}
    if kind == "array":
        items = schema.get("items")
        inner = _free(items if isinstance(items, Mapping) else {})
        return {"type": "array", "items": inner, **bounds}
    return {"type": kind, **bounds}
