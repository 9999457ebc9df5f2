"""Requests as spans of OpenTelemetry, by its conventions for generative AI.

    POST /v1/chat/completions        what a client has asked: `http.*` and `toolspeak.*`
        chat qwen3:8b                every question to an upstream: `gen_ai.*`, and why it was asked
        chat qwen3:8b

A client's `traceparent` is the parent of all that, and each upstream gets one of its own. Usage and
the like stand only with the questions: who adds up would count it twice.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from time import monotonic
from typing import Any, assert_never
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import (
    Span,
    SpanKind,
    StatusCode,
    Tracer,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .. import __version__
from .._util import encode_json
from ..config.settings import Config, configured_secrets
from ..engine import Attempt
from ..types import (
    Document,
    Failure,
    Image,
    Message,
    Note,
    Other,
    Part,
    Reasoning,
    Reply,
    Request,
    Text,
    ToolCall,
    ToolResult,
)
from ..upstream.catalog import Endpoint
from ..upstream.record import AttemptRecord, RequestRecord
from .inspector.masking import Masker

log = logging.getLogger("toolspeak.gateway")
Value = str | bool | int | float | list[str]
_PROPAGATOR = TraceContextTextMapPropagator()
_SHUTDOWN_GRACE = 5.0
"""How many seconds the last spans have to leave when the gateway is stopped."""
_UNTRACED_PATHS = frozenset({"/", "/health", "/ready", "/metrics"})
"""Machines ask for these all day."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_MODEL_SEGMENT = re.compile(r"(?<=/models/)[^:]+")
_RESPONSE_SEGMENT = re.compile(r"(?<=/responses/)[\w.\-]+")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PROVIDER_NAMES = {"gemini": "gcp.gemini", "mistral": "mistral_ai", "xai": "x_ai"}
"""What the conventions call a provider, where that is not our name for it."""
_PROVIDER_OF_WIRE = {"openai_chat": "openai", "openai_responses": "openai", "gemini": "gcp.gemini"}
"""For upstreams of which nobody has said who they are."""
_SAMPLING_OPTIONS = (
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "presence_penalty",
    "frequency_penalty",
)
_INTEGER_OPTIONS = ("top_k", "seed")


class RequestTracer:
    """Makes spans of requests, and sends them where the configuration says."""

    def __init__(self, config: Config, exporter: SpanExporter | None = None) -> None:
        self._exporter = exporter or OTLPSpanExporter(_traces_url(config.telemetry.otlp_endpoint))
        self._provider = TracerProvider(resource=_build_resource(), shutdown_on_exit=False)
        # It sends them from a thread of its own, and drops what is too much.
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("toolspeak", __version__)
        self._secrets = frozenset(configured_secrets(config))
        # To find the secrets in all that was said may take longer than others like to wait.
        self._content_thread = ThreadPoolExecutor(1) if config.telemetry.include_content else None
        self._is_open = True

    def start_request(self, record: RequestRecord, headers: Mapping[str, str]) -> None:
        """A request has come in."""
        if record.path not in _UNTRACED_PATHS:
            record.spans = _RequestSpans(
                self._tracer, record, _PROPAGATOR.extract(headers, Context())
            )

    def end_request(self, record: RequestRecord) -> None:
        """It is over."""
        if not isinstance(record.spans, _RequestSpans) or not self._is_open:
            return
        if self._content_thread and record.is_chat:
            secrets = {one for q in record.attempts for one in q.server.secrets()}
            content = _ContentEncoder(self._secrets | secrets)
            self._content_thread.submit(self._end_spans, record, record.spans, content)
        else:
            self._end_spans(record, record.spans, None)

    def _end_spans(
        self, record: RequestRecord, spans: _RequestSpans, content: _ContentEncoder | None
    ) -> None:
        try:
            spans.end(record, content)
        except Exception:
            # The client has its answer, and shall not notice.
            log.exception("%s could not be traced", record.id)

    async def close(self) -> None:
        """Send what is left, if that does not take too long."""
        if not self._is_open:
            return
        self._is_open = False
        closing = Thread(target=self._flush_spans, daemon=True)
        closing.start()
        deadline = monotonic() + _SHUTDOWN_GRACE
        while closing.is_alive() and monotonic() < deadline:
            await asyncio.sleep(0.01)
        if closing.is_alive():
            log.warning("the last traces could not be sent")
            self._exporter.shutdown()

    def _flush_spans(self) -> None:
        if self._content_thread:
            self._content_thread.shutdown()
        self._provider.shutdown()


