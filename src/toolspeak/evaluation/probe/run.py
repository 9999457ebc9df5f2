"""The walk of a probe: the trials in their order, then the scores, then the verdict."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from msgspec import Struct

from ...types import ToolsMode
from ...upstream.catalog import ResolvedModel
from ...upstream.client import UpstreamClient
from .asking import Asker
from .findings import Finding
from .scores import Score, best_dialect, scores
from .trials import TITLES, TRIALS
from .verdict import verdict


class Report(Struct, frozen=True):
    """All that was found out about a model."""

    model: str
    """What clients call it."""
    upstream: str
    name: str
    """What the upstream calls it."""
    findings: dict[str, Finding]
    scores: list[Score]
    mode: ToolsMode
    dialect: str | None
    reason: str
    requests: int
    seconds: float


async def probe(
    served: ResolvedModel,
    upstreams: UpstreamClient,
    on_question: Callable[[str], None] = lambda _: None,
) -> Report:
    """Ask a model what it can do. `on_question` is told what is being found out, at each question.
    An upstream that cannot be reached raises `UpstreamFailed`."""
    began = monotonic()
    asker = Asker(served, upstreams, on_question)
    found: dict[str, Finding] = {}
    for name, trial in TRIALS.items():
        asker.begin(TITLES[name])
        found[name] = await trial(asker, found)
    counted = await scores(asker, found)
    found["dialect"] = best_dialect(counted)
    chosen = verdict(counted, found, asker.written)
    return Report(
        model=served.name,
        upstream=served.endpoint.name,
        name=served.profile.model,
        findings=found,
        scores=counted,
        mode=chosen.mode,
        dialect=chosen.dialect,
        reason=chosen.reason,
        requests=asker.asked,
        seconds=round(monotonic() - began, 1),
    )
