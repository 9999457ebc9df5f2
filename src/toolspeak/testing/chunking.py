"""Parse the same text in chunks of any size, for tests of parsers.

for size in range(1, 17):
    assert parse(split_into_chunks(text, size), dialect="hermes") == expected
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from ..dialects import Parser
from ..events import Event, fold
from ..types import Reply


def split_into_chunks(text: str, size: int) -> Iterator[str]:
    """Split a text into chunks of `size` characters."""
    return (text[at : at + size] for at in range(0, len(text), size))


def split_at(text: str, positions: Iterable[int]) -> Iterator[str]:
    """Split a text at these positions."""
    edges = sorted({0, len(text), *positions})
    return (text[start:end] for start, end in itertools.pairwise(edges))


def parse_to_events(chunks: Iterable[str], **options: Any) -> list[Event]:
    """Return the events of a parser that is fed these chunks. Generated call ids are numbered."""
    counter = itertools.count(1)
    parser = Parser(new_id=lambda: f"call_{next(counter)}", **options)
    found = [event for chunk in chunks for event in parser.feed(chunk)]
    return [*found, *parser.finish()]


def parse(chunks: Iterable[str], **options: Any) -> Reply:
    """Return the reply that these chunks form."""
    return fold(parse_to_events(chunks, **options))
