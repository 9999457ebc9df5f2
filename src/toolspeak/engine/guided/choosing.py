"""Which tools a question is about, by its words: small models do not know, and say any."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from ...calls.schema import get_properties
from ...types import Tool
from .words import keys

_SENTENCE = re.compile(r"(?<=[.?!;])[\"')]*\s+(?=[\"'(]*[A-Z0-9¿¡])|\n+")
_CLAUSE = re.compile(
    r"(?:,\s*|\s+)(?:and then|and also|and|then|also|as well as|plus)\s+|;\s*"
    r"|,\s+(?=(?:what|how|who|find|calculate|get|also|then)\b)",
    re.I,
)
_QUOTED = re.compile(r"'[^'\n]{1,80}'(?!\w)|\"[^\"\n]{1,80}\"")
_ENOUGH, _AHEAD = 0.34, 0.1
"""How much of a tool's words a piece of the question has to have, and how much more than the next
tool's, to be about it."""


class Task(Struct, frozen=True):
    """A part of the question that one tool is for."""

    tool: Tool
    text: str


def is_fitting(question: str, tool: Tool) -> bool:
    """Whether a question shares any telling word with a tool."""
    return not keys(question).isdisjoint(keys(tool.name) | keys(tool.description))


def score(text: str, tool: Tool) -> float:
    """How much of what a tool says of itself stands in a text."""
    said, parameters = keys(text), " ".join(get_properties(tool.parameters))
    shares = [_share(said, keys(of)) for of in (tool.name, tool.description, parameters)]
    return shares[0] + shares[1] + shares[2] / 2


def tasks(question: str, tools: Sequence[Tool]) -> list[Task]:
    """The parts of a question, each with its tool; a part that may be any tool's goes with the one
    before it."""
    if len(tools) == 1:
        return [Task(tools[0], question)]
    found: list[tuple[Tool, int, int]] = []
    undecided: int | None = None
    for start, end in _parts(question):
        tool = _tool_of(question[start:end], tools)
        if tool is None and found:
            found[-1] = (*found[-1][:2], end)
        elif tool is None:
            undecided = start if undecided is None else undecided
        elif found and found[-1][0] is tool:
            found[-1] = (*found[-1][:2], end)
        else:
            found.append((tool, start if undecided is None else undecided, end))
            undecided = None
    if not found:
        return [Task(max(tools, key=lambda tool: score(question, tool)), question)]
    return [Task(tool, question[start:end].strip()) for tool, start, end in found]


def _share(said: set[str], of: set[str]) -> float:
    return len(said & of) / max(1, len(of))


def _parts(question: str) -> Iterator[tuple[int, int]]:
    """Sentences and clauses. Nothing is cut within quotes."""
    hidden = _QUOTED.sub(lambda match: "x" * len(match[0]), question)
    cuts = {match.end() for pattern in (_SENTENCE, _CLAUSE) for match in pattern.finditer(hidden)}
    edges = sorted({0, *cuts, len(question)})
    return pairwise(edges)


def _tool_of(text: str, tools: Sequence[Tool]) -> Tool | None:
    """The one tool that a part is about."""
    for tool in tools:
        if re.search(rf"(?<![\w.]){re.escape(tool.name)}(?!\w)", text):
            return tool
    scored = sorted(((score(text, tool), at) for at, tool in enumerate(tools)), reverse=True)
    best, other = scored[0][0], scored[1][0]
    return tools[scored[0][1]] if best >= _ENOUGH and best - other >= _AHEAD else None
