"""Fast path: the usual shapes of completions and text chunks, parsed in one go.

Anything that differs from them is decoded field by field, with the same result. A field of type
`None` must be null or absent.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ...types import Reply, ToolCall
from ..framing import decode_json

NonEmptyText = Annotated[str, Meta(min_length=1)]


class _Function(Struct, forbid_unknown_fields=True):
    name: NonEmptyText
    arguments: str


class _Call(Struct, forbid_unknown_fields=True):
    function: _Function
    id: str | None = None
    type: Literal["function"] | UnsetType = UNSET


class _Message(Struct, forbid_unknown_fields=True):
    role: str | None = None
    content: str | None = None
    tool_calls: list[_Call] | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    reasoning: None = None
    reasoning_content: None = None
    annotations: None = None


class _Choice(Struct, forbid_unknown_fields=True):
    message: _Message
    finish_reason: Literal["stop", "tool_calls"]
    index: Literal[0] | UnsetType = UNSET
    logprobs: None = None
    stop_reason: None = None


class _TokenCounts(Struct, forbid_unknown_fields=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int = -1
    prompt_tokens_details: None = None
    completion_tokens_details: None = None


class Completion(Struct, forbid_unknown_fields=True):
    choices: Annotated[list[_Choice], Meta(min_length=1, max_length=1)]
    id: str = ""
    model: str = ""
    object: str | None = None
    created: int | None = None
    usage: _TokenCounts | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    prompt_logprobs: None = None
    kv_transfer_params: None = None


class _TextDelta(Struct, forbid_unknown_fields=True):
    content: str
    role: str | None = None
    tool_calls: None = None
    refusal: None = None
    function_call: None = None
    reasoning: None = None
    reasoning_content: None = None


class _ChunkChoice(Struct, forbid_unknown_fields=True):
    delta: _TextDelta
    finish_reason: None = None
    index: Literal[0] | UnsetType = UNSET
    logprobs: None = None
    stop_reason: None = None


class _TextChunk(Struct):
    choices: Annotated[list[_ChunkChoice], Meta(min_length=1, max_length=1)]
    usage: None = None
    error: None = None


_decode_completion = msgspec.json.Decoder(Completion).decode
_decode_text_chunk = msgspec.json.Decoder(_TextChunk).decode
_MAX_CHUNK = 4000
"""In bytes. A longer chunk may hold a number that is too long to be valid."""
CARRIED_FIELDS = ("system_fingerprint", "service_tier")


def parse_reply_body(body: bytes) -> Any:
    """Return a `Completion` if the body has the usual shape; otherwise the parsed JSON."""
    try:
        return _decode_completion(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        # Half a surrogate pair is invalid, but upstreams do send it.
        return decode_json(body)


def can_forward(body: Any, reply: Reply) -> bool:
    """Tell whether a completion equals what we would encode, in every field that clients use."""
    if not isinstance(body, Completion):
        return False
    if not (body.id and body.model and body.created and body.usage):
        return False
    (choice,) = body.choices
    message, calls = choice.message, choice.message.tool_calls
    if body.object != "chat.completion" or message.role != "assistant" or choice.index != 0:
        return False
    counts = body.usage
    if min(counts.prompt_tokens, counts.completion_tokens, counts.total_tokens) < 0:
        return False
    if calls is None:
        return choice.finish_reason == "stop" and message.content is not None
    # Tool names may have been mapped, and a text may have become an object.
    is_same = [_call_key(call) for call in reply.calls] == [
        (call.type, call.id, call.function.name, False, None) for call in calls
    ]
    is_json = all(call.function.arguments[:1] == "{" for call in calls)
    return bool(calls) and is_same and is_json and choice.finish_reason == "tool_calls"


def _call_key(call: ToolCall) -> tuple[str, str, str, bool, str | None]:
    return "function", call.id, call.name, call.freeform, call.namespace


def read_text_chunk(data: str | bytes) -> str | None:
    """Return the text of a chunk that holds nothing else; None for any other."""
    if len(data) > _MAX_CHUNK:
        return None
    try:
        if not data.isascii() and isinstance(data, bytes):
            # msgspec does not check that skipped fields are valid UTF-8.
            data.decode()
        return _decode_text_chunk(data).choices[0].delta.content
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
