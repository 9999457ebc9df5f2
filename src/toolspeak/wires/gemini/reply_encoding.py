"""Encodes a generateContent response for a client, whole or in chunks.

data: {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hi"}]}, "index": 0}], …}

Each chunk is one line, and the stream holds nothing else: clients do not accept comments.
"""

from __future__ import annotations

from ...events import CallEnd, Event, Finish, PartAdded, ReasoningDelta, Started, TextDelta
from ...types import Failure, Image, Other, Part, Reasoning, Reply, Text, ToolCall, Usage
from ..calls import ORIGINAL_ID
from ..encoding import omit_none, unmark_private
from ..fields import Json
from ..framing import encode_line
from ..wire import Envelope
from .errors import encode_failure
from .parts import NAME, encode_call, encode_media, encode_signed_parts, wrap_signature
from .reply_decoding import CANDIDATE, STOP_REASONS, TOOL_USE_TOKENS

_FINISH_REASONS = {
    "length": "MAX_TOKENS",
    "filter": "SAFETY",
    "refusal": "SAFETY",
    "error": "OTHER",
}


def encode_reply(reply: Reply, envelope: Envelope) -> Json:
    is_same_wire = reply.wire == NAME
    encode_signature = str if is_same_wire else wrap_signature
    parts = encode_signed_parts(
        reply.parts, lambda part: _encode_part(part, is_same_wire), encode_signature
    )
    finish = Finish(reply.stop_reason, reply.raw_stop_reason, reply.usage, reply.extra)
    head = _encode_head(envelope, reply.id, reply.model)
    return _encode_last(parts or [{"text": ""}], finish, is_same_wire) | head


def _encode_head(envelope: Envelope, identity: str, model: str) -> Json:
    return {
        "modelVersion": model or envelope.request.model,
        "responseId": identity or envelope.id or "0",
    }


def _encode_part(part: Part, is_same_wire: bool) -> Json:
    extra = dict(part.extra) if is_same_wire and not isinstance(part, Other) else {}
    match part:
        case Text():
            return {"text": part.text, **extra} if part.text or extra else {}
        case Reasoning():
            return {"text": part.text, "thought": True, **extra} if part.text or extra else {}
        case ToolCall():
            call = encode_call(part, part.name, extra.pop(ORIGINAL_ID, part.id))
            call |= extra.pop("functionCall", {})
            return {"functionCall": call, **extra}
        case Image():
            source, key = encode_media(part)
            return {key: source | extra.pop(key, {}), **extra}
        case Other():
            return dict(part.data) if is_same_wire else {}
        case _:
            return {}


def _encode_last(parts: list[Json], finish: Finish, is_same_wire: bool) -> Json:
    """Encode the chunk that ends a reply."""
    candidate: Json = {
        "content": {"role": "model", "parts": parts},
        "finishReason": _encode_stop_reason(finish, is_same_wire),
        "index": 0,
    }
    usage = _encode_usage(finish.usage or Usage(), is_same_wire)
    out: Json = {"candidates": [candidate], "usageMetadata": usage}
    for key, value in unmark_private(finish.extra or {}).items() if is_same_wire else ():
        target = candidate if key.startswith(CANDIDATE) else out
        target[key.removeprefix(CANDIDATE)] = value
    return out


def _encode_stop_reason(finish: Finish, is_same_wire: bool) -> str:
    """Return the upstream's own finish reason if it is still true."""
    reason, raw = finish.stop_reason or "stop", finish.raw_stop_reason
    if is_same_wire and raw:
        expected = "stop" if reason == "calls" else reason
        if STOP_REASONS.get(raw, "stop") == expected:
            return raw
    return _FINISH_REASONS.get(reason, "STOP")


def _encode_usage(usage: Usage, is_same_wire: bool) -> Json:
    extra = usage.extra if is_same_wire else {}
    counts = {
        "promptTokenCount": max(0, usage.input - extra.get(TOOL_USE_TOKENS, 0)),
        "candidatesTokenCount": max(0, usage.output - usage.reasoning),
        "totalTokenCount": usage.input + usage.output,
    }
    optional = omit_none(
        cachedContentTokenCount=usage.cached or None, thoughtsTokenCount=usage.reasoning or None
    )
    return counts | optional | unmark_private(extra)


class GeminiStreamEncoder:
    """Encodes events as server-sent events, or as the items of one JSON array."""

    def __init__(self, envelope: Envelope, *, array: bool = False) -> None:
        self._head = _encode_head(envelope, "", "")
        self._envelope = envelope
        self._is_array = array
        self._has_sent = self._has_calls = self._is_same_wire = False
        self._signature = ""
        """Held back for the part that follows the reasoning."""

    def feed(self, event: Event) -> bytes:
        match event:
            case Started():
                self._head = _encode_head(self._envelope, event.id, event.model)
                self._is_same_wire = event.wire == NAME
                return b""
            case TextDelta():
                return self._encode_part(Text(event.text, event.extra or {}))
            case ReasoningDelta():
                return self._encode_reasoning(event)
            case CallEnd():
                self._has_calls = True
                return self._encode_part(event.call)
            case PartAdded():
                return self._encode_part(event.part)
            case Failure():
                return self._encode_frame(encode_failure(event), is_last=True)
            case Finish():
                return self._encode_finish(event)
            case _:
                return b""

    def _encode_reasoning(self, event: ReasoningDelta) -> bytes:
        before = self._encode_chunk(self._sign({"text": ""})) if self._signature else b""
        chunk = self._encode_part(Reasoning(event.text, None, event.extra or {}))
        if event.signature:
            signature = event.signature
            self._signature = signature if self._is_same_wire else wrap_signature(signature)
        return before + chunk

    def _encode_part(self, part: Text | Reasoning | ToolCall | Image | Other) -> bytes:
        encoded = _encode_part(part, self._is_same_wire)
        if not encoded:
            return b""
        return self._encode_chunk(encoded if isinstance(part, Other) else self._sign(encoded))

    def _sign(self, part: Json) -> Json:
        if self._signature:
            part["thoughtSignature"] = self._signature
            self._signature = ""
        return part

    def _encode_finish(self, event: Finish) -> bytes:
        needs_part = not self._has_calls or bool(self._signature)
        parts = [self._sign({"text": ""})] if needs_part else []
        last = _encode_last(parts, event, self._is_same_wire) | self._head
        return self._encode_frame(last, is_last=True)

    def _encode_chunk(self, part: Json) -> bytes:
        content = {"role": "model", "parts": [part]}
        return self._encode_frame({"candidates": [{"content": content, "index": 0}], **self._head})

    def _encode_frame(self, value: Json, *, is_last: bool = False) -> bytes:
        data = encode_line(value)
        if not self._is_array:
            return b"data: " + data + b"\n\n"
        before, after = b",\n" if self._has_sent else b"[", b"]" if is_last else b""
        self._has_sent = True
        return before + data + after
