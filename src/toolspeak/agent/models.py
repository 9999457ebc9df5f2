"""The models of agents: one behind an upstream, or a function.

"ollama/qwen3:8b"               a provider's model, or a name from the configuration
"embedded"                      the model that comes with Toolspeak
"http://127.0.0.1:8080/v1"      a server with OpenAI's API; `…/v1#name` is one of its models
async def model(request)        a function that takes a `Request` and returns text or a `Reply`

Both run the engine's pipeline: it finds and checks calls, asks again after a fault, and falls back
to other upstreams.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec import structs

from ..engine import Attempt, ModelProfile, Pipeline, run_pipeline
from ..errors import ToolspeakError, UpstreamError, UsageError
from ..events import Event, Finish, Started, TextDelta, unfold
from ..types import Capabilities, Failure, Reasoning, Reply, Request, Text, ToolCall, ToolsMode
from .concurrency import call_function

if TYPE_CHECKING:
    from ..config.settings import Config
    from ..upstream.catalog import ResolvedModel
    from ..upstream.model_connection import ModelConnection

ModelFunction = Callable[[Request], Any]
"""Returns text, in which calls are parsed, or a list of calls, text and reasoning, or a `Reply`."""
SendEvents = Callable[[list[Event]], Awaitable[None]]
_SERVER = "server"
_PARTS = (Text, Reasoning, ToolCall)


class ModelFailed(ToolspeakError):
    """The model has given no reply, or only a part of one."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Model(Protocol):
    """A model that an agent asks."""

    async def ask(self, request: Request, send: SendEvents) -> None:
        """Send the events of the reply as they arrive; raise `ModelFailed` if it is incomplete."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


ModelLike = str | ModelFunction | Model


class FunctionModel:
    """A function as a model. It receives requests as a model would, in the mode that `tools` names,
    and is asked again if its reply is not usable."""

    def __init__(
        self,
        function: ModelFunction,
        *,
        tools: ToolsMode = "native",
        retries: int = 2,
        polling: tuple[str, ...] = (),
    ) -> None:
        self._function = function
        self._profile = ModelProfile(
            upstream="function",
            model=getattr(function, "__name__", "function"),
            wire="openai_chat",
            capabilities=Capabilities(native_tools=True),
            mode=tools,
            retries=retries,
            polling_tools=polling,
        )

    async def ask(self, request: Request, send: SendEvents) -> None:
        pipeline = Pipeline(request, [self._profile], is_streaming=False)

        async def send_attempt(attempt: Attempt) -> None:
            request = attempt.model_request
            if request.tool_choice.mode == "none":
                # An API may need the tools to read the history; a function does not.
                request = structs.replace(request, tools=None)
            events = _read_returned(await call_function(self._function, request))
            if failures := pipeline.receive(pipeline.reader.read_events(events)):
                raise UpstreamError(next(one for one in failures if isinstance(one, Failure)))

        try:
            await send(await run_pipeline(pipeline, send_attempt))
        except UpstreamError as problem:
            raise ModelFailed(problem.failure) from None

    async def close(self) -> None:
        """Do nothing: a function holds no connection."""


def _read_returned(value: Any) -> list[Event]:
    match value:
        case str():
            return [Started(), TextDelta(value), Finish("stop")]
        case Reply():
            return list(unfold(value))
        case ToolCall():
            return _read_returned([value])
        case list() | tuple() if all(isinstance(part, _PARTS) for part in value):
            stop = "calls" if any(isinstance(part, ToolCall) for part in value) else "stop"
            return list(unfold(Reply(parts=tuple(value), stop_reason=stop)))
        case _:
            kind = type(value).__name__
            raise UsageError(
                f"Expected text, calls or a Reply from the model function, got `{kind}`"
            )


class LiveModel:
    """A model behind an upstream, asked over HTTP as the gateway does."""

    def __init__(
        self, name: str, config: Config | None = None, polling: tuple[str, ...] = ()
    ) -> None:
        self.name = name
        self._polling = polling
        self._config = config
        self._connection: ModelConnection | None = None
        self._stack = AsyncExitStack()
        self._lock = asyncio.Lock()

    async def ask(self, request: Request, send: SendEvents) -> None:
        from ..upstream.model_call import ModelCall

        connection = await self.open()
        model = _add_polling_tools(await connection.resolve(), self._polling)
        call = ModelCall(connection.services, request, model, _EventSink(send))
        try:
            rest = await call.run()
        except UpstreamError as problem:
            raise ModelFailed(problem.failure) from None
        await call.learn(call.fold(rest))
        await send(rest)

    async def close(self) -> None:
        self._connection = None
        await self._stack.aclose()

    async def open(self) -> ModelConnection:
        """Connect to the model, or raise `UsageError` if it does not exist."""
        async with self._lock:
            if self._connection is None:
                try:
                    self._connection = await _connect(self.name, self._config, self._stack)
                except BaseException:
                    await self._stack.aclose()
                    raise
            return self._connection


def _add_polling_tools(model: ResolvedModel, polling: tuple[str, ...]) -> ResolvedModel:
    polling = (*model.profile.polling_tools, *polling)
    return structs.replace(model, profile=structs.replace(model.profile, polling_tools=polling))


class _EventSink:
    """Sends only the events of a reply, not its bytes."""

    def __init__(self, send: SendEvents) -> None:
        self._send = send

    async def send(
        self, events: list[Event], forwarded: bytes | None = None, now: float | None = None
    ) -> None:
        await self._send(events)


async def _connect(name: str, config: Config | None, stack: AsyncExitStack) -> ModelConnection:
    from ..config.loading import load_config
    from ..config.providers import EMBEDDED
    from ..upstream.model_connection import connect_model

    config = config or load_config(None, os.environ)
    if "://" in name:
        config, name = _add_server(config, name)
    elif name:
        config = structs.replace(config, embedded=name == EMBEDDED)
    connection = await stack.enter_async_context(connect_model(config, name))
    if connection.name == f"{_SERVER}/":
        connection.name += await _find_first_model(connection)
    await connection.resolve()
    return connection


async def _find_first_model(connection: ModelConnection) -> str:
    from ..upstream.catalog import Catalog
    from ..upstream.discovery import list_models

    endpoint = Catalog(connection.config, os.environ).find_endpoint(_SERVER)
    assert endpoint is not None
    names = await list_models(connection.services.upstreams, endpoint, "/models")
    if not names:
        problem = f"{endpoint.base_url} does not respond, or lists no models"
        raise UsageError(f"{problem}: check the URL, or name a model, as in `…/v1#name`")
    return names[0]


def _add_server(config: Config, address: str) -> tuple[Config, str]:
    """Add a server with OpenAI's API to the configuration; return also the model's name."""
    from ..config.addresses import parse_http_url
    from ..config.settings import UpstreamSettings

    base_url, _, model = address.partition("#")
    if parse_http_url(base_url) is None:
        raise UsageError(f"Expected a URL such as http://127.0.0.1:8080/v1, got {base_url!r}")
    server = UpstreamSettings(provider="custom", wire="openai_chat", base_url=base_url)
    upstreams = {**config.upstreams, _SERVER: server}
    return structs.replace(config, embedded=False, upstreams=upstreams), f"{_SERVER}/{model}"


def as_model(model: ModelLike, config: Config | None, polling: tuple[str, ...]) -> Model:
    """Return the model for an agent. `polling` are tools that may repeat a call without limit."""
    if isinstance(model, str):
        return LiveModel(model, config, polling)
    if hasattr(model, "ask"):
        return cast(Model, model)
    return FunctionModel(cast(ModelFunction, model), polling=polling)
