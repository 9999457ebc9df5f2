"""Traces: the spans of a request, their contents and parents, and their export."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.config.config_files import isolate_settings, load_invalid, load_text
from tests.gateway.gateway_process import CHAT_BODY, PausingUpstream, start_gateway
from tests.gateway.gateway_process import ask as send_request
from tests.gateway.raw_clients import HTTP, STREAMED, WHOLE, Client, ask
from tests.gateway.running_gateway import RunningGateway, make_config, run_gateway
from toolspeak.config import checks
from toolspeak.config.settings import Config, TelemetrySettings
from toolspeak.errors import UsageError
from toolspeak.events import CallEnd, CallStart, Event, Finish, Started, TextDelta
from toolspeak.gateway.app import Gateway
from toolspeak.observe import tracing
from toolspeak.observe.tracing import RequestTracer
from toolspeak.testing import ScriptedServer
from toolspeak.types import Failure, ToolCall, Usage

SECRET = "sk-proj-" + "a1B2c3D4e5" * 4
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADER = f"00-{TRACE}-{PARENT}-01"
_CONVENTIONS = "opentelemetry.semconv._incubating.attributes"
CLIENTS = [WHOLE[0], STREAMED[0], WHOLE[2]]


def write_call(**arguments: Any) -> list[Event]:
    made = ToolCall(id="call_7", name="get_weather", arguments=arguments)
    end = Finish("calls", usage=Usage(input=20, output=5, cached=8, reasoning=2))
    return [Started("id_9", "real-model"), CallStart(0, made.id, made.name), CallEnd(0, made), end]


def write_text(text: str) -> list[Event]:
    return [TextDelta(text), Finish("stop", usage=Usage(3, 2))]


class TracedGateway:
    """A gateway, its model, and the spans that it exports."""

    def __init__(
        self, server: RunningGateway, exporter: InMemorySpanExporter, model: ScriptedServer
    ):
        self.url = server.url
        self.model = model
        self._server = server
        self._exporter = exporter

    @property
    def spans(self) -> list[ReadableSpan]:
        """Stop the gateway; return all spans in the order of their start."""
        self._server.stop()
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)


@contextmanager
def run_traced_gateway(
    *turns: Sequence[Event], content: bool = False, **model: Any
) -> Generator[TracedGateway, None, None]:
    exporter = InMemorySpanExporter()
    with ScriptedServer(*turns) as upstream:
        config = structs.replace(
            make_config(upstream.url, **model), telemetry=TelemetrySettings(include_content=content)
        )
        gateway = RunningGateway(
            Gateway(config, environ={}, tracing=RequestTracer(config, exporter))
        )
        gateway.start()
        yield TracedGateway(gateway, exporter, upstream)
        gateway.stop()


def build_body(client: Client, text: str = "What is the weather in Oslo?") -> dict[str, Any]:
    return client.body(text, tools=["get_weather"])


def read_attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def read_events(span: ReadableSpan) -> list[tuple[str, dict[str, Any]]]:
    return [(event.name, dict(event.attributes or {})) for event in span.events]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_spans_of_a_call_follow_the_conventions(client: Client) -> None:
    with run_traced_gateway(write_call(city="Oslo"), tools="native") as gateway:
        reply = ask(gateway.url, client, build_body(client) | {"temperature": 0.5})
        assert reply.status == 200
        server, attempt = gateway.spans
    assert (server.name, server.kind) == (f"POST {client.path}", SpanKind.SERVER)
    assert server.parent is None
    attributes = read_attributes(server)
    assert attributes.pop("toolspeak.overhead_ms") > 0
    assert attributes.pop("toolspeak.request_id").startswith("req_")
    assert (attributes.pop("toolspeak.holdback_ms", None) is None) != client.stream
    assert attributes == {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "http.route": client.path,
        "url.path": client.path,
        "toolspeak.wire": client.wire,
        "toolspeak.model": "m",
        "toolspeak.upstream": "scripted",
        "toolspeak.mode": "native",
        "toolspeak.stream": client.stream,
        "toolspeak.tool_count": 1,
        "toolspeak.call_count": 1,
        "toolspeak.retries": 0,
        "toolspeak.notes": (),
    }
    assert (attempt.name, attempt.kind) == ("chat m", SpanKind.CLIENT)
    assert attempt.parent
    assert server.context
    assert attempt.parent.span_id == server.context.span_id
    attributes = read_attributes(attempt)
    assert attributes.pop("server.port") == int(gateway.model.url.rpartition(":")[2])
    assert attributes.pop("gen_ai.response.id")
    assert attributes.pop("gen_ai.response.model")
    attributes.pop("gen_ai.request.max_tokens", None)
    attributes.pop("gen_ai.usage.cache_read.input_tokens", None)
    attributes.pop("gen_ai.usage.reasoning.output_tokens", None)
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": client.stream,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 5,
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "toolspeak.upstream": "scripted",
        "toolspeak.wire": "openai_chat",
        "toolspeak.mode": "native",
        "toolspeak.outcome": "calls",
        "toolspeak.dialect": "native",
        "toolspeak.call_names": ("get_weather",),
    }
    [(name, event)] = read_events(attempt)
    assert name == "toolspeak.call"
    assert set(event) == {"gen_ai.tool.name", "gen_ai.tool.call.id"}
    assert (server.start_time or 0) <= (attempt.start_time or 0) < (attempt.end_time or 0)
    assert (attempt.end_time or 0) <= (server.end_time or 0)


def test_attribute_names_are_in_the_conventions() -> None:
    conventions = import_module(f"{_CONVENTIONS}.gen_ai_attributes")
    known = {value for name, value in vars(conventions).items() if name.startswith("GEN_AI_")}
    source = Path(tracing.__file__).read_text()
    used = {part for part in source.split('"') if part.startswith("gen_ai.") and "{" not in part}
    assert len(used) > 15
    assert used <= known


def test_retry_has_its_reason_and_notes() -> None:
    bad = '<tool_call>{"name": "get_weather", "arguments": {"text": "x",}}</tool_call>'
    refusal = "I'm sorry, but I don't have access to any tools."
    with run_traced_gateway(write_text(refusal), write_text(bad), tools="native") as gateway:
        ask(gateway.url, WHOLE[0], build_body(WHOLE[0]))
        server, first, second = gateway.spans
    assert first.attributes
    assert second.attributes
    assert server.attributes
    assert "toolspeak.attempt_reason" not in first.attributes
    assert first.attributes["toolspeak.outcome"] == "false-refusal"
    assert second.attributes["toolspeak.attempt_reason"] == "false-refusal"
    assert second.attributes["toolspeak.dialect"] == "hermes"
    assert ("toolspeak.note", {"toolspeak.note.code": "repaired-trailing-comma"}) in read_events(
        second
    )
    assert ("toolspeak.note", {"toolspeak.note.code": "retried"}) in read_events(server)
    assert server.attributes["toolspeak.retries"] == 1


def test_failure_sets_the_status_without_its_message() -> None:
    failure = Failure("overloaded", f"too busy for {SECRET}", 503)
    with run_traced_gateway([failure]) as gateway:
        ask(gateway.url, WHOLE[0])
        server, attempt = gateway.spans
    for span in (server, attempt):
        assert span.attributes
        assert span.attributes["error.type"] == "overloaded"
        assert span.attributes["http.response.status_code"] == 503
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)


def record_parents(model: ScriptedServer) -> list[Any]:
    """Return a list to which the server adds the `traceparent` of each request."""
    parents: list[Any] = []
    handler: Any = model._server.RequestHandlerClass  # pyright: ignore[reportPrivateUsage]
    original = handler.do_POST

    def do_post(self: Any) -> None:
        parents.append(self.headers["traceparent"])
        original(self)

    handler.do_POST = do_post
    return parents


def test_traceparent_of_the_client_is_continued() -> None:
    with run_traced_gateway(write_text("Hello.")) as gateway:
        parents = record_parents(gateway.model)
        ask(gateway.url, WHOLE[0], traceparent=HEADER)
        ask(gateway.url, WHOLE[0], traceparent=HEADER[:-2] + "00")
        ask(gateway.url, WHOLE[0], traceparent="nonsense")
        server, attempt, *others = gateway.spans
    assert server.context
    assert server.parent
    assert attempt.context
    assert f"{server.context.trace_id:032x}" == TRACE
    assert f"{server.parent.span_id:016x}" == PARENT
    assert parents[0] == f"00-{TRACE}-{attempt.context.span_id:016x}-01"
    # An unsampled trace makes no spans, and stays unsampled upstream.
    assert parents[1].startswith(f"00-{TRACE}-")
    assert parents[1].endswith("-00")
    assert len(others) == 2
    assert others[0].parent is None


def test_traceparent_without_tracing_is_not_forwarded() -> None:
    with (
        ScriptedServer(write_text("Hello.")) as model,
        run_gateway(make_config(model.url)) as gateway,
    ):
        parents = record_parents(model)
        ask(gateway.url, WHOLE[0], traceparent=HEADER)
    assert parents == [None]


def test_span_names_do_not_contain_unknown_paths() -> None:
    with run_traced_gateway(write_text("Hello.")) as gateway:
        for path in ("/nowhere/1", "/health", "/metrics", "/v1/models"):
            HTTP.get(gateway.url + path)
        HTTP.request("PROPFIND", f"{gateway.url}/v1/models")
        gemini = structs.replace(WHOLE[4], path="/v1beta/models/invented:generateContent")
        ask(gateway.url, gemini)
        names = [span.name for span in gateway.spans]
    gemini_route = "POST /v1beta/models/{model}:generateContent"
    assert names == ["GET", "GET /v1/models", "HTTP", gemini_route, "chat m"]


@pytest.mark.parametrize("content", [False, True])
def test_message_content_is_traced_only_if_configured(content: bool) -> None:
    with run_traced_gateway(
        write_call(city="Oslo", note=SECRET), content=content, tools="native"
    ) as gateway:
        ask(gateway.url, WHOLE[0], build_body(WHOLE[0], f"Is it raining? My key is {SECRET}"))
        spans = gateway.spans
    everything = "".join(span.to_json() for span in spans)
    assert SECRET not in everything
    assert ("raining" in everything) == content
    assert ("Oslo" in everything) == content
    if content:
        attributes: Any = spans[1].attributes
        [attempt] = json.loads(attributes["gen_ai.input.messages"])
        assert (attempt["role"], attempt["parts"][0]["type"]) == ("user", "text")
        [reply] = json.loads(attributes["gen_ai.output.messages"])
        assert reply["finish_reason"] == "tool_calls"
        assert reply["parts"][0]["arguments"]["city"] == "Oslo"
        assert json.loads(attributes["gen_ai.tool.definitions"])[0]["name"] == "get_weather"


def test_lone_surrogate_can_be_exported() -> None:
    with run_traced_gateway(write_text("Hello.")) as gateway:
        data = json.dumps(WHOLE[0].body() | {"model": "m\ud800"}).encode()
        HTTP.post(
            f"{gateway.url}/v1/chat/completions",
            content=data,
            headers={"content-type": "application/json"},
        )
        for span in gateway.spans:
            span.to_json().encode()


class HangingExporter(SpanExporter):
    """An exporter that never finishes."""

    def __init__(self) -> None:
        self._has_ended = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._has_ended.wait(60)
        raise OSError("gone")

    def shutdown(self) -> None:
        self._has_ended.set()


def test_hanging_collector_does_not_delay_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("toolspeak.observe.tracing._SHUTDOWN_SECONDS", 0.2)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    with ScriptedServer(write_text("Hello.")) as upstream:
        config = make_config(upstream.url)
        gateway = RunningGateway(
            Gateway(config, environ={}, tracing=RequestTracer(config, HangingExporter()))
        )
        gateway.start()
        for _ in range(3):
            assert ask(gateway.url, WHOLE[0]).status == 200
        start = time.monotonic()
        gateway.stop()
        assert time.monotonic() - start < 30
    assert "the last traces could not be sent" in caplog.text


def test_request_with_a_tracing_error_is_served(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("unexpected")

    monkeypatch.setattr("toolspeak.observe.tracing._request_attributes", fails)
    with caplog.at_level(logging.ERROR), run_traced_gateway(write_text("Hello.")) as gateway:
        assert ask(gateway.url, WHOLE[0]).status == 200
    assert "could not be traced" in caplog.text


# Export.


class Collector:
    """Receives OTLP over HTTP."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        handler = type("Handler", (_CollectorHandler,), {"collector": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def read_resource(self) -> dict[str, str]:
        attributes = self.requests[0].resource_spans[0].resource.attributes
        return {item.key: item.value.string_value for item in attributes}


