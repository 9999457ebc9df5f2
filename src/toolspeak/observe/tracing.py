"""Requests as OpenTelemetry spans, by the semantic conventions for generative AI.

    POST /v1/chat/completions        the client's request: `http.*` and `toolspeak.*`
        chat qwen3:8b                each attempt at an upstream: `gen_ai.*`, and the reason for it
        chat qwen3:8b

The client's `traceparent` is the parent of these spans, and each upstream receives one of its own.
Token usage is on the attempts only: a sum over all spans would otherwise count it twice.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
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
from .._util import format_json
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
from .inspector.masking import Masker, replace_surrogates

log = logging.getLogger("toolspeak.gateway")
Value = str | bool | int | float | list[str]
Attributes = dict[str, Value | None]
"""Without a value, an attribute is left out."""
_PROPAGATOR = TraceContextTextMapPropagator()
_SHUTDOWN_SECONDS = 5.0
"""The time to send the last spans when the gateway is stopped."""
_UNTRACED_PATHS = frozenset({"/", "/health", "/ready", "/metrics"})
"""Paths that machines request all day."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_MODEL_SEGMENT = re.compile(r"(?<=/models/)[^:]+")
_RESPONSE_SEGMENT = re.compile(r"(?<=/responses/)[\w.\-]+")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PROVIDER_NAMES = {"gemini": "gcp.gemini", "mistral": "mistral_ai", "xai": "x_ai"}
"""The conventions' names of providers, where they differ from ours."""
_PROVIDER_OF_WIRE = {"openai_chat": "openai", "openai_responses": "openai", "gemini": "gcp.gemini"}
"""For upstreams whose provider is not configured."""
_SAMPLING_TYPES: dict[str, type[int] | type[float]] = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "seed": int,
    "presence_penalty": float,
    "frequency_penalty": float,
}


class RequestTracer:
    """Makes spans of requests, and exports them."""

    def __init__(self, config: Config, exporter: SpanExporter | None = None) -> None:
        self._exporter = exporter or OTLPSpanExporter(_traces_url(config.telemetry.otlp_endpoint))
        self._provider = TracerProvider(resource=_build_resource(), shutdown_on_exit=False)
        # The processor exports in a thread of its own, and drops spans that exceed its queue.
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("toolspeak", __version__)
        self._secrets = frozenset(configured_secrets(config))
        # Masking the secrets of a long conversation takes too long for the event loop.
        self._content_thread = ThreadPoolExecutor(1) if config.telemetry.include_content else None
        self._is_open = True

    def start_request(self, record: RequestRecord, headers: Mapping[str, str]) -> None:
        if record.path not in _UNTRACED_PATHS:
            parent = _PROPAGATOR.extract(headers, Context())
            record.spans = _RequestSpans(self._tracer, record, parent)

    def end_request(self, record: RequestRecord) -> None:
        if not isinstance(record.spans, _RequestSpans) or not self._is_open:
            return
        if self._content_thread and record.is_chat:
            secrets = self._secrets.union(*(one.server.secrets() for one in record.attempts))
            content = _ContentEncoder(secrets)
            self._content_thread.submit(self._end_spans, record, record.spans, content)
        else:
            self._end_spans(record, record.spans, None)

    def _end_spans(
        self, record: RequestRecord, spans: _RequestSpans, content: _ContentEncoder | None
    ) -> None:
        try:
            spans.end(record, content)
        except Exception:
            # The client has its response already.
            log.exception("%s could not be traced", record.id)

    async def close(self) -> None:
        """Export the remaining spans, unless that takes too long."""
        if not self._is_open:
            return
        self._is_open = False
        closing = Thread(target=self._flush_spans, daemon=True)
        closing.start()
        deadline = monotonic() + _SHUTDOWN_SECONDS
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
            _clean(_request_start_attributes(record)),
            (),
            _to_nanoseconds(record.received_at),
        )
        self._context = set_span_in_context(self._request_span, parent)
        self._attempts: list[tuple[AttemptRecord, Request, Span]] = []
        context = self._request_span.get_span_context()
        self.trace_id = format_trace_id(context.trace_id) if context.is_valid else ""

    def start_attempt(
        self, record: AttemptRecord, attempt: Attempt, endpoint: Endpoint
    ) -> Mapping[str, str]:
        """Start the span of an attempt; return the headers that continue the trace."""
        attributes = _clean(_attempt_start_attributes(record, attempt.request, endpoint))
        name = f"chat {attributes['gen_ai.request.model']}"
        time = self._unix_nanoseconds(record.started)
        span = self._tracer.start_span(name, self._context, SpanKind.CLIENT, attributes, (), time)
        self._attempts.append((record, attempt.request, span))
        headers: dict[str, str] = {}
        _PROPAGATOR.inject(headers, set_span_in_context(span, self._context))
        return headers

    def end(self, record: RequestRecord, content: _ContentEncoder | None) -> None:
        """Add what is known at the end of the request."""
        for attempt, request, span in self._attempts:
            if span.is_recording():
                self._end_attempt(attempt, request, span, content)
            # An attempt that the client did not wait for has no end.
            span.end(self._unix_nanoseconds(attempt.ended or record.ended))
        if self._request_span.is_recording():
            self._end_request(record, content)
        self._request_span.end(self._unix_nanoseconds(record.ended))

    def _end_attempt(
        self, attempt: AttemptRecord, request: Request, span: Span, content: _ContentEncoder | None
    ) -> None:
        span.set_attributes(_clean(_attempt_attributes(attempt)))
        time = self._unix_nanoseconds(attempt.ended or attempt.started)
        if reply := attempt.reply:
            for call in reply.calls:
                span.add_event("toolspeak.call", _clean(_call_attributes(call, content)), time)
            for rejection in reply.rejected:
                span.add_event("toolspeak.rejected", {"toolspeak.note.code": rejection.code}, time)
            for note in reply.notes:
                span.add_event("toolspeak.note", _clean(_note_attributes(note, content)), time)
        if content:
            span.set_attributes(_clean(content.encode_messages(request, attempt.reply)))
        if attempt.failure:
            _set_error(span, attempt.failure, content)

    def _end_request(self, record: RequestRecord, content: _ContentEncoder | None) -> None:
        span = self._request_span
        if record.is_chat or record.status < 400:
            # Other paths are not known to be a route: clients may invent them.
            route = _route_template(record.path)
            span.update_name(f"{_http_method(record)} {route}")
            span.set_attribute("http.route", route)
        span.set_attributes(_clean(_request_attributes(record)))
        replies = (attempt.reply for attempt, *_ in self._attempts if attempt.reply)
        notes_of_attempts = [note for reply in replies for note in reply.notes]
        for note in record.notes:
            if note not in notes_of_attempts:
                span.add_event("toolspeak.note", _clean(_note_attributes(note, content)))
        if record.failure and max(record.status, record.failure.status) >= 500:
            _set_error(span, record.failure, content)

    def _unix_nanoseconds(self, moment: float) -> int:
        """Convert a time of `perf_counter` to nanoseconds since 1970."""
        return _to_nanoseconds(self._offset + moment)


