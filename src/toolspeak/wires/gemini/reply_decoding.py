"""Decodes an upstream's generateContent response, whole or in chunks of the same shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...errors import WireError
from ...events import Event, Finish, PartAdded, ReasoningDelta, Started, TextDelta
from ...types import Image, Note, Other, StopReason, Usage
from ..calls import ORIGINAL_ID, CallAssembler
from ..encoding import mark_private
from ..fields import PRIVATE, Json, nest
from ..wire import ReplyDecoder
from .errors import decode_failure
from .parts import (
    NAME,
    CamelCaseFields,
    decode_media,
    decode_signature,
    is_other_part,
    parse_number,
)

CANDIDATE = "candidate."
"""Begins the keys, in the `extra` of a reply, of fields that stood in its candidate."""
TOTAL_TOKENS = f"{PRIVATE}totalTokenCount"
TOOL_USE_TOKENS = f"{PRIVATE}toolUsePromptTokenCount"
"""In the `extra` of usage: counts that the canonical ones do not determine."""
STATISTICS = frozenset(
    {
        "avgLogprobs",
        "finishMessage",
        "safetyRatings",
        "tokenCount",
        "createTime",
        "modelStatus",
        "promptFeedback",
        "promptTokensDetails",
        "cacheTokensDetails",
        "candidatesTokensDetails",
        "thoughtsTokensDetails",
        "toolUsePromptTokensDetails",
        "serviceTier",
        "trafficType",
    }
)
"""Fields of a reply about how it was made."""
STOP_REASONS: dict[str, StopReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "pause",
    **dict.fromkeys(
        (
            "SAFETY",
            "RECITATION",
            "LANGUAGE",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
        ),
        "filter",
    ),
    **dict.fromkeys(
        (
            "OTHER",
            "MALFORMED_FUNCTION_CALL",
            "UNEXPECTED_TOOL_CALL",
            "TOO_MANY_TOOL_CALLS",
            "MALFORMED_RESPONSE",
            "MISSING_THOUGHT_SIGNATURE",
            "NO_IMAGE",
            "IMAGE_OTHER",
        ),
        "error",
    ),
}
_COUNTS = ("prompt", "toolUsePrompt", "candidates", "thoughts", "cachedContent", "total")


class GeminiReplyDecoder(ReplyDecoder):
    def __init__(self, calls: CallAssembler) -> None:
        super().__init__(calls)
        self._is_blocked = False

    def feed(self, frame: Any) -> Iterator[Event]:
        for item in frame if isinstance(frame, list) else [frame]:
            fields = CamelCaseFields(item)
            if fields.has("error"):
                yield decode_failure(500, item)
                return
            yield from self._decode_chunk(fields)

    def finish(self) -> Iterator[Event]:
        yield from self._note_dropped()
        raw = self._raw_stop
        reason: StopReason = "filter" if self._is_blocked else STOP_REASONS.get(raw or "", "stop")
        if raw and (reason == "error" or (raw not in STOP_REASONS and not self._is_blocked)):
            details = str(self._extra.get(f"{PRIVATE}{CANDIDATE}finishMessage") or "")[:1000]
            code = "malformed" if raw.startswith("MALFORMED") else "converted"
            yield Note(code, f"The finish reason {raw} is read as {reason!r}.", details)
        reason = self._calls.adjust_stop_reason(reason)
        yield Finish(reason, raw, self._usage, self._extra or None)

    def _decode_chunk(self, fields: CamelCaseFields) -> Iterator[Event]:
        identity, model = fields.take_text("responseId"), fields.take_text("modelVersion")
        if not self._is_started:
            self._is_started = True
            yield Started(identity, model, wire=NAME)
        for position, (item, path) in enumerate(fields.take_items("candidates")):
            candidate = CamelCaseFields(item, path)
            if candidate.take_any("index") or position:
                self._dropped["candidates[1]"] = None
            else:
                yield from self._decode_candidate(candidate)
        if fields.has_rest():
            self._decode_rest(fields)

    def _decode_candidate(self, candidate: CamelCaseFields) -> Iterator[Event]:
        content = candidate.take_object("content")
        for item, path in content.take_items("parts") if content is not None else ():
            if type(item) is dict and len(item) == 1 and type(text := item.get("text")) is str:
                # A fast path for most parts.
                if text:
                    yield TextDelta(text)
            else:
                yield from self._decode_part(CamelCaseFields(item, path), item)
        if candidate.has_rest():
            self._raw_stop = candidate.take_text("finishReason") or self._raw_stop
            for key, value in candidate.rest().items():
                prefix = PRIVATE if key in STATISTICS else ""
                self._extra[f"{prefix}{CANDIDATE}{key}"] = value

    def _decode_rest(self, fields: CamelCaseFields) -> None:
        """Decode what stands beside the candidates."""
        if (usage := fields.take_object("usageMetadata")) is not None:
            self._usage = _decode_usage(usage)
        feedback = fields.peek("promptFeedback")
        reason = isinstance(feedback, dict) and CamelCaseFields(feedback).take_any("blockReason")
        if reason:
            self._is_blocked, self._raw_stop = True, str(reason)
        self._extra |= mark_private(fields.rest(), STATISTICS)

    def _decode_part(self, fields: CamelCaseFields, item: Json) -> Iterator[Event]:
        """Decode a part, after its signature: that belongs to the reasoning before it."""
        if is_other_part(fields):
            yield PartAdded(Other(dict(item)))
            return
        signature = decode_signature(fields)
        if fields.take("thought", bool):
            yield ReasoningDelta(fields.take_text("text"), signature, fields.rest() or None)
            return
        if signature:
            yield ReasoningDelta("", signature)
        if call := fields.take_object("functionCall"):
            yield from self._decode_call(call, fields)
        elif fields.has("text"):
            text, extra = fields.take_text("text"), fields.rest()
            if text or extra:
                yield TextDelta(text, extra or None)
        elif isinstance(media := decode_media(fields), Image):
            yield PartAdded(media)
        elif not signature or media:
            signed = ("thoughtSignature", "thought_signature")
            yield PartAdded(Other({key: item[key] for key in item if key not in signed}))

    def _decode_call(self, call: CamelCaseFields, part: CamelCaseFields) -> Iterator[Event]:
        if call.take_any("partialArgs", "willContinue"):
            raise WireError("Streamed arguments are not supported", call.path_of("args"))
        identity, name = call.take_text("id"), call.require("name", str)
        arguments = call.take_any("args")
        extra = part.rest() | nest("functionCall", call.rest())
        extra |= {} if identity else {ORIGINAL_ID: ""}
        yield from self._calls.add_whole(identity, name, arguments, extra=extra)


def _decode_usage(fields: CamelCaseFields) -> Usage:
    counts = (_decode_count(fields, word) for word in _COUNTS)
    prompt, tool_use, text, reasoning, cached, total = counts
    extra = mark_private(fields.rest(), STATISTICS)
    extra |= {TOOL_USE_TOKENS: tool_use} if tool_use else {}
    extra |= {TOTAL_TOKENS: total} if total not in (0, prompt + tool_use + text + reasoning) else {}
    return Usage(prompt + tool_use, text + reasoning, cached, 0, reasoning, extra)


def _decode_count(fields: CamelCaseFields, word: str) -> int:
    value = parse_number(fields.take_any(f"{word}TokenCount"))
    return int(value) if isinstance(value, (int, float)) else 0
