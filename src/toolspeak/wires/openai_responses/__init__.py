"""OpenAI Responses, which Codex speaks.

{"model": "m", "input": [{"role": "user", "content": "Weather in Oslo?"}], "tools": [{…}]}

event: response.function_call_arguments.delta
data: {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{\"city\""}
"""

from ..framing import ServerSentEvents
from ..wire import Wire
from .errors import decode_failure, encode_failure
from .parts import NAME
from .reply_decoding import ResponsesReplyDecoder
from .reply_encoding import ResponsesStreamEncoder, encode_reply
from .request_decoding import decode_request
from .request_encoding import encode_request

WIRE = Wire(
    name=NAME,
    decode_request=decode_request,
    encode_request=encode_request,
    reply_decoder=ResponsesReplyDecoder,
    stream_encoder=ResponsesStreamEncoder,
    encode_reply=encode_reply,
    decode_failure=decode_failure,
    encode_failure=encode_failure,
    framing=ServerSentEvents,
    messages_field="input",
    # OpenAI streams it, and Codex makes its conversation shorter for nothing else.
    streamed_failures=frozenset({"context_length"}),
)
