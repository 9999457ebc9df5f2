"""`toolspeak scrub`: its output, reports, encodings and exit codes."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from toolspeak.cli import main

TEXT = 'A=1\nDB_PASSWORD=hunter2hunter2\n{"api_key": "sk-1234567890"}\n'
SCRUBBED = 'A=1\nDB_PASSWORD=hunt*[REDACTED]\n{"api_key": "sk-1*[REDACTED]"}\n'


def run_scrub(
    capfdbinary: Any, monkeypatch: pytest.MonkeyPatch, *arguments: str, stdin: bytes = b""
) -> Any:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    code = main(["scrub", *arguments])
    sys.stdout.flush()
    captured = capfdbinary.readouterr()
    return code, captured.out, captured.err


def test_standard_input_is_scrubbed(capfdbinary: Any, monkeypatch: Any) -> None:
    code, out, err = run_scrub(capfdbinary, monkeypatch, stdin=TEXT.encode())
    assert (code, out.decode(), err) == (0, SCRUBBED, b"")


def test_files_are_scrubbed_one_after_another(
    capfdbinary: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text(TEXT)
    second.write_text("TOKEN=abcdefgh1234")
    code, out, _ = run_scrub(capfdbinary, monkeypatch, str(first), str(second))
    assert code == 0
    assert out.decode() == SCRUBBED + "TOKEN=abcd*[REDACTED]"


def test_bytes_that_are_not_utf8_are_kept(capfdbinary: Any, monkeypatch: Any) -> None:
    data = b"\xef\xbb\xbfa\xff\xfe\r\n\x00 token=abcdefgh1234\r\n\xc3"
    _, out, _ = run_scrub(capfdbinary, monkeypatch, stdin=data)
    assert out == data.replace(b"efgh1234", b"*[REDACTED]")


def test_json_report_lists_positions_without_secrets(capfdbinary: Any, monkeypatch: Any) -> None:
    code, out, _ = run_scrub(capfdbinary, monkeypatch, "--json", stdin=TEXT.encode())
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        {
            "file": "-",
            "kind": "password",
            "name": "DB_PASSWORD",
            "line": 2,
            "column": 13,
            "offset": 16,
        },
        {"file": "-", "kind": "api-key", "name": "api_key", "line": 3, "column": 14, "offset": 44},
    ]
    assert b"hunter" not in out


def test_check_lists_secrets_and_fails_if_there_are_any(capfdbinary: Any, monkeypatch: Any) -> None:
    code, out, _ = run_scrub(capfdbinary, monkeypatch, "--check", stdin=TEXT.encode())
    assert code == 1
    assert out.decode() == "-:2:13: password DB_PASSWORD\n-:3:14: api-key api_key\n"
    code, out, _ = run_scrub(capfdbinary, monkeypatch, "--check", stdin=b"nothing here\n")
    assert (code, out) == (0, b"")
    code, out, _ = run_scrub(capfdbinary, monkeypatch, "--check", "--json", stdin=TEXT.encode())
    assert (code, len(out.splitlines())) == (1, 2)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_file_with_byte_order_mark_keeps_its_encoding(
    capfdbinary: Any, monkeypatch: Any, encoding: str
) -> None:
    code, out, _ = run_scrub(capfdbinary, monkeypatch, stdin=f"\ufeff{TEXT}".encode(encoding))
    assert (code, out.decode(encoding)) == (0, f"\ufeff{SCRUBBED}")
    code, out, _ = run_scrub(
        capfdbinary, monkeypatch, "--check", stdin=f"\ufeff{TEXT}".encode(encoding)
    )
    assert (code, len(out.splitlines())) == (1, 2)


def test_utf16_without_mark_or_invalid_is_an_error(capfdbinary: Any, monkeypatch: Any) -> None:
    code, out, err = run_scrub(capfdbinary, monkeypatch, "--check", stdin=TEXT.encode("utf-16-le"))
    assert (code, out) == (2, b"")
    assert b"UTF-16" in err
    code, _, err = run_scrub(capfdbinary, monkeypatch, stdin=b"\xff\xfea\0b")
    assert code == 2
    assert b"utf-16" in err


def test_unreadable_file_does_not_stop_the_others(
    capfdbinary: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text(TEXT)
    code, out, err = run_scrub(capfdbinary, monkeypatch, "--check", "nowhere", str(tmp_path / "a"))
    assert (code, len(out.splitlines())) == (2, 2)
    assert b"nowhere" in err


def test_missing_file_is_an_error(capfdbinary: Any, monkeypatch: Any) -> None:
    code, out, err = run_scrub(capfdbinary, monkeypatch, "nowhere")
    assert (code, out) == (2, b"")
    assert b"nowhere" in err
