"""What may leave of a reply while it comes.

Nothing is sent that might have to be taken back: a beginning that may be a refusal waits until that
is certain, and so does a call that was not made. Where a call is required everything waits for it.
"""

from __future__ import annotations

from typing import Protocol

from ..calls.drafts import CallKey, call_key
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

_MOST_WORDS = 65_536
"""How many characters of a reply are remembered, for what is said of it."""
_WORDS = (TextDelta, ReasoningDelta, ArgumentsDelta)


class Source(Protocol):
    """What events come from."""

    @property
    def in_call(self) -> bool:
        """Whether a call has begun that is not over."""
        ...


class SentState:
    """What the client has had of all replies to a request."""

    def __init__(self) -> None:
        self.has_started = self.has_spoken = self.has_called = False
        self.is_sealed = False
        """A thought has left that its maker wants back as it is: no other reply may follow it."""

    def add(self, event: Event) -> None:
        self.has_started = self.has_started or isinstance(event, Started)
        self.has_spoken = self.has_spoken or isinstance(event, TextDelta)
        self.has_called = self.has_called or isinstance(event, CallEnd)
        signed = isinstance(event, ReasoningDelta) and bool(event.signature)
        self.is_sealed = self.is_sealed or signed


class Holdback:
    """Holds back what may have to be taken back, of one reply."""

    def __init__(
        self,
        sent: SentState,
        *,
        is_open: bool = True,
        has_tools: bool = True,
        waits: bool = False,
        is_last: bool = False,
        may_speak: bool = True,
        stuck: CallKey | None = None,
    ) -> None:
        self._sent = sent
        self._is_open = is_open
        """Whether anything leaves before the reply is over."""
        self._waits = waits
        """Whether all waits for a call."""
        self._is_last = is_last
        """Whether no other reply can take the place of this one: then nothing has to wait."""
        self._may_speak = may_speak
        self._stuck = stuck
        """The call that may not be made once more."""
        self._beginning = OpeningDetector() if has_tools and is_open else None
        self.events: list[Event] = []
        """What has come, but for words beyond those that are remembered."""
        self._held: list[Event] = []
        self._words = 0
        self.finish = Finish()
        """How the reply ends."""

    @property
    def reply(self) -> Reply:
        """What it comes to."""
        return fold(self.events)

    def feed(self, events: list[Event], source: Source | None = None) -> list[Event]:
        """The events that may leave now. What comes before a call is no refusal: it does not wait
        for the end of that."""
        if not self._is_open:
            self.events += events
            return [event for event in events if isinstance(event, Failure)]
        free: list[Event] = []
        for event in events:
            self._remember(event)
            is_held = self._waits or self._held or self._beginning or not self._may_speak
            if type(event) is TextDelta and not is_held and self._sent.has_spoken:
                # Words leave as they come, as some have before.
                free.append(event)
            else:
                free += self._noted(self._let(event))
        may_leave = self._held and self._stuck is None and not self._waits
        if may_leave and source is not None and source.in_call:
            free += self._noted(self._released())
        return free

    def rest(self) -> list[Event]:
        """What has not left, but the end."""
        if self._is_open:
            held, self._held = self._held, []
            return held
        rest: list[Event] = []
        for event in self.events:
            if isinstance(event, Finish):
                self.finish = event
            else:
                rest.append(event)
        return rest

    def _remember(self, event: Event) -> None:
        """Keep what happens, but not all the words of a long reply."""
        self._words += len(event.text) if isinstance(event, (TextDelta, ReasoningDelta)) else 0
        is_kept = self._words <= _MOST_WORDS or not self._may_speak
        if is_kept or not isinstance(event, _WORDS):
            self.events.append(event)

    def _let(self, event: Event) -> list[Event]:
        match event:
            case Finish():
                self.finish = event
                return []
            case Failure():
                # Where nothing has left, the client need not know of this reply.
                has_left = self._sent.has_spoken or self._sent.has_called
                return [*self._released(), event] if has_left else [event]
            case Started() if self._sent.has_started:
                return []
            case TextDelta() if not self._may_speak:
                return []
            case CallStart() if self._stuck is None:
                return [*self._released(), event]
            case CallEnd() if self._waits and not self._is_stuck(event):
                return [*self._released(), event]
            case _ if self._is_last or self._sent.is_sealed:
                pass
            case CallRejected() | CallStart():
                self._waits = True
            case Note("truncated") | Note("not-a-call"):
                # The text of it follows.
                self._waits = not self._sent.has_spoken or event.code == "truncated"
            case TextDelta() if self._beginning and not self._waits:
                self._held.append(event)
                may_refuse = self._beginning.feed(event.text)
                self._waits = may_refuse == "yes"
                return self._released() if may_refuse == "no" else []
            case _:
                pass
        if self._waits or self._held:
            self._held.append(event)
            return []
        return [event]

    def _noted(self, events: list[Event]) -> list[Event]:
        for event in events:
            self._sent.add(event)
        return events

    def _is_stuck(self, event: CallEnd) -> bool:
        return call_key(event.call.name, event.call.arguments) == self._stuck

    def _released(self) -> list[Event]:
        self._waits, self._beginning = False, None
        held, self._held = self._held, []
        return held
