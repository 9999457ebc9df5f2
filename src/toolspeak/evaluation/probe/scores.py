"""What each way of giving a model its tools comes to, counted on the same questions."""

from __future__ import annotations

from msgspec import Struct

from ...dialects.registry import dialects_for_model
from ...engine.plan import DEFAULT_DIALECT
from ...types import ToolsMode
from .asking import Asker, dialect_of
from .findings import Finding, Findings
from .questions import CALLS, QUESTIONS, Question

_COMMON = (DEFAULT_DIALECT, "hermes", "fenced_json", "pythonic")
"""What models write that were never told what to write, each of another kind."""
_MOST_DIALECTS = 6


class Score(Struct, frozen=True):
    """How a model did with its tools given in one way."""

    mode: ToolsMode
    dialect: str | None = None
    calls: int = 0
    """Right ones."""
    answers: int = 0
    """Right ones, where no call was to be made."""
    asked: int = 0
    fluent: int = 0
    """Calls in the very dialect that was asked for: others are understood too, as a rule."""

    @property
    def right(self) -> int:
        """How many replies were right. A way by which no call comes is not used for its answers."""
        return self.calls + self.answers if self.calls else 0

    @property
    def title(self) -> str:
        """What people call it."""
        return f"{self.mode}, {self.dialect}" if self.dialect else self.mode


async def scores(asker: Asker, found: Findings) -> list[Score]:
    """Every way that there is, the dialects of a prompt from the likeliest on."""
    asker.begin("native")
    counted: list[Score] = []
    if found["native_tools"].value is not False:
        counted.append(await _score(asker, "native", None, QUESTIONS))
    counted += await _prompted(asker)
    if found["json_schema"].value:
        asker.begin("constrained")
        counted.append(await _score(asker, "constrained", None, QUESTIONS))
    return counted


async def _prompted(asker: Asker) -> list[Score]:
    """The dialects by their calls; the best of them is asked the rest, too. None can do better than
    one that makes every call in the right way, so that is the last."""
    tried: list[Score] = []
    for dialect in candidates(asker):
        asker.begin(f"prompt, {dialect}")
        tried.append(await _score(asker, "prompt", dialect, CALLS))
        if tried[-1].fluent == len(CALLS):
            break
    best = max(tried, key=lambda score: (score.calls, score.fluent))
    asker.begin(best.title)
    whole = await _score(asker, "prompt", best.dialect, QUESTIONS)
    return [whole if score is best else score for score in tried]


def candidates(asker: Asker) -> list[str]:
    """The dialects to try: the one that is configured, those that the model has written without
    being asked to, the ones that its name stands for, and those that many know."""
    configured = [asker.target.dialect] if asker.target.dialect else []
    known = [dialect.name for dialect in dialects_for_model(asker.target.model)[:1]]
    listed = dict.fromkeys((*configured, *asker.written, *known, *_COMMON))
    return list(listed)[:_MOST_DIALECTS]


async def _score(
    asker: Asker, mode: ToolsMode, dialect: str | None, questions: tuple[Question, ...]
) -> Score:
    calls = answers = fluent = 0
    for question in questions:
        reply = await asker.question(question, mode, dialect)
        if not question.is_answered_by(reply):
            continue
        calls += bool(question.name)
        answers += not question.name
        fluent += bool(question.name) and dialect_of(reply) == dialect
    return Score(mode, dialect, calls, answers, len(questions), fluent)


def contenders(counted: list[Score]) -> dict[ToolsMode, Score]:
    """The one score of each mode that was asked everything."""
    return {score.mode: score for score in counted if score.asked == len(QUESTIONS)}


def best_dialect(counted: list[Score]) -> Finding:
    """The dialect that brings the most right calls by a prompt."""
    best = contenders(counted)["prompt"]
    if not best.calls:
        return Finding("none", "no prompt has brought a right call")
    return Finding(best.dialect, f"{best.calls} of {len(CALLS)} calls by a prompt are right")
