"""The gateway's endpoints besides chat: models, token counts, stored responses, embeddings, health.

`app.py` sends chat requests to `chat_handler.py` and everything else here or to the inspector.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from msgspec import structs, to_builtins

from .._util import encode_json
from ..calls.json_values import iter_strings
from ..engine import Pipeline
from ..errors import UpstreamError, WireError
from ..types import Failure, Request
from ..upstream.catalog import Endpoint, ResolvedModel
from ..upstream.client import UpstreamClient
from ..wires import get_wire
from ..wires.framing import decode_json
from ..wires.gemini.request import encode_model_path
from ..wires.routes import Route
from .auth import accepts_html
from .chat_handler import encode_model_name
from .http import HttpRequest, HttpResponse, Refused
from .model_list import OLLAMA_VERSION, ModelList
from .request_limits import read_json

if TYPE_CHECKING:
    from .app import Gateway

Handler = Callable[["RequestContext", "re.Match[str]"], Awaitable[None]]
RouteRow = tuple[str, str, Handler]
"""Methods separated by `|`, a pattern for the path, and the handler."""
_BYTES_PER_TOKEN = 3.6
"""For text, code and JSON, on average. A high estimate is safer than a low one."""
_TOKENS_PER_MESSAGE = 4
_COUNTING_PATHS = {"anthropic": "/v1/messages/count_tokens", "gemini": "/{path}:countTokens"}


class RequestContext:
    """A request, the response to it, and the key that the client has sent."""

    def __init__(self, request: HttpRequest, response: HttpResponse, client_key: str) -> None:
        self.request = request
        self.response = response
        self.client_key = client_key

    async def send_json(self, value: Any, status: int = 200) -> None:
        await self.response.send_whole(status, encode_json(value))


class Router:
    """Finds the handler for a request by its method and path."""

    def __init__(self, rows: Iterable[RouteRow]) -> None:
        self._routes = [
            (methods.split("|"), re.compile(path), handler) for methods, path, handler in rows
        ]

    def find(self, request: HttpRequest, *, is_chat_path: bool) -> tuple[Handler, re.Match[str]]:
        """Return the handler and the match of its path; raise `Refused` with 404 or 405."""
        path = request.path.rstrip("/") or "/"
        method = "GET" if request.method == "HEAD" else request.method
        allowed_methods = {"POST"} if is_chat_path else set[str]()
        for methods, pattern, handler in self._routes:
            match = pattern.fullmatch(path)
            if match and method in methods:
                return handler, match
            allowed_methods.update(methods if match else ())
        if allowed_methods:
            allowed = ", ".join(sorted(allowed_methods))
            message = f"{path} does not support {request.method}; use {allowed}"
            raise Refused(Failure("bad_request", message, 405), {"allow": allowed})
        message = f"{request.method} {path} is not an endpoint of this gateway"
        raise Refused(Failure("not_found", message, 404))


class ApiRoutes:
    """Handles the requests of every API that are not chats."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    @property
    def rows(self) -> tuple[RouteRow, ...]:
        gemini_models = r"(?:/v1(?:alpha|beta)?)?/models"
        return (
            ("GET", r"/", self._root),
            ("GET", r"/health", self._health),
            ("GET", r"/ready", self._ready),
            ("GET", r"/metrics", self._metrics),
            ("GET", r"(?:/v1)?/models", self._list_models),
            ("GET", r"/v1/models/(?P<model>.+)", self._show_model),
            ("GET", r"/v1(?:alpha|beta)/models", self._list_gemini_models),
            ("GET", r"/v1(?:alpha|beta)/models/(?P<model>[^:]+)", self._show_gemini_model),
            ("GET", r"/api/tags", self._list_ollama_models),
            ("GET", r"/api/version", self._ollama_version),
            ("POST", r"/api/show", self._show_ollama_model),
            ("POST", r"/v1/messages/count_tokens", self._count_anthropic_tokens),
            ("POST", gemini_models + r"/(?P<model>.+):countTokens", self._count_gemini_tokens),
            ("GET|DELETE", r"/v1/responses/(?P<id>[\w.\-]+)", self._stored_response),
            ("POST", r"(?:/v1)?/embeddings", self._embeddings),
            ("POST", r"/api/embed(?:dings)?", self._embeddings),
        )

    # The gateway itself.

    async def _root(self, context: RequestContext, _: re.Match[str]) -> None:
        if accepts_html(context.request):
            await self._gateway.inspector_pages.send_page(context)
            return
        await context.send_json({"name": "toolspeak", "health": "/health", "models": "/v1/models"})

    async def _health(self, context: RequestContext, _: re.Match[str]) -> None:
        await context.send_json({"status": "ok"})

    async def _ready(self, context: RequestContext, _: re.Match[str]) -> None:
        if not self._gateway.is_ready():
            await context.send_json({"status": "starting"}, 503)
            return
        # Without its store the gateway still serves requests, so it stays in rotation.
        is_whole = self._gateway.store.is_available
        await context.send_json({"status": "ready" if is_whole else "degraded"})

    async def _metrics(self, context: RequestContext, _: re.Match[str]) -> None:
        text = await self._gateway.metrics_text()
        await context.response.send_whole(200, text.encode(), "text/plain; version=0.0.4")

    # Models.

    @property
    def _models(self) -> ModelList:
        return ModelList(self._gateway.catalog)

    async def _list_models(self, context: RequestContext, _: re.Match[str]) -> None:
        models = self._models
        is_anthropic = "anthropic-version" in context.request.headers
        await context.send_json(models.anthropic_list() if is_anthropic else models.openai_list())

    async def _show_model(self, context: RequestContext, match: re.Match[str]) -> None:
        models = self._models
        is_anthropic = "anthropic-version" in context.request.headers
        show = models.anthropic_model if is_anthropic else models.openai_model
        await context.send_json(show(match["model"]))

    async def _list_gemini_models(self, context: RequestContext, _: re.Match[str]) -> None:
        await context.send_json(self._models.gemini_list())

    async def _show_gemini_model(self, context: RequestContext, match: re.Match[str]) -> None:
        await context.send_json(self._models.gemini_model(match["model"]))

    async def _list_ollama_models(self, context: RequestContext, _: re.Match[str]) -> None:
        await context.send_json(self._models.ollama_list())

    async def _show_ollama_model(self, context: RequestContext, _: re.Match[str]) -> None:
        body = await self._read_body(context)
        name = str(body.get("model") or body.get("name") or "")
        await context.send_json(self._models.ollama_model(name))

    async def _ollama_version(self, context: RequestContext, _: re.Match[str]) -> None:
        await context.send_json({"version": OLLAMA_VERSION})

    # Token counts.

    async def _count_anthropic_tokens(self, context: RequestContext, _: re.Match[str]) -> None:
        body = await self._read_body(context)
        tokens = await self._count_tokens(context, Route("anthropic"), body)
        await context.send_json({"input_tokens": tokens})

    async def _count_gemini_tokens(self, context: RequestContext, match: re.Match[str]) -> None:
        body = await self._read_body(context)
        inner = body.get("generateContentRequest", body)
        tokens = await self._count_tokens(context, Route("gemini", match["model"]), inner)
        await context.send_json({"totalTokens": tokens})

    async def _count_tokens(
        self, context: RequestContext, route: Route, body: dict[str, Any]
    ) -> int:
        # Anthropic's chat requests require `max_tokens`, its counting requests have none.
        complete = {"max_tokens": 1, **body} if route.wire == "anthropic" else body
        request = get_wire(route.wire).decode_request(complete, model=route.model, stream=False)
        model = self._gateway.catalog.resolve(request.model)
        tokens, is_counted = await _count_tokens(request, body, model, self._gateway.upstreams)
        context.response.headers["x-toolspeak-estimated"] = str(not is_counted).lower()
        return tokens

    # Stored responses and embeddings.

    async def _stored_response(self, context: RequestContext, match: re.Match[str]) -> None:
        conversations, response_id = self._gateway.conversations, match["id"]
        body = await conversations.read_body(context.client_key, response_id)
        if body is None:
            message = f"the response {response_id!r} is not stored, or has expired"
            raise Refused(Failure("not_found", message, 404))
        if context.request.method == "DELETE":
            await conversations.delete_response(context.client_key, response_id)
            await context.send_json({"id": response_id, "object": "response", "deleted": True})
            return
        await context.response.send_whole(200, body)

    async def _embeddings(self, context: RequestContext, _: re.Match[str]) -> None:
        """Forward the request to an upstream with the same API."""
        request = context.request
        body = await self._read_body(context)
        model = self._gateway.catalog.resolve(str(body.get("model", "")))
        wire = "ollama" if request.path.startswith("/api/") else "openai_chat"
        if model.endpoint.wire != wire:
            message = f"the upstream {model.endpoint.name} does not support {request.path}"
            raise Refused(Failure("not_found", message, 404))
        context.response.headers["x-toolspeak-model"] = encode_model_name(model.profile)
        path = request.path.rstrip("/").removeprefix("/v1")
        data = encode_json({**body, "model": model.profile.model})
        with await self._gateway.upstreams.request(model.endpoint, path, data) as response:
            if response.status >= 300:
                raise await response.read_error()
            content_type = response.content_type or "application/json"
            await context.response.send_whole(
                response.status, await response.read_body(), content_type
            )

    async def _read_body(self, context: RequestContext) -> dict[str, Any]:
        gateway = self._gateway
        return await read_json(context.request, gateway.config.limits, gateway.worker)


