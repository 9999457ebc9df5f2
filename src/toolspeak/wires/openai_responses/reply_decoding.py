"""An upstream's response, whole or in events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from msgspec.structs import replace

from ...events import Event, Finish, PartAdded, ReasoningDelta, Started, TextDelta
from ...types import Other, StopReason, Usage
from ..calls import CallAssembler
from ..encoding import omit_none
from ..fields import Fields, Json
from ..wire import ReplyDecoder
from .errors import decode_stream_failure
from .parts import BETWEEN, ID, NAME, STOPS, leftover, picture, thought

_CALLS = ("function_call", "custom_tool_call")
_OF_A_CALL = ("call_id", "name", "namespace", "arguments", "input")
_OWN_TO_A_REPLY = (
    *("object", "created_at", "completed_at", "status", "output", "usage", "error"),
    *("incomplete_details", "tools", "tool_choice", "instructions", "metadata"),
    *("previous_response_id", "user"),
)
"""What a response says that the one to the client says for itself."""


class _Item:
    """An item of the output, and what of it has been told."""

    def __init__(self, kind: str, identity: str) -> None:
        self.kind = kind
        self.id = identity
        self.told: set[int] = set()
        """The parts of which some words came, or all."""
        self.closed: set[int] = set()
        """The parts that were over."""
        self.refusals: dict[int, str] = {}
        self.voice = ""
        """Whether a thought comes as a summary or in its own words. If it comes as both, one of
        them is told."""
        self.started = self.streamed = self.over = False
        self.given: Any = None
        """A call's arguments, where they came in one piece."""


