"""The gateway's metrics, read with the parser of the Prometheus client."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from tests.gateway.raw_clients import CLIENTS, HTTP, STREAMED, WHOLE, ask
from tests.gateway.running_gateway import RunningGateway, make_config, run_gateway
from toolspeak.config.settings import UpstreamSettings
from toolspeak.events import CallEnd, CallStart, Event, Finish, TextDelta
from toolspeak.notes import NOTES, REPAIRS
from toolspeak.observe.metrics import (
    METRIC_FAMILIES,
    MetricFamily,
    MetricRegistry,
    SharedMetricRegistry,
    count_request,
)
from toolspeak.store.base import MemoryStore
from toolspeak.testing import ScriptedServer
from toolspeak.types import Failure, ToolCall, Usage
from toolspeak.upstream.record import RequestRecord

Sample = tuple[str, frozenset[tuple[str, str]]]
CHAT = WHOLE[0]


def make_sample(name: str, **labels: str) -> Sample:
    return name, frozenset(labels.items())


def parse_samples(text: str) -> dict[Sample, float]:
    """Return all samples; check their families and the consistency of histograms."""
    found: dict[Sample, float] = {}
    for family in text_string_to_metric_families(text):
        known = METRIC_FAMILIES[family.name if family.type != "counter" else f"{family.name}_total"]
        assert (family.type, family.documentation) == (known.kind, known.help)
        for row in family.samples:
            key = make_sample(row.name, **row.labels)
            assert key not in found
            found[key] = row.value
        if family.type == "histogram":
            check_histogram(family.name, found)
    return found


def check_histogram(name: str, found: dict[Sample, float]) -> None:
    """Check that buckets are cumulative, the last one is the count, and the sum is positive."""
    for (sample_name, labels), count in found.items():
        if sample_name != f"{name}_count":
            continue
        buckets = {
            float(dict(others)["le"]): value
            for (bucket_name, others), value in found.items()
            if bucket_name == f"{name}_bucket" and labels < others
        }
        assert tuple(buckets) == (*METRIC_FAMILIES[name].buckets, float("inf"))
        assert list(buckets.values()) == sorted(buckets.values())
        assert buckets[float("inf")] == count > 0
        assert found[f"{name}_sum", labels] >= 0


def read_metrics(gateway: RunningGateway) -> dict[Sample, float]:
    response = HTTP.get(f"{gateway.url}/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4"
    return parse_samples(response.text)


def write_call(name: str, **arguments: Any) -> list[Event]:
    call = ToolCall(id="call_1", name=name, arguments=arguments)
    return [CallStart(0, call.id, name), CallEnd(0, call), Finish("calls")]


def write_text(text: str, usage: Usage | None = None) -> list[Event]:
    return [TextDelta(text), Finish("stop", usage=usage)]


@contextmanager
def run_scripted_gateway(
    *turns: Sequence[Event], **model: Any
) -> Generator[RunningGateway, None, None]:
    with (
        ScriptedServer(*turns) as upstream,
        run_gateway(make_config(upstream.url, **model)) as gateway,
    ):
        yield gateway


def test_requests_of_every_client_are_counted() -> None:
    with run_scripted_gateway(write_text("Hello.", Usage(7, 3))) as gateway:
        for client in CLIENTS:
            ask(gateway.url, client)
        found = read_metrics(gateway)
    for wire in {client.wire for client in CLIENTS}:
        count = sum(client.wire == wire for client in CLIENTS)
        requests = {"wire": wire, "mode": "none", "status": "200"}
        assert found[make_sample("toolspeak_requests_total", **requests)] == count
        assert found[make_sample("toolspeak_request_duration_seconds_count", wire=wire)] == count
    streams = sum(client.stream for client in CLIENTS)
    assert found[make_sample("toolspeak_overhead_seconds_count", stream="true")] == streams
    whole = make_sample("toolspeak_overhead_seconds_count", stream="false")
    assert found[whole] == len(CLIENTS) - streams
    assert found[make_sample("toolspeak_holdback_seconds_count")] == streams
    assert found[
        make_sample("toolspeak_upstream_first_byte_seconds_count", upstream="scripted")
    ] == len(CLIENTS)
    assert found[make_sample("toolspeak_replies_total", outcome="answer")] == len(CLIENTS)
    assert found[make_sample("toolspeak_tokens_total", kind="input")] == 7 * len(CLIENTS)
    assert found[make_sample("toolspeak_active_requests")] == 1


FALSE_REFUSAL = "I'm sorry, but I don't have access to any tools."
TEXT_CALL = '<tool_call>{"name": "get_weather", "arguments": {}}</tool_call>'
CASES: dict[str, tuple[list[Any], dict[str, Any], dict[Sample, float]]] = {
    "native call": (
        [write_call("get_weather")],
        {"tools": "native"},
        {
            make_sample("toolspeak_calls_total", source="native", dialect="native"): 1,
            make_sample("toolspeak_replies_total", outcome="calls"): 1,
        },
    ),
    "call in text": (
        [write_text(TEXT_CALL)],
        {"tools": "native"},
        {make_sample("toolspeak_calls_total", source="text", dialect="hermes"): 1},
    ),
    "prompted call": (
        [write_text(TEXT_CALL)],
        {"tools": "prompt", "dialect": "hermes"},
        {make_sample("toolspeak_calls_total", source="prompt", dialect="hermes"): 1},
    ),
    "repair": (
        [write_text(TEXT_CALL.replace("{}}", "{},}"))],
        {"tools": "native"},
        {
            make_sample("toolspeak_repairs_total", code="repaired-trailing-comma"): 1,
            make_sample("toolspeak_notes_total", code="repaired-trailing-comma"): 1,
        },
    ),
    "repair in a rejected reply": (
        [
            write_text(TEXT_CALL.replace("{}}", "{},}").replace("get_weather", "nothing_like_it")),
            write_text("No."),
        ],
        {"tools": "native"},
        {
            make_sample("toolspeak_rejected_calls_total", code="unknown-tool"): 1,
            make_sample("toolspeak_replies_total", outcome="unknown-tool"): 1,
            make_sample("toolspeak_replies_total", outcome="answer"): 1,
            make_sample("toolspeak_retries_total", reason="unknown-tool"): 1,
            make_sample("toolspeak_upstream_first_byte_seconds_count", upstream="scripted"): 2,
        },
    ),
    "false refusal": (
        [write_text(FALSE_REFUSAL), write_call("get_weather")],
        {"tools": "native"},
        {
            make_sample("toolspeak_refusals_total", kind="false"): 1,
            make_sample("toolspeak_retries_total", reason="false-refusal"): 1,
            make_sample("toolspeak_notes_total", code="retried"): 1,
            make_sample("toolspeak_calls_total", source="native", dialect="native"): 1,
            make_sample(
                "toolspeak_requests_total", wire="openai_chat", mode="native", status="200"
            ): 1,
        },
    ),
    "honest refusal": (
        [write_text("I can't check that, since it is not known in which city you are.")],
        {"tools": "native"},
        {make_sample("toolspeak_refusals_total", kind="honest"): 1},
    ),
    "failure": (
        [[Failure("rate_limit", "slower", 429)]],
        {"tools": "native"},
        {
            make_sample(
                "toolspeak_upstream_failures_total", upstream="scripted", kind="rate_limit"
            ): 1,
            make_sample(
                "toolspeak_requests_total", wire="openai_chat", mode="native", status="429"
            ): 1,
            make_sample("toolspeak_request_duration_seconds_count", wire="openai_chat"): 1,
        },
    ),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_reply_of_each_kind_is_counted(case: str, stream: bool) -> None:
    turns, model, expected = CASES[case]
    with run_scripted_gateway(*turns, **model) as gateway:
        client = (STREAMED if stream else WHOLE)[0]
        ask(gateway.url, client, client.body("What is the weather in Oslo?", tools=["get_weather"]))
        found = read_metrics(gateway)
    assert {key: found.get(key) for key in expected} == expected


def test_repair_codes_are_note_codes() -> None:
    assert set(NOTES) >= REPAIRS
    assert {code for code in NOTES if code.startswith("repaired-")} < REPAIRS


@pytest.mark.parametrize(
    ("text", "minimum", "maximum"),
    [("It is a fine day. " * 3, 0.0, 0.3), (TEXT_CALL, 0.3, 60.0)],
    ids=["answer", "call"],
)
def test_holdback_time_is_measured(text: str, minimum: float, maximum: float) -> None:
    chunks = [TextDelta(text[start : start + 6]) for start in range(0, len(text), 6)]
    turn: list[Event] = [*chunks, Finish("stop")]
    with (
        ScriptedServer(turn, pause=0.05) as upstream,
        run_gateway(make_config(upstream.url, tools="native")) as gateway,
    ):
        ask(gateway.url, STREAMED[0], STREAMED[0].body(tools=1))
        found = read_metrics(gateway)
    assert found[make_sample("toolspeak_holdback_seconds_count")] == 1
    assert minimum <= found[make_sample("toolspeak_holdback_seconds_sum")] <= maximum


def test_holdback_time_of_a_slow_model_excludes_its_pauses() -> None:
    """Neither the pause before the text nor the one after it is a delay by the gateway."""
    turn: list[Event] = [TextDelta("Hello there, "), TextDelta("you."), Finish("stop")]
    with (
        ScriptedServer(turn, pause=0.3) as upstream,
        run_gateway(make_config(upstream.url, tools="native")) as gateway,
    ):
        ask(gateway.url, STREAMED[0], STREAMED[0].body(tools=1))
        assert read_metrics(gateway)[make_sample("toolspeak_holdback_seconds_sum")] < 0.3


def test_invented_names_add_no_samples() -> None:
    """Names that clients and models choose are no labels."""
    names = iter(range(100))

    def turn(_: Any) -> list[Event]:
        return write_call(f"invented_{next(names)}")

    def use_names(number: int) -> None:
        HTTP.get(f"{gateway.url}/nowhere/{number}")
        HTTP.request(f"M{number}".replace("0", "O"), f"{gateway.url}/")
        body = CHAT.body(tools=1) | {
            "model": f"model-{number}",
            f"field_{number}": number,
            "user": f"u-{number}",
        }
        ask(
            gateway.url,
            CHAT,
            body,
            **{"user-agent": f"agent-{number}", "x-request-id": f"id-{number}"},
        )
        gemini = structs.replace(WHOLE[4], path=f"/v1beta/models/invented-{number}:generateContent")
        ask(gateway.url, gemini)

    with ScriptedServer(turn) as upstream, run_gateway(make_config(upstream.url)) as gateway:
        use_names(0)
        read_metrics(gateway)
        before = read_metrics(gateway)
        for number in range(1, 10):
            use_names(number)
        assert set(read_metrics(gateway)) == set(before)


def test_label_is_escaped_and_large_sum_is_exact() -> None:
    metrics = MetricRegistry()
    metrics.increment("toolspeak_tokens_total", 'a"b\\c\nd', amount=1_234_567_890_123)
    metrics.increment("toolspeak_tokens_total", 'a"b\\c\nd', amount=7)
    found = parse_samples(metrics.render())
    assert found[make_sample("toolspeak_tokens_total", kind='a"b\\c\nd')] == 1_234_567_890_130


def test_histogram_buckets_are_cumulative() -> None:
    metrics = MetricRegistry()
    for seconds in (0.0, 0.0005, 0.0006, 0.3, 1.0, 1.5):
        metrics.observe(seconds, "toolspeak_overhead_seconds", "true")
    found = parse_samples(metrics.render())
    ends = {"0.0005": 2, "0.001": 3, "0.25": 3, "0.5": 4, "1": 5, "+Inf": 6}
    for end, count in ends.items():
        bucket = make_sample("toolspeak_overhead_seconds_bucket", stream="true", le=end)
        assert found[bucket] == count
    assert found[make_sample("toolspeak_overhead_seconds_sum", stream="true")] == 2.8011


def test_metrics_of_several_processes_are_added() -> None:
    async def run() -> None:
        store = MemoryStore()
        shared = [SharedMetricRegistry(metrics := MetricRegistry(), store) for _ in range(2)]
        registries: list[MetricRegistry] = [registry._metrics for registry in shared]  # pyright: ignore[reportPrivateUsage]
        for index, metrics in enumerate(registries):
            metrics.observe(0.3 + index, "toolspeak_request_duration_seconds", "gemini")
            metrics.increment("toolspeak_refusals_total", "false")
            shared[index].start()
        await shared[0].stop()
        metrics.observe(0.3, "toolspeak_request_duration_seconds", "gemini")
        found = parse_samples(await shared[1].render())
        assert found[make_sample("toolspeak_refusals_total", kind="false")] == 2
        bucket = make_sample("toolspeak_request_duration_seconds_bucket", wire="gemini", le="0.5")
        assert found[bucket] == 2
        assert found[make_sample("toolspeak_request_duration_seconds_count", wire="gemini")] == 3
        await shared[1].stop()
        assert parse_samples(await shared[0].render()) == found

    asyncio.run(run())


class UnconfirmedStore(MemoryStore):
    """Executes every command, and claims that the first increments got no response."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self._failures_left = failures

    async def increment(self, key: str, amounts: Mapping[str, float], **batch: Any) -> None:
        await super().increment(key, amounts, **batch)
        self._failures_left -= 1
        self.last_error = "no response" if self._failures_left >= 0 else None


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_counts_whose_publication_is_not_confirmed_are_added_once(
    failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolspeak.observe.metrics._PUBLISH_INTERVAL", 0.01)

    async def run() -> None:
        store, metrics = UnconfirmedStore(failures), MetricRegistry()
        shared = SharedMetricRegistry(metrics, store)
        refusal = ("toolspeak_refusals_total", "false")
        metrics.increment(*refusal)
        shared.start()
        while not await store.read_counters("metrics"):
            await asyncio.sleep(0)
        # More is counted before the first batch is confirmed.
        metrics.increment(*refusal)
        await shared.stop()
        key = make_sample(refusal[0], kind="false")
        assert parse_samples(await shared.render())[key] == 2
        other = SharedMetricRegistry(MetricRegistry(), store)
        assert parse_samples(await other.render())[key] == 2

    asyncio.run(run())


def test_unknown_counters_of_another_version_are_ignored() -> None:
    amounts = {"toolspeak_requests_total": 1.0, "toolspeak_gone_total": 1.0, "a_sum": 2.0}
    assert "gone" not in (text := MetricRegistry().render(amounts))
    assert "a_sum" not in text


def test_request_that_was_not_decoded_has_no_mode() -> None:
    metrics = MetricRegistry()
    record = RequestRecord("req_1", "POST", "/v1/messages", "anthropic", is_chat=True)
    record.end(0, {})
    count_request(record, metrics)
    found = parse_samples(metrics.render())
    lost = {"wire": "anthropic", "mode": "", "status": "499"}
    assert found[make_sample("toolspeak_requests_total", **lost)] == 1


def test_fallback_is_counted_for_both_upstreams() -> None:
    with (
        ScriptedServer([Failure("overloaded", "later", 503)]) as broken,
        ScriptedServer(write_text("Hello.")) as other,
    ):
        config = make_config(broken.url)
        first = structs.replace(config.upstreams["scripted"], fallbacks=("other",))
        second = UpstreamSettings(wire="openai_chat", base_url=f"{other.url}/v1")
        config = structs.replace(config, upstreams={"scripted": first, "other": second})
        with run_gateway(config) as gateway:
            ask(gateway.url, CHAT)
            found = read_metrics(gateway)
    failed = {"upstream": "scripted", "kind": "overloaded"}
    assert found[make_sample("toolspeak_upstream_failures_total", **failed)] == 1
    assert found[make_sample("toolspeak_retries_total", reason="fallback")] == 1
    assert found[make_sample("toolspeak_upstream_first_byte_seconds_count", upstream="other")] == 1


# Dashboards, alerts and docs.

ROOT = Path(__file__).parents[2]


def list_queries() -> Iterator[tuple[str, str]]:
    """Return every query in the dashboard, the alerts and the docs, and its place."""
    board = json.loads((ROOT / "deploy" / "grafana.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield f"the panel {panel['title']!r}", target["expr"]
    rules = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())
    for rule in rules["groups"][0]["rules"]:
        yield rule["alert"], rule["expr"]
    page = (ROOT / "docs" / "observability.md").read_text()
    [block] = re.findall(r"```promql\n(.*?)```", page, re.S)
    for line in block.splitlines():
        if line and not line.startswith("#"):
            yield "docs/observability.md", line


def find_family(name: str) -> MetricFamily:
    """Return the family of a name in a query, with the labels that the name has."""
    if name in METRIC_FAMILIES and METRIC_FAMILIES[name].kind != "histogram":
        return METRIC_FAMILIES[name]
    stem, _, ending = name.rpartition("_")
    assert ending in ("bucket", "sum", "count"), name
    family = METRIC_FAMILIES[stem]
    return structs.replace(
        family, labels=(*family.labels, *(("le",) if ending == "bucket" else ()))
    )


@pytest.mark.parametrize(("place", "query"), [*list_queries()])
def test_query_uses_existing_metrics_and_labels(place: str, query: str) -> None:
    assert query.count("(") == query.count(")"), place
    found = re.findall(r"(toolspeak_\w+)(?:\{(.*?)\})?", query)
    assert found, place
    labels: set[str] = set()
    for name, selected in found:
        family = find_family(name)
        used = set(re.findall(r"(\w+)\s*(?:=~|!=|=)", selected))
        assert used <= set(family.labels), place
        labels.update(family.labels)
        if 'le="' in selected:
            [end] = re.findall(r'le="([\d.]+)"', selected)
            assert float(end) in family.buckets
    for given in re.findall(r"by \((.*?)\)", query):
        assert set(given.split(", ")) <= labels, place


def test_dashboard_shows_every_metric_without_overlaps() -> None:
    board = json.loads((ROOT / "deploy" / "grafana.json").read_text())
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    areas = [panel["gridPos"] for panel in panels]
    taken = [
        (x, y)
        for area in areas
        for x in range(area["x"], area["x"] + area["w"])
        for y in range(area["y"], area["y"] + area["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
    shown = " ".join(query for place, query in list_queries() if place.startswith("the panel"))
    assert all(name in shown for name in METRIC_FAMILIES)
    legends = [target for panel in panels for target in panel.get("targets", ())]
    for target in legends:
        for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
            assert re.search(rf"by \([^)]*\b{label}\b", target["expr"])
