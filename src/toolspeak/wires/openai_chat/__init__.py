"""OpenAI Chat Completions, and the many servers that speak it.

{"model": "m", "messages": [{"role": "user", "content": "Weather in Oslo?"}], "tools": [{…}]}

data: {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "call_1", "function": {…}}]}}]}
"""

from ..openai import encode_failure
from ..wire import Wire
from . import reply, request

WIRE = Wire(
    name=request.NAME,
    decode_request=request.decode_request,
    request_encoder=request.ChatRequestEncoder,
    frame_decoder=reply.ChatFrameDecoder,
    stream_encoder=reply.ChatStreamEncoder,
    encode_reply=reply.encode_reply,
    encode_failure=encode_failure,
    parse_reply_body=reply.parse_reply_body,
    read_text_chunk=reply.read_text_chunk,
    is_frame_wanted=reply.is_frame_wanted,
    can_forward=reply.can_forward,
    unsupported_in_replies=frozenset({"order"}),
)