# Token counts: by the upstream if it can, else by an estimate.


async def _count_tokens(
    request: Request, body: dict[str, Any], model: ResolvedModel, upstreams: UpstreamClient
) -> tuple[int, bool]:
    """Return the number of tokens, and True if the upstream has counted them."""
    endpoint = model.endpoint
    count: int | None = None
    try:
        if endpoint.wire == request.wire and endpoint.wire in _COUNTING_PATHS:
            count = await _forward_count(body, model, upstreams)
        elif endpoint.wire == "openai_chat":
            count = await _count_by_llamacpp(request, model, upstreams)
    except (UpstreamError, WireError):
        pass
    return (count, True) if count is not None else (_estimate_tokens(request), False)


def _estimate_tokens(request: Request) -> int:
    plain = to_builtins((request.messages, request.tools))
    text_size = sum(len(text.encode("utf-8", "replace")) for text in iter_strings(plain))
    schema_size = len(encode_json([tool.parameters for tool in request.tools or ()]))
    content_tokens = round((text_size + schema_size) / _BYTES_PER_TOKEN)
    return content_tokens + _TOKENS_PER_MESSAGE * len(request.messages)


async def _forward_count(
    body: dict[str, Any], model: ResolvedModel, upstreams: UpstreamClient
) -> int | None:
    """Forward the client's request to an upstream with the same API."""
    name = model.profile.model
    path = _COUNTING_PATHS[model.endpoint.wire].format(path=encode_model_path(name))
    value = await _post(model.endpoint, path, {**body, "model": name}, upstreams)
    counts = map(value.get, ("input_tokens", "totalTokens")) if isinstance(value, dict) else ()
    return next((count for count in counts if isinstance(count, int)), None)


async def _count_by_llamacpp(
    request: Request, model: ResolvedModel, upstreams: UpstreamClient
) -> int | None:
    """Count with llama.cpp's endpoints, which the embedded model's server has too."""
    pipeline = Pipeline(request, [model.profile], is_streaming=False)
    body = next(pipeline.run()).outgoing.body
    endpoint = model.endpoint
    root = structs.replace(endpoint, base_url=endpoint.base_url.removesuffix("/v1"))
    rendered = await _post(root, "/apply-template", {"messages": body["messages"]}, upstreams)
    prompt = rendered.get("prompt") if isinstance(rendered, dict) else None
    if not isinstance(prompt, str):
        return None
    options = {"content": prompt, "add_special": True, "parse_special": True}
    value = await _post(root, "/tokenize", options, upstreams)
    tokens = value.get("tokens") if isinstance(value, dict) else None
    return len(tokens) if isinstance(tokens, list) else None


async def _post(endpoint: Endpoint, path: str, body: Any, upstreams: UpstreamClient) -> Any:
    with await upstreams.request(endpoint, path, encode_json(body)) as response:
        data = await response.read_body()
        return decode_json(data) if response.status == 200 else None
