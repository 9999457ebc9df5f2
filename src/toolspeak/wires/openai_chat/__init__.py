"""OpenAI Chat Completions, and the many servers that speak it.

{"model": "m", "messages": [{"role": "user", "content": "Weather in Oslo?"}], "tools": [{…}]}

data: {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "call_1", "function": {…}}]}}]}
"""

from ..framing import ServerSentEvents
from ..wire import Wire
from .errors import decode_failure, encode_failure
from .fast_path import can_forward, parse_reply_body, read_text_chunk
from .parts import NAME
from .reply_decoding import ChatReplyDecoder
from .reply_encoding import ChatStreamEncoder, encode_reply, is_frame_wanted
from .request_decoding import decode_request
from .request_encoding import encode_request

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
