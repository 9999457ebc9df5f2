"""What the inspector costs while nobody looks: the same process with it and without, in turn.

    python -m bench.inspector [--rounds 15] [--seconds 0.4]

Two processes of the same program differ by more than what is measured here, so it is one process
on one core, told again and again (SIGHUP) to keep requests or not; each time it is left to fill
what it keeps, then measured. The least of each figure counts, as in `bench.gateway`; the median
from round to round is shown beside it. The bar is 5 % of the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, structs
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.gateway import TARGETS, Target, free_port, running

_CORE, _LOAD_CORE = 0, min(1, (os.cpu_count() or 1) - 1)
_BAR = 1.05
_MODES = ("native", "prompt")
_FILLING = 0.5
"""Seconds in which more requests are served than are kept."""


class Row(Struct):
    """One figure: with the inspector off and on, and how they compare."""

    mode: str
    figure: str
    off: float
    on: float
    ratio: float
    median: float
    """Of what the rounds say, each for itself."""


class Switched:
    """A gateway whose inspector can be turned on and off."""

    def __init__(self, folder: Path, url: str, mode: str) -> None:
        self._config = folder / f"{mode}.toml"
        self._rest = (
            f'[upstreams.fast]\nwire = "openai_chat"\nbase_url = "{url}/v1"\n'
            f'[models.m]\nupstream = "fast"\ntools = "{mode}"\n'
        )
        self.mode = mode
        self.port = free_port()
        self._write(is_on=True)
        serve = [sys.executable, "-m", "toolspeak", "serve", "--config", str(self._config)]
        self.command = [*serve, "--port", str(self.port)]

    def _write(self, *, is_on: bool) -> None:
        head = 'default = "m"\nembedded = false\n[inspector]\nenabled = '
        self._config.write_text(f"{head}{str(is_on).lower()}\n{self._rest}")

    def turn(self, pid: int, *, is_on: bool) -> None:
        self._write(is_on=is_on)
        os.kill(pid, signal.SIGHUP)


def _measured(gateway: Switched, rounds: int, seconds: float, progress: Progress) -> Iterator[Row]:
    found: dict[str, dict[bool, list[float]]] = {
        "CPU µs/request": {False: [], True: []},
        "CPU µs/chunk": {False: [], True: []},
    }
    task = progress.add_task(gateway.mode, total=2 * rounds)
    with running(gateway.command, gateway.port, _CORE) as (pid, start):
        target = Target(gateway.mode, gateway.port, pid, start)
        target.warm()
        for number in range(rounds):
            for is_on in (False, True) if number % 2 else (True, False):
                gateway.turn(pid, is_on=is_on)
                target.cpu_us(_FILLING)
                found["CPU µs/request"][is_on].append(target.cpu_us(seconds))
                found["CPU µs/chunk"][is_on].append(target.chunk_us())
                progress.advance(task)
    for figure, costs in found.items():
        ratios = [on / off for off, on in zip(costs[False], costs[True], strict=True)]
        off, on = min(costs[False]), min(costs[True])
        yield Row(gateway.mode, figure, off, on, on / off, statistics.median(ratios))


def main() -> int:
    options = argparse.ArgumentParser(description="The cost of the inspector.")
    options.add_argument("--seconds", type=float, default=0.4)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    port = free_port()
    rows: list[Row] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        running([*TARGETS, "upstream", str(port)], port, _LOAD_CORE),
        Progress(console=Console(stderr=True)) as progress,
    ):
        os.sched_setaffinity(0, {_LOAD_CORE})
        for mode in _MODES:
            gateway = Switched(Path(folder), f"http://127.0.0.1:{port}", mode)
            rows += _measured(gateway, chosen.rounds, chosen.seconds, progress)
    if chosen.json:
        print(json.dumps([structs.asdict(row) for row in rows]))
        return 0
    table = Table("mode", "figure", "off", "on", "ratio", "median", f"at most {_BAR}")
    for row in rows:
        figures = (f"{amount:.1f}" for amount in (row.off, row.on))
        figures = (*figures, f"{row.ratio:.3f}", f"{row.median:.3f}")
        table.add_row(row.mode, row.figure, *figures, "yes" if row.ratio <= _BAR else "no")
    Console(width=100).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
