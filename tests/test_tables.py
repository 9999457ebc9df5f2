"""Tables of model output with the expected calls, each row parsed in chunks of several sizes."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support import list_calls, to_comparable
from toolspeak import as_tools
from toolspeak.notes import NOTES
from toolspeak.testing import parse, split_into_chunks

TABLES = {
    path.stem: tomllib.loads(path.read_text())
    for path in sorted((Path(__file__).parent / "tables").glob("*.toml"))
}
TOOLS = {name: as_tools(table["tool"]) for name, table in TABLES.items()}
ROWS = [
    pytest.param(name, row, id=f"{name}: {row.get('name') or row['text'][:60]!r}")
    for name, table in TABLES.items()
    for row in table["case"]
]


@pytest.mark.parametrize(("table", "row"), ROWS)
def test_table_row_is_parsed_as_expected_in_any_chunks(table: str, row: dict[str, Any]) -> None:
    options: dict[str, Any] = {
        "tools": TOOLS[table],
        "dialect": row.get("dialect", "auto"),
        "trust": row.get("trust", "standard"),
    }
    reply = parse([row["text"]], **options)
    assert list_calls(reply) == [(call["name"], call["arguments"]) for call in row["calls"]]
    assert sorted({note.code for note in reply.notes}) == row.get("notes", [])
    if "content" in row:
        assert reply.text == row["content"]
    for size in (1, 2, 3, 7, 16):
        assert to_comparable(
            parse(split_into_chunks(row["text"], size), **options)
        ) == to_comparable(reply)
        pieces = split_into_chunks(row["text"], size)
        streamed = parse(pieces, **options, arguments="incremental")
        assert list_calls(streamed) == list_calls(reply)
        assert streamed.text == reply.text


def test_tables_have_unique_rows_and_known_notes() -> None:
    for name, table in TABLES.items():
        texts = Counter(
            (row["text"], row.get("dialect"), row.get("trust")) for row in table["case"]
        )
        assert not [text for text, count in texts.items() if count > 1], name
        assert {code for row in table["case"] for code in row.get("notes", [])} <= NOTES.keys()
