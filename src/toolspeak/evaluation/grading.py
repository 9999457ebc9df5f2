"""Whether calls are right, as the Berkeley Function-Calling Leaderboard decides it.

The names have to be the same, required parameters present, none unknown, and each value among the
accepted ones: texts without regard to case, spaces and `,./-_*^`, and an integer is fine where a
float is. Calls may come in any order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..types import ToolCall
from .questions import RELEVANCE, Question

_IGNORED = re.compile(r"[ ,./\-_*^]")
_NUMBER = re.compile(r"[ _]\d+$")


def is_right(question: Question, calls: Sequence[ToolCall]) -> bool:
    """Whether these calls are what the question asks for."""
    if question.category == RELEVANCE:
        return not calls
    wanted = list(_wanted(question))
    if len(wanted) != len(calls):
        return False
    left = list(calls)
    for name, accepted in wanted:
        match = next((call for call in left if _is_one(call, name, accepted, question)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _wanted(question: Question) -> Iterator[tuple[str, Any]]:
    """The calls to make. A name with a number at its end is a tool that is called repeatedly."""
    names = {tool["name"] for tool in question.tools}
    truth = question.truth or {}
    for one in truth if isinstance(truth, list) else [truth]:
        for name, accepted in one.items():
            bare = name if name in names else _NUMBER.sub("", name)
            # A few truths leave out the namespace of the tool.
            full = [tool for tool in names if tool == bare or tool.endswith(f".{bare}")]
            yield full[0] if full else bare, accepted


def _is_one(call: ToolCall, name: str, accepted: Any, question: Question) -> bool:
    tool = next((tool for tool in question.tools if tool["name"] == name), None)
    # A truth of the leaderboard is broken: nothing is right there.
    if tool is None or not isinstance(accepted, dict):
        return False
    is_whole = call.name == name and _required(tool) <= call.arguments.keys()
    return is_whole and _fits(call.arguments, accepted)


def _required(tool: Mapping[str, Any]) -> set[str]:
    return set(tool.get("parameters", {}).get("required", ()))


def _fits(values: Mapping[str, Any], accepted: Mapping[str, Any]) -> bool:
    """Whether each value is an accepted one, and each that is not there may be left out."""
    return values.keys() <= accepted.keys() and all(
        _is_accepted(values[key], _as_list(ones)) if key in values else "" in _as_list(ones)
        for key, ones in accepted.items()
    )


def _is_accepted(value: Any, accepted: Sequence[Any]) -> bool:
    return any(_matches(value, one) for one in accepted)


def _matches(value: Any, accepted: Any) -> bool:
    if isinstance(accepted, dict) and isinstance(value, dict):
        return _fits(value, accepted)
    if isinstance(accepted, list) and isinstance(value, list):
        return len(value) == len(accepted) and all(map(_matches, value, accepted))
    if isinstance(accepted, str) and isinstance(value, str):
        return _folded(value) == _folded(accepted)
    if isinstance(value, bool) or isinstance(accepted, bool):
        return value is accepted
    return type(value) in (int, float) and type(accepted) in (int, float) and value == accepted


def _as_list(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [values]


def _folded(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')
