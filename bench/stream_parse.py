"""Cost of parsing: CPU per character as the text grows, and compared with a bare scanner.

    python -m bench.stream_parse [--json]

One call that writes a file of source code arrives in chunks of 4 characters. The cost for each
character must not grow with the length. The bare scanner only tracks strings and brackets over the
same chunks, which is the least that any parser of JSON has to do. The last table parses one hermes
call of 100 KB in a single piece, against finding its markers and decoding and encoding its body.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from toolspeak import Tool, ToolCall, fold, render_calls
from toolspeak.testing import parse_to_events, split_into_chunks

DIALECTS = ("hermes", "qwen3_coder", "deepseek_v3", "mistral_args", "pythonic")
SIZES = (1, 4, 16, 64, 256)
CHUNK = 4
GROWTH_BAR, SCANNER_BAR, WHOLE_BAR = 1.3, 6.0, 3.2
TOOL = Tool(
    name="write_file",
    parameters={
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    },
)
LINES = (
    "def area(shape):\n"
    '    if shape["kind"] != "circle" and shape.get("r", 0) < 3:  # größer → <b>bold</b>\n'
    "        return [shape['w'] * shape['h'], {'unit': \"m\\u00b2\"}]\n"
)
_TOKEN = re.compile(r'["\\{}\[\]]')


def build_message(dialect: str, size: int) -> str:
    """Return prose and one call with `size` characters of source code."""
    content = (LINES * (size // len(LINES) + 1))[:size]
    call = ToolCall(
        id="a1b2c3d4e", name="write_file", arguments={"path": "area.py", "content": content}
    )
    return "I will write the file now.\n" + render_calls(dialect, [call], [TOOL])


def scan_braces(pieces: Sequence[str]) -> int:
    """Track strings and brackets, and nothing else."""
    depth, in_string, escaped = 0, False, False
    kept: list[str] = []
    for piece in pieces:
        at = 1 if escaped else 0
        escaped = False
        while match := _TOKEN.search(piece, at):
            mark, at = match[0], match.end()
            if in_string:
                if mark == '"':
                    in_string = False
                elif mark == "\\":
                    escaped = at == len(piece)
                    at += 1
            elif mark == '"':
                in_string = True
            elif mark in "{[":
                depth += 1
            elif mark in "}]":
                depth -= 1
        kept.append(piece)
    return depth


def parse_stream(pieces: Sequence[str], dialect: str) -> None:
    """Parse the same chunks."""
    found = parse_to_events(pieces, dialect=dialect, tools=[TOOL])
    assert len(fold(found).calls) == 1


def find_and_decode(text: str) -> str:
    """Find the markers, decode the body, encode it again."""
    start, end = text.find("<tool_call>"), text.find("</tool_call>")
    return json.dumps(json.loads(text[start + len("<tool_call>") : end]))


def measure_cpu(run: Callable[..., Any], *arguments: Any, repeat: int) -> float:
    """Return the median CPU seconds."""
    times: list[float] = []
    for _ in range(repeat):
        start = time.process_time()
        run(*arguments)
        times.append(time.process_time() - start)
    return statistics.median(times)


def measure_streams() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with Progress(transient=True) as progress:
        task = progress.add_task("parsing", total=len(DIALECTS) * len(SIZES))
        for dialect in DIALECTS:
            row: dict[str, Any] = {"dialect": dialect}
            for size in SIZES:
                text = build_message(dialect, size * 1024)
                pieces = list(split_into_chunks(text, CHUNK))
                repeat = 15 if size < 64 else 5
                bare = measure_cpu(scan_braces, pieces, repeat=repeat)
                ours = measure_cpu(parse_stream, pieces, dialect, repeat=repeat)
                row[f"{size} KB"] = ours / len(text) * 1e9
                row["scanner"] = ours / bare
                progress.advance(task)
            row["growth"] = row["256 KB"] / row["4 KB"]
            rows.append(row)
    return rows


def measure_whole() -> dict[str, float]:
    text = build_message("hermes", 100_000)
    base = measure_cpu(find_and_decode, text, repeat=25)
    named = measure_cpu(parse_stream, [text], "hermes", repeat=25)
    auto = measure_cpu(parse_stream, [text], "auto", repeat=25)
    return {"find+loads+dumps µs": base * 1e6, "named": named / base, "auto": auto / base}


def main() -> int:
    options = argparse.ArgumentParser(description="What parsing costs.")
    options.add_argument("--json", action="store_true", help="print JSON")
    chosen = options.parse_args()
    rows, whole = measure_streams(), measure_whole()
    if chosen.json:
        print(json.dumps({"streams": rows, "whole": whole}))
        return 0
    table = Table(title=f"CPU ns a character, chunks of {CHUNK}")
    for column in ("dialect", *(f"{size} KB" for size in SIZES), "256/4 KB", "× bare scanner"):
        table.add_column(column, justify="left" if column == "dialect" else "right")
    for row in rows:
        cells = [f"{row[f'{size} KB']:.0f}" for size in SIZES]
        table.add_row(row["dialect"], *cells, f"{row['growth']:.2f}", f"{row['scanner']:.1f}")
    Console(width=100).print(table)
    print(
        f"One hermes call of 100 KB in one piece: {whole['named']:.2f} × find+loads+dumps "
        f"({whole['auto']:.2f} × with auto; the base is {whole['find+loads+dumps µs']:.0f} µs)"
    )
    grown = max(row["growth"] for row in rows)
    hermes = next(row["scanner"] for row in rows if row["dialect"] == "hermes")
    print(
        f"Bars: growth {grown:.2f} (≤ {GROWTH_BAR}), hermes {hermes:.1f} × the bare scanner "
        f"(≤ {SCANNER_BAR}), whole {whole['named']:.2f} (≤ {WHOLE_BAR})"
    )
    met = grown <= GROWTH_BAR and hermes <= SCANNER_BAR and whole["named"] <= WHOLE_BAR
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
