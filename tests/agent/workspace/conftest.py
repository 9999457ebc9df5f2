"""A workspace folder with files, links and a secret beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolspeak.agent.workspace import folder as folders
from toolspeak.agent.workspace.folder import open_folder
from toolspeak.agent.workspace.tools import Workspace

from .support import SECRET


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files, links and a pipe, and a secret beside it."""
    root = tmp_path / "project"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "README.md").write_text("# Project\n\nIt does things.\n")
    (root / "src" / "main.py").write_text("def main():\n    return 1\n")
    (root / "src" / "deep" / "util.py").write_text("def helper():\n    pass\n")
    (root / "picture.png").write_bytes(b"\x89PNG\0\0\0")
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text(SECRET)
    _create_links(root, tmp_path)
    os.mkfifo(root / "pipe")
    return root


def _create_links(root: Path, outside: Path) -> None:
    for name, target in {
        "inner": "src",
        "inner.py": "src/main.py",
        "absolute": str(root / "src"),
        "chain": "chain2",
        "chain2": "src/deep/up",
        "src/deep/up": "../main.py",
        "out.txt": "../secret.txt",
        "out": "../outside",
        "out_absolute": str(outside / "secret.txt"),
        "out_chain": "out_chain2",
        "out_chain2": "out.txt",
        "out_and_back": f"../{root.name}/README.md",
        "loop": "loop2",
        "loop2": "loop",
        "self": "self/x",
        "dangling": "src/nothing",
        "dangling_out": "../nothing",
        "device": "/dev/zero",
        "to_proc": "/proc/self/environ",
        "src/root": "..",
    }.items():
        (root / name).symlink_to(target)


@pytest.fixture
def workspace(folder: Path) -> Workspace:
    return Workspace(open_folder(folder))


@pytest.fixture(params=["openat", "resolved"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to confine a path; the second is used on Windows."""
    if request.param == "resolved":
        monkeypatch.setattr(folders, "HAS_OPENAT", False)
    return request.param
