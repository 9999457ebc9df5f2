"""Anthropic Messages.

{"model": "m", "max_tokens": 1024, "messages": [{"role": "user", "content": "Oslo?"}],
 "tools": [{"name": "get_weather", "input_schema": {…}}]}

event: content_block_start
data: {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", …}}
"""

from ..framing import ServerSentEvents
from ..wire import Wire
from .failures import decode_failure, encode_failure
from .reply_in import Decoder
from .reply_out import Encoder, encode_reply
from .request_in import decode_request
from .request_out import encode_request
from .words import NAME

WIRE = Wire(
    name=NAME,
    key_header="x-api-key",
    title="Anthropic Messages",
    decode_request=decode_request,
    encode_request=encode_request,
    decoder=Decoder,
    encoder=Encoder,
    encode_reply=encode_reply,
    decode_failure=decode_failure,
    encode_failure=encode_failure,
    framing=ServerSentEvents,
    instructions_apart=True,
    mute_on=frozenset({"images"}),
)
