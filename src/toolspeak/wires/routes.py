"""The table of all wires, and the wire of each path that clients post to.

POST /v1/messages                              anthropic
POST /v1beta/models/m:streamGenerateContent    gemini, the model m, as a stream
"""

from __future__ import annotations

import re
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct

from ..errors import UsageError
from .anthropic import WIRE as ANTHROPIC
from .gemini import WIRE as GEMINI
from .ollama import WIRE as OLLAMA
from .openai_chat import WIRE as OPENAI_CHAT
from .openai_responses import WIRE as OPENAI_RESPONSES
from .wire import Wire

WIRES = {wire.name: wire for wire in (OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC, OLLAMA, GEMINI)}
_GEMINI_PATH = re.compile(
    r"(?:/v1(?:alpha|beta)?)?/(?:models|tunedModels)/(.+):(generateContent|streamGenerateContent)"
)


def get_wire(name: str) -> Wire:
    if name not in WIRES:
        raise UsageError(f"There is no wire {name!r}. Use one of: {', '.join(WIRES)}.")
    return WIRES[name]


class Route(Struct, frozen=True):
    """The facts about a request that its path tells."""

    wire: str
    model: str = ""
    stream: bool | None = None
    """None if the body says it."""
    is_array: bool = False
    """The stream is one JSON array."""
    implied_fields: dict[str, str] = {}
    """Fields of this path's requests that a body may omit."""


_ROUTES = {
    "/v1/chat/completions": Route("openai_chat"),
    "/chat/completions": Route("openai_chat"),
    "/v1/responses": Route("openai_responses"),
    "/responses": Route("openai_responses"),
    "/v1/messages": Route("anthropic"),
    "/api/chat": Route("ollama"),
    "/api/generate": Route("ollama", implied_fields={"prompt": ""}),
}


def match_route(target: str) -> Route | None:
    """Return the route of a path with its query; None if no wire has this path."""
    if target in _ROUTES:
        return _ROUTES[target]
    try:
        address = urlsplit(target)
    except ValueError:
        return None
    path = address.path.rstrip("/")
    if path in _ROUTES:
        return _ROUTES[path]
    match = _GEMINI_PATH.fullmatch(path)
    if match is None:
        return None
    stream = match[2] == "streamGenerateContent"
    array = stream and parse_qs(address.query).get("alt") != ["sse"]
    return Route("gemini", unquote(match[1]), stream, array)
