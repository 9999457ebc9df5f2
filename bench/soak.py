"""Many concurrent streams for a while: without errors or lost text, and with constant memory.

    python -m bench.soak [--clients 1000] [--seconds 60] [--dying 0.2]

Every reply is read to its end and compared with what the upstream sent. Streams that the upstream
breaks off must end with an error, after all the text that was received.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from bench.gateway import (
    TARGETS,
    build_request,
    find_free_port,
    iter_targets,
    read_cpu_seconds,
    read_memory,
    start_process,
)
from bench.gateway_targets import CHUNKS
from toolspeak.gateway.file_handles import raise_handle_limit

_PACE = 0.03
"""Seconds between two chunks: the speed of a good local model."""
_BROKEN = "broken off"
_EXPECTED = "".join(f"word {number} " for number in range(CHUNKS))


class Soak:
    """The counts so far."""

    def __init__(self) -> None:
        self.conversations = 0
        self.broken = 0
        self.problems: list[str] = []

    async def client(self, port: int, until: float) -> None:
        """Run a client that sends requests on one connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
        while time.perf_counter() < until:
            writer.write(build_request(stream=True))
            problem = await _find_problem(reader)
            if problem == _BROKEN:
                self.broken += 1
            elif problem:
                self.problems.append(problem)
                break
            self.conversations += 1
        writer.close()


async def _find_problem(reader: asyncio.StreamReader) -> str:
    """Return the problem with a reply, or ""."""
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        return head.decode("latin-1")
    data = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        data += (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")
    frames = [frame.removeprefix(b"data: ") for frame in data.split(b"\n\n") if frame]
    frames = [frame for frame in frames if not frame.startswith(b":")]
    contents = [frame for frame in frames if frame.startswith(b'{"id"')]
    is_broken = any(frame.startswith(b'{"error"') for frame in frames)
    if frames[-1] != b"[DONE]" and not is_broken:
        return f"the stream ends with {frames[-1]!r}"
    deltas = (json.loads(frame)["choices"] for frame in contents)
    said = "".join(choices[0]["delta"].get("content") or "" for choices in deltas if choices)
    if is_broken:
        half = "".join(f"word {number} " for number in range(CHUNKS // 2))
        return _BROKEN if said == half else f"{len(said)} characters came before the error"
    return "" if said == _EXPECTED else f"{len(said)} characters came of {len(_EXPECTED)}"


async def _run(port: int, pid: int, clients: int, seconds: float) -> tuple[Soak, list[float]]:
    soak = Soak()
    until = time.perf_counter() + seconds
    tasks = [asyncio.create_task(soak.client(port, until)) for _ in range(clients)]
    memory: list[float] = []
    with Progress() as progress:
        task = progress.add_task("soaking", total=seconds)
        while not all(one.done() for one in tasks):
            await asyncio.sleep(1)
            memory.append(read_memory(pid))
            progress.advance(task, 1)
    await asyncio.gather(*tasks)
    return soak, memory


def main() -> int:
    options = argparse.ArgumentParser(description="Many streams at once, for a while.")
    options.add_argument("--clients", type=int, default=1000)
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--dying", type=float, default=0, help="the share of broken streams")
    chosen = options.parse_args()
    raise_handle_limit()
    port = find_free_port()
    slow = start_process([*TARGETS, "upstream", str(port), str(_PACE), str(chosen.dying)], port, 1)
    with tempfile.TemporaryDirectory() as folder, slow:
        rows = iter_targets(f"http://127.0.0.1:{port}", Path(folder), None)
        _, own_port, command = next(row for row in rows if "native" in row[0])
        with start_process(command, own_port, 0) as (pid, _):
            idle, before = read_memory(pid), read_cpu_seconds(pid)
            began = time.perf_counter()
            soak, memory = asyncio.run(_run(own_port, pid, chosen.clients, chosen.seconds))
            cpu = (read_cpu_seconds(pid) - before) / (time.perf_counter() - began)
    third = max(1, len(memory) // 3)
    early, late = max(memory[:third]), max(memory[-third:])
    Console().print(
        f"{chosen.clients} clients, {soak.conversations} replies, "
        f"{soak.broken} of them broken off by the upstream, {len(soak.problems)} problems; "
        f"{cpu:.0%} of a core; memory {idle:.0f} MB idle, {early:.0f} MB in the first third, "
        f"{late:.0f} MB in the last"
    )
    for problem in soak.problems[:5]:
        Console().print(problem, markup=False)
    return 1 if soak.problems or late > early * 1.1 else 0


if __name__ == "__main__":
    sys.exit(main())
