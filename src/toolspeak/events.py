"""What happens while a reply arrives. Everything inside speaks this vocabulary and no other.

    TextDelta("Let me look.")  CallStart(0, "call_1", "get_weather")
    ArgumentsDelta(0, '{"city"')  ArgumentsDelta(0, ': "Oslo"}')  CallEnd(0, ToolCall(…))  Finish()

`fold` turns any such sequence into the whole `Reply`; there is no other way to one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from msgspec import Struct

from .types import Note, Rejection, Reply, ToolCall, Usage


class TextDelta(Struct, frozen=True, tag="text"):
    """More of the answer."""

    text: str


class ReasoningDelta(Struct, frozen=True, tag="reasoning"):
    """More of the thinking before the answer."""

    text: str
    signature: str | None = None


class Reclassify(Struct, frozen=True, tag="reclassify"):
    """Everything so far was reasoning: a close tag came that nothing had opened."""


class CallStart(Struct, frozen=True, tag="call_start"):
    """A call has begun; its arguments follow. `index` counts the calls of the reply."""

    index: int
    id: str
    name: str
    dialect: str | None = None


class ArgumentsDelta(Struct, frozen=True, tag="arguments"):
    """More of a call's arguments, as JSON text."""

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

    stop_reason: str | None = None
    raw_stop_reason: str | None = None
    usage: Usage | None = None


Event = (
    TextDelta
    | ReasoningDelta
    | Reclassify
    | CallStart
    | ArgumentsDelta
    | CallEnd
    | CallRejected
    | Note
    | Finish
)


def fold(events: Iterable[Event]) -> Reply:
    """The whole reply that a stream of events amounts to."""
    said: list[str] = []
    """Text and the calls' own text in order, for `Reclassify`."""
    text: list[str] = []
    reasoning: list[str] = []
    calls: list[ToolCall] = []
    rejected: list[Rejection] = []
    notes: list[Note] = []
    dialects: dict[int, str | None] = {}
    finish = Finish()
    for event in events:
        match event:
            case TextDelta():
                text.append(event.text)
                said.append(event.text)
            case ReasoningDelta():
                reasoning.append(event.text)
            case Reclassify():
                reasoning.append("".join(said).strip())
                said, text, calls = [], [], []
            case CallStart():
                dialects[event.index] = event.dialect
            case CallEnd():
                calls.append(event.call)
                if event.call.raw not in said[-1:]:
                    said.append(event.call.raw)
            case CallRejected():
                if event.rejection:
                    rejected.append(event.rejection)
            case Note():
                notes.append(event)
            case Finish():
                finish = event
            case ArgumentsDelta():
                pass
            case _:
                assert_never(event)
    return Reply(
        text="".join(text),
        reasoning="".join(reasoning),
        calls=tuple(calls),
        rejected=tuple(rejected),
        notes=tuple(notes),
        dialect=dialects.get(0) if calls else None,
        stop_reason=finish.stop_reason,
        raw_stop_reason=finish.raw_stop_reason,
        usage=finish.usage,
    )
