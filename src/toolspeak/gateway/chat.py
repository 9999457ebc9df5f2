"""One chat request: from the client's bytes to the model and back.

What to ask and what the answer means is the bridge's to know. Here is whom to ask, how often, and
how the answer leaves: whole, or as it comes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from time import perf_counter, time
from typing import TYPE_CHECKING

from msgspec import structs

from ..bridge import Answer, Exchange, Target, plan_for
from ..bridge.ladder import Held, NoCall, is_about_tools, next_plan
from ..calls import new_id
from ..errors import WireError
from ..events import Event, fold
from ..jsonish import depth_of
from ..types import Failure, Note, Plan, Reply, Request
from ..wires import Encoder, Envelope, Wire, gemini, wire_of
from ..wires.framing import decode_json, encode_json
from ..wires.routes import Route
from .catalog import Endpoint, Served, UnknownModel
from .http import Incoming, Refused, Sender
from .kept import WIRE as RESPONSES
from .sticky import with_tools
from .upstream import Response, UpstreamFailed

if TYPE_CHECKING:
    from .app import Gateway

_PING_AFTER = 15.0
_SHOWN = 1000
_PINGS = {
    "openai_chat": b": keep-alive\n\n",
    "openai_responses": b": keep-alive\n\n",
    "anthropic": b'event: ping\ndata: {"type": "ping"}\n\n',
}
"""What may be sent to a client that waits; nothing where it could not be told from the reply."""
_PAGES = ("text/html", "application/xhtml+xml")
_WHOLE = ("application/json", *_PAGES)
"""What is no stream, even where one was asked for."""


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
        self._waited = 0.0
        """Time that went into waiting for upstreams."""
        self._retries = 0

    async def serve(self) -> None:
        """Answer the request; whatever goes wrong is said in the client's own API."""
        try:
            await self._serve()
        except (Refused, UnknownModel, UpstreamFailed, WireError) as problem:
            headers = problem.headers if isinstance(problem, Refused) else {}
            self._sender.headers.update(headers)
            await self._fail(problem.failure)

    async def _serve(self) -> None:
        request = await self._request()
        served = self._gateway.catalog.resolve(request.model)
        request = await self._gateway.kept.continued(request, self._client, served.endpoint.wire)
        request = await with_tools(request, self._gateway.memory, self._client, served.name)
        reply = await self._ask(request, served)
        await self._remember(request, served, reply)

    async def _request(self) -> Request:
        limits = self._gateway.config.limits
        data = await self._incoming.body(limits.body)
        body = decode_json(data)
        if depth_of(body) > limits.depth:
            raise WireError(f"nested more than {limits.depth} deep")
        request = self._wire.decode_request(
            body, model=self._route.model, stream=self._route.stream
        )
        self._gateway.guard.check_size(request)
        return request

    # Asking.

    async def _ask(self, request: Request, served: Served) -> Reply:
        """Ask the model's upstream, and if it fails, the others that may stand in for it."""
        endpoints = (served.endpoint, *served.fallbacks)
        for index, endpoint in enumerate(endpoints):
            target = served.target if not index else _moved(served.target, endpoint)
            try:
                return await self._ask_one(request, endpoint, target)
            except UpstreamFailed as problem:
                kind = problem.failure.kind
                self._count("upstream_failures", upstream=endpoint.name, kind=kind)
                may_move = kind in ("upstream", "timeout", "overloaded", "rate_limit")
                if self._sender.has_begun or not may_move or endpoint is endpoints[-1]:
                    raise
                self._retry("fallback")
        raise AssertionError("there is always one endpoint")

    async def _ask_one(self, request: Request, endpoint: Endpoint, target: Target) -> Reply:
        """Ask one upstream, in another way if it does not understand, or does not obey."""
        target = await self._with_verdict(target)
        plan = plan_for(request, target)
        refused: Failure | None = None
        for attempt in range(target.retries + 2):
            exchange = Exchange(request, target, plan)
            try:
                reply = await self._exchange(exchange, endpoint)
            except NoCall as problem:
                following = next_plan(target, plan, attempt)
                if following is None:
                    raise UpstreamFailed(problem.failure) from None
                self._retry("no call")
                plan = following
            except UpstreamFailed as problem:
                learns = plan.mode == "native" and target.tools == "auto" and request.tools
                if not learns or refused or not is_about_tools(problem.failure):
                    raise UpstreamFailed(refused) if refused else problem from None
                self._retry("tools refused")
                refused = problem.failure
                plan = plan_for(request, structs.replace(target, learned="prompt"))
            else:
                if refused:
                    await self._gateway.memory.judge(target.upstream, target.model, "prompt")
                await self._learn(exchange, reply)
                return reply
        raise UpstreamFailed(Failure("upstream", "the model did not do as it was told", 502))

    async def _with_verdict(self, target: Target) -> Target:
        if target.tools != "auto":
            return target
        learned = await self._gateway.memory.verdict(target.upstream, target.model)
        return structs.replace(target, learned=learned) if learned else target

    async def _exchange(self, exchange: Exchange, endpoint: Endpoint) -> Reply:
        same = self._route.wire == endpoint.wire
        headers = self._incoming.headers if same else None
        began = perf_counter()
        async with self._gateway.upstreams.send(endpoint, exchange.outgoing, headers) as response:
            self._waited += perf_counter() - began
            if response.status >= 400:
                raise UpstreamFailed(await _failure(exchange.wire, response))
            if exchange.request.stream:
                return await self._stream(exchange, response)
            return await self._whole(exchange, response)

    async def _at_once(self, answer: Answer, response: Response) -> Iterable[Event]:
        """What a reply says that is read whole, be it one value or a stream."""
        began = perf_counter()
        data = await response.body()
        self._waited += perf_counter() - began
        if response.content_type in _PAGES:
            raise UpstreamFailed(_page(response))
        try:
            value = decode_json(data)
        except WireError:
            return (*answer.feed(data), *answer.finish())
        return answer.whole(value)

    async def _batches(
        self, answer: Answer, response: Response
    ) -> AsyncIterator[Iterable[Event] | None]:
        """What a reply says as it comes; None for each while of silence."""
        if response.content_type in _WHOLE:
            yield await self._at_once(answer, response)
            return
        while True:
            began = perf_counter()
            data = await response.more(_PING_AFTER)
            self._waited += perf_counter() - began
            if data:
                yield answer.feed(data)
            elif data is None:
                yield None
            else:
                yield answer.finish()
                return

    # Answering.

    async def _whole(self, exchange: Exchange, response: Response) -> Reply:
        events = Held(exchange).feed(await self._at_once(exchange.answer(), response))
        reply = fold(events)
        if reply.failure:
            raise UpstreamFailed(reply.failure)
        envelope = self._envelope(exchange)
        body = encode_json(self._wire.encode_reply(reply, envelope))
        notes = (*exchange.outgoing.notes, *reply.notes, *self._wire.notes_on(reply))
        self._say(exchange.plan, notes)
        await self._sender.whole(200, body)
        return structs.replace(reply, id=_shown_id(reply, envelope))

    async def _stream(self, exchange: Exchange, response: Response) -> Reply:
        envelope = self._envelope(exchange)
        encoder = self._encoder(envelope)
        held = Held(exchange)
        answer = exchange.answer()
        events: list[Event] = []
        try:
            async for batch in self._batches(answer, response):
                if batch is None:
                    await self._send_bytes(exchange, _PINGS.get(self._wire.name, b""))
                    continue
                fresh = held.feed(batch)
                events += fresh
                await self._send_events(exchange, encoder, fresh)
        except UpstreamFailed as problem:
            if not self._sender.has_begun:
                raise
            fresh = list(answer.fail(problem.failure))
            events += fresh
            await self._send_events(exchange, encoder, fresh)
        await self._sender.end()
        reply = fold(events)
        return structs.replace(reply, id=_shown_id(reply, envelope))

    async def _send_events(
        self, exchange: Exchange, encoder: Encoder, events: Iterable[Event]
    ) -> None:
        written: list[bytes] = []
        for event in events:
            if isinstance(event, Failure) and not self._sender.has_begun:
                raise UpstreamFailed(event)
            written.append(encoder.feed(event))
        await self._send_bytes(exchange, b"".join(written))

    async def _send_bytes(self, exchange: Exchange, data: bytes) -> None:
        if not data:
            return
        if not self._sender.has_begun:
            self._say(exchange.plan, exchange.outgoing.notes)
            array = self._route.array
            await self._sender.begin(200, "application/json" if array else self._wire.content_type)
        await self._sender.more(data)

    def _encoder(self, envelope: Envelope) -> Encoder:
        if self._route.array:
            return gemini.Encoder(envelope, array=True)
        return self._wire.encoder(envelope)

    def _envelope(self, exchange: Exchange) -> Envelope:
        return Envelope(exchange.request, new_id().removeprefix("call_"), int(time()))

    def _say(self, plan: Plan, notes: Iterable[Note]) -> None:
        """What the headers tell of how the request was served."""
        codes = dict.fromkeys(note.code for note in notes)
        for code in codes:
            self._count("notes", code=code)
        overhead = (perf_counter() - self._began - self._waited) * 1000
        headers = self._sender.headers
        headers["x-toolspeak-mode"] = plan.mode
        headers["x-toolspeak-retries"] = str(self._retries)
        headers["x-toolspeak-overhead-ms"] = f"{overhead:.2f}"
        if codes:
            headers["x-toolspeak-notes"] = ",".join(codes)

    async def _fail(self, failure: Failure) -> None:
        if self._sender.has_begun:
            await self._sender.end()
            return
        body = encode_json(self._wire.encode_failure(failure))
        await self._sender.whole(failure.status, body)

    # Remembering.

    async def _remember(self, request: Request, served: Served, reply: Reply) -> None:
        memory = self._gateway.memory
        if reply.calls and request.tools:
            ids = [call.id for call in reply.calls]
            await memory.remember_tools(self._client, served.name, ids, request.tools)
        await self._gateway.kept.keep(request, reply, self._client)
        if reply.usage:
            self._count("tokens", reply.usage.input, kind="input")
            self._count("tokens", reply.usage.output, kind="output")

    async def _learn(self, exchange: Exchange, reply: Reply) -> None:
        """A model whose calls keep standing in its text is asked for them there."""
        target = exchange.target
        if not reply.calls:
            return
        in_text = any(call.raw for call in reply.calls) and exchange.plan.mode == "native"
        self._count("calls", len(reply.calls), stood="text" if in_text else exchange.plan.mode)
        if target.tools == "auto" and exchange.plan.mode == "native":
            memory = self._gateway.memory
            seen = await memory.saw_text_call(target.upstream, target.model, in_text)
            if seen >= 3:
                await memory.judge(target.upstream, target.model, "prompt")

    def _retry(self, reason: str) -> None:
        self._retries += 1
        self._count("retries", reason=reason)

    def _count(self, name: str, amount: float = 1, **labels: str) -> None:
        self._gateway.metrics.count(f"toolspeak_{name}_total", amount, **labels)


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


async def _failure(wire: Wire, response: Response) -> Failure:
    """What an upstream's error says."""
    data = await response.body()
    if response.content_type in _PAGES:
        return structs.replace(_page(response), status=response.status)
    try:
        value = decode_json(data)
    except WireError:
        value = data.decode("utf-8", "replace")[:_SHOWN]
    return wire.decode_failure(response.status, value)


def _page(response: Response) -> Failure:
    message = "the upstream sent a web page in place of a reply; is its base URL right?"
    return Failure("upstream", message, 502)


def _shown_id(reply: Reply, envelope: Envelope) -> str:
    """What the client knows a response by."""
    is_known = reply.id and (reply.wire == RESPONSES or reply.id.startswith("resp_"))
    return reply.id if is_known else f"resp_{envelope.id}"
