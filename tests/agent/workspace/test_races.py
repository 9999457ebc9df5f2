"""Files and links that change between a check and its use."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolspeak.agent.workspace import Workspace

from .support import SECRET, problem_of, told


def swap_at(
    monkeypatch: pytest.MonkeyPatch, call: str, name: str, swap: Callable[[], None]
) -> None:
    """Run `swap` right before the first system call `call` with this name."""
    real: Callable[..., Any] = getattr(os, call)
    is_done = False

    def swapped(path: Any, *rest: Any, **named: Any) -> Any:
        nonlocal is_done
        if not is_done and path == name:
            is_done = True
            swap()
        return real(path, *rest, **named)

    monkeypatch.setattr(os, call, swapped)


def link_instead(path: Path, target: str) -> Callable[[], None]:
    def swap() -> None:
        path.rename(path.parent / "was")
        path.symlink_to(target)

    return swap


SWAPS = [
    ("open", "main.py", "src/main.py", "../../secret.txt"),
    ("stat", "main.py", "src/main.py", "../../secret.txt"),
    ("open", "src", "src", "../outside"),
    ("open", "deep", "src/deep", "../../outside"),
]


@pytest.mark.parametrize(("call", "name", "place", "target"), SWAPS)
@pytest.mark.parametrize("use", range(4))
def test_link_swapped_in_does_not_lead_outside(
    folder: Path,
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    name: str,
    place: str,
    target: str,
    use: int,
) -> None:
    path = "src/deep/secret.txt" if name == "deep" else "src/main.py"
    if name != "main.py":
        (folder / "src" / "secret.txt").write_text("public")
        (folder / "src" / "deep" / "secret.txt").write_text("public")
        path = f"{place}/secret.txt"
    swap_at(monkeypatch, call, name, link_instead(folder / place, target))
    uses = [
        lambda: workspace.read_file(path),
        lambda: workspace.edit_file(path, "e", "X", all=True),
        lambda: workspace.edit_file(path, SECRET, "taken"),
        lambda: workspace.search("secret", path),
    ]
    assert SECRET not in told(uses[use])
    assert (folder.parent / "secret.txt").read_text() == SECRET
    assert (folder.parent / "outside" / "secret.txt").read_text() == SECRET


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_edit_never_writes_through_a_swapped_link(
    folder: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Even one swapped in right before the last step."""
    real: Callable[..., Any] = getattr(os, moment)

    def swapped(*given: Any, **named: Any) -> Any:
        (folder / "README.md").unlink()
        (folder / "README.md").symlink_to("../secret.txt")
        return real(*given, **named)

    monkeypatch.setattr(os, moment, swapped)
    said = told(lambda: workspace.edit_file("README.md", "things", "nothing"))
    assert ("changed by somebody else" in said) is (moment == "fsync")
    assert (folder.parent / "secret.txt").read_text() == SECRET


def test_file_that_becomes_a_pipe_does_not_block(
    folder: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swap() -> None:
        (folder / "README.md").unlink()
        os.mkfifo(folder / "README.md")

    swap_at(monkeypatch, "open", "README.md", swap)
    assert "a pipe" in problem_of(lambda: workspace.read_file("README.md"))


def test_constantly_changing_links_never_lead_outside(folder: Path, workspace: Workspace) -> None:
    """Another process keeps replacing a link under the same name."""
    (folder / "src" / "secret.txt").write_text("public")
    flicker = subprocess.Popen([sys.executable, "-c", FLICKER, folder])
    said: set[str] = set()
    try:
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            for path in ("flicker/secret.txt", "flicker"):
                said.add(told(lambda path=path: workspace.read_file(path)))
    finally:
        flicker.kill()
        flicker.wait()
    assert "public" in said
    assert SECRET not in "".join(said)


FLICKER = """
import os, sys
name, other = sys.argv[1] + "/flicker", sys.argv[1] + "/flicker2"
while True:
    for target in ("src", "../outside", "../secret.txt", "src/secret.txt", "."):
        os.symlink(target, other)
        os.replace(other, name)
"""
