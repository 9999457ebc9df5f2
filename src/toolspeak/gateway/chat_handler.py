"""One chat request: from the client's bytes to the model and back.

    decode -> check -> resolve the model -> restore history and tools -> call the model -> respond
    -> learn

`upstream/model_call.py` calls the model, with all attempts and fallbacks. A reply is sent whole,
or as a stream, which `StreamWriter` writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from time import perf_counter, time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from msgspec import structs

from .._util import encode_json, random_id
from ..engine import ModelProfile
from ..errors import UpstreamError, WireError
from ..events import ArgumentsDelta, Event, ReasoningDelta, TextDelta
from ..types import Failure, Note, Reply, Request
from ..upstream.catalog import ResolvedModel
from ..upstream.http_pool import PATH_CHARACTERS
from ..upstream.model_call import ModelCall
from ..upstream.record import RequestRecord
from ..upstream.timers import Alarm, Ticker
from ..upstream.worker_thread import LARGE, WorkerThread
from ..wires import Envelope, StreamEncoder, Wire, gemini, get_wire
from ..wires.request_checks import check_tool_choice, check_tools
from ..wires.routes import Route
from .conversation_store import WIRE as RESPONSES
from .conversation_store import name_calls, stores_response
from .http import HttpRequest, HttpResponse
from .request_limits import check_schemas, read_json

if TYPE_CHECKING:
    from .app import Gateway


class ChatHandler:
    """Serves one chat request."""

    def __init__(
        self,
        gateway: Gateway,
        http_request: HttpRequest,
        http_response: HttpResponse,
        record: RequestRecord,
        route: Route,
        client_key: str,
    ) -> None:
        self._gateway = gateway
        self._http_request = http_request
        self._http_response = http_response
        self._record = record
        self._route = route
        self._client_key = client_key
        self._wire: Wire = get_wire(route.wire)
        self._began = perf_counter()
        self._has_messages = False

    async def serve(self) -> None:
        """Respond to the request; an exception is reported to the client by `app.py`."""
        request = await self._decode_request()
        model = self._gateway.catalog.resolve(request.model)
        if model.is_substitute:
            request = _note_substitute(request, model)
        may_forward_id = model.endpoint.wire == RESPONSES and not self._gateway.config.server.keys
        request = await self._gateway.conversations.restore(
            request, self._client_key, model.name, may_forward_id=may_forward_id
        )
        check_tool_choice(request, f"$.{self._wire.tool_choice_field}")
        self._request, self._model_name = request, model.name
        self._record.set_request(request, model)
        self._envelope = Envelope(request, random_id(), int(time()))
        if not self._wire.has_input(request):
            await self._respond_to_empty_request(request)
        elif request.stream:
            await self._serve_stream(model)
        else:
            await self._serve_whole(model)

    # The request.

    async def _decode_request(self) -> Request:
        gateway, route, http_request = self._gateway, self._route, self._http_request
        body = await read_json(http_request, gateway.config.limits, gateway.worker)
        body = {**route.implied_fields, **body}
        self._has_messages = body.get(self._wire.messages_field) is not None
        return await gateway.worker.run_if(http_request.body_size > LARGE, self._decode, body)

    def _decode(self, body: dict[str, Any]) -> Request:
        route = self._route
        request = self._wire.decode_request(body, model=route.model, stream=route.stream)
        check_schemas(request)
        check_tools(request, body)
        return request

    async def _respond_to_empty_request(self, request: Request) -> None:
        """Respond to a request without messages: with some APIs, it only loads the model."""
        loads = self._wire.model_load_reply
        if loads is None:
            field = self._wire.messages_field
            problem = "has no message to reply to" if self._has_messages else "is missing"
            raise WireError(f"`{field}` {problem}; send at least one message", f"$.{field}")
        body = self._wire.encode_reply(Reply(stop_reason="stop"), self._envelope) | loads
        content_type = self._wire.content_type if request.stream else "application/json"
        await self._http_response.send_whole(200, encode_json(body) + b"\n", content_type)

    # The model.

    async def _serve_whole(self, model: ResolvedModel) -> None:
        self._call = self._new_call(model, None)
        try:
            await self._finish(await self._call.run(), None)
        except UpstreamError:
            self._set_headers()
            raise

    async def _serve_stream(self, model: ResolvedModel) -> None:
        stream = self._open_stream()
        self._call = self._new_call(model, stream)
        try:
            await self._finish(await self._call.run(), stream)
        except UpstreamError as problem:
            if problem.failure.kind not in self._wire.streamed_failures:
                raise
            self._record.failure = problem.failure
            await stream.send([problem.failure])
            await stream.end()
        finally:
            stream.stop()
            # Break the reference cycle so that memory is freed at once.
            del self._call

    def _new_call(self, model: ResolvedModel, stream: StreamWriter | None) -> ModelCall:
        return ModelCall(
            self._gateway.services,
            self._request,
            model,
            stream,
            headers=self._http_request.headers,
            keeps_deltas=stores_response(self._request),
            may_forward=not self._route.is_array,
            record=self._record,
            size=self._http_request.body_size,
        )

    def _open_stream(self) -> StreamWriter:
        is_array = self._route.is_array
        encoder: StreamEncoder = (
            gemini.GeminiStreamEncoder(self._envelope, array=True)
            if is_array
            else self._wire.stream_encoder(self._envelope)
        )
        content_type = "application/json" if is_array else self._wire.content_type
        ticker = self._gateway.ticker
        stream = StreamWriter(
            self._http_response,
            encoder,
            content_type,
            self._set_headers,
            ticker,
            self._gateway.worker,
        )
        stream.keep_alive(PINGS.get(self._wire.name, b""), self._gateway.ping_after)
        return stream

    # The response.

    async def _finish(self, rest: list[Event], stream: StreamWriter | None) -> None:
        """Send the rest of the reply, and remember what later requests need."""
        call = self._call
        worker = self._gateway.worker
        reply, names = await worker.run_if(call.is_large, self._fold, rest)
        self._record.set_reply(reply, call.notes)
        # Before the last byte is sent: the client's next request may need it.
        await self._gateway.conversations.remember(
            reply, self._envelope, self._client_key, self._model_name, names
        )
        if stream:
            await stream.send(rest, call.forwarded)
            await stream.end()
        elif call.forwarded is not None:
            self._set_headers()
            await self._http_response.send_whole(200, call.forwarded)
        else:
            self._set_headers((*reply.notes, *self._wire.find_losses(reply)))
            body = await worker.run_if(call.is_large, self._encode_reply, reply)
            await self._http_response.send_whole(200, body)
        await call.learn(reply)

    def _fold(self, rest: list[Event]) -> tuple[Reply, list[str]]:
        """Return the whole reply, and the names of its calls."""
        reply = self._call.fold(rest)
        return reply, name_calls(self._request, reply)

    def _encode_reply(self, reply: Reply) -> bytes:
        return encode_json(self._wire.encode_reply(reply, self._envelope))

    def _set_headers(self, notes: Iterable[Note] = ()) -> None:
        """Add headers that describe how the request was served."""
        headers, call, record = self._http_response.headers, self._call, self._record
        overhead = perf_counter() - self._began - call.waiting.seconds
        record.overhead = overhead
        headers["x-toolspeak-retries"] = str(len(record.retries))
        headers["x-toolspeak-overhead-ms"] = f"{overhead * 1000:.2f}"
        if record.mode:
            headers["x-toolspeak-mode"] = record.mode
            headers["x-toolspeak-model"] = encode_model_name(call.profile)
            all_notes = (*call.notes, *notes)
            codes = dict.fromkeys([note.code for note in all_notes]) if all_notes else ()
            headers["x-toolspeak-notes"] = ",".join(codes)


def _note_substitute(request: Request, model: ResolvedModel) -> Request:
    profile = model.profile
    message = f"the model {request.model!r} is unknown; the default model was asked instead: "
    note = Note("model-substituted", f"{message}{profile.upstream}/{profile.model}", "$.model")
    return structs.replace(request, notes=(*request.notes, note))


def encode_model_name(profile: ModelProfile) -> str:
    """Return the full name of a model for a header."""
    return quote(f"{profile.upstream}/{profile.model}", safe=PATH_CHARACTERS)


_COMMENT = b": keep-alive\n\n"
PINGS = {
    "openai_chat": _COMMENT,
    "openai_responses": _COMMENT,
    "anthropic": b'event: ping\ndata: {"type": "ping"}\n\n',
}
"""The ping of each API that has one."""


class StreamWriter:
    """Encodes events and sends them as the body of a response.

    The response does not begin before the reply has content: until then, a failure can still have
    its own status, and another upstream can be asked. A client that waits long gets pings, if its
    API has any; from then on, a failure is part of the stream.
    """

    def __init__(
        self,
        response: HttpResponse,
        encoder: StreamEncoder,
        content_type: str,
        set_headers: Callable[[], None],
        ticker: Ticker,
        worker: WorkerThread,
    ) -> None:
        self._response = response
        self._encoder = encoder
        self._content_type = content_type
        self._set_headers = set_headers
        """Sets the headers that describe the reply, when the response begins."""
        self._sent_at = perf_counter()
        self._ticker = ticker
        self._worker = worker
        self._alarm: Alarm | None = None
        self._pinging: asyncio.Task[None] | None = None
        response.encode_failure = encoder.feed

    def keep_alive(self, ping: bytes, interval: float) -> None:
        """Send a ping whenever nothing was sent for this time."""
        if ping:
            # Most replies come sooner, and need no task.
            self._alarm = Alarm(
                lambda: self._start_pinging(ping, interval), self._sent_at + interval
            )
            self._ticker.set(self._alarm)

    def stop(self) -> None:
        """Send no more pings."""
        if self._alarm:
            self._ticker.unset(self._alarm)
            # Break the reference cycle so that memory is freed at once.
            self._alarm = None
        if self._pinging:
            self._pinging.cancel()
            self._pinging = None

    async def send(
        self, events: list[Event], forwarded: bytes | None = None, now: float | None = None
    ) -> None:
        """Send events. If `forwarded` is given, send these bytes and encode only a failure."""
        is_large = sum(map(_text_size, events)) > LARGE
        data = await self._worker.run_if(is_large, self._encode, events, forwarded)
        if not self._response.has_begun:
            await self._begin()
        if data:
            self._sent_at = now = now or perf_counter()
            await self._response.send_chunk(data, now)

    def _encode(self, events: list[Event], forwarded: bytes | None) -> bytes:
        if forwarded is None:
            return b"".join(map(self._encoder.feed, events))
        data = forwarded
        # A failure continues the stream, so the encoder must see everything before it.
        for event in events:
            encoded = self._encoder.feed(event)
            data += encoded if isinstance(event, Failure) else b""
        return data

    async def end(self) -> None:
        """End the response."""
        self.stop()
        await self._response.end()

    async def _begin(self) -> None:
        self._set_headers()
        self._response.headers["cache-control"] = "no-cache"
        await self._response.begin(200, self._content_type)

    def _start_pinging(self, ping: bytes, interval: float) -> None:
        self._pinging = self._ticker.loop.create_task(self._send_pings(ping, interval))
        # The task that reads the reply is told about a disconnected client, too.
        self._pinging.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _send_pings(self, ping: bytes, interval: float) -> None:
        while True:
            left = self._sent_at + interval - perf_counter()
            if left <= 0:
                if not self._response.has_begun:
                    await self._begin()
                self._sent_at = perf_counter()
                await self._response.send_chunk(ping, self._sent_at)
            else:
                await asyncio.sleep(left)


def _text_size(event: Event) -> int:
    """Return the characters of an event that can have many."""
    if isinstance(event, TextDelta | ReasoningDelta):
        return len(event.text)
    return len(event.json) if isinstance(event, ArgumentsDelta) else 0