class _RequestSpans:
    """The spans of one request."""

    def __init__(self, tracer: Tracer, record: RequestRecord, parent: Context) -> None:
        self._tracer = tracer
        self._offset = record.received_at - record.started
        self._request_span = tracer.start_span(
            _http_method(record),
            parent,
            SpanKind.SERVER,
            _replace_surrogates(_request_start_attributes(record)),
            (),
            _to_nanoseconds(record.received_at),
        )
        self._context = set_span_in_context(self._request_span, parent)
        self._attempts: list[tuple[AttemptRecord, Attempt, Span]] = []
        context = self._request_span.get_span_context()
        self.trace_id = format_trace_id(context.trace_id) if context.is_valid else ""

    def start_attempt(
        self, record: AttemptRecord, attempt: Attempt, endpoint: Endpoint
    ) -> Mapping[str, str]:
        """Start the span of an attempt; return the headers that continue the trace."""
        attributes = _attempt_start_attributes(record, attempt.request, endpoint)
        attributes = _replace_surrogates(attributes)
        name = f"chat {attributes['gen_ai.request.model']}"
        at = self._unix_nanoseconds(record.started)
        span = self._tracer.start_span(name, self._context, SpanKind.CLIENT, attributes, (), at)
        self._attempts.append((record, attempt, span))
        headers: dict[str, str] = {}
        _PROPAGATOR.inject(headers, set_span_in_context(span, self._context))
        return headers

    def end(self, record: RequestRecord, content: _ContentEncoder | None) -> None:
        """All that is known by now."""
        for question, exchange, span in self._attempts:
            if span.is_recording():
                self._end_attempt(question, exchange, span, content)
            # One that a client did not wait for has no end of its own.
            span.end(self._unix_nanoseconds(question.ended or record.ended))
        if self._request_span.is_recording():
            self._end_request(record, content)
        self._request_span.end(self._unix_nanoseconds(record.ended))

    def _end_attempt(
        self,
        question: AttemptRecord,
        exchange: Attempt,
        span: Span,
        content: _ContentEncoder | None,
    ) -> None:
        span.set_attributes(_replace_surrogates(_attempt_attributes(question)))
        at = self._unix_nanoseconds(question.ended or question.started)
        if reply := question.reply:
            for call in reply.calls:
                span.add_event(
                    "toolspeak.call", _replace_surrogates(_call_attributes(call, content)), at
                )
            for rejection in reply.rejected:
                span.add_event("toolspeak.rejected", {"toolspeak.note.code": rejection.code}, at)
            for note in reply.notes:
                span.add_event(
                    "toolspeak.note", _replace_surrogates(_note_attributes(note, content)), at
                )
        if content:
            span.set_attributes(
                _replace_surrogates(content.encode_messages(exchange.request, question.reply))
            )
        if question.failure:
            _set_error(span, question.failure, content)

    def _end_request(self, record: RequestRecord, content: _ContentEncoder | None) -> None:
        span = self._request_span
        if record.is_chat or record.status < 400:
            # Any other path is one that a client has made up.
            route = _route_template(record.path)
            span.update_name(f"{_http_method(record)} {route}")
            span.set_attribute("http.route", route)
        span.set_attributes(_replace_surrogates(_request_attributes(record)))
        told = [note for q, *_ in self._attempts if q.reply for note in q.reply.notes]
        for note in record.notes:
            if note not in told:
                span.add_event(
                    "toolspeak.note", _replace_surrogates(_note_attributes(note, content))
                )
        if record.failure and max(record.status, record.failure.status) >= 500:
            _set_error(span, record.failure, content)

    def _unix_nanoseconds(self, moment: float) -> int:
        """A moment of this process in nanoseconds since 1970."""
        return _to_nanoseconds(self._offset + moment)


