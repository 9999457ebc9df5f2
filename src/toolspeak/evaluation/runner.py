"""Ask the questions of an evaluation through the gateway's HTTP API.

The gateway is either started for the evaluation, with the model once per mode, or already running;
then it chooses the mode itself.

    async with start_gateway(config, os.environ, "box/qwen3:8b", modes, limits) as client:
        await ask_questions(client, work, answers.add)
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
from ..errors import ToolspeakError, UpstreamError, UsageError, WireError
from ..events import fold
from ..gateway.app import Gateway
from ..gateway.server import GatewayServer
from ..types import Reply, ToolsMode, Usage
from ..upstream.catalog import EMBEDDED, Catalog, Endpoint
from ..upstream.client import UpstreamClient, UpstreamResponse
from ..upstream.discovery import LocalModels
from ..upstream.timers import Ticker
from ..wires import get_wire
from ..wires.framing import decode_json
from .answers import GradedAnswer, answer_key
from .questions import EvalQuestion, is_correct

GATEWAY_MODE = "auto"
"""Shown as the mode if a running gateway chooses it."""
_WIRE = get_wire("openai_chat")
_SHOWN = 500
"""Characters of an answer's text that the file keeps."""
_HOST = "127.0.0.1"
_LOOK_EVERY = 0.1


class QuestionLimits(Struct, frozen=True):
    """The limits for one question."""

    timeout: float
    """Seconds."""
    max_tokens: int
    """A small model may repeat itself without end."""
    retries: int | None = None
    """The gateway's retries; None keeps the configured number."""


class EvalClient:
    """Asks a gateway, which knows the model under one name per mode."""

    def __init__(
        self,
        url: str,
        key: str,
        model: str,
        names: Mapping[str, str],
        limits: QuestionLimits,
        settled: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.url = url
        self.model = model
        self.modes = tuple(names)
        self._names = names
        self._limits = limits
        self._wait_until_ready = settled
        timeouts = UpstreamSettings(first_byte_timeout=limits.timeout, idle_timeout=limits.timeout)
        self._endpoint = Endpoint("gateway", _WIRE.name, url, key, {}, timeouts)
        self._ticker = Ticker()
        self._upstreams = UpstreamClient(self._ticker)

    def close(self) -> None:
        self._upstreams.close()
        self._ticker.stop()

    async def check_gateway(self) -> None:
        """Raise `UsageError` unless the gateway responds."""
        try:
            with await self._upstreams.request(self._endpoint, "/v1/models") as response:
                if response.status >= 300:
                    raise await response.read_error()
        except UpstreamError as problem:
            raise UsageError(f"no gateway responds at {self.url}: {problem}") from None

    async def ask(self, mode: str, question: EvalQuestion) -> GradedAnswer:
        """Ask a question and grade the reply; a failure becomes an answer with `error` set."""
        began = perf_counter()
        reply, headers, error = Reply(), dict[str, str](), ""
        try:
            async with asyncio.timeout(self._limits.timeout):
                if self._wait_until_ready:
                    await self._wait_until_ready()
                began = perf_counter()
                reply, headers = await self._send(mode, question)
        except TimeoutError:
            error = f"no answer within {self._limits.timeout:g} s"
        except UpstreamError as problem:
            error = f"HTTP {problem.failure.status}: {problem}"
        except WireError as problem:
            error = f"the reply cannot be decoded: {problem}"
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
    client: EvalClient,
    work: Iterable[tuple[str, EvalQuestion]],
    done: Callable[[GradedAnswer], None],
    *,
    concurrency: int = 1,
) -> None:
    """Ask `work`, up to `concurrency` questions at a time; `done` receives each answer."""
    remaining = iter(work)

    async def ask_remaining() -> None:
        for mode, question in remaining:
            done(await client.ask(mode, question))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(ask_remaining())
    except ExceptionGroup as problems:
        raise problems.exceptions[0] from None


# Gateways.


@asynccontextmanager
async def connect_gateway(
    url: str, key: str, model: str, limits: QuestionLimits
) -> AsyncGenerator[EvalClient, None]:
    """Connect to a running gateway."""
    client = EvalClient(
        url.rstrip("/").removesuffix("/v1"), key, model, {GATEWAY_MODE: model}, limits
    )
    try:
        await client.check_gateway()
        yield client
    finally:
        client.close()


@asynccontextmanager
async def start_gateway(
    config: Config,
    environ: Mapping[str, str],
    model: str,
    modes: Sequence[ToolsMode],
    limits: QuestionLimits,
) -> AsyncGenerator[EvalClient, None]:
    """Start a gateway on a free local port, with the model once per mode."""
    source = _ModelSource(config, environ, model, limits)
    try:
        await source.start()
        async with _serve_model(source, modes) as client:
            yield client
    finally:
        await source.stop()


class _ModelSource:
    """Finds the model: configured, of a provider, or on this machine."""

    def __init__(
        self, config: Config, environ: Mapping[str, str], model: str, limits: QuestionLimits
    ) -> None:
        self._config = config
        self._environ = environ
        self._name = model
        self.limits = limits
        self._local = LocalModels(config)
        self._key = secrets.token_urlsafe(16)

    async def start(self) -> None:
        """Discover models on this machine, unless the configuration has the model."""
        name = self._name or self._config.default
        if not (name and Catalog(self._config, self._environ).find_model(name)):
            await self._local.start()

    async def stop(self) -> None:
        await self._local.stop()

    async def wait_until_ready(self) -> None:
        """Wait while the embedded model restarts, if it is the model in question."""
        if self.find_model()[0].upstream == EMBEDDED:
            while not self._local.is_ready():
                await asyncio.sleep(_LOOK_EVERY)

    def find_model(self) -> tuple[ModelSettings, UpstreamSettings]:
        """Return the model and its upstream; the embedded model's address changes on a restart."""
        catalog = Catalog(self._config, self._environ, self._local.servers())
        name = self._name or catalog.default_model
        model = catalog.find_model(name) if name else None
        endpoint = catalog.find_endpoint(model.upstream) if model else None
        if model is None or endpoint is None:
            raise self._unknown_model(catalog, name)
        # Answers of fallback models must not be measured.
        return model, structs.replace(endpoint.settings, fallbacks=())

    def _unknown_model(self, catalog: Catalog, name: str) -> ToolspeakError:
        problem = catalog.unknown_model(name)
        if self._local.load_error:
            return UsageError(f"{problem}; no embedded model: {self._local.load_error}")
        return problem

    def build_config(self, modes: Sequence[ToolsMode]) -> Config:
        """Return a configuration with nothing but the model, named after each mode."""
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
    client = EvalClient(url, config.server.keys[0], title, names, source.limits, settled)
    try:
        await ready.wait()
        yield client
    finally:
        client.close()
        server.stop(signal.SIGTERM)
        await serving
