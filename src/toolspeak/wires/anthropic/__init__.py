"""Anthropic Messages.

{"model": "m", "max_tokens": 1024, "messages": [{"role": "user", "content": "Oslo?"}],
 "tools": [{"name": "get_weather", "input_schema": {…}}]}

event: content_block_start
data: {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", …}}
"""

from ..errors import decode_failure
from ..framing import ServerSentEvents
from ..wire import Wire
from .reply import (
    AnthropicReplyDecoder,
    AnthropicStreamEncoder,
    encode_failure,
    encode_reply,
)
from .request import NAME, decode_request, encode_request

WIRE = Wire(
    name=NAME,
    key_header="x-api-key",
    decode_request=decode_request,
    encode_request=encode_request,
    reply_decoder=AnthropicReplyDecoder,
    stream_encoder=AnthropicStreamEncoder,
    encode_reply=encode_reply,
    decode_failure=decode_failure,
    encode_failure=encode_failure,
    framing=ServerSentEvents,
    has_system_field=True,
    unsupported_in_replies=frozenset({"images"}),
)
