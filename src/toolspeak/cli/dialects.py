"""List the text formats in which models write tool calls."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..dialects import DIALECTS, Dialect, dialects_for_model, get_dialect, render_calls
from ..events import fold
from ..testing import chunks, events
from ..types import Tool, ToolCall
from .io import write_json

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
    parser.add_argument("--model", help="only the dialects that this model is known to speak")
    parser.add_argument(
        "--check", action="store_true", help="parse every sample and say if it reads"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    chosen = choose_dialects(options.name, options.model)
    if options.json:
        write_json([describe_dialect(dialect) for dialect in chosen])
        return 0
    return _print_dialects(chosen, check=options.check)


def choose_dialects(names: Iterable[str], model: str | None) -> list[Dialect]:
    """The dialects of those names, or all; of these only the ones that a model speaks."""
    chosen = [get_dialect(name) for name in names] or list(DIALECTS.values())
    return (
        [dialect for dialect in dialects_for_model(model) if dialect in chosen] if model else chosen
    )


def render_sample(dialect: Dialect) -> str:
    """A call as this dialect writes it."""
    return render_calls(dialect, [SAMPLE_CALL], [SAMPLE_TOOL])


def can_read_sample(dialect: Dialect) -> bool:
    """Whether the sample, fed three characters at a time, gives the call back."""
    reply = fold(events(chunks(render_sample(dialect), 3), dialect=dialect, tools=[SAMPLE_TOOL]))
    return [(call.name, call.arguments) for call in reply.calls] == [
        (SAMPLE_CALL.name, SAMPLE_CALL.arguments)
    ] and not reply.text.strip()


def describe_dialect(dialect: Dialect) -> dict[str, object]:
    """A dialect for programs."""
    return {
        "name": dialect.name,
        "about": dialect.description,
        "evidence": dialect.evidence,
        "parallel": dialect.parallel,
        "models": dialect.model_fragments,
        "sample": render_sample(dialect),
    }


def _print_dialects(chosen: list[Dialect], *, check: bool) -> int:
    table = Table(show_lines=True, title=f"{len(chosen)} dialects" if len(chosen) > 1 else None)
    for column in ("dialect", "who speaks it", "evidence", "get_weather(city=Oslo, days=3)"):
        table.add_column(column, overflow="fold")
    if check:
        table.add_column("reads back")
    failures = 0
    for dialect in chosen:
        row = [dialect.name, dialect.description, dialect.evidence, render_sample(dialect)]
        if check:
            good = can_read_sample(dialect)
            failures += not good
            row.append("yes" if good else "NO")
        table.add_row(*map(Text, row))
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    if check:
        print(
            f"{len(chosen) - failures} of {len(chosen)} samples read back, 3 characters at a time"
        )
    return 1 if failures else 0
