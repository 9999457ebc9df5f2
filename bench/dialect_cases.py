"""How many of other projects' format cases come out right, by dialect.

    TOOLSPEAK_CORPUS=… python -m bench.dialect_cases [--auto] [--misses]

A row is right if the calls are the same and, where the row says what the text should be, so is the
text, white space at its ends aside. `literal` rows were transcribed from an assertion; `recorded`
rows are what that project's parser returned, quirks and all. Misses are listed, with the reason, in
tests/dialects/corpus_misses.toml. `format only` admits the tools and arguments that a row expects,
whatever its own tools say: those that were not offered, or do not fit their schema, make no call.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from toolspeak import Reply, Tool, as_tools
from toolspeak.fit import fit
from toolspeak.testing import parse

Row = dict[str, Any]


def rows(corpus: Path) -> Iterator[tuple[str, Row]]:
    """Every row, with the dialect it belongs to."""
    for path in sorted((corpus / "dialect-cases").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            yield path.stem, json.loads(line)


def options_of(row: Row, dialect: str) -> dict[str, Any]:
    """How to parse a row."""
    return {
        "dialect": dialect,
        "tools": as_tools(row.get("tools") or None),
        "reasoning_open": row.get("enable_thinking"),
    }


def format_only(row: Row) -> Row:
    """The row with tools that admit the calls it expects: what is left to rate is the format."""
    tools = {tool.name: tool for tool in as_tools(row.get("tools")) or ()}
    if not tools:
        return row
    for call in row["expected_calls"]:
        tool = tools.get(call["name"], Tool(name=call["name"]))
        schema = {key: item for key, item in tool.parameters.items() if key != "required"}
        wrong = {fault.path for fault in fit(call["arguments"], schema).faults}
        declared = schema.get("properties", {}).items()
        typed = {key: item for key, item in declared if f"$.{key}" not in wrong}
        parameters = {**schema, "properties": typed} if typed else {}
        tools[call["name"]] = Tool(name=call["name"], parameters=parameters)
    return {**row, "tools": list(tools.values())}


def is_right(row: Row, reply: Reply) -> bool:
    """Whether a reply is what the row expects."""
    calls = [{"name": call.name, "arguments": call.arguments} for call in reply.calls]
    expected = [{"name": c["name"], "arguments": c["arguments"]} for c in row["expected_calls"]]
    content = row["expected_content"]
    return calls == expected and (content is None or reply.text.strip() == content.strip())


def kind_of(row: Row) -> str:
    return "literal" if row["origin"] == "literal" else "recorded"


def main() -> int:
    options = argparse.ArgumentParser(description="Right format cases, by dialect.")
    options.add_argument("--misses", action="store_true", help="show what each miss gave")
    chosen = options.parse_args()
    folder = os.environ.get("TOOLSPEAK_CORPUS")
    if not folder:
        print("TOOLSPEAK_CORPUS does not name the folder of recorded cases", file=sys.stderr)
        return 2
    total: Counter[tuple[str, str]] = Counter()
    table = Table("dialect", "literal: named", "auto", "recorded: named", "auto")
    by_dialect: dict[str, Counter[tuple[str, str]]] = {}
    for dialect, row in rows(Path(folder)):
        count = by_dialect.setdefault(dialect, Counter())
        count[kind_of(row), "all"] += 1
        for mode, name in (("named", dialect), ("auto", "auto")):
            reply = parse([row["text"]], **options_of(row, name))
            right = is_right(row, reply)
            count[kind_of(row), mode] += right
            alone = parse([row["text"]], **options_of(format_only(row), name))
            count[kind_of(row), f"{mode}, format only"] += is_right(row, alone)
            if chosen.misses and not right:
                calls = [(call.name, call.arguments) for call in reply.calls]
                print(f"{row['id']} {mode}: {calls!r:.160} {reply.text!r:.160}")
    for dialect, count in by_dialect.items():
        total.update(count)
        table.add_row(dialect, *_cells(count))
    table.add_section()
    table.add_row("all", *_cells(total))
    Console(width=100).print(table)
    for kind in ("literal", "recorded"):
        for how in ("", ", format only"):
            named, auto = (total[kind, m + how] / total[kind, "all"] for m in ("named", "auto"))
            print(f"{kind}{how}: named {named:.1%}, auto {auto:.1%} of {total[kind, 'all']}")
    return 0


def _cells(count: Counter[tuple[str, str]]) -> list[str]:
    return [
        f"{count[kind, mode]}/{count[kind, 'all']}" if count[kind, "all"] else ""
        for kind in ("literal", "recorded")
        for mode in ("named", "auto")
    ]


if __name__ == "__main__":
    sys.exit(main())
