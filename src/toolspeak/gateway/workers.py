"""Several processes that serve one port.

The first process binds the port, runs the embedded model, and looks after the others: one that dies
is started again. It tells them what they need to know, line by line, and when it ends, so do they.
What requests have to remember is in the store, and nowhere else.

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
from collections.abc import Callable

import msgspec
from msgspec import Struct

from ..config.settings import Config
from ..observe.logs import configure_logging
from ..store.socket import SocketStore, StoreServer
from ..upstream.catalog import DiscoveredServer
from .app import Gateway
from .server import GatewayRunner, GatewayServer, new_loop, settle

log = logging.getLogger("toolspeak.gateway")
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 15.0
_STEADY = 60
"""A worker that lived for so many seconds died for another reason than the last one."""
_LOOK_EVERY = 0.25
_GRACE = 15.0
_LONGEST_LINE = 2**26


class WorkerState(Struct, frozen=True):
    """What a worker has to know."""

    config: Config
    found: tuple[DiscoveredServer, ...]
    is_ready: bool
    token: str
    store: str
    """Where the first process keeps what all of them remember; empty: where the settings say."""


_DECODER = msgspec.json.Decoder(WorkerState)


class MultiProcessRunner(GatewayRunner):
    """The first process."""

    def __init__(
        self,
        config: Config,
        *,
        reload: Callable[[], Config],
        announce: Callable[[MultiProcessRunner], None],
    ) -> None:
        super().__init__(config, reload=reload)
        self._announce = announce
        self._stops = asyncio.Event()
        self._workers: set[Process] = set()
        self._told = b""
        self._store = StoreServer() if self.config.store == "memory" else None

    async def _serve(self) -> None:
        if self._store:
            await self._store.start()
        try:
            await self._look_after()
        finally:
            if self._store:
                await self._store.stop()

    async def _look_after(self) -> None:
        self._tell()
        async with asyncio.TaskGroup() as group:
            for _ in range(self.config.server.workers):
                group.create_task(self._keep_alive())
            group.create_task(self._keep_informed())
            self._announce(self)

    def _end(self, number: int) -> None:
        if self._stops.is_set() and number == signal.SIGINT:
            for worker in self._workers:
                _kill(worker)
        self._stops.set()
        self._listener.close()

    def _take(self, config: Config) -> None:
        self._tell()

    async def _keep_informed(self) -> None:
        """Tell the workers when the embedded model moves."""
        while not await self._stops_within(_LOOK_EVERY):
            self._tell()

    def _tell(self) -> None:
        """Tell the workers what is new."""
        place = self._store.path if self._store else ""
        state = WorkerState(
            self.config, self.local.servers(), self.local.is_ready(), self.token, place
        )
        line = msgspec.json.encode(state) + b"\n"
        if line != self._told:
            self._told = line
            for worker in self._workers:
                _say(worker, line)

    async def _keep_alive(self) -> None:
        """One worker, and the next when it dies."""
        pause = _FIRST_PAUSE
        while not self._stops.is_set():
            began = asyncio.get_running_loop().time()
            code = await self._work()
            if self._stops.is_set():
                return
            lived = asyncio.get_running_loop().time() - began
            pause = _FIRST_PAUSE if lived > _STEADY else pause
            log.error("a worker ended with %s; another is started in %g s", code, pause)
            await self._stops_within(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _work(self) -> int:
        """The life of a worker; the code that it ends with."""
        worker = await self._start()
        self._workers.add(worker)
        _say(worker, self._told)
        ending = asyncio.create_task(worker.wait())
        stopping = asyncio.create_task(self._stops.wait())
        try:
            await asyncio.wait((ending, stopping), return_when=asyncio.FIRST_COMPLETED)
            _hang_up(worker)
            await asyncio.wait((ending,), timeout=_GRACE)
        finally:
            stopping.cancel()
            if not ending.done():
                _kill(worker)
            self._workers.discard(worker)
        return await ending

    async def _start(self) -> Process:
        descriptor = self._listener.fileno()
        level = logging.getLogger().getEffectiveLevel()
        # -P: a file of the same name in the current folder is none of our modules.
        program = [sys.executable, "-P", "-m", "toolspeak.gateway.workers"]
        return await asyncio.create_subprocess_exec(
            *program,
            str(descriptor),
            str(level),
            self.config.server.log_format,
            stdin=PIPE,
            pass_fds=(descriptor,),
            # Ctrl-C is for the first process, which lets the others end what they have begun.
            start_new_session=True,
        )

    async def _stops_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stops.wait(), seconds)
        return self._stops.is_set()


def _say(worker: Process, line: bytes) -> None:
    if worker.stdin and not worker.stdin.is_closing():
        worker.stdin.write(line)


def _hang_up(worker: Process) -> None:
    if worker.stdin:
        worker.stdin.close()


def _kill(worker: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        worker.kill()


class _Worker:
    """One of the processes that serve."""

    def __init__(self, lines: asyncio.StreamReader, state: WorkerState) -> None:
        self._lines = lines
        self._state = state
        self._gateway = Gateway(
            state.config,
            found=lambda: self._state.found,
            is_ready=lambda: self._state.is_ready,
            token=state.token,
            store=SocketStore(state.store) if state.store else None,
        )
        self._server = GatewayServer(self._gateway)

    async def serve(self, listener: socket.socket) -> None:
        """Serve until the first process ends, or says so."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._server.stop, signal.SIGTERM)
        listening = loop.create_task(self._listen())
        try:
            await self._server.serve(listener)
        finally:
            listening.cancel()

    async def _listen(self) -> None:
        """Take over what is new."""
        while line := await self._lines.readline():
            self._state = _DECODER.decode(line)
            if self._state.config != self._gateway.config:
                self._gateway.reload(self._state.config)
        self._server.stop(signal.SIGTERM)


async def _work(descriptor: int) -> None:
    lines = asyncio.StreamReader(limit=_LONGEST_LINE)
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    if line := await lines.readline():
        await _Worker(lines, _DECODER.decode(line)).serve(socket.socket(fileno=descriptor))


def main(arguments: list[str]) -> None:
    """Serve as one of several."""
    for number in (signal.SIGHUP, signal.SIGINT):
        # They are for the first process, whoever sends them to all.
        signal.signal(number, signal.SIG_IGN)
    descriptor, level, form = arguments
    configure_logging("json" if form == "json" else "text", int(level))
    settle()
    with asyncio.Runner(loop_factory=new_loop()) as runner:
        runner.run(_work(int(descriptor)))


if __name__ == "__main__":
    main(sys.argv[1:])
