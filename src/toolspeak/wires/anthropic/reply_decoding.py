"""Decodes an upstream's message, whole or as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...events import Event, Finish, PartAdded, ReasoningDelta, Started, TextDelta
from ...types import Other, StopReason, Usage
from ..calls import CallAssembler
from ..fields import Fields, Json
from ..framing import decode_json
from ..wire import ReplyDecoder
from .errors import decode_failure
from .parts import NAME, REDACTED

_STOP_FIELDS = ("stop_reason", "stop_sequence")
_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "stop",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "pause_turn": "pause",
}


class AnthropicReplyDecoder(ReplyDecoder):
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
                yield decode_failure(500, frame)
            case "message" | "":
                yield from self._decode_whole(fields)
            case _:
                pass  # A ping, or an event that is not known yet.

    def finish(self) -> Iterator[Event]:
        reason = _STOP_REASONS.get(self._raw_stop or "", "stop")
        yield from self._calls.finish(reason)
        reason = self._calls.adjust_stop_reason(reason)
        usage = _decode_usage(Fields(self._counts))
        yield Finish(reason, self._raw_stop, usage, self._extra or None)

    def _decode_whole(self, fields: Fields) -> Iterator[Event]:
        if fields.has("error"):
            yield decode_failure(500, fields.rest())
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
        usage = _decode_usage(Fields(self._counts)) if self._counts else None
        yield Started(identity, model, usage, NAME, message.rest() or None)

    def _read_usage(self, usage: Fields | None) -> None:
        # Counts are totals: later ones replace earlier ones.
        self._counts |= usage.rest() if usage else {}

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
                arguments = block.take("input", dict)
                identity, name = block.take_text("id"), block.require("name", str)
                yield from self._calls.start(index, identity, name, extra=block.rest())
                if arguments:
                    yield from self._calls.end(index, arguments)
            case _:
                self._other_blocks[index] = (dict(value), [])

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
