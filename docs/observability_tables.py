"""The tables of observability.md, from the code."""

from __future__ import annotations

from toolspeak.notes import REPAIRS
from toolspeak.observe.metrics import METRIC_FAMILIES, MetricFamily


def tables() -> dict[str, str]:
    """Return the generated parts of the page by name."""
    return {"metrics": _metrics(), "buckets": _buckets(), "repairs": _repairs()}


def _metrics() -> str:
    rows = [
        f"| `{name}` | {family.kind} | {_labels(family)} | {family.help} |"
        for name, family in METRIC_FAMILIES.items()
    ]
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows])


def _labels(family: MetricFamily) -> str:
    return ", ".join(f"`{label}`" for label in family.labels)


def _buckets() -> str:
    rows = [
        f"| `{name}` | {', '.join(f'{end:g}' for end in family.buckets)} |"
        for name, family in METRIC_FAMILIES.items()
        if family.buckets
    ]
    return "\n".join(["| histogram | seconds |", "|---|---|", *rows])


def _repairs() -> str:
    codes = sorted(code for code in REPAIRS if not code.startswith("repaired-"))
    return f"`repaired-…`, {', '.join(f'`{code}`' for code in codes)}."
