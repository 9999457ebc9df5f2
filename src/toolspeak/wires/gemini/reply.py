"""Decodes an upstream's generateContent response and encodes one for a client, whole or in chunks
of the same shape.

data: {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hi"}]}, "index": 0}], …}

Each chunk is one line, and the stream holds nothing else: clients do not accept comments.

{"error": {"code": 400, "message": "…", "status": "INVALID_ARGUMENT", "details": [{…}]}}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import structs

from ...errors import WireError
from ...events import CallEnd, Event, Finish, PartAdded, ReasoningDelta, Started, TextDelta
from ...types import (
    Failure,
    FailureKind,
    Image,
    Note,
    Other,
    Part,
    Reasoning,
    Reply,
    StopReason,
    Text,
    ToolCall,
    Usage,
)
from ..calls import CallAssembler
from ..encoding import mark_private, omit_none, unmark_private
from ..errors import classify_failure, write_context_message
from ..fields import PRIVATE, Json
from ..framing import encode_line
from ..wire import Envelope, FrameDecoder, StreamEncoder
from .parts import (
    NAME,
    CamelCaseFields,
    decode_call,
    decode_media,
    decode_signature,
    encode_part,
    encode_signed_parts,
    is_other_part,
    parse_number,
    wrap_signature,
)

_CANDIDATE = "candidate."
"""Begins the keys, in the `extra` of a reply, of fields that stood in its candidate."""
_TOTAL_TOKENS = f"{PRIVATE}totalTokenCount"
_TOOL_USE_TOKENS = f"{PRIVATE}toolUsePromptTokenCount"
"""In the `extra` of usage: counts that the canonical ones do not determine."""
_STATISTICS = frozenset(
    {
        *("avgLogprobs", "finishMessage", "safetyRatings", "tokenCount"),
        *("createTime", "modelStatus", "promptFeedback", "serviceTier", "trafficType"),
        *("promptTokensDetails", "cacheTokensDetails", "toolUsePromptTokensDetails"),
        *("candidatesTokensDetails", "thoughtsTokensDetails"),
    }
)
"""Fields of a candidate, a reply and its usage about how the reply was made."""
_FILTERED = {
    *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
    *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
}
_FAILED = {
    *("OTHER", "NO_IMAGE", "IMAGE_OTHER", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE"),
    *("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"),
}
_STOP_REASONS: dict[str, StopReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "pause",
    **dict.fromkeys(_FILTERED, "filter"),
    **dict.fromkeys(_FAILED, "error"),
}
_FINISH_REASONS = {
    "length": "MAX_TOKENS",
    "filter": "SAFETY",
    "refusal": "SAFETY",
    "error": "OTHER",
}
_STATUS_NAMES: dict[FailureKind, str] = {
    "unauthorized": "UNAUTHENTICATED",
    "forbidden": "PERMISSION_DENIED",
    "not_found": "NOT_FOUND",
    "rate_limit": "RESOURCE_EXHAUSTED",
    "overloaded": "UNAVAILABLE",
    "timeout": "DEADLINE_EXCEEDED",
    "upstream": "UNAVAILABLE",
    "internal": "INTERNAL",
}
_VIOLATION = "type.googleapis.com/google.rpc.BadRequest"
_CONTEXT_SENTENCE = (
    "The input token count ({prompt}) exceeds the maximum number of tokens allowed ({limit})."
)
_PARTIAL_CALL_FIELDS = ("partialArgs", "partial_args", "willContinue", "will_continue")
_COUNTS = ("prompt", "toolUsePrompt", "candidates", "thoughts", "cachedContent", "total")


class GeminiFrameDecoder(FrameDecoder):
    stop_reasons = _STOP_REASONS

    def __init__(self, calls: CallAssembler) -> None:
        super().__init__(calls)
        self._is_blocked = False
        """The prompt was refused."""

    def feed(self, frame: Any) -> Iterator[Event]:
        for item in frame if isinstance(frame, list) else [frame]:
            fields = CamelCaseFields(item)
            if fields.has("error"):
                yield decode_failure(500, item)
                return
            yield from self._decode_chunk(fields)

    def finish(self) -> Iterator[Event]:
        raw, reason = self._raw_stop, self._find_stop_reason()
        if raw and (reason == "error" or (raw not in _STOP_REASONS and not self._is_blocked)):
            details = str(self._extra.get(f"{PRIVATE}{_CANDIDATE}finishMessage") or "")[:1000]
            code = "malformed" if raw.startswith("MALFORMED") else "converted"
            yield Note(code, f"The finish reason {raw} is read as {reason!r}.", details)
        yield from super().finish()

    def _find_stop_reason(self) -> StopReason:
        return "filter" if self._is_blocked else super()._find_stop_reason()

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
                prefix = PRIVATE if key in _STATISTICS else ""
                self._extra[f"{prefix}{_CANDIDATE}{key}"] = value

    def _decode_rest(self, fields: CamelCaseFields) -> None:
        """Decode the fields beside the candidates."""
        if (usage := fields.take_object("usageMetadata")) is not None:
            self._usage = _decode_usage(usage)
        feedback = fields.peek("promptFeedback")
        reason = isinstance(feedback, dict) and CamelCaseFields(feedback).take_any("blockReason")
        if reason:
            self._is_blocked, self._raw_stop = True, str(reason)
        self._extra |= mark_private(fields.rest(), _STATISTICS)

    def _decode_call(self, value: Any, part: CamelCaseFields) -> list[Event]:
        call = CamelCaseFields(value, part.path_of("functionCall"))
        identity, name, arguments, extra = decode_call(call, part)
        return self._calls.add_whole(identity, name, arguments, extra=extra)

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
        if (call := fields.take_any("functionCall")) is not None:
            if isinstance(call, dict) and any(map(call.get, _PARTIAL_CALL_FIELDS)):
                raise WireError("Streamed arguments are not supported", fields.path)
            yield from self._calls.isolate(self._decode_call, call, fields)
        elif fields.has("text"):
            text, extra = fields.take_text("text"), fields.rest()
            if text or extra:
                yield TextDelta(text, extra or None)
        elif isinstance(media := decode_media(fields), Image):
            yield PartAdded(media)
        elif not signature or media:
            signed = ("thoughtSignature", "thought_signature")
            yield PartAdded(Other({key: item[key] for key in item if key not in signed}))


def _decode_usage(fields: CamelCaseFields) -> Usage:
    counts = (_decode_count(fields, name) for name in _COUNTS)
    prompt, tool_use, text, reasoning, cached, total = counts
    extra = mark_private(fields.rest(), _STATISTICS)
    if tool_use:
        extra[_TOOL_USE_TOKENS] = tool_use
    if total not in (0, prompt + tool_use + text + reasoning):
        extra[_TOTAL_TOKENS] = total
    return Usage(prompt + tool_use, text + reasoning, cached, 0, reasoning, extra)


def _decode_count(fields: CamelCaseFields, name: str) -> int:
    value = parse_number(fields.take_any(f"{name}TokenCount"))
    return int(value) if isinstance(value, (int, float)) else 0


class GeminiStreamEncoder(StreamEncoder):
    """Encodes events as server-sent events, or as the items of one JSON array."""

    def __init__(self, envelope: Envelope, *, array: bool = False) -> None:
        super().__init__(envelope)
        self._head = self._encode_head("", "")
        self._is_array = array
        self._has_sent = self._has_calls = False
        self._signature = ""
        """Held back for the part that follows the reasoning."""

    def encode_whole(self, reply: Reply) -> Json:
        self.is_same_wire = reply.wire == NAME
        parts = encode_signed_parts(reply.parts, self._encode_content, self._encode_signature)
        finish = Finish(reply.stop_reason, reply.raw_stop_reason, reply.usage, reply.extra)
        head = self._encode_head(reply.id, reply.model)
        return self._encode_last(parts or [{"text": ""}], finish) | head

    def _encode_head(self, identity: str, model: str) -> Json:
        return {
            "modelVersion": model or self.envelope.request.model,
            "responseId": identity or self.envelope.id or "0",
        }

    def _encode_signature(self, signature: str) -> str:
        return signature if self.is_same_wire else wrap_signature(signature)

    def _encode_content(self, part: Part) -> Json:
        match part:
            case Text(text, extra):
                carried = self.carry(extra)
                return {"text": text, **carried} if text or carried else {}
            case Reasoning(text, _, extra) if not text and not self.carry(extra):
                return {}
            case Reasoning() | ToolCall() | Image():
                return encode_part(part, self.carry(part.extra))
            case Other() if self.is_same_wire:
                return dict(part.data)
            case _:
                return {}

    def _encode_last(self, parts: list[Json], finish: Finish) -> Json:
        """Encode the chunk that ends a reply."""
        own_reason = self.find_own_stop_reason(finish, _STOP_REASONS)
        candidate: Json = {
            "content": {"role": "model", "parts": parts},
            "finishReason": own_reason or _FINISH_REASONS.get(finish.stop_reason or "", "STOP"),
            "index": 0,
        }
        usage = self._encode_usage(finish.usage or Usage())
        out: Json = {"candidates": [candidate], "usageMetadata": usage}
        for key, value in unmark_private(self.carry(finish.extra)).items():
            target = candidate if key.startswith(_CANDIDATE) else out
            target[key.removeprefix(_CANDIDATE)] = value
        return out

    def _encode_usage(self, usage: Usage) -> Json:
        extra = self.carry(usage.extra)
        counts = {
            "promptTokenCount": max(0, usage.input - extra.get(_TOOL_USE_TOKENS, 0)),
            "candidatesTokenCount": max(0, usage.output - usage.reasoning),
            "totalTokenCount": usage.input + usage.output,
        }
        optional = omit_none(
            cachedContentTokenCount=usage.cached or None, thoughtsTokenCount=usage.reasoning or None
        )
        return counts | optional | unmark_private(extra)

    def feed(self, event: Event) -> bytes:
        match event:
            case Started():
                self._head = self._encode_head(event.id, event.model)
                self.is_same_wire = event.wire == NAME
                return b""
            case TextDelta():
                return self._encode_part(Text(event.text, event.extra or {}))
            case ReasoningDelta():
                return self._encode_reasoning(event)
            case CallEnd():
                self._has_calls = True
                return self._encode_part(event.call)
            case PartAdded():
                return self._encode_part(event.part)
            case Failure():
                return self._encode_frame(encode_failure(event), is_last=True)
            case Finish():
                return self._encode_finish(event)
            case _:
                return b""

    def _encode_reasoning(self, event: ReasoningDelta) -> bytes:
        before = self._encode_chunk(self._sign({"text": ""})) if self._signature else b""
        chunk = self._encode_part(Reasoning(event.text, None, event.extra or {}))
        if event.signature:
            self._signature = self._encode_signature(event.signature)
        return before + chunk

    def _encode_part(self, part: Text | Reasoning | ToolCall | Image | Other) -> bytes:
        encoded = self._encode_content(part)
        if not encoded:
            return b""
        return self._encode_chunk(encoded if isinstance(part, Other) else self._sign(encoded))

    def _sign(self, part: Json) -> Json:
        if self._signature:
            part["thoughtSignature"] = self._signature
            self._signature = ""
        return part

    def _encode_finish(self, event: Finish) -> bytes:
        needs_part = not self._has_calls or bool(self._signature)
        parts = [self._sign({"text": ""})] if needs_part else []
        last = self._encode_last(parts, event) | self._head
        return self._encode_frame(last, is_last=True)

    def _encode_chunk(self, part: Json) -> bytes:
        content = {"role": "model", "parts": [part]}
        return self._encode_frame({"candidates": [{"content": content, "index": 0}], **self._head})

    def _encode_frame(self, value: Json, *, is_last: bool = False) -> bytes:
        data = encode_line(value)
        if not self._is_array:
            return b"data: " + data + b"\n\n"
        before, after = b",\n" if self._has_sent else b"[", b"]" if is_last else b""
        self._has_sent = True
        return before + data + after


# Errors.


def decode_failure(status: int, body: Any) -> Failure:
    if isinstance(body, list) and body:
        body = body[0]
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return classify_failure(status, str(error or ""))
    code, name = error.get("code"), error.get("status")
    if isinstance(code, int) and 400 <= code < 600:
        status = code
    items: Any = error.get("details")
    details = [item for item in items if isinstance(item, dict)] if type(items) is list else []
    failure = classify_failure(
        status,
        str(error.get("message") or ""),
        str(name) if name else None,
        _find_field(details),
        {"details": details} if details else None,
    )
    return structs.replace(failure, kind=_refine_kind(failure, details))


def _refine_kind(failure: Failure, details: list[Json]) -> FailureKind:
    """Return the kind of a failure: Google reports an invalid key as a plain 400."""
    if any(detail.get("reason") == "API_KEY_INVALID" for detail in details):
        return "unauthorized"
    return failure.kind


def _find_field(details: list[Json]) -> str | None:
    """Return the field of the request that is wrong."""
    for detail in details:
        violations = detail.get("fieldViolations")
        for violation in violations if isinstance(violations, list) else ():
            if isinstance(violation, dict) and isinstance(violation.get("field"), str):
                return violation["field"]
    return None


def encode_failure(failure: Failure) -> Json:
    error = {
        "code": failure.status,
        "message": write_context_message(failure, _CONTEXT_SENTENCE, _CONTEXT_SENTENCE[:-1]),
        "status": _STATUS_NAMES.get(failure.kind, "INVALID_ARGUMENT"),
    }
    return {"error": error | omit_none(details=_encode_details(failure))}


def _encode_details(failure: Failure) -> list[Any] | None:
    if failure.details:
        own = failure.details.get("details")
        return own if isinstance(own, list) else [failure.details]
    if failure.param is None:
        return None
    violation = {"field": failure.param, "description": failure.message}
    return [{"@type": _VIOLATION, "fieldViolations": [violation]}]
