"""Find out what a model can do, and which mode suits it best.

    report = await probe_model(model, upstreams)
    report.mode, report.reason          the recommended mode, and the reason

First each of `trials.py` finds out one capability, then every mode is scored on the same questions.
`config_advice.py` writes the recommendation to `toolspeak.toml`.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from msgspec import Struct, structs

from ..dialects.markers import find_taught_dialect
from ..engine.plan import DEFAULT_DIALECT
from ..types import ToolsMode
from ..upstream.catalog import ResolvedModel
from ..upstream.client import UpstreamClient
from .prober import CALL_QUESTIONS, QUESTIONS, ModelProber, ProbeQuestion, get_text_call_dialect
from .trials import TRIALS, Finding, Findings

_QUESTION_COUNT = len(QUESTIONS)
_COMMON_DIALECTS = (DEFAULT_DIALECT, "hermes", "fenced_json", "pythonic")
"""One of each kind that models write without being trained for it."""
_MAX_DIALECTS = 6


class ModeScore(Struct, frozen=True):
    """A model's results with its tools given in one mode."""

    mode: ToolsMode
    dialect: str | None = None
    calls: int = 0
    """Correct calls."""
    answers: int = 0
    """Correct answers to questions that need no call."""
    asked: int = 0
    fluent: int = 0
    """Correct calls in the requested dialect; calls in other dialects usually parse as well."""

    @property
    def correct(self) -> int:
        """Correct replies; 0 without a correct call, as answers alone do not make a mode usable."""
        return self.calls + self.answers if self.calls else 0

    @property
    def title(self) -> str:
        return f"{self.mode}, {self.dialect}" if self.dialect else self.mode


class Recommendation(Struct, frozen=True):
    """The best mode for a model, and the reason."""

    mode: ToolsMode
    reason: str
    dialect: str | None = None
    """The dialect of its calls, where they are text."""


class ProbeReport(Recommendation, frozen=True, kw_only=True):
    """The result of a probe."""

    model: str
    """The clients' name for it."""
    upstream: str
    name: str
    """The upstream's name for it."""
    findings: dict[str, Finding]
    scores: list[ModeScore]
    requests: int
    seconds: float
    shared: bool = False
    """Gateways with the same store use the mode for the next hour."""


async def probe_model(
    model: ResolvedModel, upstreams: UpstreamClient, on_step: Callable[[str], None] = lambda _: None
) -> ProbeReport:
    """Find out what a model can do; `on_step` receives the title of each step.

    Raises `UpstreamError` if the upstream cannot be reached.
    """
    began = monotonic()
    prober = ModelProber(model, upstreams, on_step)
    found: dict[str, Finding] = {}
    for name, (title, trial) in TRIALS.items():
        on_step(title)
        found[name] = await trial(prober)
    scores = await score_modes(prober, found)
    found["dialect"] = find_best_dialect(scores)
    recommended = recommend_mode(scores, found, prober.text_call_dialects)
    return ProbeReport(
        **structs.asdict(recommended),
        model=model.name,
        upstream=model.endpoint.name,
        name=model.profile.model,
        findings=found,
        scores=scores,
        requests=prober.request_count,
        seconds=round(monotonic() - began, 1),
    )


# Scoring.


async def score_modes(prober: ModelProber, found: Findings) -> list[ModeScore]:
    """Score every available mode on the same questions, prompt mode once per dialect."""
    scores: list[ModeScore] = []
    if found["native_tools"].value is not False:
        scores.append(await _score_mode(prober, "native", None, QUESTIONS))
    scores += await _score_dialects(prober)
    if found["json_schema"].value:
        scores.append(await _score_mode(prober, "constrained", None, QUESTIONS))
    return scores


