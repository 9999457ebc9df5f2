"""How many tokens a request has: as the upstream counts, where it does, and else a guess."""

from __future__ import annotations

from typing import Any

from msgspec import structs, to_builtins

from ..calls.schema import iter_strings
from ..engine import Attempt
from ..engine.pipeline import Pipeline
from ..errors import WireError
from ..types import Request
from ..upstream.catalog import Endpoint, ResolvedModel
from ..upstream.client import UpstreamClient
from ..upstream.errors import UpstreamError
from ..wires.framing import decode_json, encode_json
from ..wires.gemini.request_encoding import encode_model_path

_BYTES_A_TOKEN = 3.6
"""What texts, code and JSON have on average; a guess has to be rather too high."""
_A_MESSAGE = 4
_ITS_OWN = {"anthropic": "/v1/messages/count_tokens", "gemini": "/{path}:countTokens"}


async def count_tokens(
    request: Request, raw: dict[str, Any], served: ResolvedModel, upstreams: UpstreamClient
) -> tuple[int, bool]:
    """The number of tokens, and whether it was counted."""
    endpoint = served.endpoint
    counted: int | None = None
    try:
        if endpoint.wire == request.wire and endpoint.wire in _ITS_OWN:
            counted = await _same_wire(raw, served, upstreams)
        elif endpoint.wire == "openai_chat":
            counted = await _tokenized(request, served, upstreams)
    except (UpstreamError, WireError):
        pass
    return (counted, True) if counted is not None else (estimate_tokens(request), False)


def estimate_tokens(request: Request) -> int:
    """A guess."""
    plain = to_builtins((request.messages, request.tools))
    said = sum(len(text.encode("utf-8", "replace")) for text in iter_strings(plain))
    keys = len(encode_json([tool.parameters for tool in request.tools or ()]))
    return round((said + keys) / _BYTES_A_TOKEN) + _A_MESSAGE * len(request.messages)


async def _same_wire(
    raw: dict[str, Any], served: ResolvedModel, upstreams: UpstreamClient
) -> int | None:
    model = served.profile.model
    path = _ITS_OWN[served.endpoint.wire].format(path=encode_model_path(model))
    value = await _post(served.endpoint, path, {**raw, "model": model}, upstreams)
    return _number(value, "input_tokens", "totalTokens")


async def _tokenized(
    request: Request, served: ResolvedModel, upstreams: UpstreamClient
) -> int | None:
    """As llama.cpp counts, which is the embedded model's server too."""
    first = Pipeline(request, served.profile, streams=False).exchange()
    body = (first or Attempt(request, served.profile)).outgoing.body
    root = _without_version(served.endpoint)
    written = await _post(root, "/apply-template", {"messages": body["messages"]}, upstreams)
    prompt = written.get("prompt") if isinstance(written, dict) else None
    if not isinstance(prompt, str):
        return None
    given = {"content": prompt, "add_special": True, "parse_special": True}
    value = await _post(root, "/tokenize", given, upstreams)
    tokens = value.get("tokens") if isinstance(value, dict) else None
    return len(tokens) if isinstance(tokens, list) else None


def _without_version(endpoint: Endpoint) -> Endpoint:
    return structs.replace(endpoint, base_url=endpoint.base_url.removesuffix("/v1"))


async def _post(endpoint: Endpoint, path: str, body: Any, upstreams: UpstreamClient) -> Any:
    with await upstreams.request(endpoint, path, encode_json(body)) as response:
        data = await response.read_body()
        return decode_json(data) if response.status == 200 else None


def _number(value: Any, *keys: str) -> int | None:
    found = (value.get(key) for key in keys) if isinstance(value, dict) else ()
    return next((number for number in found if isinstance(number, int)), None)
