"""Gemini's generateContent and streamGenerateContent.

{"contents": [{"role": "user", "parts": [{"text": "Weather in Oslo?"}]}], "tools": [{…}]}

data: {"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": {}}}]}}]}
"""

from ..wire import Wire
from . import reply, request
from .reply import GeminiStreamEncoder

WIRE = Wire(
    name=request.NAME,
    key_header="x-goog-api-key",
    decode_request=request.decode_request,
    request_encoder=request.GeminiRequestEncoder,
    frame_decoder=reply.GeminiFrameDecoder,
    stream_encoder=GeminiStreamEncoder,
    encode_reply=reply.encode_reply,
    decode_failure=reply.decode_failure,
    encode_failure=reply.encode_failure,
    messages_field="contents",
    has_system_field=True,
)

__all__ = ["WIRE", "GeminiStreamEncoder"]
