"""Showing the text of files, and edits: exact, complete or not at all."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.scripted import run_in_fork
from toolspeak.agent.workspace import WorkspaceError
from toolspeak.agent.workspace import folder as folders
from toolspeak.agent.workspace.folder import open_folder
from toolspeak.agent.workspace.tools import Workspace

from .support import SECRET, SOON, find_temporary_files, get_error, read_tree

# Showing.
PAGES = [
    (b"one\ntwo\n", {}, "one\ntwo"),
    (b"one\ntwo", {}, "one\ntwo"),
    (b"one\r\ntwo\r\n", {}, "one\ntwo"),
    (b"", {}, "[The file is empty.]"),
    (b"\n", {}, ""),
    (b"\xef\xbb\xbfone", {}, "one"),
    ("zwölf ✓".encode(), {}, "zwölf ✓"),
    (
        b"caf\xe9",
        {},
        "caf\ufffd\n[Invalid UTF-8 is shown as \ufffd. Edits keep the original bytes.]",
    ),
    (
        b"1\n2\n3\n4\n",
        {"offset": 2, "limit": 2},
        "2\n3\n[Lines 2 to 3 of 4. Continue with offset=4.]",
    ),
    (b"1\n2\n3\n4\n", {"offset": 4}, "4\n[Lines 4 to 4 of 4.]"),
    (b"1\n2\n", {"offset": 0}, "1\n2"),
    (b"1\n2\n", {"offset": -5, "limit": -1}, "1\n[Lines 1 to 1 of 2. Continue with offset=2.]"),
    (b"1\x0c2\xe2\x80\xa83\n", {}, "1\x0c2\u20283"),
]


@pytest.mark.parametrize(("data", "how", "result"), PAGES)
def test_file_is_read(
    folder: Path, workspace: Workspace, either_way: str, data: bytes, how: Any, result: str
) -> None:
    (folder / "file").write_bytes(data)
    assert workspace.read_file("file", **how) == result


def test_offset_behind_the_end_is_refused(workspace: Workspace) -> None:
    error = get_error(lambda: workspace.read_file("README.md", offset=9))
    assert error == "README.md has only 3 lines."


def test_long_file_is_read_in_parts(folder: Path, workspace: Workspace) -> None:
    lines = [f"line {number} {'x' * (number % 300)}" for number in range(1, 1001)]
    (folder / "long").write_text("\n".join(lines))
    seen: list[str] = []
    while len(seen) < 1000:
        *part, remark = workspace.read_file("long", offset=len(seen) + 1).split("\n")
        assert sum(len(line) + 1 for line in part) <= 20_000
        assert remark.startswith(f"[Lines {len(seen) + 1} to {len(seen) + len(part)} of 1000.")
        seen += part
    assert seen == lines


def test_long_line_is_shortened(folder: Path, workspace: Workspace) -> None:
    (folder / "line").write_text("x" * 50_000)
    assert workspace.read_file("line") == "x" * 20_000 + "… [30000 more characters]"


def test_large_file_is_not_read(folder: Path, workspace: Workspace) -> None:
    with (folder / "large").open("wb") as file:
        file.truncate(1 << 40)
    assert "larger than 8 MiB" in get_error(lambda: workspace.read_file("large"))
    assert "[Skipped, too large or unreadable: large.]" in workspace.search("x", "large")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_file_that_reports_no_size_is_read_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files in /proc report size 0."""
    assert Workspace(open_folder("/proc/self")).read_file("status").startswith("Name:")
    monkeypatch.setattr(folders, "MAX_FILE_SIZE", 10)
    assert "larger than" in get_error(
        lambda: Workspace(open_folder("/proc/self")).read_file("status")
    )


