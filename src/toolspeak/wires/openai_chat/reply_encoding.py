"""Encodes a chat completion for a client, whole or in chunks."""

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
from ...types import Failure, Image, Reasoning, Reply, Request, StopReason, Text, ToolCall, Usage
from ..content import encode_media_url
from ..fields import PRIVATE, Json
from ..framing import encode_line, encode_sse
from ..wire import Envelope
from .errors import encode_failure
from .parts import NAME, encode_reasoning, is_refusal

_FINISH_REASONS = {"length": "length", "calls": "tool_calls", "filter": "content_filter"}
_DONE = b"data: [DONE]\n\n"
# The ends of a chunk, for the fast path.
_CHUNK_END = b',"logprobs":null,"finish_reason":%b}]}\n\n'
_OPEN_CHUNK_END = _CHUNK_END % b"null"
_TEXT_CHUNK_END = b"}" + _OPEN_CHUNK_END


def encode_reply(reply: Reply, envelope: Envelope) -> Json:
    is_same_wire = reply.wire == NAME
    texts = [part for part in reply.parts if isinstance(part, Text)]
    refusal = "".join(part.text for part in texts if is_refusal(part))
    text = "".join(part.text for part in texts if not is_refusal(part))
    calls = [_encode_call(call, is_same_wire) for call in reply.calls]
    message: Json = {
        "role": "assistant",
        "content": text or (None if calls or refusal else ""),
        "refusal": refusal or None,
        **encode_reasoning([part for part in reply.parts if isinstance(part, Reasoning)]),
        **({"tool_calls": calls} if calls else {}),
    }
    images = [_encode_image(part) for part in reply.parts if isinstance(part, Image)]
    if images:
        message["images"] = images
    reason = _encode_stop_reason(reply.stop_reason, bool(refusal))
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    started = Started(reply.id, reply.model, None, reply.wire, reply.extra)
    return {
        **_encode_head(envelope, started, "chat.completion"),
        "choices": [choice],
        "usage": _encode_usage(reply.usage, is_same_wire),
    }


def _encode_head(envelope: Envelope, started: Started, kind: str) -> Json:
    is_same_wire = started.wire == NAME
    return {
        **((started.extra or {}) if is_same_wire else {}),
        "id": started.id if is_same_wire and started.id else f"chatcmpl-{envelope.id or 0}",
        "object": kind,
        "created": envelope.created,
        "model": started.model or envelope.request.model,
    }


def _encode_stop_reason(reason: StopReason | None, has_refusal: bool) -> str:
    # A refusal in its own field ends like any other reply.
    if reason == "refusal" and not has_refusal:
        return "content_filter"
    return _FINISH_REASONS.get(reason or "", "stop")


def _encode_call(call: ToolCall, is_same_wire: bool) -> Json:
    kind = "custom" if call.freeform else "function"
    inner = {"name": call.name, **_encode_input(call.input, call.freeform)}
    extra = _public_fields(call.extra) if is_same_wire else {}
    return {"id": call.id, "type": kind, kind: inner, **extra}


def _encode_input(text: str, freeform: bool) -> Json:
    return {"input": text} if freeform else {"arguments": text}


def _public_fields(extra: Json | None) -> Json:
    return {key: value for key, value in (extra or {}).items() if not key.startswith(PRIVATE)}


def _encode_image(image: Image) -> Json:
    return {"type": "image_url", "image_url": {"url": encode_media_url(image)}}


def _encode_usage(usage: Usage | None, is_same_wire: bool) -> Json:
    usage = usage or Usage()
    extra = usage.extra if is_same_wire else {}
    return {
        **extra,
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached,
            **extra.get("prompt_tokens_details", {}),
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning,
            **extra.get("completion_tokens_details", {}),
        },
    }


