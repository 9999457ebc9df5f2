"""OpenAI Chat Completions, and the many servers that speak it.

{"model": "m", "messages": [{"role": "user", "content": "Weather in Oslo?"}], "tools": [{…}]}

data: {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "call_1", "function": {…}}]}}]}
"""

from ..framing import ServerSentEvents
from ..wire import Wire
from .failures import decode_failure, encode_failure
from .plain import is_as_written, plain_text, read
from .reply_in import Decoder
from .reply_out import Encoder, encode_reply, is_asked_for
from .request_in import decode_request
from .request_out import encode_request
from .words import NAME

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