# What spans say.


def _request_start_attributes(record: RequestRecord) -> dict[str, Value]:
    method = _http_method(record)
    return {
        "http.request.method": method if method in _METHODS else "_OTHER",
        "url.path": record.path,
        "toolspeak.request_id": record.id,
        "toolspeak.wire": record.wire,
    }


def _request_attributes(record: RequestRecord) -> dict[str, Value]:
    said: dict[str, Value] = {"http.response.status_code": record.status}
    if record.upstream_model:
        said |= {
            "toolspeak.model": record.model,
            "toolspeak.upstream": record.upstream,
            "toolspeak.mode": record.mode,
            "toolspeak.stream": record.is_stream,
            "toolspeak.tool_count": record.tool_count,
            "toolspeak.call_count": len(record.calls),
            "toolspeak.retries": len(record.retries),
            "toolspeak.notes": record.note_codes,
        }
    if record.overhead is not None:
        said["toolspeak.overhead_ms"] = round(record.overhead * 1000, 3)
    if record.holdback is not None:
        said["toolspeak.holdback_ms"] = round(record.holdback * 1000, 3)
    return said


def _attempt_start_attributes(
    question: AttemptRecord, request: Request, endpoint: Endpoint
) -> dict[str, Value]:
    """What is known when an upstream is asked."""
    asked: dict[str, Value] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _provider_name(endpoint),
        "gen_ai.request.model": question.model,
        "gen_ai.request.stream": request.stream,
        **dict(_server_attributes(endpoint)),
        "toolspeak.upstream": endpoint.name,
        "toolspeak.wire": endpoint.wire,
        "toolspeak.mode": question.plan.mode,
        **dict(_sampling_attributes(request)),
    }
    if question.reason:
        asked["toolspeak.attempt_reason"] = question.reason
    return asked


def _sampling_attributes(request: Request) -> Iterator[tuple[str, Value]]:
    if request.max_tokens is not None:
        yield "gen_ai.request.max_tokens", request.max_tokens
    if request.stop:
        yield "gen_ai.request.stop_sequences", list(request.stop)
    if request.response_format:
        yield "gen_ai.output.type", "json"
    for name in _SAMPLING_OPTIONS:
        if name in request.sampling:
            value = request.sampling[name]
            yield f"gen_ai.request.{name}", int(value) if name in _INTEGER_OPTIONS else float(value)


def _attempt_attributes(question: AttemptRecord) -> dict[str, Value]:
    """What is known when there is an answer, or none to come."""
    said: dict[str, Value] = {}
    if question.status:
        said["http.response.status_code"] = question.status
    if question.retries:
        said["toolspeak.retries"] = question.retries
    if question.outcome:
        said["toolspeak.outcome"] = question.outcome
    return said | dict(_reply_attributes(question.reply)) if question.reply else said


def _reply_attributes(reply: Reply) -> Iterator[tuple[str, Value]]:
    if reply.id:
        yield "gen_ai.response.id", reply.id
    if reply.model:
        yield "gen_ai.response.model", reply.model
    if reason := reply.raw_stop_reason or reply.stop_reason:
        yield "gen_ai.response.finish_reasons", [reason]
    if reply.dialect:
        yield "toolspeak.dialect", reply.dialect
    if calls := reply.calls:
        yield "toolspeak.call_names", [call.name for call in calls]
    if usage := reply.usage:
        yield "gen_ai.usage.input_tokens", usage.input
        yield "gen_ai.usage.output_tokens", usage.output
        if usage.cached:
            yield "gen_ai.usage.cache_read.input_tokens", usage.cached
        if usage.cache_written:
            yield "gen_ai.usage.cache_creation.input_tokens", usage.cache_written
        if usage.reasoning:
            yield "gen_ai.usage.reasoning.output_tokens", usage.reasoning


def _call_attributes(call: ToolCall, content: _ContentEncoder | None) -> dict[str, Value]:
    said: dict[str, Value] = {"gen_ai.tool.name": call.name, "gen_ai.tool.call.id": call.id}
    if content:
        said["gen_ai.tool.call.arguments"] = content.encode(call.arguments)
    return said


