"""The older interface of `CallResolver`, for callers that have not moved to it yet."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..types import Trust
from .drafts import CallDraft
from .resolution import CallResolver
from .toolset import Toolset


class _Verdict(Struct, frozen=True):
    name: str = ""
    arguments: dict[str, Any] | None = None
    remarks: tuple[tuple[str, str, str], ...] = ()
    code: str = ""
    problem: str = ""
    path: str = "$"


class Judge:
    """Checks drafts as `CallResolver.check` does."""

    def __init__(self, tools: Toolset | None, trust: Trust) -> None:
        self._resolver = CallResolver(tools, trust)

    def weigh(self, draft: CallDraft, source: str) -> _Verdict:
        """Check a draft."""
        checked = self._resolver.check(draft, source)
        if checked.rejection:
            code, problem = checked.rejection.code, checked.rejection.problem
            path = checked.rejection.path
            return _Verdict(checked.name, code=code, problem=problem, path=path)
        remarks = tuple((note.code, note.message, note.where) for note in checked.notes)
        return _Verdict(checked.name, checked.arguments, remarks)
