"""Lines that are found in files."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from toolspeak.agent.workspace import Workspace, listing, searching

from .support import SOON, problem_of


def test_lines_are_found(workspace: Workspace, either_way: str) -> None:
    told = workspace.search(r"def \w+\(\)")
    assert told.splitlines() == [
        "src/deep/util.py:1: def helper():",
        "src/main.py:1: def main():",
        "[1 binary files were not searched.]",
    ]
    assert workspace.search("return", "src/main.py") == "src/main.py:2:     return 1"
    assert workspace.search("return", "inner.py") == "src/main.py:2:     return 1"
    assert workspace.search("def", "src", "deep/*") == "src/deep/util.py:1: def helper():"
    assert workspace.search("DEF", "src") == "[Nothing was found in 2 files.]"


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
def test_what_is_found(
    folder: Path, workspace: Workspace, pattern: str, line: str, is_found: bool
) -> None:
    (folder / "lines").write_text(f"first\n{line}\nlast\n")
    assert (f"lines:2: {line}" in workspace.search(pattern, "lines")) is is_found


NO_EXPRESSIONS = {
    "print(": "no regular expression (missing )",
    "[a": "no regular expression (unterminated character set",
    "*a": "no regular expression (nothing to repeat",
    r"a(?=b)": "look-around",
    r"(a)\1": "look-around",
    "(.{1000}){1000}": "too large",
    "[[a]]\ud800": "",
    "(" * 5000: "no regular expression",
}


@pytest.mark.parametrize("pattern", NO_EXPRESSIONS)
def test_a_pattern_that_is_no_expression_is_told(workspace: Workspace, pattern: str) -> None:
    told = workspace.search(pattern, "src")
    assert NO_EXPRESSIONS[pattern] in told
    assert "it was searched for as plain text.]" in told


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
def test_no_pattern_takes_for_ever(
    folder: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    monkeypatch.setattr(listing, "SECONDS", 0.2)
    chosen = random.Random(1)
    (folder / "x").write_text("x" * 100_000 + "\n" + "a" * 5000)
    (folder / "ab").write_text("".join(chosen.choice("ab") for _ in range(200_000)))
    began = time.monotonic()
    workspace.search(pattern)
    assert time.monotonic() - began < SOON


def test_a_huge_line_is_shown_where_it_matters(folder: Path, workspace: Workspace) -> None:
    (folder / "huge").write_text("x" * 123_456 + "needle" + "y" * 50_000)
    for pattern in ("needle", "n[e]+dle"):
        told = workspace.search(pattern, "huge")
        assert told.startswith("huge:1: …xxx")
        assert "xneedleyyy" in told
        assert told.endswith("y…")
        assert len(told) < 300


def test_long_lines_have_no_gaps() -> None:
    """Something short is in one piece wherever it stands."""
    line = "".join(chr(0x4E00 + number) for number in range(20_000))
    pieces = list(searching._pieces(line))  # pyright: ignore[reportPrivateUsage]
    for start in range(0, len(line) - 100, 7):
        assert any(line[start : start + 100] in piece for piece in pieces)


def test_a_search_has_an_end(folder: Path, workspace: Workspace) -> None:
    (folder / "many").write_text("same\n" * 500)
    lines = workspace.search("same", "many").splitlines()
    assert lines[99:] == [
        "many:100: same",
        "[There is more than these 100 lines. Search for less.]",
    ]
    (folder / "some").write_text("same\n" * 100)
    assert len(workspace.search("same", "some").splitlines()) == 100


def test_nothing_to_search_for(workspace: Workspace) -> None:
    assert "Expected something" in problem_of(lambda: workspace.search(""))
    assert "one by one" in problem_of(lambda: workspace.search("two\nlines"))
