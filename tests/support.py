"""Shared by tests: a set of tools, the tables of cases, and comparisons of replies."""

from __future__ import annotations

import os
import tomllib
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from toolspeak import Reply, Tool

CASES = Path(__file__).parent / "dialects" / "cases"

TOOLBOX = (
    Tool(
        name="get_weather",
        parameters={
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "live": {"type": "boolean"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "options": {
                    "type": "object",
                    "properties": {"unit": {"type": "string"}, "limit": {"type": "number"}},
                },
            },
            "required": ["city"],
        },
    ),
    Tool(name="now", parameters={"type": "object", "properties": {}}),
    Tool(
        name="t",
        parameters={
            "type": "object",
            "properties": {
                "a": {"type": "integer"},
                "city": {"type": "string"},
                "n": {"type": "integer"},
            },
        },
    ),
    Tool(name="u", parameters={"type": "object"}),
    Tool(name="search", parameters={"type": "object", "properties": {"q": {"type": "string"}}}),
    Tool(
        name="brave_search",
        parameters={"type": "object", "properties": {"query": {"type": "string"}}},
    ),
    Tool(name="python", parameters={"type": "object", "properties": {"code": {"type": "string"}}}),
)


def load_dialect_cases() -> list[Any]:
    """Return a parameter for each dialect: its name and the rows of its table."""
    return [
        pytest.param(path.stem, tomllib.loads(path.read_text())["case"], id=path.stem)
        for path in sorted(CASES.glob("*.toml"))
    ]


def to_comparable(reply: Reply) -> tuple[Any, ...]:
    """Return everything in a reply that must not depend on how it was cut into chunks."""
    calls = [(call.id, call.name, call.arguments, call.raw) for call in reply.calls]
    return (
        reply.text,
        reply.reasoning,
        calls,
        reply.rejected,
        reply.notes,
        reply.dialect,
    )


def list_calls(reply: Reply) -> list[tuple[str, dict[str, Any]]]:
    """Return the names and arguments of a reply's calls."""
    return [(call.name, call.arguments) for call in reply.calls]


def get_corpus_folder() -> Path:
    """Return the folder of recorded cases; skip the test if there is none."""
    folder = os.environ.get("TOOLSPEAK_CORPUS")
    if not folder:
        pytest.skip("TOOLSPEAK_CORPUS does not name the folder of recorded cases")
    return Path(folder)


class Rows:
    """Checks many small rows in one test: every row runs, and all failures are reported.

    rows = Rows()
    for name, value in TABLE:
        with rows.row(name):
            assert ...
    rows.assert_passed()
    """

    def __init__(self) -> None:
        self._failures: list[str] = []
        self._count = 0

    @contextmanager
    def row(self, name: object) -> Generator[None]:
        self._count += 1
        try:
            yield
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            shown = "".join(traceback.format_exception_only(error))[:1500]
            self._failures.append(f"{name}\n  {place.filename}:{place.lineno}: {shown}")

    def assert_passed(self) -> None:
        assert self._count, "no rows were checked"
        if self._failures:
            failed = "\n".join(self._failures[:20])
            count = f"{len(self._failures)} of {self._count} rows failed:"
            pytest.fail(f"{count}\n{failed}", pytrace=False)
