"""How many calls a question asks for: as many as there are things listed, or sets of values."""

from __future__ import annotations

import re
from itertools import islice, pairwise, product
from typing import Any

from .candidates import kind_of
from .filling import Filling
from .pieces import STRONG, Kind, Piece, enumerated, largest, quoted
from .words import place_of, words

_SEPARATES = re.compile(
    r"\b(?:and|then|also|plus|while|or|but|versus|vs)\b|[.;?!](?:\s|$)|\n", re.I
)
Json = dict[str, Any]


def repetitions(
    filling: Filling, first: Json, most: int
) -> list[tuple[Json, dict[str, list[Piece]]]]:
    """What further calls have for certain, and which pieces their other arguments are among. None,
    if one call is all that is asked for; else the first is one of them."""
    listed = _listed(filling, first)
    sizes = {len(values) for values in listed.values()}
    if len(sizes) > 1:
        rows = islice(product(*listed.values()), most)
        return [({**first, **dict(zip(listed, row, strict=True))}, {}) for row in rows]
    shares = _shares(filling, first, listed)
    if sizes:
        count = sizes.pop()
    elif shares:
        counts = {len(split) for _, split in shares.values()}
        if len(counts) > 1 and "number" not in shares:
            return []
        count = len(shares["number"][1]) if len(counts) > 1 else counts.pop()
    else:
        return []
    split = [(names, parts) for names, parts in shares.values() if len(parts) == count]
    found: list[tuple[Json, dict[str, list[Piece]]]] = []
    for at in range(min(count, most)):
        only = {name: parts[at] for names, parts in split for name in names}
        given = {name: value for name, value in first.items() if name not in only}
        given |= {name: values[at] for name, values in listed.items()}
        found.append((given, only))
    return found


def _listed(filling: Filling, first: Json) -> dict[str, list[Any]]:
    """Arguments whose value stands in a list (`A, B and C`), no other part of which is used."""
    found: dict[str, list[Any]] = {}
    text = filling.question.text
    for name, source in filling.sources.items():
        if not source.is_placed or kind_of(filling.schemas[name]) in ("array", "object"):
            continue
        for run in enumerated(_alike(filling, name), text, source.kind):
            inside = any(one.start <= source.start and source.end <= one.end for one in run)
            taken = any(
                one.overlaps(other.start, other.end)
                for key, other in filling.sources.items()
                if key != name
                for one in run
            )
            if inside and not taken:
                found[name] = [one.value for one in run]
    for name, schema in filling.schemas.items():
        if name not in first or kind_of(schema) == "array":
            continue
        described = [one.value for one in quoted(schema.get("description") or "")]
        named = filling.values.named(schema.get("enum") or described)
        if len(named) > 1 and first[name] in named:
            found[name] = sorted(named, key=lambda value: place_of(value, text))
    return found


def _alike(filling: Filling, name: str) -> list[Piece]:
    """All pieces of the kind that an argument's value is of."""
    question = filling.question
    match filling.sources[name].kind:
        case "number":
            return question.plain_numbers(kind_of(filling.schemas[name]))
        case "quote":
            return question.quotes
        case "date":
            return question.dates
        case "name":
            return [one for one in question.names if not _is_label(one, filling.labels)]
        case "phrase":
            pieces = question.texts(filling.labels)
            return largest([one for one in pieces if one.kind == "phrase"])
        case _:
            return []


def _is_label(piece: Piece, labels: set[str]) -> bool:
    return {word[:5] for word in words(piece.value)} <= labels


def _shares(
    filling: Filling, first: Json, listed: dict[str, list[Any]]
) -> dict[Kind, tuple[list[str], list[list[Piece]]]]:
    """By kind: the arguments that have values of it, and those values, a share for each call; where
    there are several times as many as one call needs, and the shares stand apart."""
    needed: dict[Kind, list[str]] = {}
    for name, source in filling.sources.items():
        is_one = kind_of(filling.schemas[name]) not in ("array", "object")
        if name in first and is_one and source.kind in STRONG:
            needed.setdefault(source.kind, []).append(name)
    lists = [
        one
        for name, one in filling.sources.items()
        if one.is_placed and kind_of(filling.schemas[name]) == "array"
    ]
    found: dict[Kind, tuple[list[str], list[list[Piece]]]] = {}
    for kind, all_names in needed.items():
        names = [name for name in all_names if name not in listed]
        pieces = [
            one
            for one in _alike(filling, all_names[0])
            if not any(other.start <= one.start < other.end for other in lists)
            and not any(one.value in values for values in listed.values())
        ]
        count, rest = divmod(len(pieces), len(names)) if names else (0, 0)
        if count < 2 or rest:
            continue
        size = len(names)
        shares = [pieces[at * size : (at + 1) * size] for at in range(count)]
        if _stand_apart(filling.question.text, shares):
            found[kind] = (names, shares)
    return found


def _stand_apart(text: str, shares: list[list[Piece]]) -> bool:
    """Whether there is more than words between the shares: an `and`, the end of a sentence, a comma
    in a longer list."""
    for one, other in pairwise(shares):
        gap = text[max(piece.end for piece in one) : min(piece.start for piece in other)]
        if not (_SEPARATES.search(gap) or (len(shares) > 2 and "," in gap)):
            return False
    return True
