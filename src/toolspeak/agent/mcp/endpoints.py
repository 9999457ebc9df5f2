"""Where a server is: a command that starts it, or an address. Neither prints its secrets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from msgspec import Struct

from ...errors import UsageError
from ...security.scrubbing import scrub
from ..tools import ToolError

_HEADER_NAME = re.compile(r"[!#$%&'*+.^`|~\w-]+", re.ASCII)
_HEADER_VALUE = re.compile(r"[\t -~]*")


class StdioEndpoint(Struct, frozen=True, kw_only=True):
    """A program that speaks over its standard input and output."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """What it gets beside the few variables that every program needs."""
    cwd: str | None = None

    def __repr__(self) -> str:
        where = f" in {self.cwd}" if self.cwd else ""
        return f"`{scrub(shlex.join([self.command, *self.args])).text}`{where}"


class HttpEndpoint(Struct, frozen=True, kw_only=True):
    """A server that is running, and speaks HTTP."""

    url: str
    headers: dict[str, str] = {}

    def __repr__(self) -> str:
        from ...config.settings import mask_url

        return mask_url(self.url)


McpEndpoint = StdioEndpoint | HttpEndpoint


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers, if they can be sent. No message shows a value: it may be a key."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not the name of a header")
        if not _HEADER_VALUE.fullmatch(value.strip()):
            raise UsageError(f"no header can carry the value of {name!r}: it is more than ASCII")
    return {name: value.strip() for name, value in headers.items()}


class McpServerError(ToolError):
    """An MCP server cannot be started, does not answer, or is gone."""


class ServerNotStarted(McpServerError):
    """The same, at its beginning. What it was started with, and what it complained of, is for its
    user; `short` is for a model."""

    def __init__(self, told: str, short: str) -> None:
        super().__init__(told)
        self.short = short


class RequestNotSent(McpServerError):
    """The same, and it is certain that the server has not begun with the call."""


def find_root_error(problem: BaseException) -> BaseException:
    """The first of the problems that tasks have failed with together."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem


def describe_error(problem: BaseException) -> str:
    """What an exception says, or what it is if it says nothing."""
    return str(problem).strip() or type(problem).__name__
