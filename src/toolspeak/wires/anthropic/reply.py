"""Decodes an upstream's message and encodes one for a client, whole or as a stream.

event: content_block_start
data: {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", …}}

{"type": "error", "error": {"type": "invalid_request_error", "message": "…"}}
"""

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
from ..calls import CallAssembler
from ..encoding import omit_none
from ..errors import ERROR_TYPES, UNKNOWN_STATUS, decode_failure, write_context_message
from ..fields import Fields, Json
from ..framing import decode_json, encode_sse
from ..wire import Envelope, FrameDecoder, StreamEncoder
from .request import NAME, REDACTED, encode_call, encode_reasoning

_STOP_FIELDS = ("stop_reason", "stop_sequence")
_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "stop",
    "tool_use": "calls",
    "model_context_window_exceeded": "length",
    "max_tokens": "length",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "pause_turn": "pause",
}
_STOP_REASON_NAMES = {reason: name for name, reason in _STOP_REASONS.items()}
_STOP_REASON_NAMES["filter"] = "refusal"
_CONTEXT_MESSAGE = "prompt is too long"
"""Begins the messages by which clients of this API recognise a full context window."""
_PAYLOAD_TOO_LARGE = 413
_CONTEXT_SENTENCE = "prompt is too long: {prompt} tokens > {limit} maximum."
_INVALID_REQUEST = "invalid_request_error"
_ERROR_TYPES = ERROR_TYPES | {
    "bad_request": _INVALID_REQUEST,
    "context_length": _INVALID_REQUEST,
    "too_large": "request_too_large",
}


class AnthropicFrameDecoder(FrameDecoder):
    stop_reasons = _STOP_REASONS

    def __init__(self, calls: CallAssembler) -> None:
        super().__init__(calls)
        self._other_blocks: dict[int, tuple[Json, list[str]]] = {}
        """Blocks that only this API has, with the pieces of their input."""
        self._counts: Json = {}
        self._undecided: int | None = None
        """A call that was closed before it was whole; what follows tells whether it was cut off."""
        self._has_ended = False

    @property
    def is_complete(self) -> bool:
        return self._has_ended

    def feed(self, frame: Any) -> Iterator[Event]:
        fields = Fields(frame)
        match fields.take_text("type"):
            case "message_start":
                message = Fields(fields.take_any("message"), "$.message")
                message.discard("content")
                yield from self._start(message)
            case "content_block_start":
                index = fields.take("index", int) or 0
                yield from self._start_block(index, fields.take_any("content_block"))
            case "content_block_delta":
                delta = Fields(fields.take_any("delta"), "$.delta")
                yield from self._decode_delta(fields.take("index", int) or 0, delta)
            case "content_block_stop":
                yield from self._end_block(fields.take("index", int) or 0)
            case "message_delta":
                self._read_stop(fields.take_object("delta") or Fields({}))
                self._read_usage(fields.take_object("usage"))
            case "message_stop":
                self._has_ended = True
            case "error":
                yield decode_failure(UNKNOWN_STATUS, frame)
            case "message" | "":
                yield from self._decode_whole(fields)
            case _:
                pass  # A ping, or an event that is not known yet.

    def _decode_whole(self, fields: Fields) -> Iterator[Event]:
        if fields.has("error"):
            yield decode_failure(UNKNOWN_STATUS, fields.rest())
        if not fields.has("content"):
            return
        content = fields.take_items("content")
        self._read_stop(Fields({key: fields.take_any(key) for key in _STOP_FIELDS}))
        yield from self._start(fields)
        for index, (block, _) in enumerate(content):
            yield from self._start_block(index, block)
            yield from self._end_block(index)
        self._has_ended = True

    def _start(self, message: Fields) -> Iterator[Event]:
        if self._is_started:
            return
        self._is_started = True
        self._read_usage(message.take_object("usage"))
        identity, model = str(message.take_any("id") or ""), message.take_text("model")
        message.discard("type", "role", *_STOP_FIELDS)
        yield Started(identity, model, self._usage, NAME, message.rest() or None)

    def _read_usage(self, usage: Fields | None) -> None:
        if usage:
            # Counts are totals: later ones replace earlier ones.
            self._counts |= usage.rest()
            self._usage = _decode_usage(Fields(self._counts))

    def _read_stop(self, fields: Fields) -> None:
        self._raw_stop = fields.take("stop_reason", str) or self._raw_stop
        self._extra |= fields.rest()

    # Blocks.

    def _start_block(self, index: int, value: Any) -> Iterator[Event]:
        if self._undecided is not None:
            yield from self._calls.end(self._undecided)
            self._undecided = None
        block = Fields(value, "$.content_block")
        match block.require("type", str):
            case "text":
                citations = block.take("citations", list) or []
                yield from self._emit_text(block.take_text("text"), citations)
            case "thinking":
                text, signature = block.take_text("thinking"), block.take_text("signature")
                if text or signature:
                    yield from self._calls.emit(ReasoningDelta(text, signature or None))
            case "redacted_thinking":
                reasoning = ReasoningDelta("", REDACTED + block.take_text("data"))
                yield from self._calls.emit(reasoning)
            case "tool_use":
                yield from self._calls.isolate(self._start_call, value, index)
            case _:
                self._other_blocks[index] = (dict(value), [])

    def _start_call(self, value: Any, index: int) -> Iterator[Event]:
        block = Fields(value, "$.content_block")
        block.discard("type")
        arguments = block.take_any("input")
        identity, name = block.take_text("id"), block.require("name", str)
        yield from self._calls.start(index, identity, name, extra=block.rest())
        if arguments not in (None, {}, ""):
            yield from self._calls.end(index, arguments)

    def _decode_delta(self, index: int, delta: Fields) -> Iterator[Event]:
        match delta.take_text("type"):
            case "text_delta":
                yield from self._emit_text(delta.take_text("text"), [])
            case "thinking_delta":
                if text := delta.take_text("thinking"):
                    yield from self._calls.emit(ReasoningDelta(text))
            case "signature_delta":
                signature = delta.take_text("signature")
                yield from self._calls.emit(ReasoningDelta("", signature or None))
            case "input_json_delta":
                piece = delta.take_text("partial_json")
                if index in self._other_blocks:
                    self._other_blocks[index][1].append(piece)
                else:
                    yield from self._calls.append(index, piece)
            case "citations_delta":
                yield from self._emit_text("", [delta.take_any("citation")])
            case _:
                pass

    def _end_block(self, index: int) -> Iterator[Event]:
        if index in self._other_blocks:
            block, pieces = self._other_blocks.pop(index)
            if any(pieces):
                block["input"] = decode_json("".join(pieces))
            yield from self._calls.emit(PartAdded(Other(block)))
        else:
            self._undecided = index
            yield from self._calls.end_if_complete(index)

    def _emit_text(self, text: str, citations: list[Any]) -> Iterator[Event]:
        if text:
            yield from self._calls.emit(TextDelta(text))
        for citation in citations:
            yield from self._calls.emit(TextDelta("", {"citations": [citation]}))


