"""An upstream's message, whole or as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...events import Event, Finish, PartAdded, ReasoningDelta, Started, TextDelta
from ...types import Other, Usage
from ..call_assembly import Calls
from ..fields import Fields, Json
from ..framing import decode_json
from .errors import decode_failure
from .parts import NAME, REDACTED, STOPS

_STOPPED = ("stop_reason", "stop_sequence")


class Decoder:
    """The events of a stream, or a whole message, to what happens."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._others: dict[int, tuple[Json, list[str]]] = {}
        """The blocks that only this API knows, with the pieces of their input."""
        self._usage: Json = {}
        self._raw_stop: str | None = None
        self._extra: Json = {}
        self._undecided: int | None = None
        """A call that was closed before it was whole: what follows tells whether it was cut off."""
        self._started = False
        self.complete = False

    def feed(self, frame: Any) -> Iterator[Event]:
        fields = Fields(frame)
        match fields.text("type"):
            case "message_start":
                message = Fields(fields.any("message"), "$.message")
                message.any("content")
                yield from self._start(message)
            case "content_block_start":
                yield from self._block(fields.take("index", int) or 0, fields.any("content_block"))
            case "content_block_delta":
                delta = Fields(fields.any("delta"), "$.delta")
                yield from self._delta(fields.take("index", int) or 0, delta)
            case "content_block_stop":
                yield from self._end(fields.take("index", int) or 0)
            case "message_delta":
                self._stopped(fields.inner("delta") or Fields({}))
                self._count(fields.inner("usage"))
            case "message_stop":
                self.complete = True
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
        yield Finish(self._calls.reason(reason), self._raw_stop, usage, self._extra or None)

    def _whole(self, fields: Fields) -> Iterator[Event]:
        if fields.has("error"):
            yield decode_failure(500, fields.rest())
        if not fields.has("content"):
            return
        content = fields.each("content")
        self._stopped(Fields({key: fields.any(key) for key in _STOPPED}))
        yield from self._start(fields)
        for index, (block, _) in enumerate(content):
            yield from self._block(index, block)
            yield from self._end(index)
        self.complete = True

    def _start(self, message: Fields) -> Iterator[Event]:
        if self._started:
            return
        self._started = True
        self._count(message.inner("usage"))
        identity, model = str(message.any("id") or ""), message.text("model")
        for known in ("type", "role", *_STOPPED):
            message.any(known)
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
        match block.need("type", str):
            case "text":
                yield from self._said(block.text("text"), block.take("citations", list) or [])
            case "thinking":
                text, signature = block.text("thinking"), block.text("signature")
                if text or signature:
                    yield from self._calls.beside(ReasoningDelta(text, signature or None))
            case "redacted_thinking":
                thought = ReasoningDelta("", REDACTED + block.text("data"))
                yield from self._calls.beside(thought)
            case "tool_use":
                given = block.take("input", dict)
                identity, name = block.text("id"), block.need("name", str)
                yield from self._calls.start(index, identity, name, extra=block.rest())
                if given:
                    yield from self._calls.end(index, given)
            case _:
                self._others[index] = (dict(given), [])

    def _said(self, text: str, citations: list[Any]) -> Iterator[Event]:
        if text:
            yield from self._calls.beside(TextDelta(text))
        for citation in citations:
            yield from self._calls.beside(TextDelta("", {"citations": [citation]}))

    def _delta(self, index: int, delta: Fields) -> Iterator[Event]:
        match delta.text("type"):
            case "text_delta":
                yield from self._said(delta.text("text"), [])
            case "thinking_delta":
                if thought := delta.text("thinking"):
                    yield from self._calls.beside(ReasoningDelta(thought))
            case "signature_delta":
                signature = delta.text("signature")
                yield from self._calls.beside(ReasoningDelta("", signature or None))
            case "input_json_delta":
                piece = delta.text("partial_json")
                if index in self._others:
                    self._others[index][1].append(piece)
                else:
                    yield from self._calls.more(index, piece)
            case "citations_delta":
                yield from self._said("", [delta.any("citation")])
            case _:
                pass

    def _end(self, index: int) -> Iterator[Event]:
        if index in self._others:
            block, pieces = self._others.pop(index)
            if any(pieces):
                block["input"] = decode_json("".join(pieces))
            yield from self._calls.beside(PartAdded(Other(block)))
        else:
            self._undecided = index
            yield from self._calls.end_if_whole(index)


def _usage(fields: Fields) -> Usage:
    """The API counts what is cached apart from the rest."""
    read = fields.take("cache_read_input_tokens", int) or 0
    written = fields.take("cache_creation_input_tokens", int) or 0
    details = fields.inner("output_tokens_details") or Fields({})
    return Usage(
        input=(fields.take("input_tokens", int) or 0) + read + written,
        output=fields.take("output_tokens", int) or 0,
        cached=read,
        cache_written=written,
        reasoning=details.take("thinking_tokens", int) or 0,
        extra=fields.rest(),
    )
