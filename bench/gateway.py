"""Cost of the gateway, side by side with a bare proxy and, if it is installed, LiteLLM's.

    python -m bench.gateway [--rounds 5] [--seconds 2] [--litellm PATH]

Each stands in front of the same upstream, in one process on one core; the load comes from another.
They are measured in turn, round by round, and compared with each other within each round; what is
shown is the median of all rounds. On a noisy machine those ratios are truer than any figure, and
CPU time truer than any other. What a request sets in motion counts, also where it is done after the
answer, as LiteLLM does its logging. `PATH` is LiteLLM's command, from an environment of its own:
`pip install 'litellm[proxy]'`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from operator import sub, truediv
from pathlib import Path

from msgspec import Struct, structs
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.gateway_targets import CHUNKS

_TICKS = os.sysconf("SC_CLK_TCK")
TARGETS = [sys.executable, "-m", "bench.gateway_targets"]
LITELLM = "litellm proxy"
KEY = "sk-" + "6b1f" * 16
"""LiteLLM requires a long key; the others require none."""
_A_WAIT, _MOST_WAITS = 0.1, 100
_CORE, _LOAD_CORE = 0, min(1, (os.cpu_count() or 1) - 1)
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{about} Give a place and for how many days.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    }
    for name, about in (("get_weather", "The weather in a city."), ("get_tides", "The tides."))
]
_REQUEST = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "You are a helpful assistant. " * 8},
        {"role": "user", "content": "How will the weather be in Oslo?"},
    ],
    "tools": _TOOLS,
}


class Measured(Struct):
    """The cost of one target in each round."""

    name: str
    start: float
    idle_mb: float
    cpu_us: list[float] = []
    p50_ms: list[float] = []
    first_byte_ms: list[float] = []
    chunk_us: list[float] = []


# Targets.


def find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def start_process(
    command: list[str], port: int, core: int
) -> Generator[tuple[int, float], None, None]:
    """Start a process that listens on a port; yield its id and the seconds until it listened."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    try:
        while not _is_listening(port):
            if process.poll() is not None or time.perf_counter() - began > 120:
                raise SystemExit(f"{command[0]} did not start")
            time.sleep(0.01)
        yield process.pid, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait(20)


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def read_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, to the nanosecond where the kernel reports them."""
    threads = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    if spent := sum(int(text.split()[0]) for text in threads):
        return spent / 1e9
    own = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, own[11:13])) / _TICKS


def read_memory(pid: int) -> float:
    """Return the resident memory of a process in megabytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


# Load.


