"""The longest pause of the gateway while it serves a hostile request or a hostile reply.

    python -m bench.hostile [--only TEXT] [--mode native]

Each shape is sent to a gateway in a process of its own, once. Its event loop notes how long it could
not run: in CPU seconds of the process, which other programs on the machine do not change, and on the
clock. Other clients wait for as long.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection

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


def run_gateway_process(pipe: Connection, url: str, mode: str) -> None:
    """Run a gateway; send its URL, and after each line that arrives its longest pause."""
    from toolspeak.gateway.server import tune_process

    tune_process()
    with run_gateway(make_hostile_config(url, mode)) as gateway:
        pipe.send(gateway.url)
        pipe.recv()
        monitor = PauseMonitor(gateway.loop)
        pipe.send("started")
        pipe.recv()
        monitor.stop()
        pipe.send((monitor.longest_cpu, monitor.longest))


def main() -> int:
    options = argparse.ArgumentParser(description="The gateway's pauses at hostile requests.")
    options.add_argument("--only", default="", help="measure only shapes whose name has this text")
    options.add_argument("--mode", default="native", choices=("native", "prompt"))
    chosen = options.parse_args()
    table = Table("shape", "MB", "status", "pause CPU ms", "pause ms", "total s", "peak MB")
    upstream = HostileUpstream()
    context = get_context("spawn")
    with upstream, httpx.Client(timeout=120, trust_env=False) as http:
        shapes: dict[str, Callable[[], tuple[str, bytes]]] = {**REQUESTS, **REPLIES}
        for name, build in shapes.items():
            if chosen.only not in name:
                continue
            path, body = build()
            here, there = context.Pipe()
            process = context.Process(
                target=run_gateway_process, args=(there, upstream.url, chosen.mode)
            )
            process.start()
            url = here.recv()
            http.post(url + path, content=b"{}", headers={"content-type": "application/json"})
            here.send("read")
            here.recv()
            began = time.perf_counter()
            try:
                response = http.post(
                    url + path, content=body, headers={"content-type": "application/json"}
                )
                status = f"{response.status_code} {response.text[:60] if response.status_code != 200 else len(response.content)}"
            except httpx.HTTPError as problem:
                status = type(problem).__name__
            seconds = time.perf_counter() - began
            time.sleep(0.1)
            here.send("read")
            cpu, clock = here.recv()
            with open(f"/proc/{process.pid}/status") as file:
                peak = next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))
            here.send("stop")
            process.join()
            table.add_row(
                name, f"{len(body) / 1e6:.1f}", status, f"{cpu * 1000:.0f}", f"{clock * 1000:.0f}",
                f"{seconds:.2f}", f"{peak:.0f}",
            )
            print(name, status, f"cpu {cpu * 1000:.0f} clock {clock * 1000:.0f} total {seconds:.2f} peak {peak:.0f}", file=sys.stderr, flush=True)
    Console(width=150).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
