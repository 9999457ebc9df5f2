"""Asks a model until there is a reply that will do: in other ways, and others in its place.

    asking = Asking(services, request, catalog.resolve(request.model), outlet)
    rest = await asking.ask()               what has not gone to the outlet yet
    await asking.learn(asking.reply(rest))

What to ask and what the answer means is the bridge's to know. Here is whom to ask, and how often.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from msgspec import Struct, structs

from ..engine import Attempt, ModelProfile, ReplyReader, plan_request
from ..engine.pipeline import NoCallMade, Pipeline
from ..engine.plan import involves_tools
from ..engine.tool_rejection import rejects_all_tools, rejects_tools
from ..errors import WireError
from ..events import ArgumentsDelta, Event, ReasoningDelta, Started, TextDelta, fold
from ..types import Failure, Note, Reply, Request
from .catalog import Endpoint, ResolvedModel
from .client import UpstreamClient
from .errors import UpstreamError
from .memory import Memory
from .record import PREPARING, AttemptRecord, RequestRecord
from .response import UpstreamResponse
from .timing import HeldBack, Stopwatch

_MOVABLE = frozenset({"upstream", "timeout", "overloaded", "rate_limit"})
"""Failures after which another upstream may do better."""
_BUSY = frozenset({"timeout", "overloaded", "rate_limit"})
"""Failures after which it is of no use to ask the same upstream for anything else."""
_WORDS = frozenset({TextDelta, ReasoningDelta, ArgumentsDelta})
"""What a stream has most of; it is not kept unless somebody asks for that."""


class ModelServices(Struct, frozen=True):
    """What is there for all requests."""

    upstreams: UpstreamClient
    memory: Memory


class Outlet(Protocol):
    """Where a reply goes as it comes."""

    has_spoken: bool
    """Something of the reply has left."""

    async def send(
        self, events: list[Event], passed: bytes | None = None, now: float | None = None
    ) -> None:
        """Take what happens; `passed`: as it came, where it may go on like that; `now`: when it
        did, if that is known."""
        ...


class ModelCall:
    """One request to a model. Without an outlet, the reply is asked for as a whole."""

    def __init__(
        self,
        services: ModelServices,
        request: Request,
        served: ResolvedModel,
        outlet: Outlet | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        keeps_words: bool = True,
        may_pass: bool = False,
        record: RequestRecord | None = None,
    ) -> None:
        self.request = request
        self._services = services
        self._served = served
        self._outlet = outlet
        self._headers = headers
        """Those of a client, which upstreams of its own API may have to hear."""
        self._keeps_words = keeps_words
        self._may_pass = may_pass
        """Whether a reply may leave as it came."""
        self.record = record or RequestRecord()
        """What is kept of the asking."""
        self._why = ""
        """Why the model is asked once more."""
        self.waiting = Stopwatch()
        """For the time that goes into waiting for upstreams, until the client hears something."""
        self.sent_notes: tuple[Note, ...] = ()
        """What was lost on the way to the model."""
        self._target = served.profile
        self._refused: UpstreamError | None = None
        """What the upstream said when it would not take tools."""
        self._ladder: Pipeline | None = None
        """The attempts at the upstream that was asked last."""
        self._kept: list[Event] = []
        """What has left."""
        self._unsent: list[Event] = []
        """What may leave, once the model has said something."""
        self.passed: bytes | None = None
        """What may leave as it came; None if that has to be said in other words."""

    @property
    def notes(self) -> tuple[Note, ...]:
        """What there is to be said of the asking, beside what the reply says itself."""
        return (*self.sent_notes, *(self._ladder.notes if self._ladder else ()))

    def reply(self, rest: list[Event]) -> Reply:
        """All that was said, with this at its end."""
        said = rest
        if self._outlet:
            self._keep(rest)
            said = self._kept
        return self._ladder.reply_of(said) if self._ladder else fold(said)

    # Whom to ask, and in which way.

    async def ask(self) -> list[Event]:
        """What has not left yet of the reply. The model's upstream is asked, and if it fails, the
        others that may stand in for it."""
        served = self._served
        endpoints = (served.endpoint, *served.fallbacks)
        for index, endpoint in enumerate(endpoints):
            target = served.profile if not index else _moved(served.profile, endpoint)
            try:
                rest = await self._ask_one(endpoint, target)
                return [*self._unsent, *rest]
            except UpstreamError as problem:
                self.record.add_failure(endpoint.name, problem.failure)
                if problem.failure.kind not in _MOVABLE or endpoint is endpoints[-1]:
                    raise
                self._retry("fallback")
        raise AssertionError("the last of them has answered or failed")

    async def _ask_one(self, endpoint: Endpoint, target: ModelProfile) -> list[Event]:
        """Ask one upstream, in another way if it does not understand, or does not obey."""
        if target.mode == "auto":
            target = await self._with_verdict(target)
        self._target = target
        before = self._ladder.usage if self._ladder else None
        streams = self._outlet is not None
        ladder = self._ladder = Pipeline(self.request, target, streams=streams, usage=before)
        self._unsent = []
        self._refused = None
        while True:
            exchange = ladder.exchange()
            self.record.mode = ladder.plan.mode
            if exchange is None:
                return self._known(ladder, endpoint)
            self.sent_notes = exchange.outgoing.notes
            why, self._why = PREPARING if ladder.is_preparing else self._why, ""
            question = self.record.start_attempt(exchange, endpoint, why)
            outcomes = len(ladder.outcomes)
            try:
                rest = await self._asked(question, exchange, endpoint, ladder)
            except UpstreamError as problem:
                question.set_failure(problem.failure)
                if ladder.is_preparing and problem.failure.kind not in _BUSY:
                    ladder.unprepared()
                    continue
                rest = ladder.give_up()
                if rest is None:
                    self._in_other_words(exchange, problem, ladder)
            else:
                if not question.failure:
                    outcome = ladder.reason if len(ladder.outcomes) > outcomes else ""
                    question.set_reply(ladder.reply, outcome)
                if rest is None and ladder.reason:
                    self._retry(ladder.reason)
            if rest is not None:
                return rest

    def _in_other_words(self, exchange: Attempt, problem: UpstreamError, ladder: Pipeline) -> None:
        """Tell the model of its tools in the prompt, once, if its upstream does not take them."""
        refused, target = self._refused, self._target
        if refused or target.mode != "auto" or not _is_refusal(exchange, problem.failure):
            is_busy = problem.failure.kind in _MOVABLE
            raise problem if is_busy else refused or problem from None
        self._retry("tools refused")
        self._refused = problem
        ladder.plan = plan_request(self.request, structs.replace(target, learned_mode="prompt"))

    async def _with_verdict(self, target: ModelProfile) -> ModelProfile:
        learned = await self._services.memory.get_learned_mode(target.upstream, target.model)
        return structs.replace(target, learned_mode=learned) if learned else target

    def _known(self, ladder: Pipeline, endpoint: Endpoint) -> list[Event]:
        """The calls of a model that need not be asked for them."""
        known = ladder.known()
        self.record.add_decided_calls(ladder.last, endpoint, fold(known))
        return known

    # One reply.

    async def _asked(
        self,
        question: AttemptRecord,
        exchange: Attempt,
        endpoint: Endpoint,
        ladder: Pipeline,
    ) -> list[Event] | None:
        """What has not left yet of the reply; None if the model is to be asked again."""
        same = self.request.wire == endpoint.wire
        with self.waiting:
            response = await self._services.upstreams.send(
                endpoint,
                exchange.outgoing.path,
                exchange.data,
                self._headers if same else None,
                self._again,
                partial(_is_refusal, exchange),
                question.headers,
            )
        self.record.start_response(question, response, is_stream=self._outlet is not None)
        with response:
            if response.status >= 300:
                raise await response.read_error()
            try:
                if self._outlet:
                    return await self._stream(exchange, ladder, endpoint, response, self._outlet)
                return await self._whole(exchange, ladder, response)
            except NoCallMade as problem:
                raise UpstreamError(problem.failure) from None

    async def _whole(
        self, exchange: Attempt, ladder: Pipeline, response: UpstreamResponse
    ) -> list[Event] | None:
        with self.waiting:
            body = await response.read_body()
        answer = exchange.reader()
        events, value = at_once(answer, response, body)
        if failures := ladder.feed(events):
            raise response.error_for(_failure_in(failures))
        rest = ladder.end()
        self.passed = None
        if value is not None and self._may_pass and _is_utf_8(body):
            passes = self._passes(exchange) or self._is_unchanged(answer, ladder, rest, value)
            self.passed = body if passes else None
        return rest

    def _is_unchanged(
        self, answer: ReplyReader, ladder: Pipeline, rest: list[Event] | None, value: Any
    ) -> bool:
        """Whether a reply comes to just what it says, and says it as the client is told."""
        wire, reply = ladder.last.wire, ladder.reply
        if wire.name != self.request.wire or rest != answer.decoded:
            return False
        # What was repaired in reading it is told by a note.
        return not reply.notes and wire.can_forward(value, reply)

    def _passes(self, exchange: Attempt) -> bool:
        """Whether the reply can leave as it comes."""
        return self._may_pass and not involves_tools(self.request) and exchange.is_transparent

    async def _stream(
        self,
        exchange: Attempt,
        ladder: Pipeline,
        endpoint: Endpoint,
        response: UpstreamResponse,
        outlet: Outlet,
    ) -> list[Event] | None:
        answer = exchange.reader()
        passes = self._passes(exchange)
        held = HeldBack(answer, self.record)
        while True:
            batch, is_over = await self._batch(answer, response, outlet)
            fresh = ladder.feed(batch, answer)
            if held.since or not fresh:
                held.look(is_free=bool(fresh))
            self._unsent = self._unsent + fresh if self._unsent else fresh
            speaks = outlet.has_spoken or any(map(_says, self._unsent))
            if fresh and isinstance(failure := fresh[-1], Failure):
                if not speaks:
                    raise response.error_for(failure)
                self.record.add_failure(endpoint.name, failure)
                rest = ladder.give_up()
                if rest is None:
                    self._unsent[-1] = response.mask_failure(failure)
                    rest = []
                else:
                    self._unsent.pop()
                break
            if is_over:
                rest = ladder.end()
                held.look(is_free=rest is not None)
                break
            if speaks:
                events, self._unsent = self._unsent, []
                self._keep(events)
                as_it_came = answer.take_unchanged() if passes and answer.frames else None
                await outlet.send(events, as_it_came, response.received_at)
        self.passed = answer.take_unchanged() if passes and answer.frames else None
        return rest

    async def _batch(
        self, answer: ReplyReader, response: UpstreamResponse, outlet: Outlet
    ) -> tuple[list[Event], bool]:
        """What the next piece of a reply says, and whether it is the last."""
        if not response.is_stream:
            with self.waiting:
                body = await response.read_body()
            return at_once(answer, response, body)[0], True
        try:
            if outlet.has_spoken:
                # From the first word on, nobody asks how long the upstream took.
                data = await response.read_chunk()
            else:
                with self.waiting:
                    data = await response.read_chunk()
        except UpstreamError as problem:
            # What is complete cannot break off.
            return answer.finish() if answer.is_complete else answer.fail(problem.failure), True
        if not data:
            return answer.finish(), True
        before = answer.frames
        events = answer.feed(data)
        if answer.frames > before:
            response.mark_progress(is_complete=answer.is_complete)
        return events, False

    def _keep(self, events: list[Event]) -> None:
        """Keep what leaves, as far as somebody may ask for it."""
        if self._keeps_words:
            self._kept += events
        elif len(events) != 1 or type(events[0]) not in _WORDS:
            self._kept += [one for one in events if type(one) not in _WORDS]

    # What is learned from it.

    @property
    def may_learn(self) -> bool:
        """Whether the reply can tell anything that is not known of the model."""
        is_open = self._target.mode == "auto" and self.record.mode == "native"
        return is_open or self._refused is not None

    async def learn(self, reply: Reply) -> None:
        """A model that takes no tools, or whose calls keep standing in its text, is asked for them
        there."""
        memory, upstream, model = self._services.memory, self._target.upstream, self._target.model
        refused = self._refused
        lacks = refused and self.request.tools and rejects_all_tools(refused.failure)
        if lacks and not (reply.failure or await memory.has_called_natively(upstream, model)):
            await memory.set_learned_mode(upstream, model, "prompt")
        if not reply.calls:
            return
        if self._target.mode == "auto" and self.record.mode == "native":
            in_text = any(call.raw for call in reply.calls)
            seen = await memory.add_call_observation(upstream, model, in_text)
            if seen >= 3:
                await memory.set_learned_mode(upstream, model, "prompt")

    def _again(self) -> None:
        self.record.attempts[-1].retries += 1
        self.record.add_retry("upstream")

    def _retry(self, reason: str) -> None:
        self._why = reason
        self.record.add_retry(reason)


def at_once(
    answer: ReplyReader, response: UpstreamResponse, body: bytes
) -> tuple[list[Event], Any]:
    """What a reply says that is read whole, and the value that it is; None if it is a stream."""
    if response.is_html:
        raise response.html_error()
    try:
        value = answer.parse_body(body)
    except WireError as problem:
        events = answer.feed(body) + answer.finish()
        if answer.frames:
            return events, None
        raise response.unreadable_error(problem) from None
    return answer.read_whole(value), value


def _is_utf_8(body: bytes) -> bool:
    """Whether a JSON object is written as all clients read it."""
    return body[:1] == b"{" and body.find(b"\0", 0, 4) < 0


def _is_refusal(exchange: Attempt, failure: Failure) -> bool:
    """Whether an upstream says that it takes no tools; with a 500, some do."""
    gives = exchange.plan.mode == "native" and involves_tools(exchange.request)
    return gives and rejects_tools(failure)


def _failure_in(events: list[Event]) -> Failure:
    return next(event for event in events if isinstance(event, Failure))


def _says(event: Event) -> bool:
    """Whether the model has said something, and not only begun to."""
    return not isinstance(event, (Started, Note, Failure)) and getattr(event, "text", " ") != ""


def _moved(target: ModelProfile, endpoint: Endpoint) -> ModelProfile:
    """The same model at another upstream."""
    return structs.replace(
        target,
        upstream=endpoint.name,
        model=endpoint.settings.model or target.model,
        wire=endpoint.wire,
        quirks=endpoint.quirks,
        capabilities=structs.replace(
            target.capabilities,
            native_tools=endpoint.native_tools,
            constrained=endpoint.constrained,
        ),
    )
