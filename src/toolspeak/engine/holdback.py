"""Holds back the part of a stream that might have to be taken back.

Nothing that was sent can be recalled. So the opening of a reply waits while it may still become a
refusal, a rejected call waits until it is known whether the model is asked again, and where a call
is required everything waits for it. All other events pass at once.
"""

from __future__ import annotations

from io import StringIO
from typing import Protocol

from ..calls.resolution import CallKey, call_key
from ..events import (
    ArgumentsDelta,
    CallEnd,
    CallRejected,
    CallStart,
    Event,
    Finish,
    ReasoningDelta,
    Started,
    TextDelta,
    fold,
)
from ..security.refusals import OpeningDetector
from ..types import Failure, Note, Reply

_MAX_REMEMBERED = 65_536
"""Characters of a reply's text, and of its reasoning, that are remembered to classify it."""
MAX_REASONING = 2**20
"""Characters of reasoning that are remembered, in case it is the whole reply."""
_DELTAS = (TextDelta, ReasoningDelta, ArgumentsDelta)


class CallSource(Protocol):
    """The reader that events come from."""

    @property
    def is_in_call(self) -> bool: ...


class SentState:
    """Records which parts of one model's replies the client has received."""

    def __init__(self) -> None:
        self.has_content = False
        """Something other than `Started` and notes was sent."""
        self.has_started = self.has_text = self.has_calls = False
        self.has_signed_reasoning = False
        """Signed reasoning was sent. The client must send it back with the reply that it belongs
        to, so no other reply may follow."""
        self.reply_index = 0
        """How many replies of this model came before the current one."""
        self.text_reply_index: int | None = None
        """The index of the reply whose text was sent first."""
        self._unreleased: list[Event] = []
        """Events before the first content: until it is sent, another upstream may take over."""

    def record(self, event: Event) -> None:
        """Remember what kind of event has passed."""
        self.has_started = self.has_started or isinstance(event, Started)
        self.has_calls = self.has_calls or isinstance(event, CallEnd)
        if isinstance(event, TextDelta) and not self.has_text:
            self.has_text, self.text_reply_index = True, self.reply_index
        is_signed = isinstance(event, ReasoningDelta) and bool(event.signature)
        self.has_signed_reasoning = self.has_signed_reasoning or is_signed

    def release(self, events: list[Event]) -> list[Event]:
        """Return the events to send now. A failure never waits."""
        if self.has_content or not events:
            return events
        failure = [events.pop()] if isinstance(events[-1], Failure) else []
        self._unreleased += events
        self.has_content = any(map(_is_content, events))
        return (self.take_unreleased() if self.has_content else []) + failure

    def take_unreleased(self) -> list[Event]:
        """Return the events that still wait."""
        unreleased, self._unreleased = self._unreleased, []
        return unreleased


def _is_content(event: Event) -> bool:
    return not isinstance(event, (Started, Note)) and getattr(event, "text", " ") != ""


