"""What can go wrong with a server, in words that its model and its user can do something with."""

from __future__ import annotations

from ..tools import ToolFailed


class ServerFailed(ToolFailed):
    """An MCP server cannot be started, does not answer, or is gone."""


class NotStarted(ServerFailed):
    """The same, at its beginning. What it was started with, and what it complained of, is for its
    user; `short` is for a model."""

    def __init__(self, told: str, short: str) -> None:
        super().__init__(told)
        self.short = short


class NotSent(ServerFailed):
    """The same, and it is certain that the server has not begun with the call."""


def root_of(problem: BaseException) -> BaseException:
    """The first of the problems that tasks have failed with together."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem


def words_for(problem: BaseException) -> str:
    """What an exception says, or what it is if it says nothing."""
    return str(problem).strip() or type(problem).__name__
