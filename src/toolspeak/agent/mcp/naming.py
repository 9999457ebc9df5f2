"""Names for tools of servers: what every model's API takes, and no two tools share.

files, read_file            -> files__read_file
my server, read/file        -> my_server__read_file
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Container, Iterable

LONGEST = 64
_SIGN = re.compile(r"[^a-zA-Z0-9_-]")
_DIGITS = 8


def prefix_of(server: str) -> str:
    """A server's part of its tools' names. The first two underscores end it, and so no tool of one
    server has the name of another's."""
    return re.sub(r"__+", "_", _SIGN.sub("_", server)).strip("_") or "mcp"


def names_for(server: str, tools: Iterable[str]) -> dict[str, str]:
    """The names of a server's tools, by what the server calls them. A tool keeps its own name where
    that can be said, and another that would have the same is told from it."""
    plain = {tool: f"{prefix_of(server)}__{_SIGN.sub('_', tool)}" for tool in tools}
    counts = Counter(plain.values())
    names = {tool: name for tool, name in plain.items() if _is_good(name, tool, counts[name])}
    taken = {*names.values()}
    for tool in sorted(plain.keys() - names.keys()):
        names[tool] = _marked(plain[tool], f"{server}\0{tool}", taken)
        taken.add(names[tool])
    return names


def _is_good(name: str, tool: str, count: int) -> bool:
    return len(name) <= LONGEST and (count == 1 or name.endswith(f"__{tool}"))


def _marked(name: str, key: str, taken: Container[str]) -> str:
    """A name that is no longer than allowed, and told from others by a hash of all that it means.
    A server may have given another tool that very name: then the hash is another."""
    digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:_DIGITS]
    marked = f"{name[: LONGEST - _DIGITS - 1]}_{digest}"
    return marked if marked not in taken else _marked(name, digest + key, taken)