class Holdback:
    """Holds back events of one reply."""

    def __init__(
        self,
        sent: SentState,
        *,
        is_streaming: bool = True,
        has_tools: bool = True,
        is_waiting: bool = False,
        may_be_replaced: bool = True,
        may_send_text: bool = True,
        repeated_call: CallKey | None = None,
    ) -> None:
        self._sent = sent
        self._is_streaming = is_streaming
        """Events may pass before the reply is complete."""
        self._is_waiting = is_waiting
        """Everything waits for a call or for the end of the reply."""
        self._may_be_replaced = may_be_replaced
        """Another reply may take the place of this one. If not, nothing needs to wait."""
        self.may_send_text = may_send_text
        """False if the client has received the text of an earlier reply."""
        self._repeated_call = repeated_call
        """The call that the loop guard does not let pass again."""
        self._refusal_detector = OpeningDetector() if has_tools and is_streaming else None
        self.events: list[Event] = []
        """All events, except deltas beyond `_MAX_REMEMBERED` characters."""
        self._held: list[Event] = []
        self._text_length = self._reasoning_length = 0
        self._rest_of_reasoning = StringIO()
        """The reasoning beyond that, as text: its deltas would take much more memory."""
        self.finish_event = Finish()
        """The reply's last event."""

    @property
    def reply(self) -> Reply:
        reply = fold(self.events)
        rest = self._rest_of_reasoning.getvalue()
        if not rest or reply.text.strip():
            return reply
        return fold([*self.events, ReasoningDelta(rest)])

    def feed(self, events: list[Event], source: CallSource | None = None) -> list[Event]:
        """Return the events that may pass now.

        Once `source` is inside a call, the text before it cannot be a refusal any more.
        """
        if not self._is_streaming:
            self.events += events
            return [event for event in events if isinstance(event, Failure)]
        passed: list[Event] = []
        for event in events:
            self._remember(event)
            is_held = (
                self._is_waiting or self._held or self._refusal_detector or not self.may_send_text
            )
            if type(event) is TextDelta and not is_held and self._sent.has_text:
                # The fast path: text follows text that was sent.
                passed.append(event)
            else:
                passed += self._record(self._pass_or_hold(event))
        may_flush = self._held and self._repeated_call is None and not self._is_waiting
        if may_flush and source is not None and source.is_in_call:
            passed += self._record(self._flush())
        return passed

    def take_rest(self) -> list[Event]:
        """Return the events that have not passed, without the last one (`finish_event`)."""
        if self._is_streaming:
            held, self._held = self._held, []
            return held
        if self.events and isinstance(finish := self.events[-1], Finish):
            self.finish_event = finish
            return self.events[:-1]
        return list(self.events)

    def _remember(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            self._text_length += len(event.text)
        elif isinstance(event, ReasoningDelta):
            self._reasoning_length += len(event.text)
            if self._reasoning_length > _MAX_REMEMBERED:
                if self._rest_of_reasoning.tell() <= MAX_REASONING:
                    self._rest_of_reasoning.write(event.text)
                return
        is_remembered = self._text_length <= _MAX_REMEMBERED or not self.may_send_text
        if is_remembered or not isinstance(event, _DELTAS):
            self.events.append(event)

    def _pass_or_hold(self, event: Event) -> list[Event]:
        # The order of the cases matters: each relies on those above it.
        match event:
            case Finish():
                self.finish_event = event
                return []
            case Failure():
                # If the client has received no text or call, the held part of this reply is not
                # sent.
                was_sent = self._sent.has_text or self._sent.has_calls
                return [*self._flush(), event] if was_sent else [event]
            case Started() if self._sent.has_started:
                return []
            case TextDelta() if not self.may_send_text:
                return []
            case CallStart() if self._repeated_call is None:
                return [*self._flush(), event]
            case CallEnd() if self._is_waiting and not self._is_repeated(event):
                return [*self._flush(), event]
            case _ if not self._may_be_replaced or self._sent.has_signed_reasoning:
                pass
            case CallRejected() | CallStart():
                self._is_waiting = True
            case Note("not-a-call"):
                # The block's text follows this note.
                self._is_waiting = not self._sent.has_text
            case TextDelta() if self._refusal_detector and not self._is_waiting:
                return self._hold_opening(event, self._refusal_detector)
            case _:
                pass
        if self._is_waiting or self._held:
            self._held.append(event)
            return []
        return [event]

    def _hold_opening(self, event: TextDelta, opening: OpeningDetector) -> list[Event]:
        """Hold text until it is known whether the reply opens with a refusal."""
        self._held.append(event)
        may_refuse = opening.feed(event.text)
        self._is_waiting = may_refuse == "yes"
        return self._flush() if may_refuse == "no" else []

    def _record(self, events: list[Event]) -> list[Event]:
        for event in events:
            self._sent.record(event)
        return events

    def _is_repeated(self, event: CallEnd) -> bool:
        return call_key(event.call.name, event.call.arguments) == self._repeated_call

    def _flush(self) -> list[Event]:
        self._is_waiting, self._refusal_detector = False, None
        held, self._held = self._held, []
        return held