def _decode_usage(fields: Fields) -> Usage:
    # The API counts cached tokens apart from the others.
    read = fields.take("cache_read_input_tokens", int) or 0
    written = fields.take("cache_creation_input_tokens", int) or 0
    details = fields.take_object("output_tokens_details") or Fields({})
    return Usage(
        input=(fields.take("input_tokens", int) or 0) + read + written,
        output=fields.take("output_tokens", int) or 0,
        cached=read,
        cache_written=written,
        reasoning=details.take("thinking_tokens", int) or 0,
        extra=fields.rest(),
    )


class AnthropicStreamEncoder(StreamEncoder):
    """Encodes events as a stream in which one block is open at a time."""

    def __init__(self, envelope: Envelope) -> None:
        super().__init__(envelope)
        self._is_started = False
        self._index = -1
        self._open_block = ""
        """The type of the open block."""
        self._has_sent_arguments = self._has_citations = False

    def encode_whole(self, reply: Reply) -> Json:
        head = self._encode_head(Started(reply.id, reply.model, None, reply.wire))
        content: list[Json] = []
        for part in reply.parts:
            citations = _citations(part.extra if isinstance(part, Text) else {})
            if citations and content and content[-1]["type"] == "text":
                content[-1].setdefault("citations", []).extend(citations)
            else:
                content += self._encode_part(part)
        return {
            **head,
            **self._encode_stop(reply.stop_reason, reply.extra),
            "content": content,
            "usage": self._encode_usage(reply.usage),
        }

    def _encode_part(self, part: Part) -> Iterator[Json]:
        match part:
            case Text():
                if part.text:
                    yield {"type": "text", "text": part.text}
            case Reasoning():
                yield encode_reasoning(part)
            case ToolCall():
                yield {**encode_call(part, part.id, part.name), **self.carry(part.extra)}
            case Other() if self.is_same_wire:
                yield part.data
            case _:
                pass

    def _encode_head(self, started: Started) -> Json:
        self.is_same_wire = started.wire == NAME
        identity = started.id if self.is_same_wire else ""
        return {
            **self.carry(started.extra),
            "id": identity or f"msg_{self.envelope.id or 0}",
            "type": "message",
            "role": "assistant",
            "model": started.model or self.envelope.request.model,
        }

    def _encode_stop(self, reason: StopReason | None, extra: Json | None) -> Json:
        stop_reason = _STOP_REASON_NAMES.get(reason or "stop", "end_turn")
        return {"stop_reason": stop_reason, "stop_sequence": None, **self.carry(extra)}

    def _encode_usage(self, usage: Usage | None) -> Json:
        usage = usage or Usage()
        return {
            **self.carry(usage.extra),
            "input_tokens": max(0, usage.input - usage.cached - usage.cache_written),
            "cache_creation_input_tokens": usage.cache_written,
            "cache_read_input_tokens": usage.cached,
            "output_tokens": usage.output,
        }

    def feed(self, event: Event) -> bytes:
        if isinstance(event, Started):
            return b"" if self._is_started else self._start(event)
        start = b"" if self._is_started else self._start(Started())
        return start + b"".join(self._encode_event(event))

    def _start(self, event: Started) -> bytes:
        self._is_started = True
        message = {
            **self._encode_head(event),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._encode_usage(event.usage),
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
                yield from self._start_block({**call, **self.carry(event.extra)})
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
            case PartAdded(Other(data)) if self.is_same_wire:
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
        delta = self._encode_stop(event.stop_reason, event.extra)
        usage = self._encode_usage(event.usage)
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


def _citations(extra: Json | None) -> list[Any]:
    return (extra or {}).get("citations") or []


def _encode_frame(kind: str, **fields: Any) -> bytes:
    return encode_sse({"type": kind, **fields}, kind)


# Errors.


def encode_failure(failure: Failure) -> Json:
    kind = _ERROR_TYPES.get(failure.kind, "api_error")
    if failure.kind == "too_large" and failure.status != _PAYLOAD_TOO_LARGE:
        kind = _INVALID_REQUEST
    message = write_context_message(failure, _CONTEXT_SENTENCE, _CONTEXT_SENTENCE[:-1])
    if failure.kind == "context_length" and not message.startswith(_CONTEXT_MESSAGE):
        message = f"{_CONTEXT_MESSAGE}: {message}"
    error = {"type": kind, "message": message} | omit_none(details=failure.details)
    return {"type": "error", "error": error}
