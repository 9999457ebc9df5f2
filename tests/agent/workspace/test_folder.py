"""Path confinement: what is inside is read, everything else is refused."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from toolspeak.agent.workspace import Workspace, WorkspaceError, files
from toolspeak.agent.workspace import folder as folders
from toolspeak.errors import UsageError

from .support import SOON, all_of, problem_of

INSIDE = {
    "src/main.py": "src/main.py",
    "./src//main.py": "src/main.py",
    "src/../README.md": "README.md",
    "src/deep/../main.py": "src/main.py",
    "inner/main.py": "src/main.py",
    "inner.py": "src/main.py",
    "inner/../README.md": "README.md",
    "absolute/main.py": "src/main.py",
    "absolute/deep/util.py": "src/deep/util.py",
    "chain": "src/main.py",
    "src/root/src/root/README.md": "README.md",
    "{root}/src/main.py": "src/main.py",
    "{root}/README.md/": "README.md",
}


@pytest.mark.parametrize("path", INSIDE)
def test_path_inside_is_read(
    folder: Path, workspace: Workspace, either_way: str, path: str
) -> None:
    read = files.read_content(folders.ConfinedFolder(folder), path.format(root=folder))
    assert read.path == INSIDE[path]
    assert read.data == (folder / INSIDE[path]).read_bytes()


OUTSIDE = [
    "..",
    "../secret.txt",
    "../outside/secret.txt",
    "src/../../secret.txt",
    "inner/../../secret.txt",
    "src/deep/../../../secret.txt",
    "/etc/passwd",
    "/",
    "//etc/passwd",
    "{root}/../secret.txt",
    "{root}2/x",
    "{above}/secret.txt",
    "out.txt",
    "out/secret.txt",
    "out",
    "out_absolute",
    "out_chain",
    "out_and_back",
    "dangling_out",
    "device",
    "to_proc",
    "src/root/../secret.txt",
    "{root}/out/secret.txt",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_path_outside_is_refused(folder: Path, workspace: Workspace, path: str) -> None:
    path = path.format(root=folder, above=folder.parent)
    before = all_of(folder.parent)
    for call in _every_use(workspace, path):
        assert "leads out of the workspace folder" in problem_of(call)
    assert all_of(folder.parent) == before


@pytest.mark.parametrize("path", [one for one in OUTSIDE if one != "out_and_back"])
def test_path_outside_without_openat_is_refused(
    folder: Path, workspace: Workspace, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows refuses the same paths, except a link that leads out and back in."""
    monkeypatch.setattr(folders, "HAS_OPENAT", False)
    path = path.format(root=folder, above=folder.parent)
    before = all_of(folder.parent)
    for call in _every_use(workspace, path):
        assert "leads out of the workspace folder" in problem_of(call)
    assert all_of(folder.parent) == before


def _every_use(workspace: Workspace, path: str) -> list[Callable[[], str]]:
    return [
        lambda: workspace.read_file(path),
        lambda: workspace.list_files(path),
        lambda: workspace.list_files(path, "*"),
        lambda: workspace.search("secret", path),
        lambda: workspace.edit_file(path, "secret", "public"),
        lambda: workspace.edit_file(path, "", "new"),
        lambda: workspace.edit_file(f"{path}/new/file.txt", "", "new"),
    ]


UNUSABLE = {
    "loop": "too many links",
    "self": "too many links",
    "pipe": "pipe, a socket or a device",
    "socket": "pipe, a socket or a device",
    "src": "is a folder",
    ".": "is a folder",
    "": "is a folder",
    "src/deep/..": "is a folder",
    "dangling": "does not exist",
    "src/main.py/x": "not a folder",
    "src/main.py/../main.py": "not a folder",
    "nothing/x": "does not exist",
    "a\0b": "not a valid path",
    "x" * 300: "File name too long",
    "x/" * 3000: "not a valid path",
    "\ud800": "not a valid file name",
    "picture.png": "not text (7 bytes of binary data)",
    "~/x": "does not exist",
}


