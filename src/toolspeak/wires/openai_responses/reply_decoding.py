"""Decodes an upstream's response, whole or as a stream of events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from ...events import ITEM_ID, Event, PartAdded, ReasoningDelta, Started, TextDelta
from ...types import Failure, Other, StopReason, Usage
from ..calls import CallAssembler
from ..content import REFUSAL
from ..encoding import omit_none
from ..errors import UNKNOWN_STATUS, decode_failure
from ..fields import Fields, Json
from ..wire import FrameDecoder
from .items import NAME, PARAGRAPH_BREAK, decode_image_item, decode_reasoning, take_rest

INCOMPLETE_REASONS: dict[str, StopReason] = {
    "max_output_tokens": "length",
    "content_filter": "filter",
    "max_messages": "pause",
    "steered": "pause",
}
"""Stop reasons by the `reason` that a response gives for being incomplete."""
_CALL_ITEMS = ("function_call", "custom_tool_call")
_OWN_FIELDS = (
    *("object", "created_at", "completed_at", "status", "output", "usage", "error"),
    *("incomplete_details", "tools", "tool_choice", "instructions", "metadata"),
    *("previous_response_id", "user"),
)
"""Fields of a response that the response to the client sets itself."""


class _ItemState(Struct, eq=False):
    """An item of the output, and what has been decoded of it."""

    kind: str
    id: str
    sent_parts: set[int] = set()
    """Parts of which some text has been emitted."""
    closed_parts: set[int] = set()
    refusals: dict[int, str] = {}
    """Refusals so far, by part: they are emitted whole."""
    reasoning_field: str = ""
    """"summary" or "content": if reasoning comes as both, only the first is emitted."""
    is_started: bool = False
    is_streamed: bool = False
    is_done: bool = False
    arguments: Any = None
    """A call's arguments, if they came whole."""


