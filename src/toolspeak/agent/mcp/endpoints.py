"""How to reach an MCP server, and the errors on the way. Importing this does not import the SDK.

The `repr` of an endpoint hides its secrets.
"""

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
    """A program to start, which speaks MCP over stdin and stdout."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """Variables in addition to the few that every program needs."""
    cwd: str | None = None

    def __repr__(self) -> str:
        directory = f" in {self.cwd}" if self.cwd else ""
        return f"`{scrub(shlex.join([self.command, *self.args])).text}`{directory}"


class HttpEndpoint(Struct, frozen=True, kw_only=True):
    """A running server, which speaks MCP over streamable HTTP."""

    url: str
    headers: dict[str, str] = {}

    def __repr__(self) -> str:
        from ...config.settings import mask_url

        return mask_url(self.url)


McpEndpoint = StdioEndpoint | HttpEndpoint


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers stripped, or raise if one cannot be sent. No message shows a value: it
    may be a key."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not a valid header name")
        if not _HEADER_VALUE.fullmatch(value.strip()):
            raise UsageError(f"the value of header {name!r} must be printable ASCII")
    return {name: value.strip() for name, value in headers.items()}


class McpServerError(ToolError):
    """An MCP server cannot be started, does not answer, or is gone."""


class ServerNotStarted(McpServerError):
    """The server could not be started or reached. The message is for the user and shows the
    command and its last output; `short` is for the model."""

    def __init__(self, message: str, short: str) -> None:
        super().__init__(message)
        self.short = short


class RequestNotSent(McpServerError):
    """The server certainly has not received the call, so it may be sent again."""


def find_root_error(problem: BaseException) -> BaseException:
    """Return the first error inside nested exception groups."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem


def describe_error(problem: BaseException) -> str:
    return str(problem).strip() or type(problem).__name__
