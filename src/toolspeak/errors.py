"""Exceptions, by who is at fault.

    ToolspeakError
    ├── UsageError         the caller passed an invalid argument
    │   ├── UnknownDialect     no dialect has this name
    │   └── ConfigError        the configuration is invalid
    ├── WireError          a body does not follow the rules of its API
    ├── ExtractionProblem  a call was rejected, and the caller asked for an exception
    ├── Unrepresentable    a dialect cannot represent a call
    └── UpstreamError      an upstream gave no usable reply

`upstream`, `gateway` and `agent` define a few more, each beside the code that raises it.

Bad model output never raises otherwise: it becomes text, rejections and notes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .types import Failure, Rejection


class ToolspeakError(Exception):
    """Base of all exceptions of Toolspeak."""


class UsageError(ToolspeakError, ValueError):
    """The caller passed an invalid argument; the message says which, and what to do."""


class UnknownDialect(UsageError):
    """No dialect has this name."""


class WireError(ToolspeakError, ValueError):
    """A body does not follow the rules of its API; `path` is the field that is wrong.

    `failure` is the same as a value, to be encoded as an error of the client's API.
    """

    def __init__(
        self,
        problem: str,
        path: str = "$",
        *,
        code: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{problem} - at `{path}`")
        self.problem = problem
        self.path = path
        param = path.removeprefix("$").removeprefix(".") or None
        self.failure = Failure("bad_request", str(self), 400, code, param, details)


class ExtractionProblem(ToolspeakError):
    """A call was rejected, and the caller asked for an exception."""

    def __init__(self, rejection: Rejection) -> None:
        self.rejection = rejection
        super().__init__(f"{rejection.problem} - at `{rejection.path}` of {rejection.raw[:80]!r}")


class Unrepresentable(ToolspeakError, ValueError):
    """A dialect cannot represent a value.

    `path` is its place in the calls, such as `$[0].arguments.code`.
    """

    def __init__(self, dialect: str, path: str, reason: str) -> None:
        super().__init__(f"{dialect} cannot represent {reason} - at `{path}`")
        self.dialect = dialect
        self.path = path
        self.reason = reason


class UpstreamError(ToolspeakError):
    """An upstream gave no usable reply. `headers` are for the client, such as `retry-after`."""

    def __init__(self, failure: Failure, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.headers = headers or {}
