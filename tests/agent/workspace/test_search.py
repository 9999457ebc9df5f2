"""Listing folders, matching globs, and searching lines in files."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from toolspeak.agent.workspace import WorkspaceError, search
from toolspeak.agent.workspace.search import compile_glob
from toolspeak.agent.workspace.tools import Workspace

from .support import SOON, get_error

# Listing.


def test_folder_is_listed(workspace: Workspace, either_way: str) -> None:
    assert workspace.list_files("src") == "\n".join(
        ["src/deep/", "src/main.py", "src/root (a link)"]
    )
    assert workspace.list_files("inner/deep") == "src/deep/up (a link)\nsrc/deep/util.py"
    assert "pipe (not a file)" in workspace.list_files()
    assert workspace.list_files("README.md") == "README.md"


def test_long_list_is_shortened(folder: Path, workspace: Workspace) -> None:
    many = folder / "many"
    many.mkdir()
    assert workspace.list_files("many") == "[The folder is empty.]"
    for number in range(250):
        (many / f"{number:03}").touch()
    lines = workspace.list_files("many").splitlines()
    assert lines[0] == "many/000"
    assert lines[199:] == ["many/199", "[50 more. Set `path` or `pattern` to list fewer.]"]


GLOBS = [
    ("*.py", "main.py", True),
    ("*.py", "src/deep/main.py", True),
    ("src/*.py", "src/main.py", True),
    ("src/*.py", "src/deep/main.py", False),
    ("src/**/*.py", "src/main.py", True),
    ("src/**/*.py", "src/a/b/main.py", True),
    ("**/*.py", "main.py", True),
    ("**/deep/**", "src/deep/x/y", True),
    ("**/deep/**", "src/shallow/x", False),
    ("./src/*.{js,py}", "src/main.py", True),
    ("*.{js,ts}", "main.py", False),
    ("{a,b}/{c,d}.py", "b/c.py", True),
    ("/src/", "src", True),
    ("*.[ch]", "src/main.c", True),
    ("[!m]*.c", "main.c", False),
    ("[", "[", True),
    ("**/" * 30 + "*x", "a/" * 60 + "y", False),
    ("*a" * 40, "a" * 80 + "b", False),
    ("{a,b}" * 40, "x", False),
]


@pytest.mark.parametrize(("pattern", "path", "is_match"), GLOBS)
def test_glob_matches_paths(pattern: str, path: str, is_match: bool) -> None:
    began = time.process_time()
    assert compile_glob(pattern, ".")(path) is is_match
    assert time.process_time() - began < SOON


def test_pattern_finds_files_in_subfolders(
    folder: Path, workspace: Workspace, either_way: str
) -> None:
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "x.py").touch()
    found = workspace.list_files(".", "**/*.py").splitlines()
    assert found == [
        "inner.py (a link)",
        "src/deep/util.py",
        "src/main.py",
        "[Folders skipped: node_modules.]",
    ]
    assert workspace.list_files("src", "*/util.py") == "src/deep/util.py"
    assert workspace.list_files("node_modules", "*.py") == "node_modules/x.py"
    assert workspace.list_files("src", "*.rs") == "[Nothing matches '*.rs'.]"


def test_unprintable_names_are_escaped(folder: Path, workspace: Workspace) -> None:
    """A name cannot imitate a result line."""
    names = workspace.list_files().splitlines()
    with open(os.fsencode(folder) + b"/caf\xe9", "w") as file:
        file.write("found")
    (folder / "a\nREADME.md:1: forged").write_text("found")
    new = [line for line in workspace.list_files().splitlines() if line not in names]
    assert new == ["a\\nREADME.md:1: forged", "caf\\xe9"]
    assert workspace.search("found").splitlines()[:2] == [
        "a\\nREADME.md:1: forged:1: found",
        "caf\\xe9:1: found",
    ]
    assert workspace.read_file("caf\udce9") == "found"


def test_walk_stops_at_its_time_limit(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_SECONDS", -1.0)
    assert "[Stopped after" in workspace.list_files(".", "*")
    assert "[Stopped after" in workspace.search("def")


def test_unreadable_folder_is_reported(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = search.list_folder

    def forbidding(folder: Any, path: str) -> Any:
        if path == "src/deep":
            raise WorkspaceError("permission denied")
        return real(folder, path)

    monkeypatch.setattr(search, "list_folder", forbidding)
    assert "[Skipped, too large or unreadable: src/deep.]" in workspace.search("def")


# Searching.


def test_search_finds_lines(workspace: Workspace, either_way: str) -> None:
    result = workspace.search(r"def \w+\(\)")
    assert result.splitlines() == [
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


INVALID_PATTERNS = {
    "print(": "not a valid regular expression (missing )",
    "[a": "not a valid regular expression (unterminated character set",
    "*a": "not a valid regular expression (nothing to repeat",
    r"a(?=b)": "look-around",
    r"(a)\1": "look-around",
    "(.{1000}){1000}": "too large",
    "[[a]]\ud800": "",
    "(" * 5000: "not a valid regular expression",
}


@pytest.mark.parametrize("pattern", INVALID_PATTERNS)
def test_invalid_pattern_is_searched_as_plain_text(workspace: Workspace, pattern: str) -> None:
    result = workspace.search(pattern, "src")
    assert INVALID_PATTERNS[pattern] in result
    assert "it was searched as plain text.]" in result


CATASTROPHIC_PATTERNS = [
    r"(x+x+)+y",
    r"^(a|a)*$",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
    r"(a*)*b",
    r"(.*)(.*)(.*)(.*)(.*)[^x]y",
    r"(a|b)*a(a|b){2000}c",
    r"(a?){1000}a{1000}",
]


@pytest.mark.parametrize("pattern", CATASTROPHIC_PATTERNS)
def test_catastrophic_pattern_is_fast(
    folder: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    monkeypatch.setattr(search, "MAX_SECONDS", 0.2)
    chosen = random.Random(1)
    (folder / "x").write_text("x" * 100_000 + "\n" + "a" * 5000)
    (folder / "ab").write_text("".join(chosen.choice("ab") for _ in range(200_000)))
    began = time.process_time()
    workspace.search(pattern)
    assert time.process_time() - began < SOON


def test_huge_line_is_shown_around_the_match(folder: Path, workspace: Workspace) -> None:
    (folder / "huge").write_text("x" * 123_456 + "needle" + "y" * 50_000)
    for pattern in ("needle", "n[e]+dle"):
        result = workspace.search(pattern, "huge")
        assert result.startswith("huge:1: …xxx")
        assert "xneedleyyy" in result
        assert result.endswith("y…")
        assert len(result) < 300


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
    assert "`pattern` is empty" in get_error(lambda: workspace.search(""))
    assert "must not contain a line break" in get_error(lambda: workspace.search("two\nlines"))
