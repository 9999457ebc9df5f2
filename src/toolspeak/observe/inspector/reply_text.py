"""The text of a reply: decoded from its captured bytes, and with its calls, notes, … highlighted.

    reply = read_reply_text("openai_chat", capture, is_stream=True)
    reply.text                   all text, reasoning and calls of the model, as text
    reply.chunks[3].end          how much of it had arrived after the fourth chunk

A structured call is written as `get_weather({"city": "Oslo"})`.
"""

from __future__ import annotations

import codecs
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any, Literal

from msgspec import Struct, structs, to_builtins

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
from ...types import Reasoning, Reply
from ...upstream.record import StreamCapture
from ...wires import StreamDecoder, get_wire
from ...wires.framing import decode_json
from .masking import Masker, Span

_LOGPROBS = '"logprobs":{'
HighlightKind = Literal["call", "rejected", "note", "reasoning", "secret"]
_CLOSER = re.compile(r"\s*(?:</[\w:.\-]+>|<[|｜][^<>\n]*?(?:end|/)[^<>\n]*[|｜]>|\[/\w+\])")
_OPENER = re.compile(r"(?:<[\w:.\-]+>|<[|｜][^<>\n]+[|｜]>|\[\w+\])\s*$")
_MAX_MARKER = 60
_MIN_LENGTH = 3
"""A shorter text would be found anywhere."""


class ReplyChunk(Struct, frozen=True):
    """How much of a reply had arrived after one chunk."""

    seconds: float
    end: int
    raw_end: int


class ReplyText(Struct):
    """A reply as text."""

    text: str = ""
    raw: str = ""
    """The response body."""
    chunks: list[ReplyChunk] = []
    deltas: list[Span] = []
    reasoning: list[Span] = []
    calls: list[tuple[int, int, str]] = []
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
    """Return the position of a string as a JSON value, not as a key; -1 if there is none."""
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
        self.reply = ReplyText()
        self.parts: list[str] = []
        self.length = 0
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
                self.reply.deltas.append((self.length, self.length + len(text)))
            self.length += len(text)

    def _extend_reasoning(self, start: int) -> None:
        reasoning = self.reply.reasoning
        if reasoning and reasoning[-1][1] == start:
            start = reasoning.pop()[0]
        if self.length > start:
            reasoning.append((start, self.length))

    def _end_call(self, arguments: str) -> None:
        start, name = self._call or (self.length, "")
        self._call = None
        self._write(f"{arguments})")
        self.reply.calls.append((start, self.length, name))


def read_reply_text(wire: str, capture: StreamCapture, *, is_stream: bool) -> ReplyText:
    """Decode a captured reply of that wire."""
    decoder = StreamDecoder(get_wire(wire), arguments="incremental")
    builder = _ReplyTextBuilder()
    utf8 = codecs.getincrementaldecoder("utf-8")("replace")
    raw: list[str] = []
    length = 0
    chunks = builder.reply.chunks
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
    builder.reply.text, builder.reply.raw = "".join(builder.parts), "".join(raw)
    return builder.reply


def _decode_body(capture: StreamCapture) -> object | None:
    try:
        return decode_json(b"".join(capture.chunks))
    except WireError:
        return None


def _escape_json(text: str) -> str:
    """Return the text as most APIs escape it in JSON."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


# Highlights.


class Highlight(Struct, frozen=True):
    """A highlighted part of a text."""

    start: int
    end: int
    kind: HighlightKind
    label: str
    description: str
    index: int = 0
    """Position among the calls, rejections, … of its kind."""


class HighlightFinder:
    """Collects the highlights of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: list[Highlight] = []
        self._searched_to: dict[str, int] = {}
        self._last_match: dict[str, str] = {}

    def add(self, highlight: Highlight) -> None:
        self._found.append(highlight)

    def add_reply(self, reply: Reply) -> None:
        """Find the calls and rejected calls, and the text that each note refers to."""
        for index, call in enumerate(reply.calls):
            raw = call.raw if call.dialect else ""
            self._add_match("call", raw, call.name, f"call to {call.name}", index)
        for index, one in enumerate(reply.rejected):
            self._add_match("rejected", one.raw, one.name or one.code, one.problem, index)
        for index, note in enumerate(reply.notes):
            # A note may also refer to a path (`$.x`).
            if not note.where.startswith("$"):
                self._add_match("note", note.where, note.code, note.message, index)

    def add_reasoning(self, reply: Reply) -> None:
        parts = (part for part in reply.parts if isinstance(part, Reasoning))
        for index, part in enumerate(parts):
            self._add_match("reasoning", part.text.strip(), "reasoning", "", index)

    def find_nested(self) -> list[Highlight]:
        """Return the highlights in order, without those that would overlap another partly."""
        nested: list[Highlight] = []
        enclosing: list[Highlight] = []
        for one in sorted(self._found, key=lambda one: (one.start, -one.end)):
            while enclosing and enclosing[-1].end <= one.start:
                enclosing.pop()
            if not enclosing or one.end <= enclosing[-1].end:
                nested.append(one)
                enclosing.append(one)
        return nested

    def _add_match(
        self, kind: HighlightKind, part: str, label: str, description: str, index: int
    ) -> None:
        if len(part) < _MIN_LENGTH:
            return
        if part == self._last_match.get(kind):
            # Several calls in one block.
            self._found.append(structs.replace(self._found[-1], label=label, index=index))
            return
        start = self._text.find(part, self._searched_to.get(kind, 0))
        if start < 0:
            start = self._text.find(part)
        if start >= 0:
            end = start + len(part)
            self._searched_to[kind], self._last_match[kind] = end, part
            if kind in ("call", "rejected"):
                start, end = self._include_markers(start, end)
            self._found.append(Highlight(start, end, kind, label, description, index))

    def _include_markers(self, start: int, end: int) -> tuple[int, int]:
        """Extend a block by its markers: the raw text of a rejection comes without them, and that
        of a call may lack its closing marker."""
        if closer := _CLOSER.match(self._text, end):
            end = closer.end()
            if opener := _OPENER.search(self._text, max(0, start - _MAX_MARKER), start):
                start = opener.start()
        return start, end


def utf16_offsets(text: str) -> Callable[[int], int]:
    """Return a function from offsets in the text to offsets that JavaScript counts."""
    wide = [] if text.isascii() else [at for at, char in enumerate(text) if char > "\uffff"]
    if not wide:
        return lambda at: at
    return lambda at: at + bisect_left(wide, at)


def encode_highlights(
    highlights: Iterable[Highlight], text: str, masker: Masker | None = None
) -> list[dict[str, Any]]:
    """Return highlights as JSON for the page, with UTF-16 offsets and masked secrets."""
    to_utf16 = utf16_offsets(text)
    encoded = [to_builtins(one) for one in highlights]
    for one in encoded:
        one["start"], one["end"] = to_utf16(one["start"]), to_utf16(one["end"])
        if masker:
            one["label"] = masker.mask_text(one["label"])
            one["description"] = masker.mask_text(one["description"])
    return encoded
