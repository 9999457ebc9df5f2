"""The table of all wires, and the wire of each path that clients post to.

POST /v1/messages                              anthropic
POST /v1beta/models/m:streamGenerateContent    gemini, the model m, as a stream
"""

from __future__ import annotations

import re
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct

from ..errors import UsageError
from . import openai
from .anthropic import reply as anthropic_reply
from .anthropic import request as anthropic_request
from .framing import JsonLines
from .gemini import reply as gemini_reply
from .gemini import request as gemini_request
from .ollama import reply as ollama_reply
from .ollama import request as ollama_request
from .openai_chat import reply as chat_reply
from .openai_chat import request as chat_request
from .openai_responses import reply_decoding as responses_decoding
from .openai_responses import reply_encoding as responses_encoding
from .openai_responses import request as responses_request
from .wire import Wire

_ALL = (
    Wire(
        name="openai_chat",
        decode_request=chat_request.decode_request,
        request_encoder=chat_request.ChatRequestEncoder,
        frame_decoder=chat_reply.ChatFrameDecoder,
        stream_encoder=chat_reply.ChatStreamEncoder,
        encode_failure=openai.encode_failure,
        parse_reply_body=chat_reply.parse_reply_body,
        read_text_chunk=chat_reply.read_text_chunk,
        is_frame_wanted=chat_reply.is_frame_wanted,
        can_forward=chat_reply.can_forward,
        unsupported_in_replies=frozenset({"order"}),
    ),
    Wire(
        name="openai_responses",
        decode_request=responses_request.decode_request,
        request_encoder=responses_request.ResponsesRequestEncoder,
        frame_decoder=responses_decoding.ResponsesFrameDecoder,
        stream_encoder=responses_encoding.ResponsesStreamEncoder,
        encode_failure=openai.encode_failure,
        messages_field="input",
        # Only this streamed error makes Codex shorten its conversation.
        streamed_failures=frozenset({"context_length"}),
    ),
    Wire(
        name="anthropic",
        key_header="x-api-key",
        decode_request=anthropic_request.decode_request,
        request_encoder=anthropic_request.AnthropicRequestEncoder,
        frame_decoder=anthropic_reply.AnthropicFrameDecoder,
        stream_encoder=anthropic_reply.AnthropicStreamEncoder,
        encode_failure=anthropic_reply.encode_failure,
        has_system_field=True,
        unsupported_in_replies=frozenset({"images"}),
    ),
    Wire(
        name="ollama",
        decode_request=ollama_request.decode_request,
        request_encoder=ollama_request.OllamaRequestEncoder,
        frame_decoder=ollama_reply.OllamaFrameDecoder,
        stream_encoder=ollama_reply.OllamaStreamEncoder,
        encode_failure=ollama_reply.encode_failure,
        framing=JsonLines,
        content_type="application/x-ndjson",
        model_load_reply={"done_reason": "load"},
        set_context_window=ollama_request.set_context_window,
        unsupported_in_replies=frozenset({"signatures", "images", "order", "refusals"}),
    ),
    Wire(
        name="gemini",
        key_header="x-goog-api-key",
        decode_request=gemini_request.decode_request,
        request_encoder=gemini_request.GeminiRequestEncoder,
        frame_decoder=gemini_reply.GeminiFrameDecoder,
        stream_encoder=gemini_reply.GeminiStreamEncoder,
        decode_failure=gemini_reply.decode_failure,
        encode_failure=gemini_reply.encode_failure,
        messages_field="contents",
        tool_choice_field="toolConfig.functionCallingConfig",
        has_system_field=True,
    ),
)
WIRES = {wire.name: wire for wire in _ALL}
_GEMINI_PATH = re.compile(
    r"(?:/v1(?:alpha|beta)?)?/(?:models|tunedModels)/(.+):(generateContent|streamGenerateContent)"
)


def get_wire(name: str) -> Wire:
    if name not in WIRES:
        raise UsageError(f"There is no API {name!r}. Use one of: {', '.join(WIRES)}.")
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
