"""What has happened so far, for Prometheus: in this process, or in all that share a store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from time import time

import msgspec
from msgspec import Struct

from ..calls import new_id
from .store import Store

_NAMES = {
    "toolspeak_requests_total": "Requests, by wire, mode and status.",
    "toolspeak_calls_total": "Tool calls that were made, by where they stood.",
    "toolspeak_notes_total": "Notes, by code.",
    "toolspeak_retries_total": "Requests to upstreams beyond the first, by reason.",
    "toolspeak_tokens_total": "Tokens as upstreams counted them, by kind.",
    "toolspeak_upstream_failures_total": "Failures of upstreams, by upstream and kind.",
}
Labels = tuple[tuple[str, str], ...]
_KEY, _ACTIVE = "metrics", "active"
_EVERY = 1.0
_FRESH = 3.0
"""How many seconds it counts what a process says of itself: it may have died since."""
_MOST = 256


class Metrics:
    """Counters, and how many requests there are now."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, Labels], float] = {}
        self.active = 0

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Something has happened."""
        counter = (name, tuple(labels.items()))
        self._counts[counter] = self._counts.get(counter, 0) + amount

    def amounts(self) -> dict[str, float]:
        """Every counter by the line it is written as."""
        return {_line(name, labels): amount for (name, labels), amount in self._counts.items()}

    def text(self, amounts: Mapping[str, float] | None = None, active: int | None = None) -> str:
        """All of it, as Prometheus reads it; of several processes, if given."""
        active = self.active if active is None else active
        return "\n".join(self._lines(amounts or self.amounts(), active)) + "\n"

    def _lines(self, amounts: Mapping[str, float], active: int) -> Iterator[str]:
        for name, about in _NAMES.items():
            yield f"# HELP {name} {about}"
            yield f"# TYPE {name} counter"
            for line, amount in sorted(amounts.items()):
                if line.partition("{")[0] == name:
                    yield f"{line} {amount:.17g}"
        yield "# HELP toolspeak_active_requests Requests that are being served."
        yield "# TYPE toolspeak_active_requests gauge"
        yield f"toolspeak_active_requests {active}"


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
        self._process = new_id()
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
            self._known = await self._store.amounts(_KEY) or self._known
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
                await self._store.add(_KEY, new)
                # What the store did not take is added the next time.
                self._added = amounts if self._store.problem is None else self._added
        active = self._metrics.active
        if active or self._said:
            said = msgspec.msgpack.encode(_Activity(self._process, active, time()))
            await self._store.push(_ACTIVE, said, most=_MOST, seconds=_FRESH)
        self._said = active

    def _new(self) -> dict[str, float]:
        """What the store does not know yet."""
        new = {
            line: amount - self._added.get(line, 0)
            for line, amount in self._metrics.amounts().items()
        }
        return {line: amount for line, amount in new.items() if amount}

    async def _active(self) -> int:
        """How many requests all processes serve, as far as they have said so lately."""
        said = map(_decoded, await self._store.items(_ACTIVE))
        fresh = [one for one in said if one and time() - one.time < _FRESH]
        # The newest comes first, and has to count.
        others = {one.process: one.active for one in reversed(fresh)}
        return sum((others | {self._process: self._metrics.active}).values())


def _line(name: str, labels: Labels) -> str:
    if not labels:
        return name
    inside = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels)
    return f"{name}{{{inside}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
