"""Asks the questions, by the gateway's own HTTP API: of a gateway that is started for it, with one
model for each mode, or of one that runs already and chooses the mode itself.

    async with own_gateway(config, os.environ, "box/qwen3:8b", modes) as asked:
        await run(asked, work, answers.add)
"""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

from msgspec import Struct, structs

from ..config.settings import Config, ModelSettings, UpstreamSettings
from ..config.settings import ServerSettings as ServerSettings
from ..errors import ToolspeakError, UsageError, WireError
from ..events import fold
from ..gateway.app import Gateway
from ..gateway.server import GatewayServer
from ..types import Reply, ToolsMode, Usage
from ..upstream.catalog import EMBEDDED, Catalog, Endpoint
from ..upstream.client import UpstreamClient
from ..upstream.discovery import LocalModels
from ..upstream.errors import UpstreamError
from ..upstream.response import UpstreamResponse
from ..upstream.timers import Ticker
from ..wires import get_wire
from ..wires.framing import decode_json
from .answers import Answer, key_of
from .grading import is_right
from .questions import Question

AUTO = "auto"
"""Stands for the mode where a running gateway chooses it."""
_WIRE = get_wire("openai_chat")
_SHOWN = 500
"""How much of what a model said beside its calls is kept."""
_HOST = "127.0.0.1"
_LOOK_EVERY = 0.1


class Wanted(Struct, frozen=True):
    """What every question is asked with."""

    timeout: float
    """Seconds for one question."""
    max_tokens: int
    """A small model may say the same over and over, and would never end."""
    retries: int | None = None
    """How often the gateway may ask again; None: as it is configured."""


