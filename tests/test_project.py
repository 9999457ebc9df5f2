"""Rules of the project: layers, public names, notes, generated pages."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from docs.generate import pages

import toolspeak
from tests.conftest import MARKERS
from tests.support import TOOLBOX, list_calls
from toolspeak import Dialect
from toolspeak.agent import Agent
from toolspeak.notes import NOTES
from toolspeak.testing import parse

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "toolspeak"
LAYERS = [
    {"_util"},
    {"types", "errors", "events", "notes"},
    {"calls"},
    {"dialects", "wires", "security"},
    {"extract", "engine", "testing"},
    {"config", "store", "provider_formats"},
    {"upstream"},
    {"observe"},
    {"gateway", "agent", "evaluation"},
    {"cli", "__main__"},
]
"""A module may import from its own layer and from the layers before it."""


def find_layer(module: str) -> int:
    return next(index for index, layer in enumerate(LAYERS) if module in layer)


def find_imports(path: Path) -> set[str]:
    """Return the parts of the package that a file imports from."""
    depth = len(path.relative_to(SOURCE).parts)
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found.update(name.partition(".")[0] for name in names if name)
    return found - {"__version__"}


def test_imports_go_one_way() -> None:
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts == ("__init__",):
            continue
        for imported in find_imports(path):
            assert find_layer(imported) <= find_layer(parts[0]), f"{path} imports {imported}"


def test_public_names_exist_and_are_unique() -> None:
    assert len(toolspeak.__all__) == len(set(toolspeak.__all__))
    assert all(hasattr(toolspeak, name) for name in toolspeak.__all__)


def test_import_of_the_library_is_light() -> None:
    """The agent, and what sends requests, are imported when they are used."""
    heavy = ("toolspeak.agent", "toolspeak.upstream", "toolspeak.security.scrubbing", "asyncio")
    code = f"import sys, toolspeak; print([one for one in {heavy} if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_top_level_has_agent_and_scrub() -> None:
    assert toolspeak.Agent is Agent
    assert toolspeak.scrub("api_key=sk-1234567890abcdef").text == "api_key=sk-1*[REDACTED]"
    assert {"Agent", "scrub"} <= {*dir(toolspeak)}
    with pytest.raises(AttributeError, match="has no attribute 'agents'"):
        _ = toolspeak.agents  # pyright: ignore[reportAttributeAccessIssue]


def test_note_codes_are_all_used() -> None:
    source = "".join(path.read_text() for path in SOURCE.rglob("*.py") if path.stem != "notes")
    for code in NOTES:
        assert f'"{code}"' in source or f'"{code.removeprefix("repaired-")}"' in source, code


def test_generated_pages_match_the_code() -> None:
    for name, text in pages().items():
        assert (ROOT / "docs" / name).read_text() == text, f"docs/{name}: run `make docs`"


def test_markers_name_existing_tests() -> None:
    """A renamed test would lose its marker, and `make test-fast` would run it."""
    for prefix in (prefix for prefixes in MARKERS.values() for prefix in prefixes):
        name, _, function = prefix.partition("::")
        path = ROOT / "tests" / name
        assert path.exists(), prefix
        assert not function or f"def {function}" in path.read_text(), prefix


def test_dialect_guide_example_works() -> None:
    """The dialect of docs/add-a-dialect.md parses its case as described there."""
    guide = (ROOT / "docs" / "add-a-dialect.md").read_text()
    code = re.findall(r"```python\n(.*?)```", guide, re.S)[0]
    dialect = eval(code.rstrip().rstrip(","), {"Dialect": Dialect})
    (case,) = tomllib.loads(re.findall(r"```toml\n(.*?)```", guide, re.S)[0])["case"]
    reply = parse([case["text"]], dialect=dialect, tools=TOOLBOX)
    assert list_calls(reply) == [(call["name"], call["arguments"]) for call in case["calls"]]
    assert reply.text == case["content"]


def test_gateway_imports_nothing_that_executes_tools() -> None:
    for layer in ("dialects", "wires", "engine", "upstream", "store", "observe", "gateway"):
        for path in (SOURCE / layer).rglob("*.py"):
            assert "agent" not in find_imports(path), path
