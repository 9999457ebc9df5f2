"""The gateway: authorizes each request, sends it to its handler, and reports errors to the client.

chat requests          chat_handler.py  (POST to the chat path of any API)
the inspector          inspector_routes.py
everything else        routes.py
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import mimetypes
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from .._util import encode_json, random_id
from ..config.checks import TELEMETRY_MISSING, is_telemetry_installed
from ..config.settings import Config
from ..errors import UpstreamError, UsageError, WireError
from ..observe.inspector.client import CHAT_PATH, INSPECTOR_ROOT
from ..observe.inspector.recorder import RequestRecorder
from ..observe.logs import REQUEST_ID, log_request
from ..observe.metrics import STORE_PROBLEMS, MetricRegistry, SharedMetricRegistry, count_request
from ..security.refusals import load_vocabulary
from ..store.base import MemoryStore, Store, open_store
from ..types import Failure
from ..upstream.catalog import Catalog, DiscoveredServer, UnknownModelError
from ..upstream.client import UpstreamClient
from ..upstream.http_pool import load_certificates
from ..upstream.learned_modes import LearnedModes
from ..upstream.model_call import ModelServices
from ..upstream.record import CLIENT_CLOSED, RequestRecord
from ..upstream.timers import Ticker
from ..wires import get_wire
from ..wires.routes import Route, match_route
from .auth import AccessControl
from .chat_handler import ChatHandler
from .conversation_store import ConversationStore
from .file_handles import FileHandles
from .http import (
    BodyBudget,
    ClientDisconnected,
    HttpRequest,
    HttpResponse,
    Receive,
    Refused,
    Scope,
    Send,
)
from .inspector_routes import InspectorRoutes, load_page_files
from .routes import ApiRoutes, RequestContext, Router

if TYPE_CHECKING:
    from ..observe.tracing import RequestTracer


log = logging.getLogger("toolspeak.gateway")

_WIRE_PATHS = (
    (re.compile(r"/v1/messages"), "anthropic"),
    (re.compile(r"/api/"), "ollama"),
    (re.compile(r"/v1(?:alpha|beta)/|.*:countTokens$"), "gemini"),
)
"""The API that a path belongs to, if it is not a chat path."""
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_INSPECTOR_CHAT = Route("openai_chat")


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
        live_seconds: float = inf,
        token: str = "",
        is_address_known: bool = True,
        tracing: RequestTracer | None = None,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._find_servers = found
        self.is_ready = is_ready
        self.ping_after = ping_after
        """Seconds without data after which a streaming client gets a ping."""
        self.live_seconds = live_seconds
        """How long responses that wait for the inspector's next change may last."""
        self.store = store or open_store(config.store, config.store_limits)
        self.conversations = ConversationStore(self.store)
        self.metrics = MetricRegistry()
        self.store.on_problem = partial(self.metrics.increment, STORE_PROBLEMS)
        self._is_shared = not isinstance(self.store, MemoryStore)
        self._shared = SharedMetricRegistry(self.metrics, self.store) if self._is_shared else None
        self.ticker = Ticker()
        self.upstreams = UpstreamClient(self.ticker)
        self.services = ModelServices(self.upstreams, LearnedModes(self.store))
        self.worker = self.services.worker
        self._tracing = tracing or _open_tracer(config)
        self._token = token
        """Opens the inspector on loopback."""
        self._is_address_known = is_address_known
        """False if `config.server` does not say where the server listens."""
        self.recorder: RequestRecorder | None = None
        """Captures requests for the inspector; None if the inspector is off."""
        self._bodies = BodyBudget()
        self._file_handles = FileHandles(self._count_missing_handles)
        self._is_running = False
        self.is_stopping = False
        self.reload(config)
        self.inspector_pages = InspectorRoutes(self)
        self._router = Router((*ApiRoutes(self).rows, *self.inspector_pages.routes))

    # Lifecycle.

    def reload(self, config: Config) -> None:
        """Use another configuration for all further requests."""
        self.config = config
        self.access = AccessControl(config, self._token, is_address_known=self._is_address_known)
        self._bodies.limit = config.limits.total_body_bytes
        self._catalog: Catalog | None = None
        self._configure_recorder(config)

    def _configure_recorder(self, config: Config) -> None:
        if not self.access.inspector.is_open:
            if self.recorder:
                self.recorder.stop()
            self.recorder = None
        elif self.recorder:
            self.recorder.configure(config)
        else:
            epoch = hashlib.blake2b(self._token.encode(), digest_size=8).hexdigest()
            self.recorder = RequestRecorder(
                config, self.store, is_shared=self._is_shared, epoch=epoch
            )
            if self._is_running:
                self.recorder.start()

    def start(self) -> None:
        """Start background tasks; an event loop must be running."""
        self._is_running = True
        self.worker.submit(partial(load_files, self.config))
        if self._shared:
            self._shared.start()
        if self.recorder:
            self.recorder.start()

    async def close(self) -> None:
        """Stop background tasks and close all connections."""
        if self._shared:
            await self._shared.stop()
        if self.recorder:
            self.recorder.stop()
        self.upstreams.close()
        self.worker.close()
        self.ticker.stop()
        if self._tracing:
            await self._tracing.close()
        await self.store.close()

    @property
    def catalog(self) -> Catalog:
        """The models that can be requested now."""
        servers = tuple(self._find_servers())
        if self._catalog is None or self._catalog.discovered != servers:
            self._catalog = Catalog(self.config, self._environ, servers)
        return self._catalog

    @property
    def body_bytes(self) -> int:
        """The bytes of all bodies of the requests being served."""
        return self._bodies.used

    async def metrics_text(self) -> str:
        """Return the metrics of all processes that share the store."""
        return await self._shared.render() if self._shared else self.metrics.render()

    # One request.

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of an ASGI server."""
        if scope["type"] == "http":
            request = HttpRequest(scope, receive, self.ticker, self._bodies)
            await self.serve(request, HttpResponse(send, request.stop_watching))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    async def serve(self, request: HttpRequest, response: HttpResponse) -> None:
        """Respond to one request, and record it."""
        request_id = request.headers.get("x-request-id", "")
        if not request_id or not _REQUEST_ID.fullmatch(request_id):
            request_id = f"req_{random_id()}"
        REQUEST_ID.set(request_id)
        response.headers |= {"x-request-id": request_id, "x-toolspeak": "1"}
        chat_route = _INSPECTOR_CHAT if request.path == CHAT_PATH else match_route(request.target)
        wire = chat_route.wire if chat_route else _guess_wire(request)
        is_chat = chat_route is not None and request.method == "POST"
        record = RequestRecord(request_id, request.method, request.path, wire, is_chat)
        if request.path.startswith(INSPECTOR_ROOT) and chat_route is None:
            # The inspector's own requests are not recorded.
            await self._respond(request, response, record, None)
            return
        if self._tracing:
            self._tracing.start_request(record, request.headers)
        self.metrics.active_requests += 1
        try:
            await self._respond(request, response, record, chat_route)
        finally:
            self.metrics.active_requests -= 1
            record.end(response.status, response.headers)
            self._report(record)

    def _report(self, record: RequestRecord) -> None:
        """Count, log, trace and keep a finished request."""
        count_request(record, self.metrics)
        log_request(record)
        if self._tracing:
            self._tracing.end_request(record)
        if self.recorder:
            self.recorder.end(record)

    async def _respond(
        self,
        request: HttpRequest,
        response: HttpResponse,
        record: RequestRecord,
        chat_route: Route | None,
    ) -> None:
        """Dispatch a request; send an error response if that fails."""
        try:
            try:
                await self._dispatch(request, response, record, chat_route)
            except ClientDisconnected:
                raise
            except (Exception, asyncio.CancelledError) as problem:
                request.stop_watching()
                record.failure = failure = _failure_for(problem, request, response, record)
                await _send_failure(response, record.wire, failure)
        except ClientDisconnected:
            record.status = CLIENT_CLOSED
        finally:
            request.stop_watching()
            request.release_body()

    async def _dispatch(
        self,
        request: HttpRequest,
        response: HttpResponse,
        record: RequestRecord,
        chat_route: Route | None,
    ) -> None:
        self._add_cors_headers(request, response)
        client_key = self.access.authorize(request)
        if chat_route and request.method == "POST":
            self._check_load()
            if self.recorder:
                capture = self.recorder.begin(record, request.target, request.headers)
                request.capture = response.capture = capture
            await ChatHandler(self, request, response, record, chat_route, client_key).serve()
        elif request.method == "OPTIONS":
            await response.send_whole(204, b"")
        else:
            handler, match = self._router.find(request, is_chat_path=chat_route is not None)
            await handler(RequestContext(request, response, client_key), match)

    def _check_load(self) -> None:
        limit = self.config.limits.concurrent_requests
        if self.metrics.active_requests > limit:
            message = f"the gateway is already serving {limit} requests; try again later, or "
            message += "raise `limits.concurrent_requests`"
            raise Refused(Failure("overloaded", message, 503), {"retry-after": "1"})
        if self._file_handles.are_scarce():
            message = "the gateway has too few file handles left; try again later, or start it "
            message += "with a higher `ulimit -n`"
            headers = {"retry-after": "1", "connection": "close"}
            raise Refused(Failure("overloaded", message, 503), headers)

    def _count_missing_handles(self) -> int:
        """Return how many of the requests being served may still open a connection."""
        return max(0, self.metrics.active_requests - self.upstreams.connection_count)

    def _add_cors_headers(self, request: HttpRequest, response: HttpResponse) -> None:
        """Allow pages of the configured origins to read the response, except the inspector's."""
        origin = request.headers.get("origin", "")
        if (
            not origin
            or request.path.startswith(INSPECTOR_ROOT)
            or not self.access.allows_origin(origin)
        ):
            return
        response.headers |= {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": "*",
            "vary": "origin",
        }
        if request.method == "OPTIONS":
            requested = request.headers.get("access-control-request-headers", "*")
            response.headers |= {
                "access-control-allow-headers": requested,
                "access-control-allow-methods": "GET, POST, DELETE",
                "access-control-allow-private-network": "true",
                "access-control-max-age": "600",
            }


