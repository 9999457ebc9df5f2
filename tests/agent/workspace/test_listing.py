"""Listing folders and matching globs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from toolspeak.agent.workspace import Workspace, WorkspaceError, search
from toolspeak.agent.workspace.search import compile_glob

from .support import SOON


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
    assert lines[199:] == ["many/199", "[50 more. Name a folder or a pattern.]"]


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
    ("[", "[", True),
    ("**/" * 30 + "*x", "a/" * 60 + "y", False),
    ("*a" * 40, "a" * 80 + "b", False),
    ("{a,b}" * 40, "x", False),
]


@pytest.mark.parametrize(("pattern", "path", "fits"), GLOBS)
def test_glob_matches_paths(pattern: str, path: str, fits: bool) -> None:
    began = time.monotonic()
    assert compile_glob(pattern, ".")(path) is fits
    assert time.monotonic() - began < SOON


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
    assert "[Not readable: src/deep.]" in workspace.search("def")
