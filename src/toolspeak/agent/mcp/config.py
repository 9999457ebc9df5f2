"""Reads the file in which people list their MCP servers.

    {"mcpServers": {
        "files": {"command": "npx", "args": ["-y", "…"], "env": {"KEY": "${KEY}"}},
        "search": {"type": "http", "url": "https://…", "headers": {"authorization": "Bearer ${K}"}}
    }}

Claude, Cursor and others write it so; VS Code calls the outer key `servers`. Whatever else stands
in an entry is another program's concern.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct

from ...errors import UsageError
from .client import McpServer
from .tools import name_prefix

if TYPE_CHECKING:
    from ...config.document import ConfigDocument

_SERVER_KEYS = ("mcpServers", "servers")
_ENV_REFERENCE = re.compile(r"\$\{env:(\w+)\}")
"""How Cursor and VS Code write `${NAME}`."""
_Text = Annotated[str, Meta(min_length=1)]
_Value = str | int | float | bool


class _StdioEntry(Struct, kw_only=True):
    command: _Text
    type: Literal["stdio"] = "stdio"
    args: tuple[str, ...] = ()
    env: dict[str, _Value] = {}
    cwd: _Text | None = None


class _HttpEntry(Struct, kw_only=True):
    url: _Text
    type: Literal["http", "streamable-http", "streamableHttp"] = "http"
    headers: dict[str, _Value] = {}


class _OwnOptions(Struct, kw_only=True):
    """What only Toolspeak knows."""

    required: bool | None = None
    trustHints: bool | None = None  # noqa: N815 - as the file writes it, like `mcpServers`


def load_servers(
    path: str | Path, *, environ: Mapping[str, str] | None = None, **options: Any
) -> tuple[McpServer, ...]:
    """The servers that a file lists, without those that are disabled. `options` hold for all of
    them, as `McpServer` takes them; an entry may have its own `required` and `trustHints`.

    `${NAME}` and `${NAME:-default}` come from the environment. A `ConfigError` tells all that is
    wrong at once, each with its place."""
    from ...config.document import ConfigDocument, ConfigError

    draft = ConfigDocument(str(path), _read_json(Path(path)))
    outer = next((key for key in _SERVER_KEYS if key in draft.values), _SERVER_KEYS[0])
    draft.values = {outer: _drop_disabled(draft.values.get(outer))}
    draft.expand_variables(os.environ if environ is None else environ)
    servers = _build_servers(draft, outer, options)
    if draft.problems:
        raise ConfigError(draft.format_problems(draft.problems))
    return servers


def _read_json(path: Path) -> dict[str, Any]:
    from ...config.document import ConfigError

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
    """The entries that count. What is wrong with the others is nobody's concern."""
    if not isinstance(entries, dict):
        return entries
    return {name: entry for name, entry in entries.items() if not _is_disabled(entry)}


def _is_disabled(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.get("disabled") is True


def _build_servers(
    draft: ConfigDocument, outer: str, options: dict[str, Any]
) -> tuple[McpServer, ...]:
    from ...config.document import ConfigProblem, join_path

    entries = draft.values[outer]
    if not isinstance(entries, dict):
        wanted = " or ".join(f"`{key}`" for key in _SERVER_KEYS)
        draft.add_problems(
            ConfigProblem(f"Expected an object {wanted} with a server under each name")
        )
        return ()
    seen: dict[str, str] = {}
    for name in entries:
        other = seen.setdefault(name_prefix(name), name)
        if other != name:
            problem = f"the tools of {name!r} and {other!r} would have the same names: rename one"
            draft.add_problems(ConfigProblem(problem, join_path(f"$.{outer}", name)))
    made = (
        _build_server(draft, join_path(f"$.{outer}", name), name, entries[name], options)
        for name in entries
    )
    return tuple(server for server in made if server)


def _build_server(
    draft: ConfigDocument, path: str, name: str, entry: Any, options: dict[str, Any]
) -> McpServer | None:
    """The server that an entry means; None, and a problem, if it means none."""
    from ...config.document import ConfigProblem

    if problem := _find_entry_problem(entry):
        draft.add_problems(ConfigProblem(problem, path))
        return None
    ours = _convert_entry(draft, _OwnOptions, entry, path)
    own = {"required": ours.required, "trust_hints": ours.trustHints}
    options = {**options, **{key: value for key, value in own.items() if value is not None}}
    if "url" in entry:
        place = _convert_entry(draft, _HttpEntry, entry, path)
        try:
            return McpServer.http(name, place.url, headers=_as_strings(place.headers), **options)
        except UsageError as problem:
            draft.add_problems(ConfigProblem(str(problem), f"{path}.headers"))
            return None
    place = _convert_entry(draft, _StdioEntry, entry, path)
    cwd = Path(place.cwd).expanduser() if place.cwd else None
    return McpServer.stdio(
        name, place.command, place.args, env=_as_strings(place.env), cwd=cwd, **options
    )


def _find_entry_problem(entry: Any) -> str:
    """Why it cannot be told how to reach a server; "" if it can."""
    if not isinstance(entry, dict):
        return f"Expected `object`, got `{type(entry).__name__}`"
    if entry.get("type") == "sse":
        return "the transport `sse` is out of date and not spoken here: use `http`"
    if ("url" in entry) == ("command" in entry):
        return "Expected either `command` or `url`"
    return ""


_Kind = TypeVar("_Kind", bound=Struct)


def _convert_entry(
    draft: ConfigDocument, kind: type[_Kind], entry: dict[str, Any], path: str
) -> _Kind:
    """The part of an entry that is of this kind. Other programs have fields of their own."""
    known = {key: value for key, value in entry.items() if key in kind.__struct_fields__}
    return draft.build_settings(kind, known, path)


def _as_strings(values: dict[str, _Value]) -> dict[str, str]:
    """Variables and headers are text, but some people write numbers."""
    return {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()
    }
