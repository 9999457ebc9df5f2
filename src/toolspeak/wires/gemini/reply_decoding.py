"""An upstream's generateContent response, whole or in chunks, each of which is one too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...errors import WireError
from ...events import Event, Finish, PartAdded, ReasoningDelta, Started, TextDelta
from ...types import Image, Note, Other, StopReason, Usage
from ..call_assembly import CallAssembler
from ..call_history import ORIGINAL_ID
from ..encoding import mark_private
from ..fields import PRIVATE, Json
from .errors import decode_failure
from .parts import (
    BOOKKEEPING,
    CANDIDATE,
    NAME,
    STOPS,
    TOTAL,
    USED,
    CamelCaseFields,
    number_of,
    signature_in,
)
from .request_decoding import is_other, media


class GeminiReplyDecoder:
    """Chunks of a stream, or a whole response, to events."""

    def __init__(self, calls: CallAssembler) -> None:
        self._calls = calls
        self._started = False
        self._blocked = False
        self._usage: Usage | None = None
        self._raw_stop: str | None = None
        self._extra: Json = {}
        self._left: dict[str, None] = {}

    @property
    def is_complete(self) -> bool:
        return self._raw_stop is not None

    def feed(self, frame: Any) -> Iterator[Event]:
        for item in frame if isinstance(frame, list) else [frame]:
            fields = CamelCaseFields(item)
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
            said = str(self._extra.get(f"{PRIVATE}{CANDIDATE}finishMessage") or "")[:1000]
            code = "malformed" if raw.startswith("MALFORMED") else "converted"
            yield Note(code, f"the reply ended with {raw}, which is taken for {reason!r}", said)
        yield Finish(self._calls.adjust_stop_reason(reason), raw, self._usage, self._extra or None)

    def _chunk(self, fields: CamelCaseFields) -> Iterator[Event]:
        identity, model = fields.take_text("responseId"), fields.take_text("modelVersion")
        if not self._started:
            self._started = True
            yield Started(identity, model, wire=NAME)
        for position, (item, path) in enumerate(fields.take_items("candidates")):
            candidate = CamelCaseFields(item, path)
            if candidate.take_any("index") or position:
                self._left["a second candidate"] = None
            else:
                yield from self._content(candidate)
        if fields.has_rest():
            self._besides(fields)

    def _content(self, candidate: CamelCaseFields) -> Iterator[Event]:
        content = candidate.take_object("content")
        for item, path in content.take_items("parts") if content is not None else ():
            if type(item) is dict and len(item) == 1 and type(text := item.get("text")) is str:
                if text:
                    yield TextDelta(text)
            else:
                yield from self._part(CamelCaseFields(item, path), item)
        if candidate.has_rest():
            self._raw_stop = candidate.take_text("finishReason") or self._raw_stop
            for key, value in candidate.rest().items():
                own = PRIVATE if key in BOOKKEEPING else ""
                self._extra[f"{own}{CANDIDATE}{key}"] = value

    def _besides(self, fields: CamelCaseFields) -> None:
        """What stands beside the candidates."""
        if (usage := fields.take_object("usageMetadata")) is not None:
            self._usage = _usage(usage)
        feedback = fields.peek("promptFeedback")
        if isinstance(feedback, dict) and (
            reason := CamelCaseFields(feedback).take_any("blockReason")
        ):
            self._blocked, self._raw_stop = True, str(reason)
        self._extra |= mark_private(fields.rest(), BOOKKEEPING)

    def _part(self, fields: CamelCaseFields, item: Json) -> Iterator[Event]:
        """What a part says, after the signature of the thought that led to it."""
        if is_other(fields):
            yield PartAdded(Other(dict(item)))
            return
        signature = signature_in(fields)
        if fields.take("thought", bool):
            yield ReasoningDelta(fields.take_text("text"), signature, fields.rest() or None)
            return
        if signature:
            yield ReasoningDelta("", signature)
        if call := fields.take_object("functionCall"):
            yield from self._call(call, fields)
        elif fields.has("text"):
            text, extra = fields.take_text("text"), fields.rest()
            if text or extra:
                yield TextDelta(text, extra or None)
        elif isinstance(found := media(fields), Image):
            yield PartAdded(found)
        elif not signature or found:
            signed = ("thoughtSignature", "thought_signature")
            yield PartAdded(Other({key: item[key] for key in item if key not in signed}))

    def _call(self, call: CamelCaseFields, part: CamelCaseFields) -> Iterator[Event]:
        if call.take_any("partialArgs", "willContinue"):
            raise WireError("arguments in pieces, which nobody has asked for", call.path_of("args"))
        identity, name, arguments = (
            call.take_text("id"),
            call.require("name", str),
            call.take_any("args"),
        )
        extra = part.rest() | ({"functionCall": rest} if (rest := call.rest()) else {})
        extra |= {} if identity else {ORIGINAL_ID: ""}
        yield from self._calls.add_whole(identity, name, arguments, extra=extra)


_COUNTS = ("prompt", "toolUsePrompt", "candidates", "thoughts", "cachedContent", "total")


def _usage(fields: CamelCaseFields) -> Usage:
    prompt, used, said, thought, cached, total = (_count(fields, word) for word in _COUNTS)
    extra = mark_private(fields.rest(), BOOKKEEPING)
    extra |= {USED: used} if used else {}
    extra |= {TOTAL: total} if total not in (0, prompt + used + said + thought) else {}
    return Usage(prompt + used, said + thought, cached, 0, thought, extra)


def _count(fields: CamelCaseFields, word: str) -> int:
    value = number_of(fields.take_any(f"{word}TokenCount"))
    return int(value) if isinstance(value, (int, float)) else 0