class Asked:
    """A gateway to ask, and what the model is called there in each mode."""

    def __init__(
        self,
        url: str,
        key: str,
        model: str,
        names: Mapping[str, str],
        wanted: Wanted,
        settled: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.url = url
        self.model = model
        self.modes = tuple(names)
        self._names = names
        self._wanted = wanted
        self._settled = settled
        limits = UpstreamSettings(first_byte_timeout=wanted.timeout, idle_timeout=wanted.timeout)
        self._endpoint = Endpoint("gateway", _WIRE.name, url, key, {}, limits)
        self._ticker = Ticker()
        self._upstreams = UpstreamClient(self._ticker)

    def close(self) -> None:
        """Let go of the connections."""
        self._upstreams.close()
        self._ticker.stop()

    async def check(self) -> None:
        """Whether there is anybody to ask."""
        try:
            with await self._upstreams.request(self._endpoint, "/v1/models") as response:
                if response.status >= 300:
                    raise await response.read_error()
        except UpstreamError as problem:
            raise UsageError(f"no gateway answers at {self.url}: {problem}") from None

    async def answer(self, mode: str, question: Question) -> Answer:
        """Ask a question; whatever goes wrong is an answer that says so."""
        began = perf_counter()
        reply, headers, error = Reply(), dict[str, str](), ""
        try:
            async with asyncio.timeout(self._wanted.timeout):
                if self._settled:
                    await self._settled()
                began = perf_counter()
                reply, headers = await self._reply(mode, question)
        except TimeoutError:
            error = f"there was no answer in {self._wanted.timeout:g} s"
        except UpstreamError as problem:
            error = f"HTTP {problem.failure.status}: {problem}"
        except WireError as problem:
            error = f"the answer cannot be read: {problem}"
        usage = reply.usage or Usage()
        return Answer(
            key=key_of(mode, question),
            model=self.model,
            mode=mode,
            id=question.id,
            digest=question.digest,
            category=question.category,
            right=not error and is_right(question, reply.calls),
            calls=[{"name": call.name, "arguments": call.arguments} for call in reply.calls],
            text=reply.text[:_SHOWN],
            served=headers.get("x-toolspeak-mode", ""),
            stopped=reply.stop_reason or "",
            retries=int(headers.get("x-toolspeak-retries", 0)),
            input=usage.input,
            output=usage.output,
            seconds=round(perf_counter() - began, 4),
            error=error,
        )

    async def _reply(self, mode: str, question: Question) -> tuple[Reply, dict[str, str]]:
        body = json.dumps(self._body(mode, question)).encode()
        with await self._upstreams.request(
            self._endpoint, "/v1/chat/completions", body
        ) as response:
            if response.status >= 300:
                raise await response.read_error()
            return await _read(response), dict(response.headers)

    def _body(self, mode: str, question: Question) -> dict[str, Any]:
        return {
            "model": self._names[mode],
            "messages": [{"role": "user", "content": question.question}],
            "tools": [{"type": "function", "function": tool} for tool in question.tools],
            "temperature": 0,
            "max_tokens": self._wanted.max_tokens,
        }


async def _read(response: UpstreamResponse) -> Reply:
    reply = fold(_WIRE.decode_reply(decode_json(await response.read_body())))
    if reply.failure:
        raise UpstreamError(reply.failure)
    return reply


async def run(
    asked: Asked,
    work: Iterable[tuple[str, Question]],
    done: Callable[[Answer], None],
    *,
    concurrency: int = 1,
) -> None:
    """Ask all that is to be asked, some at a time; each answer is told as it comes."""
    left = iter(work)

    async def ask_on() -> None:
        for mode, question in left:
            done(await asked.answer(mode, question))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(ask_on())
    except ExceptionGroup as problems:
        raise problems.exceptions[0] from None


# Gateways.


@asynccontextmanager
async def running_gateway(
    url: str, key: str, model: str, wanted: Wanted
) -> AsyncGenerator[Asked, None]:
    """A gateway that runs already."""
    asked = Asked(url.rstrip("/").removesuffix("/v1"), key, model, {AUTO: model}, wanted)
    try:
        await asked.check()
        yield asked
    finally:
        asked.close()


@asynccontextmanager
async def own_gateway(
    config: Config,
    environ: Mapping[str, str],
    model: str,
    modes: Sequence[ToolsMode],
    wanted: Wanted,
) -> AsyncGenerator[Asked, None]:
    """A gateway on a free port of this machine, which has the model once for each mode."""
    source = _Source(config, environ, model, wanted)
    try:
        await source.start()
        async with _served(source, modes) as asked:
            yield asked
    finally:
        await source.stop()


class _Source:
    """Where the model is: configured, of a provider, or on this machine."""

    def __init__(
        self, config: Config, environ: Mapping[str, str], model: str, wanted: Wanted
    ) -> None:
        self._config = config
        self._environ = environ
        self._name = model
        self.wanted = wanted
        self._local = LocalModels(config)
        self._key = secrets.token_urlsafe(16)

    async def start(self) -> None:
        """Look around on this machine, unless it is known already where the model is."""
        name = self._name or self._config.default
        if not (name and Catalog(self._config, self._environ).find_model(name)):
            await self._local.start()

    async def stop(self) -> None:
        """End the embedded model, if it runs."""
        await self._local.stop()

    async def settled(self) -> None:
        """Wait while the embedded model is started again, if it is the one that is asked."""
        if self.find()[0].upstream == EMBEDDED:
            while not self._local.is_ready():
                await asyncio.sleep(_LOOK_EVERY)

    def find(self) -> tuple[ModelSettings, UpstreamSettings]:
        """The model and its upstream. The embedded model may move while it is asked."""
        catalog = Catalog(self._config, self._environ, self._local.servers())
        name = self._name or catalog.default_model
        model = catalog.find_model(name) if name else None
        endpoint = catalog.find_endpoint(model.upstream) if model else None
        if model is None or endpoint is None:
            raise self._unknown(catalog, name)
        # Who stands in for it is not what is measured.
        return model, structs.replace(endpoint.settings, fallbacks=())

    def _unknown(self, catalog: Catalog, name: str) -> ToolspeakError:
        problem = catalog.unknown_model(name)
        if self._local.load_error:
            return UsageError(f"{problem}; no embedded model: {self._local.load_error}")
        return problem

    def config(self, modes: Sequence[ToolsMode]) -> Config:
        """Settings that have the model under the name of each mode, and nothing else."""
        model, upstream = self.find()
        if self.wanted.retries is not None:
            model = structs.replace(model, retries=self.wanted.retries)
        return Config(
            server=ServerSettings(host=_HOST, port=0, keys=(self._key,)),
            limits=self._config.limits,
            upstreams={model.upstream: upstream},
            models={mode: structs.replace(model, tools=mode) for mode in modes},
        )


@asynccontextmanager
async def _served(source: _Source, modes: Sequence[ToolsMode]) -> AsyncGenerator[Asked, None]:
    config = source.config(modes)
    gateway = Gateway(config, environ={})

    async def settled() -> None:
        nonlocal config
        await source.settled()
        if (fresh := source.config(modes)) != config:
            config = fresh
            gateway.reload(config)

    model, _ = source.find()
    listener = socket.create_server((_HOST, 0))
    server, ready = GatewayServer(gateway), asyncio.Event()
    serving = asyncio.create_task(server.serve(listener, ready.set))
    url = f"http://{_HOST}:{listener.getsockname()[1]}"
    names = {mode: mode for mode in modes}
    title = f"{model.upstream}/{model.model}"
    asked = Asked(url, config.server.keys[0], title, names, source.wanted, settled)
    try:
        await ready.wait()
        yield asked
    finally:
        asked.close()
        server.stop(signal.SIGTERM)
        await serving
