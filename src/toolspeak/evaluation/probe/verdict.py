"""Which way of giving a model its tools is the best, by what was counted."""

from __future__ import annotations

from msgspec import Struct

from ...types import ToolsMode
from .findings import Findings
from .questions import QUESTIONS
from .scores import Score, contenders

_ALL = len(QUESTIONS)


class Verdict(Struct, frozen=True):
    """How a model is best given tools, and why."""

    mode: ToolsMode
    reason: str
    dialect: str | None = None
    """What it writes its calls in, where they are text."""


def verdict(counted: list[Score], found: Findings, written: list[str]) -> Verdict:
    """The mode with the most right replies. Of equals it is the model's own tools; then a prompt,
    but where that does not get everything right, a schema: at least its calls are all valid."""
    modes = contenders(counted)
    best = max(modes.values(), key=_rank)
    dialect = best.dialect or (written[0] if best.mode == "native" and written else None)
    if not best.right:
        return Verdict(best.mode, _hopeless(best), dialect)
    return Verdict(best.mode, _reason(best, modes, found, dialect), dialect)


def _rank(score: Score) -> tuple[int, int]:
    prompt_is_fine = score.mode == "prompt" and score.right == _ALL
    if not score.right:
        # Nothing was right, so what cannot be wrong in its form comes first.
        return 0, {"native": 0, "prompt": 1, "constrained": 2}[score.mode]
    return score.right, {"native": 3, "prompt": 2 * prompt_is_fine, "constrained": 1}[score.mode]


def _reason(
    best: Score, modes: dict[ToolsMode, Score], found: Findings, dialect: str | None
) -> str:
    others = [_told(score) for score in modes.values() if score is not best]
    beside = f" ({', '.join(others)})" if others else ""
    reasons = [f"{best.right} of {_ALL} replies are right{beside}"]
    if best.mode == "native" and dialect:
        reasons.append(f"its calls come as text, in the dialect {dialect}, and are found there")
    if found["native_tools"].value is False:
        reasons.append("it takes no tools by the API")
    return "; ".join(reasons)


def _told(score: Score) -> str:
    if not score.calls:
        return f"{score.mode}: no right call"
    return f"{score.mode}: {score.right}"


def _hopeless(best: Score) -> str:
    advice = (
        "a schema at least makes every call valid"
        if best.mode == "constrained"
        else "choose another model if you need tools"
    )
    return f"no way has brought a single right call; {advice}"
