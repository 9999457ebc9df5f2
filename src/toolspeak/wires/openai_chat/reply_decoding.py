"""Decodes an upstream's chat completion, whole or in chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...errors import WireError
from ...events import Event, Finish, PartAdded, ReasoningDelta, Started, TextDelta
from ...types import Image, StopReason, Text, Usage
from ..calls import TRUNCATING_REASONS, CallAssembler
from ..fields import Fields, Json, nest
from ..wire import ReplyDecoder
from .errors import decode_failure
from .fast_path import CARRIED_FIELDS, Completion
from .parts import ALL_REASONING_FIELDS, NAME, REFUSAL, decode_part, decode_reasoning

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "calls",
    "function_call": "calls",
    "content_filter": "filter",
}


class _CallSlot:
    """Identifies the call that pieces belong to."""

    def __init__(self) -> None:
        self.id = ""
        self.is_named = False


class ChatReplyDecoder(ReplyDecoder):
    def __init__(self, calls: CallAssembler) -> None:
        super().__init__(calls)
        self._is_refused = False
        self._slots: dict[int | None, _CallSlot] = {}
        self._is_whole = False
        """The current message is whole and not truncated."""

    def feed(self, frame: Any) -> Iterable[Event]:
        if isinstance(frame, Completion):
            return self._decode_completion(frame)
        return self._decode_chunk(frame)

    def finish(self) -> Iterator[Event]:
        reason = _STOP_REASONS.get(self._raw_stop or "", "stop")
        yield from self._calls.finish(reason)
        yield from self._note_dropped()
        reason = self._calls.adjust_stop_reason(reason)
        if self._is_refused and reason == "stop":
            reason = "refusal"
        yield Finish(reason, self._raw_stop, self._usage)

    def _decode_completion(self, completion: Completion) -> list[Event]:
        """Decode a completion of the usual shape: the same as `_decode_chunk`, faster."""
        self._is_started = True
        (choice,) = completion.choices
        self._raw_stop = choice.finish_reason
        if counts := completion.usage:
            self._usage = Usage(input=counts.prompt_tokens, output=counts.completion_tokens)
        carried = ((key, getattr(completion, key)) for key in CARRIED_FIELDS)
        extra = {key: value for key, value in carried if value is not None}
        started = Started(completion.id, completion.model, wire=NAME, extra=extra or None)
        events: list[Event] = [started]
        if choice.message.content:
            events.append(TextDelta(choice.message.content))
        for call in choice.message.tool_calls or ():
            function = call.function
            events += self._calls.add_whole(call.id or "", function.name, function.arguments)
        return events

    def _decode_chunk(self, frame: Any) -> Iterator[Event]:
        fields = Fields(frame)
        if fields.has("error"):
            yield decode_failure(500, frame)
            return
        usage, choices = fields.take_object("usage"), fields.take_items("choices")
        if not self._is_started:
            self._is_started = True
            identity, model = str(fields.take_any("id") or ""), fields.take_text("model")
            fields.discard("object", "created")
            yield Started(identity, model, wire=NAME, extra=fields.rest() or None)
        if usage is not None:
            self._usage = _decode_usage(usage)
        for item, path in choices:
            choice = Fields(item, path)
            if choice.take_any("index"):
                self._dropped["choices[1]"] = None
            else:
                yield from self._decode_choice(choice)

    def _decode_choice(self, choice: Fields) -> Iterator[Event]:
        if reason := choice.take("finish_reason", str):
            self._raw_stop = reason
        is_delta = choice.has("delta")
        stop_reason = _STOP_REASONS.get(reason or "")
        self._is_whole = not is_delta and stop_reason not in TRUNCATING_REASONS
        message = choice.take_object("delta" if is_delta else "message")
        if message is not None:
            yield from self._decode_message(message)
        self._dropped |= dict.fromkeys(choice.rest())

    def _decode_message(self, fields: Fields) -> Iterator[Event]:
        fields.discard("role")
        if fields.has_any(ALL_REASONING_FIELDS):
            for part in decode_reasoning(fields):
                yield from self._calls.emit(ReasoningDelta(part.text, part.signature))
        content = fields.take_any("content")
        if isinstance(content, str):
            if content:
                yield from self._calls.emit(TextDelta(content))
        elif content is not None:
            yield from self._decode_parts(content)
        if fields.has_rest():
            yield from self._decode_rare_fields(fields)

    def _decode_rare_fields(self, fields: Fields) -> Iterator[Event]:
        if refusal := fields.take_text("refusal"):
            self._is_refused = True
            yield from self._calls.emit(TextDelta(refusal, REFUSAL))
        for item, path in fields.take_items("images"):
            image = decode_part(item, path)
            if isinstance(image, Image):
                yield from self._calls.emit(PartAdded(image))
        for item, path in fields.take_items("tool_calls"):
            yield from self._calls.isolate(self._decode_call, item, path)
        if (legacy := fields.take_any("function_call")) is not None:
            call = {"index": -1, "function": legacy}
            yield from self._calls.isolate(self._decode_call, call, fields.path)
        self._dropped |= dict.fromkeys(fields.rest())

    def _decode_parts(self, content: Any) -> Iterator[Event]:
        """Decode content in parts. Mistral's models put their reasoning there."""
        for item in content if isinstance(content, list) else ():
            if isinstance(item, dict) and item.get("type") == "thinking":
                inner = item.get("thinking")
                parts = inner if isinstance(inner, list) else [{"text": inner}]
                texts = [str(part.get("text") or "") for part in parts if isinstance(part, dict)]
                yield from self._calls.emit(ReasoningDelta("".join(texts)))
            elif isinstance(text := decode_part(item, "$.content"), Text):
                yield from self._calls.emit(TextDelta(text.text))

    def _decode_call(self, item: Any, path: str) -> Iterable[Event]:
        """Decode a call or a piece of one. Some servers omit the index, others give all calls the
        same, some send the id before the name, and some omit the inner object."""
        fields = Fields(item, path)
        index, identity = fields.take("index", int), str(fields.take_any("id") or "")
        custom = fields.take_object("custom")
        function = custom or fields.take_object("function") or fields
        name = function.take_text("name")
        arguments = function.take_any("arguments", "input")
        freeform = custom is not None
        fields.discard("type")
        if self._is_whole:
            if not name.strip():
                raise WireError("Expected a call with the name of a function", path)
            extra = fields.rest()
            return self._calls.add_whole(identity, name, arguments, freeform=freeform, extra=extra)
        slot = self._find_slot(index, identity, name)
        return self._decode_piece(slot, name, arguments, freeform, fields)

    def _find_slot(self, index: int | None, identity: str, name: str) -> _CallSlot:
        slot = self._slots.setdefault(index, _CallSlot())
        if (identity and slot.id not in ("", identity)) or (index is None and name):
            slot = self._slots[index] = _CallSlot()
        slot.id = slot.id or identity
        return slot

    def _decode_piece(
        self, slot: _CallSlot, name: str, arguments: Any, freeform: bool, fields: Fields
    ) -> Iterator[Event]:
        if name and not slot.is_named:
            slot.is_named = True
            extra = fields.rest()
            yield from self._calls.start(slot, slot.id, name, freeform=freeform, extra=extra)
        if isinstance(arguments, str):
            yield from self._calls.append(slot, arguments)
        elif arguments is not None:
            yield from self._calls.end(slot, arguments)


def _decode_usage(fields: Fields) -> Usage:
    read, written = fields.take("prompt_tokens", int), fields.take("completion_tokens", int)
    fields.take("total_tokens", int)
    if not fields.has_rest():
        return Usage(input=read or 0, output=written or 0)
    cached, prompt_rest = _decode_detail(fields, "prompt_tokens_details", "cached_tokens")
    reasoning, reply_rest = _decode_detail(fields, "completion_tokens_details", "reasoning_tokens")
    return Usage(
        input=read or 0,
        output=written or 0,
        cached=cached,
        reasoning=reasoning,
        extra=fields.rest() | prompt_rest | reply_rest,
    )


def _decode_detail(fields: Fields, key: str, count: str) -> tuple[int, Json]:
    """Return a count within the object `key`, and what remains of that object."""
    details = fields.take_object(key)
    if details is None:
        return 0, {}
    counted = details.take(count, int) or 0
    return counted, nest(key, details.rest())
