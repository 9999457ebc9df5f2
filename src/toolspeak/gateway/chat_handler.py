"""One chat request: from the client's bytes to the model and back.

`asking.py` asks the model. Here is what the client wants, and how the answer leaves: whole, or as
it comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter, time
from typing import TYPE_CHECKING

from ..calls.drafts import new_call_id
from ..errors import WireError
from ..events import Event
from ..types import Note, Reply, Request
from ..upstream.catalog import ResolvedModel
from ..upstream.errors import UpstreamError
from ..upstream.model_call import ModelCall
from ..upstream.record import RequestRecord
from ..wires import Envelope, StreamEncoder, Wire, gemini, get_wire
from ..wires.framing import encode_json
from ..wires.routes import Route
from .conversation_store import omits_tools, remember_tools, restore_tools
from .http import Incoming, Sender
from .stream_writer import PINGS, Outflow

if TYPE_CHECKING:
    from .app import Gateway


class ChatHandler:
    """Serves one request."""

    def __init__(
        self,
        gateway: Gateway,
        incoming: Incoming,
        sender: Sender,
        record: RequestRecord,
        route: Route,
        client: str,
    ) -> None:
        self._gateway = gateway
        self._incoming = incoming
        self._sender = sender
        self._route = route
        self._client = client
        self._wire: Wire = get_wire(route.wire)
        self._began = perf_counter()
        self._record = record

    async def serve(self) -> None:
        """Answer the request."""
        request = await self._decoded()
        served = self._gateway.catalog.resolve(request.model)
        kept, memory = self._gateway.responses, self._gateway.memory
        if kept.is_continuation(request):
            request = await kept.prepend_history(request, self._client, served.endpoint.wire)
        if omits_tools(request):
            request = await restore_tools(request, memory, self._client, served.name)
        self._request, self._model = request, served.name
        self._record.set_request(request, served)
        self._envelope = Envelope(request, new_call_id().removeprefix("call_"), int(time()))
        if not self._wire.has_input(request):
            await self._nothing_asked(request)
            return
        if not request.stream:
            self._asking = self._asking_of(served, None)
            try:
                await self._ended(await self._asking.ask(), None)
            except UpstreamError:
                self._say()
                raise
            return
        outflow = self._outflow()
        self._asking = self._asking_of(served, outflow)
        try:
            await self._ended(await self._asking.ask(), outflow)
        except UpstreamError as problem:
            if problem.failure.kind not in self._wire.streamed_failures:
                raise
            self._record.failure = problem.failure
            await outflow.send([problem.failure])
            await outflow.end()
        finally:
            outflow.stop()
            # It knows us by what it says: both would wait for the collector of garbage.
            del self._asking

    async def _nothing_asked(self, request: Request) -> None:
        """A client that asks nothing errs, or means to load the model."""
        loads = self._wire.model_load_reply
        if loads is None:
            raise WireError("there is nothing to answer", f"$.{self._wire.messages_field}")
        body = self._wire.encode_reply(Reply(stop_reason="stop"), self._envelope) | loads
        kind = self._wire.content_type if request.stream else "application/json"
        await self._sender.whole(200, encode_json(body) + b"\n", kind)

    async def _decoded(self) -> Request:
        body = await self._incoming.value(self._gateway.config.limits)
        request = self._wire.decode_request(
            {**self._route.implied_fields, **body},
            model=self._route.model,
            stream=self._route.stream,
        )
        self._gateway.access.check_tool_count(request)
        return request

    def _asking_of(self, served: ResolvedModel, outflow: Outflow | None) -> ModelCall:
        return ModelCall(
            self._gateway.services,
            self._request,
            served,
            outflow,
            headers=self._incoming.headers,
            keeps_words=self._gateway.responses.should_store(self._request),
            may_pass=not self._route.is_array,
            record=self._record,
        )

    def _outflow(self) -> Outflow:
        array = self._route.is_array
        encoder: StreamEncoder = (
            gemini.GeminiStreamEncoder(self._envelope, array=True)
            if array
            else self._wire.stream_encoder(self._envelope)
        )
        content_type = "application/json" if array else self._wire.content_type
        ticker = self._gateway.ticker
        outflow = Outflow(self._sender, encoder, content_type, self._say, ticker)
        outflow.keep_alive(PINGS.get(self._wire.name, b""), self._gateway.ping_after)
        return outflow

    # Answering.

    async def _ended(self, rest: list[Event], outflow: Outflow | None) -> None:
        """Send the rest of the reply."""
        asking = self._asking
        reply = asking.reply(rest)
        self._record.set_reply(reply, asking.notes)
        # Before the last byte leaves: what the client says next may need it.
        memory, kept = self._gateway.memory, self._gateway.responses
        await remember_tools(self._request, reply, memory, self._client, self._model)
        if kept.should_store(self._request):
            await kept.store(reply, self._envelope, self._client)
        if outflow:
            await outflow.send(rest, asking.passed)
            await outflow.end()
        elif asking.passed is not None:
            self._say()
            await self._sender.whole(200, asking.passed)
        else:
            self._say((*reply.notes, *self._wire.find_losses(reply)))
            body = self._wire.encode_reply(reply, self._envelope)
            await self._sender.whole(200, encode_json(body))
        if asking.may_learn:
            await asking.learn(reply)

    def _say(self, notes: Iterable[Note] = ()) -> None:
        """What the headers tell of how the request is served."""
        headers, asking = self._sender.headers, self._asking
        overhead = perf_counter() - self._began - asking.waiting.seconds
        self._record.overhead = overhead
        headers["x-toolspeak-retries"] = str(len(self._record.retries))
        headers["x-toolspeak-overhead-ms"] = f"{overhead * 1000:.2f}"
        if self._record.mode:
            headers["x-toolspeak-mode"] = self._record.mode
            told = (*asking.notes, *notes)
            codes = dict.fromkeys([note.code for note in told]) if told else ()
            headers["x-toolspeak-notes"] = ",".join(codes)
