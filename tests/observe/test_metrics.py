"""What the gateway counts, as Prometheus' own parser reads it."""

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
from tests.gateway.running_gateway import Running, behind, running
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


def sample(name: str, **labels: str) -> Sample:
    return name, frozenset(labels.items())


def samples(text: str) -> dict[Sample, float]:
    """What Prometheus reads; every histogram has to make sense."""
    found: dict[Sample, float] = {}
    for family in text_string_to_metric_families(text):
        known = METRIC_FAMILIES[family.name if family.type != "counter" else f"{family.name}_total"]
        assert (family.type, family.documentation) == (known.kind, known.help)
        for one in family.samples:
            key = sample(one.name, **one.labels)
            assert key not in found
            found[key] = one.value
        if family.type == "histogram":
            check(family.name, found)
    return found


def check(name: str, found: dict[Sample, float]) -> None:
    """Buckets only grow, the last of them is the count, and the sum is between their ends."""
    for (which, labels), count in found.items():
        if which != f"{name}_count":
            continue
        buckets = {
            float(dict(others)["le"]): value
            for (one, others), value in found.items()
            if one == f"{name}_bucket" and labels < others
        }
        assert tuple(buckets) == (*METRIC_FAMILIES[name].buckets, float("inf"))
        assert list(buckets.values()) == sorted(buckets.values())
        assert buckets[float("inf")] == count > 0
        assert found[f"{name}_sum", labels] >= 0


