"""What a reply said, piece by piece, read once more from its bytes.

    said = read("openai_chat", turn.heard, is_stream=True)
    said.text                    all that the model wrote, thought and called, as text
    said.pieces[3].end           how much of it had come after the fourth chunk

A call that came as a structure stands in the text as `get_weather({"city": "Oslo"})`.
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
from ...upstream.capture import Flow
from ...wires import StreamDecoder, get_wire
from ...wires.framing import decode_json
from .masking import Span


class Piece(Struct, frozen=True):
    """How much of a reply was there after one chunk."""

    seconds: float
    end: int
    raw_end: int


class Said(Struct, frozen=True):
    """A reply as text."""

    text: str
    raw: str
    """Its bytes."""
    pieces: list[Piece]
    words: list[Span]
    """Where in the text each delta stands."""
    thoughts: list[Span]
    calls: list[tuple[int, int, str]]
    """Where the structures stand, and the tools that they name."""

    def covered_raw(self, secrets: list[Span]) -> str:
        """The bytes without these places of the text, wherever a stream has cut them. If one cannot
        be found there for certain, nothing of the bytes is shown."""
        if not secrets:
            return self.raw
        if _SPELLS in self.raw:
            # Every token once more, in other words.
            return "*" * len(self.raw)
        parts: list[str] = []
        copied = at = 0
        for start, end in self.words:
            word = _escaped(self.text[start:end])
            found = _value_at(self.raw, word, at)
            is_secret = any(first < end and start < last for first, last in secrets)
            if found < 0:
                if is_secret:
                    return "*" * len(self.raw)
                continue
            at = found + len(word)
            if is_secret:
                parts += self.raw[copied:found], "*" * len(word)
                copied = at
        return "".join(parts) + self.raw[copied:]


_SPELLS = '"logprobs":{'


def _value_at(raw: str, word: str, at: int) -> int:
    """Where that stands as a value of JSON, and not as a key."""
    at = raw.find(f'"{word}"', at)
    while at >= 0:
        after = at + len(word) + 2
        if raw[after : after + 8].lstrip()[:1] in (",", "}", "]"):
            return at + 1
        at = raw.find(f'"{word}"', at + 1)
    return -1


class _Reading:
    """Writes down what happens."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.length = 0
        self.words: list[Span] = []
        self.thoughts: list[Span] = []
        self.calls: list[tuple[int, int, str]] = []
        self._call: tuple[int, str] | None = None
        self._has_arguments = False

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            start = self.length
            match event:
                case TextDelta():
                    self._write(event.text, is_word=True)
                case ReasoningDelta():
                    self._write(event.text, is_word=True)
                    self._think(start)
                case CallStart():
                    self._call, self._has_arguments = (start, event.name), False
                    self._write(f"{event.name}(")
                case ArgumentsDelta():
                    self._has_arguments = True
                    self._write(event.json, is_word=True)
                case CallEnd():
                    self._end("" if self._has_arguments else event.call.input)
                case CallRejected() if event.rejection and self._call is None:
                    self._write(f"{event.rejection.name or ''}({event.rejection.raw})")
                case CallRejected():
                    self._end("")
                case _:
                    pass

    def _write(self, text: str, *, is_word: bool = False) -> None:
        if text:
            self.parts.append(text)
            if is_word:
                self.words.append((self.length, self.length + len(text)))
            self.length += len(text)

    def _think(self, start: int) -> None:
        if self.thoughts and self.thoughts[-1][1] == start:
            start = self.thoughts.pop()[0]
        if self.length > start:
            self.thoughts.append((start, self.length))

    def _end(self, arguments: str) -> None:
        start, name = self._call or (self.length, "")
        self._call = None
        self._write(f"{arguments})")
        self.calls.append((start, self.length, name))


def read(wire: str, flow: Flow, *, is_stream: bool) -> Said:
    """Read a reply of that API."""
    decoder = StreamDecoder(get_wire(wire), arguments="incremental")
    reading = _Reading()
    to_text = codecs.getincrementaldecoder("utf-8")("replace")
    raw: list[str] = []
    length = 0
    pieces: list[Piece] = []
    value = None if is_stream else _value(flow)
    for seconds, data in flow.each():
        if value is None:
            reading.take(decoder.feed(data))
        raw.append(to_text.decode(data))
        length += len(raw[-1])
        pieces.append(Piece(seconds, reading.length, length))
    reading.take(decoder.finish() if value is None else decoder.feed_whole(value))
    raw.append(to_text.decode(b"", final=True))
    if flow.lost:
        raw.append(f"\n… {flow.lost} more bytes were not kept")
    if pieces:
        # What only the end makes certain was there with the last chunk.
        pieces[-1] = Piece(pieces[-1].seconds, reading.length, length + len(raw[-1]))
    return Said(
        "".join(reading.parts),
        "".join(raw),
        pieces,
        reading.words,
        reading.thoughts,
        reading.calls,
    )


def _value(flow: Flow) -> object | None:
    try:
        return decode_json(b"".join(flow.pieces))
    except WireError:
        return None


def _escaped(text: str) -> str:
    """As it stands in JSON, for the most part."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