class Connection:
    """A client that sends requests on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=2**20))

    async def ask(self, data: bytes, *, only_first: bool = False) -> float:
        """Send a request and read the whole reply; return the seconds until its first content."""
        began = time.perf_counter()
        self._writer.write(data)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"not served: {head!r} {await self._reader.read(500)!r}")
        lowered = head.lower()
        if b"content-length" in lowered:
            length = int(lowered.split(b"content-length:")[1].split(b"\r\n")[0])
            await self._reader.readexactly(length)
            return time.perf_counter() - began
        first = 0.0
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            await self._reader.readexactly(size + 2)
            first = first or time.perf_counter() - began
            if only_first:
                return first
        await self._reader.readuntil(b"\r\n")
        return first

    def close(self) -> None:
        self._writer.close()


def build_request(*, stream: bool = False) -> bytes:
    body = json.dumps({**_REQUEST, "stream": stream} if stream else _REQUEST).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _measure_throughput(port: int, seconds: float, clients: int) -> tuple[int, list[float]]:
    """Return the number of requests served, and the seconds of each."""
    taken: list[float] = []
    until = time.perf_counter() + seconds

    async def client() -> None:
        connection = await Connection.open(port)
        while time.perf_counter() < until:
            taken.append(await connection.ask(build_request()))
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return len(taken), taken


async def _measure_streams(port: int, clients: int) -> None:
    async def client() -> None:
        connection = await Connection.open(port)
        await connection.ask(build_request(stream=True))
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))


async def _measure_first_bytes(port: int, times: int) -> list[float]:
    """Return the seconds until each stream begins; do not wait for its end."""
    taken: list[float] = []
    for _ in range(times):
        connection = await Connection.open(port)
        taken.append(await connection.ask(build_request(stream=True), only_first=True))
        connection.close()
    return taken


class Target:
    """A target that is measured several times."""

    def __init__(self, name: str, port: int, pid: int, start: float) -> None:
        self._port = port
        self.pid = pid
        self.measured = Measured(name, start, read_memory(pid))

    def warm(self) -> None:
        asyncio.run(_measure_throughput(self._port, 1.0, 8))
        asyncio.run(_measure_streams(self._port, 4))

    def measure(self, seconds: float) -> None:
        """Measure one round."""
        measured = self.measured
        measured.cpu_us.append(self.cpu_us(seconds, to_rest=True))
        _, alone = asyncio.run(_measure_throughput(self._port, 0.3, 1))
        measured.p50_ms.append(statistics.median(alone) * 1000)
        first = asyncio.run(_measure_first_bytes(self._port, 20))
        measured.first_byte_ms.append(statistics.median(first) * 1000)
        measured.chunk_us.append(self.chunk_us())

    def cpu_us(self, seconds: float, *, to_rest: bool = False) -> float:
        """Return the CPU microseconds of a request at full load; with `to_rest`, include work that
        is done after the load."""
        if to_rest:
            self._wait_until_idle()
        before = read_cpu_seconds(self.pid)
        count, _ = asyncio.run(_measure_throughput(self._port, seconds, 32))
        if to_rest:
            self._wait_until_idle()
        return (read_cpu_seconds(self.pid) - before) / count * 1e6

    def _wait_until_idle(self) -> None:
        """Wait until the process is idle or nearly idle."""
        for _ in range(_MOST_WAITS):
            before = read_cpu_seconds(self.pid)
            time.sleep(_A_WAIT)
            if read_cpu_seconds(self.pid) - before < _A_WAIT / 20:
                return

    def chunk_us(self) -> float:
        """Return the CPU microseconds of one chunk of a stream."""
        before = read_cpu_seconds(self.pid)
        asyncio.run(_measure_streams(self._port, 32))
        return (read_cpu_seconds(self.pid) - before) / (32 * CHUNKS) * 1e6


def iter_targets(
    url: str, folder: Path, litellm: str | None
) -> Iterator[tuple[str, int, list[str]]]:
    """Yield (name, port, command) of each target."""
    bare = find_free_port()
    yield "starlette + aiohttp", bare, [*TARGETS, "proxy", str(bare), url]
    for mode in ("native", "prompt"):
        config = folder / f"{mode}.toml"
        config.write_text(
            f'default = "m"\nembedded = false\n[upstreams.fast]\nwire = "openai_chat"\n'
            f'base_url = "{url}/v1"\n[models.m]\nupstream = "fast"\ntools = "{mode}"\n'
        )
        port = find_free_port()
        command = [sys.executable, "-m", "toolspeak", "serve", "--config", str(config)]
        yield f"toolspeak, {mode}", port, [*command, "--port", str(port)]
    if litellm:
        config = folder / "litellm.yaml"
        config.write_text(
            "model_list:\n  - model_name: m\n    litellm_params:\n      model: openai/m\n"
            f"      api_base: {url}/v1\n      api_key: none\n"
            f"general_settings:\n  master_key: {KEY}\n"
        )
        port = find_free_port()
        local = ["--host", "127.0.0.1", "--port", str(port)]
        yield LITELLM, port, [litellm, "--config", str(config), *local]


def main() -> int:
    options = argparse.ArgumentParser(description="The cost of the gateway and of its peers.")
    options.add_argument("--seconds", type=float, default=2.0)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--litellm", help="LiteLLM's command, if it is to be measured too")
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    found: list[Target] = []
    port = find_free_port()
    with (
        tempfile.TemporaryDirectory() as folder,
        ExitStack() as processes,
        Progress(console=Console(stderr=True)) as progress,
    ):
        os.sched_setaffinity(0, {_LOAD_CORE})
        fast = start_process([*TARGETS, "upstream", str(port)], port, _LOAD_CORE)
        found.append(Target("no proxy", port, *processes.enter_context(fast)))
        rows = list(iter_targets(f"http://127.0.0.1:{port}", Path(folder), chosen.litellm))
        task = progress.add_task("measuring", total=(len(rows) + 1) * (chosen.rounds + 1))
        for name, own_port, command in rows:
            process = processes.enter_context(start_process(command, own_port, _CORE))
            found.append(Target(name, own_port, *process))
        for target in found:
            target.warm()
            progress.advance(task)
        for _ in range(chosen.rounds):
            for target in found:
                target.measure(chosen.seconds)
                progress.advance(task)
    if chosen.json:
        print(json.dumps([structs.asdict(target.measured) for target in found]))
    else:
        _print_results([target.measured for target in found])
    return 0


def _print_results(found: list[Measured]) -> None:
    direct, bare, *rest = found
    table = Table("target", "CPU µs/request", "× bare", "p50 added ms", "first byte added ms")
    for column in ("CPU µs/chunk", "× bare", "idle MB", "start s"):
        table.add_column(column)
    for row in (bare, *rest):
        table.add_row(
            row.name,
            f"{statistics.median(row.cpu_us):.0f}",
            f"{_compare(row.cpu_us, bare.cpu_us):.2f}",
            f"{_subtract(row.p50_ms, direct.p50_ms):.2f}",
            f"{_subtract(row.first_byte_ms, direct.first_byte_ms):.2f}",
            f"{statistics.median(row.chunk_us):.1f}",
            f"{_compare(row.chunk_us, bare.chunk_us):.2f}",
            f"{row.idle_mb:.0f}",
            f"{row.start:.2f}",
        )
    console = Console(width=130)
    console.print(table)
    native, *_, last = rest
    if last.name == LITELLM:
        less = _compare(last.cpu_us, native.cpu_us)
        console.print(f"A request costs {native.name} {less:.1f} times less CPU than {LITELLM}.")


def _compare(costs: list[float], others: list[float]) -> float:
    """Return the cost as a multiple of another."""
    return statistics.median(map(truediv, costs, others))


def _subtract(taken: list[float], without: list[float]) -> float:
    """Return the additional time."""
    return statistics.median(map(sub, taken, without))


if __name__ == "__main__":
    sys.exit(main())
