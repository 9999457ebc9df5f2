"""Cost of the inspector without a viewer: two gateways in one process, one with the inspector.

    python -m bench.inspector [--pairs 100] [--mode native|prompt]

Two processes of the same program differ by more than what is measured here, and so do two minutes
of the same machine. So it is one process on one core with two ports, and each is asked in turn, for
a moment. How the CPU of the two compares is told by the median over all pairs of such moments, with
how far that may be off. The bar is 5 %.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable

from msgspec import Struct, structs
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.gateway import TARGETS, Target, find_free_port, start_process

_CORE, _LOAD_CORE = 0, min(1, (os.cpu_count() or 1) - 1)
_BAR = 1.05
_MODES = ("native", "prompt")
_MOMENT = 0.2
"""Duration of the load in seconds."""
_FILLING = 16
"""How often all streams are asked for until no more of them are kept: memory that is taken for the
first time has its price, too."""
_PACE = 0.002
"""Seconds between the chunks of a stream."""


class Row(Struct):
    """One figure: with the inspector off and on, and how they compare."""

    mode: str
    figure: str
    off: float
    on: float
    ratio: float
    """The median over the pairs."""
    error: float
    """The standard error of the median."""


def _compare_pairs(
    mode: str, figure: str, pairs: int, off: Callable[[], float], on: Callable[[], float]
) -> Row:
    costs: dict[bool, list[float]] = {False: [], True: []}
    for number in range(pairs):
        for is_on in (False, True) if number % 2 else (True, False):
            costs[is_on].append((on if is_on else off)())
    ratios = [with_it / without for without, with_it in zip(costs[False], costs[True], strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    # Of a median, by the quartiles, which a few moments of a busy machine do not move.
    error = 1.25 * (high - low) / 1.35 / len(ratios) ** 0.5
    without, with_it = (statistics.median(costs[is_on]) for is_on in (False, True))
    return Row(mode, figure, without, with_it, statistics.median(ratios), error)


def _measure_pairs(mode: str, url: str, pairs: int, progress: Progress) -> list[Row]:
    ports = [find_free_port(), find_free_port()]
    command = [*TARGETS, "pair", *map(str, ports), url, mode]
    task = progress.add_task(mode, total=3)
    with start_process(command, ports[1], _CORE) as (pid, start):
        off, on = (Target(mode, port, pid, start) for port in ports)
        off.warm()
        on.warm()
        progress.advance(task)
        requests = _compare_pairs(
            mode, "request", pairs, lambda: off.cpu_us(_MOMENT), lambda: on.cpu_us(_MOMENT)
        )
        progress.advance(task)
        for _ in range(_FILLING):
            on.chunk_us()
        chunks = _compare_pairs(mode, "chunk", pairs, off.chunk_us, on.chunk_us)
        progress.advance(task)
    return [requests, chunks]


def main() -> int:
    options = argparse.ArgumentParser(description="The cost of the inspector.")
    options.add_argument("--pairs", type=int, default=100, help="of moments in which it is asked")
    options.add_argument("--mode", choices=_MODES, action="append", help="both, if none is named")
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    port = find_free_port()
    rows: list[Row] = []
    with (
        start_process([*TARGETS, "upstream", str(port), str(_PACE)], port, _LOAD_CORE),
        Progress(console=Console(stderr=True)) as progress,
    ):
        os.sched_setaffinity(0, {_LOAD_CORE})
        for mode in chosen.mode or _MODES:
            rows += _measure_pairs(mode, f"http://127.0.0.1:{port}", chosen.pairs, progress)
    if chosen.json:
        print(json.dumps([structs.asdict(row) for row in rows]))
        return 0
    table = Table("mode", "CPU µs per", "off", "on", "ratio", f"at most {_BAR}")
    for row in rows:
        figures = (f"{row.off:.1f}", f"{row.on:.1f}", f"{row.ratio:.3f} ± {row.error:.3f}")
        table.add_row(row.mode, row.figure, *figures, "yes" if row.ratio <= _BAR else "no")
    Console(width=100).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