def test_private_key_lines_are_masked(tmp_path: Path) -> None:
    """In any part of the file."""
    body = "\n".join(["MIIEowIBAAKCAQEAx0secret"] * 8)
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----"
    (tmp_path / "id_rsa").write_text(f"before\n{key}\nafter\n")
    workspace = Workspace(open_folder(tmp_path))
    assert "secret" not in workspace.read_file("id_rsa", offset=4)
    assert "secret" not in workspace.search("MII[A-Za-z0-9]+")
    assert workspace.search("after").startswith("id_rsa:12: after")


# Editing.

EDITS = [
    (b"one two three", "two", "2", b"one 2 three"),
    (b"a\nb\nc\n", "b\n", "", b"a\nc\n"),
    (b"a\nb", "b", "b\n", b"a\nb\n"),
    (b"a\nb", "a\nb", "x\ny", b"x\ny"),
    (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
    (b"a\r\nb\r\nc\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\nc\r\n"),
    (b"a\r\nb\r\nc", "c", "c\nd", b"a\r\nb\r\nc\r\nd"),
    (b"a\r\nb\r\nc", "\nb", "", b"a\r\nc"),
    (b"a\r\nb\r\nc", "b\n", "", b"a\r\nc"),
    (b"a\nb\r\nc\nd\n", "b\nc", "x\ny", b"a\nx\r\ny\nd\n"),
    (b"a\nb\r\nc\nd\n", "d", "d\ne", b"a\nb\r\nc\nd\ne\n"),
    (b"a\r\r\nb", "b", "c", b"a\r\r\nc"),
    (b"\xef\xbb\xbfa\nb\n", "a", "x", b"\xef\xbb\xbfx\nb\n"),
    (b"caf\xe9 a\n", "a\n", "b\n", b"caf\xe9 b\n"),
    (b"caf\xe9 x\n", "x", "\xe9", b"caf\xe9 \xc3\xa9\n"),
    (b"a\x0cb\xe2\x80\xa8c", "b", "x", b"a\x0cx\xe2\x80\xa8c"),
    (b".*", ".*", r"\1", rb"\1"),
]


@pytest.mark.parametrize(("data", "old", "new", "result"), EDITS)
def test_edit_changes_only_the_matched_text(
    folder: Path,
    workspace: Workspace,
    either_way: str,
    data: bytes,
    old: str,
    new: str,
    result: bytes,
) -> None:
    (folder / "file").write_bytes(data)
    workspace.edit_file("file", old, new)
    assert (folder / "file").read_bytes() == result
    assert find_temporary_files(folder) == []


def test_ambiguous_edit_is_refused_unless_all(folder: Path, workspace: Workspace) -> None:
    (folder / "file").write_bytes(b"x = 1\r\ny = 1\r\nz = 2\r\nw = 1\r\n")
    error = get_error(lambda: workspace.edit_file("file", "= 1", "= 3"))
    assert error.startswith("`old` occurs 3 times in file (lines 1, 2, 4).")
    result = workspace.edit_file("file", "= 1\n", "= 3\n", all=True)
    assert result == "[Changed file, lines 1, 2, 4.]"
    assert (folder / "file").read_bytes() == b"x = 3\r\ny = 3\r\nz = 2\r\nw = 3\r\n"


def test_overlapping_matches_are_ambiguous(folder: Path, workspace: Workspace) -> None:
    """It is not clear which match is meant."""
    (folder / "file").write_text("}\n}\n}\n")
    assert "occurs 2 times" in get_error(lambda: workspace.edit_file("file", "}\n}", "}"))
    workspace.edit_file("file", "}\n}", "]", all=True)
    assert (folder / "file").read_text() == "]\n}\n"


def test_many_matches_are_fast(folder: Path, workspace: Workspace) -> None:
    (folder / "file").write_text("a" * 400_000 + "\r\n")
    began = time.process_time()
    error = get_error(lambda: workspace.edit_file("file", "a" * 10_000, "b"))
    assert "1000 times or more" in error
    workspace.edit_file("file", "aa", "b", all=True)
    assert time.process_time() - began < SOON
    assert (folder / "file").read_bytes() == b"b" * 200_000 + b"\r\n"


def test_edit_that_would_exceed_the_size_limit_is_refused(
    folder: Path, workspace: Workspace
) -> None:
    (folder / "file").write_text("a" * 1_000_000)
    for call in (
        lambda: workspace.edit_file("file", "a", "b" * 1000, all=True),
        lambda: workspace.edit_file("new", "", "b" * 9_000_000),
    ):
        assert get_error(call) == "The file would become larger than 8 MiB."
    assert not (folder / "new").exists()


NO_MATCHES = [
    (
        "def main():\n  return 1",
        "The most similar text starts at line 1. Only the spaces differ."
        "\ndef main():\n    return 1",
    ),
    ("    return 2", "The most similar text starts at line 2.\n    return 1"),
    ("def  main()  :", "The most similar text starts at line 1.\ndef main():"),
    ("class Whatever:", "No line is similar. Read the file again."),
    ("\n\n\n", "No line is similar. Read the file again."),
]


@pytest.mark.parametrize(("old", "result"), NO_MATCHES)
def test_edit_without_match_quotes_similar_lines(
    workspace: Workspace, old: str, result: str
) -> None:
    error = get_error(lambda: workspace.edit_file("src/main.py", old, "x"))
    assert error == f"`old` does not occur in src/main.py. {result}"


def test_similar_lines_in_long_file_are_found_fast(folder: Path, workspace: Workspace) -> None:
    chosen = random.Random(2)
    lines = ["".join(chosen.choices("abcdefgh (){}=", k=150)) for _ in range(20_000)]
    (folder / "long").write_text("\n".join(lines))
    began = time.process_time()
    assert "starts at line 31" in get_error(
        lambda: workspace.edit_file("long", lines[30] + "!", "")
    )
    assert time.process_time() - began < SOON


def test_edit_without_old_creates_file(folder: Path, workspace: Workspace, either_way: str) -> None:
    assert workspace.edit_file("new/er/file.txt", "", "a\r\nb") == "[Created new/er/file.txt.]"
    assert (folder / "new/er/file.txt").read_bytes() == b"a\r\nb"
    usual = folder / "usual"
    usual.touch()
    assert (folder / "new/er/file.txt").stat().st_mode == usual.stat().st_mode
    assert "already exists" in get_error(lambda: workspace.edit_file("new/er/file.txt", "", "c"))
    assert workspace.edit_file("usual", "", "d") == "[Wrote usual. It was empty before.]"
    assert usual.read_text() == "d"
    workspace.edit_file("dangling", "", "through a link that stays inside")
    assert (folder / "src" / "nothing").exists()
    error = get_error(lambda: workspace.edit_file("nothing", "a", "b"))
    assert error == "nothing does not exist. To create it, leave `old` empty."
    assert "is a folder" in get_error(lambda: workspace.edit_file("src", "", "x"))
    assert "is not text" in get_error(lambda: workspace.edit_file("picture.png", "P", "x"))
    assert "invalid character" in get_error(lambda: workspace.edit_file("half", "", "\ud800"))
    assert not (folder / "half").exists()


def test_no_folder_is_created_for_path_outside(folder: Path, workspace: Workspace) -> None:
    get_error(lambda: workspace.edit_file("made/../../x", "", "new"))
    assert not (folder / "made").exists()


def test_file_that_appears_meanwhile_is_not_overwritten(
    folder: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = folders.create_file

    def appearing(*given: Any) -> str:
        (folder / "new").write_text("theirs")
        return real(*given)

    monkeypatch.setattr("toolspeak.agent.workspace.text.create_file", appearing)
    assert "already exists" in get_error(lambda: workspace.edit_file("new", "", "ours"))
    assert (folder / "new").read_text() == "theirs"


def test_change_by_somebody_else_is_kept(
    folder: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def changing(fd: int) -> None:
        (folder / "README.md").write_text("theirs")
        real(fd)

    monkeypatch.setattr(os, "fsync", changing)
    error = get_error(lambda: workspace.edit_file("README.md", "things", "nothing"))
    assert "Read it again" in error
    assert (folder / "README.md").read_text() == "theirs"
    assert find_temporary_files(folder) == []


@pytest.mark.parametrize("moment", ["open", "fchmod", "fsync", "replace"])
@pytest.mark.parametrize("problem", [OSError(28, "No space"), KeyboardInterrupt()])
@pytest.mark.parametrize(("path", "old"), [("README.md", "things"), ("new", "")])
def test_failed_edit_leaves_everything_unchanged(
    folder: Path,
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    problem: BaseException,
    path: str,
    old: str,
) -> None:
    real: Callable[..., Any] = getattr(os, moment)

    def failing(*given: Any, **named: Any) -> Any:
        if moment == "open" and not str(given[0]).startswith(".toolspeak-"):
            return real(*given, **named)
        raise problem

    before = read_tree(folder)
    with monkeypatch.context() as patch:
        patch.setattr(os, moment, failing)
        with pytest.raises((WorkspaceError, KeyboardInterrupt)):
            workspace.edit_file(path, old, "nothing")
    assert read_tree(folder) == before


def test_crash_leaves_the_old_file(folder: Path, workspace: Workspace) -> None:
    """The process dies during the edit and cannot clean up."""

    def edit() -> None:
        os.replace = lambda *arguments, **named: os._exit(9)  # type: ignore[assignment]
        workspace.edit_file("README.md", "things", "nothing")

    assert run_in_fork(edit) == 9
    assert (folder / "README.md").read_text() == "# Project\n\nIt does things.\n"


def test_edit_keeps_the_mode(folder: Path, workspace: Workspace) -> None:
    for mode, kept in ((0o755, 0o755), (0o640, 0o640), (0o4755, 0o755)):
        file = folder / f"mode{mode}"
        file.write_text("a")
        file.chmod(mode)
        workspace.edit_file(file.name, "a", "b")
        assert file.stat().st_mode & 0o7777 == kept


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_read_only_file_is_not_edited(folder: Path, workspace: Workspace) -> None:
    (folder / "README.md").chmod(0o444)
    error = get_error(lambda: workspace.edit_file("README.md", "things", "nothing"))
    assert error == "README.md cannot be used: permission denied."


def test_edit_through_link_keeps_the_link(folder: Path, workspace: Workspace) -> None:
    assert workspace.edit_file("chain", "1", "2") == "[Changed src/main.py, line 2.]"
    assert (folder / "chain").is_symlink()
    assert "return 2" in (folder / "src" / "main.py").read_text()


def test_edit_breaks_a_hard_link(folder: Path, workspace: Workspace) -> None:
    """It cannot be result from a file. What it shares with a file outside can be read, but not
    changed."""
    os.link(folder.parent / "secret.txt", folder / "hard")
    workspace.edit_file("hard", "secret", "public")
    assert (folder.parent / "secret.txt").read_text() == SECRET


def test_git_folder_is_not_edited(folder: Path, workspace: Workspace, either_way: str) -> None:
    (folder / ".git" / "hooks").mkdir(parents=True)
    (folder / ".git" / "config").write_text("[core]\n")
    (folder / "innocent").symlink_to(".git")
    for path in (".git/config", "innocent/config", "src/../.git/config"):
        error = get_error(lambda path=path: workspace.edit_file(path, "core", "x"))
        assert error == "Files in .git cannot be changed with this tool. Use git commands instead."
    for path in (".git/hooks/pre-commit", "innocent/hooks/x", "sub/.git/config", ".GIT/x", ".git"):
        get_error(lambda path=path: workspace.edit_file(path, "", "x"))
    assert not (folder / "sub" / ".git").exists()
    assert workspace.read_file(".git/config") == "[core]"


def test_edit_without_change_is_refused(workspace: Workspace) -> None:
    error = get_error(lambda: workspace.edit_file("README.md", "things", "things"))
    assert error == "`old` and `new` are the same. Nothing was changed."
