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
from ...types import Failure, Image, Reasoning, Reply, Request, StopReason, Text, ToolCall, Usage
from ..content import encode_media_url
from ..fields import PRIVATE, Json
from ..framing import encode_line, encode_sse
from ..wire import Envelope
from .errors import encode_failure
from .parts import NAME, REFUSAL, STOPS_OUT
from .request_encoding import reasoning_out


def encode_reply(reply: Reply, envelope: Envelope) -> Json:
    """The reply as a whole completion."""
    same = reply.wire == NAME
    texts = [part for part in reply.parts if isinstance(part, Text)]
    refused = "".join(part.text for part in texts if _is_refusal(part))
    said = "".join(part.text for part in texts if not _is_refusal(part))
    calls = [_call(call, same) for call in reply.calls]
    message: Json = {
        "role": "assistant",
        "content": said or (None if calls or refused else ""),
        "refusal": refused or None,
        **reasoning_out([part for part in reply.parts if isinstance(part, Reasoning)]),
        **({"tool_calls": calls} if calls else {}),
    }
    pictures = [_picture(part) for part in reply.parts if isinstance(part, Image)]
    if pictures:
        message["images"] = pictures
    reason = _reason(reply.stop_reason, bool(refused))
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    return {
        **_head(envelope, Started(reply.id, reply.model, None, reply.wire, reply.extra), ""),
        "choices": [choice],
        "usage": _usage(reply.usage, same),
    }


def _head(envelope: Envelope, started: Started, kind: str) -> Json:
    same = started.wire == NAME
    return {
        **((started.extra or {}) if same else {}),
        "id": started.id if same and started.id else f"chatcmpl-{envelope.id or 0}",
        "object": f"chat.completion{kind}",
        "created": envelope.created,
        "model": started.model or envelope.request.model,
    }


def _is_refusal(text: Text) -> bool:
    return text.extra.get("type") == REFUSAL


def _reason(reason: StopReason | None, refused: bool) -> str:
    """A refusal that stands in its own field ends as any answer does."""
    if reason == "refusal" and not refused:
        return "content_filter"
    return STOPS_OUT.get(reason or "", "stop")


def _call(call: ToolCall, same: bool) -> Json:
    kind = "custom" if call.freeform else "function"
    inner = {"name": call.name, **_said(call.input, call.freeform)}
    return {"id": call.id, "type": kind, kind: inner, **(_carried(call.extra) if same else {})}


def _said(text: str, freeform: bool) -> Json:
    return {"input": text} if freeform else {"arguments": text}


def _carried(extra: Json | None) -> Json:
    return {key: value for key, value in (extra or {}).items() if not key.startswith(PRIVATE)}


def _picture(image: Image) -> Json:
    return {"type": "image_url", "image_url": {"url": encode_media_url(image)}}


def _usage(usage: Usage | None, same: bool) -> Json:
    usage = usage or Usage()
    left = usage.extra if same else {}
    return {
        **left,
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached,
            **left.get("prompt_tokens_details", {}),
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning,
            **left.get("completion_tokens_details", {}),
        },
    }


def is_frame_wanted(chunk: Any, request: Request) -> bool:
    """Whether a chunk is more than the usage at the end, which clients that did not ask for it
    take for a chunk without a choice."""
    is_usage = isinstance(chunk, dict) and not chunk.get("choices") and bool(chunk.get("usage"))
    return not is_usage or _wants_usage(request)


def _wants_usage(request: Request) -> bool:
    options = request.extra.get("stream_options")
    return isinstance(options, Mapping) and bool(options.get("include_usage"))


_LAST = b',"logprobs":null,"finish_reason":%b}]}\n\n'
_MORE = _LAST % b"null"
_TALKED = b"}" + _MORE


class ChatStreamEncoder:
    """Events to the chunks of a stream."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._head: Json = {}
        self._wants_usage = _wants_usage(envelope.request)
        self._same = self._refused = False
        self._sent_arguments = self._freeform = False

    def feed(self, event: Event) -> bytes:
        if type(event) is TextDelta and self._head and event.text and not event.extra:
            # Nearly all of a stream is this.
            return self._talks + encode_line(event.text) + _TALKED
        if not self._head:
            is_start = isinstance(event, Started)
            begun = self._begin(event if is_start else Started())
            return begun if is_start else begun + self._event(event)
        return self._event(event)

    def _begin(self, event: Started) -> bytes:
        self._same = event.wire == NAME
        self._head = _head(self._envelope, event, ".chunk")
        self._before = encode_line(self._head)[:-1] + b',"choices":[{"index":0,"delta":'
        self._talks = b'data: %b{"content":' % self._before
        return self._chunk({"role": "assistant", "content": ""})

    def _event(self, event: Event) -> bytes:
        match event:
            case TextDelta():
                return self._text(event)
            case ReasoningDelta():
                return self._chunk(reasoning_out([Reasoning(event.text, event.signature)]))
            case CallStart():
                return self._start(event)
            case ArgumentsDelta():
                self._sent_arguments = True
                return self._more(event.index, event.json)
            case CallEnd() if not self._sent_arguments:
                return self._more(event.index, event.call.input)
            case PartAdded(Image() as image):
                return self._chunk({"images": [_picture(image)]})
            case Failure():
                return encode_sse(encode_failure(event)) + b"data: [DONE]\n\n"
            case Finish():
                return self._finish(event)
            case _:
                return b""

    def _text(self, event: TextDelta) -> bytes:
        if not event.text:
            return b""
        if event.extra and event.extra.get("type") == REFUSAL:
            self._refused = True
            return self._chunk({"refusal": event.text})
        return self._chunk({"content": event.text})

    def _start(self, event: CallStart) -> bytes:
        self._sent_arguments, self._freeform = False, event.freeform
        kind = "custom" if event.freeform else "function"
        inner = {"name": event.name, **_said("", event.freeform)}
        extra = _carried(event.extra) if self._same else {}
        return self._call(event.index, {"id": event.id, "type": kind, kind: inner, **extra})

    def _more(self, index: int, text: str) -> bytes:
        kind = "custom" if self._freeform else "function"
        return self._call(index, {kind: _said(text, self._freeform)})

    def _finish(self, event: Finish) -> bytes:
        last = self._chunk({}, _reason(event.stop_reason, self._refused))
        if self._wants_usage:
            usage = _usage(event.usage, self._same)
            last += encode_sse({**self._head, "choices": [], "usage": usage})
        return last + b"data: [DONE]\n\n"

    def _call(self, index: int, call: Json) -> bytes:
        return self._chunk({"tool_calls": [{"index": index, **call}]})

    def _chunk(self, delta: Json, reason: str | None = None) -> bytes:
        after = _MORE if reason is None else _LAST % encode_line(reason)
        return b"data: " + self._before + encode_line(delta) + after
