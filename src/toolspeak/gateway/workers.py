"""Several processes that serve one port.

The supervisor binds the port, runs the embedded model, and starts the workers; a worker that dies
is started again. The supervisor sends its state to the workers' stdin, as lines of JSON; they stop
when that pipe closes. Data that requests share is in the store only.

    python -m toolspeak.gateway.workers DESCRIPTOR LEVEL FORMAT
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process

import msgspec
from msgspec import Struct, structs

from ..config.settings import SQLITE_PREFIX, Config
from ..observe.logs import configure_logging
from ..store.base import open_store
from ..store.temporary import TemporaryDatabase
from ..upstream.catalog import DiscoveredServer
from .app import Gateway
from .server import GatewayRunner, GatewayServer, event_loop_factory, tune_process

log = logging.getLogger("toolspeak.gateway")
_FIRST_PAUSE = 0.5
_MAX_PAUSE = 15.0
_STABLE_SECONDS = 60
"""A worker that ran for this long did not die for the same reason as the one before it."""
_POLL_SECONDS = 0.25
_GRACE_SECONDS = 15.0
_MAX_LINE = 2**26


class WorkerState(Struct, frozen=True):
    """Everything that a worker needs to know."""

    config: Config
    found: tuple[DiscoveredServer, ...]
    is_ready: bool
    token: str


_DECODER = msgspec.json.Decoder(WorkerState)


class MultiProcessRunner(GatewayRunner):
    """The supervisor: runs the gateway in several worker processes."""

    def _prepare(self) -> None:
        self._stop_requested = asyncio.Event()
        self._workers: set[Process] = set()
        self._state_line = b""
        self._database = TemporaryDatabase() if self.config.store == "memory" else None
        if self._database is None:
            # Raise here for a setting that no worker could use.
            open_store(self.config.store)

    async def _serve(self) -> None:
        try:
            await self._run_workers()
        finally:
            if self._database:
                self._database.remove()

    async def _run_workers(self) -> None:
        self._send_state()
        async with asyncio.TaskGroup() as group:
            for _ in range(self.config.server.workers):
                group.create_task(self._keep_worker_alive())
            group.create_task(self._watch_local_models())
            self._announce(self)

    def _stop(self, number: int) -> None:
        if self._stop_requested.is_set() and number == signal.SIGINT:
            for worker in self._workers:
                _kill(worker)
        self._stop_requested.set()
        self._listener.close()

    def _apply_config(self, config: Config) -> None:
        self._send_state()

    async def _watch_local_models(self) -> None:
        """Send the new state when the embedded model restarts at another address."""
        while not await self._stops_within(_POLL_SECONDS):
            self._send_state()

    def _send_state(self) -> None:
        """Send the state to all workers if it has changed."""
        local, config = self.local, self.config
        if self._database:
            config = structs.replace(config, store=f"{SQLITE_PREFIX}{self._database.path}")
        state = WorkerState(config, local.servers(), local.is_ready(), self.token)
        line = msgspec.json.encode(state) + b"\n"
        if line != self._state_line:
            self._state_line = line
            for worker in self._workers:
                _send_line(worker, line)

    async def _keep_worker_alive(self) -> None:
        """Run one worker, and start the next when it dies."""
        pause = _FIRST_PAUSE
        clock = asyncio.get_running_loop().time
        while not self._stop_requested.is_set():
            started = clock()
            code = await self._run_worker()
            if self._stop_requested.is_set():
                return
            pause = _FIRST_PAUSE if clock() - started > _STABLE_SECONDS else pause
            log.error("a worker exited with code %s; starting another in %g s", code, pause)
            await self._stops_within(pause)
            pause = min(pause * 2, _MAX_PAUSE)

    async def _run_worker(self) -> int:
        """Run a worker until it ends or the gateway stops, and return its exit code."""
        worker = await self._spawn_worker()
        self._workers.add(worker)
        _send_line(worker, self._state_line)
        exiting = asyncio.create_task(worker.wait())
        stopping = asyncio.create_task(self._stop_requested.wait())
        try:
            await asyncio.wait((exiting, stopping), return_when=asyncio.FIRST_COMPLETED)
            _close_stdin(worker)
            await asyncio.wait((exiting,), timeout=_GRACE_SECONDS)
        finally:
            stopping.cancel()
            if not exiting.done():
                _kill(worker)
            self._workers.discard(worker)
        return await exiting

    async def _spawn_worker(self) -> Process:
        descriptor = self._listener.fileno()
        level = logging.getLogger().getEffectiveLevel()
        # -P: do not import modules of the same name from the current directory.
        program = [sys.executable, "-P", "-m", "toolspeak.gateway.workers"]
        return await asyncio.create_subprocess_exec(
            *program,
            str(descriptor),
            str(level),
            self.config.server.log_format,
            stdin=PIPE,
            pass_fds=(descriptor,),
            # Only the supervisor gets Ctrl-C; it lets the workers finish their requests.
            start_new_session=True,
        )

    async def _stops_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop_requested.wait(), seconds)
        return self._stop_requested.is_set()


def _send_line(worker: Process, line: bytes) -> None:
    if worker.stdin and not worker.stdin.is_closing():
        worker.stdin.write(line)


def _close_stdin(worker: Process) -> None:
    if worker.stdin:
        worker.stdin.close()


def _kill(worker: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        worker.kill()


class _Worker:
    """The gateway in one worker process."""

    def __init__(self, lines: asyncio.StreamReader, state: WorkerState) -> None:
        self._lines = lines
        self._state = state
        self._gateway = Gateway(
            state.config,
            found=lambda: self._state.found,
            is_ready=lambda: self._state.is_ready,
            token=state.token,
        )
        self._server = GatewayServer(self._gateway)

    async def serve(self, listener: socket.socket) -> None:
        """Serve until the supervisor ends or closes the pipe."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._server.stop, signal.SIGTERM)
        reading = loop.create_task(self._read_states())
        try:
            await self._server.serve(listener)
        finally:
            reading.cancel()

    async def _read_states(self) -> None:
        while line := await self._lines.readline():
            self._state = _DECODER.decode(line)
            if self._state.config != self._gateway.config:
                self._gateway.reload(self._state.config)
        self._server.stop(signal.SIGTERM)


async def _run_worker(descriptor: int) -> None:
    lines = asyncio.StreamReader(limit=_MAX_LINE)
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    if line := await lines.readline():
        await _Worker(lines, _DECODER.decode(line)).serve(socket.socket(fileno=descriptor))


def main(arguments: list[str]) -> None:
    """Run a worker process."""
    for number in (signal.SIGHUP, signal.SIGINT):
        # The supervisor handles them, even if they are sent to all processes.
        signal.signal(number, signal.SIG_IGN)
    descriptor, level, log_format = arguments
    configure_logging("json" if log_format == "json" else "text", int(level))
    tune_process()
    with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
        runner.run(_run_worker(int(descriptor)))


if __name__ == "__main__":
    main(sys.argv[1:])
