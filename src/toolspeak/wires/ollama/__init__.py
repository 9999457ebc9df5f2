"""Ollama's /api/chat, and /api/generate for clients.

{"model": "m", "messages": [{"role": "user", "content": "Weather in Oslo?"}], "tools": [{…}]}

{"message": {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}, …}
"""

from ..framing import JsonLines
from ..wire import Wire
from . import reply, request

WIRE = Wire(
    name=request.NAME,
    decode_request=request.decode_request,
    request_encoder=request.OllamaRequestEncoder,
    frame_decoder=reply.OllamaFrameDecoder,
    stream_encoder=reply.OllamaStreamEncoder,
    encode_reply=reply.encode_reply,
    encode_failure=reply.encode_failure,
    framing=JsonLines,
    model_load_reply={"done_reason": "load"},
    set_context_window=request.set_context_window,
    unsupported_in_replies=frozenset({"signatures", "images", "order", "refusals"}),
    content_type="application/x-ndjson",
)
