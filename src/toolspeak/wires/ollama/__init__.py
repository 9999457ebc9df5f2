"""Ollama's /api/chat, and /api/generate for clients.

{"model": "m", "messages": [{"role": "user", "content": "Weather in Oslo?"}], "tools": [{…}]}

{"message": {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}, …}
"""

from ..errors import decode_failure
from ..framing import JsonLines
from ..wire import Wire
from .reply import (
    OllamaReplyDecoder,
    OllamaStreamEncoder,
    encode_failure,
    encode_reply,
)
from .request import NAME, decode_request, encode_request, set_context_window

WIRE = Wire(
    name=NAME,
    decode_request=decode_request,
    encode_request=encode_request,
    reply_decoder=OllamaReplyDecoder,
    stream_encoder=OllamaStreamEncoder,
    encode_reply=encode_reply,
    decode_failure=decode_failure,
    encode_failure=encode_failure,
    framing=JsonLines,
    model_load_reply={"done_reason": "load"},
    set_context_window=set_context_window,
    unsupported_in_replies=frozenset({"signatures", "images", "order", "refusals"}),
    content_type="application/x-ndjson",
)

__all__ = ["WIRE"]
