"""The attempts that are made for one request: what the client gets of each, and what comes next.

    ladder = Ladder(request, target, streams=True)
    exchange = ladder.exchange()                   ask by that
    ladder.feed(events)                            what may leave of what came
    ladder.end()                                   the rest; None if the model is to be asked again

The first thing that a model is asked may be another: which tools it needs, or, if it is small, what
the arguments of a call are. The client hears nothing of that.
"""

from __future__ import annotations

from typing import Literal

from msgspec import structs

from ..calls.drafts import CallKey
from ..errors import ToolspeakError
from ..events import Event, Finish, TextDelta, fold
from ..notes import NOTES
from ..types import Failure, Message, Note, Reply, Request, Text, ToolChoice, Usage
from .attempt import Attempt
from .context_window import fits_context, note_truncated_prompt
from .corrections import CONTINUE, write_correction
from .holdback import Holdback, SentState, Source
from .led import Led
from .outcome import OUTCOMES, Outcome, OutcomeKind, classify_reply, find_repeated_call
from .plan import ModelProfile, plan_request, plan_with_mode
from .response_format import match_format
from .tool_selection import Selecting

Step = Literal["again", "continue", "constrain", "prompt", "form"]
STEPS: dict[Step, str] = {
    "again": "asked again, with what was wrong; the second time with nothing but what to write",
    "continue": "asked to go on where it stopped",
    "constrain": "held to a JSON schema that only valid calls fit, where the upstream can",
    "prompt": "told of the tools in the prompt, where it was given them by its API",
    "form": "held to the form that was asked for, without its tools",
}
RECOVERY_STEPS: dict[OutcomeKind, tuple[Step, ...]] = {
    "invalid-call": ("again", "constrain", "again"),
    "unknown-tool": ("again", "constrain", "again"),
    "missing-call": ("constrain", "prompt", "again", "again"),
    "false-refusal": ("again", "constrain", "again"),
    "truncated-call": ("continue", "again", "again"),
    "repeated-call": ("again", "again"),
    "unformed-answer": ("form",),
    "empty": ("again", "again"),
}
"""What is done about a reply that will not do: the first of these that can be, then the next."""


_ARE_CALLS = frozenset[OutcomeKind]({"calls", "repeated-call"})


class NoCallMade(ToolspeakError):
    """A call was required, and the model has made none."""

    def __init__(self, outcome: Outcome) -> None:
        why = "; ".join(one.problem for one in outcome.rejected) or OUTCOMES[outcome.kind]
        super().__init__(f"a call was required, and the model has made none: {why}")
        self.failure = Failure("upstream", str(self), 502, "no_tool_call")


