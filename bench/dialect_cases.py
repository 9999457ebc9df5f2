"""Share of other projects' format cases that are parsed correctly, by dialect.

    TOOLSPEAK_CORPUS=… python -m bench.dialect_cases [--misses]

A row is right if the calls are the same and, where the row says what the text should be, so is the
text, white space at its ends aside. `literal` rows were transcribed from an assertion; `recorded`
rows are what that project's parser returned, quirks and all. Misses are listed, with the reason, in
tests/dialects/corpus_misses.toml.

Most of those projects only read a format: a call of a tool that the row's own list does not have,
or whose arguments do not fit its schema, is what they expect, and we do not make it. `read` is how
many formats we read as they do, with the row's tools for nothing but the types of its arguments;
`made` is how many end as they do, with everything that we check.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from toolspeak import Reply, as_tools
from toolspeak.testing import parse

Row = dict[str, Any]
_KINDS, _HOW, _MODES = ("literal", "recorded"), ("read", "made"), ("named", "auto")


def read_rows(corpus: Path) -> Iterator[tuple[str, Row]]:
    """Yield every row with its dialect."""
    for path in sorted((corpus / "dialect-cases").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            yield path.stem, json.loads(line)


def build_options(row: Row, dialect: str, how: str = "made") -> dict[str, Any]:
    """Return the options to parse a row with."""
    return {
        "dialect": dialect,
        "tools": as_tools(row.get("tools") or None),
        "types_only": how == "read",
        "reasoning_open": row.get("enable_thinking"),
    }


def is_right(row: Row, reply: Reply) -> bool:
    """Return whether a reply matches the row."""
    calls = [{"name": call.name, "arguments": call.arguments} for call in reply.calls]
    expected = [{"name": c["name"], "arguments": c["arguments"]} for c in row["expected_calls"]]
    content = row["expected_content"]
    return calls == expected and (content is None or reply.text.strip() == content.strip())


def get_kind(row: Row) -> str:
    return "literal" if row["origin"] == "literal" else "recorded"


def main() -> int:
    options = argparse.ArgumentParser(description="Right format cases, by dialect.")
    options.add_argument("--misses", action="store_true", help="show what each miss gave")
    chosen = options.parse_args()
    folder = os.environ.get("TOOLSPEAK_CORPUS")
    if not folder:
        print("TOOLSPEAK_CORPUS does not name the folder of recorded cases", file=sys.stderr)
        return 2
    total: Counter[tuple[str, str, str]] = Counter()
    table = Table("dialect", "literal, read: named", "auto", "made: named", "auto")
    for column in ("recorded, read: named", "auto", "made: named", "auto"):
        table.add_column(column)
    by_dialect: dict[str, Counter[tuple[str, str, str]]] = {}
    for dialect, row in read_rows(Path(folder)):
        count = by_dialect.setdefault(dialect, Counter())
        count[get_kind(row), "", "all"] += 1
        for how, mode in itertools.product(_HOW, _MODES):
            options = build_options(row, dialect if mode == "named" else mode, how)
            reply = parse([row["text"]], **options)
            right = is_right(row, reply)
            count[get_kind(row), how, mode] += right
            if chosen.misses and not right:
                calls = [(call.name, call.arguments) for call in reply.calls]
                print(f"{row['id']} {how}, {mode}: {calls!r:.160} {reply.text!r:.160}")
    for dialect, count in by_dialect.items():
        total.update(count)
        table.add_row(dialect, *_build_cells(count))
    table.add_section()
    table.add_row("all", *_build_cells(total))
    Console(width=130).print(table)
    for kind, how in itertools.product(_KINDS, _HOW):
        rated = total[kind, "", "all"]
        named, auto = (total[kind, how, mode] / rated for mode in _MODES)
        print(f"{kind}, {how}: named {named:.1%}, auto {auto:.1%} of {rated}")
    return 0


def _build_cells(count: Counter[tuple[str, str, str]]) -> list[str]:
    return [
        f"{count[kind, how, mode]}/{rated}" if (rated := count[kind, "", "all"]) else ""
        for kind, how, mode in itertools.product(_KINDS, _HOW, _MODES)
    ]


if __name__ == "__main__":
    sys.exit(main())