# Attributes of spans and events.


def _request_start_attributes(record: RequestRecord) -> Attributes:
    method = _http_method(record)
    return {
        "http.request.method": method if method in _METHODS else "_OTHER",
        "url.path": record.path,
        "toolspeak.request_id": record.id,
        "toolspeak.wire": record.wire,
    }


def _request_attributes(record: RequestRecord) -> Attributes:
    attributes: Attributes = {
        "http.response.status_code": record.status,
        "toolspeak.overhead_ms": _to_milliseconds(record.overhead),
        "toolspeak.holdback_ms": _to_milliseconds(record.holdback),
    }
    if record.upstream_model:
        attributes |= {
            "toolspeak.model": record.model,
            "toolspeak.upstream": record.upstream,
            "toolspeak.mode": record.mode,
            "toolspeak.stream": record.is_stream,
            "toolspeak.tool_count": record.tool_count,
            "toolspeak.call_count": len(record.calls),
            "toolspeak.retries": len(record.retries),
            "toolspeak.notes": record.note_codes,
        }
    return attributes


def _attempt_start_attributes(
    attempt: AttemptRecord, request: Request, endpoint: Endpoint
) -> Attributes:
    url = urlsplit(endpoint.base_url)
    port = url.port or _DEFAULT_PORTS.get(url.scheme, 443)
    sampling: Attributes = {
        f"gen_ai.request.{name}": convert(request.sampling[name])
        for name, convert in _SAMPLING_TYPES.items()
        if name in request.sampling
    }
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _provider_name(endpoint),
        "gen_ai.request.model": attempt.model,
        "gen_ai.request.stream": request.stream,
        "gen_ai.request.max_tokens": request.max_tokens,
        "gen_ai.request.stop_sequences": list(request.stop) or None,
        "gen_ai.output.type": "json" if request.response_format else None,
        **sampling,
        "server.address": url.hostname,
        "server.port": port if url.hostname else None,
        "toolspeak.upstream": endpoint.name,
        "toolspeak.wire": endpoint.wire,
        "toolspeak.mode": attempt.plan.mode,
        "toolspeak.attempt_reason": attempt.reason or None,
    }


