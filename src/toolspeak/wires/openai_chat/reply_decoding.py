"""An upstream's chat completion, whole or in chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...events import Event, Finish, PartAdded, ReasoningDelta, Started, TextDelta
from ...types import Image, Note, Text, Usage
from ..call_assembly import TRUNCATING_REASONS, CallAssembler
from ..fields import Fields, Json
from .errors import decode_failure
from .fast_path import ALONG, Completion
from .parts import NAME, STOPS, THOUGHTS
from .request_decoding import part, reasoning


class ChatReplyDecoder:
    """Chunks of a stream, or a whole completion, to events."""

    def __init__(self, calls: CallAssembler) -> None:
        self._calls = calls
        self._started = False
        self._refused = False
        self._usage: Usage | None = None
        self._left: dict[str, None] = {}
        self._slots: dict[int | None, _Slot] = {}
        self._raw_stop: str | None = None
        self._is_whole = False
        """What comes now comes in one piece, and is not cut off."""

    @property
    def is_complete(self) -> bool:
        return self._raw_stop is not None

    def feed(self, frame: Any) -> Iterable[Event]:
        return self._plainly(frame) if isinstance(frame, Completion) else self._all(frame)

    def _plainly(self, said: Completion) -> list[Event]:
        """The same as `_all`, for what nearly every whole completion looks like."""
        self._started = True
        (choice,) = said.choices
        self._raw_stop = choice.finish_reason
        if counts := said.usage:
            self._usage = Usage(input=counts.prompt_tokens, output=counts.completion_tokens)
        extra = {key: value for key in ALONG if (value := getattr(said, key)) is not None}
        events: list[Event] = [Started(said.id, said.model, wire=NAME, extra=extra or None)]
        if choice.message.content:
            events.append(TextDelta(choice.message.content))
        for call in choice.message.tool_calls or ():
            made = call.function
            events += self._calls.add_whole(call.id or "", made.name, made.arguments)
        return events

    def _all(self, frame: Any) -> Iterator[Event]:
        fields = Fields(frame)
        if fields.has("error"):
            yield decode_failure(500, frame)
            return
        usage, choices = fields.take_object("usage"), fields.take_items("choices")
        if not self._started:
            self._started = True
            identity, model = str(fields.take_any("id") or ""), fields.take_text("model")
            fields.discard("object", "created")
            yield Started(identity, model, wire=NAME, extra=fields.rest() or None)
        if usage is not None:
            self._usage = _usage(usage)
        for item, path in choices:
            choice = Fields(item, path)
            if choice.take_any("index"):
                self._left["a second choice"] = None
                continue
            if reason := choice.take("finish_reason", str):
                self._raw_stop = reason
            self._is_whole = (
                not choice.has("delta") and STOPS.get(reason or "") not in TRUNCATING_REASONS
            )
            message = (
                choice.take_object("delta")
                if choice.has("delta")
                else choice.take_object("message")
            )
            if message is not None:
                yield from self._message(message)
            self._left |= dict.fromkeys(choice.rest())

    def finish(self) -> Iterator[Event]:
        reason = STOPS.get(self._raw_stop or "", "stop")
        yield from self._calls.finish(reason)
        for key in self._left:
            yield Note("unsupported", f"{key} of the reply is not carried", key)
        reason = self._calls.adjust_stop_reason(reason)
        if self._refused and reason == "stop":
            reason = "refusal"
        yield Finish(reason, self._raw_stop, self._usage)

    def _message(self, fields: Fields) -> Iterator[Event]:
        fields.discard("role")
        if fields.has_any(THOUGHTS):
            for thought in reasoning(fields):
                yield from self._calls.emit(ReasoningDelta(thought.text, thought.signature))
        content = fields.take_any("content")
        if isinstance(content, str):
            if content:
                yield from self._calls.emit(TextDelta(content))
        elif content is not None:
            yield from self._parts(content)
        if fields.has_rest():
            yield from self._besides(fields)

    def _besides(self, fields: Fields) -> Iterator[Event]:
        """What most chunks do not hold."""
        if refusal := fields.take_text("refusal"):
            self._refused = True
            yield from self._calls.emit(TextDelta(refusal, {"type": "refusal"}))
        for item, path in fields.take_items("images"):
            picture = part(item, path)
            if isinstance(picture, Image):
                yield from self._calls.emit(PartAdded(picture))
        for item, path in fields.take_items("tool_calls"):
            yield from self._call(Fields(item, path))
        if (legacy := fields.take_object("function_call")) is not None:
            yield from self._call(Fields({"index": -1, "function": legacy.rest()}))
        self._left |= dict.fromkeys(fields.rest())

    def _parts(self, content: Any) -> Iterator[Event]:
        """Content in parts, thoughts among them, as Mistral's models have it."""
        for item in content if isinstance(content, list) else ():
            if isinstance(item, dict) and item.get("type") == "thinking":
                inner = item.get("thinking")
                texts = inner if isinstance(inner, list) else [{"text": inner}]
                said = "".join(
                    str(text.get("text") or "") for text in texts if isinstance(text, dict)
                )
                yield from self._calls.emit(ReasoningDelta(said))
            elif isinstance(said := part(item, "$.content"), Text):
                yield from self._calls.emit(TextDelta(said.text))

    def _call(self, fields: Fields) -> Iterable[Event]:
        """A call, or a piece of it. Some servers leave out the index, others give all calls the
        same, and some send the id before the name."""
        index, identity = fields.take("index", int), fields.take_text("id")
        custom = fields.take_object("custom")
        function = custom or fields.take_object("function") or Fields({})
        name = function.take_text("name")
        freeform = custom is not None
        if self._is_whole and name:
            fields.discard("type")
            given, extra = function.take_any("arguments", "input"), fields.rest()
            return self._calls.add_whole(identity, name, given, freeform=freeform, extra=extra)
        return self._piece(index, identity, name, freeform, fields, function)

    def _piece(
        self,
        index: int | None,
        identity: str,
        name: str,
        freeform: bool,
        fields: Fields,
        function: Fields,
    ) -> Iterator[Event]:
        slot = self._slots.setdefault(index, _Slot())
        if (identity and slot.identity not in ("", identity)) or (index is None and name):
            slot = self._slots[index] = _Slot()
        slot.identity = slot.identity or identity
        if name and not slot.named:
            slot.named = True
            fields.discard("type")
            yield from self._calls.start(
                slot, slot.identity, name, freeform=freeform, extra=fields.rest()
            )
        arguments = function.take_any("arguments", "input")
        if isinstance(arguments, str):
            yield from self._calls.append(slot, arguments)
        elif arguments is not None:
            yield from self._calls.end(slot, arguments)


class _Slot:
    """Where the pieces of one call go."""

    def __init__(self) -> None:
        self.identity = ""
        self.named = False


def _usage(fields: Fields) -> Usage:
    read, written = fields.take("prompt_tokens", int), fields.take("completion_tokens", int)
    fields.take("total_tokens", int)
    if not fields.has_rest():
        return Usage(input=read or 0, output=written or 0)
    cached, beside_cached = _detail(fields, "prompt_tokens_details", "cached_tokens")
    thought, beside_thought = _detail(fields, "completion_tokens_details", "reasoning_tokens")
    return Usage(
        input=read or 0,
        output=written or 0,
        cached=cached,
        reasoning=thought,
        extra=fields.rest() | beside_cached | beside_thought,
    )


def _detail(fields: Fields, key: str, count: str) -> tuple[int, Json]:
    """A count within a field, and what else the field holds, under its own name."""
    details = fields.take_object(key)
    if details is None:
        return 0, {}
    counted = details.take(count, int) or 0
    rest = details.rest()
    return counted, {key: rest} if rest else {}