def is_frame_wanted(chunk: Any, request: Request) -> bool:
    """Tell whether a chunk is anything but the final usage, which only clients understand that
    asked for it: others take it for a chunk without a choice."""
    is_usage = isinstance(chunk, dict) and not chunk.get("choices") and bool(chunk.get("usage"))
    return not is_usage or _wants_usage(request)


def _wants_usage(request: Request) -> bool:
    options = request.extra.get("stream_options")
    return isinstance(options, Mapping) and bool(options.get("include_usage"))


class ChatStreamEncoder:
    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._head: Json = {}
        self._wants_usage = _wants_usage(envelope.request)
        self._is_same_wire = self._has_refusal = False
        self._has_sent_arguments = self._is_freeform = False

    def feed(self, event: Event) -> bytes:
        if type(event) is TextDelta and self._head and event.text and not event.extra:
            # A fast path for most of a stream.
            return self._text_chunk_start + encode_line(event.text) + _TEXT_CHUNK_END
        if not self._head:
            is_start = isinstance(event, Started)
            start = self._start(event if is_start else Started())
            return start if is_start else start + self._encode_event(event)
        return self._encode_event(event)

    def _start(self, event: Started) -> bytes:
        self._is_same_wire = event.wire == NAME
        self._head = _encode_head(self._envelope, event, "chat.completion.chunk")
        self._chunk_start = encode_line(self._head)[:-1] + b',"choices":[{"index":0,"delta":'
        self._text_chunk_start = b'data: %b{"content":' % self._chunk_start
        return self._encode_chunk({"role": "assistant", "content": ""})

    def _encode_event(self, event: Event) -> bytes:
        match event:
            case TextDelta():
                return self._encode_text(event)
            case ReasoningDelta():
                return self._encode_chunk(
                    encode_reasoning([Reasoning(event.text, event.signature)])
                )
            case CallStart():
                return self._encode_call_start(event)
            case ArgumentsDelta():
                self._has_sent_arguments = True
                return self._encode_arguments(event.index, event.json)
            case CallEnd() if not self._has_sent_arguments:
                return self._encode_arguments(event.index, event.call.input)
            case PartAdded(Image() as image):
                return self._encode_chunk({"images": [_encode_image(image)]})
            case Failure():
                return encode_sse(encode_failure(event)) + _DONE
            case Finish():
                return self._encode_finish(event)
            case _:
                return b""

    def _encode_text(self, event: TextDelta) -> bytes:
        if not event.text:
            return b""
        if event.extra and event.extra.get("type") == "refusal":
            self._has_refusal = True
            return self._encode_chunk({"refusal": event.text})
        return self._encode_chunk({"content": event.text})

    def _encode_call_start(self, event: CallStart) -> bytes:
        self._has_sent_arguments, self._is_freeform = False, event.freeform
        kind = "custom" if event.freeform else "function"
        inner = {"name": event.name, **_encode_input("", event.freeform)}
        extra = _public_fields(event.extra) if self._is_same_wire else {}
        call = {"id": event.id, "type": kind, kind: inner, **extra}
        return self._encode_call_chunk(event.index, call)

    def _encode_arguments(self, index: int, text: str) -> bytes:
        kind = "custom" if self._is_freeform else "function"
        return self._encode_call_chunk(index, {kind: _encode_input(text, self._is_freeform)})

    def _encode_finish(self, event: Finish) -> bytes:
        last = self._encode_chunk({}, _encode_stop_reason(event.stop_reason, self._has_refusal))
        if self._wants_usage:
            usage = _encode_usage(event.usage, self._is_same_wire)
            last += encode_sse({**self._head, "choices": [], "usage": usage})
        return last + _DONE

    def _encode_call_chunk(self, index: int, call: Json) -> bytes:
        return self._encode_chunk({"tool_calls": [{"index": index, **call}]})

    def _encode_chunk(self, delta: Json, reason: str | None = None) -> bytes:
        end = _OPEN_CHUNK_END if reason is None else _CHUNK_END % encode_line(reason)
        return b"data: " + self._chunk_start + encode_line(delta) + end
