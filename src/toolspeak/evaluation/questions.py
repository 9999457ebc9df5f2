"""Questions with known answers, one JSON object a line.

{"id": "simple_1", "category": "simple", "question": "What is the weather in Oslo?",
 "tools": [{"name": "get_weather", "description": "…", "parameters": {…}}],
 "truth": {"get_weather": {"city": ["Oslo"], "unit": ["celsius", ""]}}}

`truth` has the calls to make, and for each parameter the values that are right; "" among them says
that it may be left out. A tool that is called repeatedly has a number behind its name: `f_1`,
`f_2`. The fields are those of the Berkeley Function-Calling Leaderboard.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, structs

from ..errors import UsageError

RELEVANCE = "relevance"
"""The category of questions that no tool can help with."""
OWN = "Toolspeak's own set"
"""What stands for the path of the set that is shipped."""


class Question(Struct, frozen=True):
    """What is asked, which tools are offered, and what is right."""

    category: str
    question: Annotated[str, Meta(min_length=1)]
    tools: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    truth: dict[str, Any] | list[dict[str, Any]] | None = None
    id: str = ""

    @property
    def digest(self) -> str:
        """Tells a question from another of the same id."""
        said = msgspec.json.encode((self.category, self.question, self.tools, self.truth))
        return hashlib.sha256(said).hexdigest()[:16]


_DECODER = msgspec.json.Decoder(Question)


def read_questions(path: Path | None = None) -> list[Question]:
    """The questions of a file, or those that are shipped."""
    name, data = (str(path), path.read_bytes()) if path else (OWN, _own())
    questions: list[Question] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        place = f"{name}, line {number}"
        question = _question(line, place)
        if question.id in lines:
            raise UsageError(f"{place}: {question.id!r} stands in line {lines[question.id]} too")
        lines[question.id] = number
        questions.append(question)
    if not questions:
        raise UsageError(f"{name} has no questions")
    return questions


def chosen(
    questions: list[Question], *, start: int = 1, every: int = 1, limit: int | None = None
) -> list[Question]:
    """A part of the questions: each `every`th from number `start` on, at most `limit`."""
    part = questions[start - 1 :: every][:limit]
    if not part:
        raise UsageError(f"no question is left: there are {len(questions)}, and none from {start}")
    return part


def _own() -> bytes:
    return resources.files("toolspeak").joinpath("evaluation", "questions.jsonl").read_bytes()


def _question(line: bytes, place: str) -> Question:
    try:
        question = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise UsageError(f"{place}: {problem}") from None
    for problem in _problems(question):
        raise UsageError(f"{place}: {problem}")
    return question if question.id else structs.replace(question, id=question.digest)


def _problems(question: Question) -> Iterator[str]:
    """What no type can say."""
    for index, tool in enumerate(question.tools):
        if not isinstance(tool.get("name"), str):
            yield f"Expected the name of a tool - at `$.tools[{index}].name`"
        if not isinstance(tool.get("parameters", {}), dict):
            yield f"Expected a JSON schema - at `$.tools[{index}].parameters`"
    names = {tool.get("name") for tool in question.tools}
    truths = question.truth if isinstance(question.truth, list) else [question.truth or {}]
    for name, accepted in (item for truth in truths for item in truth.items()):
        if name in names and not isinstance(accepted, dict):
            yield f"Expected the values that are right for each parameter - at `$.truth.{name}`"
    if question.category == RELEVANCE and question.truth:
        yield "no call is right where the category is `relevance` - at `$.truth`"
    if question.category != RELEVANCE and not question.truth:
        yield "the calls that are right are missing; only `relevance` has none - at `$.truth`"
