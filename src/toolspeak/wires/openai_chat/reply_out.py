"""A chat completion for a client, whole or in chunks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    Finish,
    PartAdded,
    ReasoningDelta,
    Started,
    TextDelta,
)
from ...types import (
    Failure,
    Image,
    Reasoning,
    Reply,
    ToolCall,
    Usage,
)
from ..common import (
    url_of,
)
from ..fields import Json
from ..framing import sse
from ..wire import Envelope
from .failures import encode_failure
from .request_out import reasoning_out
from .words import NAME, STOPS_OUT


def encode_reply(reply: Reply, envelope: Envelope) -> Json:
    """The reply as a whole completion."""
    message: Json = {"role": "assistant", "content": reply.text or None, "refusal": None}
    message |= reasoning_out([part for part in reply.parts if isinstance(part, Reasoning)])
    if calls := reply.calls:
        message["tool_calls"] = [_reply_call(call) for call in calls]
    elif message["content"] is None:
        message["content"] = ""
    pictures = [part for part in reply.parts if isinstance(part, Image)]
    if pictures:
        message["images"] = [
            {"type": "image_url", "image_url": {"url": url_of(p)}} for p in pictures
        ]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": STOPS_OUT.get(reply.stop_reason or "", "stop"),
    }
    return {
        **_head(envelope, reply.id, reply.model, reply, "chat.completion"),
        "choices": [choice],
        "usage": _usage_out(reply.usage or Usage()),
    }


def _head(envelope: Envelope, identity: str, model: str, source: Any, kind: str) -> Json:
    carried = source.extra if source and source.wire == NAME else None
    return {
        **(carried or {}),
        "id": identity if identity.startswith("chatcmpl-") else f"chatcmpl-{envelope.id or 0}",
        "object": kind,
        "created": envelope.created,
        "model": model or envelope.request.model,
    }


def _reply_call(call: ToolCall) -> Json:
    if call.freeform:
        custom = {"name": call.name, "input": call.input}
        return {"id": call.id, "type": "custom", "custom": custom}
    function = {"name": call.name, "arguments": call.arguments_json}
    return {"id": call.id, "type": "function", "function": function}


def _usage_out(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


class Encoder:
    """Events to the chunks of a stream."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._head: Json = {}
        options = envelope.request.extra.get("stream_options")
        self._wants_usage = isinstance(options, Mapping) and bool(options.get("include_usage"))
        self._sent_arguments = self._freeform = False

    def feed(self, event: Event) -> bytes:
        if isinstance(event, Started):
            return self._begin(event)
        begun = b"" if self._head else self._begin(Started())
        return begun + self._event(event)

    def _begin(self, event: Started) -> bytes:
        kind = "chat.completion.chunk"
        self._head = _head(self._envelope, event.id, event.model, event, kind)
        return self._chunk({"role": "assistant", "content": ""})

    def _event(self, event: Event) -> bytes:
        match event:
            case TextDelta():
                return self._chunk({"content": event.text}) if event.text else b""
            case ReasoningDelta():
                return self._chunk(reasoning_out([Reasoning(event.text, event.signature)]))
            case CallStart():
                self._sent_arguments, self._freeform = False, event.freeform
                called = "custom" if event.freeform else "function"
                empty = {"input": ""} if event.freeform else {"arguments": ""}
                inner = {"name": event.name, **empty}
                return self._call(event.index, {"id": event.id, "type": called, called: inner})
            case ArgumentsDelta():
                self._sent_arguments = True
                return self._call(event.index, _more(event.json, self._freeform))
            case CallEnd() if not self._sent_arguments:
                return self._call(event.index, _more(event.call.input, event.call.freeform))
            case PartAdded(Image() as image):
                picture = {"type": "image_url", "image_url": {"url": url_of(image)}}
                return self._chunk({"images": [picture]})
            case Failure():
                return sse(encode_failure(event)) + b"data: [DONE]\n\n"
            case Finish():
                return self._finish(event)
            case _:
                return b""

    def _finish(self, event: Finish) -> bytes:
        last = self._chunk({}, STOPS_OUT.get(event.stop_reason or "", "stop"))
        if self._wants_usage:
            usage = _usage_out(event.usage or Usage())
            last += sse({**self._head, "choices": [], "usage": usage})
        return last + b"data: [DONE]\n\n"

    def _call(self, index: int, call: Json) -> bytes:
        return self._chunk({"tool_calls": [{"index": index, **call}]})

    def _chunk(self, delta: Json, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return sse({**self._head, "choices": [choice]})


def _more(text: str, freeform: bool) -> Json:
    return {"custom": {"input": text}} if freeform else {"function": {"arguments": text}}
