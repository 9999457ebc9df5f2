"""OpenAI Chat Completions, and the many servers that speak it.

{"model": "m", "messages": [{"role": "user", "content": "Weather in Oslo?"}], "tools": [{…}]}

data: {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "call_1", "function": {…}}]}}]}
"""

from ..errors import decode_failure
from ..framing import ServerSentEvents
from ..wire import Wire
from .reply import (
    ChatReplyDecoder,
    ChatStreamEncoder,
    can_forward,
    encode_failure,
    encode_reply,
    is_frame_wanted,
    parse_reply_body,
    read_text_chunk,
)
from .request import NAME, decode_request, encode_request

WIRE = Wire(
    name=NAME,
    decode_request=decode_request,
    encode_request=encode_request,
    reply_decoder=ChatReplyDecoder,
    stream_encoder=ChatStreamEncoder,
    encode_reply=encode_reply,
    decode_failure=decode_failure,
    encode_failure=encode_failure,
    framing=ServerSentEvents,
    parse_reply_body=parse_reply_body,
    read_text_chunk=read_text_chunk,
    is_frame_wanted=is_frame_wanted,
    can_forward=can_forward,
    unsupported_in_replies=frozenset({"order"}),
)
