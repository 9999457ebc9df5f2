"""What nearly all whole completions look like, so that they can be read in one go.

Whatever differs from it in any way is read field by field instead, and comes to the same: `None` is
what an API writes for what is not there.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ...types import Reply, ToolCall
from ..framing import decode_json

Name = Annotated[str, Meta(min_length=1)]


class Function(Struct, forbid_unknown_fields=True):
    """What is called, and with which arguments as JSON text."""

    name: Name
    arguments: str


class Call(Struct, forbid_unknown_fields=True):
    function: Function
    id: str | None = None
    type: Literal["function"] | UnsetType = UNSET


class Message(Struct, forbid_unknown_fields=True):
    """Words, calls or both, and nothing else."""

    role: str | None = None
    content: str | None = None
    tool_calls: list[Call] | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    reasoning: None = None
    reasoning_content: None = None
    annotations: None = None


class Choice(Struct, forbid_unknown_fields=True):
    """One that came to its own end."""

    message: Message
    finish_reason: Literal["stop", "tool_calls"]
    index: Literal[0] | UnsetType = UNSET
    logprobs: None = None
    stop_reason: None = None


class Counts(Struct, forbid_unknown_fields=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int = -1
    prompt_tokens_details: None = None
    completion_tokens_details: None = None


class Completion(Struct, forbid_unknown_fields=True):
    choices: Annotated[list[Choice], Meta(min_length=1, max_length=1)]
    id: str = ""
    model: str = ""
    object: str | None = None
    created: int | None = None
    usage: Counts | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    prompt_logprobs: None = None
    kv_transfer_params: None = None


class Delta(Struct, forbid_unknown_fields=True):
    """More words, and nothing else."""

    content: str
    role: str | None = None
    tool_calls: None = None
    refusal: None = None
    function_call: None = None
    reasoning: None = None
    reasoning_content: None = None


class Piece(Struct, forbid_unknown_fields=True):
    delta: Delta
    finish_reason: None = None
    index: Literal[0] | UnsetType = UNSET
    logprobs: None = None
    stop_reason: None = None


class Chunk(Struct):
    """A piece of a stream in which the model goes on talking."""

    choices: Annotated[list[Piece], Meta(min_length=1, max_length=1)]
    usage: None = None
    error: None = None


_completion = msgspec.json.Decoder(Completion).decode
_chunk = msgspec.json.Decoder(Chunk).decode
_SHORT = 4000
"""Bytes of a chunk. In a longer one, a number may stand that is too long to be one."""
ALONG = ("system_fingerprint", "service_tier")
"""What is carried along, if it is there."""


def parse_reply_body(body: bytes) -> Any:
    """A completion with nothing unusual in it; any other as the value that it is."""
    try:
        return _completion(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        # Half a surrogate pair is no valid text, but it does come.
        return decode_json(body)


def can_forward(said: Any, reply: Reply) -> bool:
    """Whether a completion is what we would write of that reply, to the last field that clients
    rely on."""
    if not isinstance(said, Completion):
        return False
    if not (said.id and said.model and said.created and said.usage):
        return False
    (choice,) = said.choices
    message, calls = choice.message, choice.message.tool_calls
    if said.object != "chat.completion" or message.role != "assistant" or choice.index != 0:
        return False
    if min(said.usage.prompt_tokens, said.usage.completion_tokens, said.usage.total_tokens) < 0:
        return False
    if calls is None:
        return choice.finish_reason == "stop" and message.content is not None
    # A name may have been another one on the way, and a text an object.
    is_same = [_told(call) for call in reply.calls] == [
        (call.type, call.id, call.function.name, False, None) for call in calls
    ]
    is_json = all(call.function.arguments[:1] == "{" for call in calls)
    return bool(calls) and is_same and is_json and choice.finish_reason == "tool_calls"


def _told(call: ToolCall) -> tuple[str, str, str, bool, str | None]:
    return "function", call.id, call.name, call.freeform, call.namespace


def read_text_chunk(data: str | bytes) -> str | None:
    """The text of a chunk that holds nothing else; None for any other."""
    if len(data) > _SHORT:
        return None
    try:
        if not data.isascii() and isinstance(data, bytes):
            # What is not asked for is not looked at, and may be no text at all.
            data.decode()
        return _chunk(data).choices[0].delta.content
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