def _note_attributes(note: Note, content: _ContentEncoder | None) -> dict[str, Value]:
    """What a note is about may be anything that was said."""
    said: dict[str, Value] = {"toolspeak.note.code": note.code}
    if content:
        said["toolspeak.note.message"] = content.mask(note.message)
    return said


def _set_error(span: Span, failure: Failure, content: _ContentEncoder | None) -> None:
    span.set_attribute("error.type", failure.kind)
    # Servers repeat in their errors what they were asked.
    span.set_status(StatusCode.ERROR, content.mask(failure.message) if content else None)


def _provider_name(endpoint: Endpoint) -> str:
    provider = endpoint.settings.provider
    if provider in ("", "custom"):
        return _PROVIDER_OF_WIRE.get(endpoint.wire, endpoint.wire)
    return _PROVIDER_NAMES.get(provider, provider)


def _server_attributes(endpoint: Endpoint) -> Iterator[tuple[str, Value]]:
    address = urlsplit(endpoint.base_url)
    if address.hostname:
        yield "server.address", address.hostname
        yield "server.port", address.port or _DEFAULT_PORTS.get(address.scheme, 443)


# What was said, where that is wanted.


class _ContentEncoder:
    """Messages in the words of the conventions, without their secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._masker = Masker(secrets)

    def mask(self, text: str) -> str:
        return self._masker.mask_text(text)

    def encode(self, value: Any) -> str:
        return encode_json(self._masker.mask_value(value))

    def encode_messages(self, request: Request, reply: Reply | None) -> dict[str, Value]:
        """All that was asked and answered."""
        said: dict[str, Value] = {
            "gen_ai.input.messages": self.encode([_encode_message(one) for one in request.messages])
        }
        if request.tools:
            tools = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                }
                for tool in request.tools
            ]
            said["gen_ai.tool.definitions"] = self.encode(tools)
        if reply:
            answer = _encode_message(Message("assistant", reply.parts))
            answer["finish_reason"] = reply.raw_stop_reason or reply.stop_reason or ""
            said["gen_ai.output.messages"] = self.encode([answer])
        return said


def _encode_message(message: Message) -> dict[str, Any]:
    return {"role": message.role, "parts": [_encode_part(part) for part in message.parts]}


def _encode_part(part: Part) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "text", "content": part.text}
        case Reasoning():
            return {"type": "reasoning", "content": part.text}
        case ToolCall():
            call = {"id": part.id, "name": part.name, "arguments": part.arguments}
            return {"type": "tool_call", **call}
        case ToolResult():
            return {"type": "tool_call_response", "id": part.call_id, "response": part.text}
        case Document():
            return {"type": "document", "content": part.text}
        case Image() | Other():
            return {"type": type(part).__name__.lower()}
        case _:
            assert_never(part)


# Small things.


def _traces_url(otlp: str) -> str:
    address = otlp.rstrip("/")
    return address if address.endswith("/v1/traces") else f"{address}/v1/traces"


def _build_resource() -> Resource:
    """Who we are; the environment may say otherwise."""
    resource = Resource({SERVICE_VERSION: __version__}).merge(Resource.create())
    name = str(resource.attributes.get(SERVICE_NAME, ""))
    is_unknown = not name or name.startswith("unknown_service")
    return resource.merge(Resource({SERVICE_NAME: "toolspeak"})) if is_unknown else resource


def _http_method(record: RequestRecord) -> str:
    """Clients may make up any."""
    return record.method if record.method in _METHODS else "HTTP"


def _route_template(path: str) -> str:
    return _RESPONSE_SEGMENT.sub("{id}", _MODEL_SEGMENT.sub("{model}", path))


def _replace_surrogates(attributes: dict[str, Value]) -> dict[str, Value]:
    """Half a surrogate pair would cost all spans that are sent with it."""
    return {key: _replace_surrogates_in(value) for key, value in attributes.items()}


def _replace_surrogates_in(value: Value) -> Value:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case list():
            return [one.encode("utf-8", "replace").decode() for one in value]
        case _:
            return value


def _to_nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