async def _score_dialects(prober: ModelProber) -> list[ModeScore]:
    """Score dialects on the questions that need a call, until all calls of one are correct; then
    ask all questions in the best one."""
    scores: list[ModeScore] = []
    for dialect in list_candidate_dialects(prober):
        scores.append(await _score_mode(prober, "prompt", dialect, CALL_QUESTIONS))
        if scores[-1].fluent == len(CALL_QUESTIONS):
            break
    best = max(scores, key=lambda score: (score.calls, score.fluent))
    complete = await _score_mode(prober, "prompt", best.dialect, QUESTIONS)
    return [complete if score is best else score for score in scores]


def list_candidate_dialects(prober: ModelProber) -> list[str]:
    """Return the dialects to try: configured, seen in replies, known for the model, common."""
    configured = [prober.profile.dialect] if prober.profile.dialect else []
    taught = find_taught_dialect(prober.profile.model)
    known = [taught.name] if taught else []
    candidates = (*configured, *prober.text_call_dialects, *known, *_COMMON_DIALECTS)
    return list(dict.fromkeys(candidates))[:_MAX_DIALECTS]


async def _score_mode(
    prober: ModelProber, mode: ToolsMode, dialect: str | None, questions: tuple[ProbeQuestion, ...]
) -> ModeScore:
    score = ModeScore(mode, dialect, asked=len(questions))
    prober.on_step(score.title)
    replies = [(question, await prober.ask(question, mode, dialect)) for question in questions]
    correct = [(one, reply) for one, reply in replies if one.is_correct_reply(reply)]
    calls = [reply for question, reply in correct if question.truth]
    return structs.replace(
        score,
        calls=len(calls),
        answers=len(correct) - len(calls),
        fluent=sum(get_text_call_dialect(reply) == dialect for reply in calls),
    )


def select_full_scores(scores: list[ModeScore]) -> dict[ToolsMode, ModeScore]:
    """Return the score of each mode that was asked every question."""
    return {score.mode: score for score in scores if score.asked == _QUESTION_COUNT}


def find_best_dialect(scores: list[ModeScore]) -> Finding:
    best = select_full_scores(scores)["prompt"]
    if not best.calls:
        return Finding("none", "no correct call in prompt mode")
    return Finding(
        best.dialect, f"{best.calls} of {len(CALL_QUESTIONS)} calls in prompt mode are correct"
    )


# The recommendation.


def recommend_mode(scores: list[ModeScore], found: Findings, in_text: list[str]) -> Recommendation:
    """Choose the mode with the most correct replies.

    On a tie, native mode wins. Prompt mode comes next if all its replies are correct; otherwise
    constrained mode, whose calls are at least always valid.
    """
    modes = select_full_scores(scores)
    best = max(modes.values(), key=_rank_score)
    dialect = best.dialect or (in_text[0] if best.mode == "native" and in_text else None)
    reasons: list[str] = []
    if best.correct:
        others = [
            f"{score.mode}: {score.correct or 'no correct call'}"
            for score in modes.values()
            if score is not best
        ]
        comparison = f" ({', '.join(others)})" if others else ""
        reasons.append(f"{best.correct} of {_QUESTION_COUNT} replies are correct{comparison}")
        if best.mode == "native" and dialect:
            reasons.append(f"its calls arrive as text in the dialect {dialect}, which is parsed")
        if found["native_tools"].value is False:
            reasons.append("its API rejects tools")
    return Recommendation(best.mode, "; ".join(reasons) or _explain_failure(best), dialect)


def _rank_score(score: ModeScore) -> tuple[int, int]:
    if not score.correct:
        # Without any correct call, prefer the mode that cannot produce malformed ones.
        return 0, {"native": 0, "prompt": 1, "constrained": 2}[score.mode]
    is_perfect = score.correct == _QUESTION_COUNT
    return score.correct, {"native": 3, "prompt": 2 * is_perfect, "constrained": 1}[score.mode]


def _explain_failure(best: ModeScore) -> str:
    advice = (
        "constrained mode at least makes every call valid"
        if best.mode == "constrained"
        else "choose another model if you need tools"
    )
    return f"no mode produced a correct call; {advice}"
