"""List the text formats in which models write tool calls."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from ..dialects import DIALECTS, Dialect, dialects_for_model, get_dialect, render_calls
from ..types import Tool, ToolCall
from .arguments import CommandParser
from .terminal import build_table, open_console, print_text, write_json

SAMPLE_TOOL = Tool(
    name="get_weather",
    description="The weather in a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
_ABOUT_EVIDENCE = (
    "evidence: if no dialect is named, calls are accepted where the dialect's markers occur "
    "(marker), in replies of nothing but calls (whole), or not at all (prose)"
)
SAMPLE_CALL = ToolCall(id="a1b2c3d4e", name="get_weather", arguments={"city": "Oslo", "days": 3})


def add_arguments(parser: CommandParser) -> None:
    parser.add("name", "list only these dialects (default: all)", nargs="*")
    parser.add("--model", "list only the dialects that this model writes")
    parser.add_flag("--json", "print JSON")


def run(options: argparse.Namespace) -> int:
    chosen = choose_dialects(options.name, options.model)
    if options.json:
        write_json([describe_dialect(dialect) for dialect in chosen])
        return 0
    if not chosen:
        print(f"toolspeak: no dialect is known for the model {options.model!r}", file=sys.stderr)
        return 0
    columns = ("dialect", "models", "evidence", "get_weather(city=Oslo, days=3)")
    rows = [(one.name, one.description, one.evidence, render_sample(one)) for one in chosen]
    table = build_table(columns, rows, title=f"{len(chosen)} dialects" if len(chosen) > 1 else None)
    table.show_lines = True
    console = open_console()
    console.print(table)
    print_text(console, _ABOUT_EVIDENCE)
    return 0


def choose_dialects(names: Iterable[str], model: str | None) -> list[Dialect]:
    """Return the named dialects, or all, limited to those that `model` is known to write."""
    chosen = [get_dialect(name) for name in names] or list(DIALECTS.values())
    if not model:
        return chosen
    return [dialect for dialect in dialects_for_model(model) if dialect in chosen]


def render_sample(dialect: Dialect) -> str:
    return render_calls(dialect, [SAMPLE_CALL], [SAMPLE_TOOL])


def describe_dialect(dialect: Dialect) -> dict[str, object]:
    return {
        "name": dialect.name,
        "about": dialect.description,
        "evidence": dialect.evidence,
        "parallel": dialect.parallel,
        "models": dialect.model_fragments,
        "sample": render_sample(dialect),
    }
