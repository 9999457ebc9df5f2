"""List the text formats in which models write tool calls."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from ..dialects import DIALECTS, Dialect, dialects_for_model, get_dialect, render_calls
from ..events import fold
from ..testing import parse_to_events, split_into_chunks
from ..types import Tool, ToolCall
from .io import build_table, open_console, write_json

SAMPLE_TOOL = Tool(
    name="get_weather",
    description="The weather in a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
SAMPLE_CALL = ToolCall(id="a1b2c3d4e", name="get_weather", arguments={"city": "Oslo", "days": 3})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="*", help="only these dialects")
    parser.add_argument("--model", help="only the dialects that this model is known to write")
    parser.add_argument(
        "--check", action="store_true", help="check that each sample parses back to its call"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    chosen = choose_dialects(options.name, options.model)
    if options.json:
        write_json([describe_dialect(dialect) for dialect in chosen])
        return 0
    return _print_dialects(chosen, check=options.check)


def choose_dialects(names: Iterable[str], model: str | None) -> list[Dialect]:
    """Return the named dialects, or all, limited to those that `model` is known to write."""
    chosen = [get_dialect(name) for name in names] or list(DIALECTS.values())
    return (
        [dialect for dialect in dialects_for_model(model) if dialect in chosen] if model else chosen
    )


def render_sample(dialect: Dialect) -> str:
    return render_calls(dialect, [SAMPLE_CALL], [SAMPLE_TOOL])


def can_read_sample(dialect: Dialect) -> bool:
    """Parse the sample, three characters at a time, and compare the result with the call."""
    reply = fold(
        parse_to_events(
            split_into_chunks(render_sample(dialect), 3), dialect=dialect, tools=[SAMPLE_TOOL]
        )
    )
    return [(call.name, call.arguments) for call in reply.calls] == [
        (SAMPLE_CALL.name, SAMPLE_CALL.arguments)
    ] and not reply.text.strip()


def describe_dialect(dialect: Dialect) -> dict[str, object]:
    return {
        "name": dialect.name,
        "about": dialect.description,
        "evidence": dialect.evidence,
        "parallel": dialect.parallel,
        "models": dialect.model_fragments,
        "sample": render_sample(dialect),
    }


def _print_dialects(chosen: list[Dialect], *, check: bool) -> int:
    """Print a table of dialects; return 1 if `check` found a sample that does not parse."""
    columns = ["dialect", "models", "evidence", "get_weather(city=Oslo, days=3)"]
    rows = [
        [dialect.name, dialect.description, dialect.evidence, render_sample(dialect)]
        for dialect in chosen
    ]
    results = [can_read_sample(dialect) for dialect in chosen] if check else []
    if check:
        columns.append("parses")
        for row, can_read in zip(rows, results, strict=True):
            row.append("yes" if can_read else "NO")
    table = build_table(columns, rows, title=f"{len(chosen)} dialects" if len(chosen) > 1 else None)
    table.show_lines = True
    open_console().print(table)
    if check:
        print(f"{sum(results)} of {len(chosen)} samples parse, 3 characters at a time")
    return 0 if all(results) else 1
