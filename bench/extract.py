"""Cost of `extract` on an answer of about 1 KB with twenty tools.

    python -m bench.extract

The row with new tools gives each answer other names of tools, as a file of transcripts does. The
other rows read the same JSON bodies, cut out by hand: they know where the call is, and check
neither its name nor its arguments.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from itertools import count

from msgspec import structs
from rich.console import Console
from rich.table import Table

from toolspeak import Tool, extract
from toolspeak.types import Trust

BAR = 150.0
"""Maximum microseconds of CPU for each answer."""
ROUNDS = 2_000
_NUMBERS = count()
TOOLS = [
    Tool(
        name=f"tool_{number}",
        description="Does something with a file.",
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Where the file is."},
                "lines": {"type": "array", "items": {"type": "integer"}},
                "mode": {"enum": ["read", "write", "append"]},
                "options": {"type": "object", "properties": {"force": {"type": "boolean"}}},
            },
            "required": ["path"],
        },
    )
    for number in range(20)
]
ARGUMENTS = {"path": "src/main.py", "lines": [1, 20], "mode": "read", "options": {"force": True}}
BODY = json.dumps({"name": "tool_7", "arguments": ARGUMENTS})
PROSE = "I will look at the file first, and then decide what has to change in it. " * 11
ANSWERS = {
    "hermes": f"{PROSE}\n<tool_call>\n{BODY}\n</tool_call>",
    "qwen3_coder": f"{PROSE}\n<tool_call>\n<function=tool_7>\n<parameter=path>\nsrc/main.py\n"
    "</parameter>\n<parameter=lines>\n[1, 20]\n</parameter>\n</function>\n</tool_call>",
    "prose only": PROSE * 2,
    "bare JSON": json.dumps({"name": "tool_7", "arguments": {**ARGUMENTS, "path": PROSE}}),
}


def measure_cpu(run: Callable[[], object]) -> float:
    """Return microseconds of CPU after a warm-up: the best of several rounds."""
    for _ in range(50):
        run()
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for _ in range(ROUNDS // 5):
            run()
        best = min(best, (time.process_time() - start) / (ROUNDS // 5))
    return best * 1e6


def extract_with_new_tools() -> None:
    number = next(_NUMBERS)
    tools = [structs.replace(tool, name=f"{tool.name}_{number}") for tool in TOOLS[:3]]
    extract(ANSWERS["hermes"], tools=tools, trust="lenient")


def main() -> int:
    table = Table("answer of about 1 KB", "µs of CPU")
    measured: list[float] = []
    trusts: tuple[Trust, ...] = ("standard", "lenient")
    for trust in trusts:
        for name, text in ANSWERS.items():
            taken = measure_cpu(
                lambda text=text, trust=trust: extract(text, tools=TOOLS, trust=trust)
            )
            measured.append(taken)
            table.add_row(f"extract, {trust}: {name} ({len(text)} characters)", f"{taken:.0f}")
    table.add_row(
        "extract, lenient: hermes, new tools", f"{measure_cpu(extract_with_new_tools):.0f}"
    )
    table.add_section()
    table.add_row("json.loads of the body", f"{measure_cpu(lambda: json.loads(BODY)):.1f}")
    try:
        json_repair = import_module("json_repair")
    except ImportError:
        table.add_row("json_repair of the body", "not installed")
    else:
        table.add_row(
            "json_repair of the body", f"{measure_cpu(lambda: json_repair.loads(BODY)):.1f}"
        )
        broken = BODY.replace('"', "'")
        table.add_row(
            "json_repair of a broken body", f"{measure_cpu(lambda: json_repair.loads(broken)):.1f}"
        )
    Console().print(table)
    mean = sum(measured) / len(measured)
    print(f"mean {mean:.0f} µs (bar {BAR:.0f})")
    return 0 if mean < BAR else 1


if __name__ == "__main__":
    sys.exit(main())
