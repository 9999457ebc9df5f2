"""Every sentence of docs/security.md has tests that prove it, or is listed as a remark."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "security.md").read_text("utf-8")
TABLE: dict[str, dict[str, list[list[str]]]] = tomllib.loads(
    (TESTS / "promises.toml").read_text("utf-8")
)
"""Sections of the page: a sentence and its tests in each row."""


def read_sections() -> dict[str, str]:
    """Return the text of each section in one line, without code blocks."""
    page = re.sub(r"^```.*?^```", "", PAGE, flags=re.M | re.S)
    sections = (section.partition("\n") for section in re.split(r"^#+ ", page, flags=re.M)[1:])
    return {heading: " ".join(text.split()) for heading, _, text in sections}


def exists(test: str) -> bool:
    file, _, name = test.partition("::")
    path = TESTS / file
    if not path.exists() or name == "*":
        return path.exists()
    definition = f'name = "{name}"' if path.suffix == ".toml" else f"def {name}("
    return definition in path.read_text("utf-8")


def test_table_has_the_sections_of_the_page() -> None:
    assert list(TABLE) == list(read_sections())


@pytest.mark.parametrize("heading", TABLE)
def test_sentences_of_a_section_are_those_of_the_table(heading: str) -> None:
    """If this fails, name the tests of the new sentence in tests/promises.toml."""
    text = read_sections()[heading]
    sentences = [row[0] for row in TABLE[heading]["sentences"]]
    assert [one for one in sentences if one not in text] == []
    for sentence in sorted(sentences, key=len, reverse=True):
        text = text.replace(sentence, "¶")
    assert re.findall(r"[^¶]*\w[^¶]*", text) == []


@pytest.mark.parametrize("heading", TABLE)
def test_promises_of_a_section_have_tests(heading: str) -> None:
    rows = TABLE[heading]["sentences"]
    assert [test for _, *tests in rows for test in tests if not exists(test)] == []
    assert any(tests for _, *tests in rows)
