"""Events: the steps of a reply as it arrives.

    Started()  TextDelta("Let me look.")  CallStart(0, "call_1", "get_weather")
    ArgumentsDelta(0, '{"city"')  ArgumentsDelta(0, ': "Oslo"}')  CallEnd(0, ToolCall(…))  Finish()

`fold` turns a sequence of events into the whole `Reply`; nothing else creates one from events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from msgspec import Struct, structs

from .notes import NOTES
from .types import (
    COMPLETE_STOP_REASONS,
    Failure,
    Image,
    Note,
    Other,
    Part,
    Reasoning,
    Rejection,
    Reply,
    StopReason,
    Text,
    ToolCall,
    Usage,
)

ITEM_ID = "~id"
"""In the `extra` of a part: the id of the API's item that contained it."""


class Started(Struct, frozen=True, tag="started"):
    """The reply begins. `wire` is the API that it comes from; each `extra` belongs to that API."""

    id: str = ""
    model: str = ""
    usage: Usage | None = None
    wire: str = ""
    extra: dict[str, Any] | None = None


class TextDelta(Struct, frozen=True, tag="text"):
    """More of the answer. With an `extra`, it is a separate part."""

    text: str
    extra: dict[str, Any] | None = None
    item: str = ""
    """The id of the API's item that this is part of; empty if items have no ids."""


class ReasoningDelta(Struct, frozen=True, tag="reasoning"):
    """More of the reasoning before the answer. A delta with a `signature` or an `extra`
    is the last of its part."""

    text: str
    signature: str | None = None
    extra: dict[str, Any] | None = None
    item: str = ""
    """The id of the API's item that this is part of; empty if items have no ids."""

    @property
    def is_empty(self) -> bool:
        """It holds no reasoning, not even encrypted."""
        return not (self.text or self.signature or self.extra)


class PartAdded(Struct, frozen=True, tag="part"):
    """A part of the reply that arrives whole."""

    part: Image | Other


class Reclassify(Struct, frozen=True, tag="reclassify"):
    """Everything so far was reasoning: its closing tag arrived, and there was no opening tag."""


class CallStart(Struct, frozen=True, tag="call_start"):
    """A call begins; its arguments follow. `index` counts the calls of the reply."""

    index: int
    id: str
    name: str
    dialect: str | None = None
    namespace: str | None = None
    freeform: bool = False
    extra: dict[str, Any] | None = None


class ArgumentsDelta(Struct, frozen=True, tag="arguments"):
    """More of the JSON text of a call's arguments, or of the text of a freeform call."""

    index: int
    json: str


class CallEnd(Struct, frozen=True, tag="call_end"):
    """A call is complete."""

    index: int
    call: ToolCall


class CallRejected(Struct, frozen=True, tag="call_rejected"):
    """A block that looks like a call is rejected. With an `index`, it had already started as that
    call, which is withdrawn. Without a `rejection`, its text is parsed again as something else."""

    rejection: Rejection | None
    index: int | None = None


class Finish(Struct, frozen=True, tag="finish"):
    """The reply ends."""

    stop_reason: StopReason | None = None
    raw_stop_reason: str | None = None
    usage: Usage | None = None
    extra: dict[str, Any] | None = None


Event = (
    Started
    | TextDelta
    | ReasoningDelta
    | Reclassify
    | CallStart
    | ArgumentsDelta
    | CallEnd
    | CallRejected
    | PartAdded
    | Note
    | Failure
    | Finish
)


def fold(events: Iterable[Event]) -> Reply:
    """Return the whole reply that a sequence of events forms."""
    content: list[_Content] = []
    rejected: list[Rejection] = []
    notes: list[Note] = []
    dialect: str | None = None
    started, finish, failure = _NOT_STARTED, _NOT_FINISHED, None
    has_calls = False
    for event in events:
        # Most frequent first. A `match` would take twice as long.
        if isinstance(event, _DELTAS):
            content.append(event)
        elif isinstance(event, ArgumentsDelta):
            pass
        elif isinstance(event, CallStart):
            if event.index == 0:
                dialect = event.dialect
        elif isinstance(event, CallEnd):
            content.append(event.call)
            has_calls = True
        elif isinstance(event, Finish):
            finish = event
        elif isinstance(event, Started):
            started = event
        elif isinstance(event, Note):
            notes.append(event)
        elif isinstance(event, PartAdded):
            content.append(event.part)
        elif isinstance(event, Reclassify):
            content, has_calls = _convert_to_reasoning(content), False
        elif isinstance(event, CallRejected):
            if event.rejection:
                rejected.append(event.rejection)
        else:
            failure = event
    return Reply(
        parts=_join_parts(content),
        rejected=tuple(rejected),
        notes=tuple(notes),
        dialect=dialect if has_calls else None,
        id=started.id,
        model=started.model,
        stop_reason=finish.stop_reason,
        raw_stop_reason=finish.raw_stop_reason,
        usage=finish.usage or started.usage,
        failure=failure,
        wire=started.wire,
        extra={**(started.extra or _NOTHING), **(finish.extra or _NOTHING)},
    )


