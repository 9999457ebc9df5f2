"""What can go wrong, and whose fault it is.

    ToolspeakError
    ├── UsageError         the caller passed something that cannot work
    │   ├── UnknownDialect     no dialect of that name
    │   └── ConfigError        a configuration that cannot be used (`gateway.problems`)
    ├── WireError          a request that its API's rules do not allow
    ├── ExtractionProblem  a block that is no call, where the caller asked for an exception
    └── Unrepresentable    a call that this dialect has no way to write

The gateway has more, each with the `Failure` that its client is told: `Refused`, `UnknownModel`,
`UpstreamFailed`, `NoCall`; and `EmbeddedError`. The agent has `ModelFailed`, and for its tools
`ToolFailed`, `ServerFailed` (an MCP server) and `Fatal`.

What a model says is no exception otherwise: it becomes calls, text and notes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .types import Failure, Rejection


class ToolspeakError(Exception):
    """The root of every exception that Toolspeak raises on purpose."""


class UsageError(ToolspeakError, ValueError):
    """The caller passed something that cannot work; the message says what and what to do."""


class UnknownDialect(UsageError):
    """There is no dialect of that name."""


class WireError(ToolspeakError, ValueError):
    """A request is not what its API's rules allow: the client's fault, and `path` says where.

    `failure` says the same as a value, for the client to be told in its API's own words.
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
    """A block that tried to be a call is none, and the caller wanted to hear of it at once."""

    def __init__(self, rejection: Rejection) -> None:
        self.rejection = rejection
        super().__init__(f"{rejection.problem} - at `{rejection.path}` of {rejection.raw[:80]!r}")


class Unrepresentable(ToolspeakError, ValueError):
    """A dialect has no way to write this value.

    `path` is where in the calls the value stands, as in `$[0].arguments.code`.
    """

    def __init__(self, dialect: str, path: str, reason: str) -> None:
        super().__init__(f"{dialect} cannot carry {reason} - at `{path}`")
        self.dialect = dialect
        self.path = path
        self.reason = reason


class UpstreamError(ToolspeakError):
    """An upstream gave no usable reply. `headers` are for the client, such as `retry-after`."""

    def __init__(self, failure: Failure, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.headers = headers or {}
