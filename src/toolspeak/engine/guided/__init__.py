"""What a small model is asked, one decision at a time.

It cannot tell which tool fits, nor how many calls there should be, and it makes up values. So words
decide on the tools, the question's own pieces are the values, and the model chooses among them,
held to a schema. Whether it is worth it was measured: see `docs/reliability.md`.

    guide = Guide("How is the weather in Oslo and Rome?", tools)
    guide.step            what to ask the model, and the schema that its answer has to fit
    guide.hear({…})       what it has answered
    guide.calls           when there is nothing left to ask; none, if the question is not for tools
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from ...types import Tool
from .choosing import is_fitting, score, tasks
from .filling import Filling, NoValue, Step
from .pieces import Question, without_quotes
from .several import repetitions

__all__ = ["Guide", "Step"]

Json = dict[str, Any]
Call = tuple[Tool, Json]
_MOST_CALLS = 32
"""What lists of lists may come to, for one tool."""
_LONGEST = 4000


def _short(question: str) -> str:
    """The beginning and the end of a long text: what it is about stands there, as a rule."""
    if len(question) <= _LONGEST:
        return question
    return f"{question[: _LONGEST // 2]}\n{question[-_LONGEST // 2 :]}"


class Guide:
    """Leads a model to the calls that a question asks for."""

    def __init__(self, question: str, tools: Sequence[Tool], *, must: bool = False) -> None:
        self._question = _short(without_quotes(question))
        self._tools = tools
        self._must = must
        self.calls: list[Call] = []
        self.step: Step | None = None
        self._steps = self._run()
        self._go_on(None)

    def hear(self, said: Json) -> None:
        """What the model has answered."""
        self._go_on(said)

    def _go_on(self, said: Json | None) -> None:
        try:
            self.step = next(self._steps) if said is None else self._steps.send(said)
        except StopIteration:
            self.step = None

    def _run(self) -> Generator[Step, Json, None]:
        best = max(self._tools, key=lambda tool: score(self._question, tool))
        if not (self._must or is_fitting(self._question, best)):
            return
        earlier: Json = {}
        for task in tasks(self._question, self._tools):
            question = Question(task.text)
            again = any(tool is task.tool for tool, _ in self.calls)
            if again and not question.is_telling:
                continue
            try:
                made = yield from self._calls(question, task.tool, earlier)
            except NoValue:
                continue
            for arguments in made:
                if (task.tool, arguments) not in self.calls:
                    self.calls.append((task.tool, arguments))
                    earlier |= arguments

    def _calls(
        self, question: Question, tool: Tool, earlier: Json
    ) -> Generator[Step, Json, list[Json]]:
        """The arguments of all calls to a tool."""
        filling = self._filling(question, tool, earlier)
        first = yield from filling.run()
        made: list[Json] = []
        for given, only in repetitions(filling, first, _MOST_CALLS):
            another = self._filling(question, tool, earlier)
            another.given, another.only = given, only
            made.append((yield from another.run()))
        return made or [first]

    def _filling(self, question: Question, tool: Tool, earlier: Json) -> Filling:
        names = (other.name for other in self._tools)
        return Filling(
            question,
            tool,
            context=self._question,
            earlier=dict(earlier),
            not_values=names,
            must=self._must,
        )