_DELTAS = (TextDelta, ReasoningDelta)
_NOT_STARTED, _NOT_FINISHED = Started(), Finish()
_NOTHING: dict[str, Any] = {}


def unfold(reply: Reply) -> Iterator[Event]:
    """Yield the events of a whole reply; `fold` is the inverse."""
    yield Started(reply.id, reply.model, reply.usage, reply.wire, reply.extra)
    calls = 0
    for part in reply.parts:
        match part:
            case Text():
                yield TextDelta(part.text, part.extra)
            case Reasoning():
                yield ReasoningDelta(part.text, part.signature, part.extra)
            case ToolCall():
                yield CallStart(
                    calls, part.id, part.name, None, part.namespace, part.freeform, part.extra
                )
                yield CallEnd(calls, part)
                calls += 1
            case Image() | Other():
                yield PartAdded(part)
            case _:
                pass
    yield reply.failure or Finish(reply.stop_reason, reply.raw_stop_reason, reply.usage)


def use_reasoning_as_text(reply: Reply) -> Reply:
    """Return the reply; if it is complete and has only reasoning, with that as its text, too."""
    is_complete = reply.stop_reason in COMPLETE_STOP_REASONS and not reply.failure
    if not is_complete or reply.rejected or reply.text.strip():
        return reply
    if not (reasoning := reply.reasoning).strip():
        return reply
    if not all(isinstance(part, (Reasoning, Text)) for part in reply.parts):
        return reply
    parts = [part for part in reply.parts if isinstance(part, Reasoning)]
    note = Note("reasoning-as-text", NOTES["reasoning-as-text"])
    return structs.replace(reply, parts=(*parts, Text(reasoning)), notes=(*reply.notes, note))


_Content = TextDelta | ReasoningDelta | ToolCall | Image | Other


def _convert_to_reasoning(content: list[_Content]) -> list[_Content]:
    """Convert all content so far, with the text of the calls, to reasoning."""
    reasoning: list[_Content] = [item for item in content if isinstance(item, ReasoningDelta)]
    texts: list[str] = []
    for item in content:
        if isinstance(item, TextDelta):
            texts.append(item.text)
        elif isinstance(item, ToolCall) and item.raw not in texts[-1:]:
            texts.append(item.raw)
    return [*reasoning, ReasoningDelta("".join(texts).strip())]


def _join_parts(content: list[_Content]) -> tuple[Part, ...]:
    """Join the deltas of each part."""
    if len(content) == 1 and isinstance(call := content[0], ToolCall):
        return (call,)
    return tuple(_iter_parts(content))


def _iter_parts(content: list[_Content]) -> Iterator[Part]:
    for kind, run in groupby(content, type):
        if kind is TextDelta:
            yield from _join_texts(run)
        elif kind is ReasoningDelta:
            yield from _join_reasoning(run)
        else:
            yield from (item for item in run if isinstance(item, (ToolCall, Image, Other)))


def _join_texts(deltas: Iterable[Any]) -> Iterator[Text]:
    for (extra, item), run in groupby(deltas, lambda delta: (delta.extra, delta.item)):
        part_extra = {**(extra or {}), ITEM_ID: item} if item else extra or {}
        texts = [delta.text for delta in run]
        for text in texts if extra else ["".join(texts)]:
            if text or extra:
                yield Text(text, part_extra)


def _join_reasoning(deltas: Iterable[Any]) -> Iterator[Reasoning]:
    pieces: list[str] = []
    for delta in deltas:
        pieces.append(delta.text)
        if delta.signature is not None or delta.extra:
            yield Reasoning("".join(pieces), delta.signature, delta.extra or {})
            pieces = []
    if any(pieces):
        yield Reasoning("".join(pieces))