class ResponsesFrameDecoder(FrameDecoder):
    """Decodes events, or a whole response. Many events repeat earlier ones; what has been emitted
    is not emitted again."""

    def __init__(self, calls: CallAssembler) -> None:
        super().__init__(calls)
        self._items: list[_ItemState] = []
        self._by_index: dict[int, _ItemState] = {}
        self._by_id: dict[str, _ItemState] = {}
        self._is_incomplete = False

    def feed(self, frame: Any) -> Iterator[Event]:
        fields = Fields(frame)
        kind = fields.take_text("type")
        if not kind and (fields.has("output") or fields.peek("object") == "response"):
            yield from self._decode_response(fields)
        elif kind == "error" or (not kind and fields.has("error")):
            yield _decode_failure(fields.rest())
        elif (decode := self._EVENTS.get(kind)) is not None:
            if not self._is_started and kind not in _LIFECYCLE_EVENTS:
                yield from self._start(Fields({}))
            yield from decode(self, fields)

    def finish(self) -> Iterator[Event]:
        for item in self._items:
            for index, text in item.refusals.items():
                yield from self._emit_text(item, index, Fields({"refusal": text}))
            if item.arguments is not None:
                yield from self._calls.end(item, item.arguments)
        yield from super().finish()

    def _find_stop_reason(self) -> StopReason:
        default = "length" if self._is_incomplete else "stop"
        return INCOMPLETE_REASONS.get(self._raw_stop or "", default)

    # The response.

    def _decode_progress(self, fields: Fields) -> Iterator[Event]:
        if response := fields.take_object("response"):
            yield from self._start(response)

    def _decode_last_event(self, fields: Fields) -> Iterator[Event]:
        response = fields.take_object("response") or Fields({"status": "completed"})
        yield from self._decode_response(response)

    def _start(self, fields: Fields) -> Iterator[Event]:
        if not self._is_started:
            self._is_started = True
            identity, model = fields.take_text("id"), fields.take_text("model")
            yield Started(identity, model, wire=NAME, extra=_take_response_extra(fields) or None)

    def _decode_response(self, fields: Fields) -> Iterator[Event]:
        yield from self._start(Fields(fields.rest(), fields.path))
        status = fields.take_text("status") or "completed"
        reason = (fields.take_object("incomplete_details") or Fields({})).take_text("reason")
        if usage := fields.take_object("usage"):
            self._usage = _decode_usage(usage)
        for index, (item, path) in enumerate(fields.take_items("output")):
            item_fields = Fields(item, path)
            yield from self._decode_whole_item(self._match_item(index, item_fields), item_fields)
        if status in ("failed", "cancelled"):
            message = f"The upstream's response has the status `{status}`."
            yield _decode_failure(fields.take_any("error") or {"message": message})
            return
        self._raw_stop = reason or status
        self._is_incomplete = status == "incomplete"
        fields.discard("id", "model")
        self._extra = _take_response_extra(fields)

    # Items.

    def _add_item(self, kind: str, index: int | None, *identities: str) -> _ItemState:
        item = _ItemState(kind, identities[0])
        self._items.append(item)
        if index is not None:
            self._by_index[index] = item
        self._by_id |= {identity: item for identity in identities if identity}
        return item

    def _match_item(self, index: int | None, fields: Fields, *, is_new: bool = False) -> _ItemState:
        """Return the state of an item that begins or comes whole. Some servers change the ids on
        the way, and others the order; some announce an item twice."""
        kind = fields.peek_text("type")
        identities = fields.peek_text("id"), fields.peek_text("call_id")
        for identity in identities:
            if identity in self._by_id:
                return self._by_id[identity]
        item = None if index is None or is_new else self._by_index.get(index)
        if item is not None and item.kind == kind:
            return item
        return self._add_item(kind, index if item is None else None, *identities)

    def _find_item(self, fields: Fields, kind: str) -> _ItemState:
        """Return the item that an event is about."""
        index, identity = fields.take("output_index", int), fields.take_text("item_id")
        item = self._by_index.get(index) if index is not None else None
        return item or self._by_id.get(identity) or self._add_item(kind, index, identity)

    def _decode_item_start(self, fields: Fields) -> Iterator[Event]:
        item_fields = Fields(fields.take_any("item"), fields.path_of("item"))
        kind = item_fields.peek_text("type")
        item = self._match_item(fields.take("output_index", int), item_fields, is_new=True)
        if kind in _CALL_ITEMS and item.kind in _CALL_ITEMS and not item.is_done:
            item.kind = item.kind if item.is_started else kind
            yield from self._start_call(item, item_fields)

    def _decode_item_end(self, fields: Fields) -> Iterator[Event]:
        item_fields = Fields(fields.take_any("item"), fields.path_of("item"))
        item = self._match_item(fields.take("output_index", int), item_fields)
        yield from self._decode_whole_item(item, item_fields)

    def _decode_whole_item(self, item: _ItemState, fields: Fields) -> Iterator[Event]:
        """Emit all of an item that has not been emitted."""
        if item.is_done:
            return
        item.is_done = True
        if item.kind == "message":
            yield from self._decode_whole_message(item, fields)
        elif item.kind == "reasoning":
            yield from self._decode_whole_reasoning(item, fields)
        elif item.kind in _CALL_ITEMS:
            yield from self._decode_whole_call(item, fields)
        else:
            is_image = item.kind == "image_generation_call"
            image = decode_image_item(fields) if is_image else None
            yield from self._calls.emit(PartAdded(image or Other(fields.rest())))

    # Messages.

    def _find_part(self, fields: Fields) -> tuple[_ItemState, int]:
        return self._find_item(fields, "message"), fields.take("content_index", int) or 0

    def _decode_text_delta(self, fields: Fields) -> Iterator[Event]:
        item, index = self._find_part(fields)
        item.sent_parts.add(index)
        if delta := fields.take_text("delta"):
            yield from self._calls.emit(TextDelta(delta, item=item.id))

    def _decode_refusal_delta(self, fields: Fields) -> Iterator[Event]:
        item, index = self._find_part(fields)
        item.refusals[index] = item.refusals.get(index, "") + fields.take_text("delta")
        yield from ()

    def _decode_whole_text(self, fields: Fields) -> Iterator[Event]:
        yield from self._emit_text(*self._find_part(fields), fields)

    def _emit_text(self, item: _ItemState, index: int, fields: Fields) -> Iterator[Event]:
        """Emit a text or refusal that came whole, unless its deltas were emitted."""
        refusal = fields.take_text("refusal")
        text = refusal or fields.take_text("text")
        if text and index not in item.sent_parts:
            item.sent_parts.add(index)
            self._is_refused = self._is_refused or bool(refusal)
            yield from self._calls.emit(TextDelta(text, REFUSAL if refusal else None, item.id))

    def _decode_part_end(self, fields: Fields) -> Iterator[Event]:
        item, index = self._find_part(fields)
        if item.kind == "message" and (part := fields.take_object("part")):
            yield from self._decode_whole_part(item, index, part)

    def _decode_whole_part(self, item: _ItemState, index: int, fields: Fields) -> Iterator[Event]:
        if index in item.closed_parts:
            return
        item.closed_parts.add(index)
        yield from self._emit_text(item, index, fields)
        if fields.peek_text("type") != "refusal":
            yield from self._emit_extra(item, fields)

    def _decode_whole_message(self, item: _ItemState, fields: Fields) -> Iterator[Event]:
        fields.discard("role")
        for index, (part, path) in enumerate(fields.take_items("content")):
            yield from self._decode_whole_part(item, index, Fields(part, path))
        yield from self._emit_extra(item, fields)

    def _emit_extra(self, item: _ItemState, fields: Fields) -> Iterator[Event]:
        if extra := take_rest(fields):
            yield from self._calls.emit(TextDelta("", extra, item.id))

    # Reasoning.

    def _decode_summary(self, fields: Fields) -> Iterator[Event]:
        yield from self._decode_reasoning_text(fields, "summary")

    def _decode_reasoning_content(self, fields: Fields) -> Iterator[Event]:
        yield from self._decode_reasoning_text(fields, "content")

    def _decode_reasoning_text(self, fields: Fields, field: str) -> Iterator[Event]:
        """Decode a piece of reasoning, or all of a text of it."""
        index = fields.take(f"{field}_index", int) or 0
        delta = fields.take_text("delta")
        text = delta or fields.take_text("text")
        item = self._find_item(fields, "reasoning")
        item.reasoning_field = item.reasoning_field or field
        is_repeated = not delta and index in item.sent_parts
        if not text or item.reasoning_field != field or is_repeated:
            return
        is_new_part = bool(item.sent_parts) and index not in item.sent_parts
        item.sent_parts.add(index)
        gap = PARAGRAPH_BREAK if is_new_part else ""
        yield from self._calls.emit(ReasoningDelta(gap + text, item=item.id))

    def _decode_whole_reasoning(self, item: _ItemState, fields: Fields) -> Iterator[Event]:
        identity = fields.peek_text("id")
        part = decode_reasoning(fields)
        if isinstance(part, Other) and not item.sent_parts:
            event: Event = PartAdded(part)
        elif isinstance(part, Other):
            extra = {ITEM_ID: identity} if identity else None
            event = ReasoningDelta("", None, extra, item.id)
        else:
            text = "" if item.sent_parts else part.text
            event = ReasoningDelta(text, part.signature, part.extra or None, item.id)
        yield from self._calls.emit(event)

    # Calls.

    def _start_call(self, item: _ItemState, fields: Fields) -> Iterator[Event]:
        if item.is_started or not (name := fields.take_text("name")):
            return
        item.is_started = True
        yield from self._calls.start(
            item,
            fields.peek_text("call_id") or fields.peek_text("id"),
            name,
            namespace=fields.take("namespace", str),
            freeform=item.kind == "custom_tool_call",
            extra={ITEM_ID: item.id} if item.id else None,
        )

    def _decode_arguments_delta(self, fields: Fields) -> Iterator[Event]:
        item = self._find_item(fields, "function_call")
        if item.is_started:
            item.is_streamed = True
            yield from self._calls.append(item, fields.take_text("delta"))

    def _decode_whole_arguments(self, fields: Fields) -> Iterator[Event]:
        """Decode arguments that came whole. Not every server repeats them at the item's end."""
        item = self._find_item(fields, "function_call")
        arguments = fields.take_any("arguments", "input")
        if item.is_streamed:
            return
        if item.is_started and isinstance(arguments, str):
            item.is_streamed = True
            yield from self._calls.append(item, arguments)
        else:
            item.arguments = arguments

    def _decode_whole_call(self, item: _ItemState, fields: Fields) -> Iterator[Event]:
        yield from self._start_call(item, fields)
        if not item.is_started:
            yield from self._calls.reject(fields.rest(), "the call does not name a tool")
        whole = fields.take_any("arguments", "input")
        whole = item.arguments if whole is None else whole
        is_cut = fields.peek("status") == "incomplete"
        fields.discard("call_id", "name", "namespace", "arguments", "input")
        arguments, extra = None if item.is_streamed else whole, take_rest(fields)
        yield from self._calls.end(item, arguments, cut=is_cut, extra=extra)

    _EVENTS: ClassVar[dict[str, Callable[[ResponsesFrameDecoder, Fields], Iterator[Event]]]] = {
        "response.created": _decode_progress,
        "response.queued": _decode_progress,
        "response.in_progress": _decode_progress,
        "response.completed": _decode_last_event,
        "response.incomplete": _decode_last_event,
        "response.failed": _decode_last_event,
        "response.output_item.added": _decode_item_start,
        "response.output_item.done": _decode_item_end,
        "response.output_text.delta": _decode_text_delta,
        "response.output_text.done": _decode_whole_text,
        "response.refusal.delta": _decode_refusal_delta,
        "response.refusal.done": _decode_whole_text,
        "response.content_part.done": _decode_part_end,
        "response.reasoning_summary_text.delta": _decode_summary,
        "response.reasoning_summary_text.done": _decode_summary,
        "response.reasoning_text.delta": _decode_reasoning_content,
        "response.reasoning_text.done": _decode_reasoning_content,
        "response.function_call_arguments.delta": _decode_arguments_delta,
        "response.function_call_arguments.done": _decode_whole_arguments,
        "response.custom_tool_call_input.delta": _decode_arguments_delta,
        "response.custom_tool_call_input.done": _decode_whole_arguments,
    }
    """All events that matter. Those of hosted tools do not: the whole item follows them."""