class _CollectorHandler(BaseHTTPRequestHandler):
    collector: Collector

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        self.collector.paths.append(self.path)
        self.collector.headers.append({key.lower(): value for key, value in self.headers.items()})
        self.collector.requests.append(ExportTraceServiceRequest.FromString(data))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""


@pytest.mark.parametrize("workers", [1, 2])
def test_collector_receives_all_spans_before_the_gateway_ends(tmp_path: Path, workers: int) -> None:
    """The SDK's own environment variables apply too."""
    with Collector() as collector, PausingUpstream("model") as upstream:
        settings = f'{upstream.toml}\n[telemetry]\notlp_endpoint = "{collector.url}"\n'
        (tmp_path / "toolspeak.toml").write_text(settings)
        variables = {
            "OTEL_EXPORTER_OTLP_HEADERS": "x-key=abc",
            "OTEL_SERVICE_NAME": "my-gateway",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        }
        with start_gateway(tmp_path, "--workers", str(workers), **variables) as gateway:
            for _ in range(3):
                send_request(gateway.url)
            gateway.send(15)
            assert gateway.wait_for_exit() == 0
            assert "Traceback" not in gateway.log
    assert set(collector.paths) == {"/v1/traces"}
    assert collector.headers[0]["x-key"] == "abc"
    assert collector.headers[0]["content-type"] == "application/x-protobuf"
    resource = collector.read_resource()
    assert resource["service.name"] == "my-gateway"
    assert resource["deployment.environment.name"] == "test"
    assert resource["service.version"]
    names = sorted(span.name for span in collector.spans)
    assert names == ["POST /v1/chat/completions"] * 3 + ["chat m"] * 3
    assert len({span.trace_id for span in collector.spans}) == 3


