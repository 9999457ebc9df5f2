"""What the gateway costs, side by side with a bare proxy and, if it is installed, LiteLLM's.

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
"""LiteLLM starts only with a key that is hard to guess; the others ask for none."""
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
    """What one target cost, in each round."""

    name: str
    start: float
    idle_mb: float
    cpu_us: list[float] = []
    p50_ms: list[float] = []
    first_byte_ms: list[float] = []
    chunk_us: list[float] = []


# Targets.


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def running(command: list[str], port: int, core: int) -> Generator[tuple[int, float], None, None]:
    """A process that listens on a port; its id, and how long it took until it did."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    try:
        while not _listens(port):
            if process.poll() is not None or time.perf_counter() - began > 120:
                raise SystemExit(f"{command[0]} did not start")
            time.sleep(0.01)
        yield process.pid, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait(20)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has had: to the nanosecond, where the kernel tells."""
    threads = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    if spent := sum(int(text.split()[0]) for text in threads):
        return spent / 1e9
    own = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, own[11:13])) / _TICKS


def rss_of(pid: int) -> float:
    """Megabytes that a process has in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


# Load.


class Connection:
    """One client that asks again and again on the same connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=2**20))

    async def ask(self, data: bytes, *, only_first: bool = False) -> float:
        """Send a request and read all of the reply; seconds until its first bytes of content."""
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


def request(*, stream: bool = False) -> bytes:
    body = json.dumps({**_REQUEST, "stream": stream} if stream else _REQUEST).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _many(port: int, seconds: float, clients: int) -> tuple[int, list[float]]:
    """How many requests were served, and how long each took."""
    taken: list[float] = []
    until = time.perf_counter() + seconds

    async def client() -> None:
        connection = await Connection.open(port)
        while time.perf_counter() < until:
            taken.append(await connection.ask(request()))
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return len(taken), taken


async def _streams(port: int, clients: int) -> None:
    async def client() -> None:
        connection = await Connection.open(port)
        await connection.ask(request(stream=True))
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))


async def _first_bytes(port: int, times: int) -> list[float]:
    """How long it takes each time until a stream begins; the rest of it is not waited for."""
    taken: list[float] = []
    for _ in range(times):
        connection = await Connection.open(port)
        taken.append(await connection.ask(request(stream=True), only_first=True))
        connection.close()
    return taken


class Target:
    """Something that is measured, several times."""

    def __init__(self, name: str, port: int, pid: int, start: float) -> None:
        self._port = port
        self.pid = pid
        self.measured = Measured(name, start, rss_of(pid))

    def warm(self) -> None:
        asyncio.run(_many(self._port, 1.0, 8))
        asyncio.run(_streams(self._port, 4))

    def measure(self, seconds: float) -> None:
        """One round."""
        measured = self.measured
        measured.cpu_us.append(self.cpu_us(seconds, to_rest=True))
        _, alone = asyncio.run(_many(self._port, 0.3, 1))
        measured.p50_ms.append(statistics.median(alone) * 1000)
        first = asyncio.run(_first_bytes(self._port, 20))
        measured.first_byte_ms.append(statistics.median(first) * 1000)
        measured.chunk_us.append(self.chunk_us())

    def cpu_us(self, seconds: float, *, to_rest: bool = False) -> float:
        """What one request costs, if it is asked as often as possible for so long; `to_rest`: with
        all that is still to be done about it then."""
        if to_rest:
            self._rests()
        before = cpu_of(self.pid)
        count, _ = asyncio.run(_many(self._port, seconds, 32))
        if to_rest:
            self._rests()
        return (cpu_of(self.pid) - before) / count * 1e6

    def _rests(self) -> None:
        """Wait until it does nothing any more, or hardly anything."""
        for _ in range(_MOST_WAITS):
            before = cpu_of(self.pid)
            time.sleep(_A_WAIT)
            if cpu_of(self.pid) - before < _A_WAIT / 20:
                return

    def chunk_us(self) -> float:
        """What one piece of a stream costs."""
        before = cpu_of(self.pid)
        asyncio.run(_streams(self._port, 32))
        return (cpu_of(self.pid) - before) / (32 * CHUNKS) * 1e6


def targets(url: str, folder: Path, litellm: str | None) -> Iterator[tuple[str, int, list[str]]]:
    """(name, port, command) of everything that is measured."""
    bare = free_port()
    yield "starlette + aiohttp", bare, [*TARGETS, "proxy", str(bare), url]
    for mode in ("native", "prompt"):
        config = folder / f"{mode}.toml"
        config.write_text(
            f'default = "m"\nembedded = false\n[upstreams.fast]\nwire = "openai_chat"\n'
            f'base_url = "{url}/v1"\n[models.m]\nupstream = "fast"\ntools = "{mode}"\n'
        )
        port = free_port()
        command = [sys.executable, "-m", "toolspeak", "serve", "--config", str(config)]
        yield f"toolspeak, {mode}", port, [*command, "--port", str(port)]
    if litellm:
        config = folder / "litellm.yaml"
        config.write_text(
            "model_list:\n  - model_name: m\n    litellm_params:\n      model: openai/m\n"
            f"      api_base: {url}/v1\n      api_key: none\n"
            f"general_settings:\n  master_key: {KEY}\n"
        )
        port = free_port()
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
    port = free_port()
    with (
        tempfile.TemporaryDirectory() as folder,
        ExitStack() as processes,
        Progress(console=Console(stderr=True)) as progress,
    ):
        os.sched_setaffinity(0, {_LOAD_CORE})
        fast = running([*TARGETS, "upstream", str(port)], port, _LOAD_CORE)
        found.append(Target("no proxy", port, *processes.enter_context(fast)))
        rows = list(targets(f"http://127.0.0.1:{port}", Path(folder), chosen.litellm))
        task = progress.add_task("measuring", total=(len(rows) + 1) * (chosen.rounds + 1))
        for name, own_port, command in rows:
            process = processes.enter_context(running(command, own_port, _CORE))
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
        _show([target.measured for target in found])
    return 0


def _show(found: list[Measured]) -> None:
    direct, bare, *rest = found
    table = Table("target", "CPU µs/request", "× bare", "p50 added ms", "first byte added ms")
    for column in ("CPU µs/chunk", "× bare", "idle MB", "start s"):
        table.add_column(column)
    for row in (bare, *rest):
        table.add_row(
            row.name,
            f"{statistics.median(row.cpu_us):.0f}",
            f"{_times(row.cpu_us, bare.cpu_us):.2f}",
            f"{_added(row.p50_ms, direct.p50_ms):.2f}",
            f"{_added(row.first_byte_ms, direct.first_byte_ms):.2f}",
            f"{statistics.median(row.chunk_us):.1f}",
            f"{_times(row.chunk_us, bare.chunk_us):.2f}",
            f"{row.idle_mb:.0f}",
            f"{row.start:.2f}",
        )
    console = Console(width=130)
    console.print(table)
    native, *_, last = rest
    if last.name == LITELLM:
        less = _times(last.cpu_us, native.cpu_us)
        console.print(f"A request costs {native.name} {less:.1f} times less CPU than {LITELLM}.")


def _times(costs: list[float], others: list[float]) -> float:
    """How many times as much something costs as another."""
    return statistics.median(map(truediv, costs, others))


def _added(taken: list[float], without: list[float]) -> float:
    """How much longer something takes than without it."""
    return statistics.median(map(sub, taken, without))


if __name__ == "__main__":
    sys.exit(main())
