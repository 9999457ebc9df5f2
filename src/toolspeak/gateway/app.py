"""The gateway: which request goes where, and how it ends."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..calls.drafts import new_call_id
from ..config.checks import TELEMETRY_MISSING, is_telemetry_installed
from ..config.settings import Config
from ..errors import UsageError, WireError
from ..observe.inspector.client import CHAT_PATH, INSPECTOR_ROOT
from ..observe.inspector.recorder import RequestRecorder
from ..observe.logs import REQUEST_ID, log_request
from ..observe.metrics import MetricRegistry, SharedMetricRegistry, count_request
from ..store.base import MemoryStore, Store, open_store
from ..types import Failure
from ..upstream.catalog import Catalog, DiscoveredServer, UnknownModelError
from ..upstream.client import UpstreamClient
from ..upstream.errors import UpstreamError
from ..upstream.memory import Memory
from ..upstream.model_call import ModelServices
from ..upstream.record import CLIENT_CLOSED, RequestRecord
from ..upstream.timers import Ticker
from ..wires import get_wire
from ..wires.framing import encode_json
from ..wires.routes import Route, match_route
from .auth import AccessControl, accepts_html
from .chat_handler import ChatHandler
from .conversation_store import ResponseStore
from .http import Gone, Incoming, Refused, Sender
from .inspector_routes import InspectorRoutes
from .model_list import ModelList
from .token_count import count_tokens

if TYPE_CHECKING:
    from ..observe.tracing import RequestTracer

log = logging.getLogger("toolspeak.gateway")

_GEMINI = r"(?:/v1(?:alpha|beta)?)?/models"
_WIRES = (
    (re.compile(r"/v1/messages"), "anthropic"),
    (re.compile(r"/api/"), "ollama"),
    (re.compile(r"/v1(?:alpha|beta)/|.*:countTokens$"), "gemini"),
)
"""Which API a path belongs to, where no chat goes."""
_IDENTITY = re.compile(r"[\x21-\x7e]{1,128}")
_CHAT = Route("openai_chat")
"""How the inspector's page chats."""
Handler = Callable[["RequestContext", "re.Match[str]"], Awaitable[None]]


class RequestContext:
    """A request and where its answer goes."""

    def __init__(self, incoming: Incoming, sender: Sender, client: str) -> None:
        self.incoming = incoming
        self.sender = sender
        self.client_key = client

    async def send_json(self, value: Any, status: int = 200) -> None:
        """Answer with a JSON value."""
        await self.sender.whole(status, encode_json(value))


