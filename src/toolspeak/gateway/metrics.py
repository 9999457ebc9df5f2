"""What has happened so far, for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

_NAMES = {
    "toolspeak_requests_total": "Requests, by wire, mode and status.",
    "toolspeak_calls_total": "Tool calls that were made, by where they stood.",
    "toolspeak_notes_total": "Notes, by code.",
    "toolspeak_retries_total": "Requests to upstreams beyond the first, by reason.",
    "toolspeak_tokens_total": "Tokens as upstreams counted them, by kind.",
    "toolspeak_upstream_failures_total": "Failures of upstreams, by upstream and kind.",
}
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters, and how many requests there are now."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Labels]] = Counter()
        self.active = 0

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Something has happened."""
        self._counts[name, tuple(labels.items())] += amount  # pyright: ignore[reportArgumentType]

    def amounts(self) -> dict[str, float]:
        """Every counter by the line it is written as."""
        return {_line(name, labels): amount for (name, labels), amount in self._counts.items()}

    def text(self, amounts: Mapping[str, float] | None = None) -> str:
        """All of it, as Prometheus reads it; of several processes, if given."""
        return "\n".join(self._lines(amounts or self.amounts())) + "\n"

    def _lines(self, amounts: Mapping[str, float]) -> Iterator[str]:
        for name, about in _NAMES.items():
            yield f"# HELP {name} {about}"
            yield f"# TYPE {name} counter"
            for line, amount in sorted(amounts.items()):
                if line.partition("{")[0] == name:
                    yield f"{line} {amount:g}"
        yield "# HELP toolspeak_active_requests Requests that are being served."
        yield "# TYPE toolspeak_active_requests gauge"
        yield f"toolspeak_active_requests {self.active}"


def _line(name: str, labels: Labels) -> str:
    if not labels:
        return name
    inside = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels)
    return f"{name}{{{inside}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
