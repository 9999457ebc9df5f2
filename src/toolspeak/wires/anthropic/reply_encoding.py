"""A message for a client, whole or as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...events import (
    ArgumentsDelta,
    CallEnd,
    CallRejected,
    CallStart,
    Event,
    Finish,
    PartAdded,
    ReasoningDelta,
    Started,
    TextDelta,
)
from ...types import Failure, Other, Part, Reasoning, Reply, StopReason, Text, ToolCall, Usage
from ..fields import Json
from ..framing import encode_sse
from ..wire import Envelope
from .errors import encode_failure
from .parts import NAME, REDACTED, STOPS_OUT


def encode_reply(reply: Reply, envelope: Envelope) -> Json:
    """The reply as a whole message."""
    content: list[Json] = []
    for part in reply.parts:
        citations = _citations(part.extra if isinstance(part, Text) else {})
        if citations and content and content[-1]["type"] == "text":
            content[-1].setdefault("citations", []).extend(citations)
        else:
            content += _block(part, same=reply.wire == NAME)
    return {
        **_message(envelope, reply.id, reply.model, reply.wire, None),
        **_stopped(reply.stop_reason, reply.extra, reply.wire),
        "content": content,
        "usage": _usage(reply.usage, reply.wire),
    }


def _message(envelope: Envelope, identity: str, model: str, wire: str, extra: Json | None) -> Json:
    return {
        **((extra or {}) if wire == NAME else {}),
        "id": identity if identity and wire == NAME else f"msg_{envelope.id or 0}",
        "type": "message",
        "role": "assistant",
        "model": model or envelope.request.model,
    }


def _stopped(reason: StopReason | None, extra: Json | None, wire: str) -> Json:
    carried = (extra or {}) if wire == NAME else {}
    stopped = STOPS_OUT.get(reason or "stop", "end_turn")
    return {"stop_reason": stopped, "stop_sequence": None, **carried}


def _block(part: Part, *, same: bool) -> Iterator[Json]:
    match part:
        case Text():
            if part.text:
                yield {"type": "text", "text": part.text}
        case Reasoning():
            yield _thought(part)
        case ToolCall():
            call = {"id": part.id, "name": part.name, "input": part.arguments}
            yield {"type": "tool_use", **call, **(part.extra if same else {})}
        case Other() if same:
            yield part.data
        case _:
            pass


def _thought(part: Reasoning) -> Json:
    signature = part.signature or ""
    if signature.startswith(REDACTED):
        return _redacted(signature)
    return {"type": "thinking", "thinking": part.text, "signature": signature}


def _redacted(signature: str) -> Json:
    return {"type": "redacted_thinking", "data": signature.removeprefix(REDACTED)}


def _citations(extra: Json | None) -> list[Any]:
    return (extra or {}).get("citations") or []


def _usage(usage: Usage | None, wire: str) -> Json:
    usage = usage or Usage()
    return {
        **(usage.extra if wire == NAME else {}),
        "input_tokens": max(0, usage.input - usage.cached - usage.cache_written),
        "cache_creation_input_tokens": usage.cache_written,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    }


class AnthropicStreamEncoder:
    """What happens, as the events of a stream: one block is open at a time."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._wire: str | None = None
        self._index = -1
        self._open = ""
        """The kind of the block that is open."""
        self._sent_arguments = self._cited = False

    def feed(self, event: Event) -> bytes:
        if isinstance(event, Started):
            return self._start(event) if self._wire is None else b""
        begun = b"" if self._wire is not None else self._start(Started())
        return begun + b"".join(self._event(event))

    def _start(self, event: Started) -> bytes:
        self._wire = event.wire
        message = {
            **_message(self._envelope, event.id, event.model, event.wire, event.extra),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(event.usage, self._wire or ""),
        }
        return _event("message_start", message=message)

    def _event(self, event: Event) -> Iterator[bytes]:
        match event:
            case TextDelta():
                yield from self._text(event)
            case ReasoningDelta():
                yield from self._thought(event)
            case CallStart():
                self._sent_arguments = False
                call = {"id": event.id, "name": event.name, "input": {}}
                extra = (event.extra or {}) if self._wire == NAME else {}
                yield from self._begin({"type": "tool_use", **call, **extra})
            case ArgumentsDelta():
                self._sent_arguments = True
                yield self._delta("input_json_delta", partial_json=event.json)
            case CallEnd():
                if not self._sent_arguments:
                    yield self._delta("input_json_delta", partial_json=event.call.arguments_json)
                yield from self._end()
            case CallRejected(index=int()):
                yield from self._end()
            case PartAdded(Other(data)) if self._wire == NAME:
                yield from self._begin(data)
                yield from self._end()
            case Failure():
                yield from self._end()
                yield encode_sse(encode_failure(event), "error")
            case Finish():
                yield from self._finish(event)
            case _:
                pass

    def _text(self, event: TextDelta) -> Iterator[bytes]:
        citations = _citations(event.extra)
        if event.text and self._cited:
            yield from self._end()  # A citation is about all of its block, and nothing else.
        if (event.text or citations) and self._open != "text":
            yield from self._begin({"type": "text", "text": ""})
        self._cited = bool(citations)
        if event.text:
            yield self._delta("text_delta", text=event.text)
        for citation in citations:
            yield self._delta("citations_delta", citation=citation)

    def _thought(self, event: ReasoningDelta) -> Iterator[bytes]:
        if event.signature and event.signature.startswith(REDACTED):
            yield from self._begin(_redacted(event.signature))
            yield from self._end()
            return
        if self._open != "thinking":
            yield from self._begin({"type": "thinking", "thinking": "", "signature": ""})
        if event.text:
            yield self._delta("thinking_delta", thinking=event.text)
        if event.signature is not None:
            yield self._delta("signature_delta", signature=event.signature)
            yield from self._end()

    def _finish(self, event: Finish) -> Iterator[bytes]:
        yield from self._end()
        delta = _stopped(event.stop_reason, event.extra, self._wire or "")
        yield _event("message_delta", delta=delta, usage=_usage(event.usage, self._wire or ""))
        yield _event("message_stop")

    def _begin(self, block: Json) -> Iterator[bytes]:
        yield from self._end()
        self._index += 1
        self._open = block["type"]
        yield _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, kind: str, **fields: Any) -> bytes:
        delta = {"type": kind, **fields}
        return _event("content_block_delta", index=self._index, delta=delta)

    def _end(self) -> Iterator[bytes]:
        if self._open:
            self._open = ""
            yield _event("content_block_stop", index=self._index)


def _event(kind: str, **fields: Any) -> bytes:
    return encode_sse({"type": kind, **fields}, kind)
