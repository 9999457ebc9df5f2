"""Encodes a message for a client, whole or as a stream."""

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
from .parts import NAME, REDACTED, encode_call, encode_reasoning

_STOP_REASONS: dict[StopReason, str] = {
    "stop": "end_turn",
    "calls": "tool_use",
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
    "filter": "refusal",
    "refusal": "refusal",
    "pause": "pause_turn",
}


def encode_reply(reply: Reply, envelope: Envelope) -> Json:
    is_same_wire = reply.wire == NAME
    content: list[Json] = []
    for part in reply.parts:
        citations = _citations(part.extra if isinstance(part, Text) else {})
        if citations and content and content[-1]["type"] == "text":
            content[-1].setdefault("citations", []).extend(citations)
        else:
            content += _encode_part(part, is_same_wire)
    started = Started(reply.id, reply.model, None, reply.wire)
    return {
        **_encode_head(envelope, started),
        **_encode_stop(reply.stop_reason, reply.extra, is_same_wire),
        "content": content,
        "usage": _encode_usage(reply.usage, is_same_wire),
    }


def _encode_head(envelope: Envelope, started: Started) -> Json:
    is_same_wire = started.wire == NAME
    return {
        **((started.extra or {}) if is_same_wire else {}),
        "id": started.id if started.id and is_same_wire else f"msg_{envelope.id or 0}",
        "type": "message",
        "role": "assistant",
        "model": started.model or envelope.request.model,
    }


def _encode_stop(reason: StopReason | None, extra: Json | None, is_same_wire: bool) -> Json:
    stop_reason = _STOP_REASONS.get(reason or "stop", "end_turn")
    carried = (extra or {}) if is_same_wire else {}
    return {"stop_reason": stop_reason, "stop_sequence": None, **carried}


def _encode_part(part: Part, is_same_wire: bool) -> Iterator[Json]:
    match part:
        case Text():
            if part.text:
                yield {"type": "text", "text": part.text}
        case Reasoning():
            yield encode_reasoning(part)
        case ToolCall():
            yield {**encode_call(part, part.id, part.name), **(part.extra if is_same_wire else {})}
        case Other() if is_same_wire:
            yield part.data
        case _:
            pass


def _citations(extra: Json | None) -> list[Any]:
    return (extra or {}).get("citations") or []


def _encode_usage(usage: Usage | None, is_same_wire: bool) -> Json:
    usage = usage or Usage()
    return {
        **(usage.extra if is_same_wire else {}),
        "input_tokens": max(0, usage.input - usage.cached - usage.cache_written),
        "cache_creation_input_tokens": usage.cache_written,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    }


class AnthropicStreamEncoder:
    """Encodes events as a stream in which one block is open at a time."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._is_started = self._is_same_wire = False
        self._index = -1
        self._open_block = ""
        """The type of the open block."""
        self._has_sent_arguments = self._has_citations = False

    def feed(self, event: Event) -> bytes:
        if isinstance(event, Started):
            return b"" if self._is_started else self._start(event)
        start = b"" if self._is_started else self._start(Started())
        return start + b"".join(self._encode_event(event))

    def _start(self, event: Started) -> bytes:
        self._is_started = True
        self._is_same_wire = event.wire == NAME
        message = {
            **_encode_head(self._envelope, event),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _encode_usage(event.usage, self._is_same_wire),
        }
        return _encode_frame("message_start", message=message)

    def _encode_event(self, event: Event) -> Iterator[bytes]:
        match event:
            case TextDelta():
                yield from self._encode_text(event)
            case ReasoningDelta():
                yield from self._encode_reasoning(event)
            case CallStart():
                self._has_sent_arguments = False
                call = {"type": "tool_use", "id": event.id, "name": event.name, "input": {}}
                extra = (event.extra or {}) if self._is_same_wire else {}
                yield from self._start_block({**call, **extra})
            case ArgumentsDelta():
                self._has_sent_arguments = True
                yield self._encode_delta("input_json_delta", partial_json=event.json)
            case CallEnd():
                if not self._has_sent_arguments:
                    arguments = event.call.arguments_json
                    yield self._encode_delta("input_json_delta", partial_json=arguments)
                yield from self._end_block()
            case CallRejected(index=int()):
                yield from self._end_block()
            case PartAdded(Other(data)) if self._is_same_wire:
                yield from self._start_block(data)
                yield from self._end_block()
            case Failure():
                yield from self._end_block()
                yield encode_sse(encode_failure(event), "error")
            case Finish():
                yield from self._encode_finish(event)
            case _:
                pass

    def _encode_text(self, event: TextDelta) -> Iterator[bytes]:
        citations = _citations(event.extra)
        if event.text and self._has_citations:
            yield from self._end_block()  # A citation refers to the whole of its block.
        if (event.text or citations) and self._open_block != "text":
            yield from self._start_block({"type": "text", "text": ""})
        self._has_citations = bool(citations)
        if event.text:
            yield self._encode_delta("text_delta", text=event.text)
        for citation in citations:
            yield self._encode_delta("citations_delta", citation=citation)

    def _encode_reasoning(self, event: ReasoningDelta) -> Iterator[bytes]:
        if event.signature and event.signature.startswith(REDACTED):
            yield from self._start_block(encode_reasoning(Reasoning("", event.signature)))
            yield from self._end_block()
            return
        if self._open_block != "thinking":
            yield from self._start_block(encode_reasoning(Reasoning("")))
        if event.text:
            yield self._encode_delta("thinking_delta", thinking=event.text)
        if event.signature is not None:
            yield self._encode_delta("signature_delta", signature=event.signature)
            yield from self._end_block()

    def _encode_finish(self, event: Finish) -> Iterator[bytes]:
        yield from self._end_block()
        delta = _encode_stop(event.stop_reason, event.extra, self._is_same_wire)
        usage = _encode_usage(event.usage, self._is_same_wire)
        yield _encode_frame("message_delta", delta=delta, usage=usage)
        yield _encode_frame("message_stop")

    def _start_block(self, block: Json) -> Iterator[bytes]:
        yield from self._end_block()
        self._index += 1
        self._open_block = block["type"]
        yield _encode_frame("content_block_start", index=self._index, content_block=block)

    def _encode_delta(self, kind: str, **fields: Any) -> bytes:
        delta = {"type": kind, **fields}
        return _encode_frame("content_block_delta", index=self._index, delta=delta)

    def _end_block(self) -> Iterator[bytes]:
        if self._open_block:
            self._open_block = ""
            yield _encode_frame("content_block_stop", index=self._index)


def _encode_frame(kind: str, **fields: Any) -> bytes:
    return encode_sse({"type": kind, **fields}, kind)
