"""OpenAI Responses, which Codex speaks.

{"model": "m", "input": [{"role": "user", "content": "Weather in Oslo?"}], "tools": [{…}]}

event: response.function_call_arguments.delta
data: {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{\"city\""}
"""

from ..openai import encode_failure
from ..wire import Wire
from . import reply_decoding, reply_encoding, request

WIRE = Wire(
    name=request.NAME,
    decode_request=request.decode_request,
    request_encoder=request.ResponsesRequestEncoder,
    frame_decoder=reply_decoding.ResponsesFrameDecoder,
    stream_encoder=reply_encoding.ResponsesStreamEncoder,
    encode_reply=reply_encoding.encode_reply,
    encode_failure=encode_failure,
    messages_field="input",
    # Only this streamed error makes Codex shorten its conversation.
    streamed_failures=frozenset({"context_length"}),
)
