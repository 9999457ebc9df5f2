"""OpenAI Responses, which Codex speaks.

{"model": "m", "input": [{"role": "user", "content": "Weather in Oslo?"}], "tools": [{…}]}

event: response.function_call_arguments.delta
data: {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{\"city\""}
"""

from ..errors import decode_failure
from ..framing import ServerSentEvents
from ..openai_chat.reply import encode_failure
from ..wire import Wire
from .items import NAME
from .reply_decoding import ResponsesReplyDecoder
from .reply_encoding import ResponsesStreamEncoder, encode_reply
from .request import decode_request, encode_request

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
    # Only this streamed error makes Codex shorten its conversation.
    streamed_failures=frozenset({"context_length"}),
)
