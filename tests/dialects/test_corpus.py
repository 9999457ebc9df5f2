"""The recorded cases of other projects, in the folder that `TOOLSPEAK_CORPUS` names."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bench.dialect_cases import build_options, get_kind, is_right, read_rows

from tests.support import get_corpus_folder, to_comparable
from toolspeak.testing import parse, split_into_chunks

MISSES = tomllib.loads((Path(__file__).parent / "corpus_misses.toml").read_text())
BARS = {
    ("literal", "named"): 0.96,
    ("literal", "auto"): 0.93,
    ("recorded", "named"): 0.91,
    ("recorded", "auto"): 0.87,
}


def list_known_misses(mode: str) -> dict[str, str]:
    """Return the kinds of the known misses by their ids."""
    modes = ("named",) if mode == "named" else ("named", "auto")
    return {row: kind for m in modes for kind, found in MISSES[m].items() for row in found}


@cache
def parse_rows(mode: str, how: str = "made") -> tuple[tuple[dict[str, Any], bool], ...]:
    found: list[tuple[dict[str, Any], bool]] = []
    for dialect, row in read_rows(get_corpus_folder()):
        options = build_options(row, dialect if mode == "named" else mode, how)
        found.append((row, is_right(row, parse([row["text"]], **options))))
    return tuple(found)


@pytest.mark.parametrize("mode", ["named", "auto"])
def test_misses_are_exactly_the_listed_ones(mode: str) -> None:
    assert {row["id"] for row, right in parse_rows(mode) if not right} == set(
        list_known_misses(mode)
    )


@pytest.mark.parametrize(("kind", "mode"), BARS)
def test_share_of_right_rows_reaches_the_bar(kind: str, mode: str) -> None:
    """The tools only give types here; `test_misses_are_exactly_the_listed_ones` has all checks."""
    rated = [right for row, right in parse_rows(mode, "read") if get_kind(row) == kind]
    assert sum(rated) / len(rated) >= BARS[kind, mode]


@pytest.mark.parametrize("mode", ["named", "auto"])
def test_row_read_wrongly_is_wrong_with_all_checks_too(mode: str) -> None:
    read = {row["id"] for row, right in parse_rows(mode, "read") if right}
    assert {row["id"] for row, right in parse_rows(mode) if right} <= read


@pytest.mark.parametrize("mode", ["named", "auto"])
@pytest.mark.parametrize("arguments", ["validated", "incremental"])
@pytest.mark.parametrize("sizes", [(1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11, 12), (13, 14, 15, 16)])
def test_row_in_chunks_of_any_size_is_read_alike(
    mode: str, arguments: str, sizes: tuple[int, ...]
) -> None:
    for dialect, row in read_rows(get_corpus_folder()):
        options = build_options(row, dialect if mode == "named" else mode) | {
            "arguments": arguments
        }
        whole = to_comparable(parse([row["text"]], **options))
        for size in sizes:
            assert to_comparable(parse(split_into_chunks(row["text"], size), **options)) == whole, (
                row["id"],
                size,
            )


@pytest.mark.parametrize("mode", ["named", "auto"])
def test_row_cut_off_anywhere_does_not_raise(mode: str) -> None:
    seen: set[object] = set()
    for dialect, row in read_rows(get_corpus_folder()):
        options = build_options(row, dialect if mode == "named" else mode)
        text = row["text"][:400]
        key = (options["dialect"], repr(row.get("tools")), options["reasoning_open"])
        for end in range(len(text)):
            # Rows share many beginnings.
            if (*key, text[:end]) not in seen:
                seen.add((*key, text[:end]))
                parse([text[:end]], **options)