def _attempt_attributes(attempt: AttemptRecord) -> Attributes:
    attributes: Attributes = {
        "http.response.status_code": attempt.status or None,
        "toolspeak.resends": attempt.resends or None,
        "toolspeak.outcome": attempt.outcome or None,
    }
    return attributes | _reply_attributes(attempt.reply) if attempt.reply else attributes


def _reply_attributes(reply: Reply) -> Attributes:
    reason = reply.raw_stop_reason or reply.stop_reason
    attributes: Attributes = {
        "gen_ai.response.id": reply.id or None,
        "gen_ai.response.model": reply.model or None,
        "gen_ai.response.finish_reasons": [reason] if reason else None,
        "toolspeak.dialect": reply.dialect or None,
        "toolspeak.call_names": [call.name for call in reply.calls] or None,
    }
    if usage := reply.usage:
        attributes |= {
            "gen_ai.usage.input_tokens": usage.input,
            "gen_ai.usage.output_tokens": usage.output,
            "gen_ai.usage.cache_read.input_tokens": usage.cached or None,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_written or None,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning or None,
        }
    return attributes


def _call_attributes(call: ToolCall, content: _ContentEncoder | None) -> Attributes:
    return {
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.call.arguments": content.encode(call.arguments) if content else None,
    }


def _note_attributes(note: Note, content: _ContentEncoder | None) -> Attributes:
    # The message may quote the conversation.
    message = content.mask(note.message) if content else None
    return {"toolspeak.note.code": note.code, "toolspeak.note.message": message}


def _set_error(span: Span, failure: Failure, content: _ContentEncoder | None) -> None:
    span.set_attribute("error.type", failure.kind)
    # Servers quote requests in their errors.
    span.set_status(StatusCode.ERROR, content.mask(failure.message) if content else None)


def _provider_name(endpoint: Endpoint) -> str:
    provider = endpoint.settings.provider
    if provider in ("", "custom"):
        return _PROVIDER_OF_WIRE.get(endpoint.wire, endpoint.wire)
    return _PROVIDER_NAMES.get(provider, provider)


# The content of conversations, if it is to be included.


class _ContentEncoder:
    """Encodes messages as the conventions define them, with their secrets masked."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._masker = Masker(secrets)

    def mask(self, text: str) -> str:
        return self._masker.mask_text(text)

    def encode(self, value: Any) -> str:
        return format_json(self._masker.mask_value(value))

    def encode_messages(self, request: Request, reply: Reply | None) -> Attributes:
        """Return the attributes with the messages, tools and reply of an attempt."""
        messages = [_encode_message(one) for one in request.messages]
        attributes: Attributes = {"gen_ai.input.messages": self.encode(messages)}
        if request.tools:
            fields = ("name", "description", "parameters")
            tools = [
                {"type": "function", **{name: getattr(tool, name) for name in fields}}
                for tool in request.tools
            ]
            attributes["gen_ai.tool.definitions"] = self.encode(tools)
        if reply:
            answer = _encode_message(Message("assistant", reply.parts))
            answer["finish_reason"] = reply.raw_stop_reason or reply.stop_reason or ""
            attributes["gen_ai.output.messages"] = self.encode([answer])
        return attributes


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


# Helpers.


def _traces_url(endpoint: str) -> str:
    url = endpoint.rstrip("/")
    return url if url.endswith("/v1/traces") else f"{url}/v1/traces"


def _build_resource() -> Resource:
    """Return the name and version of this service; the environment overrides them."""
    resource = Resource({SERVICE_VERSION: __version__}).merge(Resource.create())
    name = str(resource.attributes.get(SERVICE_NAME, ""))
    is_unknown = not name or name.startswith("unknown_service")
    return resource.merge(Resource({SERVICE_NAME: "toolspeak"})) if is_unknown else resource


def _http_method(record: RequestRecord) -> str:
    """Return the method for names of spans; clients may invent others."""
    return record.method if record.method in _METHODS else "HTTP"


def _route_template(path: str) -> str:
    return _RESPONSE_SEGMENT.sub("{id}", _MODEL_SEGMENT.sub("{model}", path))


def _clean(attributes: Attributes) -> dict[str, Value]:
    """Replace lone surrogates: one of them would make the export of a whole batch fail."""
    return {name: _clean_value(value) for name, value in attributes.items() if value is not None}


def _clean_value(value: Value) -> Value:
    match value:
        case str():
            return replace_surrogates(value)
        case list():
            return list(map(replace_surrogates, value))
        case _:
            return value


def _to_milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _to_nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
