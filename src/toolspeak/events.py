"""What happens while a reply arrives. Everything inside speaks this vocabulary and no other.

    Started()  TextDelta("Let me look.")  CallStart(0, "call_1", "get_weather")
    ArgumentsDelta(0, '{"city"')  ArgumentsDelta(0, ': "Oslo"}')  CallEnd(0, ToolCall(…))  Finish()

`fold` turns any such sequence into the whole `Reply`; there is no other way to one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from msgspec import Struct

from .types import (
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
"""In the `extra` of a part: what its API calls the item that it came in."""


class Started(Struct, frozen=True, tag="started"):
    """The reply has begun, where an API says so. `wire` is that API, whose every `extra` is."""

    id: str = ""
    model: str = ""
    usage: Usage | None = None
    wire: str = ""
    extra: dict[str, Any] | None = None


class TextDelta(Struct, frozen=True, tag="text"):
    """More of the answer. With an `extra` it is a part of its own."""

    text: str
    extra: dict[str, Any] | None = None
    item: str = ""
    """What its API calls the item that it is a piece of, where items have ids."""


class ReasoningDelta(Struct, frozen=True, tag="reasoning"):
    """More of the thinking before the answer. A `signature` or an `extra` ends it: what follows is
    another thought."""

    text: str
    signature: str | None = None
    extra: dict[str, Any] | None = None
    item: str = ""
    """What its API calls the item that it is a piece of, where items have ids."""


class PartAdded(Struct, frozen=True, tag="part"):
    """A part of the reply that comes in one piece."""

    part: Image | Other


class Reclassify(Struct, frozen=True, tag="reclassify"):
    """Everything so far was reasoning: a close tag came that nothing had opened."""


class CallStart(Struct, frozen=True, tag="call_start"):
    """A call has begun; its arguments follow. `index` counts the calls of the reply."""

    index: int
    id: str
    name: str
    dialect: str | None = None
    namespace: str | None = None
    freeform: bool = False
    extra: dict[str, Any] | None = None


class ArgumentsDelta(Struct, frozen=True, tag="arguments"):
    """More of a call's arguments, as JSON text; of a freeform call, more of its text."""

    index: int
    json: str


class CallEnd(Struct, frozen=True, tag="call_end"):
    """The call is whole."""

    index: int
    call: ToolCall


class CallRejected(Struct, frozen=True, tag="call_rejected"):
    """A block tried to be a call and is not one. If it had started (`index`), it is taken back;
    with no `rejection`, it was only begun and will be read anew."""

    rejection: Rejection | None
    index: int | None = None


class Finish(Struct, frozen=True, tag="finish"):
    """The reply is over."""

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
    """The whole reply that a stream of events amounts to."""
    content: list[_Content] = []
    rejected: list[Rejection] = []
    notes: list[Note] = []
    dialect: str | None = None
    started, finish, failure = _NOT_STARTED, _NOT_FINISHED, None
    has_calls = False
    for event in events:
        # In the order of how often they come; a match would take twice as long.
        if isinstance(event, _WORDS):
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
            content, has_calls = _as_reasoning(content), False
        elif isinstance(event, CallRejected):
            if event.rejection:
                rejected.append(event.rejection)
        else:
            failure = event
    return Reply(
        parts=_parts(content),
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


_WORDS = (TextDelta, ReasoningDelta)
_NOT_STARTED, _NOT_FINISHED = Started(), Finish()
_NOTHING: dict[str, Any] = {}


def unfold(reply: Reply) -> Iterator[Event]:
    """What happens in a reply that came whole: `fold` makes the same of it again."""
    yield Started(reply.id, reply.model, reply.usage, reply.wire, reply.extra)
    calls = 0
    for part in reply.parts:
        match part:
            case Text():
                yield TextDelta(part.text, part.extra)
            case Reasoning():
                yield ReasoningDelta(part.text, part.signature, part.extra)
            case ToolCall():
                space, freeform = part.namespace, part.freeform
                yield CallStart(calls, part.id, part.name, None, space, freeform, part.extra)
                yield CallEnd(calls, part)
                calls += 1
            case Image() | Other():
                yield PartAdded(part)
            case _:
                pass
    yield reply.failure or Finish(reply.stop_reason, reply.raw_stop_reason, reply.usage)


def use_reasoning_as_text(events: Iterable[Event]) -> Iterator[Event]:
    """The same events; and where a model has only thought, what it thought as its answer. For
    clients that cannot do without one."""
    thoughts: list[str] = []
    spoke = False
    for event in events:
        match event:
            case ReasoningDelta():
                thoughts.append(event.text)
            case TextDelta() | CallStart() | PartAdded() | Failure():
                spoke = spoke or not isinstance(event, TextDelta) or bool(event.text)
            case Finish() if thoughts and not spoke:
                yield TextDelta("".join(thoughts))
                yield Note("reasoning-as-text", "the reply is all reasoning; it is the answer too")
            case _:
                pass
        yield event


_Content = TextDelta | ReasoningDelta | ToolCall | Image | Other


def _as_reasoning(content: list[_Content]) -> list[_Content]:
    """All that was said so far, with the calls' own text, as one thought."""
    thought: list[_Content] = [item for item in content if isinstance(item, ReasoningDelta)]
    said: list[str] = []
    for item in content:
        if isinstance(item, TextDelta):
            said.append(item.text)
        elif isinstance(item, ToolCall) and item.raw not in said[-1:]:
            said.append(item.raw)
    return [*thought, ReasoningDelta("".join(said).strip())]


def _parts(content: list[_Content]) -> tuple[Part, ...]:
    """What came in pieces, put together."""
    if len(content) == 1 and isinstance(call := content[0], ToolCall):
        return (call,)
    return tuple(_joined(content))


def _joined(content: list[_Content]) -> Iterator[Part]:
    for kind, run in groupby(content, type):
        if kind is TextDelta:
            yield from _texts(run)
        elif kind is ReasoningDelta:
            yield from _thoughts(run)
        else:
            yield from (item for item in run if isinstance(item, (ToolCall, Image, Other)))


def _texts(deltas: Iterable[Any]) -> Iterator[Text]:
    for (extra, item), run in groupby(deltas, lambda delta: (delta.extra, delta.item)):
        said = {**(extra or {}), ITEM_ID: item} if item else extra or {}
        for text in (delta.text for delta in run) if extra else ("".join(d.text for d in run),):
            if text or extra:
                yield Text(text, said)


def _thoughts(deltas: Iterable[Any]) -> Iterator[Reasoning]:
    pieces: list[str] = []
    for delta in deltas:
        pieces.append(delta.text)
        if delta.signature is not None or delta.extra:
            yield Reasoning("".join(pieces), delta.signature, delta.extra or {})
            pieces = []
    if any(pieces):
        yield Reasoning("".join(pieces))
