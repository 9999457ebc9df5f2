"""Gemini's generateContent and streamGenerateContent.

{"contents": [{"role": "user", "parts": [{"text": "Weather in Oslo?"}]}], "tools": [{…}]}

data: {"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": {}}}]}}]}
"""

from collections.abc import Callable

from ..framing import Framing, JsonArray, ServerSentEvents
from ..wire import Wire
from .errors import decode_failure, encode_failure
from .parts import NAME
from .reply import GeminiReplyDecoder, GeminiStreamEncoder, encode_reply
from .request import decode_request, encode_request

WIRE = Wire(
    name=NAME,
    key_header="x-goog-api-key",
    decode_request=decode_request,
    encode_request=encode_request,
    reply_decoder=GeminiReplyDecoder,
    stream_encoder=GeminiStreamEncoder,
    encode_reply=encode_reply,
    decode_failure=decode_failure,
    encode_failure=encode_failure,
    framing=ServerSentEvents,
    messages_field="contents",
    has_system_field=True,
)


def select_framing(content_type: str) -> Callable[[], Framing]:
    """The framing of a stream, which is one JSON array unless `alt=sse` was asked for."""
    return JsonArray if "json" in content_type else ServerSentEvents


__all__ = ["WIRE", "GeminiStreamEncoder", "select_framing"]
