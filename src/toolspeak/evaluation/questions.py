"""Questions with known answers, one JSON object per line, and the grading of calls.

{"id": "simple_1", "category": "simple", "question": "What is the weather in Oslo?",
 "tools": [{"name": "get_weather", "description": "…", "parameters": {…}}],
 "truth": {"get_weather": {"city": ["Oslo"], "unit": ["celsius", ""]}}}

`truth` holds the expected calls with the accepted values of each parameter; "" among them makes the
parameter optional. Repeated calls to one tool are numbered: `f_1`, `f_2`. Fields and grading are
those of the Berkeley Function-Calling Leaderboard: names must be equal, required parameters
present, no parameter unknown, and each value among the accepted ones. Strings are compared without
case, spaces and `,./-_*^`; an integer is accepted for a float. Calls may come in any order.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, structs

from ..errors import UsageError
from ..types import ToolCall

Truth = dict[str, Any] | list[dict[str, Any]]
"""Expected calls: the accepted values of each parameter, by the tool's name."""
RELEVANCE = "relevance"
"""The category of questions for which no tool is relevant."""
BUILT_IN_SET = "the built-in set"
"""Shown instead of a path for the questions that ship with Toolspeak."""


class EvalQuestion(Struct, frozen=True):
    """A question, the tools on offer, and the expected calls."""

    category: str
    question: Annotated[str, Meta(min_length=1)]
    tools: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    truth: Truth | None = None
    id: str = ""

    @property
    def digest(self) -> str:
        """Distinguishes versions of a question with the same id."""
        encoded = msgspec.json.encode((self.category, self.question, self.tools, self.truth))
        return hashlib.sha256(encoded).hexdigest()[:16]


_DECODER = msgspec.json.Decoder(EvalQuestion)


def read_questions(path: Path | None = None) -> list[EvalQuestion]:
    """Read the questions of a file, or those that ship with Toolspeak."""
    name = str(path or BUILT_IN_SET)
    data = (path or Path(__file__).with_name("questions.jsonl")).read_bytes()
    questions: list[EvalQuestion] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        place = f"{name}, line {number}"
        question = _decode_question(line, place)
        if question.id in lines:
            raise UsageError(
                f"{place}: the id {question.id!r} is also on line {lines[question.id]}"
            )
        lines[question.id] = number
        questions.append(question)
    if not questions:
        raise UsageError(f"{name} has no questions")
    return questions


def _decode_question(line: bytes, place: str) -> EvalQuestion:
    try:
        question = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise UsageError(f"{place}: {problem}") from None
    for problem in _find_problems(question):
        raise UsageError(f"{place}: {problem}")
    return question if question.id else structs.replace(question, id=question.digest)


def _find_problems(question: EvalQuestion) -> Iterator[str]:
    """Yield problems that the types do not cover."""
    for index, tool in enumerate(question.tools):
        if not isinstance(tool.get("name"), str):
            yield f"Expected the name of a tool - at `$.tools[{index}].name`"
        if not isinstance(tool.get("parameters", {}), dict):
            yield f"Expected a JSON schema - at `$.tools[{index}].parameters`"
    names = {tool.get("name") for tool in question.tools}
    truths = question.truth if isinstance(question.truth, list) else [question.truth or {}]
    for name, accepted in (item for truth in truths for item in truth.items()):
        if name in names and not isinstance(accepted, dict):
            yield f"Expected the accepted values of each parameter - at `$.truth.{name}`"
    if question.category == RELEVANCE and question.truth:
        yield "the category `relevance` expects no calls - at `$.truth`"
    if question.category != RELEVANCE and not question.truth:
        yield "the expected calls are missing; only `relevance` has none - at `$.truth`"


_IGNORED = re.compile(r"[ ,./\-_*^]")
_NUMBER = re.compile(r"[ _]\d+$")


def is_correct(question: EvalQuestion, calls: Sequence[ToolCall]) -> bool:
    """Compare calls with those that the question expects."""
    if question.category == RELEVANCE:
        return not calls
    return has_expected_calls(calls, question.truth or {}, question.tools)


def has_expected_calls(
    calls: Sequence[ToolCall], truth: Truth, tools: Sequence[Mapping[str, Any]]
) -> bool:
    """Return True if the calls are exactly those that `truth` holds, in any order."""
    required = {tool["name"]: set(tool.get("parameters", {}).get("required", ())) for tool in tools}
    left = list(calls)
    for name, accepted in _expected_calls(truth, required):
        matches = (
            call
            for call in left
            if call.name == name in required
            and required[name] <= call.arguments.keys()
            and _match_arguments(call.arguments, accepted)
        )
        match = next(matches, None)
        if match is None:
            return False
        left.remove(match)
    return not left


def _expected_calls(truth: Truth, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield the expected calls; a number at the end of a name marks a repeated call."""
    for one in truth if isinstance(truth, list) else [truth]:
        for name, accepted in one.items():
            bare = name if name in names else _NUMBER.sub("", name)
            # A few of the leaderboard's truths omit the tool's namespace.
            full = [tool for tool in names if tool == bare or tool.endswith(f".{bare}")]
            yield full[0] if full else bare, accepted


def _match_arguments(values: Mapping[str, Any], accepted: Any) -> bool:
    """Check that each value is accepted, and that each absent parameter is optional."""
    # One of the leaderboard's truths is malformed: no call can match it.
    if not isinstance(accepted, dict) or not values.keys() <= accepted.keys():
        return False
    for key, value in accepted.items():
        choices = value if isinstance(value, list) else [value]
        if key not in values:
            is_accepted = "" in choices
        else:
            is_accepted = any(_match_value(values[key], one) for one in choices)
        if not is_accepted:
            return False
    return True


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


def _normalize_text(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')
