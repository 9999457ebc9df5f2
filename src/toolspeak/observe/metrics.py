"""Prometheus metrics, of this process or of all processes that share a store.

`METRIC_FAMILIES` lists every metric; `count_request` adds a finished request to them. Label values
are names from the code or the configuration, never text of a client or a model.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import accumulate
from time import time
from typing import Literal

import msgspec
from msgspec import Struct

from .._util import random_id
from ..notes import REPAIRS
from ..store.base import Store
from ..upstream.record import AttemptRecord, RequestRecord

# Sums in a store outlive a version: a histogram whose buckets change needs a new name.
_OVERHEAD_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_HOLDBACK_BUCKETS = (0.001, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_FAST_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_DURATION_BUCKETS = (*_FAST_BUCKETS, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Fine enough for a local model, and long enough for one that reasons for minutes."""


class MetricFamily(Struct, frozen=True):
    """The counters or histograms of one name, one for each combination of labels."""

    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram, in seconds."""
    kind: Literal["counter", "histogram", "gauge"] = "counter"


def _histogram(help_: str, buckets: tuple[float, ...], *labels: str) -> MetricFamily:
    return MetricFamily(help_, labels, buckets, "histogram")


_ACTIVE_REQUESTS = "toolspeak_active_requests"
STORE_PROBLEMS = "toolspeak_store_problems_total"
METRIC_FAMILIES: dict[str, MetricFamily] = {
    "toolspeak_requests_total": MetricFamily(
        "Requests by client API, tool mode and HTTP status.", ("wire", "mode", "status")
    ),
    "toolspeak_replies_total": MetricFamily(
        "Model replies by outcome, including those that were retried.", ("outcome",)
    ),
    "toolspeak_calls_total": MetricFamily(
        "Tool calls returned to clients, by source and dialect.", ("source", "dialect")
    ),
    "toolspeak_repairs_total": MetricFamily(
        "Requests with a repaired call, by the code of the note.", ("code",)
    ),
    "toolspeak_rejected_calls_total": MetricFamily(
        "Rejected tool calls, by the code of the note.", ("code",)
    ),
    "toolspeak_refusals_total": MetricFamily(
        "Refusals of requests that offer tools, by kind: false or honest.", ("kind",)
    ),
    "toolspeak_notes_total": MetricFamily("Requests with a note, by its code.", ("code",)),
    "toolspeak_retries_total": MetricFamily(
        "Retries and fallbacks of requests, by reason.", ("reason",)
    ),
    "toolspeak_tokens_total": MetricFamily("Tokens as reported by upstreams.", ("kind",)),
    "toolspeak_upstream_failures_total": MetricFamily(
        "Upstream failures by upstream and kind.", ("upstream", "kind")
    ),
    STORE_PROBLEMS: MetricFamily(
        "Store problems: failed operations, outages, and values too large to be stored.",
        ("kind",),
    ),
    "toolspeak_request_duration_seconds": _histogram(
        "Duration of a chat request, from its first byte to the last byte of the response.",
        _DURATION_BUCKETS,
        "wire",
    ),
    "toolspeak_overhead_seconds": _histogram(
        "Time spent in the gateway itself, as in `x-toolspeak-overhead-ms`.",
        _OVERHEAD_BUCKETS,
        "stream",
    ),
    "toolspeak_upstream_first_byte_seconds": _histogram(
        "Time until an upstream sent the headers of its response.", _DURATION_BUCKETS, "upstream"
    ),
    "toolspeak_holdback_seconds": _histogram(
        "Longest time that a part of a streamed reply was held back.", _HOLDBACK_BUCKETS
    ),
    _ACTIVE_REQUESTS: MetricFamily("Requests in progress.", kind="gauge"),
}
SeriesKey = tuple[str, ...]
"""Name of a family, and the values of its labels in order."""
_SUMS_KEY, _ACTIVITY_KEY = "metrics", "active"
_PUBLISH_INTERVAL = 1.0
_ACTIVITY_LIFETIME = 3.0
"""Seconds after which a process that reports nothing counts as gone."""
_MAX_ACTIVITIES = 256


class _Histogram:
    """Counts of one histogram series by bucket, and the sum of its values."""

    __slots__ = ("buckets", "counts", "total")

    def __init__(self, buckets: tuple[float, ...]) -> None:
        self.buckets = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.total = 0.0

    def samples(self, name: str, labels: Iterable[tuple[str, str]]) -> Iterator[tuple[str, float]]:
        labels = tuple(labels)
        ends = (*map("{:g}".format, self.buckets), "+Inf")
        for end, count in zip(ends, accumulate(self.counts), strict=True):
            yield _format_series(f"{name}_bucket", (*labels, ("le", end))), count
        yield _format_series(f"{name}_sum", labels), self.total
        yield _format_series(f"{name}_count", labels), sum(self.counts)


class MetricRegistry:
    """The metrics of this process."""

    def __init__(self) -> None:
        self._counts: dict[SeriesKey, float] = {}
        self._histograms: dict[SeriesKey, _Histogram] = {}
        self.active_requests = 0

    def increment(self, *key: str, amount: float = 1) -> None:
        """Add to a counter, given by family name and label values."""
        self._counts[key] = self._counts.get(key, 0) + amount

    def observe(self, seconds: float, *key: str) -> None:
        """Add a value to a histogram, given by family name and label values."""
        histogram = self._histograms.get(key)
        if histogram is None:
            histogram = self._histograms[key] = _Histogram(METRIC_FAMILIES[key[0]].buckets)
        histogram.counts[bisect_left(histogram.buckets, seconds)] += 1
        histogram.total += seconds

    def samples(self) -> dict[str, float]:
        """Return each series, as Prometheus names it, with its value.

        The samples of several processes can be added up.
        """
        samples = {
            _format_series(key[0], _label_pairs(key)): amount
            for key, amount in self._counts.items()
        }
        for key, histogram in self._histograms.items():
            samples.update(histogram.samples(key[0], _label_pairs(key)))
        return samples

    def render(self, samples: Mapping[str, float] | None = None, active: int | None = None) -> str:
        """Return the text format of Prometheus; of the given samples, if any."""
        all_ = {**(samples or self.samples())}
        all_[_ACTIVE_REQUESTS] = self.active_requests if active is None else active
        return "\n".join(_render_families(all_)) + "\n"


def _label_pairs(key: SeriesKey) -> Iterable[tuple[str, str]]:
    return zip(METRIC_FAMILIES[key[0]].labels, key[1:], strict=True)


def _render_families(samples: Mapping[str, float]) -> Iterator[str]:
    families: dict[str, list[str]] = {name: [] for name in METRIC_FAMILIES}
    for series in samples:
        name = series.partition("{")[0]
        if name not in families:
            name = name.rpartition("_")[0]
        # A store may hold metrics of another version.
        if name in families:
            families[name].append(series)
    for name, all_series in families.items():
        family = METRIC_FAMILIES[name]
        yield f"# HELP {name} {family.help}"
        yield f"# TYPE {name} {family.kind}"
        order = _histogram_order if family.kind == "histogram" else None
        for series in sorted(all_series, key=order):
            yield f"{series} {samples[series]:.17g}"


def _histogram_order(series: str) -> tuple[str, bool, float]:
    """Sort key: the buckets of a histogram in order, then its sum and its count."""
    name, _, labels = series.partition("{")
    before, is_bucket, end = labels.rpartition('le="')
    if not is_bucket:
        return labels.rstrip("}"), True, name.endswith("_count")
    return before.rstrip(","), False, float(end.rstrip('"}'))


_Activity = tuple[str, int, float]
"""A process, the number of its active requests, and when it had them."""
_ACTIVITY_DECODER = msgspec.msgpack.Decoder(_Activity)


class SharedMetricRegistry:
    """The metrics of all processes that share a store; each adds its own counts.

    The store may add a batch without this process learning of it, if the response takes too long.
    Such a batch is sent again with the same number, and the store adds it only once.
    """

    def __init__(self, metrics: MetricRegistry, store: Store) -> None:
        self._metrics = metrics
        self._store = store
        self._process = random_id()
        self._published: dict[str, float] = {}
        self._sent: dict[str, float] = self._published
        """Samples that are published as soon as the last batch is confirmed."""
        self._batch_number = 0
        self._last_sums: dict[str, float] = {}
        """Used while the store is unavailable."""
        self._last_active = 0
        self._lock = asyncio.Lock()
        self._publisher: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    def start(self) -> None:
        self._publisher = asyncio.create_task(self._publish_until_stopped())

    async def stop(self) -> None:
        """Publish the remaining counts."""
        self._stopping.set()
        if self._publisher:
            await self._publisher

    async def render(self) -> str:
        async with self._lock:
            await self._publish_counts()
            self._last_sums = await self._store.read_counters(_SUMS_KEY) or self._last_sums
            sums = Counter(self._last_sums)
            sums.update(self._find_unpublished(self._metrics.samples()))
        return self._metrics.render(sums, await self._count_active())

    async def _publish_until_stopped(self) -> None:
        is_stopping = False
        while not is_stopping:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PUBLISH_INTERVAL):
                    await self._stopping.wait()
            is_stopping = self._stopping.is_set()
            async with self._lock:
                await self._publish_counts()
            await self._publish_activity()
        if self._sent is not self._published:
            # One more attempt: on a busy machine, the store may have been too slow just once.
            await asyncio.sleep(_PUBLISH_INTERVAL)
            await self._publish_counts()

    async def _publish_counts(self) -> None:
        """Add what is new to the sums in the store, after a batch that was not confirmed."""
        for _ in range(2):
            if self._sent is self._published:
                self._sent = self._metrics.samples()
                self._batch_number += 1
            if amounts := self._find_unpublished(self._sent):
                number = self._batch_number
                await self._store.increment(_SUMS_KEY, amounts, writer=self._process, batch=number)
                if self._store.last_error is not None:
                    return
            self._published = self._sent

    def _find_unpublished(self, samples: dict[str, float]) -> dict[str, float]:
        """Return what was not published yet, including new buckets that are still 0."""
        published = self._published
        return {
            series: value - published.get(series, 0)
            for series, value in samples.items()
            if value != published.get(series)
        }

    async def _publish_activity(self) -> None:
        active = self._metrics.active_requests
        if active or self._last_active:
            activity = msgspec.msgpack.encode((self._process, active, time()))
            await self._store.push(
                _ACTIVITY_KEY, activity, max_items=_MAX_ACTIVITIES, seconds=_ACTIVITY_LIFETIME
            )
        self._last_active = active

    async def _count_active(self) -> int:
        """Return the number of active requests of all processes that reported recently."""
        active: dict[str, int] = {}
        # The store lists the newest first; the newest of each process counts.
        for data in reversed(await self._store.list_items(_ACTIVITY_KEY)):
            # Another version of the gateway may have written it.
            with suppress(msgspec.MsgspecError):
                process, count, moment = _ACTIVITY_DECODER.decode(data)
                if time() - moment < _ACTIVITY_LIFETIME:
                    active[process] = count
        return sum((active | {self._process: self._metrics.active_requests}).values())


def _format_series(name: str, labels: Iterable[tuple[str, str]]) -> str:
    inside = ",".join(f'{key}="{_escape_label(value)}"' for key, value in labels)
    return f"{name}{{{inside}}}" if inside else name


def _escape_label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# What a request adds.

_REFUSAL_KINDS = {"false-refusal": "false", "refusal": "honest"}


def count_request(record: RequestRecord, metrics: MetricRegistry) -> None:
    """Add a finished request to the metrics."""
    count = metrics.increment
    count("toolspeak_requests_total", record.wire, record.mode, str(record.status))
    if not record.is_chat:
        return
    metrics.observe(record.seconds, "toolspeak_request_duration_seconds", record.wire)
    if record.overhead is not None:
        stream = "true" if record.is_stream else "false"
        metrics.observe(record.overhead, "toolspeak_overhead_seconds", stream)
    if record.holdback is not None:
        metrics.observe(record.holdback, "toolspeak_holdback_seconds")
    for attempt in record.attempts:
        _count_attempt(attempt, metrics)
    for reason in record.retries:
        count("toolspeak_retries_total", reason)
    for upstream, kind in record.failures:
        count("toolspeak_upstream_failures_total", upstream, kind)
    _count_reply(record, metrics)
    _count_notes(record, metrics)


def _count_attempt(attempt: AttemptRecord, metrics: MetricRegistry) -> None:
    if attempt.first_byte is not None:
        seconds = attempt.first_byte - attempt.started
        metrics.observe(seconds, "toolspeak_upstream_first_byte_seconds", attempt.server.name)
    if attempt.outcome:
        metrics.increment("toolspeak_replies_total", attempt.outcome)
        if attempt.outcome in _REFUSAL_KINDS:
            metrics.increment("toolspeak_refusals_total", _REFUSAL_KINDS[attempt.outcome])
    if attempt.reply:
        for rejection in attempt.reply.rejected:
            metrics.increment("toolspeak_rejected_calls_total", rejection.code)


def _count_reply(record: RequestRecord, metrics: MetricRegistry) -> None:
    reply = record.reply
    if reply is None:
        return
    if calls := reply.calls:
        is_in_text = record.mode == "native" and any(call.dialect for call in calls)
        source = "text" if is_in_text else record.mode
        dialect = reply.dialect or "none"
        metrics.increment("toolspeak_calls_total", source, dialect, amount=len(calls))
    if reply.usage:
        metrics.increment("toolspeak_tokens_total", "input", amount=reply.usage.input)
        metrics.increment("toolspeak_tokens_total", "output", amount=reply.usage.output)


def _count_notes(record: RequestRecord, metrics: MetricRegistry) -> None:
    codes = record.note_codes
    for code in codes:
        metrics.increment("toolspeak_notes_total", code)
    # Repairs in replies that were retried for another reason count as well.
    for attempt in record.attempts:
        if attempt.reply and attempt.reply.notes:
            codes += [note.code for note in attempt.reply.notes]
    if codes:
        for code in REPAIRS.intersection(codes):
            metrics.increment("toolspeak_repairs_total", code)
