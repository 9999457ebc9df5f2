"""Counts the tokens of a request: by the upstream if it can, else by an estimate."""

from __future__ import annotations

from typing import Any

from msgspec import structs, to_builtins

from ..calls.json_values import iter_strings
from ..engine import Pipeline
from ..errors import WireError
from ..types import Request
from ..upstream.catalog import Endpoint, ResolvedModel
from ..upstream.client import UpstreamClient
from ..upstream.errors import UpstreamError
from ..wires.framing import decode_json, encode_json
from ..wires.gemini.request_encoding import encode_model_path

_BYTES_PER_TOKEN = 3.6
"""The average of text, code and JSON. An estimate should rather be too high."""
_TOKENS_PER_MESSAGE = 4
_COUNTING_PATHS = {"anthropic": "/v1/messages/count_tokens", "gemini": "/{path}:countTokens"}


async def count_tokens(
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
    return (count, True) if count is not None else (estimate_tokens(request), False)


def estimate_tokens(request: Request) -> int:
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
