"""Reading files, and how their text is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolspeak.agent.workspace import Workspace, files

from .support import problem_of

READ = [
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


@pytest.mark.parametrize(("data", "how", "told"), READ)
def test_file_is_read(
    folder: Path, workspace: Workspace, either_way: str, data: bytes, how: Any, told: str
) -> None:
    (folder / "file").write_bytes(data)
    assert workspace.read_file("file", **how) == told


def test_offset_behind_the_end_is_refused(workspace: Workspace) -> None:
    said = problem_of(lambda: workspace.read_file("README.md", offset=9))
    assert said == "README.md has only 3 lines."


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
    assert "larger than 8 MB" in problem_of(lambda: workspace.read_file("large"))
    assert "[Too large or not readable: large.]" in workspace.search("x", "large")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_file_that_reports_no_size_is_read_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files in /proc report size 0."""
    assert Workspace("/proc/self").read_file("status").startswith("Name:")
    monkeypatch.setattr(files, "MAX_FILE_SIZE", 10)
    assert "larger than" in problem_of(lambda: Workspace("/proc/self").read_file("status"))


def test_private_key_lines_are_masked(tmp_path: Path) -> None:
    """In any part of the file."""
    body = "\n".join(["MIIEowIBAAKCAQEAx0secret"] * 8)
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----"
    (tmp_path / "id_rsa").write_text(f"before\n{key}\nafter\n")
    workspace = Workspace(tmp_path)
    assert "secret" not in workspace.read_file("id_rsa", offset=4)
    assert "secret" not in workspace.search("MII[A-Za-z0-9]+")
    assert workspace.search("after").startswith("id_rsa:12: after")
