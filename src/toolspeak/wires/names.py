"""Tool names that an API would refuse, written so that it takes them, and read back.

    mcp.files/read        ->   mcp_files_read            crm › find   ->   crm__find

The name that goes out depends on the tools alone, so that it is the same in every turn.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cached_property, lru_cache

from msgspec import Struct

from ..types import Note, Tool

_HASH = 6


class NameRule(Struct, frozen=True):
    """Which names an API takes."""

    allowed: str
    """The characters of a name, as in a regular expression's set."""
    max_length: int
    first: str = ""
    """What a name may begin with, if not with any of them."""

    def allows(self, name: str) -> bool:
        """Whether a name can go out as it is."""
        return _pattern(self).fullmatch(name) is not None


@lru_cache(maxsize=64)
def _pattern(rule: NameRule) -> re.Pattern[str]:
    begins = f"(?=[{rule.first}])" if rule.first else ""
    return re.compile(f"{begins}[{rule.allowed}]{{1,{rule.max_length}}}")


ANY_NAME = NameRule(r"\s\S", 10_000)


class ToolNames:
    """The names of one request's tools, as a wire writes them."""

    def __init__(
        self, tools: Iterable[Tool], rule: NameRule, *, keeps_namespaces: bool = False
    ) -> None:
        self._rule = rule
        self._keeps_namespaces = keeps_namespaces
        """The wire has a place for them beside the name."""
        self._written: dict[tuple[str | None, str], str] = {}
        self._meant: dict[tuple[str | None, str], Tool] = {}
        declared = list(tools)
        plain = {tool.name for tool in declared if tool.namespace is None}
        for tool in declared:
            key = (tool.namespace, tool.name)
            if key in self._written:
                continue
            space = self._space(tool.namespace)
            name = self._fitted(tool.namespace, tool.name)
            also_plain = space is None and name in plain and key != (None, name)
            if also_plain or (space, name) in self._meant:
                name = self._hashed(name, f"{tool.namespace or ''}\0{tool.name}")
            self._written[key] = name
            self._meant[space, name] = tool

    def to_wire(self, name: str, namespace: str | None = None) -> str:
        """The name as it goes out."""
        known = self._written.get((namespace, name))
        return known if known is not None else self._fitted(namespace, name)

    def find_tool(self, name: str, namespace: str | None = None) -> Tool | None:
        """The tool that a name on the wire means, if it is one of the request's."""
        return self._meant.get((namespace, name))

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """Which tools go out under another name."""
        return tuple(
            Note("renamed-tool", f"the tool {name!r} goes out as {written!r}", name)
            for (_, name), written in self._written.items()
            if name != written
        )

    def _space(self, namespace: str | None) -> str | None:
        return namespace if self._keeps_namespaces else None

    def _fitted(self, namespace: str | None, name: str) -> str:
        rule = self._rule
        full = name if self._space(namespace) or not namespace else f"{namespace}__{name}"
        if rule.allows(full):
            return full
        fitted = re.sub(f"[^{rule.allowed}]", "_", full) or "_"
        if rule.first and not re.match(f"[{rule.first}]", fitted):
            fitted = f"_{fitted}"
        return fitted if len(fitted) <= rule.max_length else self._hashed(fitted, full)

    def _hashed(self, name: str, full: str) -> str:
        """A name that no other tool has, however alike they are in what may be written."""
        digest = hashlib.blake2b(full.encode("utf-8", "replace"), digest_size=_HASH // 2)
        return f"{name[: self._rule.max_length - _HASH - 1]}_{digest.hexdigest()}"


NO_TOOL_NAMES = ToolNames((), ANY_NAME)
