"""What has happened so far, for Prometheus: in this process, or in all that share a store.

`FAMILIES` is all there is; `tally.py` says what a request adds to it. Labels are words of our own,
and names from the configuration: nothing that a client or a model makes up becomes one.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from time import time
from typing import Literal

import msgspec
from msgspec import Struct

from ..calls.drafts import new_call_id
from ..store.base import Store

_SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_HELD = (0.001, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LONG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Where a model on this machine, a provider's, and one that thinks for minutes can be told apart.

Sums in a store outlive a version: a histogram that gets other buckets needs another name."""


class Family(Struct, frozen=True):
    """Counters of one name, or histograms, one for each combination of labels."""

    about: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """The upper ends, in seconds, if it is a histogram."""
    kind: Literal["counter", "histogram", "gauge"] = "counter"


def _histogram(about: str, buckets: tuple[float, ...], *labels: str) -> Family:
    return Family(about, labels, buckets, "histogram")


_ACTIVE_REQUESTS = "toolspeak_active_requests"
FAMILIES: dict[str, Family] = {
    "toolspeak_requests_total": Family(
        "Requests, by the API that the client speaks, how the model was given tools, and status.",
        ("wire", "mode", "status"),
    ),
    "toolspeak_replies_total": Family(
        "Replies of models, by what they came to: those that would not do as well.", ("outcome",)
    ),
    "toolspeak_calls_total": Family(
        "Tool calls that clients got, by where they stood, and in which dialect.",
        ("stood", "dialect"),
    ),
    "toolspeak_repairs_total": Family(
        "Requests with a call that was repaired, by the note that says how.", ("reason",)
    ),
    "toolspeak_rejected_calls_total": Family(
        "Blocks that tried to be a call and were not made, by the note that says why.", ("code",)
    ),
    "toolspeak_refusals_total": Family(
        "Replies that refuse though tools were offered: false, or honest.", ("kind",)
    ),
    "toolspeak_notes_total": Family("Requests with a note, by its code.", ("code",)),
    "toolspeak_retries_total": Family(
        "Questions to upstreams beyond the first of a request, by reason.", ("reason",)
    ),
    "toolspeak_tokens_total": Family("Tokens as upstreams counted them, by kind.", ("kind",)),
    "toolspeak_upstream_failures_total": Family(
        "Failures of upstreams, by upstream and kind.", ("upstream", "kind")
    ),
    "toolspeak_request_seconds": _histogram(
        "How long a chat took, from its first byte to the last of its reply.", _LONG, "wire"
    ),
    "toolspeak_overhead_seconds": _histogram(
        "What the gateway itself took of that, as `x-toolspeak-overhead-ms` tells.",
        _SHORT,
        "stream",
    ),
    "toolspeak_upstream_seconds": _histogram(
        "How long an upstream took until the head of its reply was there.", _LONG, "upstream"
    ),
    "toolspeak_holdback_seconds": _histogram(
        "The longest time that something of a streamed reply was held back before it left.", _HELD
    ),
    _ACTIVE_REQUESTS: Family("Requests that are being served.", kind="gauge"),
}
"""Every metric there is."""
Key = tuple[str, ...]
"""The name of a family, and the values of its labels."""
_KEY, _ACTIVE = "metrics", "active"
_EVERY = 1.0
_FRESH = 3.0
"""How many seconds it counts what a process says of itself: it may have died since."""
_MOST = 256


class _Histogram:
    """How many values there were of each size, and their sum."""

    __slots__ = ("buckets", "counts", "sum")

    def __init__(self, buckets: tuple[float, ...]) -> None:
        self.buckets = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.sum = 0.0

    def lines(self, name: str, labels: Iterable[tuple[str, str]]) -> Iterator[tuple[str, float]]:
        labels = tuple(labels)
        ends = (*map("{:g}".format, self.buckets), "+Inf")
        for end, count in zip(ends, accumulate(self.counts), strict=True):
            yield _line(f"{name}_bucket", (*labels, ("le", end))), count
        yield _line(f"{name}_sum", labels), self.sum
        yield _line(f"{name}_count", labels), sum(self.counts)


