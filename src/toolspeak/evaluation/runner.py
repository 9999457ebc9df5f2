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

from ..config.settings import Config, ModelSettings, ServerSettings, UpstreamSettings
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
from .answers import GradedAnswer, answer_key
from .questions import EvalQuestion, is_correct

GATEWAY_MODE = "auto"
"""Stands for the mode where a running gateway chooses it."""
_WIRE = get_wire("openai_chat")
_SHOWN = 500
"""How much of what a model said beside its calls is kept."""
_HOST = "127.0.0.1"
_LOOK_EVERY = 0.1


class QuestionLimits(Struct, frozen=True):
    """What every question is asked with."""

    timeout: float
    """Seconds for one question."""
    max_tokens: int
    """A small model may say the same over and over, and would never end."""
    retries: int | None = None
    """How often the gateway may ask again; None: as it is configured."""


class EvalClient:
    """A gateway to ask, and what the model is called there in each mode."""

    def __init__(
        self,
        url: str,
        key: str,
        model: str,
        names: Mapping[str, str],
        wanted: QuestionLimits,
        settled: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.url = url
        self.model = model
        self.modes = tuple(names)
        self._names = names
        self._limits = wanted
        self._wait_until_ready = settled
        limits = UpstreamSettings(first_byte_timeout=wanted.timeout, idle_timeout=wanted.timeout)
        self._endpoint = Endpoint("gateway", _WIRE.name, url, key, {}, limits)
        self._ticker = Ticker()
        self._upstreams = UpstreamClient(self._ticker)

    def close(self) -> None:
        """Let go of the connections."""
        self._upstreams.close()
        self._ticker.stop()

    async def check_gateway(self) -> None:
        """Whether there is anybody to ask."""
        try:
            with await self._upstreams.request(self._endpoint, "/v1/models") as response:
                if response.status >= 300:
                    raise await response.read_error()
        except UpstreamError as problem:
            raise UsageError(f"no gateway answers at {self.url}: {problem}") from None

    async def ask(self, mode: str, question: EvalQuestion) -> GradedAnswer:
        """Ask a question; whatever goes wrong is an answer that says so."""
        began = perf_counter()
        reply, headers, error = Reply(), dict[str, str](), ""
        try:
            async with asyncio.timeout(self._limits.timeout):
                if self._wait_until_ready:
                    await self._wait_until_ready()
                began = perf_counter()
                reply, headers = await self._send(mode, question)
        except TimeoutError:
            error = f"there was no answer in {self._limits.timeout:g} s"
        except UpstreamError as problem:
            error = f"HTTP {problem.failure.status}: {problem}"
        except WireError as problem:
            error = f"the answer cannot be read: {problem}"
        usage = reply.usage or Usage()
        return GradedAnswer(
            key=answer_key(mode, question),
            model=self.model,
            mode=mode,
            id=question.id,
            digest=question.digest,
            category=question.category,
            correct=not error and is_correct(question, reply.calls),
            calls=[{"name": call.name, "arguments": call.arguments} for call in reply.calls],
            text=reply.text[:_SHOWN],
            served_mode=headers.get("x-toolspeak-mode", ""),
            stop_reason=reply.stop_reason or "",
            retries=int(headers.get("x-toolspeak-retries", 0)),
            input_tokens=usage.input,
            output_tokens=usage.output,
            seconds=round(perf_counter() - began, 4),
            error=error,
        )

    async def _send(self, mode: str, question: EvalQuestion) -> tuple[Reply, dict[str, str]]:
        body = json.dumps(self._build_body(mode, question)).encode()
        with await self._upstreams.request(
            self._endpoint, "/v1/chat/completions", body
        ) as response:
            if response.status >= 300:
                raise await response.read_error()
            return await _decode_response(response), dict(response.headers)

    def _build_body(self, mode: str, question: EvalQuestion) -> dict[str, Any]:
        return {
            "model": self._names[mode],
            "messages": [{"role": "user", "content": question.question}],
            "tools": [{"type": "function", "function": tool} for tool in question.tools],
            "temperature": 0,
            "max_tokens": self._limits.max_tokens,
        }


async def _decode_response(response: UpstreamResponse) -> Reply:
    reply = fold(_WIRE.decode_reply(decode_json(await response.read_body())))
    if reply.failure:
        raise UpstreamError(reply.failure)
    return reply


async def ask_questions(
    asked: EvalClient,
    work: Iterable[tuple[str, EvalQuestion]],
    done: Callable[[GradedAnswer], None],
    *,
    concurrency: int = 1,
) -> None:
    """Ask all that is to be asked, some at a time; each answer is told as it comes."""
    left = iter(work)

    async def ask_on() -> None:
        for mode, question in left:
            done(await asked.ask(mode, question))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(ask_on())
    except ExceptionGroup as problems:
        raise problems.exceptions[0] from None


# Gateways.


@asynccontextmanager
async def connect_gateway(
    url: str, key: str, model: str, wanted: QuestionLimits
) -> AsyncGenerator[EvalClient, None]:
    """A gateway that runs already."""
    asked = EvalClient(
        url.rstrip("/").removesuffix("/v1"), key, model, {GATEWAY_MODE: model}, wanted
    )
    try:
        await asked.check_gateway()
        yield asked
    finally:
        asked.close()


@asynccontextmanager
async def start_gateway(
    config: Config,
    environ: Mapping[str, str],
    model: str,
    modes: Sequence[ToolsMode],
    wanted: QuestionLimits,
) -> AsyncGenerator[EvalClient, None]:
    """A gateway on a free port of this machine, which has the model once for each mode."""
    source = _ModelSource(config, environ, model, wanted)
    try:
        await source.start()
        async with _serve_model(source, modes) as asked:
            yield asked
    finally:
        await source.stop()


class _ModelSource:
    """Where the model is: configured, of a provider, or on this machine."""

    def __init__(
        self, config: Config, environ: Mapping[str, str], model: str, wanted: QuestionLimits
    ) -> None:
        self._config = config
        self._environ = environ
        self._name = model
        self.limits = wanted
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

    async def wait_until_ready(self) -> None:
        """Wait while the embedded model is started again, if it is the one that is asked."""
        if self.find_model()[0].upstream == EMBEDDED:
            while not self._local.is_ready():
                await asyncio.sleep(_LOOK_EVERY)

    def find_model(self) -> tuple[ModelSettings, UpstreamSettings]:
        """The model and its upstream. The embedded model may move while it is asked."""
        catalog = Catalog(self._config, self._environ, self._local.servers())
        name = self._name or catalog.default_model
        model = catalog.find_model(name) if name else None
        endpoint = catalog.find_endpoint(model.upstream) if model else None
        if model is None or endpoint is None:
            raise self._unknown_model(catalog, name)
        # Who stands in for it is not what is measured.
        return model, structs.replace(endpoint.settings, fallbacks=())

    def _unknown_model(self, catalog: Catalog, name: str) -> ToolspeakError:
        problem = catalog.unknown_model(name)
        if self._local.load_error:
            return UsageError(f"{problem}; no embedded model: {self._local.load_error}")
        return problem

    def build_config(self, modes: Sequence[ToolsMode]) -> Config:
        """Settings that have the model under the name of each mode, and nothing else."""
        model, upstream = self.find_model()
        if self.limits.retries is not None:
            model = structs.replace(model, retries=self.limits.retries)
        return Config(
            server=ServerSettings(host=_HOST, port=0, keys=(self._key,)),
            limits=self._config.limits,
            upstreams={model.upstream: upstream},
            models={mode: structs.replace(model, tools=mode) for mode in modes},
        )


@asynccontextmanager
async def _serve_model(
    source: _ModelSource, modes: Sequence[ToolsMode]
) -> AsyncGenerator[EvalClient, None]:
    config = source.build_config(modes)
    gateway = Gateway(config, environ={})

    async def settled() -> None:
        nonlocal config
        await source.wait_until_ready()
        if (fresh := source.build_config(modes)) != config:
            config = fresh
            gateway.reload(config)

    model, _ = source.find_model()
    listener = socket.create_server((_HOST, 0))
    server, ready = GatewayServer(gateway), asyncio.Event()
    serving = asyncio.create_task(server.serve(listener, ready.set))
    url = f"http://{_HOST}:{listener.getsockname()[1]}"
    names = {mode: mode for mode in modes}
    title = f"{model.upstream}/{model.model}"
    asked = EvalClient(url, config.server.keys[0], title, names, source.limits, settled)
    try:
        await ready.wait()
        yield asked
    finally:
        asked.close()
        server.stop(signal.SIGTERM)
        await serving
