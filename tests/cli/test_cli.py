"""The commands `parse`, `render` and `dialects`."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from toolspeak import DIALECTS
from toolspeak.cli import main

CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


def run(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *arguments: str,
    stdin: str = "",
) -> tuple[int, str, str]:
    data = stdin.encode("utf-8", "surrogateescape")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("stream", [[], ["--stream", "1"], ["--stream", "7"]])
@pytest.mark.parametrize("dialect", ["auto", "hermes"])
def test_parse_prints_calls_text_and_dialect(
    capsys: Any, monkeypatch: Any, stream: list[str], dialect: str
) -> None:
    code, out, _ = run(
        capsys, monkeypatch, "parse", "--dialect", dialect, *stream, stdin=f"Hi {CALL}"
    )
    reply = json.loads(out)
    assert code == 0
    assert list(reply) == ["text", "reasoning", "calls", "rejected", "notes", "dialect"]
    assert reply["text"] == "Hi "
    assert reply["calls"][0]["arguments"] == {"a": 1}
    assert reply["dialect"] == "hermes"


def test_parse_with_tools_validates_calls(capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([{"type": "function", "function": {"name": "g"}}]))
    _, out, _ = run(capsys, monkeypatch, "parse", "--tools", str(tools), stdin=CALL)
    reply = json.loads(out)
    assert reply["calls"] == []
    assert reply["text"] == CALL
    assert reply["rejected"][0]["code"] == "unknown-tool"
    assert (
        reply["rejected"][0]["problem"] == "there is no tool named 'f'; available tools include g"
    )
    typed = ("parse", "--tools", str(tools), "--types-only")
    reply = json.loads(run(capsys, monkeypatch, *typed, stdin=CALL)[1])
    assert [call["name"] for call in reply["calls"]] == ["f"]
    assert [note["code"] for note in reply["notes"]] == ["unknown-tool"]


def test_parse_invalid_utf8_keeps_the_bytes(capsys: Any, monkeypatch: Any) -> None:
    code, out, _ = run(capsys, monkeypatch, "parse", stdin="a\udcffb")
    assert code == 0
    assert json.loads(out)["text"] == "a\udcffb"


def test_parse_with_events_prints_one_per_line(capsys: Any, monkeypatch: Any) -> None:
    _, out, _ = run(capsys, monkeypatch, "parse", "--events", "--stream", "5", stdin=f"Hi {CALL}")
    kinds = [json.loads(line)["type"] for line in out.splitlines()]
    assert kinds == ["text", "call_start", "arguments", "call_end", "finish"]


def test_parse_with_model_uses_its_dialects(capsys: Any, monkeypatch: Any) -> None:
    text = "[TOOL_CALLS]f[ARGS]{}"
    _, out, _ = run(capsys, monkeypatch, "parse", "--model", "mistralai/Devstral-2", stdin=text)
    assert json.loads(out)["dialect"] == "mistral_args"


def test_render_output_parses_back(capsys: Any, monkeypatch: Any) -> None:
    calls = json.dumps([{"name": "f", "arguments": {"a": "x"}}])
    code, text, _ = run(capsys, monkeypatch, "render", "--dialect", "glm45", stdin=calls)
    assert code == 0
    _, out, _ = run(capsys, monkeypatch, "parse", "--dialect", "glm45", stdin=text)
    assert json.loads(out)["calls"][0]["arguments"] == {"a": "x"}


def test_render_accepts_the_output_of_parse(capsys: Any, monkeypatch: Any) -> None:
    _, out, _ = run(capsys, monkeypatch, "parse", stdin=CALL)
    code, text, _ = run(capsys, monkeypatch, "render", "--dialect", "functionary_v3_1", stdin=out)
    assert (code, text) == (0, '<function=f>{"a": 1}</function>\n')


def test_render_writes_results_and_tools(capsys: Any, monkeypatch: Any) -> None:
    result = json.dumps({"call_id": "c1", "name": "f", "content": "ok"})
    _, out, _ = run(
        capsys, monkeypatch, "render", "--dialect", "hermes", "--what", "results", stdin=result
    )
    assert out.startswith("Result of f (c1):\n\n<tool_response>\nok\n</tool_response>\n\n")
    tools = json.dumps([{"name": "f", "input_schema": {"type": "object"}}])
    _, out, _ = run(
        capsys, monkeypatch, "render", "--dialect", "xml", "--what", "tools", stdin=tools
    )
    assert '"name": "f"' in out


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (["parse", "--dialect", "hermse"], "", "did you mean hermes"),
        (["parse", "--tools", "/nowhere.json"], "", "/nowhere.json"),
        (["parse", "--tools", "-"], "3", "list of tools"),
        (["render", "--dialect", "hermes"], "nonsense", "is not JSON"),
        (["render", "--dialect", "hermes"], '[{"a": 1}]', "$[0]"),
        (["render", "--dialect", "hermes", "--what", "results"], "[{}]", "$[0]"),
        (["render", "--dialect", "hermes", "--what", "tools"], "[{}]", "$[0].name"),
        (
            ["render", "--dialect", "qwen3_coder"],
            '[{"name": "f", "arguments": {"a": "</parameter>"}}]',
            "$[0].arguments.a",
        ),
    ],
)
def test_error_names_the_problem_and_its_place(
    capsys: Any, monkeypatch: Any, arguments: list[str], stdin: str, message: str
) -> None:
    code, out, err = run(capsys, monkeypatch, *arguments, stdin=stdin)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize("size", ["0", "-1", "²", "x", "", "9" * 5000])
def test_parse_with_invalid_stream_size_is_an_error(
    capsys: Any, monkeypatch: Any, size: str
) -> None:
    with pytest.raises(SystemExit):
        run(capsys, monkeypatch, "parse", "--stream", size)
    assert f"expected a whole number of at least 1, got {size!r}" in capsys.readouterr().err


def test_dialects_lists_names_models_and_samples(capsys: Any, monkeypatch: Any) -> None:
    code, out, _ = run(capsys, monkeypatch, "dialects", "hermes", "glm45")
    assert code == 0
    assert "2 dialects" in out
    assert "<arg_key>city</arg_key>" in out
    _, out, _ = run(capsys, monkeypatch, "dialects", "--json")
    assert [row["name"] for row in json.loads(out)] == list(DIALECTS)
    _, out, _ = run(capsys, monkeypatch, "dialects", "--json", "--model", "Qwen3-Coder-30B")
    assert json.loads(out)[0]["name"] == "qwen3_coder"