class Metrics:
    """Counters, histograms, and how many requests there are now."""

    def __init__(self) -> None:
        self._counts: dict[Key, float] = {}
        self._histograms: dict[Key, _Histogram] = {}
        self.active = 0

    def count(self, *key: str, amount: float = 1) -> None:
        """Something has happened: the name of a family, and its labels in order."""
        self._counts[key] = self._counts.get(key, 0) + amount

    def observe(self, seconds: float, *key: str) -> None:
        """Something has taken so long."""
        histogram = self._histograms.get(key)
        if histogram is None:
            histogram = self._histograms[key] = _Histogram(FAMILIES[key[0]].buckets)
        histogram.counts[bisect_left(histogram.buckets, seconds)] += 1
        histogram.sum += seconds

    def amounts(self) -> dict[str, float]:
        """Every counter by the line it is written as. Those of several processes can be added."""
        lines = {_line(key[0], _labels(key)): amount for key, amount in self._counts.items()}
        for key, histogram in self._histograms.items():
            lines.update(histogram.lines(key[0], _labels(key)))
        return lines

    def text(self, amounts: Mapping[str, float] | None = None, active: int | None = None) -> str:
        """All of it, as Prometheus reads it; of several processes, if given."""
        known = {**(amounts or self.amounts())}
        known[_ACTIVE_REQUESTS] = self.active if active is None else active
        return "\n".join(_written(known)) + "\n"


def _labels(key: Key) -> Iterable[tuple[str, str]]:
    return zip(FAMILIES[key[0]].labels, key[1:], strict=True)


def _written(amounts: Mapping[str, float]) -> Iterator[str]:
    """The amounts by family, each with what it means."""
    families: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for line in amounts:
        name = line.partition("{")[0]
        if name not in families:
            name = name.rpartition("_")[0]
        # Another version may have counted what this one does not know.
        if name in families:
            families[name].append(line)
    for name, lines in families.items():
        about, kind = FAMILIES[name].about, FAMILIES[name].kind
        yield f"# HELP {name} {about}"
        yield f"# TYPE {name} {kind}"
        for line in sorted(lines, key=_order) if kind == "histogram" else sorted(lines):
            yield f"{line} {amounts[line]:.17g}"


def _order(line: str) -> tuple[str, bool, float]:
    """The buckets of one histogram in order, before its sum and its count."""
    name, _, labels = line.partition("{")
    before, is_bucket, end = labels.rpartition('le="')
    if not is_bucket:
        return labels.rstrip("}"), True, name.endswith("_count")
    return before.rstrip(","), False, float(end.rstrip('"}'))


class _Activity(Struct, frozen=True, array_like=True):
    """How many requests a process was serving at some time."""

    process: str
    active: int
    time: float


_DECODER = msgspec.msgpack.Decoder(_Activity)


def _decoded(data: bytes) -> _Activity | None:
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError:
        # Another version of the gateway may have written it.
        return None


class SharedMetrics:
    """The metrics of all processes that share a store. Each adds what it has counted."""

    def __init__(self, metrics: Metrics, store: Store) -> None:
        self._metrics = metrics
        self._store = store
        self._process = new_call_id()
        self._added: dict[str, float] = {}
        self._known: dict[str, float] = {}
        """The last sums, for while the store is away."""
        self._said = 0
        self._lock = asyncio.Lock()
        self._adding: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Add what is new about once in a second."""
        self._adding = asyncio.create_task(self._keep_adding())

    async def stop(self) -> None:
        """Add what is left."""
        if self._adding:
            self._adding.cancel()
            await asyncio.wait((self._adding,))
            await self._add()

    async def text(self) -> str:
        """All of it, as Prometheus reads it."""
        async with self._lock:
            self._known = await self._store.read_counters(_KEY) or self._known
            sums = Counter(self._known)
            sums.update(self._new())
        return self._metrics.text(sums, await self._active())

    async def _keep_adding(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            await self._add()

    async def _add(self) -> None:
        async with self._lock:
            amounts, new = self._metrics.amounts(), self._new()
            if new:
                await self._store.increment(_KEY, new)
                # What the store did not take is added the next time.
                self._added = amounts if self._store.last_error is None else self._added
        active = self._metrics.active
        if active or self._said:
            said = msgspec.msgpack.encode(_Activity(self._process, active, time()))
            await self._store.push(_ACTIVE, said, max_items=_MOST, seconds=_FRESH)
        self._said = active

    def _new(self) -> dict[str, float]:
        """What the store does not know yet. A bucket without anything in it has to be there."""
        added = self._added
        return {
            line: amount - added.get(line, 0)
            for line, amount in self._metrics.amounts().items()
            if amount != added.get(line)
        }

    async def _active(self) -> int:
        """How many requests all processes serve, as far as they have said so lately."""
        said = map(_decoded, await self._store.list_items(_ACTIVE))
        fresh = [one for one in said if one and time() - one.time < _FRESH]
        # The newest comes first, and has to count.
        others = {one.process: one.active for one in reversed(fresh)}
        return sum((others | {self._process: self._metrics.active}).values())


def _line(name: str, labels: Iterable[tuple[str, str]]) -> str:
    inside = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels)
    return f"{name}{{{inside}}}" if inside else name


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
