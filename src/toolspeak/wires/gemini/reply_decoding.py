"""An upstream's generateContent response, whole or in chunks, each of which is one too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...errors import WireError
from ...events import Event, Finish, PartAdded, ReasoningDelta, Started, TextDelta
from ...types import Image, Note, Other, StopReason, Usage
from ..call_assembly import Calls
from ..common import GIVEN_ID, set_apart
from ..fields import OWN, Json
from .errors import decode_failure
from .parts import BOOKKEEPING, CANDIDATE, NAME, STOPS, TOTAL, USED, Cased, number_of, signature_in
from .request_decoding import is_other, media


class Decoder:
    """Chunks of a stream, or a whole response, to events."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._started = False
        self._blocked = False
        self._usage: Usage | None = None
        self._raw_stop: str | None = None
        self._extra: Json = {}
        self._left: dict[str, None] = {}

    @property
    def complete(self) -> bool:
        return self._raw_stop is not None

    def feed(self, frame: Any) -> Iterator[Event]:
        for item in frame if isinstance(frame, list) else [frame]:
            fields = Cased(item)
            if fields.has("error"):
                yield decode_failure(500, item)
                return
            yield from self._chunk(fields)

    def finish(self) -> Iterator[Event]:
        for key in self._left:
            yield Note("unsupported", f"{key} of the reply is not carried", key)
        raw = self._raw_stop
        reason: StopReason = "filter" if self._blocked else STOPS.get(raw or "", "stop")
        if raw and (reason == "error" or (raw not in STOPS and not self._blocked)):
            said = str(self._extra.get(f"{OWN}{CANDIDATE}finishMessage") or "")[:1000]
            code = "malformed" if raw.startswith("MALFORMED") else "converted"
            yield Note(code, f"the reply ended with {raw}, which is taken for {reason!r}", said)
        yield Finish(self._calls.reason(reason), raw, self._usage, self._extra or None)

    def _chunk(self, fields: Cased) -> Iterator[Event]:
        identity, model = fields.text("responseId"), fields.text("modelVersion")
        if not self._started:
            self._started = True
            yield Started(identity, model, wire=NAME)
        for position, (item, path) in enumerate(fields.each("candidates")):
            candidate = Cased(item, path)
            if candidate.any("index") or position:
                self._left["a second candidate"] = None
            else:
                yield from self._content(candidate)
        if fields.are_left():
            self._besides(fields)

    def _content(self, candidate: Cased) -> Iterator[Event]:
        content = candidate.inner("content")
        for item, path in content.each("parts") if content is not None else ():
            if type(item) is dict and len(item) == 1 and type(text := item.get("text")) is str:
                if text:
                    yield TextDelta(text)
            else:
                yield from self._part(Cased(item, path), item)
        if candidate.are_left():
            self._raw_stop = candidate.text("finishReason") or self._raw_stop
            for key, value in candidate.rest().items():
                own = OWN if key in BOOKKEEPING else ""
                self._extra[f"{own}{CANDIDATE}{key}"] = value

    def _besides(self, fields: Cased) -> None:
        """What stands beside the candidates."""
        if (usage := fields.inner("usageMetadata")) is not None:
            self._usage = _usage(usage)
        feedback = fields.peek("promptFeedback")
        if isinstance(feedback, dict) and (reason := Cased(feedback).any("blockReason")):
            self._blocked, self._raw_stop = True, str(reason)
        self._extra |= set_apart(fields.rest(), BOOKKEEPING)

    def _part(self, fields: Cased, item: Json) -> Iterator[Event]:
        """What a part says, after the signature of the thought that led to it."""
        if is_other(fields):
            yield PartAdded(Other(dict(item)))
            return
        signature = signature_in(fields)
        if fields.take("thought", bool):
            yield ReasoningDelta(fields.text("text"), signature, fields.rest() or None)
            return
        if signature:
            yield ReasoningDelta("", signature)
        if call := fields.inner("functionCall"):
            yield from self._call(call, fields)
        elif fields.has("text"):
            text, extra = fields.text("text"), fields.rest()
            if text or extra:
                yield TextDelta(text, extra or None)
        elif isinstance(found := media(fields), Image):
            yield PartAdded(found)
        elif not signature or found:
            signed = ("thoughtSignature", "thought_signature")
            yield PartAdded(Other({key: item[key] for key in item if key not in signed}))

    def _call(self, call: Cased, part: Cased) -> Iterator[Event]:
        if call.any("partialArgs", "willContinue"):
            raise WireError("arguments in pieces, which nobody has asked for", call.at("args"))
        identity, name, arguments = call.text("id"), call.need("name", str), call.any("args")
        extra = part.rest() | ({"functionCall": rest} if (rest := call.rest()) else {})
        extra |= {} if identity else {GIVEN_ID: ""}
        yield from self._calls.whole(identity, name, arguments, extra=extra)


_COUNTS = ("prompt", "toolUsePrompt", "candidates", "thoughts", "cachedContent", "total")


def _usage(fields: Cased) -> Usage:
    prompt, used, said, thought, cached, total = (_count(fields, word) for word in _COUNTS)
    extra = set_apart(fields.rest(), BOOKKEEPING)
    extra |= {USED: used} if used else {}
    extra |= {TOTAL: total} if total not in (0, prompt + used + said + thought) else {}
    return Usage(prompt + used, said + thought, cached, 0, thought, extra)


def _count(fields: Cased, word: str) -> int:
    value = number_of(fields.any(f"{word}TokenCount"))
    return int(value) if isinstance(value, (int, float)) else 0