def test_spans_without_a_configured_endpoint_are_not_sent(tmp_path: Path) -> None:
    with Collector() as collector, PausingUpstream("model") as upstream:
        (tmp_path / "toolspeak.toml").write_text(upstream.toml)
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        with start_gateway(tmp_path, **variables) as gateway:
            send_request(gateway.url, body=CHAT_BODY)
            gateway.send(15)
            assert gateway.wait_for_exit() == 0
    assert not collector.requests


# Settings.


def test_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate_settings(tmp_path, monkeypatch)
    text = '[telemetry]\notlp_endpoint = "http://127.0.0.1:4318"\n'
    assert load_text(text).config.telemetry.otlp_endpoint
    monkeypatch.setattr(checks, "_TELEMETRY_PACKAGES", ("no_such_package.at_all",))
    problem = "traces need OpenTelemetry: pip install 'toolspeak[otel]'"
    assert load_invalid(text).problems == (f"a.toml: {problem} - at `$.telemetry.otlp_endpoint`",)
    with pytest.raises(UsageError, match="toolspeak\\[otel\\]"):
        Gateway(Config(telemetry=TelemetrySettings("http://127.0.0.1:4318")), environ={})
    assert load_text("").config.telemetry == TelemetrySettings()


@pytest.mark.parametrize("address", ["127.0.0.1:4318", "grpc://127.0.0.1:4317", "http://"])
def test_invalid_endpoint_is_rejected(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate_settings(tmp_path, monkeypatch)
    error = load_invalid(f'[telemetry]\notlp_endpoint = "{address}"\n')
    assert "expected a URL such as http://127.0.0.1:4318" in str(error)
