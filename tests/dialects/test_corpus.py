"""Other projects' format cases. They are no part of this repository: see `TOOLSPEAK_CORPUS`."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bench.dialect_cases import is_right, kind_of, options_of, rows

from tests.support import get_corpus_folder, to_comparable
from toolspeak.testing import parse, split_into_chunks

MISSES = tomllib.loads((Path(__file__).parent / "corpus_misses.toml").read_text())
BARS = {
    ("literal", "named"): 0.96,
    ("literal", "auto"): 0.93,
    ("recorded", "named"): 0.91,
    ("recorded", "auto"): 0.87,
}


def listed(mode: str) -> dict[str, str]:
    """The misses that are known, as id to kind."""
    modes = ("named",) if mode == "named" else ("named", "auto")
    return {row: kind for m in modes for kind, found in MISSES[m].items() for row in found}


@cache
def results(mode: str, how: str = "made") -> tuple[tuple[dict[str, Any], bool], ...]:
    found: list[tuple[dict[str, Any], bool]] = []
    for dialect, row in rows(get_corpus_folder()):
        options = options_of(row, dialect if mode == "named" else mode, how)
        found.append((row, is_right(row, parse([row["text"]], **options))))
    return tuple(found)


@pytest.mark.parametrize("mode", ["named", "auto"])
def test_misses_are_listed(mode: str) -> None:
    assert {row["id"] for row, right in results(mode) if not right} == set(listed(mode))


@pytest.mark.parametrize(("kind", "mode"), BARS)
def test_enough_is_right(kind: str, mode: str) -> None:
    """Of all formats, as they are read. What becomes of them when tools and schemas are checked as
    well, `test_misses_are_listed` holds where it is."""
    rated = [right for row, right in results(mode, "read") if kind_of(row) == kind]
    assert sum(rated) / len(rated) >= BARS[kind, mode]


@pytest.mark.parametrize("mode", ["named", "auto"])
def test_what_is_made_is_read(mode: str) -> None:
    """To check more never makes a row come out as it should that is read wrongly."""
    read = {row["id"] for row, right in results(mode, "read") if right}
    assert {row["id"] for row, right in results(mode) if right} <= read


@pytest.mark.parametrize("mode", ["named", "auto"])
@pytest.mark.parametrize("arguments", ["validated", "incremental"])
@pytest.mark.parametrize("sizes", [(1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11, 12), (13, 14, 15, 16)])
def test_every_chunk_size(mode: str, arguments: str, sizes: tuple[int, ...]) -> None:
    for dialect, row in rows(get_corpus_folder()):
        options = options_of(row, dialect if mode == "named" else mode) | {"arguments": arguments}
        whole = to_comparable(parse([row["text"]], **options))
        for size in sizes:
            assert to_comparable(parse(split_into_chunks(row["text"], size), **options)) == whole, (
                row["id"],
                size,
            )


@pytest.mark.parametrize("mode", ["named", "auto"])
def test_cut_off_anywhere(mode: str) -> None:
    for dialect, row in rows(get_corpus_folder()):
        options = options_of(row, dialect if mode == "named" else mode)
        text = row["text"][:400]
        for end in range(len(text)):
            parse([text[:end]], **options)