_LIFECYCLE_EVENTS = frozenset(
    f"response.{state}"
    for state in ("created", "queued", "in_progress", "completed", "incomplete", "failed")
)


def _decode_failure(value: Any) -> Failure:
    """Decode an `error` event, or the error of a failed response."""
    error = value.get("error", value) if isinstance(value, dict) else value
    return decode_failure(UNKNOWN_STATUS, {"error": error})


def _take_response_extra(fields: Fields) -> Json:
    """Return the fields of a response for clients of the same API."""
    fields.discard(*_OWN_FIELDS)
    return fields.rest()


def _decode_usage(fields: Fields) -> Usage:
    read = fields.take_object("input_tokens_details") or Fields({})
    written = fields.take_object("output_tokens_details") or Fields({})
    usage = Usage(
        input=fields.take("input_tokens", int) or 0,
        output=fields.take("output_tokens", int) or 0,
        cached=read.take("cached_tokens", int) or 0,
        cache_written=read.take("cache_write_tokens", int) or 0,
        reasoning=written.take("reasoning_tokens", int) or 0,
    )
    if fields.peek("total_tokens") == usage.input + usage.output:
        fields.discard("total_tokens")
    details = omit_none(
        input_tokens_details=read.rest() or None, output_tokens_details=written.rest() or None
    )
    return replace(usage, extra=fields.rest() | details)
