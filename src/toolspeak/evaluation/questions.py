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
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, structs

from ..errors import UsageError
from ..types import ToolCall

RELEVANCE = "relevance"
"""The category of questions that no tool can help with."""
OWN_SET = "Toolspeak's own set"
"""What stands for the path of the set that is shipped."""


class EvalQuestion(Struct, frozen=True):
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


_DECODER = msgspec.json.Decoder(EvalQuestion)


def read_questions(path: Path | None = None) -> list[EvalQuestion]:
    """The questions of a file, or those that are shipped."""
    name, data = (str(path), path.read_bytes()) if path else (OWN_SET, _read_own_set())
    questions: list[EvalQuestion] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        place = f"{name}, line {number}"
        question = _decode_question(line, place)
        if question.id in lines:
            raise UsageError(f"{place}: {question.id!r} stands in line {lines[question.id]} too")
        lines[question.id] = number
        questions.append(question)
    if not questions:
        raise UsageError(f"{name} has no questions")
    return questions


def select_questions(
    questions: list[EvalQuestion], *, start: int = 1, every: int = 1, limit: int | None = None
) -> list[EvalQuestion]:
    """A part of the questions: each `every`th from number `start` on, at most `limit`."""
    part = questions[start - 1 :: every][:limit]
    if not part:
        raise UsageError(f"no question is left: there are {len(questions)}, and none from {start}")
    return part


def _read_own_set() -> bytes:
    return resources.files("toolspeak").joinpath("evaluation", "questions.jsonl").read_bytes()


def _decode_question(line: bytes, place: str) -> EvalQuestion:
    try:
        question = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise UsageError(f"{place}: {problem}") from None
    for problem in _find_problems(question):
        raise UsageError(f"{place}: {problem}")
    return question if question.id else structs.replace(question, id=question.digest)


def _find_problems(question: EvalQuestion) -> Iterator[str]:
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


_IGNORED = re.compile(r"[ ,./\-_*^]")
_NUMBER = re.compile(r"[ _]\d+$")


def is_correct(question: EvalQuestion, calls: Sequence[ToolCall]) -> bool:
    """Whether these calls are what the question asks for."""
    if question.category == RELEVANCE:
        return not calls
    wanted = list(_expected_calls(question))
    if len(wanted) != len(calls):
        return False
    left = list(calls)
    for name, accepted in wanted:
        match = next(
            (call for call in left if _is_expected_call(call, name, accepted, question)), None
        )
        if match is None:
            return False
        left.remove(match)
    return True


def _expected_calls(question: EvalQuestion) -> Iterator[tuple[str, Any]]:
    """The calls to make. A name with a number at its end is a tool that is called repeatedly."""
    names = {tool["name"] for tool in question.tools}
    truth = question.truth or {}
    for one in truth if isinstance(truth, list) else [truth]:
        for name, accepted in one.items():
            bare = name if name in names else _NUMBER.sub("", name)
            # A few truths leave out the namespace of the tool.
            full = [tool for tool in names if tool == bare or tool.endswith(f".{bare}")]
            yield full[0] if full else bare, accepted


def _is_expected_call(call: ToolCall, name: str, accepted: Any, question: EvalQuestion) -> bool:
    tool = next((tool for tool in question.tools if tool["name"] == name), None)
    # A truth of the leaderboard is broken: nothing is right there.
    if tool is None or not isinstance(accepted, dict):
        return False
    is_whole = call.name == name and _required_parameters(tool) <= call.arguments.keys()
    return is_whole and _match_arguments(call.arguments, accepted)


def _required_parameters(tool: Mapping[str, Any]) -> set[str]:
    return set(tool.get("parameters", {}).get("required", ()))


def _match_arguments(values: Mapping[str, Any], accepted: Mapping[str, Any]) -> bool:
    """Whether each value is an accepted one, and each that is not there may be left out."""
    return values.keys() <= accepted.keys() and all(
        _is_accepted(values[key], _as_list(ones)) if key in values else "" in _as_list(ones)
        for key, ones in accepted.items()
    )


def _is_accepted(value: Any, accepted: Sequence[Any]) -> bool:
    return any(_match_value(value, one) for one in accepted)


def _match_value(value: Any, accepted: Any) -> bool:
    if isinstance(accepted, dict) and isinstance(value, dict):
        return _match_arguments(value, accepted)
    if isinstance(accepted, list) and isinstance(value, list):
        return len(value) == len(accepted) and all(map(_match_value, value, accepted))
    if isinstance(accepted, str) and isinstance(value, str):
        return _normalize_text(value) == _normalize_text(accepted)
    if isinstance(value, bool) or isinstance(accepted, bool):
        return value is accepted
    return type(value) in (int, float) and type(accepted) in (int, float) and value == accepted


def _as_list(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [values]


def _normalize_text(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')
