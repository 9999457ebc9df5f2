"""How long prose waits in a stream with the ladder on: no longer than it has to."""

from __future__ import annotations

import pytest
from bench.holdback import CHUNK, LONG, NATIVE, TOOLS, measure_waits
from bench.holdback_replies import BEFORE_A_CALL, CANDIDATES, ORDINARY, REFUSALS

from toolspeak import DIALECTS
from toolspeak.dialects.markers import AUTO, build_scope, marker_table_for
from toolspeak.security.refusals import MAX_UNDECIDED, begins_like_refusal

MODES = (NATIVE, *DIALECTS)
FENCED = {"xlam", "fenced_json"}
"""To these, JSON in a fence is a call."""


def longest_marker(dialect: str) -> int:
    scope = build_scope(AUTO if dialect == NATIVE else dialect, "standard", has_tools=True)
    table = marker_table_for(scope, tuple(tool.name for tool in TOOLS))
    return max(map(len, table.markers))


def begins_freely(text: str) -> bool:
    """Whether its first chunk is enough to see that it is no refusal."""
    return not begins_like_refusal(text[:CHUNK])


def test_ordinary_text_does_not_open_like_a_refusal() -> None:
    assert sum(map(begins_freely, ORDINARY.values())) > len(ORDINARY) * 0.9
    assert not any(begins_freely(text) for text in (*CANDIDATES.values(), *REFUSALS.values()))


@pytest.mark.parametrize("dialect", MODES)
def test_ordinary_text_is_held_only_for_markers(dialect: str) -> None:
    for name, text in ORDINARY.items():
        if dialect in FENCED and "```json" in text:
            continue
        found = measure_waits(text, dialect)
        assert len(found) == len(text), name
        if begins_freely(text):
            assert found == measure_waits(text, dialect, with_recovery=False), name
        assert max(found) <= longest_marker(dialect), name


def test_plain_sentences_are_sent_at_once() -> None:
    for name in ("a greeting", "one sentence", "a paragraph", "a long text", "German", "Chinese"):
        found = measure_waits(ORDINARY[name], "tagged")
        assert max(found) <= CHUNK, name
        assert found.count(0) > len(found) * 0.95, name


@pytest.mark.parametrize("dialect", MODES)
def test_possible_refusal_is_decided_within_the_limit(dialect: str) -> None:
    most = MAX_UNDECIDED + longest_marker(dialect)
    for name, text in CANDIDATES.items():
        found = measure_waits(text, dialect)
        assert len(found) == len(text), name
        assert max(found) <= most, name


def test_refusal_is_held_to_its_end() -> None:
    for name, text in REFUSALS.items():
        assert measure_waits(text, NATIVE)[0] == len(text) - CHUNK, name


@pytest.mark.parametrize("dialect", MODES)
def test_text_before_a_long_call_is_sent_before_it(dialect: str) -> None:
    for name, text in BEFORE_A_CALL.items():
        if begins_freely(text):
            found = measure_waits(text, dialect, LONG)
            assert len(found) >= len(text.rstrip()), name
            assert max(found) <= longest_marker(dialect), name