class Gateway:
    """Serves every API on one port."""

    def __init__(
        self,
        config: Config,
        *,
        environ: Mapping[str, str] | None = None,
        found: Callable[[], Iterable[DiscoveredServer]] = tuple,
        store: Store | None = None,
        is_ready: Callable[[], bool] = lambda: True,
        ping_after: float = 15.0,
        token: str = "",
        tracing: RequestTracer | None = None,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._found = found
        self._is_ready = is_ready
        self.ping_after = ping_after
        """How many seconds a client waits at most until it hears that it is not forgotten."""
        self.store = store or open_store(config.store)
        self.memory = Memory(self.store)
        self.responses = ResponseStore(self.memory)
        self.metrics = MetricRegistry()
        is_shared = not isinstance(self.store, MemoryStore)
        self._shared = SharedMetricRegistry(self.metrics, self.store) if is_shared else None
        self.ticker = Ticker()
        self.upstreams = UpstreamClient(self.ticker)
        self.services = ModelServices(self.upstreams, self.memory)
        self._tracing = tracing or _open_tracer(config)
        self._token = token
        """What opens the inspector on loopback."""
        self.recorder: RequestRecorder | None = None
        """What keeps requests for people to look at; None if nobody may."""
        self._is_running = False
        self.is_stopping = False
        self.reload(config)
        self._pages = InspectorRoutes(self)
        self._routes: list[tuple[str, re.Pattern[str], Handler]] = [
            (method, re.compile(path), handler)
            for method, path, handler in (
                ("GET", r"/", self._root),
                ("GET", r"/health", self._health),
                ("GET", r"/ready", self._ready),
                ("GET", r"/metrics", self._metrics),
                ("GET", r"(?:/v1)?/models", self._models),
                ("GET", r"/v1/models/(?P<model>.+)", self._model),
                ("GET", r"/v1(?:alpha|beta)/models", self._gemini_models),
                ("GET", r"/v1(?:alpha|beta)/models/(?P<model>[^:]+)", self._gemini_model),
                ("GET", r"/api/tags", self._tags),
                ("GET", r"/api/version", self._version),
                ("POST", r"/api/show", self._show),
                ("POST", r"/v1/messages/count_tokens", self._count_anthropic),
                ("POST", _GEMINI + r"/(?P<model>.+):countTokens", self._count_gemini),
                ("GET|DELETE", r"/v1/responses/(?P<id>[\w.\-]+)", self._response),
                ("POST", r"(?:/v1)?/embeddings", self._embeddings),
                ("POST", r"/api/embed(?:dings)?", self._embeddings),
                *self._pages.routes,
            )
        ]

    def reload(self, config: Config) -> None:
        """Serve what comes from now on by another configuration."""
        self.config = config
        self.access = AccessControl(config, self._token)
        self._catalog: Catalog | None = None
        self._record(config)

    def _record(self, config: Config) -> None:
        """Keep requests for those who may look, if anybody may."""
        if not self.access.inspector.is_open:
            if self.recorder:
                self.recorder.stop()
            self.recorder = None
        elif self.recorder:
            self.recorder.configure(config)
        else:
            is_shared = not isinstance(self.store, MemoryStore)
            epoch = hashlib.blake2b(self._token.encode(), digest_size=8).hexdigest()
            self.recorder = RequestRecorder(config, self.store, is_shared=is_shared, epoch=epoch)
            if self._is_running:
                self.recorder.start()

    @property
    def catalog(self) -> Catalog:
        """All models that can be asked for now."""
        found = tuple(self._found())
        if self._catalog is None or self._catalog.discovered != found:
            self._catalog = Catalog(self.config, self._environ, found)
        return self._catalog

    def start(self) -> None:
        """From now on there is an event loop."""
        self._is_running = True
        if self._shared:
            self._shared.start()
        if self.recorder:
            self.recorder.start()

    async def close(self) -> None:
        """Let go of every connection."""
        if self._shared:
            await self._shared.stop()
        if self.recorder:
            self.recorder.stop()
        self.upstreams.close()
        self.ticker.stop()
        if self._tracing:
            await self._tracing.close()
        await self.store.close()

    async def serve(self, incoming: Incoming, sender: Sender) -> None:
        """Answer one request."""
        identity = incoming.headers.get("x-request-id", "")
        if not identity or not _IDENTITY.fullmatch(identity):
            identity = f"req_{new_call_id()[5:]}"
        REQUEST_ID.set(identity)
        sender.headers |= {"x-request-id": identity, "x-toolspeak": "1"}
        where = _CHAT if incoming.path == CHAT_PATH else match_route(incoming.target)
        wire = where.wire if where else _wire_for(incoming)
        is_chat = where is not None and incoming.method == "POST"
        record = RequestRecord(identity, incoming.method, incoming.path, wire, is_chat)
        if incoming.path.startswith(INSPECTOR_ROOT) and where is None:
            await self._served(incoming, sender, record, None)
            return
        if self._tracing:
            self._tracing.start_request(record, incoming.headers)
        self.metrics.active_requests += 1
        try:
            await self._served(incoming, sender, record, where)
        finally:
            self.metrics.active_requests -= 1
            record.end(sender.status, sender.headers)
            self._tell(record)

    def _tell(self, record: RequestRecord) -> None:
        """Count, log, trace and keep a request that is over."""
        count_request(record, self.metrics)
        log_request(record)
        if self._tracing:
            self._tracing.end_request(record)
        if self.recorder:
            self.recorder.end(record)

    async def _served(
        self, incoming: Incoming, sender: Sender, record: RequestRecord, where: Route | None
    ) -> None:
        try:
            try:
                self._allow_origin(incoming, sender)
                client = self.access.authorize(incoming)
                if where and incoming.method == "POST":
                    self._check_load()
                    if self.recorder:
                        self.recorder.begin(record, incoming, sender)
                    await ChatHandler(self, incoming, sender, record, where, client).serve()
                else:
                    await self._other(RequestContext(incoming, sender, client), where)
            except Gone:
                raise
            except (Exception, asyncio.CancelledError) as problem:
                incoming.unwatch()
                record.failure = failure = _failure(problem, incoming, sender, record)
                await self._fail(sender, record.wire, failure)
        except Gone:
            record.status = CLIENT_CLOSED
        finally:
            incoming.unwatch()

    async def _other(self, exchanged: RequestContext, where: Route | None) -> None:
        """Serve what is no chat."""
        if exchanged.incoming.method == "OPTIONS":
            await exchanged.sender.whole(204, b"")
            return
        handler, match = self._handler(exchanged.incoming, where)
        await handler(exchanged, match)

    def _check_load(self) -> None:
        most = self.config.limits.concurrent_requests
        if self.metrics.active_requests > most:
            problem = f"{most} requests are being served already; try again, or raise "
            problem += "`limits.streams`"
            raise Refused(Failure("overloaded", problem, 503), {"retry-after": "1"})

    def _handler(self, incoming: Incoming, where: Route | None) -> tuple[Handler, re.Match[str]]:
        path = incoming.path.rstrip("/") or "/"
        method = "GET" if incoming.method == "HEAD" else incoming.method
        others = {"POST"} if where else set[str]()
        for methods, pattern, handler in self._routes:
            match = pattern.fullmatch(path)
            if match and method in methods.split("|"):
                return handler, match
            others.update(methods.split("|") if match else ())
        if others:
            allowed = ", ".join(sorted(others))
            problem = f"{path} takes {allowed}, not {incoming.method}"
            raise Refused(Failure("bad_request", problem, 405), {"allow": allowed})
        raise Refused(Failure("not_found", f"there is nothing at {incoming.method} {path}", 404))

    def _allow_origin(self, incoming: Incoming, sender: Sender) -> None:
        """Tell a browser that a page may read the answer, if that page is one of those. What the
        inspector shows is for no page but its own."""
        origin = incoming.headers.get("origin", "")
        if (
            not origin
            or incoming.path.startswith(INSPECTOR_ROOT)
            or not self.access.allows_origin(origin)
        ):
            return
        sender.headers |= {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": "*",
            "vary": "origin",
        }
        if incoming.method == "OPTIONS":
            wanted = incoming.headers.get("access-control-request-headers", "*")
            sender.headers |= {
                "access-control-allow-headers": wanted,
                "access-control-allow-methods": "GET, POST, DELETE",
                "access-control-allow-private-network": "true",
                "access-control-max-age": "600",
            }

    async def _fail(self, sender: Sender, wire: str, failure: Failure) -> None:
        if not sender.has_begun:
            body = encode_json(get_wire(wire).encode_failure(failure))
            await sender.whole(failure.status, body)
        elif sender.told and not sender.has_ended:
            await sender.end(sender.told(failure))

    # What is not a chat.

    async def _root(self, it: RequestContext, _: re.Match[str]) -> None:
        if accepts_html(it.incoming):
            await self._pages.send_page(it)
            return
        await it.send_json({"name": "toolspeak", "health": "/health", "models": "/v1/models"})

    async def _health(self, it: RequestContext, _: re.Match[str]) -> None:
        await it.send_json({"status": "ok"})

    async def _ready(self, it: RequestContext, _: re.Match[str]) -> None:
        ready = self._is_ready()
        await it.send_json({"status": "ready" if ready else "starting"}, 200 if ready else 503)

    async def _metrics(self, it: RequestContext, _: re.Match[str]) -> None:
        text = await self._shared.render() if self._shared else self.metrics.render()
        await it.sender.whole(200, text.encode(), "text/plain; version=0.0.4")

    async def _models(self, it: RequestContext, _: re.Match[str]) -> None:
        listing = ModelList(self.catalog)
        is_anthropic = "anthropic-version" in it.incoming.headers
        await it.send_json(listing.anthropic() if is_anthropic else listing.openai())

    async def _model(self, it: RequestContext, match: re.Match[str]) -> None:
        listing, name = ModelList(self.catalog), match["model"]
        is_anthropic = "anthropic-version" in it.incoming.headers
        one = listing.anthropic_one if is_anthropic else listing.openai_one
        await it.send_json(one(name))

    async def _gemini_models(self, it: RequestContext, _: re.Match[str]) -> None:
        await it.send_json(ModelList(self.catalog).gemini())

    async def _gemini_model(self, it: RequestContext, match: re.Match[str]) -> None:
        await it.send_json(ModelList(self.catalog).gemini_one(match["model"]))

    async def _tags(self, it: RequestContext, _: re.Match[str]) -> None:
        await it.send_json(ModelList(self.catalog).ollama())

    async def _version(self, it: RequestContext, _: re.Match[str]) -> None:
        await it.send_json(ModelList(self.catalog).ollama_version())

    async def _show(self, it: RequestContext, _: re.Match[str]) -> None:
        body = await self._body(it)
        name = str(body.get("model") or body.get("name") or "")
        await it.send_json(ModelList(self.catalog).ollama_show(name))

    async def _count_anthropic(self, it: RequestContext, _: re.Match[str]) -> None:
        tokens = await self._tokens(it, Route("anthropic"), await self._body(it))
        await it.send_json({"input_tokens": tokens})

    async def _count_gemini(self, it: RequestContext, match: re.Match[str]) -> None:
        body = await self._body(it)
        inner = body.get("generateContentRequest", body)
        tokens = await self._tokens(it, Route("gemini", match["model"]), inner)
        await it.send_json({"totalTokens": tokens})

    async def _tokens(self, it: RequestContext, where: Route, body: dict[str, Any]) -> int:
        given = {"max_tokens": 1, **body} if where.wire == "anthropic" else body
        request = get_wire(where.wire).decode_request(given, model=where.model, stream=False)
        served = self.catalog.resolve(request.model)
        tokens, is_counted = await count_tokens(request, body, served, self.upstreams)
        it.sender.headers["x-toolspeak-estimated"] = str(not is_counted).lower()
        return tokens

    async def _response(self, it: RequestContext, match: re.Match[str]) -> None:
        body = await self.responses.read_body(it.client_key, match["id"])
        if body is None:
            raise Refused(Failure("not_found", f"there is no response {match['id']!r}", 404))
        if it.incoming.method == "DELETE":
            await self.responses.delete(it.client_key, match["id"])
            await it.send_json({"id": match["id"], "object": "response", "deleted": True})
            return
        await it.sender.whole(200, body)

    async def _embeddings(self, it: RequestContext, _: re.Match[str]) -> None:
        """Passed through to an upstream of the same API."""
        body = await self._body(it)
        served = self.catalog.resolve(str(body.get("model", "")))
        wire = "ollama" if it.incoming.path.startswith("/api/") else "openai_chat"
        if served.endpoint.wire != wire:
            problem = f"the upstream {served.endpoint.name} has no {it.incoming.path}"
            raise Refused(Failure("not_found", problem, 404))
        path = it.incoming.path.rstrip("/").removeprefix("/v1")
        data = encode_json({**body, "model": served.profile.model})
        with await self.upstreams.request(served.endpoint, path, data) as response:
            if response.status >= 300:
                raise await response.read_error()
            content_type = response.content_type or "application/json"
            await it.sender.whole(response.status, await response.read_body(), content_type)

    async def _body(self, it: RequestContext) -> dict[str, Any]:
        return await it.incoming.value(self.config.limits)


def _failure(
    problem: BaseException, incoming: Incoming, sender: Sender, record: RequestRecord
) -> Failure:
    """What a client is told of what has gone wrong."""
    match problem:
        case Refused() | UpstreamError():
            sender.headers.update(problem.headers)
            return problem.failure
        case UnknownModelError() | WireError():
            return problem.failure
        case asyncio.CancelledError() if incoming.is_gone:
            raise Gone from None
        case asyncio.CancelledError():
            # Whoever stops the server has waited as long as that may take.
            return Failure("overloaded", "the gateway was stopped before this was done", 503)
        case _:
            identity = record.id
            log.error(
                "%s has failed: %s %s",
                identity,
                incoming.method,
                incoming.path[:200],
                exc_info=problem,
            )
            what = f"something went wrong in the gateway; its log tells more under {identity}"
            return Failure("internal", what, 500)


def _open_tracer(config: Config) -> RequestTracer | None:
    """Return a tracer if the configuration names a collector."""
    if not config.telemetry.otlp_endpoint:
        return None
    if not is_telemetry_installed():
        raise UsageError(TELEMETRY_MISSING)
    # OpenTelemetry is an optional dependency.
    from ..observe.tracing import RequestTracer

    return RequestTracer(config)


def _wire_for(incoming: Incoming) -> str:
    """The API in whose shape to fail, where no chat goes."""
    if "anthropic-version" in incoming.headers:
        return "anthropic"
    found = (wire for path, wire in _WIRES if path.match(incoming.path))
    return next(found, "openai_chat")
