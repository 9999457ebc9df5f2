"""The table of what is found, each row cut in every way."""

from __future__ import annotations

import json
import random

import pytest

from tests.security.scrubbing.support import Case, cases, scrubbed
from toolspeak.security.scrubbing import Scrubber, scrub
from toolspeak.security.scrubbing.patterns import find_shapes
from toolspeak.security.scrubbing.rules import load_rules
from toolspeak.security.scrubbing.windows import line_window

ROWS = [pytest.param(case, id=f"{case.title}: {case.row[:60]!r}") for case in cases()]


@pytest.mark.parametrize("case", ROWS)
def test_row(case: Case) -> None:
    whole = scrub(case.text)
    assert whole.text == case.scrubbed
    assert len(whole.findings) == len(case.secrets)
    for size in [*range(1, 18), 37, 100]:
        assert scrubbed(case.text, size) == case.scrubbed, size


@pytest.mark.parametrize("case", ROWS)
def test_row_cut_at_every_place(case: Case) -> None:
    for place in range(len(case.text)):
        scrubber = Scrubber()
        given = scrubber.feed(case.text[:place]) + scrubber.feed(case.text[place:])
        assert given + scrubber.finish() == case.scrubbed, place


@pytest.mark.parametrize("case", ROWS)
def test_row_among_other_text_is_scrubbed_alike(case: Case) -> None:
    """A long text before it, and lines around it, change nothing."""
    around = "Nothing to be seen here.\n" * 200
    assert scrub(f"{around}{case.text}\n{around}").text == f"{around}{case.scrubbed}\n{around}"


@pytest.mark.parametrize("case", [case for case in cases() if case.title == "JSON"])
def test_scrubbed_json_row_is_json(case: Case) -> None:
    json.loads(case.text)
    json.loads(case.scrubbed)


def test_there_are_enough_rows() -> None:
    found = [case for case in cases() if case.secrets]
    assert len(found) >= 120
    assert len(cases()) - len(found) >= 80


def test_finding_reports_the_position_and_not_the_secret() -> None:
    text = 'first\n  {"api_key": "sk-1234567890"}\n'
    (found,) = scrub(text).findings
    assert (found.kind, found.name) == ("api-key", "api_key")
    assert (found.line, found.column) == (2, 16)
    assert text[found.offset :].startswith("sk-1234567890")
    assert "1234" not in repr(found)
    assert "1234" not in found.as_note().message


def test_every_shape_begins_with_a_long_word() -> None:
    """That is what is looked for first: a shape of less would never be found."""
    said = "".join(case.text for case in cases() if "shape" in case.title)
    assert len(load_rules().shapes) > 50
    kinds = {shape.kind for shape in load_rules().shapes if shape.kind.partition(" ")[0] in said}
    assert len(kinds) > 15
    assert not list(find_shapes(line_window("a" * 30, 0, True)))  # type: ignore[arg-type]


def test_cues_are_within_a_word() -> None:
    """The last word of a stream is held back, and no more."""
    rows = load_rules()
    cues = [*rows.cues.names, *(row.cue for row in (*rows.patterns, *rows.blocks))]
    assert not [cue for cue in cues if cue != cue.lower() or any(map(str.isspace, cue))]


def test_long_line_in_chunks_is_scrubbed_alike() -> None:
    """On lines that are longer than a window, pieces make no difference either."""
    chance = random.Random(5)
    rows = [case.text.replace("\n", " ") for case in cases()]
    for glue in ("", " "):
        text = glue.join(chance.choices(rows, k=80))
        whole = scrub(text).text
        for size in (17, 500, 2048, 5000):
            assert scrubbed(text, size) == whole
