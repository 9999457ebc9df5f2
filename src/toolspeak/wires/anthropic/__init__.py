"""Anthropic Messages.

{"model": "m", "max_tokens": 1024, "messages": [{"role": "user", "content": "Oslo?"}],
 "tools": [{"name": "get_weather", "input_schema": {…}}]}

event: content_block_start
data: {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", …}}
"""

from ..wire import Wire
from . import reply, request

WIRE = Wire(
    name=request.NAME,
    key_header="x-api-key",
    decode_request=request.decode_request,
    request_encoder=request.AnthropicRequestEncoder,
    frame_decoder=reply.AnthropicFrameDecoder,
    stream_encoder=reply.AnthropicStreamEncoder,
    encode_reply=reply.encode_reply,
    encode_failure=reply.encode_failure,
    has_system_field=True,
    unsupported_in_replies=frozenset({"images"}),
)
