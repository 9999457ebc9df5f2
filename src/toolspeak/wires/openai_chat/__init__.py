"""OpenAI Chat Completions, and the many servers that speak it.

{"model": "m", "messages": [{"role": "user", "content": "Weather in Oslo?"}], "tools": [{…}]}

data: {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "call_1", "function": {…}}]}}]}
"""

from ..framing import ServerSentEvents
from ..wire import Wire
from .errors import decode_failure, encode_failure
from .fast_path import is_as_written, plain_text, read
from .parts import NAME
from .reply_decoding import Decoder
from .reply_encoding import Encoder, encode_reply, is_asked_for
from .request_decoding import decode_request
from .request_encoding import encode_request

WIRE = Wire(
    name=NAME,
    title="OpenAI Chat Completions",
    decode_request=decode_request,
    encode_request=encode_request,
    decoder=Decoder,
    encoder=Encoder,
    encode_reply=encode_reply,
    decode_failure=decode_failure,
    encode_failure=encode_failure,
    framing=ServerSentEvents,
    read=read,
    plain_text=plain_text,
    is_asked_for=is_asked_for,
    is_as_written=is_as_written,
    mute_on=frozenset({"order"}),
)
