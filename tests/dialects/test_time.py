"""The time of reading grows linearly with the text, whatever is repeated in it."""

from __future__ import annotations

import gc
import itertools
import random
import time
from collections.abc import Iterator

import pytest

from tests.dialects.test_bad_input import MARKERS, REPEATED
from tests.support import TOOLBOX, Rows
from toolspeak import Parser
from toolspeak.dialects.catalog import ALL_DIALECTS
from toolspeak.testing import split_into_chunks
from toolspeak.types import Trust

LENGTHS = (750, 1_500, 3_000, 6_000)
LIMIT = 20
"""Eight times the text may take so many times as long: quadratic time is sixty-four times."""
FREE = 0.08
"""Seconds that need no comparison. Text that is read in vain costs up to this at any length."""
AFTER = ("", '{"')
TRUSTS: tuple[Trust, ...] = ("strict", "standard", "lenient")
OPTIONS: tuple[tuple[str, Trust, int], ...] = (("", "strict", 10**9), ('{"', "standard", 64))
UNITS = sorted({*filter(None, REPEATED), *MARKERS})


@pytest.fixture(autouse=True)
def pause_garbage_collection() -> Iterator[None]:
    """Keep collections of the whole process out of the measurements."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def measure_seconds(text: str, dialect: str, trust: Trust, size: int) -> float:
    parser = Parser(dialect=dialect, tools=TOOLBOX, trust=trust)
    start = time.process_time()
    for piece in split_into_chunks(text, size):
        parser.feed(piece)
    parser.finish()
    return time.process_time() - start


def grows_linearly(
    unit: str, trust: Trust, dialect: str = "auto", *, end: str = "x", size: int = 10**9
) -> bool:
    """Return True if the time grows linearly at one of three measurements.

    The longest text comes first: a short time needs no comparison.
    """
    texts = [unit * (length // len(unit) + 1) + end for length in LENGTHS]
    for _ in range(3):
        seconds = measure_seconds(texts[-1], dialect, trust, size)
        if seconds < FREE:
            return True
        shorter = [measure_seconds(text, dialect, trust, size) for text in texts[:-1]]
        factors = [seconds / max(one, FREE / LIMIT) for one in shorter]
        limits = [LIMIT * length / LENGTHS[-1] for length in reversed(LENGTHS[1:])]
        if any(factor <= limit for factor, limit in zip(factors, limits, strict=True)):
            return True
    return False


def test_time_of_repeated_tokens_that_may_end_a_message_is_linear() -> None:
    assert grows_linearly("<|open|>", "standard")


@pytest.mark.parametrize("trust", TRUSTS)
def test_time_of_every_marker_repeated_is_linear(trust: Trust) -> None:
    rows = Rows()
    for unit, after in itertools.product(UNITS, AFTER):
        with rows.row((unit, after)):
            assert grows_linearly(unit + after, trust)
    rows.assert_passed()


def list_openers(name: str) -> Iterator[str]:
    for dialect in ALL_DIALECTS:
        if dialect.name == name:
            yield from (form.opener or "t(" for form in dialect.forms)
            yield from (opener for opener, _ in dialect.reasoning_tags)
            yield from dialect.control_tokens
            yield from dialect.trailing_tokens
            yield from dialect.message_frame.openers if dialect.message_frame else ()


@pytest.mark.parametrize("name", sorted({dialect.name for dialect in ALL_DIALECTS}))
def test_time_of_a_named_dialects_markers_is_linear(name: str) -> None:
    rows = Rows()
    for unit in dict.fromkeys(filter(None, list_openers(name))):
        for after, trust, size in OPTIONS:
            with rows.row((unit, after, trust, size)):
                assert grows_linearly(unit + after, trust, name, size=size)
    rows.assert_passed()


@pytest.mark.parametrize("part", range(4))
def test_time_of_pairs_of_openers_is_linear(part: int) -> None:
    """Pairs are too many for one run: each run takes the same sample of them."""
    rows = Rows()
    chance = random.Random(part)
    for _ in range(60):
        first, second = chance.sample(UNITS, 2)
        after, trust = chance.choice(AFTER), chance.choice(TRUSTS)
        with rows.row((first, second, after, trust)):
            assert grows_linearly(first + second + after, trust)
    rows.assert_passed()
