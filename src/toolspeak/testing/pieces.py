"""Help for tests of parsers: the same text in every kind of chunks.

for size in range(1, 17):
    assert comparable(parse(chunks(text, size), dialect="hermes")) == expected
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from ..dialects import Parser
from ..events import Event, fold
from ..types import Reply


def chunks(text: str, size: int) -> Iterator[str]:
    """The text, `size` characters at a time."""
    return (text[at : at + size] for at in range(0, len(text), size))


def split_at(text: str, places: Iterable[int]) -> Iterator[str]:
    """The text, cut at these places."""
    edges = sorted({0, len(text), *places})
    return (text[start:end] for start, end in itertools.pairwise(edges))


def events(pieces: Iterable[str], **options: Any) -> list[Event]:
    """Everything a parser says about a text that arrives in pieces. Made-up ids are counted."""
    counter = itertools.count(1)
    parser = Parser(new_id=lambda: f"call_{next(counter)}", **options)
    found = [event for piece in pieces for event in parser.feed(piece)]
    return [*found, *parser.finish()]


def parse(pieces: Iterable[str], **options: Any) -> Reply:
    """The whole reply in a text that arrives in pieces."""
    return fold(events(pieces, **options))
