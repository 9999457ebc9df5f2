"""The longest pause of the gateway while it serves a hostile request or a hostile reply.

    python -m bench.hostile [--only TEXT] [--mode native]

Each shape is sent once, to a gateway in a process of its own. The pause is the longest time for
which its event loop could not run, and other clients wait for as long: in CPU time of the process,
which other programs on the machine do not change, and on the clock.
"""

from __future__ import annotations

import argparse
import sys
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table
from tests.gateway.hostile_shapes import (
    REPLIES,
    REQUESTS,
    HostileUpstream,
    PauseMonitor,
    make_hostile_config,
)
from tests.gateway.running_gateway import run_gateway

from toolspeak.gateway.server import tune_process


def run_gateway_process(pipe: Connection, url: str, mode: str) -> None:
    """Run a gateway: send its URL, measure from the first message to the second, send the pause."""
    tune_process()
    with run_gateway(make_hostile_config(url, mode)) as gateway:
        pipe.send(gateway.url)
        pipe.recv()
        monitor = PauseMonitor(gateway.loop)
        pipe.send("started")
        pipe.recv()
        monitor.stop()
        pipe.send((monitor.longest_cpu, monitor.longest))


def measure_shape(upstream: HostileUpstream, mode: str, path: str, body: bytes) -> list[str]:
    """Send one request to a new gateway; return its figures."""
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=run_gateway_process, args=(there, upstream.url, mode))
    process.start()
    url = here.recv()
    headers = {"content-type": "application/json"}
    with httpx.Client(timeout=120, trust_env=False, headers=headers) as http:
        http.post(url + path, content=b"{}")
        here.send("start")
        here.recv()
        began = time.perf_counter()
        try:
            status = str(http.post(url + path, content=body).status_code)
        except httpx.HTTPError as problem:
            status = type(problem).__name__
        seconds = time.perf_counter() - began
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    peak = next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    here.send("stop")
    cpu, clock = here.recv()
    process.join()
    pauses = (f"{cpu * 1000:.0f}", f"{clock * 1000:.0f}")
    return [f"{len(body) / 1e6:.1f}", status, *pauses, f"{seconds:.2f}", f"{peak:.0f}"]


def main() -> int:
    options = argparse.ArgumentParser(description="The gateway's pauses at hostile requests.")
    options.add_argument("--only", default="", help="measure only shapes whose name has this text")
    options.add_argument("--mode", default="native", choices=("native", "prompt"))
    chosen = options.parse_args()
    table = Table("shape", "MB", "status", "pause, CPU ms", "pause, ms", "total, s", "peak MB")
    with HostileUpstream() as upstream:
        for name, build in {**REQUESTS, **REPLIES}.items():
            if chosen.only in name:
                row = measure_shape(upstream, chosen.mode, *build())
                print(name, *row, sep=" | ", file=sys.stderr, flush=True)
                table.add_row(name, *row)
    Console(width=120).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