class ResponsesReplyDecoder(ReplyDecoder):
    """Events of a stream, or a whole response, to events. What came in pieces is not told again
    when it comes whole; what did not come in pieces is."""

    def __init__(self, calls: CallAssembler) -> None:
        super().__init__(calls)
        self._all: list[_Item] = []
        self._items: dict[int, _Item] = {}
        self._by_id: dict[str, _Item] = {}
        self._is_refused = False
        self._stop_reason: StopReason = "stop"

    def feed(self, frame: Any) -> Iterator[Event]:
        fields = Fields(frame)
        kind = fields.take_text("type")
        if not kind and (fields.has("output") or fields.peek("object") == "response"):
            yield from self._over(fields)
        elif kind == "error" or (not kind and fields.has("error")):
            yield decode_stream_failure(fields.rest())
        elif (told := self._EVENTS.get(kind)) is not None:
            if not self._is_started and kind not in _LIFECYCLE:
                yield from self._begin(Fields({}))
            yield from told(self, fields)

    def finish(self) -> Iterator[Event]:
        for item in self._all:
            for index, text in item.refusals.items():
                yield from self._refusal(item, index, text)
            if item.given is not None:
                yield from self._calls.end(item, item.given)
        yield from self._calls.finish(self._stop_reason)
        reason = self._calls.adjust_stop_reason(self._stop_reason)
        if reason == "stop" and self._is_refused:
            reason = "refusal"
        yield Finish(reason, self._raw_stop, self._usage, self._extra or None)

    # The response.

    def _lifecycle(self, fields: Fields) -> Iterator[Event]:
        if response := fields.take_object("response"):
            yield from self._begin(response)

    def _ends(self, fields: Fields) -> Iterator[Event]:
        yield from self._over(fields.take_object("response") or Fields({"status": "completed"}))

    def _begin(self, fields: Fields) -> Iterator[Event]:
        if not self._is_started:
            self._is_started = True
            identity, model = fields.take_text("id"), fields.take_text("model")
            yield Started(identity, model, wire=NAME, extra=_about(fields) or None)

    def _over(self, fields: Fields) -> Iterator[Event]:
        yield from self._begin(Fields(fields.rest(), fields.path))
        status = fields.take_text("status") or "completed"
        reason = (fields.take_object("incomplete_details") or Fields({})).take_text("reason")
        if usage := fields.take_object("usage"):
            self._usage = _usage(usage)
        for index, (item, path) in enumerate(fields.take_items("output")):
            given = Fields(item, path)
            yield from self._item_over(self._known(index, given), given)
        if status in ("failed", "cancelled"):
            yield decode_stream_failure(
                fields.take_any("error") or {"message": f"the response is {status}"}
            )
            return
        self._raw_stop = reason or status
        if status == "incomplete":
            self._stop_reason = STOPS.get(reason, "length")
        for known in ("id", "model"):
            fields.take_any(known)
        self._extra = _about(fields)

    # The items.

    def _new(self, kind: str, index: int | None, identity: str, call: str = "") -> _Item:
        item = _Item(kind, identity)
        self._all.append(item)
        if index is not None:
            self._items[index] = item
        for known in filter(None, (identity, call)):
            self._by_id[known] = item
        return item

    def _known(self, index: int | None, fields: Fields) -> _Item:
        """The item that is shown whole, if it came before. Some servers change the ids, and others
        the order."""
        kind = _word(fields, "type")
        identities = _word(fields, "id"), _word(fields, "call_id")
        for identity in filter(None, identities):
            if identity in self._by_id:
                return self._by_id[identity]
        item = None if index is None else self._items.get(index)
        if item is not None and item.kind == kind:
            return item
        return self._new(kind, index if item is None else None, *identities)

    def _at(self, fields: Fields, kind: str) -> _Item:
        """The item that an event is about."""
        index, identity = fields.take("output_index", int), fields.take_text("item_id")
        found = self._items.get(index) if index is not None else None
        found = found or self._by_id.get(identity)
        return found or self._new(kind, index, identity)

    def _added(self, fields: Fields) -> Iterator[Event]:
        """An item begins; some servers say so twice."""
        given = Fields(fields.take_any("item"), fields.path_of("item"))
        index = fields.take("output_index", int)
        kind, identities = _word(given, "type"), (_word(given, "id"), _word(given, "call_id"))
        known = (self._by_id[identity] for identity in identities if identity in self._by_id)
        item = next(known, None) or self._new(kind, index, *identities)
        if kind in _CALLS and item.kind in _CALLS and not item.over:
            item.kind = item.kind if item.started else kind
            yield from self._call(item, given)

    def _done(self, fields: Fields) -> Iterator[Event]:
        given = Fields(fields.take_any("item"), fields.path_of("item"))
        item = self._known(fields.take("output_index", int), given)
        yield from self._item_over(item, given)

    def _item_over(self, item: _Item, fields: Fields) -> Iterator[Event]:
        if item.over:
            return
        item.over = True
        if item.kind == "message":
            yield from self._message_over(item, fields)
        elif item.kind == "reasoning":
            yield from self._thought_over(item, fields)
        elif item.kind in _CALLS:
            yield from self._call_over(item, fields)
        else:
            drawn = picture(fields) if item.kind == "image_generation_call" else None
            yield from self._calls.emit(PartAdded(drawn or Other(fields.rest())))

    # What is said.

    def _text(self, fields: Fields) -> Iterator[Event]:
        item, index = self._at(fields, "message"), fields.take("content_index", int) or 0
        item.told.add(index)
        if delta := fields.take_text("delta"):
            yield from self._calls.emit(TextDelta(delta, item=item.id))

    def _text_whole(self, fields: Fields) -> Iterator[Event]:
        item, index = self._at(fields, "message"), fields.take("content_index", int) or 0
        yield from self._words(item, index, fields.take_text("text"))

    def _words(self, item: _Item, index: int, text: str) -> Iterator[Event]:
        if text and index not in item.told:
            item.told.add(index)
            yield from self._calls.emit(TextDelta(text, item=item.id))

    def _refusal_more(self, fields: Fields) -> Iterator[Event]:
        """Refusals are short, and one text each: they wait until they are whole."""
        item, index = self._at(fields, "message"), fields.take("content_index", int) or 0
        item.refusals[index] = item.refusals.get(index, "") + fields.take_text("delta")
        yield from ()

    def _refusal_whole(self, fields: Fields) -> Iterator[Event]:
        item, index = self._at(fields, "message"), fields.take("content_index", int) or 0
        yield from self._refusal(item, index, fields.take_text("refusal"))

    def _refusal(self, item: _Item, index: int, text: str) -> Iterator[Event]:
        if text and index not in item.told:
            item.told.add(index)
            self._is_refused = True
            yield from self._calls.emit(TextDelta(text, {"type": "refusal"}, item.id))

    def _part_over(self, fields: Fields) -> Iterator[Event]:
        item, index = self._at(fields, "message"), fields.take("content_index", int) or 0
        if item.kind == "message" and (part := fields.take_object("part")):
            yield from self._part(item, index, part)

    def _part(self, item: _Item, index: int, fields: Fields) -> Iterator[Event]:
        if index in item.closed:
            return
        item.closed.add(index)
        if _word(fields, "type") == "refusal":
            yield from self._refusal(item, index, fields.take_text("refusal"))
            return
        yield from self._words(item, index, fields.take_text("text"))
        if extra := leftover(fields):
            yield from self._calls.emit(TextDelta("", extra, item.id))

    def _message_over(self, item: _Item, fields: Fields) -> Iterator[Event]:
        fields.take_any("role")
        for index, (part, path) in enumerate(fields.take_items("content")):
            yield from self._part(item, index, Fields(part, path))
        if extra := leftover(fields):
            yield from self._calls.emit(TextDelta("", extra, item.id))

    # What is thought.

    def _summary(self, fields: Fields) -> Iterator[Event]:
        index = fields.take("summary_index", int) or 0
        yield from self._thought(fields, "summary", index, fields.take_text("delta"))

    def _own_words(self, fields: Fields) -> Iterator[Event]:
        index = fields.take("content_index", int) or 0
        yield from self._thought(fields, "content", index, fields.take_text("delta"))

    def _summary_whole(self, fields: Fields) -> Iterator[Event]:
        index = fields.take("summary_index", int) or 0
        yield from self._thought(fields, "summary", index, fields.take_text("text"), whole=True)

    def _own_words_whole(self, fields: Fields) -> Iterator[Event]:
        index = fields.take("content_index", int) or 0
        yield from self._thought(fields, "content", index, fields.take_text("text"), whole=True)

    def _thought(
        self, fields: Fields, voice: str, index: int, text: str, *, whole: bool = False
    ) -> Iterator[Event]:
        item = self._at(fields, "reasoning")
        item.voice = item.voice or voice
        if not text or item.voice != voice or (whole and index in item.told):
            return
        gap = BETWEEN if item.told and index not in item.told else ""
        item.told.add(index)
        yield from self._calls.emit(ReasoningDelta(gap + text, item=item.id))

    def _thought_over(self, item: _Item, fields: Fields) -> Iterator[Event]:
        identity = _word(fields, "id")
        thinking = thought(fields)
        if isinstance(thinking, Other) and not item.told:
            told: Event = PartAdded(thinking)
        elif isinstance(thinking, Other):
            told = ReasoningDelta("", None, {ID: identity} if identity else None, item.id)
        else:
            text = "" if item.told else thinking.text
            told = ReasoningDelta(text, thinking.signature, thinking.extra or None, item.id)
        yield from self._calls.emit(told)

    # What is called.

    def _call(self, item: _Item, fields: Fields) -> Iterator[Event]:
        if item.started or not (name := fields.take_text("name")):
            return
        item.started = True
        yield from self._calls.start(
            item,
            _word(fields, "call_id") or _word(fields, "id"),
            name,
            namespace=fields.take("namespace", str),
            freeform=item.kind == "custom_tool_call",
            extra={ID: item.id} if item.id else None,
        )

    def _arguments(self, fields: Fields) -> Iterator[Event]:
        item = self._at(fields, "function_call")
        if item.started:
            item.streamed = True
            yield from self._calls.append(item, fields.take_text("delta"))

    def _arguments_whole(self, fields: Fields) -> Iterator[Event]:
        """The item's end, which follows, says the same; not with every server."""
        item = self._at(fields, "function_call")
        given = fields.take_any("arguments", "input")
        if item.streamed:
            return
        if item.started and isinstance(given, str):
            item.streamed = True
            yield from self._calls.append(item, given)
        else:
            item.given = given

    def _call_over(self, item: _Item, fields: Fields) -> Iterator[Event]:
        yield from self._call(item, fields)
        if not item.started:
            yield from self._calls.reject(fields.rest(), "the call does not name a tool")
        text = fields.take_any("arguments", "input")
        given = None if item.streamed else item.given if text is None else text
        cut = fields.peek("status") == "incomplete"
        for known in _OF_A_CALL:
            fields.take_any(known)
        yield from self._calls.end(item, given, cut=cut, extra=leftover(fields))

    _EVENTS: ClassVar[dict[str, Callable[[ResponsesReplyDecoder, Fields], Iterator[Event]]]] = {
        "response.created": _lifecycle,
        "response.queued": _lifecycle,
        "response.in_progress": _lifecycle,
        "response.completed": _ends,
        "response.incomplete": _ends,
        "response.failed": _ends,
        "response.output_item.added": _added,
        "response.output_item.done": _done,
        "response.output_text.delta": _text,
        "response.output_text.done": _text_whole,
        "response.refusal.delta": _refusal_more,
        "response.refusal.done": _refusal_whole,
        "response.content_part.done": _part_over,
        "response.reasoning_summary_text.delta": _summary,
        "response.reasoning_summary_text.done": _summary_whole,
        "response.reasoning_text.delta": _own_words,
        "response.reasoning_text.done": _own_words_whole,
        "response.function_call_arguments.delta": _arguments,
        "response.function_call_arguments.done": _arguments_whole,
        "response.custom_tool_call_input.delta": _arguments,
        "response.custom_tool_call_input.done": _arguments_whole,
    }
    """What the events say that say anything new; of a hosted tool, its item says it all."""


_LIFECYCLE = frozenset(
    f"response.{state}"
    for state in ("created", "queued", "in_progress", "completed", "incomplete", "failed")
)


def _word(fields: Fields, key: str) -> str:
    value = fields.peek(key)
    return value if isinstance(value, str) else ""


def _about(fields: Fields) -> Json:
    """What a response says of itself, for a client of the same API."""
    for key in _OWN_TO_A_REPLY:
        fields.take_any(key)
    return fields.rest()


def _usage(fields: Fields) -> Usage:
    read = fields.take_object("input_tokens_details") or Fields({})
    written = fields.take_object("output_tokens_details") or Fields({})
    counted = Usage(
        input=fields.take("input_tokens", int) or 0,
        output=fields.take("output_tokens", int) or 0,
        cached=read.take("cached_tokens", int) or 0,
        cache_written=read.take("cache_write_tokens", int) or 0,
        reasoning=written.take("reasoning_tokens", int) or 0,
    )
    if fields.peek("total_tokens") == counted.input + counted.output:
        fields.take_any("total_tokens")
    beside = omit_none(
        input_tokens_details=read.rest() or None, output_tokens_details=written.rest() or None
    )
    return replace(counted, extra=fields.rest() | beside)
