"""How one request is served, from the client's request to the events of its reply. Read this first.

    plan        native tools, tools in the prompt, or constrained decoding     plan.py
    prepare     the request as this model and its API take it                  attempt.py, prompt.py
    send        by the caller: nothing here does I/O
    read        bytes to events; calls are found in text and structures        reply_reader.py
    resolve     each call is accepted or rejected                              calls/resolution.py
    hold back   text that may turn out to be a refusal or a bad call waits     holdback.py
    classify    valid calls, an answer, or a fault                             outcome.py
    recover     a fault has a list of steps; each changes the next attempt     recovery.py
    fall back   if an upstream fails, the next one is asked                    here

After each attempt, the first of these that applies decides:

    the model called a tool that was not selected   ask again, with all tools         recovery.py
    the reply is a fault, and a step is left        ask again, with that step         recovery.py
    a required call is missing                      fall back                         _finish
    the reply is a fault                            end with the first reply,
                                                    if it can still be sent           _finish
    the reply is only reasoning                     end with it, also as text         _finish
    there is a reply                                end with it                       _finish
    the upstream failed, but there is a first       end with the first reply,
    reply, or part of one was sent                  or with the failure               _after_failure
    the upstream rejected a field by name           ask again, without the field      recovery.py
    the upstream rejected native tools              ask again, tools in the prompt    recovery.py
    the upstream failed, is busy or too slow        fall back                         run
    the upstream failed otherwise                   raise the failure                 run

The profile's `retries` limits how many steps are taken. If there is no other upstream to fall
back to, the failure is raised. Before the request itself, the model may be asked side questions:
which tools it needs or, if it is small, what to call and with which values. The caller may send
the same bytes again after a connection error, 429 or 5xx; the pipeline does not notice.

The gateway, the agent and the probe all run a pipeline, each with its own way to send:

    async def send(attempt: Attempt) -> None:
        if attempt.is_decided:              # its calls are known: nothing to send
            return
        async for chunk in post(attempt.outgoing.path, attempt.data):
            show(pipeline.receive(pipeline.reader.feed(chunk)))
        show(pipeline.receive(pipeline.reader.finish()))

    pipeline = Pipeline(request, [profile, *fallbacks], is_streaming=True)
    show(await run_pipeline(pipeline, send))             the rest of the reply
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, TypeVar

from msgspec import Struct, structs

from ..calls.resolution import CallKey
from ..errors import UpstreamError
from ..events import Event, Finish, TextDelta, fold, use_reasoning_as_text
from ..notes import NOTES
from ..types import Failure, Note, Reply, Request, ResponseFormat, Usage
from .attempt import FALLBACK, UNSELECTED_TOOL, Attempt, fits_context_window, note_truncated_prompt
from .holdback import MAX_REASONING, Holdback, SentState
from .led import Led
from .outcome import (
    OUTCOMES,
    Outcome,
    OutcomeKind,
    classify_reply,
    find_repeated_call,
    match_format,
)
from .plan import (
    ModelProfile,
    explain_learned_mode,
    involves_tools,
    is_format_checked,
    plan_request,
)
from .recovery import (
    RECOVERY_STEPS,
    Recovery,
    rejects_all_tools,
)
from .rejected_fields import name_rejected_image
from .reply_reader import ReplyReader
from .tool_selection import needs_tool_selection, prepare_tool_selection, select_tools

_Result = TypeVar("_Result")
Attempts = Generator[Attempt, None, _Result]
"""Yields attempts for the caller to send, unless `is_decided`. If one fails, the caller throws
`UpstreamError` into it."""
_FALLBACK_FAILURES = frozenset({"upstream", "timeout", "overloaded", "rate_limit"})
"""Failures after which the next upstream is asked."""
_BUSY_FAILURES = frozenset({"timeout", "overloaded", "rate_limit"})
"""Failures of a side question after which the request itself would fail, too."""
_ALL_TOOLS = "a call to a tool that was not selected: the next attempt offers all tools"
_CALL_OUTCOMES = frozenset[OutcomeKind]({"calls", "repeated-call"})
"""Outcomes of replies that have the call that a request may require."""


class Pipeline:
    """Serves one request, with the first of several models whose upstream does not fail.

    A required call that is not made counts as a failure, too.
    """

    def __init__(
        self, request: Request, profiles: Sequence[ModelProfile], *, is_streaming: bool
    ) -> None:
        self.request = request
        self.is_streaming = is_streaming
        self.usage: Usage | None = None
        """Tokens used by all attempts."""
        self.notes: list[Note] = []
        """Notes about the attempts: why there were several, and what was dropped."""
        self.failures: list[tuple[str, Failure]] = []
        """The upstreams that failed."""
        self.reply = Reply()
        """The last reply of a model."""
        self._reply_events: list[Event] = []
        self.outcome: Outcome | None = None
        """The outcome of `reply`; None if the reply answered a side question or called a tool that
        was not selected."""
        self.attempt: Attempt | None = None
        """The last attempt."""
        self._fallback_notes: list[Note] = []
        self._profiles = profiles
        self._must_call = request.tool_choice.mode == "required"
        # For the current model; set by `_begin` and `_serve`.
        self.profile: ModelProfile
        self.recovery: Recovery
        self._sent: SentState
        self._first_reply: list[Event]
        """The part of the first reply that was not sent: it is used if no retry is better."""
        self._repeated_call: CallKey | None
        # For the current attempt; see `_ask`.
        self.reader: ReplyReader
        self._holdback: Holdback

    # From the first attempt to the end of the reply.

    def run(self) -> Attempts[list[Event]]:
        """Yield the attempts to send; return the rest of the reply: the events still to be sent.

        The last one is a `Finish`, or a `Failure` if the upstream failed after part of the reply
        was sent. Raises `UpstreamError` if no upstream has given a reply that can be used.
        """
        reason = ""
        for profile in self._profiles:
            self._begin(profile)
            try:
                rest = yield from self._serve(profile, reason)
                return [*self._sent.take_unreleased(), *rest]
            except UpstreamError as problem:
                self.failures.append((profile.upstream, problem.failure))
                is_last = profile is self._profiles[-1]
                if is_last or problem.failure.kind not in _FALLBACK_FAILURES:
                    raise
                message = f"{NOTES['fallback']} {profile.upstream}: {problem.failure.message}"
                self._fallback_notes.append(Note("fallback", message, profile.upstream))
            reason = FALLBACK
        raise AssertionError("the last upstream has replied or failed")

    def _begin(self, profile: ModelProfile) -> None:
        self.profile = profile
        self.notes = [*self._fallback_notes]
        self._sent = SentState()
        self._first_reply = []
        self._repeated_call = None
        if profile.max_repeats:
            self._repeated_call = find_repeated_call(
                self.request.messages, profile.max_repeats, profile.polling_tools
            )

    def _serve(self, profile: ModelProfile, reason: str) -> Attempts[list[Event]]:
        """Ask one model until its reply is usable or no recovery step is left.

        `reason` says why this model is asked and not the one before; "" for the first.
        """
        plan = plan_request(self.request, profile)
        if learned := explain_learned_mode(self.request, profile):
            self.notes.append(Note("learned-mode", f"{NOTES['learned-mode']} {learned}."))
        recovery = self.recovery = Recovery(self.request, profile, plan, reason)
        attempt: Attempt | None = None
        if plan.mode == "constrained" and profile.is_small:
            calls, attempt = yield from self._ask_small_model(profile)
            if calls:
                return calls
        if attempt is None:
            recovery.use_request((yield from self._select_tools(profile)))
            attempt = recovery.prepare_next()
        while True:
            rest = yield from self._try(attempt)
            if rest is not None:
                return rest
            attempt = recovery.prepare_next()

    def _try(self, attempt: Attempt) -> Attempts[list[Event] | None]:
        """Send an attempt; return the rest of the reply, or None if the model is asked again."""
        try:
            reply = yield from self._ask(attempt, self._open_holdback(attempt))
        except UpstreamError as problem:
            return self._after_failure(attempt, problem)
        return self._after_reply(attempt, reply)

    def _ask(self, attempt: Attempt, holdback: Holdback) -> Attempts[Reply]:
        """Yield an attempt; return its reply, whose events the caller passes to `receive`."""
        self.attempt = attempt
        self._holdback = holdback
        self.reader = ReplyReader(attempt)
        yield attempt
        reply = holdback.reply
        self.reply, self.outcome = reply, None
        self._reply_events = holdback.events
        self.usage = add_usage(self.usage, reply.usage)
        if note := note_truncated_prompt(attempt.outgoing.body, attempt.data, reply.usage):
            self.notes.append(note)
        return reply

    def _open_holdback(self, attempt: Attempt) -> Holdback:
        has_tools = bool(attempt.offered.allowed)
        outcomes = self.recovery.outcomes
        self._sent.reply_index = len(outcomes)
        # An answer is checked before it is sent if no upstream enforces its format.
        waits_for_format = (
            self.request.response_format is not None and attempt.plan.mode != "native"
        )
        is_waiting = (has_tools and self._must_call) or waits_for_format
        return Holdback(
            self._sent,
            is_streaming=self.is_streaming,
            has_tools=has_tools,
            is_waiting=is_waiting or self.recovery.is_reformatting,
            may_be_replaced=bool(
                outcomes or (attempt.profile.retries and (has_tools or waits_for_format))
            ),
            may_send_text=not outcomes or not self._sent.has_text,
            repeated_call=self._repeated_call,
        )

    def _after_reply(self, attempt: Attempt, reply: Reply) -> list[Event] | None:
        """Return the rest of the reply; None if the model is asked again."""
        outcome = classify_reply(
            reply,
            self.recovery.request,
            attempt.offered,
            self._repeated_call,
            checks_format=self._checked_format is not None,
        )
        self.recovery.has_structured_calls |= self.reader.has_structured_calls
        if self.recovery.plan_with_all_tools(outcome, self._sent):
            self.notes.append(Note("retried", _ALL_TOOLS, UNSELECTED_TOOL))
            return None
        self.outcome = outcome
        note = self.recovery.plan_retry(outcome, reply, attempt, self._sent)
        if note is None:
            return self._finish(outcome, reply, attempt)
        self.notes.append(note)
        is_first_reply = len(self.recovery.outcomes) == 1
        if is_first_reply:
            rest = self._holdback.take_rest()
            self._first_reply = [*rest, self._holdback.finish_event]
        return None

    def _after_failure(self, attempt: Attempt, problem: UpstreamError) -> list[Event] | None:
        """Return the rest of the reply; None if the model is asked again.

        Raises `UpstreamError` if the client has received nothing and there is no reply to send.
        """
        if self._can_use_first_reply or self._sent.has_content:
            self.failures.append((attempt.profile.upstream, problem.failure))
            # The client has received part of a reply, or can have the first one: no fallback.
            return self._end(self._first_reply) if self._can_use_first_reply else [problem.failure]
        if note := self.recovery.plan_without_field(attempt, problem):
            self.notes.append(note)
            return None
        if self.recovery.plan_without_native_tools(attempt, problem):
            message = f"{NOTES['tools-rejected']} {problem.failure.message}"
            self.notes.append(Note("tools-rejected", message))
            return None
        if problem.failure.kind not in _FALLBACK_FAILURES:
            # The rejection of the tools explains more than the failure of the attempt without them.
            problem = self.recovery.tools_error or problem
        failure = name_rejected_image(problem.failure, attempt.request, attempt.profile.model)
        # This frame refers to `problem`: raising it would be a reference cycle with the request.
        raise UpstreamError(failure, problem.headers)

    # What the caller does while an attempt is under way.

    def receive(self, events: list[Event]) -> list[Event]:
        """Take events of the reply from `reader`; return those to send to the client now."""
        return self._sent.release(self._holdback.feed(events, self.reader))

    @property
    def has_sent_content(self) -> bool:
        """True once the client has been sent something of the reply."""
        return self._sent.has_content

    # Before the request itself.

    def _select_tools(self, profile: ModelProfile) -> Attempts[Request]:
        """Have the model select the tools it needs, if there are very many."""
        if not needs_tool_selection(self.request, profile):
            return self.request
        reply = yield from self._ask_side_question(prepare_tool_selection(self.request, profile))
        return select_tools(self.request, reply.text) if reply else self.request

    def _ask_side_question(self, attempt: Attempt) -> Attempts[Reply | None]:
        """Ask a side question, whose reply the client never sees; None if it is rejected."""
        try:
            return (yield from self._ask(attempt, Holdback(self._sent, is_streaming=False)))
        except UpstreamError as problem:
            if problem.failure.kind in _BUSY_FAILURES:
                raise
            return None

    def _ask_small_model(
        self, profile: ModelProfile
    ) -> Attempts[tuple[list[Event], Attempt | None]]:
        """Ask a small model for one decision at a time.

        Returns its calls; or the attempt that asks for an answer in text; or neither if the request
        is to be served like any other.
        """
        if not fits_context_window(self.request, profile.capabilities.context_window):
            # Send it whole, so that the upstream can reject it as too long.
            return [], None
        led = Led(self.request, profile)
        while led.is_asking:
            reply = yield from self._ask_side_question(led.prepare_next())
            if reply is None or not led.hear(reply.text):
                return [], None
        calls = led.calls()
        if not calls:
            return [], None if self._must_call else led.prepare_next()
        if not led.was_asked:
            self.notes.append(Note("no-model-call", NOTES["no-model-call"]))
        self.attempt = led.prepare_next()
        rest = self._end([*calls, Finish("calls")])
        self.reply, self.outcome = fold(rest), Outcome("calls")
        # It is decided: the caller records it, but does not send it.
        yield self.attempt
        return rest, None

    # The end of the reply.

    @property
    def _can_use_first_reply(self) -> bool:
        """True if the first reply can still be sent, and has a call if one is required."""
        is_other_sent = self._sent.has_text and self._sent.text_reply_index != 0
        if not self._first_reply or self._sent.has_calls or is_other_sent:
            return False
        return not self._must_call or self.recovery.outcomes[0].kind in _CALL_OUTCOMES

    def _finish(self, outcome: Outcome, reply: Reply, attempt: Attempt) -> list[Event]:
        """Return the rest of the reply, now that the model is not asked again.

        Raises `UpstreamError` if it lacks a required call.
        """
        if outcome.kind == "wrong-format":
            self.notes.append(Note("wrong-format", NOTES["wrong-format"]))
        if outcome.kind in RECOVERY_STEPS and self._can_use_first_reply:
            return self._end(self._first_reply)
        if self._must_call and outcome.kind not in _CALL_OUTCOMES and attempt.offered.allowed:
            raise _no_call_error(outcome)
        rest = self._holdback.take_rest()
        answered = self._use_reasoning_as_text(reply, attempt)
        if answered is not reply and self._holdback.may_send_text:
            rest.append(TextDelta(answered.text))
        rest = self._unwrap_format(rest)
        if not self._holdback.may_send_text and (text := answered.text.strip()):
            if outcome.kind == "calls":
                self.notes.append(Note("dropped-text", NOTES["dropped-text"]))
            elif outcome.kind not in RECOVERY_STEPS:
                # Otherwise the client would have only the beginning of an earlier reply.
                rest.append(TextDelta(f"\n\n{text}"))
        return self._end([*rest, self._holdback.finish_event])

    def _use_reasoning_as_text(self, reply: Reply, attempt: Attempt) -> Reply:
        """Return the reply, with its reasoning as its text if it has nothing else; a reply that is
        forwarded stays as it is."""
        if self.may_forward(attempt) or len(reply.reasoning) > MAX_REASONING:
            return reply
        answered = use_reasoning_as_text(reply)
        if answered is not reply:
            self.notes.append(answered.notes[-1])
        return answered

    def may_forward(self, attempt: Attempt) -> bool:
        """Return True if the reply can be forwarded: neither the attempt nor the client's request
        involves tools. An attempt that reformats an answer has no tools even if the request has."""
        return attempt.is_forwardable and not involves_tools(self.request)

    @property
    def _checked_format(self) -> ResponseFormat | None:
        """The format that an answer is checked for."""
        request = self.recovery.request
        return request.response_format if is_format_checked(request, self.recovery.plan) else None

    def _unwrap_format(self, events: list[Event]) -> list[Event]:
        """Take an answer out of its code fence if a response format was requested."""
        wanted = self._checked_format
        if wanted is None:
            return events
        text = "".join(one.text for one in events if isinstance(one, TextDelta))
        answer = match_format(text, wanted) if text else None
        if answer is None or answer == text:
            return events
        others = [one for one in events if not isinstance(one, TextDelta)]
        return [*others, TextDelta(answer)]

    def _end(self, events: list[Event]) -> list[Event]:
        """Add the notes and the usage of all attempts to the end of a reply."""
        *rest, finish = events
        assert isinstance(finish, Finish)
        if finish.usage is not self.usage:
            finish = structs.replace(finish, usage=self.usage)
        return [*rest, *self.notes, finish]

    def fold_reply(self, events: list[Event]) -> Reply:
        """Fold the events of the final reply. Usually that is `self.reply`, already folded."""
        return self.reply if events == self._reply_events else fold(events)

    # What the request has shown about the model.

    def find_mode_evidence(self, reply: Reply) -> ModeEvidence | None:
        """Return what the final reply shows about how the model calls tools."""
        if self.profile.mode != "auto" or reply.failure or not self.request.tools:
            return None
        recovery = self.recovery
        problem = recovery.tools_error
        rejects_tools = problem is not None and rejects_all_tools(problem.failure)
        ignores_tools = recovery.has_left_native and bool(reply.calls)
        is_text_call = None
        if recovery.plan.mode == "native" and reply.calls:
            is_text_call = any(call.dialect for call in reply.calls)
        needs_prompt = rejects_tools or ignores_tools
        if not needs_prompt and is_text_call is None:
            return None
        return ModeEvidence(self.profile.upstream, self.profile.model, needs_prompt, is_text_call)


class ModeEvidence(Struct, frozen=True):
    """Evidence from one request about a model whose mode is not configured."""

    upstream: str
    model: str
    needs_prompt: bool
    """The upstream rejected native tools, or the model ignored them, and the same request succeeded
    with the tools in the prompt."""
    is_text_call: bool | None
    """A native model wrote its call into the text; None if it made no call."""


StepRunner = Callable[..., Awaitable[Any]]
"""Calls a function with its arguments elsewhere, such as in a thread."""


async def run_pipeline(
    pipeline: Pipeline,
    send: Callable[[Attempt], Awaitable[None]],
    find_runner: Callable[[], StepRunner | None] = lambda: None,
) -> list[Event]:
    """Run a pipeline; return the rest of the reply.

    `send` sends an attempt, and feeds the bytes of its reply to the pipeline.

    `find_runner` returns a function that runs the pipeline's next step elsewhere, such as in a
    thread; None if the step is fast enough to run here.
    """
    steps = pipeline.run()
    problem: UpstreamError | None = None
    while True:
        try:
            runner = find_runner()
            run = runner(_advance, steps, problem) if runner else None
            result = await run if run else _advance(steps, problem)
        finally:
            # Break the reference cycle: its traceback refers to this frame.
            run = problem = None
        if isinstance(result, list):
            return result
        try:
            await send(result)
        except UpstreamError as error:
            problem = error


def _advance(steps: Attempts[list[Event]], problem: UpstreamError | None) -> Attempt | list[Event]:
    """Return the next attempt, or the rest of the reply."""
    try:
        return steps.throw(problem) if problem else next(steps)
    except StopIteration as end:
        return end.value


def _no_call_error(outcome: Outcome) -> UpstreamError:
    message = "a tool call was required, and the model made no valid one"
    if outcome.kind != "missing-call":
        why = "; ".join(one.problem for one in outcome.rejected) or OUTCOMES[outcome.kind]
        message += f": {why}"
    return UpstreamError(Failure("upstream", message, 502, "no_tool_call"))


def add_usage(one: Usage | None, other: Usage | None) -> Usage | None:
    """Return the sum of two usages."""
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
