"""Decodes the captured bytes of a reply into text, with how much had arrived after each chunk.

    reply = read_reply_text("openai_chat", capture, is_stream=True)
    reply.text                   all text, reasoning and calls of the model, as text
    reply.chunks[3].end          how much of it had arrived after the fourth chunk

A structured call is written as `get_weather({"city": "Oslo"})`.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable

from msgspec import Struct

from ...errors import WireError
from ...events import (
    ArgumentsDelta,
    CallEnd,
    CallRejected,
    CallStart,
    Event,
    ReasoningDelta,
    TextDelta,
)
from ...upstream.record import StreamCapture
from ...wires import StreamDecoder, get_wire
from ...wires.framing import decode_json
from .masking import Span

_LOGPROBS = '"logprobs":{'


class ReplyChunk(Struct, frozen=True):
    """How much of a reply had arrived after one chunk."""

    seconds: float
    end: int
    raw_end: int


class ReplyText(Struct, frozen=True):
    """A reply as text."""

    text: str
    raw: str
    """The response body."""
    chunks: list[ReplyChunk]
    deltas: list[Span]
    reasoning: list[Span]
    calls: list[tuple[int, int, str]]
    """Start, end and tool name of each structured call."""

    def mask_raw(self, secrets: list[Span]) -> str:
        """Mask secrets, given as spans of `text`, in `raw`, also where chunks split them.

        If one cannot be located for certain, all of `raw` is masked.
        """
        if not secrets:
            return self.raw
        if _LOGPROBS in self.raw:
            # Log probabilities repeat every token in another form.
            return "*" * len(self.raw)
        parts: list[str] = []
        copied = at = 0
        for start, end in self.deltas:
            delta = _escape_json(self.text[start:end])
            found = _find_json_value(self.raw, delta, at)
            is_secret = any(first < end and start < last for first, last in secrets)
            if found < 0:
                if is_secret:
                    return "*" * len(self.raw)
                continue
            at = found + len(delta)
            if is_secret:
                parts += self.raw[copied:found], "*" * len(delta)
                copied = at
        return "".join(parts) + self.raw[copied:]


def _find_json_value(raw: str, text: str, at: int) -> int:
    """Return where a string stands as a JSON value, not as a key; -1 if nowhere."""
    at = raw.find(f'"{text}"', at)
    while at >= 0:
        after = at + len(text) + 2
        if raw[after : after + 8].lstrip()[:1] in (",", "}", "]"):
            return at + 1
        at = raw.find(f'"{text}"', at + 1)
    return -1


class _ReplyTextBuilder:
    """Writes events as text."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.length = 0
        self.deltas: list[Span] = []
        self.reasoning: list[Span] = []
        self.calls: list[tuple[int, int, str]] = []
        self._call: tuple[int, str] | None = None
        self._has_arguments = False

    def add_events(self, events: Iterable[Event]) -> None:
        for event in events:
            start = self.length
            match event:
                case TextDelta():
                    self._write(event.text, is_delta=True)
                case ReasoningDelta():
                    self._write(event.text, is_delta=True)
                    self._extend_reasoning(start)
                case CallStart():
                    self._call, self._has_arguments = (start, event.name), False
                    self._write(f"{event.name}(")
                case ArgumentsDelta():
                    self._has_arguments = True
                    self._write(event.json, is_delta=True)
                case CallEnd():
                    self._end_call("" if self._has_arguments else event.call.input)
                case CallRejected() if event.rejection and self._call is None:
                    self._write(f"{event.rejection.name or ''}({event.rejection.raw})")
                case CallRejected():
                    self._end_call("")
                case _:
                    pass

    def _write(self, text: str, *, is_delta: bool = False) -> None:
        if text:
            self.parts.append(text)
            if is_delta:
                self.deltas.append((self.length, self.length + len(text)))
            self.length += len(text)

    def _extend_reasoning(self, start: int) -> None:
        if self.reasoning and self.reasoning[-1][1] == start:
            start = self.reasoning.pop()[0]
        if self.length > start:
            self.reasoning.append((start, self.length))

    def _end_call(self, arguments: str) -> None:
        start, name = self._call or (self.length, "")
        self._call = None
        self._write(f"{arguments})")
        self.calls.append((start, self.length, name))


def read_reply_text(wire: str, capture: StreamCapture, *, is_stream: bool) -> ReplyText:
    """Decode a captured reply of that wire."""
    decoder = StreamDecoder(get_wire(wire), arguments="incremental")
    builder = _ReplyTextBuilder()
    utf8 = codecs.getincrementaldecoder("utf-8")("replace")
    raw: list[str] = []
    length = 0
    chunks: list[ReplyChunk] = []
    body = None if is_stream else _decode_body(capture)
    for seconds, data in capture.timed_chunks():
        if body is None:
            builder.add_events(decoder.feed(data))
        raw.append(utf8.decode(data))
        length += len(raw[-1])
        chunks.append(ReplyChunk(seconds, builder.length, length))
    builder.add_events(decoder.finish() if body is None else decoder.feed_whole(body))
    raw.append(utf8.decode(b"", final=True))
    if capture.dropped:
        raw.append(f"\n… {capture.dropped} more bytes were not kept")
    if chunks:
        # Text that is certain only at the end arrived with the last chunk.
        chunks[-1] = ReplyChunk(chunks[-1].seconds, builder.length, length + len(raw[-1]))
    return ReplyText(
        "".join(builder.parts),
        "".join(raw),
        chunks,
        builder.deltas,
        builder.reasoning,
        builder.calls,
    )


def _decode_body(capture: StreamCapture) -> object | None:
    try:
        return decode_json(b"".join(capture.chunks))
    except WireError:
        return None


def _escape_json(text: str) -> str:
    """Return the text as most APIs escape it in JSON."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
