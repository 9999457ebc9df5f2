"""Which wire a client speaks, by the path of its request.

POST /v1/messages                              anthropic
POST /v1beta/models/m:streamGenerateContent    gemini, the model m, as a stream
"""

from __future__ import annotations

import re
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct

_PATHS = {
    "/v1/chat/completions": "openai_chat",
    "/chat/completions": "openai_chat",
    "/v1/responses": "openai_responses",
    "/responses": "openai_responses",
    "/v1/messages": "anthropic",
    "/api/chat": "ollama",
    "/api/generate": "ollama",
}
_IMPLIED = {"/api/generate": {"prompt": ""}}
_GEMINI = re.compile(
    r"(?:/v1(?:alpha|beta)?)?/(?:models|tunedModels)/(.+):(generateContent|streamGenerateContent)"
)


class Route(Struct, frozen=True):
    """What a path says about a request."""

    wire: str
    model: str = ""
    stream: bool | None = None
    """None: the body says it."""
    is_array: bool = False
    """The stream is one JSON array."""
    implied_fields: dict[str, str] = {}
    """Fields that a body may leave out, though they tell what it asks for."""


_ROUTES = {
    path: Route(wire, implied_fields=_IMPLIED.get(path, {})) for path, wire in _PATHS.items()
}


def match_route(target: str) -> Route | None:
    """What the path of a request, with its query, says; None for a path that no wire has."""
    if target in _ROUTES:
        return _ROUTES[target]
    try:
        address = urlsplit(target)
    except ValueError:
        return None
    path = address.path.rstrip("/")
    if path in _ROUTES:
        return _ROUTES[path]
    match = _GEMINI.fullmatch(path)
    if match is None:
        return None
    stream = match[2] == "streamGenerateContent"
    array = stream and parse_qs(address.query).get("alt") != ["sse"]
    return Route("gemini", unquote(match[1]), stream, array)
