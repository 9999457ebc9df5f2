"""One chat request: from the client's bytes to the model and back.

What to ask and what the answer means is the bridge's to know. Here is whom to ask, how often, and
how the answer leaves: whole, or as it comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from time import perf_counter, time
from typing import TYPE_CHECKING

from msgspec import structs

from ..bridge import Answer, Exchange, Target, plan_for
from ..bridge.ladder import Ladder, NoCall
from ..bridge.objections import is_about_all_tools, is_about_tools
from ..bridge.plan import involves_tools
from ..calls import new_id
from ..errors import WireError
from ..events import ArgumentsDelta, Event, ReasoningDelta, Started, TextDelta, fold
from ..types import Failure, Note, Reply, Request
from ..wires import Encoder, Envelope, Wire, gemini, wire_of
from ..wires.framing import decode_json, encode_json
from ..wires.routes import Route
from .catalog import Endpoint, Served
from .http import Incoming, Sender
from .outflow import PINGS, Outflow
from .sticky import remember_tools, with_tools
from .upstream import Response, UpstreamFailed

if TYPE_CHECKING:
    from .app import Gateway

_MOVABLE = frozenset({"upstream", "timeout", "overloaded", "rate_limit"})
"""Failures after which another upstream may do better."""
_BUSY = frozenset({"timeout", "overloaded", "rate_limit"})
"""Failures after which it is of no use to ask the same upstream for anything else."""
_WORDS = frozenset({TextDelta, ReasoningDelta, ArgumentsDelta})
"""What a stream has most of; it is not kept unless the client asks for that."""


class Chat:
    """Serves one request."""

    def __init__(
        self, gateway: Gateway, incoming: Incoming, sender: Sender, route: Route, client: str
    ) -> None:
        self._gateway = gateway
        self._incoming = incoming
        self._sender = sender
        self._route = route
        self._client = client
        self._wire: Wire = wire_of(route.wire)
        self._began = perf_counter()
        self._waiting = _Stopwatch()
        """For the time that goes into waiting for upstreams."""
        self._retries = 0
        self._mode = ""
        """How the model is given tools."""
        self._sent_notes: tuple[Note, ...] = ()
        """What was lost on the way to the model."""
        self._ladder: Ladder | None = None
        """The attempts at the upstream that was asked last."""
        self._kept: list[Event] = []
        """What has left."""
        self._unsent: list[Event] = []
        """What may leave, once the model has said something."""
        self._passed: bytes | None = None
        """What the client gets as it came; None if it gets that in other words."""

    async def serve(self) -> None:
        """Answer the request."""
        request = await self._decoded()
        served = self._gateway.catalog.resolve(request.model)
        request = await self._gateway.kept.continued(request, self._client, served.endpoint.wire)
        request = await with_tools(request, self._gateway.memory, self._client, served.name)
        self._request, self._model = request, served.name
        self._envelope = Envelope(request, new_id().removeprefix("call_"), int(time()))
        if not self._wire.asks(request):
            await self._nothing_asked(request)
            return
        if not request.stream:
            try:
                await self._ask(request, served, None)
            except UpstreamFailed:
                self._say()
                raise
            return
        outflow = self._outflow()
        try:
            await self._ask(request, served, outflow)
        except UpstreamFailed as problem:
            if problem.failure.kind not in self._wire.streamed_failures:
                raise
            await outflow.send([problem.failure])
            await outflow.end()
        finally:
            outflow.stop()

    async def _nothing_asked(self, request: Request) -> None:
        """A client that asks nothing errs, or means to load the model."""
        loads = self._wire.loads_by
        if loads is None:
            raise WireError("there is nothing to answer", f"$.{self._wire.conversation}")
        body = self._wire.encode_reply(Reply(stop_reason="stop"), self._envelope) | loads
        kind = self._wire.content_type if request.stream else "application/json"
        await self._sender.whole(200, encode_json(body) + b"\n", kind)

    async def _decoded(self) -> Request:
        body = await self._incoming.value(self._gateway.config.limits)
        request = self._wire.decode_request(
            {**self._route.implied, **body}, model=self._route.model, stream=self._route.stream
        )
        self._gateway.guard.check_size(request)
        return request

    def _outflow(self) -> Outflow:
        array = self._route.array
        encoder: Encoder = (
            gemini.Encoder(self._envelope, array=True)
            if array
            else self._wire.encoder(self._envelope)
        )
        content_type = "application/json" if array else self._wire.content_type
        ticker = self._gateway.ticker
        outflow = Outflow(self._sender, encoder, content_type, self._say, ticker)
        outflow.keep_alive(PINGS.get(self._wire.name, b""), self._gateway.ping_after)
        return outflow

    # Asking.

    async def _ask(self, request: Request, served: Served, outflow: Outflow | None) -> None:
        """Ask the model's upstream, and if it fails, the others that may stand in for it."""
        endpoints = (served.endpoint, *served.fallbacks)
        for index, endpoint in enumerate(endpoints):
            target = served.target if not index else _moved(served.target, endpoint)
            try:
                await self._ask_one(request, endpoint, target, outflow)
                break
            except UpstreamFailed as problem:
                self._count_failure(problem.failure, endpoint)
                if problem.failure.kind not in _MOVABLE or endpoint is endpoints[-1]:
                    raise
                self._retry("fallback")

    async def _ask_one(
        self, request: Request, endpoint: Endpoint, target: Target, outflow: Outflow | None
    ) -> None:
        """Ask one upstream, in another way if it does not understand, or does not obey."""
        target = await self._with_verdict(target)
        before = self._ladder.usage if self._ladder else None
        streams = outflow is not None
        ladder = self._ladder = Ladder(request, target, streams=streams, usage=before)
        self._unsent = []
        refused: UpstreamFailed | None = None
        rest: list[Event] | None = None
        while rest is None:
            exchange = ladder.exchange()
            self._mode = ladder.plan.mode
            if exchange is None:
                rest = ladder.known()
                break
            self._sent_notes = exchange.outgoing.notes
            try:
                rest = await self._asked(exchange, ladder, endpoint, outflow)
            except UpstreamFailed as problem:
                if ladder.is_preparing and problem.failure.kind not in _BUSY:
                    ladder.unprepared()
                    continue
                is_told = target.tools == "auto" and _is_refusal(exchange, problem.failure)
                rest = ladder.give_up()
                if rest is None and (refused or not is_told):
                    is_busy = problem.failure.kind in _MOVABLE
                    raise problem if is_busy else refused or problem from None
                if rest is None:
                    self._retry("tools refused")
                    refused = problem
                    ladder.plan = plan_for(request, structs.replace(target, learned="prompt"))
            else:
                if rest is None and ladder.reason:
                    self._retry(ladder.reason)
        reply = await self._ended(rest, outflow)
        await self._learn(target, reply, refused and refused.failure)

    async def _with_verdict(self, target: Target) -> Target:
        if target.tools != "auto":
            return target
        learned = await self._gateway.memory.verdict(target.upstream, target.model)
        return structs.replace(target, learned=learned) if learned else target

    async def _asked(
        self, exchange: Exchange, ladder: Ladder, endpoint: Endpoint, outflow: Outflow | None
    ) -> list[Event] | None:
        """What has not left yet of the reply; None if the model is to be asked again."""
        same = self._route.wire == endpoint.wire
        headers = self._incoming.headers if same else None
        with self._waiting:
            response = await self._gateway.upstreams.send(
                endpoint,
                exchange.outgoing,
                headers,
                lambda: self._retry("upstream"),
                partial(_is_refusal, exchange),
            )
        with response:
            if response.status >= 300:
                raise await response.problem()
            try:
                if outflow:
                    return await self._stream(exchange, ladder, endpoint, response, outflow)
                return await self._whole(exchange, ladder, response)
            except NoCall as problem:
                raise UpstreamFailed(problem.failure) from None

    async def _at_once(self, answer: Answer, response: Response) -> tuple[list[Event], bytes]:
        """What a reply says that is read whole, be it one value or a stream; and the value."""
        with self._waiting:
            data = await response.body()
        if response.is_page:
            raise response.page()
        try:
            value = decode_json(data)
        except WireError as problem:
            events = answer.feed(data) + answer.finish()
            if answer.frames:
                return events, b""
            raise response.unreadable(problem) from None
        return answer.whole(value), data

    async def _batch(self, answer: Answer, response: Response) -> tuple[list[Event], bool]:
        """What the next piece of a reply says, and whether it is the last."""
        if response.is_page or response.content_type == "application/json":
            return (await self._at_once(answer, response))[0], True
        try:
            with self._waiting:
                data = await response.more()
        except UpstreamFailed as problem:
            # What is complete cannot break off.
            return answer.finish() if answer.is_complete else answer.fail(problem.failure), True
        if not data:
            return answer.finish(), True
        before = answer.frames
        events = answer.feed(data)
        if answer.frames > before:
            response.heard(is_complete=answer.is_complete)
        return events, False

    # Answering.

    async def _whole(
        self, exchange: Exchange, ladder: Ladder, response: Response
    ) -> list[Event] | None:
        events, body = await self._at_once(exchange.answer(), response)
        if failures := ladder.feed(events):
            raise response.failed(_failure_in(failures))
        self._passed = body if body and self._passes(exchange) else None
        return ladder.end()

    def _passes(self, exchange: Exchange) -> bool:
        """Whether the reply can leave as it comes."""
        is_same = exchange.is_transparent and not involves_tools(self._request)
        return is_same and not self._route.array

    async def _stream(
        self,
        exchange: Exchange,
        ladder: Ladder,
        endpoint: Endpoint,
        response: Response,
        outflow: Outflow,
    ) -> list[Event] | None:
        answer = exchange.answer()
        passes = self._passes(exchange)
        while True:
            batch, is_over = await self._batch(answer, response)
            fresh = ladder.feed(batch, in_call=answer.in_call)
            self._unsent = self._unsent + fresh if self._unsent else fresh
            speaks = outflow.has_spoken or any(map(_says, self._unsent))
            if fresh and isinstance(failure := fresh[-1], Failure):
                if not speaks:
                    raise response.failed(failure)
                self._count_failure(failure, endpoint)
                rest = ladder.give_up()
                if rest is None:
                    self._unsent[-1] = response.discreet(failure)
                    rest = []
                else:
                    self._unsent.pop()
                break
            if is_over:
                rest = ladder.end()
                break
            if speaks:
                events, self._unsent = self._unsent, []
                self._keep(events)
                as_it_came = answer.take_passed() if passes and answer.frames else None
                await outflow.send(events, as_it_came)
        self._passed = answer.take_passed() if passes and answer.frames else None
        return rest

    def _keep(self, events: list[Event]) -> None:
        """Keep what leaves, as far as somebody may ask for it."""
        keeps_words = self._gateway.kept.keeps(self._request)
        self._kept += events if keeps_words else [one for one in events if type(one) not in _WORDS]

    async def _ended(self, rest: list[Event], outflow: Outflow | None) -> Reply:
        """Send the rest of the reply, which is returned whole."""
        rest = [*self._unsent, *rest]
        if outflow:
            self._keep(rest)
        reply = fold(self._kept if outflow else rest)
        await self._remember(reply)
        if outflow:
            await outflow.send(rest, self._passed)
            await outflow.end()
        elif self._passed is not None:
            self._say()
            await self._sender.whole(200, self._passed)
        else:
            self._say((*reply.notes, *self._wire.notes_on(reply)))
            body = self._wire.encode_reply(reply, self._envelope)
            await self._sender.whole(200, encode_json(body))
        return reply

    def _say(self, notes: Iterable[Note] = ()) -> None:
        """What the headers tell of how the request is served."""
        headers = self._sender.headers
        overhead = (perf_counter() - self._began - self._waiting.seconds) * 1000
        headers["x-toolspeak-retries"] = str(self._retries)
        headers["x-toolspeak-overhead-ms"] = f"{overhead:.2f}"
        if self._mode:
            headers["x-toolspeak-mode"] = self._mode
            asking = self._ladder.notes if self._ladder else ()
            notes = (*self._sent_notes, *asking, *notes)
            codes = dict.fromkeys(note.code for note in notes)
            headers["x-toolspeak-notes"] = ",".join(codes)

    # Remembering.

    async def _remember(self, reply: Reply) -> None:
        """Before the last byte leaves: what the client says next may need it."""
        memory = self._gateway.memory
        await remember_tools(self._request, reply, memory, self._client, self._model)
        await self._gateway.kept.keep(reply, self._envelope, self._client)
        for code in dict.fromkeys(note.code for note in (*self._sent_notes, *reply.notes)):
            self._count("notes", code=code)
        if reply.usage:
            self._count("tokens", reply.usage.input, kind="input")
            self._count("tokens", reply.usage.output, kind="output")

    async def _learn(self, target: Target, reply: Reply, refused: Failure | None) -> None:
        """A model that takes no tools, or whose calls keep standing in its text, is asked for them
        there."""
        memory = self._gateway.memory
        lacks = refused and self._request.tools and is_about_all_tools(refused)
        if lacks and not (reply.failure or await memory.has_called(target.upstream, target.model)):
            await memory.judge(target.upstream, target.model, "prompt")
        if not reply.calls:
            return
        in_text = any(call.raw for call in reply.calls) and self._mode == "native"
        self._count("calls", len(reply.calls), stood="text" if in_text else self._mode)
        if target.tools == "auto" and self._mode == "native":
            seen = await memory.saw_text_call(target.upstream, target.model, in_text)
            if seen >= 3:
                await memory.judge(target.upstream, target.model, "prompt")

    def _count_failure(self, failure: Failure, endpoint: Endpoint) -> None:
        self._count("upstream_failures", upstream=endpoint.name, kind=failure.kind)

    def _retry(self, reason: str) -> None:
        self._retries += 1
        self._count("retries", reason=reason)

    def _count(self, name: str, amount: float = 1, **labels: str) -> None:
        self._gateway.metrics.count(f"toolspeak_{name}_total", amount, **labels)


class _Stopwatch:
    """Adds up the time that is spent inside of it."""

    def __init__(self) -> None:
        self._passed = 0.0
        self._began = 0.0

    @property
    def seconds(self) -> float:
        """The time so far: headers may leave in the midst of a wait."""
        return self._passed + (perf_counter() - self._began if self._began else 0.0)

    def __enter__(self) -> None:
        self._began = perf_counter()

    def __exit__(self, *problem: object) -> None:
        self._passed += perf_counter() - self._began
        self._began = 0.0


def _is_refusal(exchange: Exchange, failure: Failure) -> bool:
    """Whether an upstream says that it takes no tools; with a 500, some do."""
    gives = exchange.plan.mode == "native" and involves_tools(exchange.request)
    return gives and is_about_tools(failure)


def _failure_in(events: list[Event]) -> Failure:
    return next(event for event in events if isinstance(event, Failure))


def _says(event: Event) -> bool:
    """Whether the model has said something, and not only begun to."""
    return not isinstance(event, (Started, Note, Failure)) and getattr(event, "text", " ") != ""


def _moved(target: Target, endpoint: Endpoint) -> Target:
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
