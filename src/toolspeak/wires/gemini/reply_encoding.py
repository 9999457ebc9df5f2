"""A generateContent response for a client, whole or in chunks.

data: {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hi"}]}, "index": 0}], …}

Each chunk is one line, and nothing but chunks may stand in the stream: clients read no comments.
"""

from __future__ import annotations

from ...events import CallEnd, Event, Finish, PartAdded, ReasoningDelta, Started, TextDelta
from ...types import (
    Failure,
    Image,
    Other,
    Part,
    Reasoning,
    Reply,
    StopReason,
    Text,
    ToolCall,
    Usage,
)
from ..call_history import ORIGINAL_ID
from ..encoding import omit_none, unmark_private
from ..fields import Json
from ..framing import encode_line
from ..wire import Envelope
from .errors import encode_failure
from .parts import CANDIDATE, NAME, STOPS, STOPS_OUT, USED, wrapped
from .request_encoding import call_out, media_out, signed


def encode_reply(reply: Reply, envelope: Envelope) -> Json:
    """The reply as a whole response."""
    same = reply.wire == NAME
    sign = str if same else wrapped
    parts = signed(reply.parts, lambda part: _part(part, same=same), sign)
    finish = Finish(reply.stop_reason, reply.raw_stop_reason, reply.usage, reply.extra)
    head = _head(envelope, reply.id, reply.model)
    return _last(parts or [{"text": ""}], finish, same=same) | head


def _head(envelope: Envelope, identity: str, model: str) -> Json:
    return {
        "modelVersion": model or envelope.request.model,
        "responseId": identity or envelope.id or "0",
    }


def _part(part: Part, *, same: bool) -> Json:
    extra = dict(part.extra) if same and not isinstance(part, Other) else {}
    match part:
        case Text():
            return {"text": part.text, **extra} if part.text or extra else {}
        case Reasoning():
            return {"text": part.text, "thought": True, **extra} if part.text or extra else {}
        case ToolCall():
            call = call_out(part, part.name, extra.pop(ORIGINAL_ID, part.id))
            call |= extra.pop("functionCall", {})
            return {"functionCall": call, **extra}
        case Image():
            source, key = media_out(part)
            return {key: source | extra.pop(key, {}), **extra}
        case Other():
            return dict(part.data) if same else {}
        case _:
            return {}


def _last(parts: list[Json], finish: Finish, *, same: bool) -> Json:
    """What ends a reply, and how it ended."""
    candidate: Json = {
        "content": {"role": "model", "parts": parts},
        "finishReason": _reason(finish, same=same),
        "index": 0,
    }
    usage = _usage(finish.usage or Usage(), same=same)
    out: Json = {"candidates": [candidate], "usageMetadata": usage}
    for key, value in unmark_private(finish.extra or {}).items() if same else ():
        where = candidate if key.startswith(CANDIDATE) else out
        where[key.removeprefix(CANDIDATE)] = value
    return out


def _reason(finish: Finish, *, same: bool) -> str:
    """The upstream's own word, if it still says what happened."""
    reason: StopReason = finish.stop_reason or "stop"
    raw = finish.raw_stop_reason or ""
    if same and raw and STOPS.get(raw, "stop") == ("stop" if reason == "calls" else reason):
        return raw
    return STOPS_OUT.get(reason, "STOP")


def _usage(usage: Usage, *, same: bool) -> Json:
    carried = usage.extra if same else {}
    counts = {
        "promptTokenCount": max(0, usage.input - carried.get(USED, 0)),
        "candidatesTokenCount": max(0, usage.output - usage.reasoning),
        "totalTokenCount": usage.input + usage.output,
    }
    known = omit_none(
        cachedContentTokenCount=usage.cached or None, thoughtsTokenCount=usage.reasoning or None
    )
    return counts | known | unmark_private(carried)


class GeminiStreamEncoder:
    """Events to the chunks of a stream: of server-sent events, or of one array."""

    def __init__(self, envelope: Envelope, *, array: bool = False) -> None:
        self._head = _head(envelope, "", "")
        self._envelope = envelope
        self._array = array
        self._sent = self._called = self._same = False
        self._signature = ""
        """Waits for what the thought has led to."""

    def feed(self, event: Event) -> bytes:
        match event:
            case Started():
                self._head = _head(self._envelope, event.id, event.model)
                self._same = event.wire == NAME
                return b""
            case TextDelta():
                return self._part(Text(event.text, event.extra or {}))
            case ReasoningDelta():
                return self._thought(event)
            case CallEnd():
                self._called = True
                return self._part(event.call)
            case PartAdded():
                return self._part(event.part)
            case Failure():
                return self._write(encode_failure(event), is_last=True)
            case Finish():
                return self._finish(event)
            case _:
                return b""

    def _thought(self, event: ReasoningDelta) -> bytes:
        before = self._chunk(self._take_signature({"text": ""})) if self._signature else b""
        said = self._part(Reasoning(event.text, None, event.extra or {}))
        if event.signature:
            self._signature = event.signature if self._same else wrapped(event.signature)
        return before + said

    def _part(self, part: Text | Reasoning | ToolCall | Image | Other) -> bytes:
        written = _part(part, same=self._same)
        if not written:
            return b""
        return self._chunk(written if isinstance(part, Other) else self._take_signature(written))

    def _take_signature(self, part: Json) -> Json:
        if self._signature:
            part["thoughtSignature"] = self._signature
            self._signature = ""
        return part

    def _finish(self, event: Finish) -> bytes:
        empty = [] if self._called and not self._signature else [self._take_signature({"text": ""})]
        return self._write(_last(empty, event, same=self._same) | self._head, is_last=True)

    def _chunk(self, part: Json) -> bytes:
        content = {"role": "model", "parts": [part]}
        return self._write({"candidates": [{"content": content, "index": 0}], **self._head})

    def _write(self, value: Json, *, is_last: bool = False) -> bytes:
        data = encode_line(value)
        if not self._array:
            return b"data: " + data + b"\n\n"
        before, after = b",\n" if self._sent else b"[", b"]" if is_last else b""
        self._sent = True
        return before + data + after
