"""What a model means by what an upstream says: text is read for calls, and every call is checked.

Calls that came as structures and calls that were found in the text leave in the same way: whole,
of a declared tool, with arguments that fit its schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from msgspec import structs

from ..calls import Draft, Ledger
from ..events import (
    ArgumentsDelta,
    CallEnd,
    CallRejected,
    CallStart,
    Event,
    Finish,
    ReasoningDelta,
    TextDelta,
)
from ..judge import Judge
from ..notes import NOTES
from ..types import Failure, Note, Rejection, Request, StopReason, ToolCall
from .inert import Mark
from .offered import Offered

_SHOWN = 1000


class TextReader(Protocol):
    """Finds the calls in text."""

    def feed(self, text: str) -> Iterable[Event]:
        """What is certain by now."""
        ...

    def finish(self) -> Iterable[Event]:
        """The text is over."""
        ...


class Understanding:
    """Turns an upstream's events into those that a client is to see."""

    def __init__(
        self,
        request: Request,
        offered: Offered,
        mark: Mark,
        read_text: Callable[[], TextReader] | None,
        new_id: Callable[[], str],
    ) -> None:
        self._one_call = not request.parallel_tool_calls
        self._offered = offered
        self._mark = mark
        self._read_text = read_text
        """None: text is text."""
        self._reader: TextReader | None = None
        self._judge = Judge(offered.toolset, "lenient")
        self._ledger = Ledger(new_id)
        # Many models give every first call the id `call_1`, and clients tell calls by their ids.
        for identity in _ids(request):
            self._ledger.claim(identity)
        self._start: CallStart | None = None
        self._arguments: list[str] = []
        self.made = 0
        """How many calls were made."""

    def feed(self, event: Event) -> Iterable[Event]:
        """What an event comes to."""
        if isinstance(event, TextDelta) and self._read_text and not event.extra:
            self._reader = reader = self._reader or self._read_text()
            return self._found(reader.feed(event.text))
        return self._other(event)

    def _other(self, event: Event) -> Iterator[Event]:
        match event:
            case TextDelta() | ReasoningDelta():
                yield from self._flush()
                yield self._restored(event)
            case CallStart():
                yield from self._flush()
                self._start, self._arguments = event, []
            case ArgumentsDelta():
                self._arguments.append(event.json)
            case CallEnd():
                yield from self._structured(event.call)
            case CallRejected():
                yield from self._refused(event)
            case Finish():
                yield from self._flush()
                reason = self._reason(event.stop_reason)
                yield structs.replace(event, stop_reason=reason)
            case Failure():
                yield from self._flush()
                yield event
            case _:
                yield event

    # Text.

    def _flush(self) -> Iterator[Event]:
        """The text so far is over."""
        reader, self._reader = self._reader, None
        if reader:
            yield from self._found(reader.finish())

    def _found(self, events: Iterable[Event]) -> list[Event]:
        """What was found in the text, with calls in one piece."""
        found: list[Event] = []
        for event in events:
            match event:
                case TextDelta() | ReasoningDelta():
                    found.append(self._restored(event))
                case CallStart() | ArgumentsDelta() | Finish():
                    pass
                case CallEnd():
                    found += self._made(self._offered.meant(event.call), "")
                case _:
                    found.append(event)
        return found

    # Calls.

    def _structured(self, call: ToolCall) -> Iterator[Event]:
        """A call that came as a structure: its name and arguments are checked."""
        written = self._offered.written(call)
        text = "".join(self._arguments)
        verdict = self._judge.weigh(Draft(written.name, dict(call.arguments), call.id), text)
        if verdict.code == "unknown-tool" and self._offered.more:
            yield from self._made(call, text)
            return
        if verdict.arguments is None:
            rejection = Rejection(
                text[:_SHOWN], verdict.code, verdict.problem, verdict.path, call.name
            )
            yield CallRejected(rejection)
            yield Note(verdict.code, verdict.problem, text[:_SHOWN])
            yield TextDelta(f"{call.name}({call.input})")
            return
        for code, message, where in verdict.remarks:
            yield Note(code, message, where[:_SHOWN])
        changed = verdict.name != written.name or verdict.arguments != call.arguments
        meant = self._offered.meant(structs.replace(written, name=verdict.name))
        arguments = dict(verdict.arguments) if changed else call.arguments
        yield from self._made(structs.replace(meant, arguments=arguments), "" if changed else text)

    def _refused(self, event: CallRejected) -> Iterator[Event]:
        """A structure that is no call: what it says is kept as text."""
        yield CallRejected(event.rejection)
        if event.rejection:
            yield TextDelta(f"{event.rejection.name or ''}({event.rejection.raw})")

    def _made(self, call: ToolCall, text: str) -> Iterator[Event]:
        if self._one_call and self.made:
            yield Note("extra-call", f"{NOTES['extra-call']} It is one of {call.name!r}.", call.id)
            return
        identity = self._ledger.claim(call.id)
        if call.id and identity != call.id:
            yield Note("id-replaced", f"the id {call.id!r} is taken by another call", call.id)
        arguments = self._mark.restored_value(call.arguments)
        call = structs.replace(call, id=identity, arguments=arguments)
        index, self.made = self.made, self.made + 1
        start = self._start
        extra = start.extra if start else None
        dialect = start.dialect if start else None
        self._start = None
        yield CallStart(index, identity, call.name, dialect, call.namespace, call.freeform, extra)
        yield ArgumentsDelta(index, self._mark.restored(text) or call.input)
        yield CallEnd(index, call)

    def _reason(self, reason: StopReason | None) -> StopReason | None:
        """Why the reply stops: for its calls, if it has any."""
        if self.made:
            return "calls" if reason in ("stop", "calls", "stop_sequence", None) else reason
        return "stop" if reason == "calls" else reason

    def _restored(self, event: TextDelta | ReasoningDelta) -> Event:
        if not self._mark.character:
            return event
        return structs.replace(event, text=self._mark.restored(event.text))


def _ids(request: Request) -> set[str]:
    """Those of the calls that were made before."""
    parts = (part for message in request.messages for part in message.parts)
    return {part.id for part in parts if isinstance(part, ToolCall)}