def counted(gateway: Running) -> dict[Sample, float]:
    answer = HTTP.get(f"{gateway.url}/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4"
    return samples(answer.text)


def called(name: str, **arguments: Any) -> list[Event]:
    call = ToolCall(id="call_1", name=name, arguments=arguments)
    return [CallStart(0, call.id, name), CallEnd(0, call), Finish("calls")]


def said(text: str, usage: Usage | None = None) -> list[Event]:
    return [TextDelta(text), Finish("stop", usage=usage)]


@contextmanager
def served(*turns: Sequence[Event], **model: Any) -> Generator[Running, None, None]:
    with ScriptedServer(*turns) as upstream, running(behind(upstream.url, **model)) as gateway:
        yield gateway


def test_every_client() -> None:
    with served(said("Hello.", Usage(7, 3))) as gateway:
        for client in CLIENTS:
            ask(gateway.url, client)
        found = counted(gateway)
    for wire in {client.wire for client in CLIENTS}:
        many = sum(client.wire == wire for client in CLIENTS)
        requests = {"wire": wire, "mode": "native", "status": "200"}
        assert found[sample("toolspeak_requests_total", **requests)] == many
        assert found[sample("toolspeak_request_duration_seconds_count", wire=wire)] == many
    streams = sum(client.stream for client in CLIENTS)
    assert found[sample("toolspeak_overhead_seconds_count", stream="true")] == streams
    whole = sample("toolspeak_overhead_seconds_count", stream="false")
    assert found[whole] == len(CLIENTS) - streams
    assert found[sample("toolspeak_holdback_seconds_count")] == streams
    assert found[sample("toolspeak_upstream_first_byte_seconds_count", upstream="scripted")] == len(
        CLIENTS
    )
    assert found[sample("toolspeak_replies_total", outcome="answer")] == len(CLIENTS)
    assert found[sample("toolspeak_tokens_total", kind="input")] == 7 * len(CLIENTS)
    assert found[sample("toolspeak_active_requests")] == 1


REFUSED = "I'm sorry, but I don't have access to any tools."
OPENED = '<tool_call>{"name": "get_weather", "arguments": {}}</tool_call>'
CASES: dict[str, tuple[list[Any], dict[str, Any], dict[Sample, float]]] = {
    "a call of its own": (
        [called("get_weather")],
        {"tools": "native"},
        {
            sample("toolspeak_calls_total", source="native", dialect="native"): 1,
            sample("toolspeak_replies_total", outcome="calls"): 1,
        },
    ),
    "a call in its text": (
        [said(OPENED)],
        {"tools": "native"},
        {sample("toolspeak_calls_total", source="text", dialect="hermes"): 1},
    ),
    "a call that was asked for by a prompt": (
        [said(OPENED)],
        {"tools": "prompt", "dialect": "hermes"},
        {sample("toolspeak_calls_total", source="prompt", dialect="hermes"): 1},
    ),
    "a repair": (
        [said(OPENED.replace("{}}", "{},}"))],
        {"tools": "native"},
        {
            sample("toolspeak_repairs_total", code="repaired-trailing-comma"): 1,
            sample("toolspeak_notes_total", code="repaired-trailing-comma"): 1,
        },
    ),
    "a repair in a reply that did not do": (
        [
            said(OPENED.replace("{}}", "{},}").replace("get_weather", "nothing_like_it")),
            said("No."),
        ],
        {"tools": "native"},
        {
            sample("toolspeak_rejected_calls_total", code="unknown-tool"): 1,
            sample("toolspeak_replies_total", outcome="unknown-tool"): 1,
            sample("toolspeak_replies_total", outcome="answer"): 1,
            sample("toolspeak_retries_total", reason="unknown-tool"): 1,
            sample("toolspeak_upstream_first_byte_seconds_count", upstream="scripted"): 2,
        },
    ),
    "a false refusal": (
        [said(REFUSED), called("get_weather")],
        {"tools": "native"},
        {
            sample("toolspeak_refusals_total", kind="false"): 1,
            sample("toolspeak_retries_total", reason="false-refusal"): 1,
            sample("toolspeak_notes_total", code="retried"): 1,
            sample("toolspeak_calls_total", source="native", dialect="native"): 1,
            sample("toolspeak_requests_total", wire="openai_chat", mode="native", status="200"): 1,
        },
    ),
    "an honest refusal": (
        [said("I can't check that, since it is not known in which city you are.")],
        {"tools": "native"},
        {sample("toolspeak_refusals_total", kind="honest"): 1},
    ),
    "a failure": (
        [[Failure("rate_limit", "slower", 429)]],
        {"tools": "native"},
        {
            sample("toolspeak_upstream_failures_total", upstream="scripted", kind="rate_limit"): 1,
            sample("toolspeak_requests_total", wire="openai_chat", mode="native", status="429"): 1,
            sample("toolspeak_request_duration_seconds_count", wire="openai_chat"): 1,
        },
    ),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_what_is_counted(case: str, stream: bool) -> None:
    turns, model, expected = CASES[case]
    with served(*turns, **model) as gateway:
        client = (STREAMED if stream else WHOLE)[0]
        ask(gateway.url, client, client.body("What is the weather in Oslo?", tools=["get_weather"]))
        found = counted(gateway)
    assert {key: found.get(key) for key in expected} == expected


def test_repairs_are_notes() -> None:
    assert set(NOTES) >= REPAIRS
    assert {code for code in NOTES if code.startswith("repaired-")} < REPAIRS


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [("It is a fine day. " * 3, 0.0, 0.05), (OPENED, 0.3, 20.0)],
    ids=["words", "a call"],
)
def test_what_is_held_back(text: str, least: float, most: float) -> None:
    pieces = [TextDelta(text[at : at + 6]) for at in range(0, len(text), 6)]
    turn: list[Event] = [*pieces, Finish("stop")]
    with (
        ScriptedServer(turn, pause=0.05) as upstream,
        running(behind(upstream.url, tools="native")) as gateway,
    ):
        ask(gateway.url, STREAMED[0], STREAMED[0].body(tools=1))
        found = counted(gateway)
    assert found[sample("toolspeak_holdback_seconds_count")] == 1
    assert least <= found[sample("toolspeak_holdback_seconds_sum")] <= most


def test_a_model_that_takes_its_time_is_not_held_back() -> None:
    """What comes before its words says nothing, and what comes after is not waited for."""
    turn: list[Event] = [TextDelta("Hello there, "), TextDelta("you."), Finish("stop")]
    with (
        ScriptedServer(turn, pause=0.3) as upstream,
        running(behind(upstream.url, tools="native")) as gateway,
    ):
        ask(gateway.url, STREAMED[0], STREAMED[0].body(tools=1))
        assert counted(gateway)[sample("toolspeak_holdback_seconds_sum")] < 0.1


def test_nobody_can_make_more_of_them() -> None:
    """Whatever a client or a model makes up is no label."""
    names = iter(range(100))

    def turn(_: Any) -> list[Event]:
        return called(f"made_up_{next(names)}")

    def make_up(at: int) -> None:
        HTTP.get(f"{gateway.url}/nowhere/{at}")
        HTTP.request(f"M{at}".replace("0", "O"), f"{gateway.url}/")
        body = CHAT.body(tools=1) | {"model": f"model-{at}", f"field_{at}": at, "user": f"u-{at}"}
        ask(gateway.url, CHAT, body, **{"user-agent": f"agent-{at}", "x-request-id": f"id-{at}"})
        gemini = structs.replace(WHOLE[4], path=f"/v1beta/models/made-up-{at}:generateContent")
        ask(gateway.url, gemini)

    with ScriptedServer(turn) as upstream, running(behind(upstream.url)) as gateway:
        make_up(0)
        counted(gateway)
        before = counted(gateway)
        for at in range(1, 10):
            make_up(at)
        assert set(counted(gateway)) == set(before)


def test_odd_labels_and_large_numbers() -> None:
    metrics = MetricRegistry()
    metrics.increment("toolspeak_tokens_total", 'a"b\\c\nd', amount=1_234_567_890_123)
    metrics.increment("toolspeak_tokens_total", 'a"b\\c\nd', amount=7)
    found = samples(metrics.render())
    assert found[sample("toolspeak_tokens_total", kind='a"b\\c\nd')] == 1_234_567_890_130


def test_histograms() -> None:
    metrics = MetricRegistry()
    for seconds in (0.0, 0.0005, 0.0006, 0.3, 1.0, 1.5):
        metrics.observe(seconds, "toolspeak_overhead_seconds", "true")
    found = samples(metrics.render())
    ends = {"0.0005": 2, "0.001": 3, "0.25": 3, "0.5": 4, "1": 5, "+Inf": 6}
    for end, count in ends.items():
        bucket = sample("toolspeak_overhead_seconds_bucket", stream="true", le=end)
        assert found[bucket] == count
    assert found[sample("toolspeak_overhead_seconds_sum", stream="true")] == 2.8011


def test_several_processes_are_summed_up() -> None:
    async def run() -> None:
        store = MemoryStore()
        shared = [SharedMetricRegistry(metrics := MetricRegistry(), store) for _ in range(2)]
        every: list[MetricRegistry] = [one._metrics for one in shared]  # pyright: ignore[reportPrivateUsage]
        for at, metrics in enumerate(every):
            metrics.observe(0.3 + at, "toolspeak_request_duration_seconds", "gemini")
            metrics.increment("toolspeak_refusals_total", "false")
            shared[at].start()
        await shared[0].stop()
        metrics.observe(0.3, "toolspeak_request_duration_seconds", "gemini")
        found = samples(await shared[1].render())
        assert found[sample("toolspeak_refusals_total", kind="false")] == 2
        bucket = sample("toolspeak_request_duration_seconds_bucket", wire="gemini", le="0.5")
        assert found[bucket] == 2
        assert found[sample("toolspeak_request_duration_seconds_count", wire="gemini")] == 3
        await shared[1].stop()
        assert samples(await shared[0].render()) == found

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
        key = sample(refusal[0], kind="false")
        assert samples(await shared.render())[key] == 2
        other = SharedMetricRegistry(MetricRegistry(), store)
        assert samples(await other.render())[key] == 2

    asyncio.run(run())


def test_what_another_version_has_counted() -> None:
    amounts = {"toolspeak_requests_total": 1.0, "toolspeak_gone_total": 1.0, "a_sum": 2.0}
    assert "gone" not in (text := MetricRegistry().render(amounts))
    assert "a_sum" not in text


def test_nothing_is_known_of_what_was_not_understood() -> None:
    metrics = MetricRegistry()
    record = RequestRecord("req_1", "POST", "/v1/messages", "anthropic", is_chat=True)
    record.end(0, {})
    count_request(record, metrics)
    found = samples(metrics.render())
    lost = {"wire": "anthropic", "mode": "", "status": "499"}
    assert found[sample("toolspeak_requests_total", **lost)] == 1


def test_a_fallback() -> None:
    with (
        ScriptedServer([Failure("overloaded", "later", 503)]) as broken,
        ScriptedServer(said("Hello.")) as other,
    ):
        config = behind(broken.url)
        first = structs.replace(config.upstreams["scripted"], fallbacks=("other",))
        second = UpstreamSettings(wire="openai_chat", base_url=f"{other.url}/v1")
        config = structs.replace(config, upstreams={"scripted": first, "other": second})
        with running(config) as gateway:
            ask(gateway.url, CHAT)
            found = counted(gateway)
    failed = {"upstream": "scripted", "kind": "overloaded"}
    assert found[sample("toolspeak_upstream_failures_total", **failed)] == 1
    assert found[sample("toolspeak_retries_total", reason="fallback")] == 1
    assert found[sample("toolspeak_upstream_first_byte_seconds_count", upstream="other")] == 1


# What is written about them.

ROOT = Path(__file__).parents[2]


def queries() -> Iterator[tuple[str, str]]:
    """Every question that is asked of Prometheus, and where."""
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
            yield "the page", line


def family_of(name: str) -> MetricFamily:
    """What a name in a question stands for."""
    if name in METRIC_FAMILIES and METRIC_FAMILIES[name].kind != "histogram":
        return METRIC_FAMILIES[name]
    stem, _, ending = name.rpartition("_")
    assert ending in ("bucket", "sum", "count"), name
    family = METRIC_FAMILIES[stem]
    return structs.replace(
        family, labels=(*family.labels, *(("le",) if ending == "bucket" else ()))
    )


@pytest.mark.parametrize(("where", "query"), [*queries()])
def test_questions_can_be_answered(where: str, query: str) -> None:
    assert query.count("(") == query.count(")"), where
    found = re.findall(r"(toolspeak_\w+)(?:\{(.*?)\})?", query)
    assert found, where
    labels: set[str] = set()
    for name, selected in found:
        family = family_of(name)
        asked = set(re.findall(r"(\w+)\s*(?:=~|!=|=)", selected))
        assert asked <= set(family.labels), where
        labels.update(family.labels)
        if 'le="' in selected:
            [end] = re.findall(r'le="([\d.]+)"', selected)
            assert float(end) in family.buckets
    for given in re.findall(r"by \((.*?)\)", query):
        assert set(given.split(", ")) <= labels, where


def test_the_dashboard() -> None:
    board = json.loads((ROOT / "deploy" / "grafana.json").read_text())
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    taken = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
    shown = " ".join(query for where, query in queries() if where.startswith("the panel"))
    assert all(name in shown for name in METRIC_FAMILIES)
    legends = [target for panel in panels for target in panel.get("targets", ())]
    for target in legends:
        for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
            assert re.search(rf"by \([^)]*\b{label}\b", target["expr"])
