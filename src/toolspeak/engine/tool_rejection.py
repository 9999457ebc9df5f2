"""Whether an upstream has refused a request because of its tools."""

from __future__ import annotations

import re

from ..types import Failure

_TOOLS = re.compile(
    r"(?:\b|_)(?:tool|function(?!al))|roles must alternate|roles? (?:is|are) (?:not )?supported",
    re.I,
)
"""Words of refusals that are about tools, or about the turns that only calls and results make."""
_THESE = re.compile(
    r"schema|preced|be followed|match|pattern|maximum|too (?:many|long)|duplicate|unique|_id\b",
    re.I,
)
"""Words of those that are about the tools and calls of one request: others may be taken."""
_NOT_UNDERSTOOD = frozenset({400, 404, 405, 415, 422, 500, 501})


def rejects_tools(failure: Failure) -> bool:
    """Whether an upstream seems to have refused a request because of its tools. That they take too
    many tokens says nothing of tools as such."""
    if failure.kind == "context_length":
        return False
    said = f"{failure.message} {failure.param or ''} {failure.code or ''}"
    return failure.status in _NOT_UNDERSTOOD and _TOOLS.search(said) is not None


def rejects_all_tools(failure: Failure) -> bool:
    """Whether such a refusal seems to be of any tools, and not of what is wrong with these."""
    return rejects_tools(failure) and _THESE.search(failure.message) is None
