"""Searching lines in files."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from toolspeak.agent.workspace import Workspace, search

from .support import SOON, problem_of


def test_search_finds_lines(workspace: Workspace, either_way: str) -> None:
    told = workspace.search(r"def \w+\(\)")
    assert told.splitlines() == [
        "src/deep/util.py:1: def helper():",
        "src/main.py:1: def main():",
        "[Binary files skipped: 1.]",
    ]
    assert workspace.search("return", "src/main.py") == "src/main.py:2:     return 1"
    assert workspace.search("return", "inner.py") == "src/main.py:2:     return 1"
    assert workspace.search("def", "src", "deep/*") == "src/deep/util.py:1: def helper():"
    assert workspace.search("DEF", "src") == "[No match in 2 files.]"


LINES = [
    ("a.c", "abc", True),
    ("a.c", "ac", False),
    ("^abc$", "abc", True),
    ("^b", "abc", False),
    ("(?i)ABC", "abc", True),
    ("a|b", "b", True),
    (r"\bword\b", "a word.", True),
    (r"\d{3}", "a123", True),
    (r"\.py$", "main.py", True),
    (r"caf\S", "café", True),
    ("a-b: <c>", "a-b: <c>", True),
    ("print(", "print(1)", True),
    ("f[", "f[0]", True),
    ("*x", "2*x", True),
    ("a\\", "a\\b", True),
]


@pytest.mark.parametrize(("pattern", "line", "is_found"), LINES)
def test_pattern_matches_line(
    folder: Path, workspace: Workspace, pattern: str, line: str, is_found: bool
) -> None:
    (folder / "lines").write_text(f"first\n{line}\nlast\n")
    assert (f"lines:2: {line}" in workspace.search(pattern, "lines")) is is_found


NO_EXPRESSIONS = {
    "print(": "not a regular expression (missing )",
    "[a": "not a regular expression (unterminated character set",
    "*a": "not a regular expression (nothing to repeat",
    r"a(?=b)": "look-around",
    r"(a)\1": "look-around",
    "(.{1000}){1000}": "too large",
    "[[a]]\ud800": "",
    "(" * 5000: "not a regular expression",
}


@pytest.mark.parametrize("pattern", NO_EXPRESSIONS)
def test_invalid_pattern_is_searched_as_plain_text(workspace: Workspace, pattern: str) -> None:
    told = workspace.search(pattern, "src")
    assert NO_EXPRESSIONS[pattern] in told
    assert "it was searched as plain text.]" in told


CATASTROPHES = [
    r"(x+x+)+y",
    r"^(a|a)*$",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
    r"(a*)*b",
    r"(.*)(.*)(.*)(.*)(.*)[^x]y",
    r"(a|b)*a(a|b){2000}c",
    r"(a?){1000}a{1000}",
]


@pytest.mark.parametrize("pattern", CATASTROPHES)
def test_catastrophic_pattern_is_fast(
    folder: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    monkeypatch.setattr(search, "MAX_SECONDS", 0.2)
    chosen = random.Random(1)
    (folder / "x").write_text("x" * 100_000 + "\n" + "a" * 5000)
    (folder / "ab").write_text("".join(chosen.choice("ab") for _ in range(200_000)))
    began = time.monotonic()
    workspace.search(pattern)
    assert time.monotonic() - began < SOON


def test_huge_line_is_shown_around_the_match(folder: Path, workspace: Workspace) -> None:
    (folder / "huge").write_text("x" * 123_456 + "needle" + "y" * 50_000)
    for pattern in ("needle", "n[e]+dle"):
        told = workspace.search(pattern, "huge")
        assert told.startswith("huge:1: …xxx")
        assert "xneedleyyy" in told
        assert told.endswith("y…")
        assert len(told) < 300


def test_pieces_of_long_line_overlap() -> None:
    """Every short text is completely in one piece."""
    line = "".join(chr(0x4E00 + number) for number in range(20_000))
    pieces = list(search.split_long_line(line))
    for start in range(0, len(line) - 100, 7):
        assert any(line[start : start + 100] in piece for piece in pieces)


def test_many_matches_are_limited(folder: Path, workspace: Workspace) -> None:
    (folder / "many").write_text("same\n" * 500)
    lines = workspace.search("same", "many").splitlines()
    assert lines[99:] == [
        "many:100: same",
        "[Only the first 100 matches are shown. Narrow the search.]",
    ]
    (folder / "some").write_text("same\n" * 100)
    assert len(workspace.search("same", "some").splitlines()) == 100


def test_empty_or_multiline_pattern_is_refused(workspace: Workspace) -> None:
    assert "Expected a text" in problem_of(lambda: workspace.search(""))
    assert "must not contain a line break" in problem_of(lambda: workspace.search("two\nlines"))
