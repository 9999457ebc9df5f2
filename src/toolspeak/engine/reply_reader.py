"""What a model means by what an upstream says: text is read for calls, and every call is checked.

Calls that came as structures and calls that were found in the text leave in the same way: whole,
of a declared tool, with arguments that fit its schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol

from msgspec import structs

from ..calls.drafts import CallDraft, CallIds
from ..calls.validation import Judge
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
from ..notes import NOTES
from ..security.escaping import Escaper
from ..types import Failure, Note, Rejection, Request, StopReason, ToolCall
from .tool_names import OfferedTools

_SHOWN = 1000


class TextReader(Protocol):
    """Finds the calls in text."""

    def feed(self, text: str) -> Iterable[Event]:
        """What is certain by now."""
        ...

    def finish(self) -> Iterable[Event]:
        """The text is over."""
        ...

    @property
    def in_call(self) -> bool:
        """Whether a call has begun that is not over."""
        ...


class CallExtractor:
    """Turns an upstream's events into those that a client is to see."""

    def __init__(
        self,
        request: Request,
        offered: OfferedTools,
        mark: Escaper,
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
        self._ledger = CallIds(new_id)
        # Many models give every first call the id `call_1`, and clients tell calls by their ids.
        for identity in _ids(request):
            self._ledger.claim(identity)
        self._start: CallStart | None = None
        self._arguments: list[str] = []
        self.made = 0
        """How many calls were made."""

    @property
    def in_call(self) -> bool:
        """Whether a call has begun in the text that is not over."""
        return self._reader is not None and self._reader.in_call

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """What these events come to."""
        understood: list[Event] = []
        for event in events:
            # By its type, since every piece of a stream comes by here: a match would ask one after
            # the other.
            read = self._READS.get(type(event))
            if read:
                understood += read(self, event)
            else:
                understood.append(event)
        return understood

    def _text(self, event: TextDelta) -> Iterable[Event]:
        if not self._read_text or event.extra:
            return self._words(event)
        self._reader = reader = self._reader or self._read_text()
        return self._found(reader.feed(event.text))

    def _words(self, event: TextDelta | ReasoningDelta) -> Iterable[Event]:
        return [*self._flush(), self._restored(event)]

    def _begun(self, event: CallStart) -> Iterable[Event]:
        self._start, self._arguments = event, []
        return self._flush() if self._reader else ()

    def _more(self, event: ArgumentsDelta) -> Iterable[Event]:
        self._arguments.append(event.json)
        return ()

    def _whole(self, event: CallEnd) -> Iterable[Event]:
        return self._structured(event.call)

    def _over(self, event: Finish) -> Iterable[Event]:
        flushed = self._flush() if self._reader else ()
        reason = self._reason(event.stop_reason)
        if reason != event.stop_reason:
            event = structs.replace(event, stop_reason=reason)
        return (*flushed, event)

    def _failed(self, event: Failure) -> Iterable[Event]:
        return [*self._flush(), event]

    # Text.

    def _flush(self) -> list[Event]:
        """The text so far is over."""
        reader, self._reader = self._reader, None
        return self._found(reader.finish()) if reader else []

    def _found(self, events: Iterable[Event]) -> list[Event]:
        """What was found in the text, with calls in one piece."""
        found: list[Event] = []
        is_plain = not self._mark.character
        for event in events:
            if is_plain and type(event) is TextDelta:
                # Of all that there is, nearly all is this.
                found.append(event)
                continue
            match event:
                case TextDelta() | ReasoningDelta():
                    found.append(self._restored(event))
                case CallStart():
                    self._start = event
                case ArgumentsDelta() | Finish():
                    pass
                case CallEnd():
                    found += self._made(self._offered.to_client_call(event.call), "")
                case _:
                    found.append(event)
        return found

    # Calls.

    def _structured(self, call: ToolCall) -> list[Event]:
        """A call that came as a structure: its name and arguments are checked."""
        written = self._offered.to_model_call(call)
        text = "".join(self._arguments)
        verdict = self._judge.weigh(CallDraft(written.name, dict(call.arguments), call.id), text)
        if verdict.code == "unknown-tool" and self._offered.has_hosted_tools:
            return self._made(call, text)
        if verdict.arguments is None:
            rejection = Rejection(
                text[:_SHOWN], verdict.code, verdict.problem, verdict.path, call.name
            )
            return [
                CallRejected(rejection),
                Note(verdict.code, verdict.problem, text[:_SHOWN]),
                TextDelta(f"{call.name}({call.input})"),
            ]
        if verdict.name == written.name and verdict.arguments == call.arguments:
            meant = self._offered.to_client_call(written)
        else:
            text, arguments = "", dict(verdict.arguments)
            meant = self._offered.to_client_call(
                structs.replace(written, name=verdict.name, arguments=arguments)
            )
        remarks = (Note(code, message, where[:_SHOWN]) for code, message, where in verdict.remarks)
        return [*remarks, *self._made(meant, text)]

    def _refused(self, event: CallRejected) -> list[Event]:
        """A structure that is no call: what it says is kept as text."""
        if not event.rejection:
            return [CallRejected(None)]
        text = TextDelta(f"{event.rejection.name or ''}({event.rejection.raw})")
        return [CallRejected(event.rejection), text]

    def _made(self, call: ToolCall, text: str) -> list[Event]:
        if self._one_call and self.made:
            told = f"{NOTES['extra-call']} It is one of {call.name!r}."
            return [Note("extra-call", told, call.id)]
        made: list[Event] = []
        identity = self._ledger.claim(call.id)
        if call.id and identity != call.id:
            told = f"the id {call.id!r} is taken by another call"
            made.append(Note("id-replaced", told, call.id))
        arguments = self._mark.unescape_value(call.arguments)
        if identity != call.id or arguments is not call.arguments:
            call = structs.replace(call, id=identity, arguments=arguments)
        index, self.made = self.made, self.made + 1
        start = self._start
        extra = start.extra if start else None
        dialect = start.dialect if start else None
        self._start = None
        made += (
            CallStart(index, identity, call.name, dialect, call.namespace, call.freeform, extra),
            ArgumentsDelta(index, self._mark.unescape(text) or call.input),
            CallEnd(index, call),
        )
        return made

    def _reason(self, reason: StopReason | None) -> StopReason | None:
        """Why the reply stops: for its calls, if it has any."""
        if self.made:
            return "calls" if reason in ("stop", "calls", "stop_sequence", None) else reason
        return "stop" if reason == "calls" else reason

    def _restored(self, event: TextDelta | ReasoningDelta) -> Event:
        if not self._mark.character:
            return event
        return structs.replace(event, text=self._mark.unescape(event.text))

    _READS: ClassVar[dict[type[Any], Callable[[CallExtractor, Any], Iterable[Event]]]] = {
        TextDelta: _text,
        ReasoningDelta: _words,
        CallStart: _begun,
        ArgumentsDelta: _more,
        CallEnd: _whole,
        CallRejected: _refused,
        Finish: _over,
        Failure: _failed,
    }
    """What is done about an event; others are what they are."""


def _ids(request: Request) -> set[str]:
    """Those of the calls that were made before."""
    return {
        part.id
        for message in request.messages
        for part in message.parts
        if isinstance(part, ToolCall)
    }
