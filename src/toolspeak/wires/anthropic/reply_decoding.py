"""An upstream's message, whole or as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...events import Event, Finish, PartAdded, ReasoningDelta, Started, TextDelta
from ...types import Other, Usage
from ..call_assembly import CallAssembler
from ..fields import Fields, Json
from ..framing import decode_json
from .errors import decode_failure
from .parts import NAME, REDACTED, STOPS

_STOPPED = ("stop_reason", "stop_sequence")


class AnthropicReplyDecoder:
    """The events of a stream, or a whole message, to what happens."""

    def __init__(self, calls: CallAssembler) -> None:
        self._calls = calls
        self._others: dict[int, tuple[Json, list[str]]] = {}
        """The blocks that only this API knows, with the pieces of their input."""
        self._usage: Json = {}
        self._raw_stop: str | None = None
        self._extra: Json = {}
        self._undecided: int | None = None
        """A call that was closed before it was whole: what follows tells whether it was cut off."""
        self._started = False
        self.is_complete = False

    def feed(self, frame: Any) -> Iterator[Event]:
        fields = Fields(frame)
        match fields.take_text("type"):
            case "message_start":
                message = Fields(fields.take_any("message"), "$.message")
                message.take_any("content")
                yield from self._start(message)
            case "content_block_start":
                yield from self._block(
                    fields.take("index", int) or 0, fields.take_any("content_block")
                )
            case "content_block_delta":
                delta = Fields(fields.take_any("delta"), "$.delta")
                yield from self._delta(fields.take("index", int) or 0, delta)
            case "content_block_stop":
                yield from self._end(fields.take("index", int) or 0)
            case "message_delta":
                self._stopped(fields.take_object("delta") or Fields({}))
                self._count(fields.take_object("usage"))
            case "message_stop":
                self.is_complete = True
            case "error":
                yield decode_failure(500, frame)
            case "message" | "":
                yield from self._whole(fields)
            case _:
                pass  # A ping, or what is yet to be invented.

    def finish(self) -> Iterator[Event]:
        reason = STOPS.get(self._raw_stop or "", "stop")
        yield from self._calls.finish(reason)
        usage = _usage(Fields(self._usage))
        yield Finish(
            self._calls.adjust_stop_reason(reason), self._raw_stop, usage, self._extra or None
        )

    def _whole(self, fields: Fields) -> Iterator[Event]:
        if fields.has("error"):
            yield decode_failure(500, fields.rest())
        if not fields.has("content"):
            return
        content = fields.take_items("content")
        self._stopped(Fields({key: fields.take_any(key) for key in _STOPPED}))
        yield from self._start(fields)
        for index, (block, _) in enumerate(content):
            yield from self._block(index, block)
            yield from self._end(index)
        self.is_complete = True

    def _start(self, message: Fields) -> Iterator[Event]:
        if self._started:
            return
        self._started = True
        self._count(message.take_object("usage"))
        identity, model = str(message.take_any("id") or ""), message.take_text("model")
        for known in ("type", "role", *_STOPPED):
            message.take_any(known)
        usage = _usage(Fields(self._usage)) if self._usage else None
        yield Started(identity, model, usage, NAME, message.rest() or None)

    def _count(self, usage: Fields | None) -> None:
        """Counts are totals: those that come later take the place of the earlier."""
        self._usage |= usage.rest() if usage else {}

    def _stopped(self, fields: Fields) -> None:
        """Why the message ends, and what else is told of it there."""
        self._raw_stop = fields.take("stop_reason", str) or self._raw_stop
        self._extra |= fields.rest()

    def _block(self, index: int, given: Any) -> Iterator[Event]:
        if self._undecided is not None:
            yield from self._calls.end(self._undecided)
            self._undecided = None
        block = Fields(given, "$.content_block")
        match block.require("type", str):
            case "text":
                yield from self._said(block.take_text("text"), block.take("citations", list) or [])
            case "thinking":
                text, signature = block.take_text("thinking"), block.take_text("signature")
                if text or signature:
                    yield from self._calls.emit(ReasoningDelta(text, signature or None))
            case "redacted_thinking":
                thought = ReasoningDelta("", REDACTED + block.take_text("data"))
                yield from self._calls.emit(thought)
            case "tool_use":
                given = block.take("input", dict)
                identity, name = block.take_text("id"), block.require("name", str)
                yield from self._calls.start(index, identity, name, extra=block.rest())
                if given:
                    yield from self._calls.end(index, given)
            case _:
                self._others[index] = (dict(given), [])

    def _said(self, text: str, citations: list[Any]) -> Iterator[Event]:
        if text:
            yield from self._calls.emit(TextDelta(text))
        for citation in citations:
            yield from self._calls.emit(TextDelta("", {"citations": [citation]}))

    def _delta(self, index: int, delta: Fields) -> Iterator[Event]:
        match delta.take_text("type"):
            case "text_delta":
                yield from self._said(delta.take_text("text"), [])
            case "thinking_delta":
                if thought := delta.take_text("thinking"):
                    yield from self._calls.emit(ReasoningDelta(thought))
            case "signature_delta":
                signature = delta.take_text("signature")
                yield from self._calls.emit(ReasoningDelta("", signature or None))
            case "input_json_delta":
                piece = delta.take_text("partial_json")
                if index in self._others:
                    self._others[index][1].append(piece)
                else:
                    yield from self._calls.append(index, piece)
            case "citations_delta":
                yield from self._said("", [delta.take_any("citation")])
            case _:
                pass

    def _end(self, index: int) -> Iterator[Event]:
        if index in self._others:
            block, pieces = self._others.pop(index)
            if any(pieces):
                block["input"] = decode_json("".join(pieces))
            yield from self._calls.emit(PartAdded(Other(block)))
        else:
            self._undecided = index
            yield from self._calls.end_if_complete(index)


def _usage(fields: Fields) -> Usage:
    """The API counts what is cached apart from the rest."""
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