def _open_tracer(config: Config) -> RequestTracer | None:
    """Return a tracer if the configuration names a collector."""
    if not config.telemetry.otlp_endpoint:
        return None
    if not is_telemetry_installed():
        raise UsageError(TELEMETRY_MISSING)
    # OpenTelemetry is an optional dependency.
    from ..observe.tracing import RequestTracer

    return RequestTracer(config)


async def _send_failure(response: HttpResponse, wire: str, failure: Failure) -> None:
    """Send a failure in the client's format, as the response or as the end of its stream."""
    if not response.has_begun:
        body = encode_json(get_wire(wire).encode_failure(failure))
        await response.send_whole(failure.status, body)
    elif response.encode_failure and not response.has_ended:
        await response.end(response.encode_failure(failure))


def _failure_for(
    problem: BaseException, request: HttpRequest, response: HttpResponse, record: RequestRecord
) -> Failure:
    """Return the failure to report to the client, unless it has disconnected."""
    match problem:
        case Refused() | UpstreamError():
            response.headers.update(problem.headers)
            return problem.failure
        case UnknownModelError() | WireError():
            return problem.failure
        case asyncio.CancelledError() if request.is_disconnected:
            if task := asyncio.current_task():
                # The task may belong to an application that has mounted this one.
                task.uncancel()
            raise ClientDisconnected from None
        case asyncio.CancelledError():
            # The server stops, and its grace period is over.
            return Failure("overloaded", "the gateway stopped before the request was complete", 503)
        case _:
            path = request.path[:200]
            log.error("%s failed: %s %s", record.id, request.method, path, exc_info=problem)
            message = f"internal error; the gateway's log has details under {record.id}"
            return Failure("internal", message, 500)


def _guess_wire(request: HttpRequest) -> str:
    """Return the API for error responses on paths other than chat."""
    if "anthropic-version" in request.headers:
        return "anthropic"
    wires = (wire for path, wire in _WIRE_PATHS if path.match(request.path))
    return next(wires, "openai_chat")


def load_files(config: Config) -> None:
    """Read and cache the files that requests need later, while there are file handles for that."""
    mimetypes.init()
    load_page_files()
    load_vocabulary()
    upstreams = config.upstreams.values()
    if any(one.provider or one.base_url.startswith("https:") for one in upstreams):
        load_certificates()