@pytest.mark.parametrize("path", UNUSABLE)
def test_unusable_path_is_reported(
    folder: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(folder)  # Socket names have a short length limit.
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        began = time.monotonic()
        assert UNUSABLE[path] in problem_of(lambda: workspace.read_file(path))
        assert time.monotonic() - began < SOON


def test_too_deep_path_is_refused(folder: Path, workspace: Workspace) -> None:
    deep = "/".join(["d"] * 99)
    workspace.edit_file(f"{deep}/x", "", "here")
    assert workspace.read_file(f"{deep}/x") == "here"
    assert "too deep" in problem_of(lambda: workspace.edit_file(f"{deep}/d/d/d/x", "", "y"))


def test_every_descriptor_is_closed(workspace: Workspace) -> None:
    before = len(os.listdir("/dev/fd"))
    for path in [*UNUSABLE, *OUTSIDE]:
        if path != "socket":
            problem_of(lambda path=path: workspace.read_file(path))
    workspace.read_file("chain")
    workspace.search("def")
    workspace.list_files(".", "**/*.py")
    assert len(os.listdir("/dev/fd")) == before


def test_missing_file_is_reported_with_similar_names(workspace: Workspace) -> None:
    said = problem_of(lambda: workspace.read_file("src/mian.py"))
    assert said == "src/mian.py does not exist. Similar names there: main.py."


def test_workspace_that_is_not_a_folder_is_rejected(folder: Path) -> None:
    for path in ("README.md", "nothing"):
        with pytest.raises(UsageError, match=r"Expected a folder"):
            Workspace(folder / path)


def test_replaced_workspace_folder_is_refused(folder: Path, workspace: Workspace) -> None:
    folder.rename(folder.parent / "moved")
    assert "does not exist" in problem_of(lambda: workspace.read_file("README.md"))
    (folder.parent / "outside").rename(folder)
    assert "replaced by another folder" in problem_of(lambda: workspace.read_file("secret.txt"))
    folder.rename(folder.parent / "outside")
    folder.symlink_to("outside")
    problem_of(lambda: workspace.read_file("secret.txt"))


def test_workspace_folder_may_be_a_link(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert "def main" in Workspace(link).read_file(f"{link}/src/main.py")
    assert "def main" in Workspace(link).read_file(f"{folder}/src/main.py")


@pytest.mark.parametrize("seed", range(40))
def test_random_links_lead_where_the_system_says(tmp_path: Path, seed: int) -> None:
    """Random trees of folders, files and links: what the system would open is opened if it is
    inside, and nothing else is."""
    chosen = random.Random(seed)
    root = tmp_path / "root"
    places = [root, *(root / name for name in ("a", "b", "a/c", "a/c/d")), tmp_path / "root2"]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        (place / "file").write_text(str(place))
    for number in range(12):
        (chosen.choice(places) / f"link{number}").symlink_to(_somewhere(chosen, root))
    folder = folders.ConfinedFolder(root)
    for _ in range(60):
        path = f"{_somewhere(chosen, root)}/file"
        real = os.path.realpath(root / path)
        is_inside = real.startswith(f"{root}/") and os.path.isfile(root / path)
        try:
            found = files.read_content(folder, path).data.decode()
        except WorkspaceError as problem:
            # Of paths inside, only those that lead out and back in are refused.
            found = None if "leads out" in str(problem) or not is_inside else "refused"
        assert found in (None, os.path.dirname(real))
        assert found is None or is_inside


def _somewhere(chosen: random.Random, root: Path) -> str:
    names = ["a", "b", "c", "a/c", "..", "../..", "root", "root2"]
    names += [f"link{number}" for number in range(12)]
    start = chosen.choice(["", "", "", "", f"{root}/", f"{root.parent}/", "/"])
    return start + "/".join(chosen.choices(names, k=chosen.randint(1, 3)))
