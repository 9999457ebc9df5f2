"""Reads a file that lists MCP servers.

    {"mcpServers": {
        "files": {"command": "npx", "args": ["-y", "…"], "env": {"KEY": "${KEY}"}},
        "search": {"type": "http", "url": "https://…", "headers": {"authorization": "Bearer ${K}"}}
    }}

This is the format of Claude, Cursor and others; VS Code names the outer key `servers`. Fields of
other programs are ignored.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ...config.document import ConfigDocument, ConfigError, ConfigProblem, join_path
from ...errors import UsageError
from .client import McpServer, name_prefix
from .transports import HttpEndpoint, StdioEndpoint, check_headers

_SERVER_KEYS = ("mcpServers", "servers")
_ENV_REFERENCE = re.compile(r"\$\{env:(\w+)\}")
"""`${env:NAME}`: the way Cursor and VS Code write `${NAME}`."""
_NonEmpty = Annotated[str, Meta(min_length=1)]
_Scalar = str | int | float | bool


class _McpEntry(Struct, kw_only=True):
    """The fields that only Toolspeak knows."""

    required: bool | None = None
    trustHints: bool | None = None  # noqa: N815 - spelled like `mcpServers`


class _StdioEntry(_McpEntry, kw_only=True):
    command: _NonEmpty
    type: Literal["stdio"] = "stdio"
    args: tuple[str, ...] = ()
    env: dict[str, _Scalar] = {}
    cwd: _NonEmpty | None = None

    def build_endpoint(self) -> StdioEndpoint:
        cwd = str(Path(self.cwd).expanduser()) if self.cwd else None
        env = _as_strings(self.env)
        return StdioEndpoint(command=self.command, args=self.args, env=env, cwd=cwd)


class _HttpEntry(_McpEntry, kw_only=True):
    url: _NonEmpty
    type: Literal["http", "streamable-http", "streamableHttp"] = "http"
    headers: dict[str, _Scalar] = {}

    def build_endpoint(self) -> HttpEndpoint:
        return HttpEndpoint(url=self.url, headers=check_headers(_as_strings(self.headers)))


def load_servers(
    path: str | Path, *, environ: Mapping[str, str] | None = None, **options: Any
) -> tuple[McpServer, ...]:
    """Return the servers that a file lists, except disabled ones.

    `options` of `McpServer` apply to all servers; an entry may set its own `required` and
    `trustHints`. `${NAME}` and `${NAME:-default}` are read from the environment. A `ConfigError`
    lists all problems at once, each with its path."""
    document = ConfigDocument(str(path), _read_json(Path(path)))
    key = next((one for one in _SERVER_KEYS if one in document.values), _SERVER_KEYS[0])
    document.values = {key: _drop_disabled(document.values.get(key))}
    document.expand_variables(os.environ if environ is None else environ)
    servers = _build_servers(document, key, options)
    if document.problems:
        raise ConfigError(document.format_problems(document.problems))
    return servers


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_ENV_REFERENCE.sub(r"${\1}", path.read_text("utf-8-sig")))
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"{path} is not JSON: {error}"]) from None
    if not isinstance(value, dict):
        raise ConfigError([f"{path}: Expected `object`, got `{type(value).__name__}` - at `$`"])
    return value


def _drop_disabled(entries: Any) -> Any:
    """Remove disabled entries before anything is validated."""
    if not isinstance(entries, dict):
        return entries
    return {
        name: entry
        for name, entry in entries.items()
        if not (isinstance(entry, dict) and entry.get("disabled") is True)
    }


def _build_servers(
    document: ConfigDocument, key: str, options: dict[str, Any]
) -> tuple[McpServer, ...]:
    entries = document.values[key]
    if not isinstance(entries, dict):
        keys = " or ".join(f"`{one}`" for one in _SERVER_KEYS)
        problem = f"Expected an object {keys} that maps names to servers"
        document.add_problems(ConfigProblem(problem))
        return ()
    seen: dict[str, str] = {}
    for name in entries:
        other = seen.setdefault(name_prefix(name), name)
        if other != name:
            problem = f"the tools of {name!r} and {other!r} would have the same names; rename one"
            document.add_problems(ConfigProblem(problem, join_path(f"$.{key}", name)))
    servers = (
        _build_server(document, join_path(f"$.{key}", name), name, entries[name], options)
        for name in entries
    )
    return tuple(server for server in servers if server)


def _build_server(
    document: ConfigDocument, path: str, name: str, entry: Any, options: dict[str, Any]
) -> McpServer | None:
    """Build the server of an entry; None, and a problem in the document, if it is not valid."""
    if problem := _find_problem(entry):
        document.add_problems(ConfigProblem(problem, path))
        return None
    kind = _HttpEntry if "url" in entry else _StdioEntry
    # Other fields belong to other programs.
    known = {key: value for key, value in entry.items() if key in kind.__struct_fields__}
    settings = document.build_settings(kind, known, path)
    own = {"required": settings.required, "trust_hints": settings.trustHints}
    options = {**options, **{key: value for key, value in own.items() if value is not None}}
    try:
        return McpServer(name, settings.build_endpoint(), **options)
    except UsageError as problem:
        document.add_problems(ConfigProblem(str(problem), f"{path}.headers"))
        return None


def _find_problem(entry: Any) -> str:
    """Return the problem of an entry that describes no endpoint, or ""."""
    if not isinstance(entry, dict):
        return f"Expected `object`, got `{type(entry).__name__}`"
    if entry.get("type") == "sse":
        return "the deprecated transport `sse` is not supported; use `http`"
    if ("url" in entry) == ("command" in entry):
        found = "both" if "url" in entry else "neither"
        return f"Expected either `command` or `url`, got {found}"
    return ""


def _as_strings(values: dict[str, _Scalar]) -> dict[str, str]:
    """Variables and headers are strings, but people also write numbers."""
    return {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()
    }
