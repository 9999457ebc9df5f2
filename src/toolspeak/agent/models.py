"""The model of an agent: one that is asked by the gateway's own means, or a function.

"ollama/qwen3:8b"               a model of a provider, or one that the configuration names
"embedded"                      the one that comes with Toolspeak
"http://127.0.0.1:8080/v1"      a server that speaks OpenAI's API; `…/v1#name`: that model of it
async def model(request)        anything else: it gets a `Request`, and gives text or a `Reply`
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec import structs

from ..engine import Attempt, ModelProfile, Pipeline, run_pipeline
from ..errors import ToolspeakError, UpstreamError, UsageError
from ..events import Event, Finish, Started, TextDelta, unfold
from ..types import Capabilities, Failure, Reasoning, Reply, Request, Text, ToolCall, ToolsMode
from .concurrency import EventChannel, run_in_thread

if TYPE_CHECKING:
    from ..config.settings import Config
    from ..upstream.catalog import Catalog, ResolvedModel
    from ..upstream.client import UpstreamClient
    from ..upstream.discovery import LocalModels
    from ..upstream.model_call import ModelCall, ModelServices
    from ..upstream.timers import Ticker

ModelFunction = Callable[[Request], Any]
"""Gives text, in which calls are looked for, or what a reply is made of: calls, text, thoughts."""
_SERVER = "server"
_PARTS = (Text, Reasoning, ToolCall)


class ModelFailed(ToolspeakError):
    """The model has given no reply, or not all of it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Model(Protocol):
    """Whoever answers a request."""

    def ask(self, request: Request) -> AsyncGenerator[Event]:
        """What happens while the reply comes; `ModelFailed` if it does not."""
        ...

    async def close(self) -> None:
        """Let go of all that it holds."""
        ...


Given = str | ModelFunction | Model
"""What an agent may be given as its model."""


class FunctionModel:
    """A function that answers. It gets the request as a model would: with its tools, or with the
    tools told in the prompt if `tools` says so, and is asked again if its reply will not do."""

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

    async def ask(self, request: Request) -> AsyncGenerator[Event]:
        pipeline = Pipeline(request, [self._profile], is_streaming=False)

        async def call_function(attempt: Attempt) -> None:
            value = await self._call(attempt.model_request)
            if failures := pipeline.receive(pipeline.reader.read_events(_events_of(value))):
                raise UpstreamError(next(one for one in failures if isinstance(one, Failure)))

        try:
            rest = await run_pipeline(pipeline, call_function)
        except UpstreamError as problem:
            raise ModelFailed(problem.failure) from None
        for event in rest:
            yield event

    async def _call(self, request: Request) -> Any:
        """Call the function; in a thread, if it is not a coroutine function and may block."""
        if inspect.iscoroutinefunction(self._function):
            return await self._function(request)
        value = await run_in_thread(self._function, request)
        return await value if inspect.isawaitable(value) else value

    async def close(self) -> None:
        """There is nothing to let go of."""


def _events_of(value: Any) -> list[Event]:
    match value:
        case str():
            return [Started(), TextDelta(value), Finish("stop")]
        case Reply():
            return list(unfold(value))
        case ToolCall():
            return _events_of([value])
        case list() | tuple() if all(isinstance(part, _PARTS) for part in value):
            stop = "calls" if any(isinstance(part, ToolCall) for part in value) else "stop"
            return list(unfold(Reply(parts=tuple(value), stop_reason=stop)))
        case _:
            kind = type(value).__name__
            raise UsageError(f"Expected text, calls or a Reply from the model, got `{kind}`")


class LiveModel:
    """A model that is asked over HTTP, as the gateway asks."""

    def __init__(
        self, name: str, config: Config | None = None, polling: tuple[str, ...] = ()
    ) -> None:
        self.name = name
        self._polling = polling
        self._config = config
        self._opened: _Opened | None = None
        self._opening = asyncio.Lock()

    async def ask(self, request: Request) -> AsyncGenerator[Event]:
        from ..upstream.model_call import ModelCall

        opened = await self._open()
        relay = EventChannel[list[Event]]()
        asking = ModelCall(opened.services, request, opened.served(self._polling), _Outlet(relay))
        async with aclosing(relay.stream(_all_of(asking, relay))) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def check(self) -> None:
        """Make sure that there is such a model; load it, if it is the embedded one."""
        await self._open()

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened:
            await opened.close()

    async def _open(self) -> _Opened:
        async with self._opening:
            if self._opened is None:
                self._opened = await _opened(self.name, self._config)
            return self._opened


