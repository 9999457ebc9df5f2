"""The cases of `cases.toml`, each replayed in chunks of every size and cut at every place."""

from __future__ import annotations

import json
import random

import pytest

from tests.security.scrubbing.support import Case, load_cases, scrub_in_chunks
from toolspeak.security.scrubbing import Scrubber, scrub
from toolspeak.security.scrubbing.patterns import find_shapes
from toolspeak.security.scrubbing.rules import NAME_CUES, RULES
from toolspeak.security.scrubbing.windows import line_window

ROWS = [pytest.param(case, id=f"{case.title}: {case.row[:60]!r}") for case in load_cases()]


@pytest.mark.parametrize("case", ROWS)
def test_case_in_chunks_of_any_size_is_scrubbed(case: Case) -> None:
    whole = scrub(case.text)
    assert whole.text == case.scrubbed
    assert [case.text[one.offset : one.end] for one in whole.findings] == case.secrets
    for size in [*range(1, 18), 37, 100]:
        assert scrub_in_chunks(case.text, size) == case.scrubbed, size


@pytest.mark.parametrize("case", ROWS)
def test_case_cut_at_any_place_is_scrubbed(case: Case) -> None:
    for place in range(len(case.text)):
        scrubber = Scrubber()
        start = scrubber.feed(case.text[:place]) + scrubber.feed(case.text[place:])
        assert start + scrubber.finish() == case.scrubbed, place


@pytest.mark.parametrize("case", ROWS)
def test_case_within_a_long_text_is_scrubbed(case: Case) -> None:
    around = "Nothing to be seen here.\n" * 200
    assert scrub(f"{around}{case.text}\n{around}").text == f"{around}{case.scrubbed}\n{around}"


@pytest.mark.parametrize("case", [case for case in load_cases() if case.title == "JSON"])
def test_json_case_scrubbed_is_json(case: Case) -> None:
    json.loads(case.text)
    json.loads(case.scrubbed)


def test_cases_contain_enough_secrets_and_harmless_texts() -> None:
    found = [case for case in load_cases() if case.secrets]
    assert len(found) >= 120
    assert len(load_cases()) - len(found) >= 80


def test_finding_reports_the_position_and_not_the_secret() -> None:
    text = 'first\n  {"api_key": "sk-1234567890"}\n'
    (found,) = scrub(text).findings
    assert (found.kind, found.name) == ("api-key", "api_key")
    assert (found.line, found.column) == (2, 16)
    assert text[found.offset : found.end] == "sk-1234567890"
    assert "1234" not in repr(found)


def test_shapes_are_covered_by_cases() -> None:
    texts = "".join(case.text for case in load_cases() if "shape" in case.title)
    assert len(RULES.shapes) > 50
    kinds = {shape.kind for shape in RULES.shapes if shape.kind.partition(" ")[0] in texts}
    assert len(kinds) > 15
    assert not list(find_shapes(line_window("a" * 30, 0, True)))  # type: ignore[arg-type]


def test_cues_are_lower_case_without_spaces() -> None:
    """Only the last word of a stream is held back, so a cue must fit in a word."""
    cues = [*NAME_CUES, *(row.cue for row in (*RULES.patterns, *RULES.blocks))]
    assert not [cue for cue in cues if cue != cue.lower() or any(map(str.isspace, cue))]


def test_line_longer_than_a_window_in_chunks_is_scrubbed_as_whole() -> None:
    chance = random.Random(5)
    rows = [case.text.replace("\n", " ") for case in load_cases()]
    for glue in ("", " "):
        text = glue.join(chance.choices(rows, k=80))
        whole = scrub(text).text
        for size in (17, 500, 2048, 5000):
            assert scrub_in_chunks(text, size) == whole
