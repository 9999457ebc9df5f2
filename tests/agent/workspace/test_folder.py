"""Path confinement: paths inside are read, everything else is refused, whenever it changes."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolspeak.agent.workspace import WorkspaceError
from toolspeak.agent.workspace.folder import open_folder, read_content
from toolspeak.agent.workspace.tools import Workspace
from toolspeak.errors import UsageError

from .support import SECRET, SOON, get_error, get_result, read_tree

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
    "out_and_back": "README.md",
    "src/main.py/../main.py": "src/main.py",
}


@pytest.mark.parametrize("path", INSIDE)
def test_path_inside_is_read(
    folder: Path, workspace: Workspace, either_way: str, path: str
) -> None:
    read = read_content(open_folder(folder), path.format(root=folder))
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
    "dangling_out",
    "device",
    "to_proc",
    "src/root/../secret.txt",
    "{root}/out/secret.txt",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_path_outside_is_refused(
    folder: Path, workspace: Workspace, either_way: str, path: str
) -> None:
    path = path.format(root=folder, above=folder.parent)
    before = read_tree(folder.parent)
    for call in _list_uses(workspace, path):
        assert "leads out of the workspace folder" in get_error(call)
    assert read_tree(folder.parent) == before


def _list_uses(workspace: Workspace, path: str) -> list[Callable[[], str]]:
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
        assert UNUSABLE[path] in get_error(lambda: workspace.read_file(path))
        assert time.monotonic() - began < SOON


def test_deep_folders_are_created(workspace: Workspace) -> None:
    deep = "/".join(["d"] * 200)
    workspace.edit_file(f"{deep}/x", "", "here")
    assert workspace.read_file(f"{deep}/x") == "here"


def test_every_descriptor_is_closed(workspace: Workspace) -> None:
    before = len(os.listdir("/dev/fd"))
    for path in [*UNUSABLE, *OUTSIDE]:
        if path != "socket":
            get_error(lambda path=path: workspace.read_file(path))
    workspace.read_file("chain")
    workspace.search("def")
    workspace.list_files(".", "**/*.py")
    assert len(os.listdir("/dev/fd")) == before


def test_missing_file_is_reported_with_similar_names(workspace: Workspace) -> None:
    error = get_error(lambda: workspace.read_file("src/mian.py"))
    assert error == "src/mian.py does not exist. Similar names there: main.py."


def test_workspace_that_is_not_a_folder_is_rejected(folder: Path) -> None:
    for path in ("README.md", "nothing"):
        with pytest.raises(UsageError, match="`folder` must be an existing folder"):
            Workspace(open_folder(folder / path))


def test_replaced_workspace_folder_is_refused(folder: Path, workspace: Workspace) -> None:
    folder.rename(folder.parent / "moved")
    assert "does not exist" in get_error(lambda: workspace.read_file("README.md"))
    (folder.parent / "outside").rename(folder)
    assert "replaced by another folder" in get_error(lambda: workspace.read_file("secret.txt"))
    folder.rename(folder.parent / "outside")
    folder.symlink_to("outside")
    get_error(lambda: workspace.read_file("secret.txt"))


def test_workspace_folder_may_be_a_link(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert "def main" in Workspace(open_folder(link)).read_file(f"{link}/src/main.py")
    assert "def main" in Workspace(open_folder(link)).read_file(f"{folder}/src/main.py")


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
        (chosen.choice(places) / f"link{number}").symlink_to(_choose_path(chosen, root))
    folder = open_folder(root)
    for _ in range(60):
        path = f"{_choose_path(chosen, root)}/file"
        real = os.path.realpath(root / path)
        is_inside = real.startswith(f"{root}/")
        try:
            found = read_content(folder, path).data.decode()
        except WorkspaceError:
            found = None
        assert found or not (is_inside and os.path.isfile(root / path))
        assert found in (None, os.path.dirname(real))
        assert is_inside or not found


def _choose_path(chosen: random.Random, root: Path) -> str:
    names = ["a", "b", "c", "a/c", "..", "../..", "root", "root2"]
    names += [f"link{number}" for number in range(12)]
    start = chosen.choice(["", "", "", "", f"{root}/", f"{root.parent}/", "/"])
    return start + "/".join(chosen.choices(names, k=chosen.randint(1, 3)))


# Files and links that change between a check and its use.


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


def replace_by_link(path: Path, target: str) -> Callable[[], None]:
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
    swap_at(monkeypatch, call, name, replace_by_link(folder / place, target))
    uses = [
        lambda: workspace.read_file(path),
        lambda: workspace.edit_file(path, "e", "X", all=True),
        lambda: workspace.edit_file(path, SECRET, "taken"),
        lambda: workspace.search("secret", path),
    ]
    assert SECRET not in get_result(uses[use])
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
    result = get_result(lambda: workspace.edit_file("README.md", "things", "nothing"))
    assert ("changed by another program" in result) is (moment == "fsync")
    assert (folder.parent / "secret.txt").read_text() == SECRET


def test_file_that_becomes_a_pipe_does_not_block(
    folder: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swap() -> None:
        (folder / "README.md").unlink()
        os.mkfifo(folder / "README.md")

    swap_at(monkeypatch, "open", "README.md", swap)
    assert "a pipe" in get_error(lambda: workspace.read_file("README.md"))


def test_constantly_changing_links_never_lead_outside(folder: Path, workspace: Workspace) -> None:
    """Another process keeps replacing a link under the same name."""
    (folder / "src" / "secret.txt").write_text("public")
    flicker = subprocess.Popen([sys.executable, "-c", FLICKER, folder])
    results: set[str] = set()
    try:
        count = 0
        while count < 3000 or "public" not in results:
            count += 1
            for path in ("flicker/secret.txt", "flicker"):
                results.add(get_result(lambda path=path: workspace.read_file(path)))
    finally:
        flicker.kill()
        flicker.wait()
    assert "public" in results
    assert SECRET not in "".join(results)


FLICKER = """
import os, sys
name, other = sys.argv[1] + "/flicker", sys.argv[1] + "/flicker2"
while True:
    for target in ("src", "../outside", "../secret.txt", "src/secret.txt", "."):
        os.symlink(target, other)
        os.replace(other, name)
"""