class _Outlet:
    """Where the pieces of a reply go."""

    def __init__(self, relay: EventChannel[list[Event]]) -> None:
        self._relay = relay

    async def send(
        self, events: list[Event], unchanged: bytes | None = None, now: float | None = None
    ) -> None:
        await self._relay.send(events)


async def _all_of(asking: ModelCall, relay: EventChannel[list[Event]]) -> None:
    try:
        rest = await asking.run()
    except UpstreamError as problem:
        raise ModelFailed(problem.failure) from None
    await asking.learn(asking.fold(rest))
    await relay.send(rest)


class _Opened:
    """What it takes to ask."""

    def __init__(self, name: str, catalog: Callable[[], Catalog], local: LocalModels) -> None:
        from ..store.base import MemoryStore
        from ..upstream.client import UpstreamClient
        from ..upstream.memory import Memory
        from ..upstream.model_call import ModelServices
        from ..upstream.timers import Ticker

        self._name = name
        self._catalog = catalog
        self._local = local
        self._ticker: Ticker = Ticker()
        self._upstreams: UpstreamClient = UpstreamClient(self._ticker)
        self.services: ModelServices = ModelServices(self._upstreams, Memory(MemoryStore()))

    def served(self, polling: tuple[str, ...] = ()) -> ResolvedModel:
        """The model as it can be asked now: the embedded one moves when it is started again."""
        catalog = self._catalog()
        served = catalog.resolve_exact(self._name or catalog.default_model)
        target = structs.replace(
            served.profile, polling_tools=(*served.profile.polling_tools, *polling)
        )
        return structs.replace(served, profile=target)

    async def checked(self) -> _Opened:
        """The same, once it is certain that there is such a model."""
        if self._name == f"{_SERVER}/":
            self._name += await self._first_model()
        self.served()
        return self

    async def _first_model(self) -> str:
        """The model that a server lists first."""
        from ..upstream.discovery import list_models

        endpoint = self._catalog().find_endpoint(_SERVER)
        assert endpoint is not None
        names = await list_models(self._upstreams, endpoint, "/models")
        if not names:
            problem = f"{endpoint.base_url} does not answer, or lists no models"
            raise UsageError(f"{problem}: name one, as in `…/v1#name`")
        return names[0]

    async def close(self) -> None:
        self._upstreams.close()
        self._ticker.stop()
        await self._local.stop()


async def _opened(name: str, config: Config | None) -> _Opened:
    """All that it takes to ask the model of that name. Nothing is looked for or loaded that it does
    not need."""
    from ..config.loading import load_config
    from ..upstream.catalog import EMBEDDED, Catalog
    from ..upstream.discovery import KNOWN_SERVERS, LocalModels

    config = config or load_config(None, os.environ)
    is_embedded = name in ("", EMBEDDED)
    if "://" in name:
        config, name = _with_server(config, name)
    elif name:
        config = structs.replace(config, embedded=is_embedded)
    is_known = bool(name) and _is_known(Catalog(config, os.environ), name)
    local = LocalModels(config, () if is_known or name == EMBEDDED else KNOWN_SERVERS)
    await local.start()
    if is_embedded and local.load_error:
        await local.stop()
        raise UsageError(f"there is no embedded model: {local.load_error}")
    if name == EMBEDDED and local.embedded:
        # And not the default model, which may be elsewhere.
        name = f"{EMBEDDED}/{local.embedded.model}"
    opened = _Opened(name, lambda: Catalog(config, os.environ, local.servers()), local)
    try:
        return await opened.checked()
    except BaseException:
        await opened.close()
        raise


def _is_known(catalog: Catalog, name: str) -> bool:
    """Whether a name needs no look around."""
    return catalog.find_model(name) is not None


def _with_server(config: Config, address: str) -> tuple[Config, str]:
    """The configuration with a server that speaks OpenAI's API, and a model of it."""
    from ..config.settings import UpstreamSettings

    base_url, _, model = address.partition("#")
    server = UpstreamSettings(provider="custom", wire="openai_chat", base_url=base_url)
    upstreams = {**config.upstreams, _SERVER: server}
    return structs.replace(config, embedded=False, upstreams=upstreams), f"{_SERVER}/{model}"


def as_model(given: Given, config: Config | None, polling: tuple[str, ...]) -> Model:
    """The model that is meant. `polling`: the tools that it may call as often as it likes."""
    if isinstance(given, str):
        return LiveModel(given, config, polling)
    if hasattr(given, "ask"):
        return cast(Model, given)
    return FunctionModel(cast(ModelFunction, given), polling=polling)