class Pipeline:
    """The attempts for one request at one upstream."""

    def __init__(
        self, request: Request, target: ModelProfile, *, streams: bool, usage: Usage | None = None
    ) -> None:
        self._request = request
        self._target = target
        self._streams = streams
        self.plan = plan_request(request, target)
        self._whole_request = request
        """With all tools: the model may have chosen some of them."""
        self._asked = request
        self._is_forming = False
        """Whether the model is held to the form of its answer."""
        self._begun = ""
        """The beginning of a call that the next reply is to go on with."""
        self.outcomes: list[Outcome] = []
        """What the replies so far have come to."""
        self._used: dict[OutcomeKind, int] = {}
        self.usage = usage
        """Of all attempts, and of others before."""
        self._stuck: CallKey | None = None
        if target.max_repeats:
            self._stuck = find_repeated_call(
                request.messages, target.max_repeats, target.polling_tools
            )
        self.reply = Reply()
        """The last one, as far as it was kept."""
        self._folded: list[Event] = []
        """What it was made of."""
        self._first: list[Event] = []
        """What was held of the first reply, which is as good as any if none will do."""
        self._sent = SentState()
        self._speaker: int | None = None
        """Which attempt it was whose words have left first; None if it is the one that runs."""
        self.notes: list[Note] = []
        """Why there were several attempts, and what else there is to be said of them."""
        self._must = request.tool_choice.mode == "required"
        is_led = self.plan.mode == "constrained" and target.is_small
        # What is led sees little of a request. One that is too long for the model shall be refused.
        is_led = is_led and fits_context(request, target.capabilities.context)
        self._led = Led(request, target) if is_led else None
        self._selecting = Selecting(request, target)

    @property
    def reason(self) -> str:
        """Why the model is asked again; "" if that is no fault of its."""
        return self.outcomes[-1].kind if self.outcomes else ""

    def exchange(self) -> Attempt | None:
        """For the next attempt; None if the calls are known without."""
        self._exchange = self._next_exchange()
        has_tools = bool(self._exchange.offered.tools)
        self._may_speak = not self.outcomes or not self._sent.has_spoken
        if self._sent.has_spoken and self._speaker is None:
            self._speaker = len(self.outcomes) - 1
        self._gate = Holdback(
            self._sent,
            is_open=self._streams and not self.is_preparing,
            has_tools=has_tools,
            waits=self._is_forming or (has_tools and (self._must or self._is_formed())),
            is_last=not self.outcomes and not (self._target.retries and has_tools),
            may_speak=self._may_speak,
            stuck=self._stuck,
        )
        return None if self._led and self._led.calls() else self._exchange

    @property
    def last(self) -> Attempt:
        """The one that was made last, whether or not it is asked by."""
        return self._exchange

    @property
    def is_preparing(self) -> bool:
        """Whether the client has nothing to hear of what the model is asked now."""
        return self._led.is_asking if self._led else self._selecting.is_asking

    def _next_exchange(self) -> Attempt:
        if self._led and self._must and not (self._led.is_asking or self._led.calls()):
            # Nothing that it was led to fits: it is left to itself.
            self._led = None
        if self._led:
            return self._led.exchange()
        if self._selecting.is_asking:
            return self._selecting.exchange()
        # What we have said of a reply that would not do repeats what it said, and is no request.
        said = self._whole_request.messages
        return Attempt(self._asked, self._target, self.plan, begun=self._begun, context=said)

    def _is_formed(self) -> bool:
        """Whether an answer has to have a form that the upstream is not told of."""
        return self._request.response_format is not None and self.plan.mode != "native"

    def feed(self, events: list[Event], source: Source | None = None) -> list[Event]:
        """What may leave of what came, and what it comes from, if that is in pieces."""
        return self._gate.feed(events, source)

    # What comes next.

    def end(self) -> list[Event] | None:
        """The end of the reply for the client; None if the model is to be asked again."""
        reply = self.reply = self._gate.reply
        self._folded = self._gate.events
        self.usage = add_usage(self.usage, reply.usage)
        if cut := note_truncated_prompt(
            self._exchange.outgoing.body, self._exchange.data, reply.usage
        ):
            self.notes.append(cut)
        if self.is_preparing:
            self._prepared(reply.text)
            return None
        outcome = classify_reply(reply, self._request, self._exchange.offered, self._stuck)
        if self._has_left_out(outcome):
            # It needs a tool that it has not chosen.
            self._request = self._asked = self._whole_request
            return None
        self.outcomes.append(outcome)
        action = self._next(outcome)
        if action is None:
            return self._last(outcome, reply)
        if len(self.outcomes) == 1:
            self._first = [*self._gate.rest(), self._gate.finish]
        self._prepare(action, outcome, reply)
        return None

    def reply_of(self, events: list[Event]) -> Reply:
        """What these events come to: most often to the last reply, of which that is known."""
        return self.reply if events == self._folded else fold(events)

    def unprepared(self) -> None:
        """The upstream does not take what comes before the request: it is made without."""
        self._led, self._selecting.is_asking = None, False

    def _prepared(self, text: str) -> None:
        """Hear what the model was asked before the request itself."""
        if self._led is None:
            self._request = self._asked = self._selecting.hear(text)
        elif not self._led.hear(text):
            # It is left to itself.
            self._led = None

    def known(self) -> list[Event]:
        """The calls of a model that has made all decisions which they need."""
        if self._led and not self._led.was_asked:
            self.notes.append(Note("no-model-call", NOTES["no-model-call"]))
        return self._with_usage([*(self._led.calls() if self._led else ()), Finish("calls")])

    def give_up(self) -> list[Event] | None:
        """The end of the first reply, where another could not be had; None if there is none, or it
        will not do by any means."""
        return self._with_usage(self._first) if self._first_will_do else None

    @property
    def _first_will_do(self) -> bool:
        """Whether the client can get the first reply, if no other will do either."""
        has_spoken = self._sent.has_spoken and self._speaker != 0
        if not self._first or self._sent.has_called or has_spoken:
            return False
        return not self._must or self.outcomes[0].kind in _ARE_CALLS

    def _has_left_out(self, outcome: Outcome) -> bool:
        """Whether a model has called a tool that is there, but was not among those it chose."""
        chosen, offered = self._request.tools or (), self._whole_request.tools or ()
        if outcome.kind != "unknown-tool" or len(chosen) == len(offered) or self._sent.has_spoken:
            return False
        return any(one.name == tool.name for one in outcome.rejected for tool in offered)

    def _next(self, outcome: Outcome) -> Step | None:
        """What is to be done about a reply; None if nothing is, or nothing is left to be done."""
        is_late = self._sent.is_sealed or len(self.outcomes) > self._target.retries
        if is_late or not self._exchange.offered.tools:
            return None
        actions = RECOVERY_STEPS.get(outcome.kind, ())
        for at in range(self._used.get(outcome.kind, 0), len(actions)):
            if self._can(actions[at], outcome):
                self._used[outcome.kind] = at + 1
                return actions[at]
        return None

    def _can(self, action: Step, outcome: Outcome) -> bool:
        match action:
            case "again":
                return True
            case "continue":
                return self.plan.mode != "native" and bool(outcome.rejected)
            case "constrain":
                can = self._target.capabilities.constrained is True
                return can and self.plan.mode != "constrained"
            case "prompt":
                return self.plan.mode == "native"
            case "form":
                return not self._sent.has_spoken

    def _prepare(self, action: Step, outcome: Outcome, reply: Reply) -> None:
        told = f"{OUTCOMES[outcome.kind]}: the model was {STEPS[action]}"
        self.notes.append(Note("retried", told, outcome.kind))
        self._begun = ""
        if action == "form":
            self._is_forming = True
            self._asked = structs.replace(self._request, tools=None, tool_choice=ToolChoice())
            return
        if action in ("constrain", "prompt"):
            mode = "constrained" if action == "constrain" else "prompt"
            self.plan = plan_with_mode(self._target, mode, OUTCOMES[outcome.kind])
            self._asked = self._request
            return
        if action == "continue":
            self._begun, said = outcome.rejected[-1].raw, CONTINUE
        else:
            again = "again" in RECOVERY_STEPS[outcome.kind][: self._used[outcome.kind] - 1]
            dialect = None if self.plan.mode == "native" else self._exchange.dialect
            offered = self._exchange.offered
            said = write_correction(outcome, offered, dialect, again=again)
        turns = (
            Message("assistant", (Text(reply.text.strip() or "…"),)),
            Message("user", (Text(said),)),
        )
        self._asked = structs.replace(self._request, messages=(*self._request.messages, *turns))

    def _last(self, outcome: Outcome, reply: Reply) -> list[Event]:
        if outcome.kind in RECOVERY_STEPS and self._first_will_do:
            return self._with_usage(self._first)
        if self._must and outcome.kind not in _ARE_CALLS and self._exchange.offered.tools:
            raise NoCallMade(outcome)
        rest = self._in_form(self._gate.rest())
        if not self._may_speak and (text := reply.text.strip()):
            if outcome.kind == "calls":
                self.notes.append(Note("dropped-text", NOTES["dropped-text"]))
            elif outcome.kind not in RECOVERY_STEPS:
                # Without it, the client would be left with the beginning of another reply.
                rest.append(TextDelta(f"\n\n{text}"))
        return self._with_usage([*rest, self._gate.finish])

    def _in_form(self, events: list[Event]) -> list[Event]:
        """An answer out of its code fence, where that is not what was asked for."""
        wanted = self._request.response_format if self._request.tools else None
        if wanted is None:
            return events
        text = "".join(one.text for one in events if isinstance(one, TextDelta))
        form = match_format(text, wanted) if text else None
        if form is None or form == text:
            return events
        others = [one for one in events if not isinstance(one, TextDelta)]
        return [*others, TextDelta(form)]

    def _with_usage(self, events: list[Event]) -> list[Event]:
        """The end of a reply, with what all attempts have used, and why there were several."""
        *held, finish = events
        assert isinstance(finish, Finish)
        if finish.usage is not self.usage:
            finish = structs.replace(finish, usage=self.usage)
        return [*held, *self.notes, finish]


def add_usage(one: Usage | None, other: Usage | None) -> Usage | None:
    """What all attempts have used."""
    if one is None or other is None:
        return one or other
    return Usage(
        input=one.input + other.input,
        output=one.output + other.output,
        cached=one.cached + other.cached,
        cache_written=one.cache_written + other.cache_written,
        reasoning=one.reasoning + other.reasoning,
        extra=other.extra,
    )
