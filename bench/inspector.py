"""What the inspector costs while nobody looks: the same gateway with it and without.

    python -m bench.inspector [--rounds 7] [--seconds 2]

Both stand in front of the same upstream, each in one process on one core, and are measured in turn;
the least of each figure counts. The bar is 5 % of the CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct, structs
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.gateway import TARGETS, Target, free_port, running

_CORE, _LOAD_CORE = 0, min(1, (os.cpu_count() or 1) - 1)
_BAR = 1.05


class Row(Struct):
    """One figure, with the inspector off and on."""

    mode: str
    figure: str
    off: float
    on: float


def _command(folder: Path, url: str, mode: str, port: int, *, is_on: bool) -> list[str]:
    config = folder / f"{mode}-{is_on}.toml"
    config.write_text(
        f'default = "m"\nembedded = false\n[inspector]\nenabled = {str(is_on).lower()}\n'
        f'[upstreams.fast]\nwire = "openai_chat"\nbase_url = "{url}/v1"\n'
        f'[models.m]\nupstream = "fast"\ntools = "{mode}"\n'
    )
    serve = [sys.executable, "-m", "toolspeak", "serve", "--config", str(config)]
    return [*serve, "--port", str(port)]


def main() -> int:
    options = argparse.ArgumentParser(description="The cost of the inspector.")
    options.add_argument("--seconds", type=float, default=2.0)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    found: dict[tuple[str, bool], Target] = {}
    port = free_port()
    with (
        tempfile.TemporaryDirectory() as folder,
        ExitStack() as processes,
        Progress() as progress,
    ):
        os.sched_setaffinity(0, {_LOAD_CORE})
        processes.enter_context(running([*TARGETS, "upstream", str(port)], port, _LOAD_CORE))
        url = f"http://127.0.0.1:{port}"
        for mode in ("native", "prompt"):
            for is_on in (False, True):
                own = free_port()
                command = _command(Path(folder), url, mode, own, is_on=is_on)
                process = processes.enter_context(running(command, own, _CORE))
                found[mode, is_on] = Target(mode, own, *process)
        task = progress.add_task("measuring", total=len(found) * (chosen.rounds + 1))
        for target in found.values():
            target.warm()
            progress.advance(task)
        for _ in range(chosen.rounds):
            for target in found.values():
                target.measure(chosen.seconds)
                progress.advance(task)
    rows = [
        Row(
            mode,
            figure,
            getattr(found[mode, False].best, what),
            getattr(found[mode, True].best, what),
        )
        for mode in ("native", "prompt")
        for what, figure in (("cpu_us", "CPU µs/request"), ("chunk_us", "CPU µs/chunk"))
    ]
    if chosen.json:
        print(json.dumps([structs.asdict(row) for row in rows]))
        return 0
    table = Table("mode", "figure", "off", "on", "ratio", f"at most {_BAR}")
    for row in rows:
        ratio = row.on / row.off
        figures = (f"{row.off:.1f}", f"{row.on:.1f}", f"{ratio:.3f}")
        table.add_row(row.mode, row.figure, *figures, "yes" if ratio <= _BAR else "no")
    Console(width=100).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
