"""Several processes that serve one port.

The first process binds the port, runs the embedded model, and looks after the others: one that dies
is started again. What they need to know stands in a file that only this user can read; what
requests have to remember is in the store, and nowhere else.

    python -m toolspeak.gateway.workers STATE FD
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from .app import Gateway
from .catalog import Found
from .local import LocalModels
from .server import bound, listening, new_loop, serve, url_of
from .settings import Config

log = logging.getLogger("toolspeak.gateway")
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 15.0
_LOOK_EVERY = 0.5
_GRACE = 15.0


class _State(Struct, frozen=True):
    """What a worker has to know."""

    config: Config
    found: tuple[Found, ...]
    is_ready: bool


class StateFile:
    """Where the first process writes it, and the others read it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = 0
        self._state: _State | None = None

    def write(self, state: _State) -> None:
        """Put it there, in one step."""
        if state == self._state:
            return
        self._state = state
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(msgspec.msgpack.encode(state))
        fresh.replace(self._path)

    def read(self) -> _State:
        """What it says now."""
        stamp = self._path.stat().st_mtime_ns
        if self._state is None or stamp != self._stamp:
            self._stamp = stamp
            self._state = msgspec.msgpack.decode(self._path.read_bytes(), type=_State)
        return self._state


class Supervisor:
    """The first process."""

    def __init__(
        self,
        config: Config,
        *,
        reload: Callable[[], Config],
        announce: Callable[[Supervisor], None],
    ) -> None:
        self._reload = reload
        self._announce = announce
        self._listener = bound(config)
        self.url = url_of(self._listener)
        self.config = listening(config, self._listener)
        self.local = LocalModels(self.config)
        self.found = self.local.found
        self._stops = asyncio.Event()

    def run(self) -> None:
        """Serve until told to stop."""
        with asyncio.Runner(loop_factory=new_loop()) as runner:
            runner.run(self._supervise())

    async def _supervise(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stops.set)
        with tempfile.TemporaryDirectory(prefix="toolspeak-") as folder:
            path = Path(folder) / "state"
            self._file = StateFile(path)
            try:
                await self.local.start()
                self._write()
                async with asyncio.TaskGroup() as group:
                    for _ in range(self.config.server.workers):
                        group.create_task(self._keep_alive(path))
                    group.create_task(self._keep_informed())
                    self._announce(self)
            finally:
                await self.local.stop()
                self._listener.close()

    async def _keep_informed(self) -> None:
        """Tell the workers when the embedded model moves, or the configuration changes."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)
        while not self._stops.is_set():
            self._write()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stops.wait(), _LOOK_EVERY)

    def reload(self) -> None:
        """Read the configuration again; workers see it with their next request."""
        try:
            self.config = listening(self._reload(), self._listener)
        except Exception as problem:
            log.error("not reloaded: %s", problem)

    def _write(self) -> None:
        self._file.write(_State(self.config, self.local.found(), self.local.is_ready()))

    async def _keep_alive(self, path: Path) -> None:
        """One worker, and the next when it dies."""
        pause = _FIRST_PAUSE
        while not self._stops.is_set():
            began = asyncio.get_running_loop().time()
            code = await self._work(path)
            if self._stops.is_set():
                return
            lived = asyncio.get_running_loop().time() - began
            pause = _FIRST_PAUSE if lived > 60 else min(pause * 2, _LONGEST_PAUSE)
            log.error("a worker ended with %s; another is started in %g s", code, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stops.wait(), pause)

    async def _work(self, path: Path) -> int:
        descriptor = self._listener.fileno()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "toolspeak.gateway.workers",
            str(path),
            str(descriptor),
            pass_fds=(descriptor,),
        )
        waiting = asyncio.create_task(process.wait())
        stopping = asyncio.create_task(self._stops.wait())
        await asyncio.wait((waiting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not waiting.done():
            process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(waiting), _GRACE)
        if not waiting.done():
            process.kill()
        return await waiting


async def _serve_as_worker(path: Path, descriptor: int) -> None:
    file = StateFile(path)
    state = file.read()
    gateway = Gateway(
        state.config, found=lambda: file.read().found, is_ready=lambda: file.read().is_ready
    )
    listener = socket.socket(fileno=descriptor)

    watching = asyncio.create_task(_watch(file, gateway))
    await serve(gateway, listener)
    watching.cancel()


async def _watch(file: StateFile, gateway: Gateway) -> None:
    """Take over a configuration that has changed."""
    while True:
        await asyncio.sleep(_LOOK_EVERY)
        config = file.read().config
        if config != gateway.config:
            gateway.reload(config)


def main(arguments: list[str]) -> None:
    """Serve as one of several."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    path, descriptor = arguments
    with asyncio.Runner(loop_factory=new_loop()) as runner:
        runner.run(_serve_as_worker(Path(path), int(descriptor)))


if __name__ == "__main__":
    main(sys.argv[1:])
